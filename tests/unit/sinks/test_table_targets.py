"""A table of the sink `tables`: whose it is, what it grows by, and what it cannot follow. Without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.columns.blocks import Form
from tailrace.errors import SinkError
from tailrace.sinks.tables.target import Owner, Target, metadata

FORM = Form(("id", "v"), (pa.int32(), pa.string()), (0,))
OWN = {
    "tailrace.pipeline": "one",
    "tailrace.source": "d.s.t",
    "tailrace.mode": "latest",
    "tailrace.key": '["id"]',
}


class Rows(list[dict[str, Any]]):
    """What a statement gives."""

    def select(self, *columns: str) -> Rows:
        return self

    def collect(self) -> Rows:
        return self


class Spark:
    """Keeps statements; `commits` are those of the table, the newest first."""

    def __init__(self, properties: dict[str, str], commits: Sequence[tuple[str, str | None]] = ()) -> None:
        self.properties, self.commits = properties, commits
        self.said: list[str] = []

    def sql(self, statement: str) -> Rows:
        self.said.append(statement)
        if statement.startswith("show tblproperties"):
            return Rows({"key": name, "value": text} for name, text in self.properties.items())
        return Rows({"operation": operation, "userMetadata": told} for operation, told in self.commits)


def target(monkeypatch: pytest.MonkeyPatch, spark: Spark, columns: dict[str, str] | None, stops: bool = True) -> Target:
    monkeypatch.setattr(Target, "_found", lambda self: columns)
    return Target(cast(SparkSession, spark), "/lake/s.t", "d.s.t", Owner("one", "latest", stops))


def test_a_new_table_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark({})
    target(monkeypatch, spark, None).prepare(FORM)
    (made,) = spark.said
    assert made.startswith("create table delta.`/lake/s.t` (`id` int, `v` string) using delta tblproperties (")
    assert "'tailrace.pipeline' = 'one'" in made
    assert "'delta.enableDeletionVectors' = 'true'" in made
    assert "columnMapping" not in made
    odd = Form(("a b",), (pa.int32(),), (0,))
    target(monkeypatch, spark, None).prepare(odd)
    assert "'delta.columnMapping.mode' = 'name'" in spark.said[-1]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "of another pipeline, or of none"),
        (OWN | {"tailrace.pipeline": "two"}, "of another pipeline: two"),
        (OWN | {"tailrace.source": "d.s.u"}, "of another source's table: d.s.u"),
        (OWN | {"tailrace.mode": "log"}, "of another mode: log"),
        (OWN | {"tailrace.upsert-keep-deletes": "true"}, "made with .*upsert-keep-deletes = true"),
        (OWN | {"tailrace.key": '["v"]'}, "its key is made of other columns"),
    ],
)
def test_a_table_of_others_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], said: str
) -> None:
    spark = Spark(properties)
    with pytest.raises(SinkError, match=said):
        target(monkeypatch, spark, {"id": "int", "v": "string"}).prepare(FORM)
    assert all(statement.startswith("show") for statement in spark.said)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": "int", "v": "string", "w": "string"}, "it has no column w any more"),
        ({"id": "int", "v": "bigint"}, "its column v is of the type string now, and was of bigint"),
    ],
)
def test_what_a_table_cannot_follow(monkeypatch: pytest.MonkeyPatch, columns: dict[str, str], said: str) -> None:
    spark = Spark(OWN)
    with pytest.raises(SinkError, match=said):
        target(monkeypatch, spark, columns).prepare(FORM)
    assert not any(statement.startswith("alter") for statement in spark.said)


def test_a_column_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(OWN)
    made = target(monkeypatch, spark, {"id": "int"})
    made.prepare(FORM)
    made.prepare(FORM)
    assert [said for said in spark.said if said.startswith("alter")] == [
        "alter table delta.`/lake/s.t` add columns (`v` string)"
    ]


def test_a_column_with_a_default_stops_unless_it_may_be_null(monkeypatch: pytest.MonkeyPatch) -> None:
    form = Form(FORM.names, FORM.types, FORM.key, (1,))
    with pytest.raises(SinkError, match=r"its new column v has a default.*added\.default = null"):
        target(monkeypatch, Spark(OWN), {"id": "int"}).prepare(form)
    spark = Spark(OWN)
    target(monkeypatch, spark, {"id": "int"}, stops=False).prepare(form)
    assert spark.said[-1].startswith("alter")


def test_names_that_differ_by_case_alone_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    form = Form(("id", "ID"), (pa.int32(), pa.int32()), (0,))
    with pytest.raises(SinkError, match="id and ID"):
        target(monkeypatch, Spark({}), None).prepare(form)


@pytest.mark.parametrize(
    ("commits", "written"),
    [
        ([("CREATE TABLE", None)], ""),
        ([("OPTIMIZE", None), ("WRITE", metadata(1, "0A@7")), ("CREATE TABLE", None)], "0A@7"),
        ([("MERGE", metadata(2, "-")), ("WRITE", metadata(1, "0A@7"))], "-"),
        ([("WRITE", None), ("WRITE", metadata(1, "0A@7"))], "?"),
        ([("OPTIMIZE", "no json")] * 20, "?"),
    ],
)
def test_the_last_write_is_known(
    monkeypatch: pytest.MonkeyPatch, commits: list[tuple[str, str | None]], written: str
) -> None:
    made = target(monkeypatch, Spark(OWN, commits), {"id": "int", "v": "string"})
    made.prepare(FORM)
    assert made.written(2) == written
    made.note("-")
    assert made.written(3) == "-"


def test_a_checkpoint_that_was_put_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = target(monkeypatch, Spark(OWN, [("MERGE", metadata(7, "-"))]), {"id": "int", "v": "string"})
    made.prepare(FORM)
    with pytest.raises(SinkError, match="holds batch 7, and its checkpoint is at batch 6"):
        made.written(6)
