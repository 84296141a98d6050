"""The rows of both sides as frames with the same columns: the source's at one position, a table's at one moment. Driver.

Both have the columns c0, c1, … in the order of the source's table. The source's values take the way that they take to
the sink: blocks, which are opened in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.columns.blocks import Form
from tailrace.columns.table import TableSchema
from tailrace.errors import SinkError
from tailrace.events.blocks import storable, stored
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings
from tailrace.events.table_plan import table_plan
from tailrace.sinks.tables.rows import Opening
from tailrace.sinks.tables.statements import quoted, type_of
from tailrace.values.arrow import arrow_type_of, typed
from tailrace.values.conversion import ColumnPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.log.planner import Task


@dataclass(frozen=True, slots=True)
class Shape:
    """A table as the sink writes it: its form, and how the texts of its key's columns become values."""

    form: Form
    key: tuple[ColumnPlan, ...]

    @classmethod
    def of(cls, table: TableSchema, settings: EventSettings, form: SourceForm) -> Shape:
        """Raises SinkError where the table has no key, or one that its rows do not show."""
        plan = table_plan(table, settings, form)
        places = {column.index: place for place, column in enumerate(plan.columns)}
        if not plan.key or any(column.index not in places for column in plan.key):
            raise SinkError(
                f"The table {table.id} has no key, and rows are compared by their keys.",
                "Give it a primary key, name columns in message.key.columns, or name other tables with --table.",
            )
        names = tuple(column.name for column in plan.columns)
        types = tuple(storable(arrow_type_of(column.schema)) for column in plan.columns)
        return cls(Form(names, types, tuple(places[column.index] for column in plan.key)), plan.key)

    @property
    def columns(self) -> list[str]:
        """What the columns of frames are called."""
        return [f"c{place}" for place in range(len(self.form.names))]

    @property
    def keys(self) -> list[str]:
        """The columns of the key."""
        return [f"c{place}" for place in self.form.key]

    @property
    def names(self) -> list[str]:
        """The names of the key's columns."""
        return [self.form.names[place] for place in self.form.key]

    @property
    def schema(self) -> pa.Schema:
        """The schema of frames."""
        return pa.schema(list(zip(self.columns, self.form.types, strict=True)))

    def values(self, texts: Sequence[Sequence[bytes]]) -> list[list[Any]]:
        """The values of the texts of each of the key's columns."""
        found = []
        for column, of_column in zip(self.key, texts, strict=True):
            found.append(stored(typed(column, pa.array(of_column, pa.binary()))[0]).to_pylist())
        return found


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads the groups of tasks whose numbers come, as rows. Worker."""

    groups: tuple[tuple[Task, ...], ...]
    shape: Shape

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opening = Opening(self.shape.form)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for task in self.groups[number]:
                    for rows in opening(task.read()):
                        yield rows.select(self.shape.columns)


def source_rows(spark: SparkSession, tasks: Sequence[Task], shape: Shape) -> DataFrame:
    """What `tasks` read of one table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema: Any = from_arrow_schema(shape.schema, prefer_timestamp_ntz=True)
    count = min(len(tasks), 4 * spark.sparkContext.defaultParallelism)
    if not count:
        return spark.createDataFrame([], schema)
    groups = tuple(tuple(tasks[number::count]) for number in range(count))
    return spark.range(0, count, 1, count).mapInArrow(Reading(groups, shape), schema)


def table_rows(spark: SparkSession, path: str, version: int | None, shape: Shape, where: str) -> DataFrame:
    """The rows of the table at `path` that fulfil `where`, at a version; none where there is no table yet.

    Raises SinkError where it lacks a column of the source's, or has one of another type.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if version is None:
        return spark.createDataFrame([], from_arrow_schema(shape.schema, prefer_timestamp_ntz=True))  # type: ignore[arg-type]
    found = spark.read.format("delta").option("versionAsOf", version).load(path)
    has = {field.name: field.dataType.simpleString() for field in found.schema.fields}
    for name, kind in zip(shape.form.names, shape.form.types, strict=True):
        wanted = type_of(kind)
        if has.get(name) != wanted:
            told = f"has the type {has[name]} there" if name in has else "is not in it"
            raise SinkError(
                f"The table {path} cannot be compared: its column {name} {told}, and is of the type {wanted} at the "
                "source.",
                "Let the pipeline read the log up to that change first.",
            )
    named = [f"{quoted(name)} as c{place}" for place, name in enumerate(shape.form.names)]
    return found.where(where).selectExpr(*named)
