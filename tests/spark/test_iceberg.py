"""In tables of Iceberg, rows are removed and added in one commit, once, and other readers see the same rows."""

from __future__ import annotations

import re
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
from tailrace.sinks.tables.evolution import ColumnStep
from tailrace.sinks.tables.formats.base import WriteId
from tailrace.sinks.tables.formats.iceberg.library import Library, is_there
from tailrace.sinks.tables.formats.iceberg.schemas import held
from tailrace.sinks.tables.formats.iceberg.table import Iceberg, IcebergTable
from tailrace.sinks.tables.statements import Clause, Merge
from tests.extent import turn

COLUMNS = (("id", "bigint"), ("v", "string"), ("n", "decimal(9,2)"), ("at", "timestamp"))
VALUES = {"id": "s.c0", "v": "s.c1", "n": "s.c2", "at": "s.c3"}
KEEPING = VALUES | {"v": "if(s.c1 is null, t.`v`, s.c1)"}
AT = datetime(2024, 2, 3, 4, 5, 6, 789)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Callable[[], IcebergTable]:
    """Yield the table in a new session each time."""
    if not is_there(spark):
        pytest.skip("the jars of Iceberg cannot be had")
    return lambda: IcebergTable(spark.newSession(), str(tmp_path / "t"))


def made(found: IcebergTable, count: int = 6) -> IcebergTable:
    """Create the table with rows 0, 1, …"""
    assert not found.is_there()
    found.create(COLUMNS, {"tailrace.pipeline": "p"})
    rows = [(number, f"v{number}", Decimal(number), AT) for number in range(count)]
    found.append(found.session.createDataFrame(rows, "id bigint, v string, n decimal(9,2), at timestamp"), once(0))
    return found


def once(batch: int, part: int | None = None) -> WriteId:
    return WriteId("p", batch, f"batch {batch}", part)


def merge(found: IcebergTable, rows: list[Any], beyond: Clause | None = None) -> Merge:
    """Merge rows, each with an `op`, into the table; a null in `v` keeps the value."""
    frame = found.session.createDataFrame(rows, "op string, c0 bigint, c1 string, c2 decimal(9,2), c3 timestamp")
    frame.createOrReplaceTempView("changes")
    matched = (Clause("s.op = 'd'"), Clause("", KEEPING))
    return Merge("changes", "t.`id` = s.c0", matched, Clause("s.op <> 'd'", VALUES), beyond)


def rows(found: IcebergTable, version: int | None = None) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found.rows(version).select("id", "v").collect())


def test_a_table_whose_making_was_cut_off_is_made_again(table: Callable[[], IcebergTable]) -> None:
    """An interrupted creation leaves metadata under a temporary name; a data file beside it means a later state."""
    found = table()
    left = Path(found.path, "metadata", "5cd6f3f0-2b8c-4d51-9c59-4f1f6ed3ce63.metadata.json")
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    strange = Path(found.path, "data", "5cd6f3f0-2b8c-4d51-9c59-4f1f6ed3ce63", "part-0.parquet")
    strange.parent.mkdir(parents=True)
    strange.touch()
    assert found.is_there()
    strange.unlink()
    assert rows(made(found)) == [(number, f"v{number}") for number in range(6)]
    assert table().is_there()


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
    # The batch is repeated by a driver that knows nothing of the first write.
    again = table()
    again.merge(merge(again, [("d", number, *[None] * 3) for number in range(9)]), once(1))
    again.append(again.rows(), once(0))
    assert rows(again) == after
    assert [commit.metadata for commit in again.commits(9)] == ["batch 1", "batch 0"]
    again.merge(merge(again, [("c", 2, "back", None, None)]), once(2, part=0))
    again.merge(merge(again, [("u", 2, "here", None, None)]), once(2))
    assert rows(again) == sorted([*after, (2, "here")])
    told = next(Library(again.session, again.path).snapshots()).summary
    assert (told["total-equality-deletes"], told["total-position-deletes"]) == ("0", "3")
    # Another reader sees the same rows.
    tables = pytest.importorskip("pyiceberg.table", reason="reads what was written")
    read = tables.StaticTable.from_metadata(newest(again)).scan().to_arrow()
    assert sorted(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == sorted([*after, (2, "here")])
    assert read.schema.field("at").type == pa.timestamp("us", tz="UTC")


@turn(0, 6)
def test_rows_that_the_batch_does_not_have(table: Callable[[], IcebergTable]) -> None:
    found = made(table())
    marked = Clause("t.`id` > 3", {"v": "'gone'"})
    found.merge(merge(found, [("u", 5, "here", None, None)], marked), once(1))
    assert rows(found) == [(0, "v0"), (1, "v1"), (2, "v2"), (3, "v3"), (4, "gone"), (5, "here")]
    found.merge(merge(found, [("u", 5, None, None, None), ("c", 6, "new", None, None)], Clause()), once(2))
    assert rows(found) == [(5, "here"), (6, "new")]
    told = next(Library(found.session, found.path).snapshots()).summary
    assert (told["total-records"], told["total-position-deletes"]) == ("2", "0")


@turn(1, 6)
def test_rows_are_mended_by_no_batch(table: Callable[[], IcebergTable]) -> None:
    found = made(table())
    found.session.sql("select explode(array(1L, 2L, 77L)) k0").createOrReplaceTempView("lost")
    found.mend(Merge("lost", "t.`id` <=> s.k0 and t.v <> 'v2'", (Clause("", {"v": "'mended'"}),), None))
    found.mend(Merge("lost", "t.`id` <=> s.k0 and t.v = 'v2'", (Clause(),), None))
    assert rows(found) == [(0, "v0"), (1, "mended"), (3, "v3"), (4, "v4"), (5, "v5")]
    assert [commit.metadata for commit in found.commits(9)] == [None, None, "batch 0"]
    found.append(found.rows(), once(0))
    assert len(rows(found)) == 5


@turn(2, 6)
def test_somebody_elses_commit_is_not_written_over(
    table: Callable[[], IcebergTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, commit = made(table()), Library.commit
    late = merge(found, [("u", 1, "late", None, None)])

    def slow(self: Library, *told: Any) -> int:
        monkeypatch.setattr(Library, "commit", commit)
        other = table()
        other.merge(merge(other, [("u", 1, "first", None, None)]), WriteId("q", 1, "another"))
        return commit(self, *told)

    monkeypatch.setattr(Library, "commit", slow)
    with pytest.raises(Exception, match="ValidationException") as caught:
        found.merge(late, once(1))
    assert Iceberg.conflict.search(str(caught.value))
    assert not isinstance(caught.value, PySparkException)
    assert (1, "first") in rows(table())
    assert found.commits(1)[0].metadata == "another"


def newest(found: IcebergTable) -> str:
    """Return the path of the newest metadata."""
    number = Path(found.path, "metadata/version-hint.text").read_text("utf-8").strip()
    return f"{found.path}/metadata/v{number}.metadata.json"


def alter(found: IcebergTable, *steps: ColumnStep) -> None:
    found.announce(steps, {"tailrace.columns": "announced"})
    found.alter(steps, {"tailrace.columns": "altered"})


@turn(3, 6)
def test_columns_wander_and_keep_their_values(table: Callable[[], IcebergTable]) -> None:
    """Columns keep their values when they are dropped and renamed, their names reused, their types widened, or when
    Spark writes no ids for them."""
    found = made(table(), 2)
    before = found.commits(1)[0].version
    alter(found, ColumnStep("drop", "n"), ColumnStep("drop", "at"))
    alter(found, ColumnStep("rename", "v", "w"))
    alter(found, ColumnStep("add", "v", "int"), ColumnStep("add", "N", "decimal(9,2)"), ColumnStep("add", "f", "float"))
    # A driver without knowledge of the earlier steps.
    found = table()
    change = "select 7L c0, 'w7' c1, 70 c2, 7.5bd c3, 0.5f c4"
    found.session.sql(change).createOrReplaceTempView("changes")
    values = {name: f"s.c{place}" for place, name in enumerate(("id", "w", "v", "N", "f"))}
    found.merge(Merge("changes", "t.`id` = s.c0", (Clause("", values),), Clause("", values)), once(1))
    mixed = [(0, "v0", None, None, None), (1, "v1", None, None, None), (7, "w7", 70, Decimal("7.50"), 0.5)]
    assert sorted(tuple(row) for row in found.rows().select("id", "w", "v", "N", "f").collect()) == mixed
    alter(
        found,
        ColumnStep("widen", "v", "bigint"),
        ColumnStep("widen", "N", "decimal(30,2)"),
        ColumnStep("widen", "f", "double"),
    )
    alter(
        found,
        ColumnStep("rename", "v", "v2"),
        ColumnStep("rename", "w", "dot.ted"),
        ColumnStep("add", "v", "array<int>"),
    )
    found = table()
    values = {name: f"t.`{name}`" for name in ("id", "dot.ted", "N", "f")} | {"v2": "5000000000L", "v": "array(1)"}
    found.session.sql("select 7L c0").createOrReplaceTempView("changes")
    found.merge(Merge("changes", "t.`id` = s.c0", (Clause("", values),), Clause("false", values)), once(2))
    wide = [(0, "v0", None, None, None, None), (1, "v1", None, None, None, None),
            (7, "w7", 5000000000, Decimal("7.50"), 0.5, [1])]  # fmt: skip
    assert sorted(tuple(row) for row in found.rows().select("id", "`dot.ted`", "v2", "N", "f", "v").collect()) == wide
    assert found.columns()["N"].simpleString() == "decimal(30,2)"
    # Now files have only names, and a name that a column has left belongs to another column.
    alter(found, ColumnStep("drop", "dot.ted"), ColumnStep("rename", "v", "tags"))
    alter(found, ColumnStep("add", "v", "string"), ColumnStep("add", "dot.ted", "string"))
    found.append(found.session.sql("select 8L id, 8L v2, 8bd N, 8d f, array(8) tags, 'v8' v, 'd8' `dot.ted`"), once(3))
    shown = ("id", "v2", "tags", "v", "`dot.ted`")
    last = sorted(tuple(row) for row in found.rows().select(*shown).collect())
    assert last == [(0, None, None, None, None), (1, None, None, None, None), (7, 5000000000, [1], None, None),
                    (8, 8, [8], "v8", "d8")]  # fmt: skip
    # Older versions are unchanged.
    assert rows(found, before) == [(0, "v0"), (1, "v1")]
    assert found.rows(before).columns == ["id", "v", "n", "at"]
    tables = pytest.importorskip("pyiceberg.table", reason="reads what was written")
    read = tables.StaticTable.from_metadata(newest(found)).scan().to_arrow()
    names = [name.strip("`") for name in shown]
    assert sorted(zip(*(read[name].to_pylist() for name in names), strict=True)) == last


def test_types_that_iceberg_does_not_widen(table: Callable[[], IcebergTable]) -> None:
    found = table()
    found.create([("a", "int"), ("d", "date"), ("n", "decimal(9,2)")], {"tailrace.columns": "x"})
    refused = (("a", "double"), ("a", "decimal(12,2)"), ("d", "timestamp_ntz"), ("n", "decimal(12,4)"))
    for name, kind in refused:
        steps = [ColumnStep("add", "w", "int"), ColumnStep("rename", name, "z"), ColumnStep("widen", "z", kind)]
        with pytest.raises(SinkError, match=f"z is now {re.escape(kind)}, and Iceberg cannot widen"):
            found.announce(steps, {"tailrace.columns": "y"})
    assert found.properties()["tailrace.columns"] == "x"
    assert list(found.columns()) == ["a", "d", "n"]


def test_what_iceberg_has_no_type_for(table: Callable[[], IcebergTable]) -> None:
    assert held(pa.list_(pa.struct([pa.field("a", pa.int16())]))) == pa.list_(pa.struct([pa.field("a", pa.int32())]))
    with pytest.raises(SinkError, match="The column d has the type interval"):
        table().create([("d", "interval day to second")], {})


def files_of(found: IcebergTable) -> set[str]:
    """Return the present data files and delete files."""
    return {str(file) for file in Path(found.path, "data").rglob("*.parquet")}


@turn(4, 6)
def test_files_are_put_together_and_old_ones_removed(table: Callable[[], IcebergTable]) -> None:
    found = made(table(), 4)
    for number in range(1, 4):
        change = [("c", 10 * number, "new", None, None), ("d", number, *[None] * 3), ("u", 0, f"w{number}", None, None)]
        found.merge(merge(found, change), once(number))
    before, after = found.commits(1)[0].version, [(0, "w3"), (10, "new"), (20, "new"), (30, "new")]
    data, deletes = found.now().data, found.now().deletes
    assert len(deletes) >= 3
    assert found.compact().startswith(f"{len(data)} files compacted into 1, ")
    assert rows(found) == rows(found, before) == after
    assert (len(found.now().data), found.now().deletes) == (1, ())
    assert found.compact() == "0 files compacted into 0, 0 of deletes into 0"
    # A driver without this knowledge finds the pipeline's last batch before the commits of maintenance.
    again = table()
    again.merge(merge(again, [("d", 0, *[None] * 3)]), once(3))
    assert rows(again) == after
    assert not again.commits(1)[0].changes
    left = Path(again.path, "data", "5cd6f3f0-2b8c-4d51-9c59-4f1f6ed3ce63", "part-0.parquet")
    left.parent.mkdir()
    left.write_bytes(b"of a write that has failed")
    assert again.clean(before, 1) == "0 snapshots expired, 0 unreferenced files removed"
    assert rows(again, before) == after
    # The pipeline's newest commit stays, however old it is.
    told = again.clean(None, 0)
    assert re.fullmatch(r"3 snapshots expired, [1-9]\d* unreferenced files removed", told)
    assert rows(again, before) == rows(again) == after
    assert not left.exists()
    again = table()
    again.append(again.rows(), once(3))
    again.append(again.session.sql("select 77L id, 'w3' v, 1bd n, null at"), once(4))
    again.clean(None, 0)
    assert rows(again) == [*after, (77, "w3")]
    assert files_of(again) == set(again.now().data)
    with pytest.raises(SinkError, match="no longer keeps its version"):
        again.rows(before)


@turn(5, 6)
def test_a_merge_that_loses_against_maintenance_is_run_again(
    table: Callable[[], IcebergTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, commit = made(table()), Library.commit
    found.merge(merge(found, [("c", 6, "six", None, None)]), once(1))
    besides = [lambda: table().compact(), lambda: str(table().remove("id = 5"))]

    def slow(self: Library, *told: Any) -> int:
        if besides and {"tailrace.batch": "2"}.items() <= told[3].items():
            besides.pop(0)()
        return commit(self, *told)

    monkeypatch.setattr(Library, "commit", slow)
    found.merge(merge(found, [("u", 1, "late", None, None), ("d", 6, *[None] * 3)]), once(2))
    assert not besides
    after = [(0, "v0"), (1, "late"), (2, "v2"), (3, "v3"), (4, "v4")]
    assert rows(found) == rows(table()) == after


@pytest.mark.full
def test_maintenance_that_loses_against_a_merge_leaves_the_table_as_it_is(
    table: Callable[[], IcebergTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rewrite = made(table(), 3), Library.rewrite
    found.merge(merge(found, [("c", 6, "six", None, None)]), once(1))

    def overtaken(self: Library, *told: Any) -> int:
        monkeypatch.setattr(Library, "rewrite", rewrite)
        other = table()
        other.merge(merge(other, [("u", 2, "first", None, None)]), once(2))
        return rewrite(self, *told)

    monkeypatch.setattr(Library, "rewrite", overtaken)
    with pytest.raises(Exception, match="ValidationException") as caught:
        found.compact()
    assert Iceberg.conflict.search(str(caught.value))
    found.compact()
    assert rows(found) == [(0, "v0"), (1, "v1"), (2, "first"), (6, "six")]
    # A file without live rows, and a table of one file.
    found.remove("id < 9")
    found.compact()
    assert (rows(found), found.now().data) == ([], ())
