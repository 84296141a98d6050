"""Tables of Iceberg in Spark: rows that go and come in one commit, once, as another reader sees them too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.errors import SinkError
from tailrace.sinks.tables.evolution import Step
from tailrace.sinks.tables.formats.base import Once
from tailrace.sinks.tables.formats.iceberg.format import Iceberg
from tailrace.sinks.tables.formats.iceberg.library import Library, is_there
from tailrace.sinks.tables.formats.iceberg.schemas import held
from tailrace.sinks.tables.formats.iceberg.table import IcebergTable
from tailrace.sinks.tables.statements import Clause, Merge

COLUMNS = (("id", "bigint"), ("v", "string"), ("n", "decimal(9,2)"), ("at", "timestamp"))
VALUES = {"id": "s.c0", "v": "s.c1", "n": "s.c2", "at": "s.c3"}
KEEPING = VALUES | {"v": "if(s.c1 is null, t.`v`, s.c1)"}
AT = datetime(2024, 2, 3, 4, 5, 6, 789)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Callable[[], IcebergTable]:
    """The table, in a new session each time."""
    if not is_there(spark):
        pytest.skip("the jars of Iceberg cannot be had")
    return lambda: IcebergTable(spark.newSession(), str(tmp_path / "t"))


def made(found: IcebergTable, count: int = 6) -> IcebergTable:
    """The table with rows 0, 1, …"""
    assert not found.is_there()
    found.create(COLUMNS, {"tailrace.pipeline": "p"})
    rows = [(number, f"v{number}", Decimal(number), AT) for number in range(count)]
    found.append(found.session.createDataFrame(rows, "id bigint, v string, n decimal(9,2), at timestamp"), once(0))
    return found


def once(batch: int, part: int | None = None) -> Once:
    return Once("p", batch, f"batch {batch}", part)


def merge(found: IcebergTable, rows: list[Any], beyond: Clause | None = None) -> Merge:
    """Rows, each with an `op`, into the table; what is null in `v` is kept."""
    frame = found.session.createDataFrame(rows, "op string, c0 bigint, c1 string, c2 decimal(9,2), c3 timestamp")
    frame.createOrReplaceTempView("changes")
    matched = (Clause("s.op = 'd'"), Clause("", KEEPING))
    return Merge("changes", "t.`id` = s.c0", matched, Clause("s.op <> 'd'", VALUES), beyond)


def rows(found: IcebergTable, version: int | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found.rows(version).select("id", "v").collect())


def test_a_merge_is_one_commit_that_marks_and_adds(table: Callable[[], IcebergTable]) -> None:
    found = made(table())
    before = found.commits(1)[0].version
    change = [
        ("u", 1, None, Decimal(7), AT),
        ("d", 2, None, None, None),
        ("c", 9, "new", None, None),
        ("d", 77, *[None] * 3),
    ]
    found.merge(merge(found, change), once(1))
    after = [(0, "v0"), (1, "v1"), (3, "v3"), (4, "v4"), (5, "v5"), (9, "new")]
    assert rows(found) == after
    assert rows(found, before) == [(number, f"v{number}") for number in range(6)]
    assert found.rows().where("id = 1").select("n", "at").first() == (Decimal(7), AT)
    # the batch is repeated, by a driver that knows nothing of it
    again = table()
    again.merge(merge(again, [("d", number, *[None] * 3) for number in range(9)]), once(1))
    again.append(again.rows(), once(0))
    assert rows(again) == after
    assert [commit.metadata for commit in again.commits(9)] == ["batch 1", "batch 0"]
    again.merge(merge(again, [("c", 2, "back", None, None)]), once(2, part=0))
    again.merge(merge(again, [("u", 2, "here", None, None)]), once(2))
    assert rows(again) == sorted([*after, (2, "here")])
    told = next(Library(again.session, again.path).snapshots())[2]
    assert (told["total-equality-deletes"], told["total-position-deletes"]) == ("0", "3")


def test_rows_that_the_batch_does_not_have(table: Callable[[], IcebergTable]) -> None:
    found = made(table())
    marked = Clause("t.`id` > 3", {"v": "'gone'"})
    found.merge(merge(found, [("u", 5, "here", None, None)], marked), once(1))
    assert rows(found) == [(0, "v0"), (1, "v1"), (2, "v2"), (3, "v3"), (4, "gone"), (5, "here")]
    found.merge(merge(found, [("u", 5, None, None, None), ("c", 6, "new", None, None)], Clause()), once(2))
    assert rows(found) == [(5, "here"), (6, "new")]
    told = next(Library(found.session, found.path).snapshots())[2]
    assert (told["total-records"], told["total-position-deletes"]) == ("2", "0")


def test_somebody_elses_commit_is_not_written_over(
    table: Callable[[], IcebergTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, commit = made(table()), Library.commit
    late = merge(found, [("u", 1, "late", None, None)])

    def slow(self: Library, *told: Any) -> int:
        monkeypatch.setattr(Library, "commit", commit)
        other = table()
        other.merge(merge(other, [("u", 1, "first", None, None)]), Once("q", 1, "another"))
        return commit(self, *told)

    monkeypatch.setattr(Library, "commit", slow)
    with pytest.raises(Exception, match="ValidationException") as caught:
        found.merge(late, once(1))
    assert Iceberg.conflict.search(str(caught.value))
    assert not isinstance(caught.value, PySparkException)
    assert (1, "first") in rows(table())
    assert found.commits(1)[0].metadata == "another"


def test_columns_are_added_and_nothing_else(table: Callable[[], IcebergTable]) -> None:
    found = made(table(), 1)
    found.alter([Step("add", "dot.ted", "array<int>"), Step("add", "a b", "string")], {"tailrace.columns": "x"})
    assert {name: kind.simpleString() for name, kind in found.columns().items()} == {
        **dict(COLUMNS), "dot.ted": "array<int>", "a b": "string"
    }  # fmt: skip
    assert found.properties()["tailrace.columns"] == "x"
    assert found.rows().where("`dot.ted` is null and `a b` is null").count() == 1
    for what in ("drop", "rename", "widen"):
        with pytest.raises(SinkError, match=f"v needs a {what}"):
            found.announce([Step("add", "w", "int"), Step(what, "v", "text")], {"tailrace.columns": "y"})
    assert found.properties()["tailrace.columns"] == "x"
    assert "w" not in found.columns()


def test_what_iceberg_has_no_type_for(table: Callable[[], IcebergTable]) -> None:
    assert held(pa.list_(pa.struct([pa.field("a", pa.int16())]))) == pa.list_(pa.struct([pa.field("a", pa.int32())]))
    with pytest.raises(SinkError, match="The column d has the type interval"):
        table().create([("d", "interval day to second")], {})


def test_another_reader_sees_the_same_rows(table: Callable[[], IcebergTable]) -> None:
    tables = pytest.importorskip("pyiceberg.table", reason="reads what was written")
    found = made(table())
    found.alter([Step("add", "tags", "array<int>")], {})
    found.merge(merge(found, [("u", 1, "w", None, None), ("d", 2, None, None, None)]), once(1))
    newest = Path(found.path, "metadata/version-hint.text").read_text("utf-8").strip()
    read = tables.StaticTable.from_metadata(f"{found.path}/metadata/v{newest}.metadata.json").scan().to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == rows(found)
    assert read.schema.field("at").type == pa.timestamp("us", tz="UTC")
