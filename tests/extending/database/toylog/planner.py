"""The planner: LogEngine over a source, its snapshots, its open log and its windows. Planner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tailrace.columns import Marker
from tailrace.config import Config, TableFilter
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Limits, Offset, OpenLog, Result, Snapshots, Source, Task
from tailrace.log.engine import LogEngine
from tailrace.log.notifications import PendingNotifications
from tailrace.log.reader import LogReader
from tailrace.process.runtime import THREADS
from tailrace.snapshot.incremental import Cursor, IncrementalSnapshot, UnusableTable
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource
from toylog import database
from toylog.database import Change, Row
from toylog.events import ChangesTask
from toylog.reader import Line, Lines, LinesFeed, ToyOffset, ToySnapshot

Chunk = tuple[str, list[Row]]
"""Rows of a table."""
Captured = Callable[[str], bool]


class ToyPlanner(LogEngine[ToyOffset, Line, Line]):
    """The planner that the descriptor names: the engine, with the parts that follow."""

    def __init__(self, config: Config, settings: EventSettings) -> None:
        super().__init__(config, settings, THREADS, ToySource(config, settings), ToyOffset)


class ToySource(Source[ToyOffset, Line, Line]):
    """The file as one query sees it. The log is whole: a query without a snapshot reads all of it."""

    def __init__(self, config: Config, settings: EventSettings) -> None:
        self.config, self.settings, self._path = config, settings, config["log.file"]
        tables, signals = TableFilter(config), config["signal.data.collection"]
        self.captured: Captured = lambda table: tables.includes("log", table) and f"log.{table}" != signals
        self.snapshots = ToySnapshots(config, self.captured)
        self.windows = Windows(config, ToyWindows(config, settings, self.captured))

    def called(self, work: Callable[[], Result]) -> Result:
        return work()

    def prepare(self, since: ToyOffset) -> None:
        database.lines(self._path)

    def clear_lost(self, since: ToyOffset) -> str:
        return "" if since.log <= self.present() else "The log has become shorter."

    def first(self) -> ToyOffset:
        return ToyOffset(Line(0))

    def open(self, since: ToyOffset, until: ToyOffset | None, target: Line | None) -> ToyLog:
        log = ToyLog(self, since.log)
        log.start()
        return log

    def present(self) -> Line:
        return Line(len(database.lines(self._path)))

    def tasks(self, since: ToyOffset, until: ToyOffset) -> list[Task]:
        before, snapshot, found = since.snapshot, until.snapshot, list[Task]()
        if snapshot is not None:
            tables = database.tables(self._path, until.log.number)
            for table in snapshot.tables[0 if before is None or before.is_complete else before.done : snapshot.done]:
                marker = Marker.LAST if table == snapshot.tables[-1] else Marker.TRUE
                found.append(ChangesTask(table, _read(tables[table].values(), until.log), self.settings, marker, 2))
        return found

    def status(self, log: OpenLog[ToyOffset, Line, Line] | None) -> Offset | None:
        return ToyOffset(self.present()).to_json()

    def close(self) -> None:
        self.windows.close()


class ToyNotifications(PendingNotifications[str, ToySnapshot]):
    """The reports about snapshots."""

    def chunks(self, before: ToySnapshot, after: ToySnapshot, *, asked: bool) -> None:
        if after.is_complete:
            self._add(self._initial.of("COMPLETED"))


class ToySnapshots(Snapshots[ToyOffset]):
    """Snapshots at a position: the file still has every earlier state."""

    def __init__(self, config: Config, captured: Captured) -> None:
        self.notifications = ToyNotifications(config, THREADS)
        self._path, self._captured = config["log.file"], captured
        self._counts: dict[str, int] = {}

    def start(self, since: ToyOffset, *, fresh: bool) -> ToyOffset:
        at = Line(len(database.lines(self._path))) if fresh else since.log
        return self._begun(replace(since, log=at), self._captured)

    def block(self, since: ToyOffset) -> ToyOffset | None:
        return self._begun(since, [one.table for one in since.progress.blocking].__contains__)

    def _begun(self, since: ToyOffset, wanted: Callable[[str], bool]) -> ToyOffset:
        tables = database.tables(self._path, since.log.number)
        self._counts = {table: len(tables[table]) for table in sorted(tables) if tables[table] and wanted(table)}
        return replace(since, snapshot=ToySnapshot(tuple(self._counts)))

    def count(self) -> Mapping[str, int]:
        return self._counts

    def advance(self, since: ToyOffset, max_rows: int | None, *, everything: bool) -> ToySnapshot:
        assert since.snapshot is not None
        most = len(since.snapshot.tables)
        return replace(since.snapshot, done=most if everything else min(since.snapshot.done + 1, most))


class ToyLog(LogReader[ToyOffset, Line, Line, Lines]):
    """The log while the thread of LogReader reads it."""

    def __init__(self, source: ToySource, since: Line) -> None:
        super().__init__(LinesFeed(source.config, since), since, memory_limit=64 << 20, disk_limit=512 << 20)
        self._source, self.windows = source, source.windows

    def acknowledge(self, since: ToyOffset) -> None:
        self.release(since.log)

    def is_far(self, start: Line, idle: Line) -> bool:
        return False

    def window_end(self, progress: Progress, start: Line, limits: Limits, target: Line | None) -> Line | None:
        window = self._source.windows.open(progress, start)
        if window is not None:
            self.spool.require(window.upto)
            while not self.has_read(window.upto):
                self.wait_for_next(0.05)
        return None if window is None else window.upto

    def changes(self, start: Line, end: Line) -> list[Change]:
        return [database.parsed(*line) for part in (self.take(start, end) if start < end else []) for line in part]

    def offset(self, since: ToyOffset, end: Line, heartbeat_ms: int, progress: Progress) -> ToyOffset:
        return ToyOffset(end, heartbeat_ms=heartbeat_ms, progress=progress)

    def tasks(self, since: ToyOffset, until: ToyOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        changes, tables = self.changes(since.log, until.log), dict[str, list[Change]]()
        for change in changes:
            tables.setdefault(change[1]["table"], []).append(change)
        captured, settings = self._source.captured, self._source.settings
        found = [ChangesTask(one, tables[one], settings) for one in sorted(tables) if captured(one)]
        return [*found, *beside, *self._source.windows.reads(end, changes)]


class ToyWindows(WindowSource[Line, int, Chunk, Line, Sequence[Change], ChangesTask]):
    """Windows without watermarks: the view is the position at the opening, and the window ends at the closing."""

    writes = False
    pace = ReadingPace(1, 1, 1, 0.0, 0.0)

    def __init__(self, config: Config, settings: EventSettings, captured: Captured) -> None:
        self._path, self._settings, self._captured = config["log.file"], settings, captured
        self._signals = config["signal.data.collection"]
        self._size: int = config["incremental.snapshot.chunk.size"]
        self.refuses = lambda condition: "the database has no conditions"

    def mark(self, watermark: Watermark | None) -> int:
        return len(database.lines(self._path))

    def view(self, at: Line, opened_at: int) -> AbstractContextManager[int]:
        return nullcontext(opened_at)

    def next_chunks(self, view: int, state: IncrementalSnapshot, count: int) -> FoundChunks[Chunk]:
        table, cursor = state.current.table, state.cursor
        rows = database.tables(self._path, view).get(table)
        if rows is None or not self._captured(table):
            raise UnusableTable("UNKNOWN_SCHEMA")
        if cursor.maximum is None:
            cursor = replace(cursor, maximum=(str(max(rows)),) if rows else ())
        low, high = (int(key[0]) if key else 0 for key in (cursor.last, cursor.maximum))
        keys = [key for key in sorted(rows) if low < key <= high][: count * self._size]
        moved = Cursor((str(keys[-1]),), cursor.maximum, cursor.rows + len(keys)) if keys else cursor
        return FoundChunks([(table, [rows[key] for key in keys])] if keys else [], moved, count)

    def locate(self, at: Line, closing: Watermark | None, closed_at: int) -> Line:
        return Line(closed_at)

    def reads(self, window: Window[int, Chunk, Line], changes: Sequence[Change]) -> Sequence[ChangesTask]:
        later = {(one["table"], (one["after"] or one["before"])["id"]) for at, one in changes if at > window.view}
        found = []
        for table, rows in window.chunks:
            left = _read([one for one in rows if (table, one["after"]["id"]) not in later], window.upto)
            found.append(ChangesTask(table, left, self._settings, Marker.INCREMENTAL, window.number + 1 << 40))
        return found

    def signals(self, changes: Sequence[Change]) -> list[tuple[Signal, str]]:
        own = [one for one in changes if one[1]["op"] == "c" and f"log.{one[1]['table']}" == self._signals]
        rows = [(one["after"], str(at)) for at, one in own]
        return [(Signal(str(row.get("id")), str(row.get("type")), row.get("data")), at) for row, at in rows]

    def captured(self, changes: Sequence[Change]) -> Sequence[tuple[str, str]]:
        return [
            ("log", table) for table in sorted(database.tables(self._path, self.mark(None))) if self._captured(table)
        ]


def _read(rows: Iterable[Row], at: Line) -> list[Change]:
    """Return rows, as changes that read them at a position."""
    return [(at.number, row | {"op": "r", "before": None}) for row in rows]
