"""Windows over change tables: chunks read between two watermarks, and the log up to the second one. Planner.

A database with change tables has no snapshot that several sessions could share, and its log lags. The planner itself
therefore reads the rows of a window. The batch reads the log to the commit of the closing watermark, once that is
captured: then the log has every change that the chunks show. The rows have the position of the closing watermark's
change, as in Debezium, which has just read this change when it sends them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tailrace.columns.table import TableId, TableSchema
from tailrace.config.filters import quoted_parts
from tailrace.connectors.changetables.capture_history import CaptureHistory, CapturePeriod, PeriodPart
from tailrace.connectors.changetables.dialect import DELETE, Dialect, Key, KeyRange, Position, Session, ordering
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.ipc import to_ipc
from tailrace.connectors.changetables.log.tasks import TaskSource, WindowTask
from tailrace.connectors.changetables.offset import DatabaseProgress
from tailrace.connectors.changetables.position import Newest, Read, read_to
from tailrace.connectors.changetables.snapshot.initial import with_columns
from tailrace.errors import ConfigError, ConnectionFailed, StatementCutOff, TailraceError
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.conditions import fault, refusal
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, UnusableTable, fitting
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource, WindowVoid

log = logging.getLogger("tailrace")

# The window is void if its closing watermark is not captured after this time, in s.
WINDOW_SECONDS = 30.0
# A window waits while this many transactions are still to be read.
FAR = 5_000
# Rows of the first automatic window, the most rows of a window, and the seconds that reading a window should take.
FIRST_ROWS, MOST_ROWS = 4096, 200_000
WINDOW_PACE = 0.5


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The position in each database, with the present state of its log: newest position and change tables."""

    reached: Mapping[str, DatabaseProgress]
    observed: Mapping[str, tuple[Newest | None, CaptureHistory]]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch: in each database, the changes after `before` up to `found`."""

    before: Mapping[str, DatabaseProgress]
    found: Mapping[str, DatabaseProgress]


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of some chunks of one table, as the planner has read them: one text column for each of `shown`."""

    shown: TableSchema
    identity: tuple[str, ...]
    columns: list[pa.Array]


@dataclass(frozen=True, slots=True)
class ClosingPlace:
    """The position of the closing watermark's change: the batch reads `database` to `commit`, and `change` is the
    position within it. `number` counts the windows so far."""

    database: str
    commit: Read
    change: Position
    number: int


RowsWindow = Window[LogPlace, WindowRows, ClosingPlace]
WindowPart = Callable[[TaskSource], WindowTask]
"""A function that makes a window's task from the TaskSource of a batch."""
Incremental = Windows[LogPlace, LogPlace, WindowRows, ClosingPlace, Changes, WindowPart]


class TableWindows(WindowSource[LogPlace, LogPlace, WindowRows, ClosingPlace, Changes, WindowPart]):
    """Opens the windows of a query; implements WindowSource.

    `shown` returns a table with the columns and the key that its events need. Incremental snapshots read only tables of
    the database that has the signal table.
    """

    needs_watermarks = True

    def __init__(
        self,
        config: Mapping[str, Any],
        dialect: Dialect,
        databases: Mapping[str, Database],
        shown: Callable[[TableSchema], TableSchema],
        *,
        legacy: bool,
        runtime: Runtime = THREADS,
    ) -> None:
        self.legacy = legacy
        self._runtime = runtime
        self._databases = databases
        self._shown = shown
        self._pairs = dialect.pairs
        self._unsent, self._unordered = dialect.unsent, dialect.unordered
        self._chunk_size: int = config["incremental.snapshot.chunk.size"]
        self.pace = ReadingPace(
            config.get("incremental.snapshot.window.chunks") or 0,
            max(1, FIRST_ROWS // self._chunk_size),
            max(1, MOST_ROWS // self._chunk_size),
            WINDOW_PACE / 2,
            WINDOW_PACE,
        )
        self.refuses = refusal(config, lambda sql: fault(sql, brackets=dialect.brackets))
        self.table = signal_table(config["signal.data.collection"], dialect.databases)
        self.writes = self.table is not None
        self.database = self.table.database if self.table is not None else next(iter(databases))
        self._checked = False
        self._number = 0

    @property
    def _here(self) -> Database:
        return self._databases[self.database]

    @property
    def _session(self) -> Session:
        return self._here.session

    def check(self, reached: Mapping[str, DatabaseProgress]) -> None:
        """Raise ConfigError if the signal table has no change table, so that signals and watermarks would not be
        captured."""
        if self._checked or self.table is None:
            return
        if _era(reached[self.database], self.table) is None:
            raise ConfigError(
                f"The signal table {self.table} of {self.database} has no change table: neither its signals "
                "nor the watermarks of incremental snapshots would be captured.",
                "Enable capture for it like for any other table, or leave signal.data.collection out.",
            )
        self._checked = True

    def tables(
        self, collections: Sequence[Collection], reached: Mapping[str, DatabaseProgress]
    ) -> dict[TableId, str | None]:
        """Return the captured tables of a blocking snapshot, each with its statement, if it has one."""
        found = {}
        for era in reached[self.database].eras.at(reached[self.database].position):
            for one in collections:
                if (one.schema, one.table) == (era.table.id.schema, era.table.id.table):
                    found[era.table.id] = one.filter
        return found

    # --- the course of a window ----------------------------------------------------------------------------------

    def is_ready(self, at: LogPlace) -> bool:
        """Return False while the reader lags far behind the log's end."""
        return self.table is not None and self._session.nth(at.reached[self.database].position, FAR) is None

    def mark(self, watermark: Watermark | None) -> int:
        if watermark is not None:
            assert self.table is not None
            if watermark.is_deletion:
                self._session.delete_signal(self.table, watermark.id)
            else:
                self._session.write_signal(self.table, watermark.id, watermark.kind, watermark.data)
        return 0

    @contextmanager
    def view(self, at: LogPlace, opened_at: int) -> Iterator[LogPlace]:
        yield at

    def locate(self, at: LogPlace, closing: Watermark | None, closed_at: int) -> ClosingPlace:
        """Return the commit and change position of the closing watermark, once it is captured."""
        assert closing is not None
        here = at.reached[self.database]
        seen = here.position
        deadline = self._runtime.monotonic() + WINDOW_SECONDS
        while self._runtime.monotonic() < deadline:
            newest, eras = self._here.observe(replace(here, position=seen))
            if newest is not None:
                for span in eras.spans(seen, newest):
                    if self.table is not None and _is(span.era, self.table):
                        found = self._find(span, closing)
                        if found is not None:
                            self._number += 1
                            return ClosingPlace(self.database, read_to(newest, found[0]), found[1], self._number)
                seen = read_to(newest)
            self._runtime.sleep(0.02)
        log.warning(
            "the watermark of an incremental snapshot was not captured within %d s; trying again. Is the "
            "capture process running?",
            WINDOW_SECONDS,
        )
        raise WindowVoid

    def _find(self, span: PeriodPart, watermark: Watermark) -> tuple[Position, Position] | None:
        table = _first_columns(span.era, 1)
        rows = self._session.changes(span.era.capture, table, span.after, span.upto)
        found: tuple[Position, Position] | None = None
        for fetched in rows:
            for row, text in enumerate(fetched.columns[0].to_pylist()):
                same = text is not None and text.decode("utf-8", "replace").strip() == watermark.id
                if same and (int(fetched.operation[row]) == DELETE) == watermark.is_deletion:
                    found = fetched.commit[row].as_py(), fetched.change[row].as_py()
        return found

    def reads(self, window: RowsWindow, changes: Changes) -> Sequence[WindowPart]:
        after = changes.before[self.database].position
        eras = changes.found[self.database].eras
        at_us = int(window.opened.timestamp() * 1_000_000)
        parts: list[WindowPart] = []
        for place, rows in enumerate(window.chunks):
            spans = eras.spans(after, window.upto.commit)
            own = [span for span in spans if span.era.table.id == rows.shown.id]
            parts.append(
                partial(
                    WindowTask,
                    database=self.database,
                    table=rows.shown,
                    rows=to_ipc(rows.columns),
                    identity=rows.identity,
                    changes=tuple(span for span in own if self._here.total(span)),
                    position=window.upto.commit,
                    change=window.upto.change,
                    at_us=at_us,
                    ordinal=(window.upto.number << 40) + (place << 32),
                )
            )
        return parts

    # --- signals -------------------------------------------------------------------------------------------------

    def captured(self, changes: Changes) -> Sequence[tuple[str, str]]:
        here = changes.found[self.database]
        return [(era.table.id.schema, era.table.id.table) for era in here.eras.at(here.position)]

    def local(self, entry: str) -> str:
        """Return the entry without the database's name, which may precede it."""
        for prefix in (f"{self.database}.", f"{self.database}\\."):
            if entry.lower().startswith(prefix.lower()) and entry[len(prefix) :].count("."):
                return entry[len(prefix) :]
        return entry

    def signals(self, changes: Changes) -> list[tuple[Signal, str]]:
        """Return the rows that the batch inserts into the signal table, each with its commit position as text."""
        if self.table is None:
            return []
        after, upto = changes.before[self.database].position, changes.found[self.database].position
        found: list[tuple[Signal, str]] = []
        for span in changes.found[self.database].eras.spans(after, upto):
            if _is(span.era, self.table) and self._here.total(span):
                found += self._inserted(span)
        return found

    def _inserted(self, span: PeriodPart) -> Iterator[tuple[Signal, str]]:
        from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, whole

        table = _first_columns(span.era, 3)
        assembly = RowAssembly(table, TimesByPosition.none(), self._pairs)
        rows = self._session.changes(span.era.capture, table, span.after, span.upto)
        for cut in whole(rows, self._pairs):
            batch = assembly.batch(cut)
            if batch is None or batch.after is None:
                continue
            positions = batch.transactions.commit_lsn  # type: ignore[attr-defined]
            for row in range(len(batch)):
                if batch.op[row] != ord("c"):
                    continue
                texts = [column[row].as_py() for column in batch.after.columns]
                id_, kind, data = (None if text is None else text.decode("utf-8", "replace") for text in texts)
                at = positions[int(batch.transaction[row])].as_py().hex()
                yield Signal(id_ or "", (kind or "").strip(), data), at

    # --- chunks --------------------------------------------------------------------------------------------------

    def next_chunks(self, view: LogPlace, state: IncrementalSnapshot, count: int) -> FoundChunks[WindowRows]:
        """Return the next chunks, read as one, with the rows that exist now."""
        one, cursor = state.current, state.cursor
        here = replace(view.reached[self.database], eras=view.observed[self.database][1])
        era = _era(here, TableId(self.database, one.schema, one.table))
        if era is None or (one.surrogate is not None and one.surrogate not in era.capture.columns):
            raise UnusableTable("UNKNOWN_SCHEMA")
        table = era.table
        key = (one.surrogate,) if one.surrogate is not None else table.key
        if not ordering(table, key, self._unordered):
            if key:
                log.warning("%s: ranges of %s cannot be read, because of its type", one, ", ".join(key))
            raise UnusableTable("NO_PRIMARY_KEY")
        try:
            cursor = fitting(cursor, one, key)
            begins = cursor.maximum is None
            if cursor.maximum is None:
                maximum = self._session.maximum(table, KeyRange(key, condition=one.filter))
                cursor = Cursor(None, maximum or (), key=tuple(key))
            # a surrogate key may be NULL in every row: they have no greatest key, and are one chunk
            is_null = begins and not cursor.maximum and one.surrogate is not None
            if not is_null and (not cursor.maximum or cursor.last == cursor.maximum):
                return FoundChunks([], cursor)
            bounds = KeyRange(key, cursor.last, cursor.maximum or None, one.filter)
            end: Key | None = None
            if cursor.maximum:
                end = self._session.boundary(table, bounds, self._chunk_size * count) or cursor.maximum
            # several rows may share a surrogate key or a part of a key; a change of one does not show the others
            is_unique = bool(self._here.ordering(table)) and not era.capture.is_partial
            identity = table.key if is_unique else self._compared(table)
            shown = with_columns(self._shown(table), table, (*identity, *key))
            columns = _joined(self._session.rows(shown, replace(bounds, upto=end)), len(shown.columns))
        except TailraceError as error:
            if isinstance(error, ConnectionFailed) and (one.filter is None or not isinstance(error, StatementCutOff)):
                raise
            log.warning("a query of %s fails: %s", one, error.message)
            raise UnusableTable("SQL_EXCEPTION") from None
        rows = cursor.rows + (len(columns[0]) if columns else 0)
        if is_null and not rows:
            return FoundChunks([], cursor)
        return FoundChunks([WindowRows(shown, identity, columns)], replace(cursor, last=end, rows=rows), count)

    def _compared(self, table: TableSchema) -> tuple[str, ...]:
        """Return the columns by which changes recognize rows where no key does: all that changes carry."""
        return tuple(
            column.name for column in table.columns if column.type_name not in self._unsent and not column.generated
        )


def signal_table(named: str | Sequence[str] | None, databases: Sequence[str]) -> TableId | None:
    """Return the table that `signal.data.collection` names: `database.schema.table`, or `schema.table` for one
    database.

    Raises ConfigError for a database that is not captured, and for several tables.
    """
    if not named:
        return None
    listed = [named] if isinstance(named, str) else list(named)
    if len(listed) > 1:
        raise ConfigError(
            "signal.data.collection names several tables, but a pipeline keeps the progress of one incremental "
            "snapshot.",
            "Name one, and run a pipeline of its own for each database that needs signals.",
        )
    name = listed[0]
    parts = quoted_parts(name) or tuple(name.split("."))
    schema, table = (parts[-2], parts[-1]) if len(parts) > 1 else ("", parts[-1])
    if len(parts) < 3:
        if len(databases) > 1:
            raise ConfigError(
                f"signal.data.collection = {name} does not say which database's table it is.",
                "Write database.schema.table.",
            )
        return TableId(databases[0], schema, table)
    database = next((one for one in databases if one.lower() == parts[0].lower()), None)
    if database is None:
        raise ConfigError(
            f"signal.data.collection = {name} names a database that is not captured.",
            f"Captured are: {', '.join(databases)}.",
        )
    return TableId(database, schema, table)


def _joined(fetches: Any, width: int) -> list[pa.Array]:
    """Return all rows of a chunk, a column at a time."""
    parts = list(fetches)
    if not parts:
        return [pa.array([], pa.binary()) for _ in range(width)]
    return [pa.concat_arrays([part[place] for part in parts]) for place in range(width)]


def _first_columns(era: CapturePeriod, count: int) -> TableSchema:
    """Return the table with only its first columns. The signal table's first columns are id, type and data, by any
    names."""
    return replace(era.table, columns=era.table.columns[:count], key=())


def _era(reached: DatabaseProgress, table: TableId) -> CapturePeriod | None:
    return next((era for era in reached.eras.at(reached.position) if _is(era, table)), None)


def _is(era: CapturePeriod, table: TableId) -> bool:
    """Return True if the era is of `table`, ignoring the case of the database's name."""
    return (era.table.id.schema, era.table.id.table) == (table.schema, table.table)
