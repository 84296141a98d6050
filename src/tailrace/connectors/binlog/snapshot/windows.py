"""Windows of incremental snapshots: watermarks, chunks that the planner reads, and the log up to their end. Planner.

The rows of a window are read in a consistent snapshot S, which begins after the window's low watermark. The batch has
all changes up to the high watermark. A transaction is in the log a moment before other sessions see it. If an earlier
batch had delivered a transaction that S does not show, S would return an older row after it. S must therefore show
everything that was delivered:

- with a signal table the watermark is a later transaction, and servers commit in the order of the log;
- MariaDB shows the log position of S;
- for MySQL the planner waits until the delivered transactions are executed, by their ids.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch
from tailrace.columns.table import TableSchema
from tailrace.config.filters import table_name
from tailrace.connectors.binlog.dialect import MARIADB, Dialect
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.log.position import BinlogPosition, BinlogTransactions, transactions_of
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definition import TableDefinition
from tailrace.connectors.binlog.schema.tables import aligned, schema_of
from tailrace.connectors.binlog.server.connection import dialect_of, is_gone
from tailrace.connectors.binlog.server.errors import number_of as code_of
from tailrace.connectors.binlog.server.errors import refused
from tailrace.connectors.binlog.snapshot import division
from tailrace.connectors.binlog.snapshot.conditions import fault
from tailrace.connectors.binlog.snapshot.keys import (
    Key,
    KeyColumn,
    KeyRange,
    compared,
    key_columns,
    literal,
    qualified,
    quoted,
    sorting,
    where,
    within,
)
from tailrace.connectors.binlog.snapshot.point import RowOrigin, end_of_log, has_ids, is_behind, own_place
from tailrace.connectors.binlog.snapshot.reconcile import NotComparable, SupersededKeys, key_texts, superseded
from tailrace.connectors.binlog.snapshot.result import ServerError, rows, run, select
from tailrace.connectors.binlog.snapshot.rows import forms, select_list
from tailrace.connectors.binlog.snapshot.signal_table import first_columns
from tailrace.connectors.binlog.snapshot.tasks import WindowTask, is_exact
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.rows.partitioning import changes_of
from tailrace.process.runtime import Runtime
from tailrace.snapshot.conditions import refusal
from tailrace.snapshot.incremental import (
    Collection,
    Cursor,
    IncrementalSnapshot,
    UnusableTable,
    begun_anew,
    fitting,
)
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signals import Signal
from tailrace.snapshot.windows import FoundChunks, Watermark, Window, Windows, WindowSource, WindowVoid

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from tailrace.connectors.binlog.schema.definitions import State
    from tailrace.log.rows.row_log import RowLog

log = logging.getLogger("tailrace")

# Rows of the first automatic window, most rows of any, and the seconds that reading one should take.
FIRST_ROWS, MOST_ROWS = 4096, 200_000
WINDOW_PACE = 0.5
# Seconds for which a window waits until delivered transactions are visible; pause between attempts; pause after a
# failure.
_VISIBLE_SECONDS, _PAUSE, _LATER = 2, 0.01, 1.0
_TRIES = 50
# Milliseconds for which the planner waits for a table that is being altered.
_LOCK_SECONDS = 1
_PASSING = {1205, 1213, 1317, 1412, 3024, 1969}
_PLAIN = re.compile(r"[\w$`\"-]+(\.[\w$`\"-]+)*")
"""A name in a signal, as opposed to an expression."""
_BEGIN = "start transaction with consistent snapshot, read only"


class Changes:
    """The changes of a batch, in the form of BinlogLogSession."""

    rows: Sequence[Any]
    versions: Sequence[TableSchema]
    tables: Mapping[tuple[str, str], TableDefinition]
    end: BinlogPosition
    state: State


class NewTables(Protocol):
    """The checks of tables that signals add."""

    def begin(self, end: BinlogPosition, known: State) -> None:
        """Set the end of the next batch, and the definitions there."""
        ...

    def defined(self, state: State, end: BinlogPosition) -> State:
        """Return the definitions at the end of the batch, together with those of its new tables."""
        ...


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of some chunks of a table, read by the planner: texts of the columns of `table`, and the keys of the
    rows in the columns `identity`."""

    table: TableSchema
    identity: tuple[str, ...]
    columns: list[pa.Array]
    keys: pa.Array


BinlogWindow = Window[str, WindowRows, BinlogPosition]


class Incremental(Windows[BinlogPosition, str, WindowRows, BinlogPosition, Changes, WindowTask]):
    """Signals and windows of one query."""

    def __init__(self, config: Mapping[str, Any], source: BinlogWindows, runtime: Runtime) -> None:
        super().__init__(config, source, runtime)
        self._sessions = source

    @property
    def latest(self) -> RowOrigin | None:
        """The place of the latest change that was delivered; None if this planner has delivered none."""
        return self._sessions.latest

    def defined(self, state: State, end: BinlogPosition) -> State:
        """Return the definitions at the end of a batch, together with those of tables that its signals have added."""
        new = self._sessions.new_tables
        return state if new is None else new.defined(state, end)

    def finish(self, progress: Progress, changes: Changes) -> Progress:
        self._sessions.note(changes)
        return super().finish(progress, changes)

    def close(self) -> None:
        super().close()
        self._sessions.close()


class BinlogWindows(WindowSource[BinlogPosition, str, WindowRows, BinlogPosition, Changes, WindowTask]):
    """Implements WindowSource. `At` is the position up to which the log was delivered, `View` the place of the
    consistent snapshot; "" if the server does not show it.

    `connect` opens a session. `list_captured` returns the captured tables in the order of their names. `admit` returns
    a schema with the key of its events. `row_log` decodes changes. `is_folded` returns True if the server has all names
    in lower case.
    """

    new_tables: NewTables | None = None
    """None if signals add no tables."""

    def __init__(
        self,
        config: Any,
        settings: EventSettings,
        *,
        connect: Callable[[], Connection[Any]],
        is_captured: Callable[[str, str], bool],
        list_captured: Callable[[], Sequence[tuple[str, str]]],
        admit: Callable[[TableSchema], TableSchema],
        row_log: RowLog[Any, Any],
        is_folded: Callable[[], bool],
        runtime: Runtime,
    ) -> None:
        self._settings = settings
        self._connect, self._is_captured, self._list_captured = connect, is_captured, list_captured
        self._admit, self._row_log, self._runtime = admit, row_log, runtime
        self._is_folded = is_folded
        self._dialect: Dialect = dialect_of(config)
        self._exact = is_exact(settings)
        self._chunk_size: int = config["incremental.snapshot.chunk.size"]
        self.pace = ReadingPace(
            config["incremental.snapshot.window.chunks"],
            max(1, FIRST_ROWS // self._chunk_size),
            max(1, MOST_ROWS // self._chunk_size),
            WINDOW_PACE / 2,
            WINDOW_PACE,
        )
        self.refuses = refusal(config, fault)
        name = config["signal.data.collection"]
        self.signal_table: tuple[str, str] | None = table_name(name) if name else None
        self.writes = self.signal_table is not None and not config["read.only"]
        self._session: Connection[Any] | None = None
        # the UUID of the session's server
        self._server = ""
        # the quoted names of the signal table's first three columns
        self._columns: tuple[str, ...] = ()
        self._due = 0.0
        self._number = 0
        # the place of the latest change that was delivered, for records that are not in the log
        self.latest: RowOrigin | None = None
        # the last window whose changes could not be compared with its rows
        self._unclear: BinlogWindow | None = None

    # --- the course of a window --------------------------------------------------------------------------------------

    def is_ready(self, at: BinlogPosition) -> bool:
        """Return False while the server cannot be reached, or a table is being altered."""
        if self._runtime.monotonic() < self._due:
            return False
        try:
            self._planning()
        except ConnectionFailed as error:
            log.warning("the incremental snapshot waits: %s", error.message)
            self._wait()
            return False
        return True

    def _wait(self) -> None:
        self._due = self._runtime.monotonic() + _LATER

    def mark(self, watermark: Watermark | None) -> int:
        if watermark is None:
            return 0
        assert self.signal_table is not None
        session, table = self._planning(), ".".join(map(quoted, self.signal_table))
        if watermark.is_deletion:
            own = self._first_columns(session)[0]
            self._run(session, f"delete from {table} where {own} = {literal(watermark.id)}")
        else:
            data = "null" if watermark.data is None else literal(watermark.data)
            # by place, not by name: users name the table's columns
            names = ", ".join(self._first_columns(session))
            values = f"{literal(watermark.id)}, {literal(watermark.kind)}, {data}"
            self._run(session, f"insert into {table} ({names}) values ({values})")
        return 0

    def _run(self, session: Connection[Any], statement: str) -> None:
        import pymysql

        try:
            run(session, statement)
        except pymysql.err.MySQLError as error:
            if is_gone(error):
                log.warning("the session of the incremental snapshot is lost; the window is opened again")
                self._wait()
                raise WindowVoid from None
            raise

    def _first_columns(self, session: Connection[Any]) -> tuple[str, ...]:
        if not self._columns:
            assert self.signal_table is not None
            self._columns = first_columns(session, *self.signal_table)
        return self._columns

    @contextmanager
    def view(self, at: BinlogPosition, opened_at: int) -> Iterator[str]:
        """Return a context in which the session has a consistent snapshot that shows all transactions up to `at`."""
        import pymysql

        session = self._planning()
        try:
            place = self._begun(session, at)
            try:
                yield place
            finally:
                run(session, "rollback")
        except (pymysql.err.MySQLError, ServerError) as error:
            code = error.code if isinstance(error, ServerError) else code_of(error)
            if code not in _PASSING and not (isinstance(error, pymysql.err.MySQLError) and is_gone(error)):
                raise
            log.info("the incremental snapshot waits: error %d of the server", code)
            self._wait()
            raise WindowVoid from None

    def _begun(self, session: Connection[Any], at: BinlogPosition) -> str:
        """Begin a transaction whose snapshot shows what was delivered. Return its place; "" if the server does not show
        it."""
        if self._dialect is MARIADB:
            for _ in range(_TRIES):
                run(session, _BEGIN)
                file, pos, _ = own_place(session) or ("", 0, "")
                if self.writes or self._shows(session, at, file, pos):
                    return f"{file}:{pos}"
                run(session, "rollback")
                self._runtime.sleep(_PAUSE)
            raise WindowVoid
        if not self.writes:
            self._await_executed(session, at)
        run(session, _BEGIN)
        return ""

    def _shows(self, session: Connection[Any], at: BinlogPosition, file: str, pos: int) -> bool:
        """Return True if MariaDB's snapshot at a place shows what was delivered.

        After a failover ids are compared, as places of two servers are not comparable.
        """
        if self._server == at.server:
            return is_behind(file, pos, at)
        ((shown,),) = rows(session, f"select binlog_gtid_pos({literal(file)}, {pos})")
        return has_ids(shown or "", at, MARIADB)

    def _await_executed(self, session: Connection[Any], at: BinlogPosition) -> None:
        if not at.gtids and not at.gtid:
            raise PrerequisiteError(
                "An incremental snapshot that writes no watermarks needs transaction ids, and this server has none.",
                "Set gtid_mode=ON there, or name a signal table in signal.data.collection and leave read.only out.",
            )
        # including the partly delivered transaction
        wanted = literal(",".join(filter(None, (at.gtids, at.gtid))))
        ((code,),) = rows(session, f"select wait_for_executed_gtid_set({wanted}, {_VISIBLE_SECONDS})")
        if code != "0":
            log.info("transactions of the log are not executed yet; the incremental snapshot waits")
            raise WindowVoid

    def locate(self, at: BinlogPosition, closing: Watermark | None, closed_at: int) -> BinlogPosition:
        """Return the end of the log of the window's server, which is after everything that the window shows."""
        import pymysql

        try:
            file, pos, _ = end_of_log(self._planning())
        except pymysql.err.MySQLError as error:
            raise refused(error) from None
        self._number += 1
        return BinlogPosition(file, max(pos - 1, 0), pos, epoch=at.epoch, server=self._server)

    def is_void(self, window: BinlogWindow) -> bool:
        return self._unclear is window

    # --- the log -----------------------------------------------------------------------------------------------------

    def _of(self, changes: Changes, name: tuple[str, str]) -> list[ChangeBatch]:
        """Return the decoded changes of a table."""
        if not changes.rows:
            return []
        marked = [replace(one, oid=1 if (one.id.schema, one.id.table) == name else 0) for one in changes.versions]
        return changes_of(self._row_log, changes.rows, marked, 1)

    def signals(self, changes: Changes) -> list[tuple[Signal, str]]:
        return [(signal, position) for signal, op, _, position in self._logged(changes) if op == "c"]

    def note(self, changes: Changes) -> None:
        """Store the end of the batch, and the place of its last change."""
        if self.new_tables is not None:
            self.new_tables.begin(changes.end, changes.state)
        for part in reversed(changes.rows):
            rows_of_tables = np.flatnonzero(part.run.version[part.first : part.last] >= 0)
            if len(rows_of_tables):
                row = part.first + int(rows_of_tables[-1])
                place, pos = int(part.run.by_row.transaction[row]), int(part.run.by_row.pos[row])
                self.latest = origin_of(part.run.transactions, place, pos)
                return

    def _logged(self, changes: Changes) -> list[tuple[Signal, str, RowOrigin, str]]:
        """Return the rows that were inserted into the signal table or deleted from it, in log order."""
        if self.signal_table is None:
            return []
        found: list[tuple[tuple[int, ...], tuple[Signal, str, RowOrigin, str]]] = []
        for batch in self._of(changes, self.signal_table):
            transactions = transactions_of(batch)
            for row in np.flatnonzero((batch.op == ord("c")) | (batch.op == ord("d"))).tolist():
                op = chr(batch.op[row])
                image = batch.after if op == "c" else batch.before
                if image is None or len(image.columns) < 3:
                    continue
                id_, kind, data = (_text(column[row].as_py()) for column in image.columns[:3])
                origin = _origin(batch, row)
                position = transactions.position(int(batch.transaction[row]))
                place = (*transactions.key(int(batch.transaction[row])), int(batch.ordinal[row]))
                found.append((place, (Signal(id_ or "", kind or "", data), op, origin, position)))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def captured(self, changes: Changes) -> Sequence[tuple[str, str]]:
        return self._list_captured()

    def local(self, entry: str) -> str:
        # an expression is not changed, since lower case would change its meaning
        is_plain = self._is_folded() and _PLAIN.fullmatch(entry) is not None
        return entry.lower() if is_plain else entry

    def reads(self, window: BinlogWindow, changes: Changes) -> Sequence[WindowTask]:
        origin = self._source(window, changes)
        found: list[WindowTask] = []
        for place, one in enumerate(window.chunks):
            name = (one.table.id.schema, one.table.id.table)
            try:
                gone = superseded(one.identity, self._of(changes, name))
            except NotComparable:
                self._unclear = window
                gone = SupersededKeys(everything=True)
            stays = gone.stays(one.keys)
            columns = one.columns if stays is None else [column.filter(stays) for column in one.columns]
            if columns and len(columns[0]):
                ordinal = (window.number << 44) + ((place + 1) << 36)
                found.append(
                    WindowTask.of(
                        aligned(one.table, changes.tables.get(name)), columns, ordinal, origin, self._settings
                    )
                )
        return found

    def _source(self, window: BinlogWindow, changes: Changes) -> RowOrigin:
        """Return the place for the window's rows: the closing watermark's event, else the latest change, else the
        window's end."""
        closing, at_us = window.closing, int(window.opened.timestamp() * 1_000_000)
        if closing is not None:
            op = "d" if closing.is_deletion else "c"
            for signal, done, origin, _ in reversed(self._logged(changes)):
                if signal.id == closing.id and done == op:
                    # times in MariaDB's log are whole seconds, and Debezium shows the time of its clock
                    return replace(origin, at_us=at_us) if self._dialect is MARIADB else origin
        upto = window.upto
        if self.latest is not None:
            return replace(self.latest, at_us=at_us)
        return RowOrigin(upto.file, upto.end, at_us, upto.epoch, upto.start)

    # --- chunks ------------------------------------------------------------------------------------------------------

    def next_chunks(self, view: str, state: IncrementalSnapshot, count: int) -> FoundChunks[WindowRows]:
        """Return the next chunks, joined to one, with their current rows."""
        import pymysql

        one, cursor, session = state.current, state.cursor, self._planning()
        whole, shown = self._described(session, one)
        names = (one.surrogate,) if one.surrogate is not None else whole.key
        if not names:
            raise UnusableTable("NO_PRIMARY_KEY")
        columns = key_columns(whole, names)
        if not columns:
            raise UnusableTable("NO_PRIMARY_KEY")
        met = (f"(\n{one.filter}\n)",) if one.filter else ()
        try:
            estimate = None
            cursor = fitting(cursor, one, names)
            if cursor.maximum is None:
                cursor = Cursor(None, self._maximum(session, whole, columns, met) or (), key=tuple(names))
                estimate = division.estimate(session, whole)[0] or None
            if not cursor.maximum or cursor.last == cursor.maximum:
                return FoundChunks([], cursor, estimate=estimate)
            index = "" if one.surrogate is not None else division.index_of(session, whole)
            upto = compared(columns, "<=", cursor.maximum)
            wanted = self._chunk_size * count
            end = division.boundary(session, whole, columns, index, cursor.last, wanted, (upto, *met))
            end = end or cursor.maximum
            read = self._read(session, whole, shown, columns, KeyRange(cursor.last, end), met)
        except (pymysql.err.MySQLError, ServerError) as error:
            code = error.code if isinstance(error, ServerError) else code_of(error)
            if code in _PASSING or (isinstance(error, pymysql.err.MySQLError) and is_gone(error)):
                raise
            log.warning("a query of %s fails: error %d of the server", one, code)
            raise UnusableTable("SQL_EXCEPTION") from None
        except ValueError:
            if state.cursor.maximum:
                # the bounds are values of a key that had another type
                return self.next_chunks(view, state.moved(begun_anew(one)), count)
            raise UnusableTable("UNKNOWN_SCHEMA") from None
        number = cursor.rows + len(read.keys)
        last, maximum = ([one.shown(text) for one, text in zip(columns, key, strict=True)]
                         for key in (end, cursor.maximum))  # fmt: skip
        moved = replace(cursor, last=end, rows=number)
        return FoundChunks([read], moved, count, estimate, (tuple(last), tuple(maximum)))

    def _described(self, session: Connection[Any], one: Collection) -> tuple[TableSchema, TableSchema]:
        """Return the current table, first with all columns, then with the columns that events need. Raises
        UnusableTable."""
        if not self._is_captured(one.schema, one.table):
            raise UnusableTable("UNKNOWN_SCHEMA")
        name = (one.schema, one.table)
        try:
            found = catalog.created(session, [name], self._dialect).get(name)
        except Unparsable as unread:
            log.warning("the definition of %s is not understood: %s", one, unread.what)
            raise UnusableTable("UNKNOWN_SCHEMA") from None
        if found is None:
            raise UnusableTable("UNKNOWN_SCHEMA")
        whole = self._admit(schema_of(found.table))
        if one.surrogate is not None and all(column.name != one.surrogate for column in whole.columns):
            raise UnusableTable("UNKNOWN_SCHEMA")
        return whole, self._settings.shaping.read(whole)

    def _maximum(
        self, session: Connection[Any], table: TableSchema, columns: tuple[KeyColumn, ...], met: Sequence[str]
    ) -> Key | None:
        listed = ", ".join(column.read() for column in columns)
        nulls, order = [f"{quoted(column.name)} is not null" for column in columns], sorting(columns, " desc")
        source = f"{qualified(table)}{where([*nulls, *met])}"
        found = rows(session, f"select {listed} from {source} order by {order} limit 1")
        return tuple(str(text) for text in found[0]) if found else None

    def _read(
        self,
        session: Connection[Any],
        whole: TableSchema,
        shown: TableSchema,
        columns: tuple[KeyColumn, ...],
        own: KeyRange,
        met: Sequence[str],
    ) -> WindowRows:
        names = whole.key or tuple(column.name for column in columns)
        identity = [whole.columns[whole.index(name)] for name in names]
        # keys are compared with keys of the log, which has all digits
        listed = f"{select_list(shown.columns, exact=self._exact)}, {select_list(identity, exact=True)}"
        wanted = forms(shown.columns, exact=self._exact) + forms(identity, exact=True)
        ranged = [*within(columns, own), *met]
        statement = f"select {listed} from {qualified(whole)}{where(ranged)} order by {sorting(columns)}"
        batches = list(select(session, statement, wanted))
        found = [
            pa.concat_arrays([batch[place] for batch in batches]) if batches else pa.array([], pa.binary())
            for place in range(len(wanted))
        ]
        width = len(wanted) - len(identity)
        return WindowRows(shown, tuple(names), found[:width], key_texts(identity, found[width:]))

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _planning(self) -> Connection[Any]:
        """Return the session that writes watermarks and reads chunks; a new one if it has ended."""
        if self._session is not None and not self._session.open:
            self.close()
        if self._session is None:
            session = self._connect()
            self._server = identify(session).uuid
            self._session = session
            with suppress(Exception):
                run(self._session, f"set session lock_wait_timeout = {_LOCK_SECONDS}")
            self._columns = ()
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _origin(batch: ChangeBatch, row: int) -> RowOrigin:
    """Return the place of a change."""
    assert not isinstance(batch.lsn, pa.Array)
    return origin_of(transactions_of(batch), int(batch.transaction[row]), int(batch.lsn[row]))


def origin_of(transactions: BinlogTransactions, number: int, pos: int) -> RowOrigin:
    """Return the place of an event at `pos` in a transaction."""
    source = int(transactions.source[number])
    return RowOrigin(
        transactions.names[transactions.file[number]],
        pos,
        int(transactions.commit_us[number]),
        int(transactions.epoch[number]),
        int(transactions.start[number]),
        "" if source < 0 else transactions.names[source],
        int(transactions.number[number]),
        transactions.separator,
        int(transactions.thread[number]),
        int(transactions.server_id[number]),
    )
