"""SqlServerDialect: SQL Server for `tailrace.connectors.changetables`. The SQL is in `statements`."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import Column, TableId, TableSchema
from tailrace.config import Config
from tailrace.config.expressions import compile_expression
from tailrace.config.rows import keeps_copies
from tailrace.config.timezone import timezone
from tailrace.connectors.changetables.dialect import (
    FIRST_FETCH,
    CaptureTable,
    ChangeRows,
    CommitTimes,
    DescribedTable,
    Dialect,
    Key,
    KeyRange,
    Position,
    next_fetch,
)
from tailrace.connectors.changetables.position import Newest, following, nothing, preceding
from tailrace.connectors.sqlserver.server import catalog, ranges, statements
from tailrace.connectors.sqlserver.server.connection import close, connect
from tailrace.connectors.sqlserver.server.errors import refused, user_fault
from tailrace.connectors.sqlserver.server.health import CaptureHealth
from tailrace.connectors.sqlserver.values.declaration import SIZED, UNSIZED
from tailrace.connectors.sqlserver.values.texts import has_bit, positions, quoted, selected, texts
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, TailraceError

if TYPE_CHECKING:
    import mssql_python

WIDTH = 10
"""Bytes of an LSN."""

_LARGE_FETCH = 500
"""Most rows of a fetch if a column may hold megabytes."""

_ROWS_FETCH = 10_000
_ISOLATION = "snapshot.isolation.mode"
_LISTED = 1000
_UNSENT = frozenset(("text", "ntext", "image", "xml"))
# its text comes back as nvarchar, which sorts before every number
_UNORDERED = frozenset(("sql_variant",))
_LARGE = frozenset(("text", "ntext", "image", "xml", "geometry", "geography", "json"))


@dataclass(frozen=True, slots=True, repr=False)
class SqlServerDialect:
    """Implements `changetables.dialect.Dialect`. Picklable; holds the password."""

    config: Config
    connector: str = "sqlserver"
    width: int = WIDTH
    pairs: bool = False
    brackets: bool = True
    unsent: frozenset[str] = _UNSENT
    unordered: frozenset[str] = _UNORDERED
    keeping: str = "the retention of the clean-up job (sys.sp_cdc_change_job)"

    @property
    def databases(self) -> tuple[str, ...]:
        return tuple(self.config["database.names"])

    def connect(self, database: str) -> SqlServerSession:
        """Return a session. Its tables have the database's name as the server writes it. Any process."""
        connection = connect(self.config, database)
        session = SqlServerSession(self.config, database, connection)
        try:
            session.database = str(session.one(statements.DATABASE))
        except TailraceError:
            session.close()
            raise
        return session

    def __repr__(self) -> str:
        return type(self).__name__


def dialect(config: Config) -> Dialect:
    """Return the dialect of a configuration. No I/O."""
    return SqlServerDialect(config)


@dataclass(slots=True, repr=False)
class SqlServerSession:
    """A connection to one database; implements `changetables.dialect.Session`."""

    config: Config
    database: str
    connection: mssql_python.Connection
    _first_columns: dict[TableId, str] = field(default_factory=dict)
    _roles: dict[str, bool] = field(default_factory=dict)
    _commands: dict[int, bool] = field(default_factory=dict)
    _apart: dict[TableId, dict[str, str]] = field(default_factory=dict)

    # --- statements -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _cursor(self) -> Iterator[mssql_python.Cursor]:
        """Open a cursor whose errors are raised as TailraceError."""
        from mssql_python import exceptions

        try:
            cursor = self.connection.cursor()
            try:
                yield cursor
            finally:
                with contextlib.suppress(Exception):
                    cursor.close()
        except exceptions.Exception as error:
            raise refused(error, self.config, self.database) from None

    def all(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return every row of a small result."""
        with self._cursor() as cursor:
            cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    def one(self, statement: str, *parameters: Any) -> Any:
        """Return the first column of the first row; None without a row."""
        found = self.all(statement, *parameters)
        return found[0][0] if found else None

    def run(self, statement: str, *parameters: Any) -> None:
        """Run a statement without a result, or whose result does not matter."""
        with self._cursor() as cursor:
            cursor.execute(statement, parameters) if parameters else cursor.execute(statement)

    def _batches(self, statement: str, parameters: Sequence[Any], size: int) -> Generator[pa.RecordBatch]:
        """Yield the rows of a result as the driver's Arrow batches, without empty ones."""
        count = FIRST_FETCH if size <= _LARGE_FETCH else size
        with self._cursor() as cursor:
            cursor.execute(statement, tuple(parameters)) if parameters else cursor.execute(statement)
            while (batch := cursor.arrow_batch(min(count, size))).num_rows:
                yield batch
                if size <= _LARGE_FETCH:
                    count = next_fetch(batch.num_rows, batch.nbytes, size)

    # --- the log ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if not self.one(statements.ENABLED):
            raise PrerequisiteError(
                f"Change data capture is not enabled in the database {self.database}.",
                "exec sys.sp_cdc_enable_db; and for each table: exec sys.sp_cdc_enable_table ….",
            )
        self.all(statements.CAPTURES)

    def newest(self) -> Newest | None:
        found = self.one(statements.NEWEST)
        return None if found is None else Newest(bytes(found))

    def nth(self, after: Position, count: int) -> Position | None:
        position, found = self.all(statements.NTH, count, after)[0]
        return bytes(position) if found == count else None

    def captures(self) -> list[CaptureTable]:
        # The order matters. The instances come first: an instance that is found already has its key and columns. The
        # columns come last: an instance that still has them still had its key. In another order an instance created
        # between two of the statements would look like a table without columns.
        instances = self.all(statements.CAPTURES)
        keys: dict[int, list[str]] = {}
        for number, name in self.all(statements.INDEX_COLUMNS):
            keys.setdefault(number, []).append(name)
        columns: dict[int, list[str]] = {}
        for number, name, _ in self.all(statements.CAPTURED_COLUMNS):
            columns.setdefault(number, []).append(name)
        found = []
        for row in instances:
            number, source, instance, start, created, schema, table, change_schema, change_table, role = row
            # An instance without columns was dropped meanwhile. An instance without a low end has captured nothing yet.
            # The functions of an instance with a gating role return nothing to other logins.
            if number not in columns or start is None or not self._wanted(instance) or not self.is_member(role):
                continue
            found.append(
                CaptureTable(
                    TableId(self.database, schema, table), instance, change_schema, change_table, bytes(start), None,
                    tuple(columns[number]), tuple(keys.get(number, ())), number, source, _local_us(created),
                )
            )  # fmt: skip
        return found

    def starts(self) -> dict[tuple[str, int], Position]:
        return {(name, number): bytes(start) for name, number, start in self.all(statements.STARTS)}

    def is_member(self, role: str | None) -> bool:
        """Return True if the login belongs to the gating role `role`, or if there is no role."""
        if role and role not in self._roles:
            self._roles[role] = self.one(statements.MEMBER, role) == 1
        return not role or self._roles[role]

    def _wanted(self, instance: str) -> bool:
        """Return True if the lists of capture instances include the instance."""
        included, excluded = (self.config[f"capture.instance.{kind}.list"] for kind in ("include", "exclude"))
        if included:
            return any(compile_expression(expression).fullmatch(instance) for expression in included)
        return not any(compile_expression(expression).fullmatch(instance) for expression in excluded)

    def oldest(self, capture: CaptureTable) -> Position:
        found = self.one(statements.OLDEST, capture.name)
        if found is None or not any(found):
            raise PositionLost(
                f"The capture instance {capture.name} of {self.database}.{capture.source} is gone, or the login "
                f"{self.config['database.user']} may not read it any more.",
                "Changes since the checkpoint may be lost: start with a new checkpoint, or with "
                "snapshot.mode=when_needed; tailrace check names the missing rights.",
            )
        return bytes(found)

    def describe(self, captures: Sequence[CaptureTable]) -> list[DescribedTable]:
        if not captures:
            return []
        objects = sorted({number for one in captures for number in (one.source_id, one.object_id)})
        columns = catalog.columns(self.all, objects)
        keys = catalog.keys(self.all, sorted({one.source_id for one in captures}))
        found = []
        for one in captures:
            of_source, of_change = columns.get(one.source_id, {}), columns.get(one.object_id, {})
            if not of_source or any(name not in of_change for name in one.columns):
                raise PositionLost(
                    f"The capture instance {one.name} of {self.database}.{one.source} is gone.",
                    "It was dropped with its table, or disabled: make a new one with sys.sp_cdc_enable_table, and "
                    "start with a new checkpoint or with snapshot.mode=when_needed.",
                )
            listed = tuple(of_source.get(name, of_change[name]) for name in one.columns)
            whole = keys.get(one.source_id, ())
            key = tuple(name for name in whole if name in one.columns)
            if len(key) < len(whole) and keeps_copies(self.config):
                # events have the captured part, as in Debezium, but it does not identify the rows of a copy
                key = ()
            capture = replace(one, is_partial=0 < len(key) < len(whole))
            found.append(DescribedTable(capture, TableSchema(one.source, listed, key, oid=one.source_id)))
        return found

    def warnings(self, captures: Sequence[CaptureTable]) -> list[str]:
        return CaptureHealth(self, self.config, f" in {self.database}").amiss(captures)

    def total(self, capture: CaptureTable, after: Position, upto: Position) -> int:
        if self._by_function:
            span = self._span(capture, after, upto)
            return int(self.one(statements.total_by_function(capture.name), *span)) if span else 0
        return int(self.one(statements.total(capture.change_schema, capture.change_table), after, upto))

    def counts(self, capture: CaptureTable, after: Position, upto: Position) -> list[tuple[Position, int]]:
        if self._by_function:
            span = self._span(capture, after, upto)
            found = self.all(statements.counts_by_function(capture.name), *span) if span else []
        else:
            found = self.all(statements.counts(capture.change_schema, capture.change_table), after, upto)
        return [(bytes(position), int(count)) for position, count in found]

    def last(self, capture: CaptureTable, upto: Position, skipped: tuple[int, ...]) -> Position | None:
        if self._by_function:
            span = self._span(capture, preceding(self.oldest(capture)), upto)
            found = self.one(statements.last_by_function(capture.name, skipped), *span) if span else None
        else:
            found = self.one(statements.last(capture.change_schema, capture.change_table, skipped), upto)
        return None if found is None else bytes(found)

    def changes(
        self, capture: CaptureTable, table: TableSchema, after: Position, upto: Position, *, masked: bool = False
    ) -> Iterator[ChangeRows]:
        span = self._span(capture, after, upto)
        if span is None:
            return
        # for each column whose nulls may stand for missing values: its place, and its number in the mask
        unsent = [
            (place, capture.columns.index(column.name))
            for place, column in enumerate(table.columns)
            if column.type_name in _UNSENT or (masked and _is_large(column))
        ]
        masked = bool(unsent)
        if self._by_function:
            statement, parameters = statements.changes_by_function(capture.name, table.columns, masked), span
        else:
            by_command = self._has_command(capture)
            statement = statements.changes(
                capture.change_schema, capture.change_table, table.columns, by_command, masked
            )
            parameters = (after, upto)
        found = self._batches(statement, parameters, self._fetch("query.fetch.size", table))
        with contextlib.closing(found):
            for batch in found:
                start, sequence, operation, command, *values = batch.columns
                mask, values = (values[0], values[1:]) if masked else (None, values)
                yield ChangeRows(
                    positions(start),
                    positions(sequence),
                    operation.to_numpy(zero_copy_only=False).astype(np.uint8),
                    [texts(column) for column in values],
                    command.to_numpy(zero_copy_only=False).astype(np.int64),
                    {} if mask is None else {place: has_bit(mask, number) for place, number in unsent},
                )
        # The clean-up raises the low end before it deletes: a range that is still complete was complete when read.
        self._span(capture, after, upto)

    def _has_command(self, capture: CaptureTable) -> bool:
        """Return True if the change table numbers the operations of a transaction."""
        if capture.object_id not in self._commands:
            self._commands[capture.object_id] = bool(self.one(statements.HAS_COMMAND, capture.object_id))
        return self._commands[capture.object_id]

    @property
    def _by_function(self) -> bool:
        return bool(self.config["data.query.mode"] == "function")

    def _span(self, capture: CaptureTable, after: Position, upto: Position) -> tuple[Position, Position] | None:
        """Return the first and last position of a range for a capture instance; None for an empty range.

        Raises PositionLost if the clean-up has reached the range. A range may begin before the instance's start:
        nothing is lost then, because changes begin at that start, as it was when the instance was found.
        """
        low, oldest = max(following(after), capture.start), self.oldest(capture)
        if oldest > low and upto >= low:
            raise PositionLost(
                f"The changes of {self.database}.{capture.source} from {_shown(low)} on are cleaned up: the capture "
                f"instance {capture.name} begins at {_shown(oldest)}.",
                "Start with a new checkpoint, or with snapshot.mode=when_needed; and raise the retention of the "
                "clean-up job: exec sys.sp_cdc_change_job @job_type = N'cleanup', @retention = <minutes>.",
            )
        return (low, upto) if low <= upto else None

    def commit_times(self, after: Position, upto: Position) -> CommitTimes:
        found = list(self._batches(statements.TIMES, (after, upto), _ROWS_FETCH))
        if not found:
            return CommitTimes(pa.array([], pa.binary()), np.zeros(0, np.int64))
        whole = pa.Table.from_batches(found).combine_chunks()
        local = pc.cast(pc.cast(whole.column(1), pa.string()), pa.timestamp("us")).combine_chunks()
        return CommitTimes(positions(whole.column(0).combine_chunks()), self._utc(local))

    def lineage(self) -> str:
        return str(self.one(statements.FORK) or "")

    def now_us(self) -> int:
        local = pc.cast(pa.array([str(self.one(statements.NOW))]), pa.timestamp("us"))
        return int(self._utc(local)[0])

    def _utc(self, local: pa.Array) -> Any:
        """Return local times of the server as µs since 1970 UTC: by the configured zone, else by its present offset."""
        name = self.config["database.server.timezone"]
        if name:
            offset = timezone(name).utcoffset(None)
            if offset is None:
                # a clock that is put back shows an hour twice; the earlier time is used
                zoned = pc.assume_timezone(local, name.strip(), ambiguous="earliest", nonexistent="latest")
                return zoned.cast(pa.int64()).to_numpy()
            seconds = int(offset.total_seconds())
        else:
            seconds = 60 * int(self.one(statements.OFFSET))
        return local.cast(pa.int64()).to_numpy() - seconds * 1_000_000

    # --- tables -----------------------------------------------------------------------------------------------------

    def tables(self) -> list[TableId]:
        return sorted(TableId(self.database, schema, table) for schema, table in self.all(statements.TABLES))

    def uncaptured(self, captured: Set[TableId]) -> list[TableSchema]:
        ids = {number: TableId(self.database, schema, table) for number, schema, table in self.all(statements.IDS)}
        others = sorted(number for number, table in ids.items() if table not in captured)
        found = []
        # "IN (Transact-SQL)": lists of many thousands exhaust the server's resources (errors 8623, 8632)
        for low in range(0, len(others), _LISTED):
            part = others[low : low + _LISTED]
            columns, keys = catalog.columns(self.all, part), catalog.keys(self.all, part)
            found += [
                TableSchema(ids[number], tuple(columns.get(number, {}).values()), keys.get(number, ()), oid=number)
                for number in part
            ]
        return sorted(found, key=lambda table: table.id)

    def is_empty(self, table: TableId) -> bool:
        return not self.all(statements.any_row(table))

    def row_count(self, table: TableId) -> int:
        return int(self.one(statements.ROW_COUNT, table.schema, table.table) or 0)

    def boundary(self, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
        key, source, where, parameters = self._range(table, rows)
        with self._isolated(self.config[_ISOLATION]):
            found = self._key(statements.boundary(source, key, where, self._recompile), (*parameters, count - 1))
            if found is not None and None in found:
                # NULL sorts first and cannot bound a range: the chunk has all rows with NULL, and one more
                found = self._key(statements.first(source, key, where, last=False), parameters)
        return found  # type: ignore[return-value]

    def maximum(self, table: TableSchema, rows: KeyRange) -> Key | None:
        key, source, where, parameters = self._range(table, rows)
        with self._isolated(self.config[_ISOLATION]):
            return self._key(statements.first(source, key, where, last=True), parameters)  # type: ignore[return-value]

    def _key(self, statement: str, parameters: Sequence[Any]) -> tuple[str | None, ...] | None:
        with contextlib.closing(self._batches(statement, parameters, 1)) as found:
            for batch in found:
                values = [texts(column)[0].as_py() for column in batch.columns]
                return tuple(None if value is None else value.decode() for value in values)
        return None

    def rows(self, table: TableSchema, rows: KeyRange, statement: str | None = None) -> Iterator[list[pa.Array]]:
        mode = "read_committed" if rows.keys else self.config[_ISOLATION]
        _, source, where, parameters = ranges.select(table, rows, mode, self._collations)
        order = [quoted(name) for name in rows.key]
        size = self._fetch("snapshot.fetch.size" if self.config.is_set("snapshot.fetch.size") else "", table)
        with self._isolated(mode):
            if statement is not None:
                source = statements.as_table(self._as_table(statement, table))
            select = statements.rows(source, table.columns, where, order, self._recompile)
            # Closed before the isolation level is reset: a session runs one statement at a time.
            with contextlib.closing(self._batches(select, parameters, size)) as found:
                for batch in found:
                    yield [texts(column) for column in batch.columns[: len(table.columns)]]

    def _as_table(self, statement: str, table: TableSchema) -> str:
        """Return a select of the user in a form that can replace a table. It is tried without reading rows.

        Raises ConfigError if no form works.
        """
        from mssql_python import exceptions

        fault: BaseException | None = None
        listed = ", ".join(selected(column) for column in table.columns) or "1"
        for form in (statement, statements.ordered(statement)):
            try:
                cursor = self.connection.cursor()
                with contextlib.closing(cursor):
                    cursor.execute(f"select {listed} from {statements.as_table(form)} where 1 = 0")
                return form
            except exceptions.Exception as error:
                fault = fault or error
        assert fault is not None
        raise user_fault(fault, self.config, self.database, f"snapshot.select.statement.overrides.{table.id}")

    def _range(self, table: TableSchema, rows: KeyRange) -> ranges.Select:
        return ranges.select(table, rows, self.config[_ISOLATION], self._collations)

    def _collations(self, table: TableId) -> dict[str, str]:
        """Return the collations of a table's columns whose code page is not the database's."""
        if table not in self._apart:
            self._apart[table] = dict(self.all(statements.COLLATIONS, quoted(table.schema, table.table)))
        return self._apart[table]

    @contextlib.contextmanager
    def _isolated(self, mode: str) -> Iterator[None]:
        """Apply the level of `snapshot.isolation.mode` while rows are read."""
        timeout = self.config["snapshot.lock.timeout.ms"]
        self.run(statements.isolation(mode, timeout))
        try:
            yield
        finally:
            # a lost session will only be closed, and its error has already been raised
            with contextlib.suppress(TailraceError):
                self.run(statements.READ_COMMITTED)

    @property
    def _recompile(self) -> bool:
        return bool(self.config["incremental.snapshot.option.recompile"])

    def _fetch(self, option: str, table: TableSchema) -> int:
        """Return the number of rows of a fetch."""
        size = int(self.config[option]) if option else _ROWS_FETCH
        return min(size, _LARGE_FETCH) if any(map(_is_large, table.columns)) else size

    # --- writing ----------------------------------------------------------------------------------------------------

    def write_signal(self, table: TableId, id: str, kind: str, data: str | None) -> None:  # noqa: A002
        self.run(statements.write_signal(table), id, kind, data)

    def delete_signal(self, table: TableId, id: str) -> None:  # noqa: A002
        if table not in self._first_columns:
            column = self.one(statements.FIRST_COLUMN, table.schema, table.table)
            if column is None:
                raise PrerequisiteError(f"There is no table {self.database}.{table}.", "Check signal.data.collection.")
            self._first_columns[table] = column
        self.run(statements.delete_signal(table, self._first_columns[table]), id)

    def execute(self, statement: str) -> None:
        from mssql_python import exceptions

        try:
            with contextlib.closing(self.connection.cursor()) as cursor:
                cursor.execute(statement)
                while cursor.nextset():
                    pass
        except exceptions.Exception as error:
            raise user_fault(error, self.config, self.database, "heartbeat.action.query") from None

    def log_span(self) -> tuple[float | None, float | None]:
        oldest = self.one(statements.SPAN)
        try:
            found = self.all(statements.CLEANUP)
        except ConnectionFailed:
            raise
        except TailraceError:
            # the login may not read the jobs
            found = []
        return None if oldest is None else float(oldest), float(found[0][0]) * 60 if found else None

    def close(self) -> None:
        close(self.connection)


def _is_large(column: Column) -> bool:
    return column.type_name in _LARGE or (column.modifier == UNSIZED and column.type_name in SIZED)


def _shown(position: Position) -> str:
    """Return an LSN as events show it."""
    digits = position.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def _local_us(text: str | None) -> int:
    """Return local time of the server in µs since 1970, for comparisons with other times of the same server."""
    if not text:
        return 0
    return int(pc.cast(pa.scalar(text), pa.timestamp("us")).value)


NOTHING = nothing(WIDTH)
"""The position before every commit."""
