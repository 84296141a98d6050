"""The automatic size of a snapshot's windows."""

from __future__ import annotations

import random

import pytest

from tailrace.connectors.postgres import pace as module
from tailrace.connectors.postgres.pace import LONGEST, WINDOW_PACE, Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "time", lambda: now[0])
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
        batch(pace, clock, 0.53, with_window=False)
    assert settled(pace, clock, 0.53) == pytest.approx(1.06, rel=0.05)


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


def tick(pace: Pace, clock: list[float], interval: float, each: float = 0.005, with_window: bool = False) -> float:
    """What a batch takes that a trigger of `interval` s begins, 0.1 s and `each` for a chunk; on to the next tick."""
    pace.planned(with_window)
    took = 0.1 + (each * pace.chunks() if with_window else 0.0)
    # the call comes a little later than the tick
    tick = clock[0] - 0.004
    clock[0] = max(clock[0] + took, (tick // interval + 1) * interval + 0.004)
    pace.returned()
    return took


def ticking(clock: list[float], interval: float) -> Pace:
    """The pace of a query that has run for a while with a trigger of `interval` s."""
    pace = Pace(0, 2, 10_000)
    clock[0] = 100 * interval + 0.004
    for _ in range(15):
        tick(pace, clock, interval)
    return pace


@pytest.mark.parametrize("interval", [0.5, 1.0, 5.0])
def test_with_a_trigger_windows_take_the_time_until_the_next_tick(clock: list[float], interval: float) -> None:
    pace = ticking(clock, interval)
    assert pace.waits
    took = [tick(pace, clock, interval, with_window=True) for _ in range(60)]
    assert max(took) < 1.45 * interval
    assert 0.8 * interval < min(took[20:])
    assert max(took[20:]) < 1.1 * interval


def test_a_trigger_is_not_forgotten_for_a_few_late_calls(clock: list[float]) -> None:
    pace = ticking(clock, 1.0)
    for late in (0.0, 0.05, 0.0, 0.3, 0.0, 0.0, 0.02):
        clock[0] += late
        tick(pace, clock, 1.0)
        assert pace.waits
    for _ in range(20):
        batch(pace, clock, 0.07, with_window=False)
    assert not pace.waits


def test_the_next_snapshot_begins_with_half_of_what_has_fitted(clock: list[float]) -> None:
    pace = ticking(clock, 1.0)
    for _ in range(30):
        tick(pace, clock, 1.0, with_window=True)
    last = pace.chunks()
    for _ in range(3):
        tick(pace, clock, 1.0)
    assert 0.4 * last < pace.chunks() < 0.6 * last


def test_windows_of_a_rare_trigger_do_not_grow_for_ever(clock: list[float]) -> None:
    pace = ticking(clock, 60.0)
    for _ in range(30):
        tick(pace, clock, 60.0, with_window=True)
    assert pace.chunks() == int(2 * LONGEST / WINDOW_PACE)


def test_windows_of_a_rare_trigger_are_shorter_where_rows_are_slow(clock: list[float]) -> None:
    pace = ticking(clock, 60.0)
    took = [tick(pace, clock, 60.0, each=1.0, with_window=True) for _ in range(40)]
    assert min(took[10:]) > 45
    assert max(took[10:]) < 66


def test_a_query_without_a_trigger_does_not_wait_for_ticks(clock: list[float]) -> None:
    jitter = random.Random(4)
    for typical in (0.06, 0.1, 0.25):
        pace = Pace(0, 2, 10_000)
        for _ in range(500):
            batch(pace, clock, typical * jitter.uniform(0.8, 1.2), with_window=False)
            assert not pace.waits


def test_neither_does_one_that_has_nothing_to_do(clock: list[float]) -> None:
    pace = Pace(0, 2, 10_000)
    for _ in range(500):
        # the source waits for changes, and Spark asks again a little later
        clock[0] += 0.5
        batch(pace, clock, 0.006, with_window=False)
        assert not pace.waits
