"""A database with change tables in memory: a dialect whose answers the tests can predict.

Positions are 10 bytes. `commit` runs a transaction against the source tables and gives it the next commit position.
Nothing is captured before a call of `capture`, unless `eager` is set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NoReturn

import numpy as np
import pyarrow as pa

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import (
    AFTER,
    BEFORE,
    DELETE,
    INSERT,
    CaptureTable,
    ChangeRows,
    CommitTimes,
    DescribedTable,
    Key,
    KeyRange,
    Position,
)
from tailrace.connectors.changetables.position import Newest
from tailrace.errors import ConfigError, ConnectionFailed, PositionLost, StatementCutOff

WIDTH = 10
Row = tuple[str | None, ...]
SERVERS: dict[str, Server] = {}
_NUMBERS = itertools.count()


@cache
def at(number: int) -> Position:
    return number.to_bytes(WIDTH, "big")


def number_of(position: Position) -> int:
    return int.from_bytes(position, "big")


@dataclass
class Table:
    id: TableId
    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: dict[Row, Row] = field(default_factory=dict)

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(name)] for name in self.key) if self.key else row


@dataclass
class Change:
    commit: int
    change: int
    operation: int
    row: dict[str, str | None]
    command: int = 0


@dataclass
class Server:
    """A database `db`. `calls` counts the calls of sessions by name; `fail` holds how many of each still fail.

    `steps` names all requests of sessions: calls, and fetches of rows. The connection is lost once, at step number
    `fault` (0: never): before the server does anything or, with `late`, after it has written but before it answers. The
    next `behind` queries for the newest position are answered by an empty replica. `kinds` has the types of columns
    by name; others are nvarchar. Of the key of a source of `partial` only the first column counts as captured.
    """

    name: str
    pairs: bool = False
    eager: bool = True
    fetch: int = 3
    tables: dict[str, Table] = field(default_factory=dict)
    captures: list[CaptureTable] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    commits: list[tuple[int, int]] = field(default_factory=list)
    pending: list[tuple[int, list[tuple[str, int, Row]]]] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    fail: dict[str, int] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)
    last: int = 0
    failing_fetch: int = -1
    failing_rows: tuple[int, ...] = ()
    steps: list[str] = field(default_factory=list)
    fault: int = 0
    late: bool = False
    behind: int = 0
    lineage: str = ""
    kinds: dict[str, str] = field(default_factory=dict)
    partial: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        # Workers keep sessions, so names must be unique.
        self.name = f"{self.name}-{next(_NUMBERS)}"
        SERVERS[self.name] = self

    def table(self, name: str, columns: Sequence[str], key: Sequence[str], *, captured: bool = True) -> Table:
        schema, _, bare = name.partition(".")
        made = self.tables[name] = Table(TableId("db", schema, bare), tuple(columns), tuple(key))
        if captured:
            self.enable(name)
        return made

    def enable(self, name: str, suffix: str = "", columns: Sequence[str] | None = None) -> CaptureTable:
        """Create a capture table for changes from the next commit on."""
        table = self.tables[name]
        self.last += 1
        one = CaptureTable(
            table.id,
            name.replace(".", "_") + suffix,
            "cdc",
            name.replace(".", "_") + suffix + "_CT",
            at(self.last),
            None,
            tuple(columns or table.columns),
            table.key,
            1000 + self.last,
            1,
            self.last,
        )
        self.captures.append(one)
        self.changes[one.name] = []
        self.commits.append((self.last, self.last * 1_000_000))
        return one

    def disable(self, name: str) -> None:
        self.captures = [one for one in self.captures if one.name != name]

    def clean(self, upto: int) -> None:
        """Remove everything before the commit `upto`."""
        self.captures = [replace(one, start=max(one.start, at(upto))) for one in self.captures]
        for name, changes in self.changes.items():
            self.changes[name] = [change for change in changes if change.commit >= upto]

    def commit(self, *work: tuple[str, str, Row | None, Row | None]) -> int:
        """Commit a transaction of `(table, op, old row, new row)`, where op is c, u or d. Return
        its commit position."""
        self.last += 1
        entries: list[tuple[str, int, Row]] = []
        for name, op, old, new in work:
            table = self.tables[name]
            if old is not None:
                del table.rows[table.key_of(old)]
            if new is not None:
                table.rows[table.key_of(new)] = new
            if op == "c" and new is not None:
                entries.append((name, INSERT, new))
            elif op == "d" and old is not None:
                entries.append((name, DELETE, old))
            elif old is not None and new is not None:
                same = table.key_of(old) == table.key_of(new)
                first, second = (BEFORE, AFTER) if same and not self.pairs else (DELETE, INSERT)
                entries += [(name, first, old), (name, second, new)]
        self.pending.append((self.last, entries))
        if self.eager:
            self.capture()
        return self.last

    def capture(self) -> None:
        """Let the capture process catch up."""
        for commit, entries in self.pending:
            number = 0
            for place, (name, operation, row) in enumerate(entries):
                second = operation == AFTER or (place and entries[place - 1][1] == DELETE and operation == INSERT)
                number += 0 if second and entries[place - 1][0] == name else 1
                values = dict(zip(self.tables[name].columns, row, strict=False))
                for one in self.captures:
                    if one.source == self.tables[name].id and int.from_bytes(one.start, "big") <= commit:
                        self.changes[one.name].append(Change(commit, commit * 100 + number, operation, values))
            self.commits.append((commit, commit * 1_000_000))
        self.pending.clear()


@dataclass(frozen=True)
class MemoryDialect:
    server: str
    connector: str = "sqlserver"
    databases: tuple[str, ...] = ("db",)
    width: int = WIDTH
    brackets: bool = True
    keeping: str = "the retention"

    @property
    def pairs(self) -> bool:
        return SERVERS[self.server].pairs

    unordered: frozenset[str] = frozenset(("sql_variant",))

    @property
    def unsent(self) -> frozenset[str]:
        return frozenset()

    def connect(self, database: str) -> MemorySession:
        assert database in self.databases
        session = MemorySession(SERVERS[self.server])
        session.called("connect")
        return session


class MemorySession:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.closed = False
        self.lost = False

    def called(self, name: str, *, writes: bool = False) -> None:
        assert not self.closed
        assert not self.lost, "a session whose connection was lost is only closed"
        self.server.calls[name] = self.server.calls.get(name, 0) + 1
        self.server.steps.append(name)
        if self.server.fail.get(name, 0):
            self.server.fail[name] -= 1
            self.lose(name)
        if len(self.server.steps) == self.server.fault and not (writes and self.server.late):
            self.lose(name)

    def written(self, name: str) -> None:
        """Note that the server has done what `called` has announced."""
        if len(self.server.steps) == self.server.fault:
            self.lose(name)

    def lose(self, name: str) -> NoReturn:
        self.lost = True
        raise ConnectionFailed(f"The connection was lost at {name}.")

    def check(self) -> None:
        self.called("check")

    def newest(self) -> Newest | None:
        self.called("newest")
        if self.server.behind:
            self.server.behind -= 1
            return Newest(at(0))
        return Newest(at(max(commit for commit, _ in self.server.commits))) if self.server.commits else None

    def nth(self, after: Position, count: int) -> Position | None:
        self.called("nth")
        low = number_of(after)
        found = sorted({commit for commit, _ in self.server.commits if commit > low})
        return at(found[count - 1]) if len(found) >= count else None

    def captures(self) -> list[CaptureTable]:
        self.called("captures")
        return list(self.server.captures)

    def starts(self) -> dict[tuple[str, int], Position]:
        self.called("starts")
        return {(one.name, one.object_id): one.start for one in self.server.captures}

    def oldest(self, capture: CaptureTable) -> Position:
        self.called("oldest")
        for one in self.server.captures:
            if one.name == capture.name:
                # By the name only, as in sys.fn_cdc_get_min_lsn; a capture without a known beginning returns nothing.
                return one.start if any(capture.start) else capture.start
        raise PositionLost(f"{capture.name} is gone.")

    def describe(self, captures: Sequence[CaptureTable]) -> list[DescribedTable]:
        self.called("describe")
        found = [
            DescribedTable(replace(one, is_partial=True), schema(one.source, one.columns, one.key[:1]))
            if one.name in self.server.partial
            else DescribedTable(one, schema(one.source, one.columns, one.key))
            for one in captures
        ]
        kinds = self.server.kinds
        if not kinds:
            return found
        return [
            replace(
                one,
                table=replace(
                    one.table,
                    columns=tuple(
                        replace(column, type_name=kinds.get(column.name, column.type_name))
                        for column in one.table.columns
                    ),
                ),
            )
            for one in found
        ]

    def warnings(self, captures: Sequence[CaptureTable]) -> list[str]:
        self.called("warnings")
        return []

    def _between(self, capture: CaptureTable, after: Position, upto: Position) -> list[Change]:
        if capture.name not in {one.name for one in self.server.captures}:
            raise PositionLost(f"{capture.name} is gone.")
        low, high = number_of(after), number_of(upto)
        return [change for change in self.server.changes[capture.name] if low < change.commit <= high]

    def total(self, capture: CaptureTable, after: Position, upto: Position) -> int:
        self.called("total")
        return len(self._between(capture, after, upto))

    def counts(self, capture: CaptureTable, after: Position, upto: Position) -> list[tuple[Position, int]]:
        self.called("counts")
        found: dict[Position, int] = {}
        for change in self._between(capture, after, upto):
            found[at(change.commit)] = found.get(at(change.commit), 0) + 1
        return sorted(found.items())

    def last(self, capture: CaptureTable, upto: Position, skipped: tuple[int, ...]) -> Position | None:
        self.called("last")
        found = [one.commit for one in self._between(capture, bytes(WIDTH), upto) if one.operation not in skipped]
        return at(max(found)) if found else None

    def changes(
        self, capture: CaptureTable, table: TableSchema, after: Position, upto: Position, *, masked: bool = False
    ) -> Iterator[ChangeRows]:
        self.called("changes")
        found = self._between(capture, after, upto)
        found.sort(key=lambda change: (change.commit, change.command, change.change))
        for number, start in enumerate(range(0, len(found), self.server.fetch)):
            self.called("fetch")
            if number == self.server.failing_fetch:
                self.server.failing_fetch = -1
                self.lose("fetch")
            part = found[start : start + self.server.fetch]
            yield ChangeRows(
                pa.array([at(change.commit) for change in part], pa.binary()),
                pa.array([at(change.change) for change in part], pa.binary()),
                np.array([change.operation for change in part], np.uint8),
                [texts([change.row.get(column.name) for change in part]) for column in table.columns],
                np.array([change.command for change in part], np.int64),
            )

    def lineage(self) -> str:
        return self.server.lineage

    def log_span(self) -> tuple[float | None, float | None]:
        return None, None

    def now_us(self) -> int:
        self.called("now_us")
        return max((at_us for _, at_us in self.server.commits), default=0)

    def commit_times(self, after: Position, upto: Position) -> CommitTimes:
        self.called("commit_times")
        low, high = number_of(after), number_of(upto)
        found = sorted({one for one in self.server.commits if low < one[0] <= high})
        return CommitTimes(
            pa.array([at(commit) for commit, _ in found], pa.binary()), np.array([us for _, us in found], np.int64)
        )

    def tables(self) -> list[TableId]:
        self.called("tables")
        return sorted(table.id for table in self.server.tables.values())

    def uncaptured(self, captured: Set[TableId]) -> list[TableSchema]:
        self.called("uncaptured")
        others = [table for table in self.server.tables.values() if table.id not in captured]
        return [schema(table.id, table.columns, table.key) for table in sorted(others, key=lambda table: table.id)]

    def is_empty(self, table: TableId) -> bool:
        self.called("is_empty")
        return not self.server.tables[str(table)].rows

    def row_count(self, table: TableId) -> int:
        self.called("row_count")
        return len(self.server.tables[str(table)].rows)

    def _rows(self, table: TableSchema, rows: KeyRange) -> list[dict[str, str | None]]:
        if rows.condition == "broken":
            raise ConfigError("The condition is broken.")
        if rows.condition == "endless":
            raise StatementCutOff("The condition takes too long.")
        source = self.server.tables[str(table.id)]
        found = [dict(zip(source.columns, row, strict=False)) for row in source.rows.values()]
        bounded = rows.after is not None or rows.upto is not None or rows.keys
        assert not bounded or not any(self.server.kinds.get(name) == "sql_variant" for name in rows.key)
        if rows.key:
            found.sort(key=lambda row: key_of(row, rows.key))
            found = [
                row
                for row in found
                if (rows.after is None or key_of(row, rows.key) > rows.after)
                and (rows.upto is None or key_of(row, rows.key) <= rows.upto)
                and (not rows.keys or key_of(row, rows.key) in rows.keys)
            ]
        return found

    def boundary(self, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
        self.called("boundary")
        found = self._rows(table, rows)
        return key_of(found[count - 1], rows.key) if len(found) >= count else None

    def maximum(self, table: TableSchema, rows: KeyRange) -> Key | None:
        self.called("maximum")
        found = [row for row in self._rows(table, rows) if all(row[name] is not None for name in rows.key)]
        return key_of(found[-1], rows.key) if found else None

    def rows(self, table: TableSchema, rows: KeyRange, statement: str | None = None) -> Iterator[list[pa.Array]]:
        self.called("rows")
        found = self._rows(table, rows)
        for start in range(0, len(found), self.server.fetch):
            self.called("fetch")
            if start // self.server.fetch in self.server.failing_rows[:1]:
                self.server.failing_rows = self.server.failing_rows[1:]
                self.lose("fetch")
            part = found[start : start + self.server.fetch]
            yield [texts([row.get(column.name) for row in part]) for column in table.columns]

    def write_signal(self, table: TableId, id: str, kind: str, data: str | None) -> None:  # noqa: A002
        self.called("write_signal", writes=True)
        self.server.commit((str(table), "c", None, (id, kind, data)))
        self.written("write_signal")

    def delete_signal(self, table: TableId, id: str) -> None:  # noqa: A002
        self.called("delete_signal", writes=True)
        source = self.server.tables[str(table)]
        if (id,) in source.rows:
            self.server.commit((str(table), "d", source.rows[(id,)], None))
        self.written("delete_signal")

    def execute(self, statement: str) -> None:
        self.called("execute", writes=True)
        self.server.executed.append(statement)
        self.written("execute")

    def close(self) -> None:
        self.closed = True


def key_of(row: dict[str, str | None], key: Sequence[str]) -> Key:
    return tuple(row[name] or "" for name in key)


def texts(values: Sequence[str | None]) -> pa.Array:
    return pa.array([None if value is None else value.encode() for value in values], pa.binary())


def schema(table: TableId, columns: Sequence[str], key: Sequence[str]) -> TableSchema:
    return TableSchema(
        table,
        tuple(Column(name, "nvarchar", 231, 50, nullable=name not in key) for name in columns),
        tuple(name for name in key if name in columns),
    )
