"""With real Delta Lake, a foreign commit between the read and the commit of a batch's MERGE is always noticed."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.columns.blocks import BlockForm
from tailrace.errors import SinkError
from tailrace.sinks.tables.formats.base import WriteId
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.sink import TablesSink
from tailrace.sinks.tables.statements import ReducedBatch
from tailrace.sinks.tables.target import metadata
from tests.extent import is_full, sized, turn
from tests.spark.beside import Passing, merge_beside
from tests.spark.test_table_maintenance import operations
from tests.spark.test_table_rebuild import PIPELINE, START, Lake, Source, rows_of

FORM = BlockForm(("id", "v"), (pa.int64(), pa.int64()), (0,))


class Writing:
    """Batches of updates of the rows 0 to 9 and of a new row, and a foreign action while one is merged."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place, self.path = spark, place, f"{place}/t"
        spark.sql(f"create table delta.`{self.path}` (id bigint, v bigint) using delta "
                  "tblproperties ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
        rows = spark.range(10).selectExpr("id", "0L as v").coalesce(1)
        DeltaTable(spark, self.path).append(rows, WriteId(PIPELINE, 0, metadata(0, "-")))

    def batch(self, number: int, view: str, wait: Passing) -> DeltaTable:
        """Return a table in a session of its own, with the rows of a batch as the view."""
        session = self.spark.newSession()
        schema = FORM.schema
        rows = [("u", "0A", 0, 0, START, None, None, key, number) for key in (*range(10), 100 + number)]
        made = session.createDataFrame(rows, from_arrow_schema(schema)).coalesce(1)
        made.mapInArrow(wait, made.schema).createOrReplaceTempView(view)
        return DeltaTable(session, self.path)

    def merge(self, number: int, beside: Callable[[], object] = lambda: None) -> None:
        """Merge a batch, with `beside` after it has begun to read its rows."""

        def prepared(waiting: Passing) -> Callable[[], None]:
            view, once = f"rows{number}", WriteId(PIPELINE, number, metadata(number, "-"))
            table = self.batch(number, view, waiting)
            return lambda: table.merge(ReducedBatch(FORM, view).merge(), once)

        merge_beside(self.place, number, prepared, beside)

    def copied(self, number: int, value: int) -> None:
        """Write a batch as a pipeline with a copy of the checkpoint does."""
        view = f"copied{number}"
        table = self.batch(value, view, lambda batches: batches)
        table.merge(ReducedBatch(FORM, view).merge(), WriteId(PIPELINE, number, metadata(number, "-")))

    def rows(self) -> dict[int, int]:
        found = self.spark.read.format("delta").load(self.path).collect()
        assert len({row["id"] for row in found}) == len(found)
        return {row["id"]: row["v"] for row in found}


@turn(0, 2)
def test_a_writer_in_between_is_one_clear_error_and_nothing_is_overwritten(spark: SparkSession, place: Path) -> None:
    writing, sink = Writing(spark, place), TablesSink({"path": str(place)})
    table = f"delta.`{writing.path}`"
    wanted = dict.fromkeys(range(10), 0)
    changes: list[tuple[str, dict[int, int | None]]] = [
        (f"update {table} set v = 70 where id = 4", {4: 70}),
        # A row that a batch has as well.
        (f"insert into {table} values (102, 7)", {102: 7}),
        (f"insert into {table} values (500, 7)", {500: 7}),
        (f"delete from {table} where id = 3", {3: None}),
    ]
    # One of them in turn, in the second batch.
    first = datetime.date.today().toordinal() % len(changes)
    for number, (statement, change) in enumerate(sized(changes[first : first + 1], changes), sized(2, 1)):
        print(statement)
        with pytest.raises(Exception, match="DELTA_CONCURRENT") as caught:
            writing.merge(number, lambda statement=statement: spark.sql(statement))  # type: ignore[misc]
        known = sink.failure(str(caught.value))
        assert isinstance(known, SinkError)
        assert "Another process has written to a table" in str(known)
        for key, value in change.items():
            wanted = {other: known for other, known in wanted.items() if other != key}
            wanted |= {} if value is None else {key: value}
        assert writing.rows() == wanted
    # The same batch again, as after a restart, finds the table unchanged.
    writing.merge(9)
    assert writing.rows() == wanted | dict.fromkeys(range(10), 9) | {109: 9}


@turn(1, 2)
def test_files_that_are_put_together_in_between_are_no_hindrance(spark: SparkSession, place: Path) -> None:
    writing = Writing(spark, place)
    writing.merge(1)
    writing.merge(2, lambda: spark.sql(f"optimize delta.`{writing.path}`"))
    assert operations(writing.path)[0] == "WRITE"
    assert writing.rows() == dict.fromkeys(range(10), 2) | {101: 1, 102: 2}


def test_a_copy_of_the_checkpoint_does_not_pass_for_the_pipeline_itself(spark: SparkSession, place: Path) -> None:
    """A copy is noticed both during a MERGE and where it was faster, although its batches hold different changes."""
    writing = Writing(spark, place)
    with pytest.raises(Exception, match="DELTA_CONCURRENT"):
        writing.merge(1, lambda: writing.copied(1, 50))
    assert writing.rows() == dict.fromkeys(range(10), 50) | {150: 50}
    if not is_full():
        # For a copy that was faster see test_table_targets.
        return
    source = Source(random.Random(3))
    own, copied = (Lake(spark, place / "two", "latest") for _ in range(2))
    first, *batches = source.snapshot(8), source.batch(12), source.batch(12)
    own.write(0, [last for _, last in first])
    copied.write(1, [last for _, last in batches[0]])
    rows = rows_of(own.read())
    with pytest.raises(SinkError, match="Another process has written batch 1"):
        own.write(1, [last for _, last in batches[1]])
    assert rows_of(own.read()) == rows
