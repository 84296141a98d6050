"""The table of positions is found as it was left, after any foreign writes, and without a read of its rows if its last
commit tells enough."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.sinks.tables import positions
from tailrace.sinks.tables.formats.delta import Delta, DeltaTable
from tailrace.sinks.tables.positions import NAME, BatchEnd, Positions

PIPELINE = "a-pipeline"
AT = datetime(2026, 11, 25, tzinfo=UTC)


def opened(spark: SparkSession, place: Path, number: int) -> Positions:
    found = Positions(f"{place}/{NAME}", "q", PIPELINE, Delta())
    found.open(spark, number)
    return found


def moment(number: int, position: str) -> BatchEnd:
    return BatchEnd(number, position, 0, AT)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three batches, the second of which is after the third: a snapshot that ran beside the log."""
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    place = tmp_path_factory.mktemp("positions") / "lake"
    one = opened(spark, place, 0)
    for number, (position, table) in enumerate([("A", "a"), ("C", "b"), ("B", "a")]):
        one.add(spark, moment(number, position), True, {table: 10 + number})
    return place


@pytest.fixture
def left(written: Path, place: Path) -> Path:
    """Return a copy of those three batches."""
    shutil.copytree(written, place)
    return place


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tables whose rows are read."""
    found: list[str] = []
    rows = DeltaTable.rows

    def noted(self: DeltaTable, version: int | None = None) -> Any:
        found.append(self.path)
        return rows(self, version)

    monkeypatch.setattr(DeltaTable, "rows", noted)
    return found


def known(one: Positions) -> tuple[dict[str, int] | None, str]:
    return one._versions, one._highest


WANTED = ({"a": 12, "b": 11}, "C")


def test_the_last_commit_says_what_the_rows_say(spark: SparkSession, left: Path, asked: list[str]) -> None:
    assert known(opened(spark, left, 3)) == WANTED
    assert not asked
    session = spark.newSession()
    session.sql(f"optimize delta.`{left}/{NAME}`")
    assert known(opened(spark, left, 3)) == WANTED
    assert not asked


@pytest.mark.parametrize("statement", [
    "delete from {} where batch = 0",
    pytest.param("update {} set whole = false where batch = 2", marks=pytest.mark.full),
])  # fmt: skip
def test_where_somebody_else_has_changed_rows_the_rows_are_asked(
    spark: SparkSession, left: Path, asked: list[str], statement: str
) -> None:
    spark.sql(statement.format(f"delta.`{left}/{NAME}`"))
    assert known(opened(spark, left, 3)) == WANTED
    assert asked == [f"{left}/{NAME}"]


@pytest.mark.full
def test_a_restored_table_is_what_it_was(spark: SparkSession, left: Path) -> None:
    """After a restore, as after any other commit that changes rows, the rows are read."""
    newest = DeltaTable(spark, f"{left}/{NAME}").commits(1)[0].version
    spark.sql(f"restore table delta.`{left}/{NAME}` to version as of {newest - 1}")
    assert known(opened(spark, left, 3)) == ({"a": 10, "b": 11}, "C")


def test_versions_of_many_tables_are_in_the_rows_alone(
    spark: SparkSession, left: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "_MOST_TABLES", 1)
    opened(spark, left, 3).add(spark, moment(3, "D"), True, {"c": 13})
    assert known(opened(spark, left, 4)) == ({"a": 12, "b": 11, "c": 13}, "D")
    assert asked == [f"{left}/{NAME}"]


def test_a_row_costs_one_job_however_long_the_log_is(spark: SparkSession, left: Path) -> None:
    one = opened(spark, left, 3)
    spark.sparkContext.setJobGroup("row", "row")
    one.add(spark, moment(3, "D"), True, {"a": 20})
    spark.sparkContext._jsc.clearJobGroup()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("row")) == 1
    assert known(opened(spark, left, 4)) == ({"a": 20, "b": 11}, "D")


@pytest.mark.parametrize(("most", "wanted"), [(2, ["a", "b"]), (1, [])])
def test_what_the_next_batch_asks_of_few_tables_is_read_before(
    spark: SparkSession, left: Path, monkeypatch: pytest.MonkeyPatch, most: int, wanted: list[str]
) -> None:
    found: list[str] = []
    monkeypatch.setattr(DeltaTable, "load", lambda self: found.append(self.path))
    opened(spark, left, 3).load(spark, most)
    assert found == [f"{left}/{name}" for name in wanted]


def test_a_row_has_what_it_was_given(spark: SparkSession, place: Path) -> None:
    """A row keeps any texts, and its time to the microsecond, whether Spark gives it with or without a zone."""
    name, table = "${spark.app.name} it's \\n", "shop.\\\"Odd' ${x} ü\n\U0001f600"
    one = Positions(f"{place}/{NAME}", name, PIPELINE, Delta())
    one.open(spark, 0)
    at = datetime(1969, 7, 20, 20, 17, 40, 123457, tzinfo=UTC)
    one.add(spark, BatchEnd(0, "0/A'B", 2**40, at), True, {table: 7})
    one.add(spark, BatchEnd(1, "0/B", 0, at.astimezone().replace(tzinfo=None)), False, {})
    rows = spark.read.format("delta").load(one.path).orderBy("batch")
    found = rows.selectExpr("query", "batch", "position", "ordinal", "unix_micros(committed_at)", "whole", "versions")
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert [tuple(row) for row in found.collect()] == [
        (name, 0, "0/A'B", 2**40, micros, True, {table: 7}),
        (name, 1, "0/B", 0, micros, False, {table: 7}),
    ]
