"""The sink `tables` writes the same rows with each format, once, in every mode, readable by others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.sinks.tables.formats.base import StoredTable
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.sinks.tables.positions import Positions, read_at
from tests.extent import by_day, is_full, turn
from tests.fix_lake import Lake
from tests.fix_postgres import Database

BIG = "lpad('', 9000, md5(random()::text) || md5(random()::text))"
"""A text that PostgreSQL stores apart from its row."""

ROWS = (
    "create table t (id int primary key, v text, n numeric(12,3), big text, at timestamptz, tags int[], s smallint)",
    "alter table t alter column big set storage external",
    f"insert into t select i, 'v' || i, i / 7.0, {BIG}, '2024-02-03 04:05:06.789+02', array[i, null], i "
    "from generate_series(1, 20) i",
)
CHANGES = (
    "update t set v = 'w' where id <= 6",
    "update t set id = id + 100 where id between 4 and 8",
    "delete from t where id in (10, 11)",
    f"insert into t values (11, 'back', 1, {BIG}, null, '{{}}', null)",
    "update t set n = null, tags = null where id in (11, 12)",
)


@pytest.fixture(params=["iceberg", pytest.param("delta", marks=pytest.mark.full)])
def stored(request: pytest.FixtureRequest, lake: Callable[..., Lake], spark: SparkSession) -> Callable[..., Lake]:
    """Yield a lake of one format. The other tests show the same for Delta Lake."""
    name = request.param
    return lambda **options: lake(sink_tables_format=name, **options)


@turn(0, 7)
def test_the_rows_that_the_source_has(stored: Callable[..., Lake], database: Database) -> None:
    """There are a snapshot, changes, values missing in the log, and a truncate, with a read after each."""
    database.execute(*ROWS)
    made = stored()
    made.run()
    made.equals("t")
    database.execute(*CHANGES)
    made.run()
    made.equals("t")
    database.execute(
        "alter table t add column later text", "update t set later = 'x' where id = 1", "truncate t",
        "insert into t (id, v, later) values (1, 'new', 'y'), (2, 'newer', null)",
    )  # fmt: skip
    made.run()
    made.equals("t")


@turn(1, 7)
def test_every_version(stored: Callable[..., Lake], database: Database) -> None:
    database.execute(*ROWS)
    made = stored(sink_tables_mode="history")
    made.run()
    database.execute(*CHANGES)
    made.run()
    columns = "id, v, n, big, tags, s"
    found = made.rows("public.t", f"{columns}, __valid_from, __valid_to")
    assert [row[:-2] for row in found if row[-1] is None] == made.source("t", columns)
    ended = [row[-2:] for row in found if row[-1] is not None]
    assert len(ended) == 15
    assert [one for one in ended if one[0] >= one[1]] == []


@turn(2, 7)
def test_deletes_that_stay(stored: Callable[..., Lake], database: Database) -> None:
    database.execute(
        "create table t (id int primary key, v int)", "insert into t select i, i from generate_series(1, 3) i"
    )
    made = stored(sink_tables_upsert__keep__deletes="true")
    made.run()
    database.execute("update t set v = 5 where id = 1", "delete from t where id = 2", "insert into t values (9, 9)")
    made.run()
    marked = [(1, 5, "false", "u"), (2, 2, "true", "d"), (3, 3, "false", "r"), (9, 9, "false", "c")]
    assert made.rows("public.t", "id, v, __deleted, __op") == marked


def test_a_crash_behind_a_commit_leaves_the_batch_in_once(
    stored: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "create table a (id int primary key, v int)",
        "create table b (id int primary key, v int)",
        "insert into a select i, 10 from generate_series(1, 100) i",
        "insert into b select i, 10 from generate_series(1, 100) i",
    )
    made = stored(sink_tables_tables_at_once="1")
    made.run()
    database.execute(
        "begin; update a set v = v + 5 where id <= 50; update b set v = v - 5, id = id + 1000 where id <= 50; "
        "insert into a values (101, 20); update b set v = v - 20 where id = 60; delete from b where id = 1001; "
        "update a set v = v + 5 where id = 1; commit"
    )
    add, left = Positions.add, by_day(("the first table", "the moment"), 2)
    own = type(FORMATS[made.entries["debezium.sink.tables.format"]].table(made.spark, str(made.path)))
    for name in ("merge", "append"):
        write = getattr(own, name)

        def written(self: StoredTable, *told: Any, _write: Any = write) -> None:
            _write(self, *told)
            if left[:1] == ["the first table"] and not self.path.endswith("positions"):
                raise RuntimeError(f"killed behind {left.pop(0)}")

        monkeypatch.setattr(own, name, written)

    def added(self: Positions, *told: Any) -> None:
        add(self, *told)
        if left[:1] == ["the moment"]:
            raise RuntimeError(f"killed behind {left.pop(0)}")

    monkeypatch.setattr(Positions, "add", added)
    for behind in tuple(left):
        with pytest.raises(Exception, match=f"killed behind {behind}"):
            made.run()
    made.run()
    moments = made.rows("tailrace_positions", "batch, whole")
    assert [whole for _, whole in moments] == [False, True]
    made.equals("a", "b")
    # An earlier moment than the newest; see test_table_maintenance, too.
    if is_full():
        database.execute("update a set v = 0 where id = 2")
        made.run()
    first = sorted(made.rows("tailrace_positions", "position, whole"))[1][0]
    moment = read_at(made.spark, str(made.path), position=first)
    tables = moment.tables["public.a"].union(moment.tables["public.b"])
    assert tables.selectExpr("sum(v)").collect()[0][0] == 2000


@turn(3, 7)
def test_every_change(stored: Callable[..., Lake], database: Database) -> None:
    database.execute("create table t (id int primary key, v int)", "insert into t values (1, 1), (2, 2)")
    made = stored(sink_tables_mode="log")
    made.run()
    database.execute("update t set v = 5, id = 9 where id = 1", "delete from t where id = 2", "truncate t")
    made.run()
    found = made.frame("public.t").orderBy("__position", "__ordinal", "__part").collect()
    told = [(row["__op"], row["id"], row["v"], row["__part"]) for row in found if row["__op"] != "r"]
    assert [(op, key, part) for op, key, _, part in told] == [("d", 1, 0), ("c", 9, 1), ("d", 2, 0), ("t", None, 0)]
    assert told[1][2] == 5
