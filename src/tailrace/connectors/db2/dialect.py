"""Db2Dialect: the SQL statements that read the tables of Db2's capture program (ASN).

The control tables are those of IBM's "SQL Replication Guide and Reference", chapter "Control tables at the Capture
control server". All statements work in Db2 for Linux, UNIX and Windows, Db2 for z/OS and Apache Derby ("SQL Reference"
of each): no LEAD or LAG, no common table expression, no catalog view. Tables are described by the procedures
SYSIBM.SQLCOLUMNS, SQLPRIMARYKEYS, SQLSTATISTICS and SQLTABLES, which every server has for its drivers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config
from tailrace.config.filters import table_name
from tailrace.connectors.changetables.dialect import (
    CaptureTable,
    ChangeRows,
    CommitTimes,
    DescribedTable,
    Key,
    KeyRange,
    Position,
)
from tailrace.connectors.changetables.position import Newest, following, nothing
from tailrace.connectors.db2.server import health, ranges
from tailrace.connectors.db2.server.catalog import Catalog, quoted, shown_key
from tailrace.connectors.db2.server.catalog import CatalogColumn as Found
from tailrace.connectors.db2.server.connection import Connection
from tailrace.connectors.db2.server.register import Registered, captured_columns, control_table, registered
from tailrace.connectors.db2.server.rows import change_rows, columns_of, microseconds, selected, texts
from tailrace.connectors.db2.values.declaration import has_lobs
from tailrace.errors import ConfigError, ConnectionFailed, PositionLost, PrerequisiteError, TailraceError

_QUARTER_US = 15 * 60 * 1_000_000

_ISOLATIONS = {"repeatable_read": "RS", "read_committed": "CS", "read_uncommitted": "UR", "exclusive": "CS"}


@dataclass(frozen=True, slots=True, repr=False)
class Db2Dialect:
    """Db2 as a database with change tables. Made without I/O, picklable; implements Dialect."""

    config: Config
    connector: str = "db2"
    pairs: bool = True
    brackets: bool = False
    unsent: frozenset[str] = frozenset()
    unordered: frozenset[str] = frozenset()
    keeping: str = "RETENTION_LIMIT of the Capture program"

    @property
    def databases(self) -> tuple[str, ...]:
        return (self.config["database.dbname"],)

    @property
    def width(self) -> int:
        return int(self.config["db2.position.bytes"])

    def connect(self, database: str) -> Db2Session:
        """Return a new session. Raises ConnectionFailed, and PrerequisiteError for an unknown database. Any process."""
        return Db2Session(Connection(self.config), self.config)

    def __repr__(self) -> str:
        return "Db2Dialect"


def dialect(config: Config) -> Db2Dialect:
    """Return the dialect of a configuration."""
    return Db2Dialect(config)


@dataclass(slots=True)
class _Images:
    """The form of updates in one change table: `pairs`, or the `prefix` of the columns of before images."""

    pairs: bool
    prefix: str


@dataclass(slots=True)
class Db2Session:
    """A connection to Db2, used by one thread at a time; implements Session."""

    connection: Connection
    config: Config
    _images: dict[str, _Images] = field(default_factory=dict)
    _offset_us: int | None = None

    @property
    def width(self) -> int:
        return int(self.config["db2.position.bytes"])

    def control(self, table: str) -> str:
        """Return a control table's full name."""
        return control_table(self.config, table)

    def catalog(self) -> Catalog:
        """Return the catalog of the database's tables."""
        return Catalog(self.connection, self.config["database.dbname"])

    # --- the log ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise PrerequisiteError unless the register can be read and its positions have the configured width."""
        self.newest()

    def newest(self) -> Newest | None:
        """Return the position up to which the capture program has read the log: the greatest synch point of the
        register.

        The global row's SYNCHPOINT advances with every commit of the program, a table's CD_NEW_SYNCHPOINT when rows are
        written to its change table. Both are written in the transaction that writes the rows. An uncommitted read would
        be wrong here: it could see a position before its rows.
        """
        register = self.control("IBMSNAP_REGISTER")
        ((top,),) = self.connection.rows(
            f"SELECT MAX(p.POSITION) FROM (SELECT SYNCHPOINT AS POSITION FROM {register} "
            f"UNION ALL SELECT CD_NEW_SYNCHPOINT AS POSITION FROM {register}) AS p WITH CS"
        )
        return None if top is None else Newest(self._position(top))

    def _position(self, found: Any) -> Position:
        """Return a position of the server. Raises PrerequisiteError if it does not have the configured width."""
        position = bytes(found)
        if len(position) != self.width:
            raise PrerequisiteError(
                f"The capture program writes positions of {len(position)} bytes, not {self.width}.",
                f"Set db2.position.bytes = {len(position)}; or check db2.platform.",
            )
        return position

    def nth(self, after: Position, count: int) -> Position | None:
        """Return the commit position of the `count`-th unit of work after `after`; None if there are fewer."""
        ((position, found),) = self.connection.rows(
            "SELECT MAX(u.IBMSNAP_COMMITSEQ), COUNT(*) FROM (SELECT IBMSNAP_COMMITSEQ FROM "
            f"{self.control('IBMSNAP_UOW')} WHERE IBMSNAP_COMMITSEQ > ? ORDER BY IBMSNAP_COMMITSEQ "
            f"FETCH FIRST {int(count)} ROWS ONLY) AS u",
            after,
        )
        return bytes(position) if found == count else None

    def captures(self) -> list[CaptureTable]:
        """Return the registered tables that have a change table. A table cannot be registered twice."""
        rows = self.register()
        catalog = self.catalog()
        changes = catalog.columns([(row.change_schema, row.change_table) for row in rows])
        sources = catalog.columns([(row.schema, row.table) for row in rows])
        found = []
        for row in rows:
            columns = changes.get((row.change_schema, row.change_table), [])
            captured = captured_columns(columns, sources.get((row.schema, row.table), []), row.prefix)
            found.append(
                CaptureTable(
                    TableId(self.config["database.dbname"], row.schema, row.table),
                    row.name,
                    row.change_schema,
                    row.change_table,
                    self._begin(row.old),
                    None,
                    tuple(captured),
                    (),
                )
            )
        return found

    def starts(self) -> dict[tuple[str, int], Position]:
        """Return the start of each registered change table; there are no object ids."""
        return {(row.name, 0): self._begin(row.old) for row in self.register()}

    def register(self) -> list[Registered]:
        """Return the rows of IBMSNAP_REGISTER for tables with a change table, in the order of the tables."""
        return registered(self.connection, self.config)

    def _begin(self, old: bytes | None) -> Position:
        """Return the first position of a change table: CD_OLD_SYNCHPOINT is the last pruned position."""
        return nothing(self.width) if old is None else following(self._position(old))

    def oldest(self, capture: CaptureTable) -> Position:
        """Return the first position from which changes still exist: pruning advances CD_OLD_SYNCHPOINT.

        For a table that was first read before the program had set its start, pruning is never reported: the first start
        would look like pruning.
        """
        rows = self.connection.rows(
            f"SELECT CD_OLD_SYNCHPOINT FROM {self.control('IBMSNAP_REGISTER')} WHERE SOURCE_OWNER = ? "
            "AND SOURCE_TABLE = ? AND CD_TABLE IS NOT NULL ORDER BY SOURCE_VIEW_QUAL",
            capture.source.schema,
            capture.source.table,
        )
        if not rows:
            raise self._unregistered(capture)
        if not any(capture.start):
            return capture.start
        return self._begin(rows[0][0])

    def _unregistered(self, capture: CaptureTable) -> PositionLost:
        return PositionLost(
            f"{capture.source} is not registered any more, so its changes since the last batch are lost.",
            "Register it again (ASNCDC.ADDTABLE and reinit), and start with a new checkpoint or with "
            "snapshot.mode=when_needed; or leave it out of table.include.list.",
        )

    def describe(self, captures: Sequence[CaptureTable]) -> list[DescribedTable]:
        """Return the captured columns and the key of source tables; a dropped column is described as in the change
        table."""
        catalog = self.catalog()
        sources = catalog.columns([(one.source.schema, one.source.table) for one in captures])
        changes: dict[tuple[str, str], list[Found]] = {}
        lacking = [one for one in captures if _lacks(one, sources.get((one.source.schema, one.source.table), []))]
        if lacking:
            changes = catalog.columns([(one.change_schema, one.change_table) for one in lacking])
        found = []
        for one in captures:
            if not one.columns:
                # it was dropped after the register was read, or cdc.change.tables.schema is wrong
                raise self._gone(one.name, one.source)
            source = {c.name: c for c in sources.get((one.source.schema, one.source.table), [])}
            change = {c.name: c for c in changes.get((one.change_schema, one.change_table), [])}
            columns = []
            for name in one.columns:
                known = source.get(name) or change.get(name)
                if known is None:
                    raise self._unregistered(one)
                columns.append(known.column if name in source else known.nullable_column())
            key = catalog.key(one.source.schema, one.source.table) if source else ()
            shown = shown_key(key, [column.name for column in columns])
            found.append(DescribedTable(one, TableSchema(one.source, tuple(columns), shown)))
        return found

    def warnings(self, captures: Sequence[CaptureTable]) -> list[str]:
        """Return sentences on problems that do not stop capture; `prerequisites` has the same as findings."""
        wanted = {_source(one) for one in captures}
        registered = [row for row in self.register() if (row.schema, row.table) in wanted]
        return health.amiss(self.age_s(), registered, self.catalog())

    def counts(self, capture: CaptureTable, after: Position, upto: Position) -> list[tuple[Position, int]]:
        """Return the number of rows of each unit of work in `(after, upto]` of the change table, in order."""
        table = quoted(capture.change_schema, capture.change_table)
        within = f"FROM {table} WHERE IBMSNAP_COMMITSEQ > ? AND IBMSNAP_COMMITSEQ <= ?"
        grouped = "GROUP BY IBMSNAP_COMMITSEQ ORDER BY IBMSNAP_COMMITSEQ"
        with self._present(capture):
            rows = self.connection.rows(f"SELECT IBMSNAP_COMMITSEQ, COUNT(*) {within} {grouped}", after, upto)
            updates: dict[bytes, int] = {}
            if self._doubled(capture):
                only = f"{within} AND IBMSNAP_OPERATION = 'U' {grouped}"
                updates = dict(self.connection.rows(f"SELECT IBMSNAP_COMMITSEQ, COUNT(*) {only}", after, upto))
        return [(bytes(position), count + updates.get(position, 0)) for position, count in rows]

    def total(self, capture: CaptureTable, after: Position, upto: Position) -> int:
        """Return the number of rows in `(after, upto]` of the change table. An update with before images counts
        twice."""
        table = quoted(capture.change_schema, capture.change_table)
        within = f"FROM {table} WHERE IBMSNAP_COMMITSEQ > ? AND IBMSNAP_COMMITSEQ <= ?"
        with self._present(capture):
            ((count,),) = self.connection.rows(f"SELECT COUNT(*) {within}", after, upto)
            if self._doubled(capture):
                updates = f"SELECT COUNT(*) {within} AND IBMSNAP_OPERATION = 'U'"
                count += self.connection.rows(updates, after, upto)[0][0]
        return int(count)

    def last(self, capture: CaptureTable, upto: Position, skipped: tuple[int, ...]) -> Position | None:
        """Return the commit position of the last row at or before `upto`. Nothing is skipped: a row may be half of a
        pair."""
        table = quoted(capture.change_schema, capture.change_table)
        with self._present(capture):
            ((found,),) = self.connection.rows(
                f"SELECT MAX(IBMSNAP_COMMITSEQ) FROM {table} WHERE IBMSNAP_COMMITSEQ <= ?", upto
            )
        return None if found is None else bytes(found)

    def _doubled(self, capture: CaptureTable) -> bool:
        """Return True if an update is one row with both images, which becomes two rows."""
        images = self._images_of(capture)
        return not images.pairs and bool(images.prefix)

    def _images_of(self, capture: CaptureTable) -> _Images:
        if capture.name not in self._images:
            of = [row for row in self.register() if (row.schema, row.table) == _source(capture)]
            if not of:
                raise self._unregistered(capture)
            self._images[capture.name] = _Images(of[0].pairs, of[0].prefix)
        return self._images[capture.name]

    def changes(
        self, capture: CaptureTable, table: TableSchema, after: Position, upto: Position, *, masked: bool = False
    ) -> Iterator[ChangeRows]:
        """Yield the change rows in `(after, upto]`, in the order of commits and of changes within them.

        IBMSNAP_COMMITSEQ and IBMSNAP_INTENTSEQ together are unique in a change table, by an index over both.
        """
        doubled = self._doubled(capture)
        prefix = self._images_of(capture).prefix
        befores = [selected(c, quoted(prefix + c.name)) for c in table.columns] if doubled else []
        afters = [selected(c, quoted(c.name)) for c in table.columns]
        names = ", ".join(["IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION", *befores, *afters])
        fetches = self.connection.fetches(
            f"SELECT {names} FROM {quoted(capture.change_schema, capture.change_table)} WHERE IBMSNAP_COMMITSEQ > ? "
            "AND IBMSNAP_COMMITSEQ <= ? ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ FOR READ ONLY WITH CS",
            after,
            upto,
            large=has_lobs(table),
        )
        with self._present(capture):
            for rows in fetches:
                yield change_rows(rows, table.columns, doubled)

    @contextmanager
    def _present(self, capture: CaptureTable) -> Iterator[None]:
        """Raise PositionLost if a statement fails because the change table is gone."""
        try:
            yield
        except PrerequisiteError:
            if self._exists(capture.change_schema, capture.change_table):
                raise
            raise self._gone(capture.name, capture.source) from None

    @staticmethod
    def _gone(name: str, source: TableId) -> PositionLost:
        return PositionLost(
            f"The change table {name} of {source} is gone, and its changes with it.",
            "Register the table again (ASNCDC.ADDTABLE and reinit), and start with a new checkpoint or with "
            "snapshot.mode=when_needed. cdc.change.tables.schema, where it is given, must be the schema of the table.",
        )

    def _exists(self, schema: str, table: str) -> bool:
        catalog = self.catalog()
        return bool(catalog.columns([(schema, table)]))

    def commit_times(self, after: Position, upto: Position) -> CommitTimes:
        """Return the times of the units of work in `(after, upto]`: IBMSNAP_LOGMARKER, by the clock of the server."""
        rows = self.connection.rows(
            f"SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM {self.control('IBMSNAP_UOW')} WHERE "
            "IBMSNAP_COMMITSEQ > ? AND IBMSNAP_COMMITSEQ <= ? ORDER BY IBMSNAP_COMMITSEQ",
            after,
            upto,
        )
        offset = self.clock_offset_us() if rows else 0
        return CommitTimes(
            pa.array([bytes(row[0]) for row in rows], pa.binary()),
            np.array([microseconds(row[1], offset) for row in rows], np.int64),
        )

    def clock_offset_us(self) -> int:
        """Return the difference between the server's local time and UTC, in µs, rounded to a quarter of an hour.

        It is computed from the clocks of server and driver, without CURRENT TIMEZONE. The clocks must agree within half
        a quarter. The time of a commit before the last change to or from summer time is an hour off.
        """
        if self._offset_us is None:
            ((now,),) = self.connection.rows("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")
            ahead = microseconds(now, 0) - time.time_ns() // 1000
            self._offset_us = round(ahead / _QUARTER_US) * _QUARTER_US
        return self._offset_us

    def lineage(self) -> str:
        return ""

    def now_us(self) -> int:
        """Return the server's time by the clock of its commit times, in µs since 1970 UTC."""
        ((now,),) = self.connection.rows("SELECT CURRENT TIMESTAMP FROM SYSIBM.SYSDUMMY1")
        return microseconds(now, self.clock_offset_us())

    def age_s(self) -> float | None:
        """Return the seconds since the capture program last read the log: SYNCHTIME of the global row; None if
        unknown."""
        rows = self.connection.rows(
            "SELECT SYNCHTIME, CURRENT TIMESTAMP FROM "
            f"{self.control('IBMSNAP_REGISTER')} WHERE GLOBAL_RECORD = 'Y' AND SYNCHTIME IS NOT NULL"
        )
        return float((rows[0][1] - rows[0][0]).total_seconds()) if rows else None

    def unread_min(self, after: Position) -> float | None:
        """Return the age of the oldest unit of work after `after`, in minutes; None if there is none."""
        ((first, now),) = self.connection.rows(
            "SELECT MIN(IBMSNAP_LOGMARKER), MAX(CURRENT TIMESTAMP) FROM "
            f"{self.control('IBMSNAP_UOW')} WHERE IBMSNAP_COMMITSEQ > ?",
            after,
        )
        return None if first is None else float((now - first).total_seconds()) / 60

    def log_span(self) -> tuple[float | None, float | None]:
        ((first, now),) = self.connection.rows(
            f"SELECT MIN(IBMSNAP_LOGMARKER), MAX(CURRENT TIMESTAMP) FROM {self.control('IBMSNAP_UOW')}"
        )
        try:
            limit, prunes = self.retention() or (None, None)
        except ConnectionFailed:
            raise
        except TailraceError:
            # the user may not read the program's parameters
            limit, prunes = None, "N"
        # the program's defaults: 10080 minutes, and pruning
        kept = None if (prunes or "Y") != "Y" else 60.0 * (10080 if limit is None else int(limit))
        return None if first is None else float((now - first).total_seconds()), kept

    def retention(self) -> tuple[int | None, str | None] | None:
        """Return RETENTION_LIMIT in minutes and AUTOPRUNE from the only row of the program's parameters; None without
        the row."""
        rows = self.connection.rows(f"SELECT RETENTION_LIMIT, AUTOPRUNE FROM {self.control('IBMSNAP_CAPPARMS')}")
        return (rows[0][0], rows[0][1]) if rows else None

    def left_out(self) -> tuple[int, int]:
        """Return the numbers of changes that the capture program has left out: changes by an Apply program in tables
        with RECAPTURE = N, and changes that a trigger on a CD table has refused. They reach back as far as the
        program's statistics."""
        sums = "SUM(RECAP_ROWS_SKIPPED), SUM(TRIGR_ROWS_SKIPPED)"
        ((applied, refused),) = self.connection.rows(f"SELECT {sums} FROM {self.control('IBMSNAP_CAPMON')}")
        return int(applied or 0), int(refused or 0)

    def ignored(self) -> int:
        """Return the number of rules that let the capture program ignore transactions."""
        ((count,),) = self.connection.rows(f"SELECT COUNT(*) FROM {self.control('IBMSNAP_IGNTRAN')}")
        return int(count)

    def probe(self, schema: str, table: str) -> None:
        """Raise PrerequisiteError unless the table can be read."""
        self.connection.rows(f"SELECT COUNT(*) FROM {quoted(schema, table)} WHERE 1 = 0")

    # --- tables ----------------------------------------------------------------------------------------------------

    def tables(self) -> list[TableId]:
        """Return all user tables of the database, without those of the capture program, sorted."""
        catalog = self.catalog()
        own = {self.config["cdc.control.schema"], self.config["cdc.change.tables.schema"] or ""}
        return [table for table in catalog.tables() if table.schema not in own]

    def uncaptured(self, captured: Set[TableId]) -> list[TableSchema]:
        """Return none: schema changes are only of captured tables."""
        return []

    def is_empty(self, table: TableId) -> bool:
        """Return True if the table has no committed row.

        A snapshot leaves an empty table out, so an uncommitted read would be wrong here: deleted rows may come back by
        a rollback, for which there is no change.
        """
        return not self.connection.rows(
            f"SELECT 1 FROM {quoted(table.schema, table.table)} FETCH FIRST 1 ROWS ONLY WITH CS"
        )

    def row_count(self, table: TableId) -> int:
        """Return the number of the table's rows, including those of unfinished transactions."""
        ((count,),) = self.connection.rows(f"SELECT COUNT(*) FROM {quoted(table.schema, table.table)} WITH UR")
        return int(count)

    def boundary(self, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
        """Return the key of the `count`-th row of `rows` in the order of the key; None if there are fewer."""
        return ranges.boundary(self.connection, table, rows, count)

    def maximum(self, table: TableSchema, rows: KeyRange) -> Key | None:
        """Return the greatest key of `rows` without NULLs; None if there is none."""
        return ranges.maximum(self.connection, table, rows)

    def rows(self, table: TableSchema, rows: KeyRange, statement: str | None = None) -> Iterator[list[pa.Array]]:
        """Yield the rows of the source table, ordered by the key, in a transaction of their own."""
        names = ", ".join(selected(column, quoted(column.name)) for column in table.columns)
        where, values = ranges.condition(table, rows)
        order = f" ORDER BY {', '.join(quoted(name) for name in rows.key)}" if rows.key else ""
        source = f"({statement.strip().rstrip(';')}) AS r" if statement else quoted(table.id.schema, table.id.table)
        mode = "read_committed" if rows.keys else self.config["snapshot.isolation.mode"]
        self.connection.begin()
        try:
            if mode == "exclusive":
                self.connection.execute(f"LOCK TABLE {quoted(table.id.schema, table.id.table)} IN EXCLUSIVE MODE")
            yield from (
                [texts(column, values_of) for column, values_of in zip(table.columns, columns_of(fetch), strict=True)]
                for fetch in self.connection.fetches(
                    f"SELECT {names} FROM {source}{where}{order} FOR READ ONLY WITH {_ISOLATIONS[mode]}",
                    *values,
                    large=has_lobs(table),
                )
            )
        except PrerequisiteError as error:
            if statement is None:
                raise
            raise ConfigError(
                f"snapshot.select.statement.overrides: the statement for {table.id} fails: {error.message}",
                "It must be one select that returns every captured column under its name.",
            ) from None
        finally:
            # a rollback ends a read-only transaction like a commit
            self.connection.rollback()

    # --- writing ---------------------------------------------------------------------------------------------------

    def write_signal(self, table: TableId, id: str, kind: str, data: str | None) -> None:  # noqa: A002
        """Insert a row into the signal table, by place, and commit."""
        self.connection.execute(f"INSERT INTO {quoted(table.schema, table.table)} VALUES (?, ?, ?)", id, kind, data)

    def delete_signal(self, table: TableId, id: str) -> None:  # noqa: A002
        """Delete the row whose first column is `id`, and commit."""
        catalog = self.catalog()
        columns = catalog.columns([(table.schema, table.table)]).get((table.schema, table.table))
        if not columns:
            raise PrerequisiteError(f"The signal table {table} is gone.", "Create it again.")
        self.connection.execute(
            f"DELETE FROM {quoted(table.schema, table.table)} WHERE {quoted(columns[0].name)} = ?", id
        )

    def execute(self, statement: str) -> None:
        """Run a statement of the user, and commit."""
        self.connection.execute(statement)

    def close(self) -> None:
        """Close the session. Never raises."""
        self.connection.close()

    def signal_table(self) -> TableId | None:
        """Return the table of `signal.data.collection`; None if it is not set."""
        named = self.config["signal.data.collection"]
        return TableId(self.config["database.dbname"], *table_name(named)) if named else None


def _source(capture: CaptureTable) -> tuple[str, str]:
    return capture.source.schema, capture.source.table


def _lacks(capture: CaptureTable, found: Sequence[Found]) -> bool:
    """Return True if a captured column is no longer in the source table."""
    return not set(capture.columns) <= {column.name for column in found}
