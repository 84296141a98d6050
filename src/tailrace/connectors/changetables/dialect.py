"""Dialect: what differs between databases with change tables. All SQL is on its side, none on the reader's.

A connector gives a function `dialect(config) -> Dialect` in `connectors/<db>/dialect.py`. The reader
(`connectors/changetables`) does the rest: offsets, batches, cut-overs between capture tables, pairing, snapshots,
signals, order.

**Positions** are bytes of one width (`Dialect.width`), compared as bytes: a commit's `position`, and the `change`
position of a row within it. A range `(after, upto]` is always given by two commit positions; `after` may be any bytes
(zeros, or one less than a real position), not only a position that exists.

**Values** travel as text, as the serialiser's kernels take it: `pa.binary()` columns in UTF-8, null for SQL NULL.

=============================  ======================================================================================
value                          text
=============================  ======================================================================================
integers, decimals, money      plain digits, `-12.3400` with the scale of the type; no exponent, no grouping
float, real, DECFLOAT          shortest text that reads back to the same number (`1.5`, `1e+300`, `NaN`)
boolean (bit)                  `t`, `f`
date                           `2019-05-27`
time                           `13:58:28.1234567`, with as many digits as the type has (none: no point)
timestamp                      `2019-05-27 13:58:28.1234567`
timestamp with offset          `2019-05-27 13:58:28.1234567 +02:00`
binary                         `\\x` and lower-case hex
text, xml, uniqueidentifier    the text itself (uniqueidentifier in upper case, as the server prints it)
=============================  ======================================================================================

No Python object per value beyond what a driver makes: fetch Arrow where the driver can, else `fetchmany` transposed
into columns, and convert columns with pyarrow or by a cast in SQL.

**Options**: the reader itself takes `event.order` (only `topic`: refuse `key`, since one query reads a table's range),
`max.batch.size`, `max.iteration.transactions`, `poll.interval.ms`, `heartbeat.interval.ms`, `heartbeat.action.query`,
`errors.max.retries`, `retriable.restart.connector.wait.ms`, `include.schema.changes`, `snapshot.mode` (words as
`tailrace.snapshot.mode` has them), `snapshot.include.collection.list`, `snapshot.select.statement.overrides`,
`snapshot.tables.order.by.row.count`, `snapshot.delay.ms`, `streaming.delay.ms`, `incremental.snapshot.chunk.size`,
`incremental.snapshot.watermarking.strategy`, `incremental.snapshot.window.chunks`, `signal.…`, `notification.…`: same
names, types and defaults as in `config/postgres.py`. All others, and how the session reads, are the dialect's.

**Errors**: every method raises `tailrace.errors`: ConnectionFailed for a lost or refused connection (the reader tries
those again), PrerequisiteError for what the server lacks, PositionLost for a range that the server has cleaned up,
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
"""The texts of a key's columns, in the key's order, in the forms above. Part of offsets: the dialect reads it back."""

DELETE, INSERT, BEFORE, AFTER = 1, 2, 3, 4
"""Operations of change rows (SQL Server's `__$operation`; Db2: `D` is DELETE, `I` is INSERT, a `U` row AFTER)."""


@dataclass(frozen=True, slots=True)
class CaptureTable:
    """One change table and what it captures (SQL Server: a capture instance; Db2: a row of IBMSNAP_REGISTER).

    `name` is unique in its database (the capture instance; the CD table with its schema). `change_schema` and
    `change_table` are its own name. It holds the changes of `source` with commit position `>= start` (as far as they
    are not cleaned up), and, where `stop` is known, `< stop`. `columns` are the captured columns, in the change
    table's order, `key` the columns of the index by which the table was captured, empty where there is none.
    By `object_id` and `source_id` a table differs from another one of the same name that was made later (0 where the
    database has none). `created_us` is when it was made, in µs since 1970, 0 when unknown: of two with equal `start`
    the later one is the newer.
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


@dataclass(slots=True)
class ChangeRows:
    """Some rows of a change table, in its order: commit position, command, change position, then before above after.

    `commit` and `change` are `pa.binary()` arrays of positions without nulls, `operation` uint8 codes as above, and
    `columns[j]` the text of `table.columns[j]`. `command` numbers the operations of a transaction (SQL Server's
    `__$command_id`; 0 where it is not known), None where the database has no such numbers. `touched` says of
    columns, by their places, in which rows an update has set them; it has those whose type is one of `Dialect.unsent`,
    or more (see `Session.changes`), where the database says that.
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
    """When transactions committed: `positions`, rising, without nulls (`pa.binary()`), and `at_us`, µs since 1970 UTC.

    The clock may go back between two commits; the times are given as the server noted them.
    """

    positions: pa.Array
    at_us: Int64s


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The rows of a table with `after < key <= upto` in the order of the columns `key`, and `condition`, if any.

    None leaves a side open; with no `key` columns both are None and it is the whole table. `condition` is SQL of the
    user, taken as it is, in parentheses. `keys` are those of the rows, where these alone are read: then nothing is
    locked for longer than the rows are read, whatever the options say of snapshots.
    """

    key: tuple[str, ...] = ()
    after: Key | None = None
    upto: Key | None = None
    condition: str | None = None
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A captured table as events show it.

    `table.columns` are those of `capture.columns`, in that order, with the types, nullability and defaults that the
    source table gives them (a column that the source has no more: as the change table has it, nullable).
    `table.key` is the primary key, else a unique index over NOT NULL columns, as far as it is captured; else empty.
    """

    capture: CaptureTable
    table: TableSchema


class Session(Protocol):
    """One connection to one database, used by one thread at a time. After ConnectionFailed it is only closed."""

    # --- the log ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise PrerequisiteError unless the database can be captured at all: capture enabled, login allowed."""
        ...

    def newest(self) -> Newest | None:
        """The commit position up to which everything is captured; None while there is none (a NULL LSN)."""
        ...

    def nth(self, after: Position, count: int) -> Position | None:
        """The commit position of the `count`-th captured transaction behind `after`; None when there are fewer."""
        ...

    def captures(self) -> list[CaptureTable]:
        """All change tables that the login may read, of every source table, older before newer."""
        ...

    def oldest(self, capture: CaptureTable) -> Position:
        """Changes with a commit position `>=` this one are still there (SQL Server: `sys.fn_cdc_get_min_lsn`)."""
        ...

    def starts(self) -> Mapping[tuple[str, int], Position]:
        """`CaptureTable.start` of the change tables that `captures` gives, and perhaps of others, by `name` and
        `object_id`; in one query."""
        ...

    def describe(self, captures: Sequence[CaptureTable]) -> list[Described]:
        """The tables as they are now, one entry for each of `captures`, in their order; in few queries."""
        ...

    def warnings(self, captures: Sequence[CaptureTable]) -> list[str]:
        """Sentences on what is amiss though capture goes on: the agent or capture program is stopped or far behind,
        a table has columns that were added after its capture table was made, a clean-up comes near. May be empty; the
        reader asks now and then, and logs each sentence once."""
        ...

    def total(self, capture: CaptureTable, after: Position, upto: Position) -> int:
        """How many rows the change table has in `(after, upto]`: one number, counted by the server."""
        ...

    def counts(self, capture: CaptureTable, after: Position, upto: Position) -> list[tuple[Position, int]]:
        """How many rows the change table has of each transaction in `(after, upto]`, in order."""
        ...

    def last(self, capture: CaptureTable, upto: Position, skipped: tuple[int, ...]) -> Position | None:
        """The commit position of the last row at or before `upto` that the change table still has, of another operation
        than `skipped`; None when there is none. Where updates may be pairs, nothing is skipped."""
        ...

    def changes(
        self, capture: CaptureTable, table: TableSchema, after: Position, upto: Position, *, masked: bool = False
    ) -> Iterator[ChangeRows]:
        """The change rows in `(after, upto]`, a fetch at a time, the same at every call. With `masked`, `touched` has
        every column whose old value may be missing.

        Ordered by commit position, command, change position and operation, so that the BEFORE row of an update comes
        right before its AFTER row. `table.columns` name the columns to fetch, a part of the captured ones.
        Raises PositionLost when part of the range was cleaned up, or the change table is gone.
        """
        ...

    def commit_times(self, after: Position, upto: Position) -> CommitTimes:
        """The times of the transactions in `(after, upto]` (`cdc.lsn_time_mapping`, `IBMSNAP_UOW`)."""
        ...

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self) -> list[TableId]:
        """All user tables of the database, sorted: to say which of those that the filters name are not captured."""
        ...

    def uncaptured(self, captured: Set[TableId]) -> list[TableSchema]:
        """The forms of all other user tables than `captured`, sorted, where schema changes show them (SQL Server, as
        Debezium 3); else none."""
        ...

    def is_empty(self, table: TableId) -> bool:
        """Whether the table has no row."""
        ...

    def row_count(self, table: TableId) -> int:
        """How many rows the table has; an estimate of the server will do."""
        ...

    def boundary(self, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
        """The key of the `count`-th row of `rows` in the order of the key; None when there are fewer than that."""
        ...

    def maximum(self, table: TableSchema, rows: KeyRange) -> Key | None:
        """The greatest key of `rows`; None when there is no row, or none whose key has no NULL."""
        ...

    def rows(self, table: TableSchema, rows: KeyRange, statement: str | None = None) -> Iterator[list[pa.Array]]:
        """The rows of the source table, a fetch at a time: one text column for each of `table.columns`.

        Under the isolation level and locks that the options ask for; ordered by the key where there is one.
        `statement` is a select of the user's that replaces the table (`snapshot.select.statement.overrides`); columns
        are then found by name.
        """
        ...

    def lineage(self) -> str:
        """Return what tells the database from one that was restored to an earlier state; "" where nothing does."""
        ...

    def now_us(self) -> int:
        """The server's time by the clock of its commit times, in µs since 1970 UTC."""
        ...

    # --- writing ---------------------------------------------------------------------------------------------------

    def write_signal(self, table: TableId, id: str, kind: str, data: str | None) -> None:  # noqa: A002
        """Insert a row into the signal table, by place (the names of its three columns are the user's), and commit."""
        ...

    def delete_signal(self, table: TableId, id: str) -> None:  # noqa: A002
        """Delete the row whose first column is `id`, and commit."""
        ...

    def execute(self, statement: str) -> None:
        """Run a statement of the user's (`heartbeat.action.query`), and commit."""
        ...

    def close(self) -> None:
        """Never raises."""
        ...


class Dialect(Protocol):
    """A database with change tables. Made from a configuration without I/O, and pickled into every task.

    It holds the password, so its `repr` is the class's name.
    """

    @property
    def connector(self) -> str:
        """`sqlserver` or `db2`: what source blocks say."""
        ...

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases to read, in the order of the configuration, with the names that events show. A dialect that can
        learn a name's true case only from the server keeps the configured one here."""
        ...

    @property
    def width(self) -> int:
        """How many bytes a position has (SQL Server 10; Db2 16 on LUW, 10 on z/OS)."""
        ...

    @property
    def pairs(self) -> bool:
        """Whether a DELETE directly followed by an INSERT of the same transaction in one change table is an update
        (Db2, with CHG_UPD_TO_DEL_INS='Y')."""
        ...

    @property
    def brackets(self) -> bool:
        """Whether names may stand in square brackets (SQL Server)."""
        ...

    @property
    def unsent(self) -> frozenset[str]:
        """The names of types whose null in a row of an update may mean that the log did not carry the value."""
        ...

    def connect(self, database: str) -> Session:
        """A new session. Raises ConnectionFailed, PrerequisiteError for a database that does not exist. Any process."""
        ...
