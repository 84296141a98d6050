"""A table of the sink `tables` has one owner, follows its source, or refuses to. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, IntegerType, LongType, StringType

from tailrace.columns.blocks import BlockForm, Place
from tailrace.errors import SinkError
from tailrace.sinks.tables import statements
from tailrace.sinks.tables.evolution import DEFAULTS, HeldTable, Policies
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.target import Owner, Target, metadata

FORM = BlockForm(("id", "v"), (pa.int32(), pa.string()), (0,), numbers=(1, 2))
SINCE: Place = ("0A", 0)
OWN = {
    "tailrace.pipeline": "one",
    "tailrace.source": "d.s.t",
    "tailrace.mode": "latest",
    "tailrace.upsert-keep-deletes": "false",
    "tailrace.columns": HeldTable.first(FORM, SINCE).text(),
}
COLUMNS = {"id": IntegerType(), "v": StringType()}


class Rows(list[dict[str, Any]]):
    """The result of a statement."""

    def select(self, *columns: str) -> Rows:
        return self

    def collect(self) -> Rows:
        return self


class Spark:
    """A session that records statements. `commits` holds the table's commits, newest first: version, operation,
    metadata."""

    def __init__(self, properties: dict[str, str], commits: Sequence[tuple[int, str, str | None]] = ()) -> None:
        self.properties, self.commits = properties, commits
        self.said: list[str] = []
        self.doubled: list[dict[str, Any]] = []

    def sql(self, statement: str) -> Rows:
        self.said.append(statement)
        if statement.startswith("select"):
            return Rows(self.doubled)
        limit = int(statement.rsplit(maxsplit=1)[-1]) if statement.startswith("describe") else None
        named = ("version", "operation", "userMetadata")
        return Rows(dict(zip(named, commit, strict=True)) for commit in self.commits[:limit])

    def altered(self) -> list[str]:
        """Return the statements that change a table, without the records."""
        shown = [said.removeprefix("alter table delta.`/lake/s.t` ") for said in self.said if said.startswith("alter")]
        return [said for said in shown if "tailrace.columns" not in said]


def target(
    monkeypatch: pytest.MonkeyPatch,
    spark: Spark,
    columns: Mapping[str, DataType],
    policies: Policies = DEFAULTS,
    mode: str = "latest",
) -> Target:
    monkeypatch.setattr(DeltaTable, "is_there", lambda self: bool(columns))
    monkeypatch.setattr(DeltaTable, "_clear", lambda self: None)
    monkeypatch.setattr(DeltaTable, "columns", lambda self: dict(columns))
    monkeypatch.setattr(DeltaTable, "_metadata", lambda self: {"configuration": spark.properties})
    monkeypatch.setattr(DeltaTable, "_read", lambda self, most: None)
    return Target(DeltaTable(cast(SparkSession, spark), "/lake/s.t"), "d.s.t", Owner("one", mode, policies))


def test_a_new_table_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark({})
    made = target(monkeypatch, spark, {})
    monkeypatch.setattr(DeltaTable, "columns", lambda self: COLUMNS)
    assert made.prepare([(FORM, SINCE)]) == FORM
    (said,) = spark.said
    assert said.startswith("create table delta.`/lake/s.t` (`id` int, `v` string) using delta tblproperties (")
    assert "'tailrace.pipeline' = 'one'" in said
    assert "'tailrace.upsert-keep-deletes' = 'false'" in said
    assert "'delta.enableDeletionVectors' = 'true'" in said
    assert "columnMapping" not in said
    odd = BlockForm(("a b",), (pa.int32(),), (0,))
    made = target(monkeypatch, spark, {})
    monkeypatch.setattr(DeltaTable, "columns", lambda self: {"a b": IntegerType()})
    made.prepare([(odd, SINCE)])
    assert "'delta.columnMapping.mode' = 'name'" in spark.said[-1]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "of another pipeline, or of none"),
        (OWN | {"tailrace.pipeline": "two"}, "of another pipeline: two"),
        (OWN | {"tailrace.source": "d.s.u"}, "of another source's table: d.s.u"),
        (OWN | {"tailrace.mode": "log"}, "of another mode: log"),
        (OWN | {"tailrace.upsert-keep-deletes": "true"}, "created with .*upsert-keep-deletes = true"),
        ({name: text for name, text in OWN.items() if name != "tailrace.columns"}, "another program has altered"),
    ],
)
def test_a_table_of_others_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], said: str
) -> None:
    spark = Spark(properties)
    with pytest.raises(SinkError, match=said):
        target(monkeypatch, spark, COLUMNS).prepare([(FORM, SINCE)])
    assert not spark.said


def test_a_table_that_lacks_a_column_of_the_mode_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(OWN)
    made = target(monkeypatch, spark, COLUMNS)
    made.own = (("__op", "string"),)
    with pytest.raises(SinkError, match="another program has altered"):
        made.prepare([(FORM, SINCE)])


def test_what_a_table_cannot_follow_leaves_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(OWN)
    other = BlockForm(FORM.names, (pa.int32(), pa.binary()), (0,), numbers=(1, 2))
    with pytest.raises(SinkError, match="the type of its column v is now binary, and was string"):
        target(monkeypatch, spark, COLUMNS).prepare([(other, SINCE)])
    assert spark.altered() == []


def test_a_table_follows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(OWN)
    made = target(monkeypatch, spark, COLUMNS)
    wider = BlockForm(("id", "w"), (pa.int64(), pa.string()), (0,), numbers=(1, 2))
    monkeypatch.setattr(DeltaTable, "columns", lambda self: COLUMNS if not spark.altered() else LATER)
    assert made.prepare([(FORM, SINCE), (wider, ("0B", 0))]) == wider
    assert made.prepare([(FORM, SINCE), (wider, ("0B", 0))]) == wider
    assert spark.altered() == ["rename column `v` to `w`", "alter column `id` type bigint"]
    first, *_, last = (said for said in spark.said if "tailrace.columns" in said)
    assert "'delta.columnMapping.mode' = 'name'" in first
    assert "'delta.enableTypeWidening' = 'true'" in first
    assert r'"since": ["0B", 0]' in first
    assert r'"w", "w"' in last
    # The table is found again: the older form comes once more with the replayed batch.
    again = Spark(OWN | {"tailrace.columns": HeldTable.first(wider, ("0B", 0)).text()})
    made = target(monkeypatch, again, LATER)
    assert made.prepare([(FORM, SINCE), (wider, ("0B", 0))]) == wider
    assert again.altered() == []


LATER = {"id": LongType(), "w": StringType()}


ADDED = BlockForm(
    ("id", "v", "c"), (pa.int32(), pa.string(), pa.int32()), (0,), added=(2,), numbers=(1, 2, 3), values=((2, "6"),)
)
"""A form with a new column that has the value 6 in existing rows."""


def test_older_changes_of_a_log_have_no_value_of_a_new_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebuild would show nulls in rows that have the value in the source."""

    def follow(spark: Spark, mode: str, policies: Policies = DEFAULTS) -> None:
        made = target(monkeypatch, spark, COLUMNS, policies, mode)
        known = COLUMNS | {"c": IntegerType()}
        monkeypatch.setattr(DeltaTable, "columns", lambda self: known if spark.altered() else COLUMNS)
        made.prepare([(ADDED, SINCE)])

    filled = "update delta.`/lake/s.t` set `c` = cast('6' as int) where true"
    spark = Spark(OWN)
    monkeypatch.setattr(DeltaTable, "fill", lambda self, *told: self.session.sql(statements.fill(self.path, *told)))
    follow(spark, "latest")
    assert filled in spark.said
    spark = Spark(OWN | {"tailrace.mode": "log"})
    with pytest.raises(SinkError, match=r"may have values in its new column c.* Set .*added\.default = reread"):
        follow(spark, "log")
    assert spark.altered() == []
    follow(spark, "log", Policies(added_default="null"))
    assert spark.altered() == ["add columns (`c` int)"]
    assert filled not in spark.said


def test_another_key_is_taken_where_it_tells_the_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rekeyed = [(BlockForm(FORM.names, FORM.types, (1,), numbers=(1, 2)), SINCE)]
    spark = Spark(OWN)
    made = target(monkeypatch, spark, COLUMNS)
    assert made.prepare(rekeyed).key == (1,)
    with pytest.raises(SinkError, match="read again from before its key was altered"):
        made.prepare([(FORM, ("09", 0))])
    spark = Spark(OWN)
    spark.doubled = [{"1": 1}]
    with pytest.raises(SinkError, match="its key is now v, and rows of the table"):
        target(monkeypatch, spark, COLUMNS).prepare(rekeyed)
    assert spark.altered() == []


def test_names_that_differ_by_case_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    form = BlockForm(("id", "ID"), (pa.int32(), pa.int32()), (0,))
    with pytest.raises(SinkError, match="id and ID"):
        target(monkeypatch, Spark({}), {}).prepare([(form, SINCE)])


@pytest.mark.parametrize(
    ("commits", "written"),
    [
        ([(0, "CREATE TABLE", None)], ""),
        ([(2, "OPTIMIZE", None), (1, "WRITE", metadata(1, "0A@7")), (0, "CREATE TABLE", None)], "0A@7"),
        ([(2, "MERGE", metadata(2, "-")), (1, "WRITE", metadata(1, "0A@7"))], "-"),
        ([(2, "WRITE", None), (1, "WRITE", metadata(1, "0A@7"))], "?"),
        ([(2, "STREAMING UPDATE", None), (1, "WRITE", metadata(1, "0A@7"))], "?"),
        ([(2, "CREATE OR REPLACE TABLE AS SELECT", None)], "?"),
        ([(2, "SET TBLPROPERTIES", None), (1, "WRITE", metadata(1, "0A@7"))], "0A@7"),
        ([(2, "OPTIMIZE", "no json")] * 30 + [(1, "WRITE", metadata(1, "0A@7"))], "0A@7"),
        ([(number, "OPTIMIZE", "no json") for number in range(1000)], "?"),
    ],
)
def test_the_last_write_is_known(
    monkeypatch: pytest.MonkeyPatch, commits: list[tuple[int, str, str | None]], written: str
) -> None:
    made = target(monkeypatch, Spark(OWN, commits), COLUMNS)
    made.prepare([(FORM, SINCE)])
    assert made.written(2) == written
    made.note("-")
    assert made.written(3) == "-"


@pytest.mark.parametrize(
    ("commits", "version"),
    [
        ([(4, "MERGE", metadata(2, "-")), (3, "WRITE", metadata(1, "-"))], 4),
        # Commits of others after the batch are not from the source.
        ([(6, "OPTIMIZE", None), (5, "UPDATE", "mine"), (4, "MERGE", metadata(2, "-"))], 4),
        ([(2, "OPTIMIZE", None), (1, "OPTIMIZE", None)], 2),
    ],
)
def test_the_version_is_that_of_the_batch(
    monkeypatch: pytest.MonkeyPatch, commits: list[tuple[int, str, str | None]], version: int
) -> None:
    assert target(monkeypatch, Spark(OWN, commits), COLUMNS).version(2) == version


def test_a_batch_that_somebody_else_has_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta Lake takes a batch for done that a copy of the checkpoint has written, whatever its contents."""
    spark = Spark(OWN, [(3, "MERGE", metadata(7, "-", "before"))])
    made = target(monkeypatch, spark, COLUMNS)
    made.prepare([(FORM, SINCE)])
    # A replayed batch was written by an earlier process.
    assert made.written(7) == "-"
    assert made.version(7) == 3
    spark.commits = [(4, "MERGE", metadata(8, "-", made.run)), *spark.commits]
    assert made.version(8) == 4
    spark.commits = [(5, "MERGE", metadata(9, "-", "another")), *spark.commits]
    with pytest.raises(SinkError, match=r"Another process has written batch 9 .* with a copy of this pipeline's"):
        made.version(9)


def test_a_checkpoint_that_was_put_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = target(monkeypatch, Spark(OWN, [(3, "MERGE", metadata(7, "-"))]), COLUMNS)
    made.prepare([(FORM, SINCE)])
    with pytest.raises(SinkError, match="holds batch 7, and its checkpoint is at batch 6"):
        made.written(6)


def test_what_is_before_an_alteration_of_its_batch_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = OWN | {"tailrace.columns": HeldTable.first(FORM, ("0B", 0)).text()}
    commits = [(3, "SET TBLPROPERTIES", None), (2, "MERGE", metadata(7, "-"))]
    made = target(monkeypatch, Spark(begun, commits), COLUMNS)
    assert made.is_beyond([(FORM, SINCE)], 7)
    assert not made.is_beyond([(FORM, ("0B", 0))], 7)
    # Another batch, which is read again after a second snapshot.
    made = target(monkeypatch, Spark(begun, commits), COLUMNS)
    assert not made.is_beyond([(FORM, SINCE)], 8)
