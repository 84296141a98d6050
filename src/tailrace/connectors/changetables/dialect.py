"""Dialect: the differences between databases with change tables. Only dialects contain SQL; the reader has none.

A connector has a function `dialect(config) -> Dialect` in `connectors/<db>/dialect.py`. The reader
(`connectors/changetables`) does the rest: offsets, batches, switches between change tables, pairing, snapshots,
signals, order.

**Positions** are bytes of one width (`Dialect.width`), compared as bytes: a commit's `position`, and the `change`
position of a row within it. A range `(after, upto]` always consists of two commit positions; `after` may be any bytes
(zeros, or one less than a real position), not only an existing position.

**Values** are texts, as the kernels of events take them: `pa.binary()` columns in UTF-8, null for SQL NULL.

=============================  ======================================================================================
value                          text =============================
====================================================================================== integers, decimals, money
plain digits, `-12.3400` with the scale of the type; no exponent, no grouping float, real, DECFLOAT          shortest
text that reads back to the same number (`1.5`, `1e+300`, `NaN`) boolean (bit)                  `t`, `f` date
`2019-05-27` time                           `13:58:28.1234567`, with as many digits as the type has (none: no point)
timestamp                      `2019-05-27 13:58:28.1234567` timestamp with offset          `2019-05-27 13:58:28.1234567
+02:00` binary                         `\\x` and lower-case hex text, xml, uniqueidentifier    the text itself
(uniqueidentifier in upper case, as the server prints it) =============================
======================================================================================

No Python object per value beyond those of the driver: fetch Arrow if the driver can, else transpose `fetchmany` into
columns, and convert columns with pyarrow or by a cast in SQL.

**Options**: the reader itself uses `event.order` (only `topic`; it refuses `key`, since one query reads a range),
`max.batch.size`, `max.iteration.transactions`, `poll.interval.ms`, `heartbeat.interval.ms`, `heartbeat.action.query`,
`errors.max.retries`, `retriable.restart.connector.wait.ms`, `include.schema.changes`, `snapshot.mode` (words of
`tailrace.snapshot.mode`), `snapshot.include.collection.list`, `snapshot.select.statement.overrides`,
`snapshot.tables.order.by.row.count`, `snapshot.delay.ms`, `streaming.delay.ms`, `incremental.snapshot.chunk.size`,
`incremental.snapshot.watermarking.strategy`, `incremental.snapshot.window.chunks`, `signal.…`, `notification.…`. All
others, and the way in which a session reads, belong to the dialect.

**Errors**: every method raises `tailrace.errors`: ConnectionFailed for a lost or refused connection (the reader tries
again), PrerequisiteError for missing prerequisites, PositionLost for a range that the server has cleaned up,
ConfigError for a wrong statement of the user. Never a driver's own exception, never row data or secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import Int64s
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.position import Newest

Position = bytes
Key = tuple[str, ...]
"""The texts of a key's columns, in the key's order and in the forms above. Offsets contain keys, which the dialect
parses again."""

DELETE, INSERT, BEFORE, AFTER = 1, 2, 3, 4
"""Operations of change rows (SQL Server's `__$operation`; Db2: `D` is DELETE, `I` is INSERT, a `U` row AFTER)."""


@dataclass(frozen=True, slots=True)
class CaptureTable:
    """A change table and its coverage (SQL Server: a capture instance; Db2: a row of IBMSNAP_REGISTER).

    `name` is unique in its database (the capture instance; the CD table with its schema). `change_schema` and
    `change_table` are the table's own name. It has the changes of `source` with a commit position `>= start`, and `<
    stop` if `stop` is known, except those that were cleaned up. `columns` are the captured columns, in the change
    table's order. `key` are the columns of the index that was named for capture, empty if there is none.

    `object_id` and `source_id` distinguish a table from a later one of the same name (0 if the database has none).
    `created_us` is its creation time, in µs since 1970, 0 if unknown: it orders tables with equal `start`.

    `is_partial` is True if only a part of the key of `source` is captured, which several rows may share, and events
    have this part as their key. `Session.describe` finds it out.
    """

    source: TableId
    name: str
    change_schema: str
    change_table: str
    start: Position
    stop: Position | None
    columns: tuple[str, ...]
    key: tuple[str, ...]
    object_id: int = 0
    source_id: int = 0
    created_us: int = 0
    is_partial: bool = False


@dataclass(slots=True)
class ChangeRows:
    """Some rows of a change table, in its order: commit position, command, change position, then before above after.

    `commit` and `change` are `pa.binary()` arrays of positions without nulls, `operation` uint8 codes as above, and
    `columns[j]` the text of `table.columns[j]`. `command` numbers the operations of a transaction (SQL Server's
    `__$command_id`; 0 if unknown), None if the database has no such numbers. `touched` marks, by column index, the rows
    in which an update has set the column. If the database provides this, it has at least the columns whose type is one
    of `Dialect.unsent` (see `Session.changes`).
    """

    commit: pa.Array
    change: pa.Array
    operation: npt.NDArray[Any]
    columns: list[pa.Array]
    command: Int64s | None = None
    touched: Mapping[int, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(slots=True)
class CommitTimes:
    """The commit times of transactions: `positions`, rising, without nulls (`pa.binary()`), and `at_us`, µs since 1970
    UTC.

    The times are as the server recorded them: its clock may go back between two commits.
    """

    positions: pa.Array
    at_us: Int64s


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of a table with `after < key <= upto`, in the order of the columns `key`, that meet `condition`.

    None leaves a side open. Without `key` columns both sides are None and the range is the whole table. `condition` is
    the user's SQL, used unchanged in parentheses, or None. `keys` restricts the range to rows with these keys. Locks
    then last only as long as the reading, independent of the options for snapshots.
    """

    key: tuple[str, ...] = ()
    after: Key | None = None
    upto: Key | None = None
    condition: str | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A captured table as events show it.

    `table.columns` are those of `capture.columns`, in that order, with the types, nullability and defaults of the
    source table (a column that the source table no longer has: of the change table, nullable). `table.key` is the
    primary key, else a unique index over NOT NULL columns, if captured; else empty.
    """

    capture: CaptureTable
    table: TableSchema


class Session(Protocol):
    """A connection to one database, used by one thread at a time. After ConnectionFailed it can only be closed."""

    # --- the log ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise PrerequisiteError unless the database can be captured: capture is enabled, the login is allowed."""
        ...

    def log_span(self) -> tuple[float | None, float | None]:
        """Return the age of the oldest change in the change tables, and the retention of changes, in s; None if
        unknown."""
        ...

    def newest(self) -> Newest | None:
        """Return the commit position up to which everything is captured; None if there is none yet (a NULL LSN)."""
        ...

    def nth(self, after: Position, count: int) -> Position | None:
        """Return the commit position of the `count`-th captured transaction after `after`; None if there are fewer."""
        ...

    def captures(self) -> list[CaptureTable]:
        """Return all change tables that the login may read, of every source table, older before newer."""
        ...

    def oldest(self, capture: CaptureTable) -> Position:
        """Return the first commit position from which changes still exist (SQL Server: `sys.fn_cdc_get_min_lsn`)."""
        ...

    def starts(self) -> Mapping[tuple[str, int], Position]:
        """Return `CaptureTable.start` by `name` and `object_id`, at least for the change tables of `captures`. One
        query."""
        ...

    def describe(self, captures: Sequence[CaptureTable]) -> list[DescribedTable]:
        """Return the tables as they are now, one for each of `captures`, in their order. Uses few queries."""
        ...

    def warnings(self, captures: Sequence[CaptureTable]) -> list[str]:
        """Return sentences on problems that do not stop capture: the agent or capture program has stopped or lags, a
        table has columns that were added after its change table, a clean-up is near.

        The reader calls it from time to time, and logs each sentence once.
        """
        ...

    def total(self, capture: CaptureTable, after: Position, upto: Position) -> int:
        """Return the number of rows in `(after, upto]` of the change table, counted by the server."""
        ...

    def counts(self, capture: CaptureTable, after: Position, upto: Position) -> list[tuple[Position, int]]:
        """Return the number of rows of each transaction in `(after, upto]` of the change table, in order."""
        ...

    def last(self, capture: CaptureTable, upto: Position, skipped: tuple[int, ...]) -> Position | None:
        """Return the commit position of the last row at or before `upto` whose operation is not in `skipped`; None if
        none exists.

        If updates may be pairs, nothing is skipped.
        """
        ...

    def changes(
        self, capture: CaptureTable, table: TableSchema, after: Position, upto: Position, *, masked: bool = False
    ) -> Iterator[ChangeRows]:
        """Yield the change rows in `(after, upto]`, a fetch at a time, the same at every call.

        With `masked`, `touched` has every column whose old value may be missing. Rows are ordered by commit position,
        command, change position and operation, so that an update's BEFORE row precedes its AFTER row. `table.columns`
        are the columns to fetch, some of the captured ones. Raises PositionLost if part of the range was cleaned up, or
        the change table is gone.
        """
        ...

    def commit_times(self, after: Position, upto: Position) -> CommitTimes:
        """Return the times of the transactions in `(after, upto]` (`cdc.lsn_time_mapping`, `IBMSNAP_UOW`)."""
        ...

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self) -> list[TableId]:
        """Return all user tables of the database, sorted; among them are tables that the filters name without being
        captured."""
        ...

    def uncaptured(self, captured: Set[TableId]) -> list[TableSchema]:
        """Return all user tables except `captured`, sorted, if schema changes show them (SQL Server, as Debezium 3);
        else none."""
        ...

    def is_empty(self, table: TableId) -> bool:
        """Return True if the table has no row."""
        ...

    def row_count(self, table: TableId) -> int:
        """Return the number of the table's rows; the server may estimate it."""
        ...

    def boundary(self, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
        """Return the key of the `count`-th row of `rows` in the order of the key; None if there are fewer."""
        ...

    def maximum(self, table: TableSchema, rows: KeyRange) -> Key | None:
        """Return the greatest key of `rows`; None if there is no row, or only keys with a NULL."""
        ...

    def rows(self, table: TableSchema, rows: KeyRange, statement: str | None = None) -> Iterator[list[pa.Array]]:
        """Yield the rows of the source table, a fetch at a time: one text column for each of `table.columns`.

        The options determine isolation level and locks. Rows are ordered by the key, if any. `statement` is the user's
        select that replaces the table (`snapshot.select.statement.overrides`); its columns are found by name.
        """
        ...

    def lineage(self) -> str:
        """Return a text that changes when the database is restored to an earlier state; "" if the database has none."""
        ...

    def now_us(self) -> int:
        """Return the server's time by the clock of its commit times, in µs since 1970 UTC."""
        ...

    # --- writing ---------------------------------------------------------------------------------------------------

    def write_signal(self, table: TableId, id: str, kind: str, data: str | None) -> None:  # noqa: A002
        """Insert a row into the signal table, and commit. Its three columns are found by place, since users name
        them."""
        ...

    def delete_signal(self, table: TableId, id: str) -> None:  # noqa: A002
        """Delete the row whose first column is `id`, and commit."""
        ...

    def execute(self, statement: str) -> None:
        """Run a statement of the user (`heartbeat.action.query`), and commit."""
        ...

    def close(self) -> None:
        """Close the session. Never raises."""
        ...


class Dialect(Protocol):
    """A database with change tables. Made from a configuration without I/O, and pickled into every task.

    It holds the password, so its `repr` is the class's name.
    """

    @property
    def connector(self) -> str:
        """`sqlserver` or `db2`, as in source blocks."""
        ...

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases to read, in the order of the configuration, with the names that events show.

        If only the server knows a name's true case, this is the configured name.
        """
        ...

    @property
    def width(self) -> int:
        """The bytes of a position (SQL Server 10; Db2 16 on LUW, 10 on z/OS)."""
        ...

    @property
    def pairs(self) -> bool:
        """True if a DELETE directly followed by an INSERT of the same transaction in one change table is an update
        (Db2, with CHG_UPD_TO_DEL_INS='Y')."""
        ...

    @property
    def brackets(self) -> bool:
        """True if names may stand in square brackets (SQL Server)."""
        ...

    @property
    def unsent(self) -> frozenset[str]:
        """The names of types whose null in a row of an update may mean that the log did not carry the value."""
        ...

    @property
    def unordered(self) -> frozenset[str]:
        """The names of types whose texts do not become the same values again: no range of keys has them as bounds
        (SQL Server's `sql_variant`)."""
        ...

    @property
    def keeping(self) -> str:
        """The name of the setting that says for how long changes are kept."""
        ...

    def connect(self, database: str) -> Session:
        """Return a new session. Raises ConnectionFailed, and PrerequisiteError for an unknown database. Any process."""
        ...


def ordering(table: TableSchema, key: Sequence[str], unordered: Set[str]) -> tuple[str, ...]:
    """Return `key` if its values can be bounds of ranges; () if one of its columns has a type of `unordered`."""
    return () if any(table.columns[table.index(name)].type_name in unordered for name in key) else tuple(key)


# --- fetches of drivers -----------------------------------------------------------------------------------------------

FIRST_FETCH = 16
"""Rows of the first fetch from a table whose columns may hold megabytes."""

_FETCH_BYTES = 64 << 20


def next_fetch(rows: int, size: int, most: int) -> int:
    """Return the rows of the next fetch, at most `most`, after a fetch of `rows` with `size` bytes: about 64 MB.

    A column of a fetch is one array, which Arrow limits to 2 GiB. Later rows may be much larger, so a fetch grows at
    most fourfold.
    """
    return max(1, min(most, 4 * rows, _FETCH_BYTES * rows // max(size, 1)))
