"""Windows of incremental snapshots: watermarks, exported snapshots, chunks, and rows superseded by the log. Planner.

The rows of a window are read under a snapshot S that is taken while the window is open. The window's batch has every
change up to a position after S. A change in the log may be invisible to S, because its transaction is still in the
server's list of running transactions. If an earlier batch has delivered that change, S would deliver an older row after
it. In that case S is taken again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.batch import ChangeBatch, Flags
from tailrace.columns.table import TableSchema
from tailrace.config.filters import table_name
from tailrace.connectors.postgres.log.identity import flushed_end, flushed_present, waiting
from tailrace.connectors.postgres.log.indexed_run import Rows
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.log.visibility import UnsettledTransactions, VisibleTransactions
from tailrace.connectors.postgres.protocol.position import FlushedLsn, lsn_text, transactions_of
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog
from tailrace.connectors.postgres.schema.coverage import CarriedTables
from tailrace.connectors.postgres.server.causes import deliberate
from tailrace.connectors.postgres.server.connection import OWN_HERE, hold_open, is_lost
from tailrace.connectors.postgres.snapshot.conditions import LOCK_NOT_AVAILABLE, is_own_fault, is_passing
from tailrace.connectors.postgres.snapshot.earlier_writers import EarlierWriters
from tailrace.connectors.postgres.snapshot.key_chunks import (
    ChangedTable,
    KeyChunk,
    KeyedTable,
    WindowOrigin,
    fingerprint,
    literal,
)
from tailrace.connectors.postgres.snapshot.reconcile import NOTHING, NotComparable, SupersededRows, superseded
from tailrace.connectors.postgres.snapshot.rights import lacking, refusal
from tailrace.connectors.postgres.snapshot.session import quoted, takes_over
from tailrace.connectors.postgres.snapshot.signal_rows import logged
from tailrace.errors import ConnectionFailed
from tailrace.log.rows.partitioning import changes_of
from tailrace.process.runtime import Runtime
from tailrace.snapshot import conditions
from tailrace.snapshot.incremental import (
    Collection,
    Cursor,
    IncrementalSnapshot,
    UnusableTable,
    begun_anew,
    fitting,
)
from tailrace.snapshot.pace import BatchPace
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource, WindowVoid

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# The most tries to take a snapshot that shows all streamed transactions, and the seconds between two tries.
_TRIES, _PAUSE = 50, 0.01
# Milliseconds for which the planner, and with it the stream, waits for the lock on a table that is being altered.
LOCK_MS = 200
# Seconds for which no window is opened after such a wait: each try writes watermarks.
ALTERED_PAUSE = 0.5
# If more transactions than this are not known to be visible, the next batch queries the server.
UNSETTLED = 50_000
# The class of SQLSTATEs of values that are not of their type.
_DATA = "22"


@dataclass(frozen=True, slots=True)
class ExportedSnapshot:
    """The exported snapshot `name`, the transactions that it shows, and when it was taken, in µs since 1970."""

    name: str
    visible: VisibleTransactions
    at_us: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a batch, and the reader's table versions."""

    rows: Sequence[Rows]
    versions: Sequence[TableSchema]

    def of(self, table: TableSchema) -> list[ChangeBatch]:
        """Return the decoded changes of one table."""
        return changes_of(PostgresRowLog(), self.rows, self.versions, table.oid)


@dataclass(frozen=True, slots=True)
class ChunkRead:
    """A chunk of the window, ready for a task."""

    snapshot: str
    table: KeyedTable
    chunk: KeyChunk
    origin: WindowOrigin
    superseded: SupersededRows


Chunk = tuple[KeyedTable, KeyChunk]
KeyedWindow = Window[ExportedSnapshot, Chunk, FlushedLsn]


class Incremental(Windows[int, ExportedSnapshot, Chunk, FlushedLsn, Changes, ChunkRead]):
    """Signals and windows of one query over a PostgreSQL database; used by the planner's main thread."""

    def __init__(self, config: Mapping[str, Any], source: PostgresWindows, runtime: Runtime) -> None:
        super().__init__(config, source, runtime)
        self.streamed, self.follow = source.streamed, source.follow
        self._sessions = source

    def begin(self, progress: Progress) -> Progress:
        found = super().begin(progress)
        self._sessions.settle()
        return found

    def open(self, progress: Progress, at: int) -> KeyedWindow | None:
        if progress.state is None or progress.state.paused or self._sessions.is_held():
            self._sessions.rest()
        return super().open(progress, at)

    def close(self) -> None:
        super().close()
        self._sessions.close()

    def rehearse(self, changes: Changes) -> None:
        """Process the first changes of the log like those of a window, on the helper's thread.

        This loads modules and compiled kernels. Otherwise the first signal and the first window would each wait a third
        of a second for them. A failure is ignored here: it recurs in the window.
        """
        self._helper.submit(_rehearse, replace(changes, versions=tuple(changes.versions)))

    @staticmethod
    def spread(reads: Sequence[ChunkRead], count: int) -> list[tuple[ChunkRead, ...]]:
        """Divide the chunks among at most `count` tasks; neighbouring chunks of a task are read by one query."""
        count = min(count, len(reads))
        parts = [reads[len(reads) * part // count : len(reads) * (part + 1) // count] for part in range(count)]
        return [tuple(_joined(part)) for part in parts]


class PostgresWindows(WindowSource[int, ExportedSnapshot, Chunk, FlushedLsn, Changes, ChunkRead]):
    """Opens the windows of a query, one at a time; see WindowSource. Its `At` is the last commit that was delivered.

    `list_captured` returns the captured tables, `(schema, table)` in the order of their names; `is_captured(schema,
    table)` returns True for a captured table. `admit` returns a schema with the key of its events, and without columns
    that events do not show. `cover` returns the rows and columns of a table that are read. With `comments` schemas
    include column comments. `parallelism` tasks read the chunks of a window. No window is opened while `is_held`
    returns True. `late` returns the names of tables that were captured late, and whose changes the log now carries.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        legacy: bool,
        parallelism: int,
        connect: Callable[[], psycopg.Connection[Any]],
        list_captured: Callable[[], Sequence[tuple[str, str]]],
        is_captured: Callable[[str, str], bool],
        admit: Callable[[TableSchema], TableSchema],
        cover: Callable[[psycopg.Connection[Any], CapturedTable], CarriedTables],
        comments: bool,
        runtime: Runtime,
    ) -> None:
        self.legacy = legacy
        self.is_held: Callable[[], bool] = lambda: False
        self.late: Callable[[], frozenset[str]] = frozenset
        self._runtime = runtime
        self._connect = connect
        self._list_captured = list_captured
        self._is_captured = is_captured
        self._admit = admit
        self._cover = cover
        self._comments = comments
        self._parallelism = parallelism
        self._database = config["database.dbname"]
        self._chunk_size = config["incremental.snapshot.chunk.size"]
        name = config["signal.data.collection"]
        self.signal_table = table_name(name) if name else None
        self._quoted = ".".join(map(quoted, self.signal_table or ()))
        self.writes = self.signal_table is not None and not config["read.only"]
        self.refuses = conditions.refusal(config)
        chunks = config["incremental.snapshot.window.chunks"]
        self.pace = BatchPace(chunks, parallelism, self._chunk_size, config["poll.dispatch.interval.ms"] / 1000)
        # With one chunk a window, batches end with their windows, so that events come as from Debezium.
        self.opens_ahead = chunks != 1
        self.streamed = UnsettledTransactions()
        # Two exporters take turns: the snapshot of the window that is being read stays while the next window opens.
        # The session does everything else.
        self._session: psycopg.Connection[Any] | None = None
        self._exporters: list[psycopg.Connection[Any] | None] = [None, None]
        self._number = 0
        # when a window may be opened again
        self._due = 0.0
        # the quoted name of the signal table's first column
        self._id_column = ""
        self._writers = EarlierWriters()
        # the last window whose changes could not be compared with its rows
        self._unclear: KeyedWindow | None = None

    # --- the course of a window ------------------------------------------------------------------------------------

    def is_ready(self, at: int) -> bool:
        """Return False while a table is being altered, the slot keeps too much, or the server cannot be reached."""
        if self.is_held() or self._runtime.monotonic() < self._due:
            return False
        try:
            self._planning()
            self._take_turns()
        except ConnectionFailed as error:
            log.warning("the incremental snapshot waits: %s", error.message)
            return False
        return True

    def waiting(self, collections: Sequence[Collection]) -> frozenset[Collection]:
        """Return the tables to which a running transaction may have written before the log carried their changes."""
        late = self.late()
        self._writers.keep(late)
        return frozenset(one for one in collections if str(one) in late and self._writers.has(self._planning(), one))

    def mark(self, watermark: Watermark | None) -> int:
        if watermark is None:
            return 0
        session = self._open_session()
        if watermark.is_deletion:
            if not self._id_column:
                row = session.execute(_FIRST_COLUMN, (self._quoted,)).fetchone()
                self._id_column = "" if row is None else row[0]
            own = f"{self._id_column} operator(pg_catalog.=) {literal(watermark.id)}"
            _write(session, f"delete from {self._quoted} where {own}")
        else:
            data = "null" if watermark.data is None else literal(watermark.data)
            # by place, not by name: users name the table's columns
            values = f"{literal(watermark.id)}, {literal(watermark.kind)}, {data}"
            _write(session, f"insert into {self._quoted} values ({values})")
        return 0

    @contextmanager
    def view(self, at: int, opened_at: int) -> Iterator[ExportedSnapshot]:
        """Export a snapshot that shows all transactions streamed up to the commit at `at`, and read under it inside.

        The exported snapshot lasts until the window after the next one is opened.
        """
        exporter, session = self._exporters[0], self._open_session()
        assert exporter is not None
        taken = self._take_snapshot(exporter, at)
        if taken is None:
            raise WindowVoid
        session.execute("begin isolation level repeatable read read only")
        try:
            if not takes_over(session, taken.name):
                log.warning("the session that holds a window's snapshot has ended; the window is opened again")
                raise WindowVoid
            session.execute(f"set local lock_timeout = {LOCK_MS}".encode())
            yield taken
        except ChangedTable as error:
            log.info("%s is being altered, or cannot be read now; the incremental snapshot waits", error)
            self._due = self._runtime.monotonic() + ALTERED_PAUSE
            raise WindowVoid from None
        finally:
            session.execute("rollback")

    def locate(self, at: int, closing: Watermark | None, closed_at: int) -> FlushedLsn:
        """Return a flushed LSN after every commit that the snapshot shows.

        The commit of a closing watermark has flushed the log before it. Without a watermark, wait for the server's own
        flush.
        """
        session = self._open_session()
        found = flushed_present(session, self._runtime) if closing is None else flushed_end(session)
        if found is None:
            log.info("the server has not flushed its log in time; the incremental snapshot waits")
            raise WindowVoid
        return found

    def is_void(self, window: KeyedWindow) -> bool:
        """Return True if the changes were unclear, or a DDL statement may have changed a table since the snapshot."""
        if self._unclear is window:
            return True
        try:
            connection = self._planning()
        except ConnectionFailed:
            return True
        tables = {table.table.oid: table.fingerprint for table, _ in window.chunks}
        return any(fingerprint(connection, oid) != known for oid, known in tables.items())

    def settle(self) -> None:
        """Forget streamed transactions that new snapshots show, if there are many and the server can be reached."""
        if len(self.streamed) <= UNSETTLED:
            return
        try:
            connection = self._planning()
        except ConnectionFailed:
            return
        row = connection.execute("select pg_current_snapshot()::text").fetchone()
        assert row is not None
        self.streamed.hidden(VisibleTransactions.parse(row[0]))

    def rest(self) -> None:
        """End the snapshots' transactions, which hold up vacuum."""
        for exporter in self._exporters:
            if exporter is not None and exporter.pgconn.transaction_status and not is_lost(exporter, self._runtime):
                exporter.execute("rollback")

    def close(self) -> None:
        for connection in (self._session, *self._exporters):
            if connection is not None:
                connection.close()
        self._session, self._exporters = None, [None, None]

    # --- the log -----------------------------------------------------------------------------------------------------

    def follow(self, control: psycopg.Connection[Any]) -> None:
        """Record, before the log is read, the transactions that wait for a standby: an earlier session may have read
        them.

        Only members of pg_read_all_stats see which transactions wait. For other roles, every running transaction counts
        as waiting if the server has synchronous standbys, and the first window opens once these transactions have
        ended.
        """
        found = np.array(waiting(control), np.int64)
        if len(found):
            self.streamed.add(found, np.zeros(len(found), np.int64))

    def signals(self, changes: Changes) -> list[tuple[Signal, str]]:
        found = logged(changes.rows, changes.versions, self.signal_table)
        return [(one.signal, lsn_text(one.lsn)) for one in found if one.op == "c"]

    def captured(self, changes: Changes) -> Sequence[tuple[str, str]]:
        return self._list_captured()

    def reads(self, window: KeyedWindow, changes: Changes) -> Sequence[ChunkRead]:
        origin = self._origin(window, changes)
        superseding: dict[int, SupersededRows] = {}
        for table, _ in window.chunks:
            if table.table.oid in superseding:
                continue
            try:
                superseding[table.table.oid] = superseded(
                    table.table, table.identity, changes.of(table.table), lambda batch: _is_shown(batch, window)
                )
            except NotComparable:
                self._unclear = window
                superseding[table.table.oid] = SupersededRows(everything=True)
        return [
            ChunkRead(window.view.name, table, chunk, origin, superseding.get(table.table.oid, NOTHING))
            for table, chunk in window.chunks
        ]

    def _origin(self, window: KeyedWindow, changes: Changes) -> WindowOrigin:
        """Return the source of the window's rows: the closing watermark's event, if there is one."""
        closing = None if window.closing is None else window.closing.id
        for one in reversed(logged(changes.rows, changes.versions, self.signal_table)):
            if one.signal.id == closing:
                return one.commit
        upto = window.upto
        return WindowOrigin(window.view.visible.xmax & 0xFFFFFFFF, upto, upto, upto, window.view.at_us)

    # --- sessions and snapshots --------------------------------------------------------------------------------------

    def _planning(self) -> psycopg.Connection[Any]:
        """Return the session that writes watermarks and finds chunks; a new one if it has ended."""
        if self._session is None or is_lost(self._session, self._runtime):
            if self._session is not None:
                self._session.close()
            self._session = self._connect()
            self._session.execute("set synchronous_commit = local")
            self._id_column = ""
        return self._session

    def _open_session(self) -> psycopg.Connection[Any]:
        """Return the session that has begun the window."""
        assert self._session is not None
        return self._session

    def _take_turns(self) -> None:
        """Let the other session export the next snapshot; its last snapshot is not needed any more."""
        self._exporters.reverse()
        exporter = self._exporters[0]
        if exporter is None or is_lost(exporter, self._runtime):
            if exporter is not None:
                exporter.close()
            exporter = self._connect()
            hold_open(exporter)
            self._exporters[0] = exporter

    def _take_snapshot(self, exporter: psycopg.Connection[Any], upto_lsn: int) -> ExportedSnapshot | None:
        for _ in range(_TRIES):
            exporter.execute("rollback")
            exporter.execute("begin isolation level repeatable read read only")
            row = exporter.execute(
                "select pg_export_snapshot(), pg_current_snapshot()::text, "
                "(extract(epoch from clock_timestamp()) * 1000000)::int8"
            ).fetchone()
            assert row is not None
            visible = VisibleTransactions.parse(row[1])
            if not self.streamed.hidden(visible, upto_lsn):
                return ExportedSnapshot(row[0], visible, row[2])
            self._runtime.sleep(_PAUSE)
        log.warning("a transaction of the log is not visible to new snapshots yet; the incremental snapshot waits")
        return None

    # --- chunks ------------------------------------------------------------------------------------------------------

    def next_chunks(self, view: ExportedSnapshot, state: IncrementalSnapshot, count: int) -> FoundChunks[Chunk]:
        """Return the next chunks; a task reads neighbouring ones as one. Raises ChangedTable as well."""
        import psycopg

        collection, cursor, connection = state.current, state.cursor, self._open_session()
        described = self._describe(connection, collection)
        connection.execute("savepoint tailrace_table")
        table: KeyedTable | None = None
        try:
            table = KeyedTable.find(connection, *described[:4], collection, described[4])
            cursor = fitting(cursor, collection, table.key)
            nulls, estimate = False, None
            if cursor.maximum is None:
                maximum, nulls = table.maximum(connection)
                cursor = Cursor(None, maximum or (), key=table.key)
                estimate = table.estimate(connection)
            chunks = table.chunks(connection, cursor, self._sizes(count), self._number, nulls)
            for chunk in chunks if table.filter is not None else ():
                table.check(connection, chunk)
            if not table.is_still(connection):
                raise ChangedTable(collection)
        except psycopg.DatabaseError as error:
            connection.execute("rollback to savepoint tailrace_table")
            if error.sqlstate == LOCK_NOT_AVAILABLE or (
                table is not None and table.has_gone(connection, error.sqlstate)
            ):
                raise ChangedTable(collection) from None
            if is_passing(error.sqlstate) and (collection.filter is None or not is_own_fault(error.sqlstate)):
                log.warning("a query of %s failed: %s; trying again", collection, deliberate(error) or error.sqlstate)
                raise ChangedTable(collection) from None
            if state.cursor.maximum and collection.filter is None and (error.sqlstate or "").startswith(_DATA):
                # the bounds are values of a key that had another type
                return self.next_chunks(view, state.moved(begun_anew(collection)), count)
            log.warning("a query of %s fails: %s", collection, deliberate(error) or f"SQLSTATE {error.sqlstate}")
            raise UnusableTable("SQL_EXCEPTION") from None
        self._number += len(chunks)
        rows = cursor.rows + sum(chunk.rows for chunk in chunks)
        last = chunks[-1].upto if chunks and chunks[-1].upto is not None else cursor.last
        used = sum(max(-(-chunk.rows // self._chunk_size), 1) for chunk in chunks)
        moved = replace(cursor, last=last, rows=rows)
        return FoundChunks([(table, chunk) for chunk in chunks], moved, used, estimate)

    def _sizes(self, count: int) -> list[int]:
        """Return the number of rows that each task reads, for `count` chunks of the option's size."""
        tasks = min(count, self._parallelism)
        return [(count * (task + 1) // tasks - count * task // tasks) * self._chunk_size for task in range(tasks)]

    def _describe(
        self, connection: psycopg.Connection[Any], collection: Collection
    ) -> tuple[TableSchema, str, tuple[str, ...], dict[str, str], str | None]:
        """Return a table as the transaction shows it.

        The result is: the schema with the columns of events, the table's key and the surrogate; its relkind; its own
        key; the output functions of its columns; and the publication's condition on its rows, or None. Raises
        UnusableTable.
        """
        if not self._is_captured(collection.schema, collection.table):
            raise UnusableTable("UNKNOWN_SCHEMA")
        row = connection.execute(_TABLE, (collection.schema, collection.table)).fetchone()
        catalog = Catalog(connection, self._database, self._comments)
        found = None if row is None else catalog.schemas([row[0]]).get(row[0])
        if row is None or found is None:
            raise UnusableTable("UNKNOWN_SCHEMA")
        carried = self._cover(connection, (row[0], found.id, row[1]))
        if not carried.takes(row[0]):
            log.warning("%s is not read: its changes do not arrive under its name", collection)
            raise UnusableTable("UNKNOWN_SCHEMA")
        shown = carried.schema(self._admit(found))
        names = {column.name for column in shown.columns}
        # the table's own key identifies rows, and the surrogate divides them into chunks: both are always read
        needed = {*found.key, collection.surrogate} - names
        missing = tuple(column for column in found.columns if column.name in needed)
        shown = replace(shown, columns=shown.columns + missing)
        if row[2] and (columns := lacking(connection, shown)):
            log.warning("%s is not read: %s", collection, refusal(shown, columns))
            raise UnusableTable("SQL_EXCEPTION")
        return shown, row[1], found.key, catalog.output_functions(found.columns), carried.condition(row[0])


def _rehearse(changes: Changes) -> None:
    for table in changes.versions:
        found = changes.of(table)
        if table.key and found:
            superseded(table, table.key, found, lambda batch: np.zeros(len(batch), np.bool_))
            return


def _joined(reads: Sequence[ChunkRead]) -> list[ChunkRead]:
    """Return the reads with neighbouring chunks of a table joined into one."""
    found: list[ChunkRead] = []
    for read in reads:
        last = found[-1] if found else None
        if last is not None and last.table is read.table and last.chunk.upto == read.chunk.after:
            chunk = replace(last.chunk, upto=read.chunk.upto, rows=last.chunk.rows + read.chunk.rows)
            found[-1] = replace(last, chunk=chunk)
        else:
            found.append(read)
    return found


def _is_shown(batch: ChangeBatch, window: KeyedWindow) -> Flags:
    """Return a mask of the changes that the window's snapshot shows."""
    shown: Flags = window.view.visible.shows(transactions_of(batch).xid)[batch.transaction]
    return shown


def _write(connection: psycopg.Connection[Any], statement: str) -> None:
    """Write to the signal table with the user's own search_path, on which its triggers may rely.

    Both statements are one message to the server, and therefore one transaction, to whose end the path applies.
    """
    connection.execute(f"{OWN_HERE}; {statement}".encode())


_TABLE = """
select c.oid::int8, c.relkind::text, not pg_catalog.has_table_privilege(c.oid, 'select')
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')
"""
_FIRST_COLUMN = """
select pg_catalog.quote_ident(attname) from pg_catalog.pg_attribute
where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum limit 1
"""
