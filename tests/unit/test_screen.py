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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_running_seconds_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(screen.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    shown = screen.Screen(out)
    with shown.step("Starting Spark"):
        for _ in range(2):
            now[0] += 1
            shown.tick()
    shown.line("a long line is wrapped " * 4)
    text = out.getvalue()
    assert text.startswith("\rStarting Spark … 1 s\rStarting Spark … 2 s\r")
    lines = text.rpartition("\r")[2].splitlines()
    assert lines[0] == "Starting Spark: 2.0 s"
    assert all(len(line) <= 60 for line in lines)
    assert len(lines) == 3


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    screen.Screen(out).block("one\ntwo", "36")
    assert out.getvalue() == "\x1b[36mone\x1b[0m\n\x1b[36mtwo\x1b[0m\n"
