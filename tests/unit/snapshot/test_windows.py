"""The engine of windows over a source in memory: its calls, its notifications, and its state from offset to offset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tailrace.snapshot.incremental import Cursor, IncrementalSnapshot, UnusableTable
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.progress import NO_PROGRESS, Progress
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource, WindowVoid

OPTIONS = {
    "topic.prefix": "p",
    "incremental.snapshot.watermarking.strategy": "insert_insert",
    "signal.enabled.channels": ["source"],
    "signal.poll.interval.ms": 1000,
}
MemoryWindow = Window[int, str, int]


class MemorySource(WindowSource[int, int, str, int, list[Signal], str]):
    """Tables of some rows, named by their number; a chunk is one row. `fails` names the next step
    that has no effect."""

    def __init__(self, rows: dict[str, int], chunks: int = 2) -> None:
        self.rows = rows
        self.pace = ReadingPace(chunks, 1, 8, 0.25, 0.25)
        self.refuses: Callable[[str], str] = lambda condition: "it is refused" if condition == "bad" else ""
        self.writes = True
        self.marks: list[Watermark] = []
        self.fails = ""
        self.changed: set[int] = set()

    def is_ready(self, at: int) -> bool:
        return self.fails != "ready"

    def mark(self, watermark: Watermark | None) -> int:
        if watermark is not None:
            self.marks.append(watermark)
        return len(self.marks)

    @contextmanager
    def view(self, at: int, opened_at: int) -> Iterator[int]:
        if self.fails == "view":
            raise WindowVoid
        yield opened_at

    def next_chunks(self, view: int, state: IncrementalSnapshot, count: int) -> FoundChunks[str]:
        name = state.current.table
        if name not in self.rows:
            raise UnusableTable("UNKNOWN_SCHEMA")
        last = 0 if state.cursor.last is None else int(state.cursor.last[0])
        upto = min(last + count, self.rows[name])
        maximum = (str(self.rows[name]),) if self.rows[name] else ()
        if upto == last:
            return FoundChunks([], replace(state.cursor, maximum=maximum))
        chunks = [f"{name}{row}" for row in range(last + 1, upto + 1)]
        return FoundChunks(chunks, Cursor((str(upto),), maximum, upto), len(chunks))

    def locate(self, at: int, closing: Watermark | None, closed_at: int) -> int:
        if self.fails == "locate":
            raise WindowVoid
        return closed_at

    def reads(self, window: MemoryWindow, changes: list[Signal]) -> Sequence[str]:
        return window.chunks

    def is_void(self, window: MemoryWindow) -> bool:
        return window.number in self.changed

    def signals(self, changes: list[Signal]) -> list[tuple[Signal, str]]:
        return [(signal, "0") for signal in changes]

    def captured(self, changes: list[Signal]) -> Sequence[tuple[str, str]]:
        return [("s", name) for name in sorted(self.rows)]


class Query:
    """A planner's use of windows: each batch reads the signals before it."""

    def __init__(self, source: MemorySource, **options: str) -> None:
        self.source = source
        self.options = {**OPTIONS, **{name.replace("_", "."): value for name, value in options.items()}}
        self.windows: Windows[int, int, str, int, list[Signal], str] = Windows(self.options, source)
        self.progress = NO_PROGRESS
        self.notifications: list[str] = []

    def plan(self, *signals: Signal) -> tuple[dict[str, Any], Progress]:
        begun = self.windows.begin(replace(self.progress, notifications=()))
        self.windows.open(begun, 7)
        progress = self.windows.finish(begun, list(signals))
        end = {"end": progress.to_json()}
        self.windows.planned(end)
        return end, progress

    def batch(self, *signals: Signal) -> list[str]:
        end, progress = self.plan(*signals)
        read = list(self.windows.reads(end, []))
        # As read back from a checkpoint.
        self.progress = Progress.from_json(json.loads(json.dumps(progress.to_json())))
        self.notifications += [note.type for note, _ in progress.notifications]
        return read

    def restart(self) -> None:
        self.windows = Windows(self.options, self.source)


def asked(*tables: str, condition: str = "") -> Signal:
    data: dict[str, Any] = {"data-collections": [f"s.{table}" for table in tables]}
    if condition:
        data["additional-conditions"] = [{"data-collection": f"s.{tables[0]}", "filter": condition}]
    return Signal("1", "execute-snapshot", json.dumps(data))


@pytest.fixture
def source() -> MemorySource:
    return MemorySource({"a": 3, "b": 0, "c": 1})


def test_tables_are_read_one_after_another_and_told(source: MemorySource) -> None:
    query = Query(source)
    assert query.batch(asked("a", "b", "none", "c")) == []
    assert [query.batch(), query.batch(), query.batch(), query.batch()] == [["a1", "a2"], ["a3", "c1"], [], []]
    assert query.progress.state is None
    assert query.notifications == [
        "STARTED", "IN_PROGRESS", "IN_PROGRESS", *["TABLE_SCAN_COMPLETED"] * 2, "IN_PROGRESS",
        *["TABLE_SCAN_COMPLETED"] * 2, "COMPLETED",
    ]  # fmt: skip
    assert query.windows.status() is None


@pytest.mark.parametrize(
    ("strategy", "closing"),
    [("insert_insert", ("-close", "snapshot-window-close")), ("insert_delete", ("-open", "snapshot-window-close"))],
)
def test_a_window_has_two_watermarks(source: MemorySource, strategy: str, closing: tuple[str, str]) -> None:
    query = Query(source, incremental_snapshot_watermarking_strategy=strategy)
    query.batch(asked("a"))
    query.batch()
    first, last = source.marks
    assert (first.id[36:], first.kind, first.is_deletion) == ("-open", "snapshot-window-open", False)
    assert (last.id[36:], last.kind) == closing
    assert last.is_deletion == (last.data is None) == (strategy == "insert_delete")
    assert first.id[:36] == last.id[:36]
    assert list(json.loads(first.data or "")) == ["openWindowTimestamp"]


def test_a_planner_that_starts_anew_reads_the_last_window_again(source: MemorySource) -> None:
    query = Query(source)
    query.batch(asked("a"))
    assert query.batch() == ["a1", "a2"]
    query.restart()
    assert query.batch() == ["a1", "a2"]
    # Not the planner that has handed out its chunks itself.
    assert query.batch() == ["a3"]


def test_a_batch_that_another_planner_has_planned_has_no_rows(source: MemorySource) -> None:
    query = Query(source)
    query.batch(asked("a"))
    end, query.progress = query.plan()
    query.restart()
    assert query.windows.reads(end, []) == []
    assert query.batch() == ["a1", "a2"]


def test_a_window_whose_chunks_were_handed_out_stays_so_behind_the_batches_of_a_blocking_snapshot(
    source: MemorySource,
) -> None:
    query = Query(source)
    query.batch(asked("a"))
    query.batch()
    # The progress stays unchanged while tables are read, including the state before the window.
    assert query.progress.before is not None
    query.progress = replace(query.progress, reading=query.progress.before.collections)
    assert query.batch() == ["a3"]


def test_a_window_that_tasks_may_have_read_in_part_is_read_again(source: MemorySource) -> None:
    query = Query(source)
    query.batch(asked("a"))
    query.batch()
    source.changed.add(0)
    assert query.batch() == ["a1", "a2"]
    assert query.batch() == ["a3"]


@pytest.mark.parametrize(("step", "marks"), [("ready", 0), ("view", 2), ("locate", 2)])
def test_a_void_window_is_closed_and_changes_nothing(source: MemorySource, step: str, marks: int) -> None:
    query = Query(source)
    query.batch(asked("a"))
    state = query.progress.state
    source.fails = step
    assert query.batch() == []
    assert len(source.marks) == marks
    assert (query.progress.state, query.progress.before) == (state, None)
    source.fails = ""
    assert query.batch() == ["a1", "a2"]


def test_a_window_that_is_given_up_is_opened_again(source: MemorySource) -> None:
    query = Query(source)
    query.batch(asked("a"))
    begun = query.windows.begin(query.progress)
    assert query.windows.open(begun, 7) is not None
    query.windows.give_up()
    assert query.windows.finish(begun, []).state == query.progress.state
    assert query.batch() == ["a1", "a2"]


def test_a_table_whose_condition_is_refused_by_now_is_left_out(source: MemorySource) -> None:
    query = Query(source)
    refuses, source.refuses = source.refuses, lambda condition: ""
    query.restart()
    query.batch(asked("a", "c", condition="bad"))
    source.refuses = refuses
    assert query.batch() == ["c1"]


def test_without_watermarks_where_they_are_needed_a_snapshot_is_stopped(source: MemorySource) -> None:
    source.writes, source.needs_watermarks = False, True
    query = Query(source)
    query.batch(asked("a"))
    assert query.notifications == ["STARTED", "ABORTED"]
    assert query.progress.state is None


def test_a_window_is_opened_ahead_and_taken_where_nothing_has_come_in_between(source: MemorySource) -> None:
    class Taking(ReadingPace):
        waits = False

    source.opens_ahead, source.pace = True, Taking(2, 1, 8, 0.25, 0.25)
    query = Query(source)
    query.batch(asked("a"))
    for at, marks in ((7, 4), (8, 6)):
        query.restart()
        query.progress = replace(query.progress, before=None)
        source.marks.clear()
        end, progress = query.plan()
        # Spark plans a batch anew for each action on it: the next window is opened once, so that the batch's own stays
        for _ in range(3):
            query.windows.reads(end, [])
            query.windows.open_ahead(end, progress, at)
        begun = query.windows.begin(progress)
        window = query.windows.open(begun, 7)
        assert window is not None
        assert window.chunks == ["a3"]
        assert len(source.marks) == marks
