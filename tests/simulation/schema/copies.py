"""Copies in memory, maintained by the sink's own `Target` and `Latest` over a `StoredTable` without Spark.

Spark's work on the rows of a batch is done here one row at a time: append the row, or replace the row with its key.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import types

from tailrace.columns.blocks import BLOCK, BlockForm, Head
from tailrace.errors import SinkError
from tailrace.sinks.base import Sink
from tailrace.sinks.tables.batch import TableBatch
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.base import Columns, StoredTable, TableCommit, TableFormat, WriteId
from tailrace.sinks.tables.modes import Latest
from tailrace.sinks.tables.positions import Request
from tailrace.sinks.tables.rows import BlockOpening, RowReduction
from tailrace.sinks.tables.sink import TablesSink
from tailrace.sinks.tables.statements import Merge
from tailrace.sinks.tables.target import Owner

Row = dict[str, Any]

_TYPES: Mapping[str, types.DataType] = {
    kind.simpleString(): kind
    for kind in (
        types.BooleanType(), types.ShortType(), types.IntegerType(), types.LongType(), types.FloatType(),
        types.DoubleType(), types.StringType(), types.BinaryType(), types.DateType(), types.TimestampType(),
        types.TimestampNTZType(),
    )
}  # fmt: skip


def spark_type(text: str) -> types.DataType:
    """Return the type whose simple string in Spark is `text`."""
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return types.DecimalType(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"array<(.*)>", text):
        return types.ArrayType(spark_type(found[1]))
    return _TYPES[text]


def _constant(text: str) -> Any:
    """Return the value of the SQL that `statements.constant` writes."""
    if found := re.fullmatch(r"timestamp_micros\((-?\d+)\)", text):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(found[1]))
    found = re.fullmatch(r"cast\('(.*)' as (\w+).*\)", text)
    assert found is not None, text
    value, kind = found[1], found[2]
    if kind in ("int", "bigint"):
        return int(value)
    if kind == "decimal":
        return Decimal(value)
    return date.fromisoformat(value) if kind == "date" else value == "true" if kind == "boolean" else value


class Crash(Exception):
    """The end of a process between two steps of a write."""


class MemoryTable(StoredTable):
    """A table in memory; `store` has the tables by path. `step` is called before each step, and may raise Crash."""

    title, marker, can_fill = "memory", "memory", True

    def __init__(self, store: dict[str, MemoryTable], path: str, step: Callable[[], None]) -> None:
        super().__init__(cast(Any, _Session(self)), path)
        self._store, self._step = store, step
        self.kinds: dict[str, str] = {}
        self.told: dict[str, str] = {}
        self.kept: list[Row] = []
        self.history: list[TableCommit] = []
        self._newest: dict[str, int] = {}

    def is_there(self) -> bool:
        return self.path in self._store

    def name(self) -> str:
        return self.path

    def rows(self, version: int | None = None) -> Any:
        raise NotImplementedError

    def columns(self) -> dict[str, types.DataType]:
        return {name: spark_type(kind) for name, kind in self.kinds.items()}

    def properties(self) -> dict[str, str]:
        return dict(self.told)

    def commits(self, most: int) -> list[TableCommit]:
        return self.history[::-1][:most]

    def past(self, name: str) -> tuple[frozenset[str], bool | None]:
        raise NotImplementedError

    def create(self, columns: Columns, properties: Mapping[str, str]) -> None:
        self._step()
        self.kinds, self.told = dict(columns), dict(properties)
        self._store[self.path] = self
        self._commit(None, False)

    def announce(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        self._step()
        self.told |= properties

    def alter(self, steps: Sequence[ColumnStep], properties: Mapping[str, str]) -> None:
        for step in steps:
            self._step()
            # A step that was done before a crash is repeated.
            if step.what == "drop" and step.name not in self.kinds:
                continue
            if step.what == "drop":
                del self.kinds[step.name]
                self.kept = [{name: row[name] for name in self.kinds} for row in self.kept]
            elif step.what == "rename":
                assert step.to not in self.kinds
                self.kinds = {step.to if name == step.name else name: kind for name, kind in self.kinds.items()}
                self.kept = [
                    {step.to if name == step.name else name: value for name, value in row.items()} for row in self.kept
                ]
            else:
                self.kinds[step.name] = step.to
                self.kept = [{step.name: None, **row} for row in self.kept]
        self._step()
        self.told |= properties
        self._commit(None, False)

    def fill(self, values: Mapping[str, str], where: str) -> None:
        self._step()
        for name, value in values.items():
            for row in self.kept:
                row[name] = _constant(value)

    def append(self, rows: Any, once: WriteId) -> None:
        self.put([*self.kept, *rows], once)

    def put(self, rows: list[Row], once: WriteId) -> None:
        """Replace all rows; does nothing if the batch was written before."""
        self._step()
        if self._newest.get(once.application, -1) < once.batch:
            self._newest[once.application] = once.batch
            self.kept = rows
            self._commit(once.metadata, True)

    def _commit(self, metadata: str | None, changes: bool) -> None:
        self.history.append(TableCommit(len(self.history), metadata, changes))

    def merge(self, merge: Merge, once: WriteId) -> None:
        raise NotImplementedError

    mend = remove = compact = clean = merge  # type: ignore[assignment]


class _Session:
    """A substitute for Spark's session: answers the query for duplicates of a new key."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table
        self._found: list[Any] = []

    def sql(self, text: str) -> _Session:
        listed = re.search(r" group by (.*) having ", text)
        assert listed is not None, text
        names = re.findall(r"`((?:[^`]|``)*)`", listed[1])
        keys = [tuple(row[name] for name in names) for row in self._table.kept]
        self._found = [1] if len(set(keys)) < len(keys) or any(None in key for key in keys) else []
        return self

    def collect(self) -> list[Any]:
        return self._found


class MemoryFormat(TableFormat):
    """The table format of tables in memory."""

    name = title = marker = "memory"
    jars, settings = (), {}
    conflict = re.compile("never")

    def __init__(self, step: Callable[[], None] = lambda: None) -> None:
        self.tables: dict[str, MemoryTable] = {}
        self._step = step

    def demand(self, spark: Any) -> None:
        pass

    def table(self, session: Any, path: str) -> MemoryTable:
        found = self.tables.get(path)
        return MemoryTable(self.tables, path, self._step) if found is None else found


class Blocks:
    """A substitute for a DataFrame: the blocks of a batch, keys and values."""

    def __init__(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self.rows = rows

    def where(self, condition: str) -> Blocks:
        wanted = {bytes.fromhex(text) for text in re.findall(r"X'([0-9a-f]*)'", condition)}
        return Blocks([row for row in self.rows if row[0] in wanted])

    def batches(self) -> Iterator[pa.RecordBatch]:
        keys, values = zip(*self.rows, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], names=["key", "value"]
        )


class MemoryLatest(Latest):
    """The mode `latest` without Spark. `asked` holds the tables that this process has asked to be read again."""

    unknown_values = "stop"
    asked: Container[str] = ()

    def _append(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        opened = [row for rows in _opened(batch) for row in rows.to_pylist()]
        stored.append(cast(Any, [_values(row, batch.form) for row in opened]), once)

    def merge(self, stored: StoredTable, batch: TableBatch, once: WriteId) -> None:
        form, table = batch.form, cast(MemoryTable, stored)
        key = [form.names[place] for place in form.key]
        kept = {tuple(row[name] for name in key): row for row in table.kept}
        before = dict(kept)
        truncate = batch.truncate
        if truncate is not None:
            kept = {}
        parts = [part for rows in _opened(batch) for part in rows.to_batches()]
        for rows in RowReduction(form)(iter(parts)):
            for row in rows.to_pylist():
                if truncate is not None and ((row["position"], row["ordinal"]) <= truncate or row["op"] == "r"):
                    continue
                values = _values(row, form)
                at = tuple(values[name] for name in key)
                if row["op"] in ("d", "t"):
                    kept.pop(at, None)
                    continue
                if row["missing"]:
                    origin = row["origin"]
                    old = before.get(at if origin is None else tuple(origin.values()))
                    if old is None and self.unknown_values == "stop":
                        raise SinkError(
                            f"Neither the log nor the table {self.path} has a value of a row.",
                            "Set unknown.values to null.",
                        )
                    if old is None and self.unknown_values == "reread":
                        assert self._target is not None
                        self._target.reread("neither the log nor the table has a value")
                    missing = [form.names[place] for place in row["missing"]]
                    values |= {name: None if old is None else old[name] for name in missing}
                kept[at] = values
        table.put(list(kept.values()), once)

    def empty(self, stored: StoredTable, batch: TableBatch, form: BlockForm, once: WriteId) -> None:
        # If the process ends here, only the request says that the table is not what it was.
        assert self.source in self.asked, f"{self.source} is emptied before anything says so"
        cast(MemoryTable, stored).put([], once)


def _opened(batch: TableBatch) -> Iterator[pa.Table]:
    return BlockOpening(batch.form).blocks(cast(Blocks, batch.frame).batches())


def _values(row: Mapping[str, Any], form: BlockForm) -> Row:
    return {name: row[f"c{place}"] for place, name in enumerate(form.names)}


class Copies(ABC):
    """The copies of a pipeline, by `schema.table`."""

    @abstractmethod
    def follow(self, sink: Sink) -> None:
        """Write by a sink with other options from now on."""

    @abstractmethod
    def write(self, number: int, rows: Sequence[Row]) -> None:
        """Write a batch, as a new process would. Raises SinkError if a table cannot follow an alteration."""

    @abstractmethod
    def names(self) -> set[str]:
        """Return the names of the copies."""

    @abstractmethod
    def rows(self, name: str) -> list[Row] | None:
        """Return the rows of a copy; None if it does not exist. Raises SinkError if they cannot be told."""

    @abstractmethod
    def columns(self, name: str) -> list[str]:
        """Return the columns of a copy; none if it does not exist."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a copy, as a user would."""

    @abstractmethod
    def empty(self, name: str) -> None:
        """Remove the rows of a copy, as a user would."""


class MemoryCopies(Copies):
    """Copies in memory. `dice` decide at which steps the process ends, and begins its batch again; None: at none."""

    def __init__(self, sink: Sink, dice: random.Random | None = None) -> None:
        self._dice = dice
        self._format = MemoryFormat(self._step)
        self.follow(sink)

    def _step(self) -> None:
        if self._dice is not None and self._dice.random() < 0.1:
            raise Crash

    def follow(self, sink: Sink) -> None:
        assert isinstance(sink, TablesSink)
        self._unknown = sink.unknown
        self._sink = sink
        self._owner = Owner("pipeline", "latest", sink.policies, format=self._format, reread=self._reread)

    def _reread(self, source: str, reason: str) -> None:
        _, schema, table = source.split(".")
        self._step()
        self._asked.add(source)
        self._sink.reread(Request.new(schema, table).message())

    def write(self, number: int, rows: Sequence[Row]) -> None:
        while True:
            try:
                self._write(number, rows)
                return
            except Crash:
                continue

    def _write(self, number: int, rows: Sequence[Row]) -> None:
        self._asked: set[str] = set()
        found: dict[tuple[str, str, str], list[tuple[bytes, bytes]]] = {}
        for row in rows:
            if row["op"] == BLOCK:
                head = Head.of(row["key"])
                found.setdefault((head.database, head.schema, head.table), []).append((row["key"], row["value"]))
        for table, blocks in found.items():
            heads = [Head.of(key) for key, _ in blocks]
            path = ".".join(table[1:])
            latest = MemoryLatest(path, ".".join(table), self._owner)
            latest.is_known = path in self._format.tables
            latest.unknown_values, latest.asked = self._unknown, self._asked
            latest.write(cast(Any, None), TableBatch(number, table, heads, cast(Any, Blocks(blocks)), 0))

    def names(self) -> set[str]:
        return set(self._format.tables)

    def rows(self, name: str) -> list[Row] | None:
        table = self._format.tables.get(name)
        return None if table is None else table.kept

    def columns(self, name: str) -> list[str]:
        table = self._format.tables.get(name)
        return [] if table is None else list(table.kinds)

    def remove(self, name: str) -> None:
        self._format.tables.pop(name, None)

    def empty(self, name: str) -> None:
        if name in self._format.tables:
            self._format.tables[name].kept = []
