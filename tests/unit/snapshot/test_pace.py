"""The automatic size of a snapshot's windows."""

from __future__ import annotations

import random

import pytest

from tailrace.snapshot import pace as module
from tailrace.snapshot.pace import LONGEST, WINDOW_PACE, BatchPace, ReadingPace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def batch(pace: BatchPace, clock: list[float], seconds: float, with_window: bool) -> None:
    pace.planned(pace.chunks() if with_window else 0)
    clock[0] += seconds
    pace.returned()


def settled(pace: BatchPace, clock: list[float], plain: float) -> float:
    """Return the times of batches once the windows have settled; a batch without a window takes
    `plain`, a chunk 1 ms."""
    for _ in range(40):
        batch(pace, clock, plain + pace.chunks() * 0.001, with_window=True)
    return plain + pace.chunks() * 0.001


def test_windows_grow_until_their_batch_takes_the_time(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 1024, 0.0)
    assert pace.chunks() == 16
    assert settled(pace, clock, 0.1) == pytest.approx(WINDOW_PACE, rel=0.05)


@pytest.mark.parametrize("chunk_size", [1024, 10_000])
def test_where_batches_are_slow_anyway_a_window_may_take_as_long_again(clock: list[float], chunk_size: int) -> None:
    pace = BatchPace(0, 2, chunk_size, 0.0)
    for _ in range(20):
        batch(pace, clock, 0.53, with_window=False)
    assert settled(pace, clock, 0.53) == pytest.approx(1.06, rel=0.05)


def test_a_fixed_number_is_kept(clock: list[float]) -> None:
    pace = BatchPace(3, 2, 1024, 0.0)
    batch(pace, clock, 5, with_window=True)
    assert pace.chunks() == 3


def test_the_slow_first_batches_of_a_query_are_soon_forgotten(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 1024, 0.0)
    batch(pace, clock, 5, with_window=False)
    batch(pace, clock, 0.05, with_window=False)
    assert settled(pace, clock, 0.05) == pytest.approx(WINDOW_PACE, rel=0.05)


def test_each_snapshot_begins_with_the_least_window(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 1024, 0.0)
    settled(pace, clock, 0.05)
    assert pace.chunks() > 16
    batch(pace, clock, 0.05, with_window=False)
    assert pace.chunks() == 16


def gathering(pace: BatchPace, clock: list[float], windows: int, each: float) -> list[float]:
    """Return the times of batches with a window, 0.07 s and `each` for a chunk, where the next one is opened ahead."""
    took, ahead = [], pace.chunks()
    for _ in range(windows):
        chunks, ahead = ahead, pace.chunks()
        pace.planned(chunks)
        took.append(0.07 + each * chunks)
        clock[0] += took[-1]
        pace.returned()
    return took


def alone(pace: BatchPace, clock: list[float], interval: float, batches: int) -> None:
    """Return the times of batches of 0.07 s without a window, with a pause after each."""
    for _ in range(batches):
        batch(pace, clock, 0.07, with_window=False)
        clock[0] += interval - 0.07


@pytest.mark.parametrize("interval", [0.3, 0.5, 1.0, 5.0])
def test_where_changes_gather_windows_take_that_time(clock: list[float], interval: float) -> None:
    pace = BatchPace(0, 2, 10_000, interval)
    alone(pace, clock, interval, 100)
    assert not pace.waits
    took = gathering(pace, clock, 40, each=0.02)
    assert max(took) < interval
    assert min(took[12:]) > 0.8 * interval


def test_their_next_snapshot_begins_with_half_of_that(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 10_000, 1.0)
    alone(pace, clock, 1.0, 10)
    gathering(pace, clock, 10, each=0.01)
    fitting = pace.chunks()
    # The last window has little to read.
    pace.planned(3)
    clock[0] += 0.1
    pace.returned()
    alone(pace, clock, 1.0, 3)
    assert 0.4 * fitting < pace.chunks() < 0.6 * fitting


def test_windows_keep_to_ten_seconds_however_long_changes_gather(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 10_000, 3600.0)
    alone(pace, clock, 3600.0, 3)
    took = gathering(pace, clock, 40, each=0.01)
    assert 0.8 * LONGEST < took[-1] < LONGEST


def test_a_slow_window_makes_the_next_ones_smaller(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 10_000, 0.5)
    alone(pace, clock, 0.5, 10)
    gathering(pace, clock, 20, each=0.005)
    took = gathering(pace, clock, 20, each=0.03)
    assert max(took[6:]) < 0.5


def test_a_trigger_of_the_same_interval_does_not_make_windows_grow_past_it(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 10_000, 1.0)
    clock[0] = 100.004
    for _ in range(15):
        tick(pace, clock, 1.0)
    assert pace.waits
    assert max(tick(pace, clock, 1.0, with_window=True) for _ in range(60)) < 1.45


def tick(pace: BatchPace, clock: list[float], interval: float, each: float = 0.005, with_window: bool = False) -> float:
    """Return the time of a batch at a trigger of `interval` s: 0.1 s and `each` for a chunk, up to the next tick."""
    pace.planned(pace.chunks() if with_window else 0)
    took = 0.1 + (each * pace.chunks() if with_window else 0.0)
    # The call comes a little later than the tick.
    tick = clock[0] - 0.004
    clock[0] = max(clock[0] + took, (tick // interval + 1) * interval + 0.004)
    pace.returned()
    return took


def ticking(clock: list[float], interval: float) -> BatchPace:
    """Return the pace of a query that has run for a while with a trigger of `interval` s."""
    pace = BatchPace(0, 2, 10_000, 0.0)
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
        pace = BatchPace(0, 2, 10_000, 0.0)
        for _ in range(500):
            batch(pace, clock, typical * jitter.uniform(0.8, 1.2), with_window=False)
            assert not pace.waits


def test_neither_does_one_that_has_nothing_to_do(clock: list[float]) -> None:
    pace = BatchPace(0, 2, 10_000, 0.0)
    for _ in range(500):
        # The source waits for changes, and Spark asks again a little later.
        clock[0] += 0.5
        batch(pace, clock, 0.006, with_window=False)
        assert not pace.waits


def test_what_the_planner_reads_itself_doubles_and_halves() -> None:
    pace = ReadingPace(0, 1, 8, 0.25, 0.5)
    found = []
    for took in (0.1, 0.2, 0.3, 0.1, 0.1, 0.6, 0.6, 0.6, 0.6):
        pace.read(took)
        found.append(pace.chunks())
    assert found == [2, 4, 4, 8, 8, 4, 2, 1, 1]


def test_a_fixed_number_stays_whatever_reading_takes() -> None:
    pace = ReadingPace(3, 1, 8, 0.25, 0.5)
    pace.read(0.1)
    pace.read(9)
    assert pace.chunks() == 3
