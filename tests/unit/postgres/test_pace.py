"""The automatic size of a snapshot's windows."""

from __future__ import annotations

import pytest

from tailrace.connectors.postgres import incremental
from tailrace.connectors.postgres.incremental import WINDOW_PACE, Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(incremental.time, "monotonic", lambda: now[0])
    return now


def batch(pace: Pace, clock: list[float], seconds: float, with_window: bool) -> None:
    pace.planned(with_window)
    clock[0] += seconds
    pace.returned()


def settled(pace: Pace, clock: list[float], plain: float) -> float:
    """What a batch takes once the windows have found their size, where one without takes `plain` and a chunk 1 ms."""
    for _ in range(40):
        batch(pace, clock, plain + pace.chunks() * 0.001, with_window=True)
    return plain + pace.chunks() * 0.001


def test_windows_grow_until_their_batch_takes_the_time(clock: list[float]) -> None:
    pace = Pace(0, 2, 1024)
    assert pace.chunks() == 16
    assert settled(pace, clock, 0.1) == pytest.approx(WINDOW_PACE, rel=0.05)


def test_where_batches_are_slow_anyway_a_window_may_take_as_long_again(clock: list[float]) -> None:
    pace = Pace(0, 2, 1024)
    for _ in range(20):
        batch(pace, clock, 0.5, with_window=False)
    assert settled(pace, clock, 0.5) == pytest.approx(1.0, rel=0.05)


def test_a_fixed_number_is_kept(clock: list[float]) -> None:
    pace = Pace(3, 2, 1024)
    batch(pace, clock, 5, with_window=True)
    assert pace.chunks() == 3


def test_the_slow_first_batches_of_a_query_are_soon_forgotten(clock: list[float]) -> None:
    pace = Pace(0, 2, 1024)
    batch(pace, clock, 5, with_window=False)
    batch(pace, clock, 0.05, with_window=False)
    assert settled(pace, clock, 0.05) == pytest.approx(WINDOW_PACE, rel=0.05)


def test_each_snapshot_begins_with_the_least_window(clock: list[float]) -> None:
    pace = Pace(0, 2, 1024)
    settled(pace, clock, 0.05)
    assert pace.chunks() > 16
    batch(pace, clock, 0.05, with_window=False)
    assert pace.chunks() == 16
