"""Rows replaced by deletion vectors and an append equal SQL's MERGE, and appended rows equal Delta's own writer: the
same table, in one commit, once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.columns.blocks import BlockForm
from tailrace.sinks.tables.formats import delta
from tailrace.sinks.tables.formats.base import WriteId
from tailrace.sinks.tables.formats.delta import CONFLICT, DeltaTable, append_rows, replace_rows
from tailrace.sinks.tables.statements import KEPT, ReducedBatch
from tailrace.sinks.tables.target import metadata
from tests.extent import by_day, is_full, sized, turn
from tests.fix_lake import writes
from tests.spark.test_table_rebuild import PIPELINE, START, rows_of

FORM = BlockForm(("id", "v", "text"), (pa.int64(), pa.int32(), pa.string()), (0,))
PAIR = BlockForm(("a b", "id", "v,w"), (pa.string(), pa.int64(), pa.decimal128(12, 2)), (1, 0))
VECTORS = "'delta.enableDeletionVectors' = 'true'"
MAPPING = f"{VECTORS}, 'delta.columnMapping.mode' = 'name'"


def jobs(spark: SparkSession, work: Callable[[], object]) -> int:
    """Return the number of Spark jobs for a call."""
    name, context = uuid4().hex, spark.sparkContext
    context.setJobGroup(name, name)
    try:
        work()
    finally:
        context._jsc.clearJobGroup()
    return len(context.statusTracker().getJobIdsForGroup(name))


class Twins:
    """Two tables with the same columns: one gets rows by MERGE, the other by `replace_rows`.

    With `alone`, as in all runs that are not full, the table with MERGE does not exist.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        form: BlockForm,
        columns: str,
        properties: str = VECTORS,
        alone: bool = not is_full(),
    ) -> None:
        self.spark, self.form, self.batches, self.alone = spark.newSession(), form, 0, alone
        self.merged, self.replaced = (DeltaTable(self.spark, f"{place}/{name}") for name in ("merged", "replaced"))
        self.tables = (self.replaced,) if alone else (self.merged, self.replaced)
        for table in self.tables:
            self.spark.sql(f"create table {table.name()} ({columns}) using delta tblproperties ({properties})")

    def both(self, statement: str) -> None:
        """Run a foreign statement on both tables; {} stands for the table."""
        for table in self.tables:
            self.spark.sql(statement.format(table.name()))

    def batch(self, *rows: tuple[Any, ...], kept: bool = False, few: bool = True) -> bool:
        """Write rows, each an operation and values. Return True if they were replaced."""
        self.batches += 1
        schema = self.form.schema
        told = [(op, f"{self.batches:02}", number, 0, START, None, None, *values) for number, (op, *values) in
                enumerate(rows)]  # fmt: skip
        self.spark.createDataFrame(told, from_arrow_schema(schema)).coalesce(1).createOrReplaceTempView("batch")
        merge = replace(ReducedBatch(self.form, "batch", keeps_deletes=kept).merge(), few=few)
        if not self.alone:
            self.merged.merge(replace(merge, whole=False), self.once)
        table, once = self.replaced, self.once
        self.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", once.metadata)
        try:
            return replace_rows(self.spark, table.path, table.name(), merge, once)
        finally:
            self.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")

    @property
    def once(self) -> WriteId:
        return WriteId(PIPELINE, self.batches, metadata(self.batches, "-"))

    def demand(self, *wanted: tuple[Any, ...]) -> None:
        """Assert that the tables have exactly these rows."""
        for table in self.tables:
            assert rows_of(table.rows()) == sorted(wanted, key=repr), table.path


@pytest.mark.parametrize(
    "few",
    [
        pytest.param([True] * 4, marks=pytest.mark.full),
        pytest.param([False] * 4, marks=pytest.mark.full),
        [True, False, True, False],
    ],
    ids=["few", "many", "in turns"],
)
def test_the_table_is_as_a_merge_leaves_it(spark: SparkSession, place: Path, few: list[bool]) -> None:
    """The result is that of a MERGE for batches with few and with many rows."""
    twins = Twins(spark, place, FORM, "id bigint, v int, text string")
    assert twins.batch(*(("c", key, key, f"row {key}") for key in range(20)), few=few[0])
    changed = (("u", 1, 100, "x"), ("d", 2, None, None), ("c", 30, 1, None), ("d", 31, None, None), ("u", 3, None, "y"))
    assert twins.batch(*changed, few=few[1])
    # Rows in a deletion vector, some of which come again.
    assert twins.batch(("c", 2, 5, "again"), ("u", 1, 101, "x"), ("d", 3, None, None), few=few[2])
    assert twins.batch(("d", 500, None, None), few=few[3])
    same = ((key, key, f"row {key}") for key in range(20) if key not in (1, 2, 3))
    twins.demand((1, 101, "x"), (2, 5, "again"), (30, 1, None), *same)
    # One commit for each batch, as with a MERGE.
    commits = twins.replaced.commits(10)
    assert [commit.version for commit in commits] == [4, 3, 2, 1, 0]
    assert all(commit.changes for commit in commits[:-1])
    assert json.loads(commits[0].metadata or "")["tailrace"]["batch"] == 4
    assert len(writes(place / "replaced", "Overwrite")) == 4


@turn(0, 4)
def test_deletes_that_are_kept_are_rows(spark: SparkSession, place: Path) -> None:
    marks = ", ".join(f"{name} {kind}" for name, kind in KEPT)
    twins = Twins(spark, place, FORM, f"id bigint, v int, text string, {marks}")
    assert twins.batch(("c", 1, 1, "a"), ("c", 2, 2, "b"), kept=True)
    assert twins.batch(("d", 1, 1, "a"), ("u", 2, 3, "b"), ("d", 3, None, None), kept=True)
    at = round(START.timestamp()) * 10**9
    twins.demand((1, 1, "a", "true", "d", at), (2, 3, "b", "false", "u", at), (3, None, None, "true", "d", at))


@turn(1, 4)
def test_names_and_types_are_the_tables(spark: SparkSession, place: Path) -> None:
    """Columns have names that Parquet cannot use, another order, and a type wider than the batch's."""
    twins = Twins(spark, place, PAIR, "`v,w` decimal(20, 2), `a b` string, id bigint", MAPPING)
    assert twins.batch(("c", "x", 1, Decimal(1)), ("c", "x", 2, Decimal(2)), ("c", "y", 1, Decimal(3)))
    twins.both("alter table {} rename column `v,w` to `w`")
    twins.form = replace(PAIR, names=("a b", "id", "w"))
    assert twins.batch(("u", "x", 1, Decimal(10)), ("d", "x", 2, None), ("c", None, 2, Decimal(5)))
    # A key with null matches no row.
    assert twins.batch(("c", None, 2, Decimal(6)))
    left = ((10, "x", 1), (3, "y", 1), (5, None, 2), (6, None, 2))
    twins.demand(*((Decimal(f"{number}.00"), *key) for number, *key in left))


def test_a_batch_comes_in_once(spark: SparkSession, place: Path) -> None:
    twins = Twins(spark, place, FORM, "id bigint, v int, text string")
    assert twins.batch(("c", 1, 1, "a"))
    twins.batches -= 1
    assert twins.batch(("u", 1, 2, "b"))
    twins.demand((1, 1, "a"))
    assert twins.replaced.commits(1)[0].version == 1


MERGED = {
    "somebody's column": ("id bigint, v int, text string, mine int", VECTORS),
    "change data feed": ("id bigint, v int, text string", f"{VECTORS}, 'delta.enableChangeDataFeed' = 'true'"),
    "row tracking": ("id bigint, v int, text string", f"{VECTORS}, 'delta.enableRowTracking' = 'true'"),
    "no deletion vectors": ("id bigint, v int, text string", "'delta.enableDeletionVectors' = 'false'"),
}
"""Columns and properties of tables whose rows only MERGE may replace."""


@pytest.mark.parametrize("name", MERGED)
def test_other_tables_are_left_alone(spark: SparkSession, place: Path, name: str) -> None:
    """A batch leaves these tables unchanged until MERGE writes it."""
    columns, properties = MERGED[name]
    table = DeltaTable(spark.newSession(), f"{place}/table")
    table.session.sql(f"create table {table.name()} ({columns}) using delta tblproperties ({properties})")
    told = [("u", "01", 0, 0, START, None, None, 1, 1, "a")]
    table.session.createDataFrame(told, from_arrow_schema(FORM.schema)).createOrReplaceTempView("batch")
    merge, once = ReducedBatch(FORM, "batch").merge(), WriteId(PIPELINE, 1, metadata(1, "-"))
    assert not replace_rows(table.session, table.path, table.name(), merge, once)
    assert [commit.version for commit in table.commits(5)] == [0]


@pytest.mark.parametrize(
    "name", ["somebody's column", *(pytest.param(name, marks=pytest.mark.full) for name in list(MERGED)[1:])]
)
def test_other_tables_get_a_merge(spark: SparkSession, place: Path, name: str) -> None:
    columns, properties = MERGED[name]
    twins = Twins(spark, place, FORM, columns, properties)
    more = ", 7" if "mine" in columns else ""
    twins.both(f"insert into {{}} values (1, 0, 'before'{more}), (2, 0, 'before'{more})")
    assert not twins.batch(("u", 1, 1, "a"), ("d", 2, None, None))
    assert [commit.version for commit in twins.replaced.commits(5)] == [1, 0]
    twins.replaced.merge(ReducedBatch(FORM, "batch").merge(), twins.once)
    assert twins.replaced._entries(1)[0][1] == "MERGE"
    # Foreign settings stay.
    twins.demand((1, 1, "a", *([7] if more else [])))


def test_a_value_that_stays_needs_a_merge() -> None:
    assert ReducedBatch(FORM, "rows").merge().whole
    assert not ReducedBatch(FORM, "rows", missing=True).merge().whole
    assert not ReducedBatch(FORM, "rows", emptied=True).merge().whole


@turn(2, 4)
def test_the_sessions_settings_are_as_before(spark: SparkSession, place: Path) -> None:
    twins = Twins(spark, place, FORM, "id bigint, v int, text string", alone=True)
    assert twins.batch(("c", 1, 1, "a"))
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    table, before = twins.replaced, twins.spark.conf.getAll
    sessions.setActiveSession(spark._jsparkSession)
    assert replace_rows(
        twins.spark, table.path, table.name(), ReducedBatch(FORM, "batch").merge(), WriteId(PIPELINE, 2, "")
    )
    assert sessions.getActiveSession().get().equals(spark._jsparkSession)
    # Delta's own keys of every commit.
    last = "spark.databricks.delta.lastCommitVersionInSession"
    assert {**twins.spark.conf.getAll, last: ""} == {**before, last: ""}


@turn(0, 4)
def test_what_a_delete_asks_of_a_table_can_be_read_before(spark: SparkSession, place: Path) -> None:
    twins = Twins(spark, place, FORM, "id bigint, v int, text string", alone=True)
    assert twins.batch(("c", 1, 1, "a"), ("c", 2, 2, "b"))
    taken = []
    for is_loaded in (False, True):
        twins.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        if is_loaded:
            twins.replaced.load()
        taken.append(jobs(twins.spark, lambda: twins.batch(("u", 1, 3, "c"))))
    assert taken[1] < taken[0]
    assert rows_of(twins.replaced.rows()) == [(1, 3, "c"), (2, 2, "b")]


@turn(3, 4)
def test_all_jobs_of_a_batch_are_its_querys(spark: SparkSession, place: Path) -> None:
    twins = Twins(spark, place, FORM, "id bigint, v int, text string", alone=True)
    tracker = spark.sparkContext.statusTracker()
    # The stop of a query cancels the jobs of its group.
    before = set(tracker.getJobIdsForGroup(None))
    assert jobs(twins.spark, lambda: twins.batch(("c", 1, 1, "a"), ("c", 2, 2, "b"))) > 0
    assert jobs(twins.spark, lambda: twins.batch(("u", 1, 3, "c"))) > 0
    # Spark forgets the oldest jobs, so fewer than before are possible.
    assert set(tracker.getJobIdsForGroup(None)) <= before
    assert rows_of(twins.replaced.rows()) == [(1, 3, "c"), (2, 2, "b")]


@turn(2, 4)
def test_a_batch_that_cannot_be_read_leaves_the_table_as_it_was(spark: SparkSession, place: Path) -> None:
    twins = Twins(spark, place, FORM, "id bigint, v int, text string", alone=True)
    assert twins.batch(("c", 1, 1, "a"), ("c", 2, 2, "b"))
    table, before = twins.replaced, rows_of(twins.replaced.rows())
    twins.spark.table("batch").selectExpr(
        *[name for name in twins.spark.table("batch").columns if name != "c1"], "int(raise_error('unread')) c1"
    ).createOrReplaceTempView("unread")
    merge = ReducedBatch(FORM, "unread").merge()
    for few in sized((random.random() < 0.5,), (True, False)):
        print("few" if few else "many")
        with pytest.raises(Exception, match="unread"):
            replace_rows(twins.spark, table.path, table.name(), replace(merge, few=few), WriteId(PIPELINE, 2, ""))
    assert rows_of(table.rows()) == before
    assert twins.batch(("u", 1, 3, "c"))
    assert rows_of(twins.replaced.rows()) == [(1, 3, "c"), (2, 2, "b")]


class Appended:
    """Two tables with the same columns: one gets rows by Delta's own writer, the other by `append_rows`.

    The former exists only in full runs.
    """

    def __init__(self, spark: SparkSession, place: Path, columns: str, properties: str = VECTORS) -> None:
        self.spark = spark.newSession()
        self.written, self.appended = (DeltaTable(self.spark, f"{place}/{name}") for name in ("written", "appended"))
        self.made = f"({columns}) using delta tblproperties ({properties})"
        self.spark.sql(f"create table {self.appended.name()} {self.made}")

    def batch(self, number: int, rows: DataFrame) -> bool:
        """Append a batch to both. Return True if `append_rows` has done it."""
        if is_full():
            self.spark.sql(f"create table if not exists {self.written.name()} {self.made}")
            writer = rows.write.format("delta").mode("append").option("txnAppId", PIPELINE).option("txnVersion", number)
            writer.save(self.written.path)
        return append_rows(self.spark, self.appended.path, rows, WriteId(PIPELINE, number, ""))

    def demand(self, *wanted: tuple[Any, ...]) -> None:
        """Assert that the tables have exactly these rows."""
        for table in (self.appended, *((self.written,) if is_full() else ())):
            assert rows_of(table.rows()) == sorted(wanted, key=repr), table.path


@pytest.mark.parametrize("properties", by_day((VECTORS, MAPPING), 2))
def test_appended_rows_are_those_of_deltas_writer(spark: SparkSession, place: Path, properties: str) -> None:
    twins = Appended(spark, place, "id bigint, v int, text string", properties)
    for number in range(3):
        # The columns in another order.
        assert twins.batch(number, twins.spark.sql(f"select 'x' text, {number} v, {number}L id"))
    twins.demand(*((number, number, "x") for number in range(3)))
    told = twins.spark.sql(f"describe history {twins.appended.name()} limit 1").collect()[0]
    assert (told["operation"], told["operationParameters"]["mode"], told["isBlindAppend"]) == ("WRITE", "Append", True)


def test_a_batch_is_appended_once(spark: SparkSession, place: Path) -> None:
    twins = Appended(spark, place, "id bigint")
    for number in (0, 1, 1, 0):
        assert twins.batch(number, twins.spark.sql(f"select {number}L id"))
    twins.demand((0,), (1,))
    assert twins.appended.commits(9)[0].version == 2


@turn(1, 4)
def test_the_eleventh_commit_has_no_checkpoint_before_it(spark: SparkSession, place: Path) -> None:
    table = DeltaTable(spark.newSession(), f"{place}/table")
    table.create([("id", "bigint")], {})
    for number in range(11):
        table.append(table.session.sql(f"select {number}L id"), WriteId(PIPELINE, number, ""))
    assert sorted(rows_of(table.rows())) == [(number,) for number in range(11)]
    assert not list((place / "table" / "_delta_log").glob("*checkpoint*"))


@turn(3, 4)
def test_what_has_been_appended_is_known_without_a_look_at_the_log(spark: SparkSession, place: Path) -> None:
    twins = Appended(spark, place, "id bigint")
    rows = twins.spark.sql("select 1L id")

    def appended(number: int) -> int:
        return jobs(twins.spark, lambda: twins.appended.append(rows, WriteId(PIPELINE, number, "{}")))

    assert [appended(number) for number in (0, 1, 2, 2)] == [1, 1, 1, 0]
    # Without the checksums beside the log, Delta reads the state itself.
    for file in Path(f"{twins.appended.path}/_delta_log").glob("*.crc"):
        file.unlink()
    twins.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    assert appended(2) > 0
    assert rows_of(twins.appended.rows()) == [(1,)] * 3
    twins.appended.append(rows, WriteId(PIPELINE, 3, "{}"))
    assert rows_of(twins.appended.rows()) == [(1,)] * 4


def test_delta_writes_itself_where_the_columns_are_others(spark: SparkSession, place: Path) -> None:
    twins = Appended(spark, place, "id bigint, v int")
    assert not twins.batch(0, twins.spark.sql("select 1L id"))
    twins.appended.append(twins.spark.sql("select 1L id"), WriteId(PIPELINE, 0, "{}"))
    assert rows_of(twins.appended.rows()) == [(1, None)]


def test_another_append_of_the_same_pipeline_is_in_the_way(spark: SparkSession, place: Path) -> None:
    """Of two processes with copies of one checkpoint, only one writes."""
    twins = Appended(spark, place, "id bigint")
    table = twins.appended
    table.append(twins.spark.sql("select 0L id"), WriteId(PIPELINE, 0, "{}"))

    other = DeltaTable(spark.newSession(), table.path)
    began = delta._newest
    met: list[int] = []

    def beside(transaction: Any, application: str) -> int:
        found = began(transaction, application)
        if not met:
            met.append(found)
            other.append(other.session.sql("select 2L id"), WriteId(PIPELINE, 1, "{}"))
        return found

    with patch.object(delta, "_newest", beside), pytest.raises(Exception, match=CONFLICT):
        table.append(twins.spark.sql("select 1L id"), WriteId(PIPELINE, 1, "{}"))
    assert met == [0]
    assert rows_of(table.rows()) == [(0,), (2,)]
