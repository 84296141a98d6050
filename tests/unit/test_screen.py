"""The demo's output where there is no terminal: no step is silent for long."""

from __future__ import annotations

import io

import pytest

from tailrace.demo import screen


def test_a_long_step_says_now_and_then_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = screen.Screen(out)
    with shown.step("Starting Spark"):
        for _ in range(100):
            now[0] += 0.1
            shown.tick()
    now[0] += 60
    shown.tick()
    assert out.getvalue().splitlines() == ["Starting Spark …", "  5 s so far", "  9 s so far", "  10.0 s"]
