"""Windows of an incremental snapshot: watermarks written, a snapshot taken, chunks planned, log and rows reconciled.

A window is a part of one batch. Its rows were read under a snapshot S that was taken while the window was open, the
batch holds every change up to a position behind S, and a row whose key one of these changes has is left out: the log
wins. A change that is in the log may be invisible to S (its transaction has not left the server's list of running ones
yet); such a change of an earlier batch would be overtaken by an older row, so S is taken again then. Planner.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log.identity import flushed_end, flushed_present
from tailrace.connectors.postgres.log.visible import Streamed, Visible
from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.connectors.postgres.server.connection import OWN_HERE, hold_open, is_lost
from tailrace.connectors.postgres.snapshot.conditions import LOCK_NOT_AVAILABLE, is_own_fault, is_passing
from tailrace.connectors.postgres.snapshot.keyed import (
    GONE,
    ChangedTable,
    KeyChunk,
    KeyedTable,
    UnusableTable,
    fingerprint,
    literal,
)
from tailrace.connectors.postgres.snapshot.session import takes_over
from tailrace.errors import ConnectionFailed
from tailrace.runtime import THREADS, Runtime
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, Notification, Notifications
from tailrace.snapshot.signals import WINDOW_CLOSE, WINDOW_OPEN

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# How often a snapshot that does not show a streamed transaction is taken again, and the pause in between, in s.
_TRIES, _PAUSE = 50, 0.01
# How long the planner waits for a table that someone alters, in ms; the stream waits meanwhile.
LOCK_MS = 200
# How long no window is opened after that, in s: each try writes watermarks.
ALTERED_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """How windows are made.

    `signal_table` is the quoted name of the table that gets the watermarks, None where nothing is written; `deletes`
    tells that the closing watermark is the deletion of the opening one; `legacy` that watermarks have no data, as in
    Debezium 1.7. A chunk has `chunk_size` rows; `parallelism` tasks read those of a window. `filters`
    tells whether signals may have conditions.
    """

    signal_table: str | None
    deletes: bool
    legacy: bool
    chunk_size: int
    parallelism: int
    filters: bool = True


@dataclass(slots=True)
class Window:
    """One window: the state `before` and `after` it, its chunks, and what the batch must reach.

    `watermark` is the id of the signal row whose event closes the window (its deletion under `insert_delete`), None
    without watermarks. `upto_lsn` is behind the snapshot and the watermark. The snapshot shows every change that was
    sent up to the commit at `streamed_lsn`.
    """

    before: IncrementalSnapshot
    after: IncrementalSnapshot | None
    chunks: list[tuple[KeyedTable, KeyChunk]]
    notifications: list[Notification]
    snapshot: str
    visible: Visible
    at_us: int
    watermark: str | None
    upto_lsn: FlushedLsn
    streamed_lsn: int


Described = tuple[TableSchema, str, tuple[str, ...], dict[str, str]]
"""A table's schema as events show it, its relkind, its own key, and its columns' output functions."""


class Windows:
    """Opens the windows of a query, one at a time. `describe(connection, collection)` tells of a table as the
    connection's transaction sees it, None of one that is gone or not captured.
    """

    def __init__(
        self,
        settings: WindowSettings,
        connect: Callable[[], psycopg.Connection[Any]],
        describe: Callable[[psycopg.Connection[Any], Collection], Described | None],
        notifications: Notifications,
        runtime: Runtime = THREADS,
    ) -> None:
        self.settings = settings
        self._runtime = runtime
        self._connect = connect
        self._describe = describe
        self._notifications = notifications
        # One that does the rest, and two that take turns at exporting: the snapshot of the window that is being read
        # stays while the next one is opened.
        self._session: psycopg.Connection[Any] | None = None
        self._exporters: list[psycopg.Connection[Any] | None] = [None, None]
        self._number = 0
        # when a window may be opened again
        self._due = 0.0
        # the signal table's first column, whatever it is called
        self._id_column = ""
        # about how many rows the tables have that were begun, by name; absent where the server has no estimate
        self.estimates: dict[str, int | None] = {}

    def open(self, state: IncrementalSnapshot, streamed: Streamed, upto_lsn: int, count: int) -> Window | None:
        """The next window of `state`, of `count` chunks; None when no snapshot shows all that was streamed up to
        the commit at `upto_lsn` yet, when the snapshot's session has ended, and while the server cannot be reached or
        the table is being altered.

        The exported snapshot lasts until the call after the next one.
        """
        if self._runtime.monotonic() < self._due:
            return None
        try:
            planning, exporter = self._planning(), self._exporter()
        except ConnectionFailed as error:
            log.warning("the incremental snapshot waits: %s", error.message)
            return None
        name = str(uuid.uuid4())
        opened = self._write_open(planning, name)
        taken = self._take_snapshot(exporter, streamed, upto_lsn)
        if taken is None:
            self._write_close(planning, name, opened)
            return None
        snapshot, visible, at_us = taken
        planning.execute("begin isolation level repeatable read read only")
        planned = None
        try:
            if not takes_over(planning, snapshot):
                log.warning("the session that holds a window's snapshot has ended; the window is opened again")
            else:
                planning.execute(f"set local lock_timeout = {LOCK_MS}".encode())
                planned = self._plan(planning, state, count)
        except ChangedTable as error:
            log.info("%s is being altered, or cannot be read now; the incremental snapshot waits", error)
            self._due = self._runtime.monotonic() + ALTERED_PAUSE
        finally:
            planning.execute("rollback")
        watermark = self._write_close(planning, name, opened)
        if planned is None:
            return None
        chunks, after, notes = planned
        upto = self._behind(planning, wait=watermark is None)
        if upto is None:
            return None
        return Window(state, after, chunks, notes, snapshot, visible, at_us, watermark, upto, upto_lsn)

    def size(self, window: Window) -> int:
        """How many chunks of the options' size the window has, at least 1."""
        return max(self._count([chunk for _, chunk in window.chunks]), 1)

    def _count(self, chunks: Sequence[KeyChunk]) -> int:
        return sum(max(-(-chunk.rows // self.settings.chunk_size), 1) for chunk in chunks)

    def has_changed(self, window: Window) -> bool:
        """Whether a DDL statement may have changed one of the window's tables since its snapshot."""
        try:
            connection = self._planning()
        except ConnectionFailed:
            return True
        tables = {table.table.oid: table.fingerprint for table, _ in window.chunks}
        return any(fingerprint(connection, oid) != known for oid, known in tables.items())

    def settle(self, streamed: Streamed) -> None:
        """Forget the streamed transactions that new snapshots show; later, while the server cannot be reached."""
        try:
            connection = self._planning()
        except ConnectionFailed:
            return
        row = connection.execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        streamed.hidden(Visible.parse(row[0]))

    def rest(self) -> None:
        """No window is open, and none comes soon: end the snapshots' transactions, which keep vacuum from its work."""
        for exporter in self._exporters:
            if exporter is not None and exporter.pgconn.transaction_status and not is_lost(exporter, self._runtime):
                exporter.execute("rollback")

    def close(self) -> None:
        for connection in (self._session, *self._exporters):
            if connection is not None:
                connection.close()
        self._session, self._exporters = None, [None, None]

    # --- sessions, snapshots and watermarks ------------------------------------------------------------------------

    def _planning(self) -> psycopg.Connection[Any]:
        """The session that writes watermarks and finds chunks."""
        if self._session is None or is_lost(self._session, self._runtime):
            if self._session is not None:
                self._session.close()
            self._session = self._connect()
            self._session.execute("set synchronous_commit = local")
            if self.settings.signal_table is not None and self.settings.deletes:
                row = self._session.execute(_FIRST_COLUMN, (self.settings.signal_table,)).fetchone()
                self._id_column = "" if row is None else row[0]
        return self._session

    def _exporter(self) -> psycopg.Connection[Any]:
        """The session whose turn it is to export a snapshot; its last one is of no use any more."""
        self._exporters.reverse()
        exporter = self._exporters[0]
        if exporter is None or is_lost(exporter, self._runtime):
            if exporter is not None:
                exporter.close()
            exporter = self._connect()
            hold_open(exporter)
            self._exporters[0] = exporter
        return exporter

    def _take_snapshot(
        self, exporter: psycopg.Connection[Any], streamed: Streamed, upto_lsn: int
    ) -> tuple[str, Visible, int] | None:
        for _ in range(_TRIES):
            exporter.execute("rollback")
            exporter.execute("begin isolation level repeatable read read only")
            row = exporter.execute(
                "select pg_export_snapshot(), pg_current_snapshot()::text, "
                "(extract(epoch from clock_timestamp()) * 1000000)::int8"
            ).fetchone()
            assert row is not None
            visible = Visible.parse(row[1])
            if not streamed.hidden(visible, upto_lsn):
                return row[0], visible, row[2]
            self._runtime.sleep(_PAUSE)
        log.warning("a transaction of the log is not visible to new snapshots yet; the incremental snapshot waits")
        return None

    def _behind(self, connection: psycopg.Connection[Any], wait: bool) -> FlushedLsn | None:
        """An LSN that the log is sent up to, behind every commit that the snapshot shows; None if that takes too long.

        The commit of a closing watermark has flushed all that was before it. Without one, `wait` for the server's own
        flushes.
        """
        found = flushed_present(connection, self._runtime) if wait else flushed_end(connection)
        if found is None:
            log.info("the server has not flushed its log in time; the incremental snapshot waits")
        return found

    def _write_open(self, connection: psycopg.Connection[Any], name: str) -> datetime:
        now = datetime.now(UTC)
        if self.settings.signal_table is not None:
            self._insert(connection, f"{name}-open", WINDOW_OPEN, {"openWindowTimestamp": _instant(now)})
        return now

    def _write_close(self, connection: psycopg.Connection[Any], name: str, opened: datetime) -> str | None:
        if self.settings.signal_table is None:
            return None
        if self.settings.deletes:
            table, column = self.settings.signal_table, self._id_column
            _write(connection, f"delete from {table} where {column} operator(pg_catalog.=) {literal(f'{name}-open')}")
            return f"{name}-open"
        stamps = {"openWindowTimestamp": _instant(opened), "closeWindowTimestamp": _instant(datetime.now(UTC))}
        self._insert(connection, f"{name}-close", WINDOW_CLOSE, stamps)
        return f"{name}-close"

    def _insert(self, connection: psycopg.Connection[Any], name: str, kind: str, stamps: dict[str, str]) -> None:
        data = "null" if self.settings.legacy else literal(json.dumps(stamps))
        # by place, not by name: the table's column names are the user's own
        values = f"{literal(name)}, {literal(kind)}, {data}"
        _write(connection, f"insert into {self.settings.signal_table} values ({values})")

    # --- chunks ----------------------------------------------------------------------------------------------------

    def _plan(
        self, connection: psycopg.Connection[Any], state: IncrementalSnapshot, count: int
    ) -> tuple[list[tuple[KeyedTable, KeyChunk]], IncrementalSnapshot | None, list[Notification]]:
        """The rows of the next `count` chunks; the state after them; what there is to tell."""
        found: list[tuple[KeyedTable, KeyChunk]] = []
        notes: list[Notification] = []
        left: IncrementalSnapshot | None = state
        while left is not None and count > 0:
            status = "SUCCEEDED"
            try:
                table, chunks, cursor = self._table_chunks(connection, left, count)
            except UnusableTable as reason:
                status, chunks, cursor = str(reason), [], left.cursor
                log.warning("incremental snapshot %s: %s is left out: %s", left.id, left.current, _REASONS[status])
            left = left.moved(cursor)
            if chunks:
                notes.append(self._notifications.progress(left))
                found += [(table, chunk) for chunk in chunks]
                count -= self._count(chunks)
                continue
            notes.append(self._notifications.scanned(left, "EMPTY" if cursor.maximum == () else status))
            left = left.next_table()
        if left is None:
            notes.append(self._notifications.of(state.id, "COMPLETED"))
        return found, left, notes

    def _table_chunks(
        self, connection: psycopg.Connection[Any], state: IncrementalSnapshot, count: int
    ) -> tuple[KeyedTable, list[KeyChunk], Cursor]:
        """The next `count` chunks of the first table, neighbours that one task reads as one, and the cursor behind
        them. Raises UnusableTable, and ChangedTable.
        """
        import psycopg

        collection, cursor = state.current, state.cursor
        described = self._describe(connection, collection)
        if described is None:
            raise UnusableTable("UNKNOWN_SCHEMA")
        if collection.filter is not None and not self.settings.filters:
            # asked for before the option was set
            raise UnusableTable("SQL_EXCEPTION")
        tasks = min(count, self.settings.parallelism)
        sizes = [
            (count * (task + 1) // tasks - count * task // tasks) * self.settings.chunk_size for task in range(tasks)
        ]
        connection.execute("savepoint tailrace_table")
        table: KeyedTable | None = None
        try:
            table = KeyedTable.find(connection, *described, collection)
            nulls = False
            if cursor.maximum is None:
                maximum, nulls = table.maximum(connection)
                cursor = Cursor(None, maximum or ())
                self.estimates[str(collection)] = table.estimate(connection)
            chunks = table.chunks(connection, cursor, sizes, self._number, nulls)
            for chunk in chunks if table.filter is not None else ():
                table.check(connection, chunk)
            if not table.is_still(connection):
                raise ChangedTable(collection)
        except psycopg.DatabaseError as error:
            connection.execute("rollback to savepoint tailrace_table")
            if error.sqlstate == LOCK_NOT_AVAILABLE or self._has_gone(connection, table, error.sqlstate):
                raise ChangedTable(collection) from None
            if is_passing(error.sqlstate) and (collection.filter is None or not is_own_fault(error.sqlstate)):
                log.warning("a query of %s is tried again: %s", collection, error.sqlstate)
                raise ChangedTable(collection) from None
            log.warning("a query of %s fails with SQLSTATE %s", collection, error.sqlstate)
            raise UnusableTable("SQL_EXCEPTION") from None
        self._number += len(chunks)
        rows = cursor.rows + sum(chunk.rows for chunk in chunks)
        last = chunks[-1].upto if chunks and chunks[-1].upto is not None else cursor.last
        return table, chunks, Cursor(last, cursor.maximum, rows)

    @staticmethod
    def _has_gone(connection: psycopg.Connection[Any], table: KeyedTable | None, sqlstate: str | None) -> bool:
        """Whether a query failed because the table is no more what the snapshot shows."""
        import psycopg

        if table is None or sqlstate not in GONE:
            return False
        try:
            return not table.is_still(connection)
        except psycopg.DatabaseError:
            connection.execute("rollback to savepoint tailrace_table")
            return True


def _write(connection: psycopg.Connection[Any], statement: str) -> None:
    """Write to the user's table, whose triggers may name what their search_path finds. One message to the server, and
    so one transaction, which has that path to its end.
    """
    connection.execute(f"{OWN_HERE}; {statement}".encode())


_FIRST_COLUMN = """
select pg_catalog.quote_ident(attname) from pg_catalog.pg_attribute
where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum limit 1
"""
_REASONS = {
    "UNKNOWN_SCHEMA": "it is not captured, was dropped, or lacks the surrogate key",
    "NO_PRIMARY_KEY": "it has no primary key, and the signal names no surrogate-key",
    "SQL_EXCEPTION": "its query fails; see the filter of the signal and the user's privileges",
}


def _instant(at: datetime) -> str:
    """The time as Java's Instant prints it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
