"""Incremental snapshots over change tables: windows between two watermarks. Planner.

A database with change tables has no snapshot that several sessions could share, and its log comes late. So a window is:
the opening watermark is written, the planner reads the next chunks, the closing watermark is written, and the batch
reads the log to the commit of that watermark, as soon as it is captured. Whatever the chunks show is in the log by
then, so a row whose key has a change in the batch is left out, and the log wins; no later change of its key is older
than a row that is given (Debezium documentation, "Incremental snapshots"; A. Andreakis, I. Papapanagiotou: "DBLog",
2019). The rows have the positions of the closing watermark's change: the reference has just read it when it gives them.

The progress is part of every offset. An offset whose batch had a window says where the snapshot stood before it: a
planner that starts anew reads that window again, and a replayed batch has its changes and no rows.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tailrace.columns.table import TableId, TableSchema
from tailrace.config.filters import quoted_parts
from tailrace.connectors.base import Task
from tailrace.connectors.changetables.dialect import DELETE, Dialect, Key, KeyRange, Position
from tailrace.connectors.changetables.eras import Era, Eras, Stretch
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.ipc import to_ipc
from tailrace.connectors.changetables.log.tasks import Source, WindowTask
from tailrace.connectors.changetables.offset import Reached
from tailrace.connectors.changetables.position import Newest, Read, read_to
from tailrace.connectors.changetables.snapshot.initial import with_columns
from tailrace.errors import ConfigError, ConnectionFailed, StatementCutOff, TailraceError
from tailrace.events.settings import EventSettings
from tailrace.snapshot.channels import Channels
from tailrace.snapshot.conditions import fault, refusal
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, Notification, Notifications
from tailrace.snapshot.obedience import Obedience
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import WINDOW_CLOSE, WINDOW_OPEN, Signal

log = logging.getLogger("tailrace")

# How long a closing watermark may take until it is captured, in s; then the window is void.
WINDOW_SECONDS = 30.0
# A window waits while so many transactions are to be read before it.
FAR = 5_000
# The rows of a window stay below this, and its chunks are read within about so many s.
WINDOW_ROWS = 200_000
WINDOW_PACE = 0.5


@dataclass(slots=True)
class WindowRows:
    """The rows of some chunks of one table, as the planner has read them: one text column for each of `shown`."""

    shown: TableSchema
    identity: tuple[str, ...]
    columns: list[pa.Array]


@dataclass(slots=True)
class Window:
    """One window: the state `before` and `after` it, its rows, and where its closing watermark's change stands: the
    batch reads to the commit `upto`, and `change` is the position within it."""

    database: str
    before: IncrementalSnapshot
    after: IncrementalSnapshot | None
    rows: list[WindowRows]
    notifications: list[Notification]
    upto: Read
    change: Position
    at_us: int
    number: int
    end: dict[str, Any] = field(default_factory=dict)


class Unusable(Exception):
    """A table that cannot be read; the text is the status that its notification has."""


class Incremental:
    """Signals and windows of one query. `shown` gives a table the columns and the key that its events need.

    The signal table belongs to one database; incremental snapshots are of the tables of that one.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        settings: EventSettings,
        dialect: Dialect,
        databases: Mapping[str, Database],
        shown: Callable[[TableSchema], TableSchema],
    ) -> None:
        self._databases = databases
        self._shown = shown
        self._pairs = dialect.pairs
        self._table = signal_table(config["signal.data.collection"], dialect.databases)
        self._legacy = settings.legacy
        self._deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        self._reads_source = self._table is not None and "source" in config["signal.enabled.channels"]
        self._chunk_size: int = config["incremental.snapshot.chunk.size"]
        self._fixed: int = config.get("incremental.snapshot.window.chunks") or 0
        self._chunks = self._fixed or max(1, 4096 // self._chunk_size)
        self._notifications = Notifications(config["topic.prefix"])
        self._channels = Channels.of(config)
        self._reached: Mapping[str, Reached] = {}
        self._refuses = refusal(config, lambda sql: fault(sql, brackets=dialect.brackets))
        self._obedience = Obedience(self._captured, self._notifications, self._refuses, self._bare)
        self._window: Window | None = None
        self._resumed = False
        self._checked = False
        self._number = 0
        self._state: IncrementalSnapshot | None = None

    def close(self) -> None:
        self._channels.close()

    @property
    def parts(self) -> tuple[object, ...]:
        """The objects that remember something between two calls."""
        return self, self._channels

    @property
    def _database(self) -> str:
        return self._table.database if self._table is not None else next(iter(self._databases))

    def check(self, reached: Mapping[str, Reached]) -> None:
        """Raise ConfigError when the signal table has no change table: neither signals nor watermarks would be seen."""
        if self._checked or self._table is None:
            return
        if _era(reached[self._table.database], self._table) is None:
            raise ConfigError(
                f"The signal table {self._table} of {self._table.database} has no change table: neither its signals "
                "nor the watermarks of incremental snapshots would be captured.",
                "Have it captured like any other table, or leave signal.data.collection out.",
            )
        self._checked = True

    # --- the course of a batch -----------------------------------------------------------------------------------

    def begin(self, progress: Progress) -> Progress:
        """Where the next batch begins: `progress` is that of the last one, whose notices and window are past."""
        state = progress.state
        if not self._resumed and progress.before is not None:
            state = progress.before
        self._resumed = True
        self._window = None
        return replace(progress, state=state, before=None)

    def open(
        self,
        progress: Progress,
        reached: Mapping[str, Reached],
        observed: Mapping[str, tuple[Newest | None, Eras]],
    ) -> Window | None:
        """The next window, if a snapshot is running; None as well while the log is far behind."""
        if progress.state is None or progress.state.paused or self._table is None:
            return None
        database = self._databases[self._database]
        here = reached[self._database]
        if database.session.nth(here.position, FAR) is not None:
            return None
        began = time.monotonic()
        name = str(uuid.uuid4())
        opened = datetime.now(UTC)
        self._write(f"{name}-open", WINDOW_OPEN, {"openWindowTimestamp": _instant(opened)})
        rows, after, notes = self._read(progress.state, observed[self._database][1], here.position)
        watermark = self._write_close(name, opened)
        if not self._fixed:
            self._pace(time.monotonic() - began)
        closed = self._captured_at(watermark, here)
        if closed is None:
            log.warning(
                "the watermark of an incremental snapshot was not captured within %d s; it is tried again. Is the "
                "capture process running?",
                WINDOW_SECONDS,
            )
            return None
        self._number += 1
        at_us = int(opened.timestamp() * 1_000_000)
        self._window = Window(self._database, progress.state, after, rows, notes, *closed, at_us, self._number)
        return self._window

    def finish(self, progress: Progress, before: Mapping[str, Reached], found: Mapping[str, Reached]) -> Progress:
        """The progress after the batch that reads from `before` to `found`: its window read, its signals obeyed."""
        notes: list[Notification] = []
        opened = None
        self._reached = found
        if self._window is not None:
            notes += self._window.notifications
            opened = self._window.before
            progress = replace(progress, state=self._window.after, windows=progress.windows + 1)
        arrived = self._logged(before, found) if self._reads_source else []
        received, positions = self._channels.poll(dict(progress.positions))
        progress = replace(progress, positions=tuple(sorted(positions.items())))
        for signal, position in arrived + [(signal, signal.id) for signal in received]:
            progress, opened, told = self._obedience.obey(signal, position, progress, opened)
            notes += told
        if progress.state is not None and self._table is None:
            log.warning("an incremental snapshot needs a signal table for its watermarks: set signal.data.collection")
            notes.append(self._notifications.stopped(progress.state))
            progress = replace(progress, state=None)
        now = time.time_ns() // 1_000_000
        self._state = progress.state
        return replace(progress, before=opened, notices=tuple((note, now) for note in notes))

    def planned(self, end: dict[str, Any]) -> None:
        """The batch ends at the offset `end`."""
        if self._window is not None:
            self._window.end = end

    def tasks(
        self, end: dict[str, Any], before: Mapping[str, Reached], found: Mapping[str, Reached], source: Source
    ) -> list[Task]:
        """The tasks of the batch's window; none for a batch that another planner has planned."""
        window = self._window
        if window is None or window.end != end:
            return []
        after = before[window.database].position
        tasks: list[Task] = []
        for place, rows in enumerate(window.rows):
            stretches = [
                stretch
                for stretch in found[window.database].eras.stretches(after, window.upto)
                if stretch.era.table.id == rows.shown.id
            ]
            changed = tuple(stretch for stretch in stretches if self._databases[window.database].total(stretch))
            tasks.append(
                WindowTask(
                    source,
                    window.database,
                    rows.shown,
                    to_ipc(rows.columns),
                    rows.identity,
                    changed,
                    window.upto,
                    window.change,
                    window.at_us,
                    (window.number << 40) + (place << 32),
                )
            )
        return tasks

    def status(self) -> dict[str, Any] | None:
        """How far the running snapshot is, in the form that `tailrace.status` describes; None when none runs."""
        state = self._state
        if state is None:
            return None
        return {
            "table": str(state.current),
            "rows": state.cursor.rows,
            "waiting": len(state.collections) - 1,
            "paused": state.paused,
        }

    def tables(self, collections: Sequence[Collection], reached: Mapping[str, Reached]) -> dict[TableId, str | None]:
        """The captured tables of a blocking snapshot, each with its statement, if it has one."""
        found = {}
        for era in reached[self._database].eras.at(reached[self._database].position):
            for one in collections:
                if (one.schema, one.table) == (era.table.id.schema, era.table.id.table):
                    found[era.table.id] = one.filter
        return found

    # --- signals -------------------------------------------------------------------------------------------------

    def _captured(self) -> list[tuple[str, str]]:
        here = self._reached[self._database]
        return [(era.table.id.schema, era.table.id.table) for era in here.eras.at(here.position)]

    def _bare(self, entry: str) -> str:
        """An entry of a signal without the database's name, which may be in front of it."""
        for prefix in (f"{self._database}.", f"{self._database}\\."):
            if entry.lower().startswith(prefix.lower()) and entry[len(prefix) :].count("."):
                return entry[len(prefix) :]
        return entry

    def _logged(self, before: Mapping[str, Reached], found: Mapping[str, Reached]) -> list[tuple[Signal, str]]:
        """The rows that were inserted into the signal table in the batch, each with its commit position as text."""
        from tailrace.connectors.changetables.log.rows import Assembly, Times, whole

        assert self._table is not None
        database = self._databases[self._database]
        after, upto = before[self._database].position, found[self._database].position
        signals: list[tuple[Signal, str]] = []
        for stretch in found[self._database].eras.stretches(after, upto):
            if not _is(stretch.era, self._table) or not database.total(stretch):
                continue
            table = _first_columns(stretch.era, 3)
            assembly = Assembly(table, Times.none(), self._pairs)
            rows = database.session.changes(stretch.era.capture, table, stretch.after, stretch.upto)
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
                    signals.append((Signal(id_ or "", (kind or "").strip(), data), at))
        return signals

    # --- watermarks ----------------------------------------------------------------------------------------------

    def _write(self, id_: str, kind: str, stamps: dict[str, str]) -> None:
        assert self._table is not None
        data = None if self._legacy else json.dumps(stamps)
        self._databases[self._database].session.write_signal(self._table, id_, kind, data)

    def _write_close(self, name: str, opened: datetime) -> tuple[str, bool]:
        """The id of the row whose change closes the window, and whether that change is its deletion."""
        assert self._table is not None
        if self._deletes:
            self._databases[self._database].session.delete_signal(self._table, f"{name}-open")
            return f"{name}-open", True
        stamps = {"openWindowTimestamp": _instant(opened), "closeWindowTimestamp": _instant(datetime.now(UTC))}
        self._write(f"{name}-close", WINDOW_CLOSE, stamps)
        return f"{name}-close", False

    def _captured_at(self, watermark: tuple[str, bool], here: Reached) -> tuple[Read, Position] | None:
        """Commit and change position of the closing watermark, as soon as it is captured; None when that takes too
        long."""
        database = self._databases[self._database]
        seen = here.position
        deadline = time.monotonic() + WINDOW_SECONDS
        while time.monotonic() < deadline:
            newest, eras = database.observe(replace(here, position=seen))
            if newest is not None:
                for stretch in eras.stretches(seen, newest):
                    if self._table is not None and _is(stretch.era, self._table):
                        found = self._find(stretch, watermark)
                        if found is not None:
                            return read_to(newest, found[0]), found[1]
                seen = read_to(newest)
            time.sleep(0.02)
        return None

    def _find(self, stretch: Stretch, watermark: tuple[str, bool]) -> tuple[Position, Position] | None:
        table = _first_columns(stretch.era, 1)
        id_, is_deletion = watermark
        rows = self._databases[self._database].session.changes(stretch.era.capture, table, stretch.after, stretch.upto)
        found: tuple[Position, Position] | None = None
        for fetched in rows:
            for row, text in enumerate(fetched.columns[0].to_pylist()):
                same = text is not None and text.decode("utf-8", "replace").strip() == id_
                if same and (int(fetched.operation[row]) == DELETE) == is_deletion:
                    found = fetched.commit[row].as_py(), fetched.change[row].as_py()
        return found

    # --- chunks --------------------------------------------------------------------------------------------------

    def _read(
        self, state: IncrementalSnapshot, eras: Eras, position: Read
    ) -> tuple[list[WindowRows], IncrementalSnapshot | None, list[Notification]]:
        """The rows of the next chunks; the state after them; what there is to tell."""
        found: list[WindowRows] = []
        notes: list[Notification] = []
        left: IncrementalSnapshot | None = state
        budget = self._chunks
        while left is not None and budget > 0:
            status = "SUCCEEDED"
            rows: WindowRows | None = None
            cursor = left.cursor
            try:
                rows, cursor, used = self._table_rows(left, eras, position, budget)
                budget -= used
            except Unusable as reason:
                status = str(reason)
                log.warning("incremental snapshot %s: %s is left out: %s", left.id, left.current, _REASONS[status])
            left = left.moved(cursor)
            if rows is not None:
                notes.append(self._notifications.progress(left))
                found.append(rows)
                continue
            notes.append(self._notifications.scanned(left, "EMPTY" if cursor.maximum == () else status))
            left = left.next_table()
        if left is None:
            notes.append(self._notifications.of(state.id, "COMPLETED"))
        return found, left, notes

    def _table_rows(
        self, state: IncrementalSnapshot, eras: Eras, position: Read, count: int
    ) -> tuple[WindowRows | None, Cursor, int]:
        """The next `count` chunks of the first table as one, None at its end; the cursor behind them."""
        one, cursor = state.current, state.cursor
        session = self._databases[self._database].session
        era = _era(Reached(position, eras), TableId(self._database, one.schema, one.table))
        if era is None or (one.surrogate is not None and one.surrogate not in era.capture.columns):
            raise Unusable("UNKNOWN_SCHEMA")
        table = era.table
        key = (one.surrogate,) if one.surrogate is not None else table.key
        if not key:
            raise Unusable("NO_PRIMARY_KEY")
        reason = "" if one.filter is None else self._refuses(one.filter)
        if reason:
            # asked for by a version, or under options, that took it
            log.warning("the condition of %s is refused: %s", one, reason)
            raise Unusable("SQL_EXCEPTION")
        try:
            if cursor.maximum is None:
                cursor = Cursor(None, session.maximum(table, KeyRange(key, condition=one.filter)) or ())
            if not cursor.maximum or cursor.last == cursor.maximum:
                return None, cursor, 0
            bounds = KeyRange(key, cursor.last, cursor.maximum, one.filter)
            end: Key = session.boundary(table, bounds, self._chunk_size * count) or cursor.maximum
            identity = table.key or key
            shown = with_columns(self._shown(table), table, (*identity, *key))
            columns = _joined(session.rows(shown, replace(bounds, upto=end)), len(shown.columns))
        except TailraceError as error:
            if isinstance(error, ConnectionFailed) and (one.filter is None or not isinstance(error, StatementCutOff)):
                raise
            log.warning("a query of %s fails: %s", one, error.message)
            raise Unusable("SQL_EXCEPTION") from None
        rows = len(columns[0]) if columns else 0
        return WindowRows(shown, identity, columns), Cursor(end, cursor.maximum, cursor.rows + rows), count

    def _pace(self, took: float) -> None:
        most = max(1, WINDOW_ROWS // self._chunk_size)
        if took < WINDOW_PACE / 2:
            self._chunks = min(self._chunks * 2, most)
        elif took > WINDOW_PACE:
            self._chunks = max(self._chunks // 2, 1)


def signal_table(named: str | Sequence[str] | None, databases: Sequence[str]) -> TableId | None:
    """The table that `signal.data.collection` names: `database.schema.table`, or without the database when there is
    one only. Raises ConfigError for a database that is not captured, and for several tables."""
    if not named:
        return None
    listed = [named] if isinstance(named, str) else list(named)
    if len(listed) > 1:
        raise ConfigError(
            "signal.data.collection names several tables, and the progress of one incremental snapshot is kept.",
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
    """All rows of a chunk, a column at a time."""
    parts = list(fetches)
    if not parts:
        return [pa.array([], pa.binary()) for _ in range(width)]
    return [pa.concat_arrays([part[place] for part in parts]) for place in range(width)]


def _first_columns(era: Era, count: int) -> TableSchema:
    """The table with its first columns alone; the signal table's are id, type and data, whatever they are called."""
    return replace(era.table, columns=era.table.columns[:count], key=())


def _era(reached: Reached, table: TableId) -> Era | None:
    return next((era for era in reached.eras.at(reached.position) if _is(era, table)), None)


def _is(era: Era, table: TableId) -> bool:
    """Whether the era is of `table`, of the same database whatever the case of its name."""
    return (era.table.id.schema, era.table.id.table) == (table.schema, table.table)


_REASONS = {
    "UNKNOWN_SCHEMA": "it is not captured, or lacks the surrogate key",
    "NO_PRIMARY_KEY": "it has no primary key, and the signal names no surrogate-key",
    "SQL_EXCEPTION": "its query fails; see the filter of the signal and the user's privileges",
}


def _instant(at: datetime) -> str:
    """The time as Java's Instant prints it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
