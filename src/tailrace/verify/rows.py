"""The rows of both sides in the same columns: of the source at a position, of a table at a moment. Driver, worker.

The columns are c0, c1, … in the order of the source's table. The source's values are converted as for the sink's row
blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.columns.blocks import DOCUMENTS, BlockForm
from tailrace.columns.table import TableSchema
from tailrace.errors import SinkError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.packed_changes import storable, stored
from tailrace.events.table_plan import table_plan
from tailrace.sinks.tables.evolution import HeldTable
from tailrace.sinks.tables.formats.base import StoredTable
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.statements import quoted, type_of
from tailrace.sinks.tables.target import COLUMNS
from tailrace.spark.prefetch import ahead
from tailrace.values.arrow import arrow_type_of, typed
from tailrace.values.conversion import ColumnPlan
from tailrace.verify.comparison import ComparedSide, FrameSide
from tailrace.verify.keys import values_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.log.contracts import Task
    from tailrace.verify.hashes import Summary

_GROUPS = 3
"""Number of Spark tasks that read a table, per task that can run at the same time."""


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table as the sink writes it: its form, and the plans that convert the key columns' texts to values.

    `key` is empty for documents, whose keys are texts.
    """

    form: BlockForm
    key: tuple[ColumnPlan, ...]

    @classmethod
    def of_documents(cls) -> TableForm:
        """Return the form of every table of documents."""
        return cls(DOCUMENTS, ())

    @classmethod
    def of(cls, table: TableSchema, settings: EventSettings, form: SourceForm) -> TableForm:
        """Return the form of a table. Raises SinkError if it has no key, or if its rows lack a key column."""
        plan = table_plan(table, settings, form)
        places = {column.index: place for place, column in enumerate(plan.columns)}
        is_whole = len(plan.key) == len(table.key)
        if not plan.key or not is_whole or any(column.index not in places for column in plan.key):
            raise SinkError(
                f"The table {table.id} has no key, and rows are compared by their keys.",
                "Give it a primary key, name columns in message.key.columns, or name other tables with --table.",
            )
        names = tuple(column.name for column in plan.columns)
        types = tuple(storable(arrow_type_of(column.schema)) for column in plan.columns)
        return cls(BlockForm(names, types, tuple(places[column.index] for column in plan.key)), plan.key)

    @property
    def columns(self) -> list[str]:
        """The column names of DataFrames."""
        return [f"c{place}" for place in range(len(self.form.names))]

    @property
    def keys(self) -> list[str]:
        """The key columns' names in DataFrames."""
        return [f"c{place}" for place in self.form.key]

    @property
    def names(self) -> list[str]:
        """The key columns' names in the table."""
        return [self.form.names[place] for place in self.form.key]

    @property
    def sources(self) -> list[str]:
        """The key columns' names at the source."""
        return [column.source_name for column in self.key] or self.names

    @property
    def schema(self) -> str:
        """The columns of DataFrames, as DDL."""
        return _declared(self.columns, self.form.types)

    def values(self, texts: Sequence[Sequence[bytes]]) -> list[list[Any]]:
        """Convert the texts of each key column to values; without texts, to no values."""
        if not self.key:
            return [[text.decode() for text in of_column] for of_column in texts or [()]]
        found = []
        for column, of_column in zip(self.key, texts or [()] * len(self.key), strict=True):
            found.append(values_of(stored(typed(column, pa.array(of_column, pa.binary()))[0])))
        return found


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Maps numbers of task groups to the rows of their tasks. Worker."""

    groups: tuple[tuple[Task, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in self.groups[number]:
                    yield from ahead(task.read())


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Maps numbers of task groups to one value: the summary of their rows. Worker."""

    reading: GroupReader
    keys: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tailrace.verify.hashes import Summary, chunks_of, row_hashes

        summary = Summary()
        for rows in self.reading(batches):
            if rows.num_rows:
                summary.add(chunks_of([rows.column(place) for place in self.keys]), row_hashes(rows.columns))
        yield pa.RecordBatch.from_arrays([pa.array([summary.written()], pa.binary())], ["counts"])


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Maps numbers of task groups to the keys and hashes of their rows in `chunks`. Worker."""

    reading: GroupReader
    keys: tuple[int, ...]
    chunks: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tailrace.verify.hashes import chunks_of, row_hashes
        from tailrace.verify.hashing import CHUNKS

        wanted = np.zeros(CHUNKS, np.bool_)
        wanted[list(self.chunks)] = True
        for rows in self.reading(batches):
            keys = [rows.column(place) for place in self.keys]
            chosen = pa.array(np.flatnonzero(wanted[chunks_of(keys)])) if rows.num_rows else None
            if chosen is not None and len(chosen):
                columns = [column.take(chosen) for column in rows.columns]
                hashes = pa.array(row_hashes(columns).view(np.int64))
                names = [f"c{place}" for place in self.keys]
                yield pa.RecordBatch.from_arrays([*(columns[place] for place in self.keys), hashes], [*names, "h"])


@dataclass(frozen=True, slots=True)
class SourceRows:
    """A ComparedSide: rows that tasks read from the source, hashed by the workers that read them."""

    spark: SparkSession
    reading: GroupReader
    shape: TableForm

    def summary(self) -> Summary:
        from tailrace.verify.hashes import Summary

        found = Summary()
        for row in self._frame(GroupSummary(self.reading, self.shape.form.key), "counts binary").collect():
            found.join(Summary.read(row["counts"]))
        return found

    def rows(self, chunks: Sequence[int]) -> DataFrame:
        types = [self.shape.form.types[place] for place in self.shape.form.key]
        choosing = GroupRows(self.reading, self.shape.form.key, tuple(chunks))
        return self._frame(choosing, f"{_declared(self.shape.keys, types)}, h bigint")

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a DataFrame of the session `spark`."""
        return replace(self, spark=spark)._frame(self.reading, self.shape.schema)

    def _frame(self, function: Any, schema: str) -> DataFrame:
        count = len(self.reading.groups)
        return self.spark.range(0, count, 1, max(count, 1)).mapInArrow(function, schema)


def source_side(spark: SparkSession, counting: SparkSession, tasks: Sequence[Task], shape: TableForm) -> ComparedSide:
    """Return the rows that `tasks` read of one table as a side; for the sessions see FrameSide."""
    from tailrace.verify.hashes import is_hashed

    count = min(len(tasks), _GROUPS * spark.sparkContext.defaultParallelism)
    groups = tuple(tuple(tasks[number::count]) for number in range(count))
    found = SourceRows(spark, GroupReader(groups), shape)
    return found if all(map(is_hashed, shape.form.types)) else FrameSide(found.frame, shape.keys, spark, counting)


def _declared(names: Sequence[str], types: Sequence[pa.DataType]) -> str:
    return ", ".join(f"{name} {type_of(kind)}" for name, kind in zip(names, types, strict=True))


def table_side(
    spark: SparkSession, counting: SparkSession, path: str, version: int | None, shape: TableForm, where: str
) -> ComparedSide:
    """Return the rows of the table at `path` at a version that fulfil `where`; no rows if `version` is None.

    Reading raises SinkError if the table lacks a column of the source, or has it with another type.
    """

    def rows(session: SparkSession) -> DataFrame:
        if version is None:
            return session.createDataFrame([], shape.schema)
        stored = found_at(session, path).table(session, path)
        found = stored.rows(version)
        _demand_columns(stored, found, shape)
        named = [f"{quoted(name)} as c{place}" for place, name in enumerate(shape.form.names)]
        return found.where(where).selectExpr(*named)

    return FrameSide(rows, shape.keys, spark, counting)


def _demand_columns(stored: StoredTable, rows: DataFrame, shape: TableForm) -> None:
    record = stored.properties().get(COLUMNS)
    for held in HeldTable.of(record).columns if record is not None else ():
        if held.name in shape.form.names and held.source != held.name and not held.gone:
            raise SinkError(
                f"The table {stored.path} cannot be compared: the source's column {held.source} is called {held.name} "
                f"in it, and another column of the source is {held.name}.",
                "Name other tables with --table.",
            )
    has = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    for name, kind in zip(shape.form.names, shape.form.types, strict=True):
        wanted = type_of(stored.held(kind))
        if has.get(name) != wanted:
            state = f"has the type {has[name]} there" if name in has else "is not in it"
            raise SinkError(
                f"The table {stored.path} cannot be compared: its column {name} {state}, and is of the type {wanted} "
                "at the source.",
                "Let the pipeline read the log up to that change first.",
            )
