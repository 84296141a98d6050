"""Tallies count changes by table and kind, in bounded memory, and reports bring them from tasks to the planner once."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tailrace.metrics.distribution import BOUNDS_S, Histogram, Quantiles
from tailrace.metrics.reports import Reports
from tailrace.metrics.tally import MOST_TABLES, OPS, OTHER, Tally

START, END, LATER = {"lsn": "1"}, {"lsn": "2"}, {"lsn": "3"}


def _ops(text: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(text.encode(), np.uint8)


def test_changes_are_counted_by_table_and_kind() -> None:
    tally = Tally()
    tally.count("public.a", _ops("ccudrt"), superseded=7)
    tally.count("public.a", _ops("u"))
    assert dict(zip(OPS, tally.events["public.a"], strict=True)) == {
        "c": 2, "u": 2, "d": 1, "r": 1, "t": 1, "superseded": 7,
    }  # fmt: skip


def test_changes_of_several_tables_are_counted_as_those_of_each() -> None:
    together, apart = Tally(), Tally()
    of, op = np.array([0, 1, 1, 0, 2], np.int32), _ops("cudcc")
    together.count_tables(["a", "b", "c"], of, op, np.array([1, 2, 4, 8, 16]))
    for number, table in enumerate("abc"):
        apart.count(table, op[of == number])
    assert together.events == apart.events
    assert together.sizes == {"a": 9, "b": 6, "c": 16}
    apart.merge(together.to_json())
    assert apart.sizes == together.sizes


def test_a_tally_of_more_tables_than_the_limit_does_not_grow() -> None:
    tally = Tally()
    for number in range(MOST_TABLES + 50):
        tally.count(f"s.t{number}", _ops("c"))
        tally.quarantine(f"s.t{number}", "value")
    assert len(tally.events) == MOST_TABLES + 1
    assert tally.events[OTHER][0] == 50
    assert tally.quarantined[OTHER] == {"value": 50}


def test_a_merged_tally_has_the_sum_of_both() -> None:
    one, other = Tally(), Tally()
    one.count("a", _ops("cc"))
    one.quarantine("a", "size")
    one.note_times(5, 9)
    other.count("a", _ops("cd"))
    other.count("b", _ops("u"))
    other.quarantine("a", "size")
    other.note_times(3, 7)
    other.bytes = 11
    one.merge(json.loads(json.dumps(other.to_json())))
    assert one.events == {"a": [3, 0, 1, 0, 0, 0], "b": [0, 1, 0, 0, 0, 0]}
    assert one.quarantined == {"a": {"size": 2}}
    assert (one.oldest_us, one.newest_us, one.bytes) == (3, 9, 11)


# --- reports ----------------------------------------------------------------------------------------------------------


def _tally(changes: int) -> Tally:
    tally = Tally()
    tally.count("a", _ops("c" * changes))
    return tally


def test_a_task_that_runs_twice_counts_once(tmp_path: Path) -> None:
    reports = Reports(str(tmp_path))
    for _ in range(2):
        (place,) = reports.places(START, END, 1)
        place.write(_tally(3), 0.0)
    found = reports.delivered(END)
    assert found is not None
    assert [one["events"] for one in found] == [{"a": [3, 0, 0, 0, 0, 0]}]
    assert reports.delivered(END) is None


def test_a_batch_that_is_not_committed_does_not_count(tmp_path: Path) -> None:
    reports = Reports(str(tmp_path))
    reports.places(START, END, 1)[0].write(_tally(3), 0.0)
    assert reports.delivered(START) is None
    # Spark gives the batch up and plans another one
    reports.places(START, LATER, 1)[0].write(_tally(5), 0.0)
    found = reports.delivered(LATER)
    assert found is not None
    assert [one["events"]["a"][0] for one in found] == [5]


def test_a_killed_worker_leaves_the_other_reports_and_no_file(tmp_path: Path) -> None:
    reports = Reports(str(tmp_path))
    first, second = reports.places(START, END, 2)
    first.write(_tally(1), 0.0)
    # what a worker that was killed while it wrote has left
    Path(second.folder, f"{second.name}.1.part").write_text("{")
    found = reports.delivered(END)
    assert found is not None
    assert len(found) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_ends_after_its_batch_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    reports = Reports(str(tmp_path))
    (late,) = reports.places(START, END, 1)
    assert reports.delivered(END) == []
    late.write(_tally(9), 0.0)
    reports.places(END, LATER, 1)
    assert reports.delivered(LATER) == []
    assert list(tmp_path.iterdir()) == []


def test_a_worker_without_the_directory_goes_on(tmp_path: Path) -> None:
    (place,) = Reports(str(tmp_path / "elsewhere")).places(START, END, 1)
    place.write(_tally(1), 0.0)


def test_only_the_user_can_read_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert stat.S_IMODE(os.stat(Reports().folder).st_mode) == 0o700


# --- distributions ----------------------------------------------------------------------------------------------------


def test_quantiles_are_exact_within_a_hundredth() -> None:
    found = Quantiles()
    values = sorted(float(value) for value in np.random.default_rng(5).lognormal(5, 2, 5_000))
    for value in values:
        found.add(value)
    for share in (0.5, 0.95, 0.99):
        exact = values[int(share * (len(values) - 1))]
        assert abs(found.quantile(share) - exact) <= 0.0101 * exact + 1
    shown = found.to_json()
    assert (shown["MinValue"], shown["MaxValue"]) == (values[0], values[-1])
    assert shown["AverageValue"] == pytest.approx(sum(values) / len(values))


def test_quantiles_have_a_bounded_size() -> None:
    found = Quantiles()
    for exponent in range(-300, 300):
        found.add(10.0**exponent)
    assert len(found._buckets) <= 4_098
    assert Quantiles().to_json() == {}


def test_a_histogram_counts_a_duration_in_the_bucket_that_holds_it() -> None:
    found = Histogram()
    for seconds in (-1.0, BOUNDS_S[0], 0.2, 10_000.0):
        found.add(seconds)
    assert found.counts[0] == 2
    assert found.counts[BOUNDS_S.index(0.25)] == 1
    assert found.counts[-1] == 1
    assert sum(found.counts) == 4


def test_ten_thousand_tables_take_the_same_memory_after_many_batches() -> None:
    tables = [f"schema.table_{number}" for number in range(10_000)]
    batch, total = Tally(), Tally()
    of, op = np.arange(len(tables), dtype=np.int32), np.full(len(tables), ord("u"), np.uint8)
    batch.count_tables(tables, of, op, np.full(len(tables), 1000))
    report = batch.to_json()
    total.merge(report)
    tracemalloc.start()
    try:
        total.merge(report)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            total.merge(report)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total.events[tables[-1]][1] == 22
    assert after - before < 100_000
