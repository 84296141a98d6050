"""Typed rows of PostgreSQL: `rows=typed` as a stream, and `spark.read` at one position."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from tailrace.connectors.postgres.consistent_read import held
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, SchemaChanged
from tailrace.events.event_settings import EventSettings
from tailrace.monitoring.failures import cause
from tailrace.spark import options, register
from tests.fix_postgres import Database

TYPES = """create table t (
    id int primary key, n numeric(12, 2), free numeric, wide numeric(50, 3), flag bool not null, at timestamp,
    zoned timestamptz, day date, hour time, bits bit(9), raw bytea, list int[], texts text[], doc jsonb, tag uuid,
    small int2, big int8, real float4, double float8, span interval, big_text text)"""
DECLARED = {
    "id": "int", "n": "decimal(12,2)", "free": "string", "wide": "string", "flag": "boolean", "at": "timestamp_ntz",
    "zoned": "timestamp", "day": "date", "hour": "string", "bits": "binary", "raw": "binary", "list": "array<int>",
    "texts": "array<string>", "doc": "string", "tag": "string", "small": "smallint", "big": "bigint", "real": "float",
    "double": "double", "span": "interval day to second", "big_text": "string",
}  # fmt: skip


def frame(spark: SparkSession, database: Database, **more: str) -> DataFrame:
    register(spark)
    texts = database.options(**{"topic.prefix": "s", "slot.name": database.name, "rows": "typed", **more})
    return spark.readStream.format("postgres-cdc").options(**options(texts)).load()


def run(source: DataFrame, checkpoint: Path, chosen: Callable[[DataFrame], DataFrame] | None = None) -> list[Any]:
    """Return the rows of everything up to now, in order."""
    found: list[Any] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend((chosen(batch) if chosen else batch).collect())

    writer = source.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    return found


def test_rows_have_the_tables_columns(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        TYPES,
        "alter table t alter big_text set storage external",
        """insert into t values (1, 1.50, 12345.678901, 1234567890123456789012345678901234567890.125, true,
           '2020-02-03 04:05:06.123456', '2020-02-03 04:05:06.123456+02', '2020-02-03', '04:05:06.5', B'100000001',
           '\\x0102', '{1,null,3}', '{a,"b c"}', '{"a": 1}', '00000000-0000-0000-0000-000000000007', 1, 2, 1.5, 2.5,
           '1 day', repeat('x', 10000))""",
        "insert into t (id, flag) values (2, false)",
    )
    source = frame(spark, database)
    kinds = {field.name: field.dataType.simpleString() for field in source.schema["after"].dataType}
    assert kinds == DECLARED
    assert source.schema["before"].dataType == source.schema["after"].dataType
    assert source.schema["key"].dataType.simpleString() == "struct<id:int>"
    one, two = run(source, tmp_path)
    assert (one.op, two.op, one.snapshot, one.table, one.before, one.value) == ("r", "r", "first", "t", None, None)
    assert one.key.id == 1
    assert one.after.asDict() | {"span": None} == {
        "id": 1, "n": Decimal("1.50"), "free": "12345.678901",
        "wide": "1234567890123456789012345678901234567890.125", "flag": True,
        "at": datetime(2020, 2, 3, 4, 5, 6, 123456), "zoned": one.after.zoned, "day": date(2020, 2, 3),
        "hour": "04:05:06.500000", "bits": bytearray(b"\x01\x01"), "raw": bytearray(b"\x01\x02"),
        "list": [1, None, 3], "texts": ["a", "b c"], "doc": '{"a": 1}',
        "tag": "00000000-0000-0000-0000-000000000007", "small": 1, "big": 2, "real": 1.5, "double": 2.5,
        "span": None, "big_text": "x" * 10000,
    }  # fmt: skip
    assert one.after.zoned.astimezone(UTC) == datetime(2020, 2, 3, 2, 5, 6, 123456, UTC)
    assert {name: value for name, value in two.after.asDict().items() if value is not None} == {"id": 2, "flag": False}

    database.execute(
        "update t set n = 2 where id = 1", "update t set id = 3 where id = 2", "delete from t where id = 1"
    )
    rows = run(frame(spark, database), tmp_path)
    assert [row.op for row in rows] == ["u", "d", "c", "d"]
    update, left, made, deleted = rows
    assert (update.after.n, update.after.big_text, update.unavailable) == (Decimal("2.00"), None, ["big_text"])
    assert (made.unavailable, deleted.unavailable, deleted.after) == (None, None, None)
    assert (left.key.id, left.before.id, made.key.id, made.after.id) == (2, 2, 3, 3)
    # values of a deleted row that the log does not carry are null, also in NOT NULL columns
    assert (deleted.before.id, deleted.before.flag) == (1, None)
    assert update.source.connector == "postgresql"
    assert [row.position for row in rows] == sorted(row.position for row in rows)


def test_some_columns_alone_and_a_schema_of_ones_own(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key, v text, n int)", "insert into t values (1, 'a', 5)")
    narrow = frame(spark, database, row_columns="op,after")
    assert narrow.columns == ["op", "after"]
    ((op, after),) = run(narrow, tmp_path / "one")
    assert (op, after.v) == ("r", "a")
    texts = database.options(topic_prefix="s", slot_name=f"{database.name}_b", rows="typed")
    own = spark.readStream.format("postgres-cdc").options(**options(texts))
    own = own.schema("position string, after struct<n: string, id: bigint, other: date>")
    database.execute("alter table t add column late int default 3")
    ((_, row),) = run(own.load(), tmp_path / "two")
    assert row.asDict() == {"n": "5", "id": 1, "other": None}


def test_composites_are_structs(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "create type inner_type as (n numeric(5, 1), t text)",
        "create type outer_type as (id int, i inner_type, l int[], at timestamp, p pg_lsn)",
        "create table t (id int primary key, c outer_type, many inner_type[])",
        r"""insert into t values (1, row(5, row(1.5, 'a "b", (c\d)'), '{1,2}', '2020-01-02 03:04:05', '0/1'),
           array[row(2, 'x')::inner_type, null, row(null, '')::inner_type])""",
    )
    source = frame(spark, database)
    assert source.schema["after"].dataType.simpleString() == (
        "struct<id:int,c:struct<id:int,i:struct<n:decimal(5,1),t:string>,l:array<int>,at:timestamp_ntz>,"
        "many:array<struct<n:decimal(5,1),t:string>>>"
    )
    database.execute("insert into t (id, c) select 2, c from t")
    for row in run(source, tmp_path):
        found = row.after.asDict(recursive=True)
        assert found["c"] == {
            "id": 5, "i": {"n": Decimal("1.5"), "t": 'a "b", (c\\d)'}, "l": [1, 2],
            "at": datetime(2020, 1, 2, 3, 4, 5),
        }  # fmt: skip
        many = [{"n": Decimal("2.0"), "t": "x"}, None, {"n": None, "t": ""}]
        assert found["many"] == (many if row.after.id == 1 else None)
    running = frame(spark, database)
    database.execute("alter type outer_type add attribute late text", "update t set c.late = 'z' where id = 2")
    assert isinstance(failed(running, tmp_path), SchemaChanged)
    (row,) = run(frame(spark, database), tmp_path)
    assert (row.after.c.late, row.after.c.id) == ("z", 5)


def test_several_tables_are_variants(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "create table a (id int primary key, v numeric(5, 1))", "insert into a values (1, 2.5)",
        "create table b (name text primary key, at date, l int[])", "insert into b values ('x', '2020-01-02', '{1,2}')",
    )  # fmt: skip
    source = frame(spark, database)
    assert [source.schema[name].dataType.simpleString() for name in ("key", "before", "after")] == ["variant"] * 3
    assert source.schema["source"].dataType.simpleString().startswith("struct<version:string,")
    rows = {row.table: row for row in run(source, tmp_path)}
    assert rows["a"].key.toPython() == {"id": 1}
    assert rows["a"].after.toPython() == {"id": 1, "v": Decimal("2.5")}
    assert rows["b"].after.toPython() == {"name": "x", "at": date(2020, 1, 2), "l": [1, 2]}
    database.execute("update a set v = 3.5", "delete from b")

    def chosen(batch: DataFrame) -> DataFrame:
        return batch.selectExpr("op", "variant_get(after, '$.v', 'decimal(5,1)') as v", "before")

    changed = {row.op: row for row in run(frame(spark, database), tmp_path, chosen)}
    assert (changed["u"].v, changed["u"].before, changed["d"].v) == (Decimal("3.5"), None, None)
    assert changed["d"].before.toPython() == {"name": "x", "at": None, "l": None}


def failed(source: DataFrame, checkpoint: Path) -> BaseException | None:
    with pytest.raises(Exception, match=r"(?s).+") as error:
        run(source, checkpoint)
    return cause(error.value)


def test_an_altered_table_stops_the_query_and_the_next_start_goes_on(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key, gone text)", "insert into t values (1, 'a')")
    before = frame(spark, database)
    assert len(run(before, tmp_path)) == 1
    database.execute(
        "insert into t values (2, 'b')", "alter table t add column fresh int", "insert into t values (3, 'c', 7)"
    )
    # a query with the old schema may be defined before the table is altered, and run after
    stopped = failed(before, tmp_path)
    assert isinstance(stopped, SchemaChanged)
    assert "public.t has the column fresh at the position" in stopped.message
    database.execute("alter table t drop column gone", "insert into t values (4, 8)")
    # changes before this schema may have columns that were dropped
    rows = run(frame(spark, database), tmp_path)
    assert [row.after.asDict() for row in rows] == [
        {"id": 2, "fresh": None}, {"id": 3, "fresh": 7}, {"id": 4, "fresh": 8}
    ]  # fmt: skip


def test_a_column_that_was_widened_and_one_that_cannot_be_shown(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key, v int, w text)", "insert into t values (1, 1, 'a')")
    assert len(run(frame(spark, database), tmp_path)) == 1
    database.execute(
        "insert into t values (2, 2, 'b')", "alter table t alter v type bigint", "insert into t values (3, 3)"
    )
    assert [row.after.v for row in run(frame(spark, database), tmp_path)] == [2, 3]
    database.execute("insert into t values (4, 4, 'x')", "alter table t alter w type int using 5")
    stopped = failed(frame(spark, database), tmp_path)
    assert isinstance(stopped, SchemaChanged)
    assert "public.t has values of the type string in after.w" in stopped.message


def test_a_table_without_a_key_has_no_column_key(spark: SparkSession, database: Database) -> None:
    database.execute("create table t (v text)")
    assert "key" not in frame(spark, database).columns
    with pytest.raises(Exception, match=r"row\.columns names key, and the table has no key"):
        frame(spark, database, row_columns="key")


def test_what_is_refused(spark: SparkSession, database: Database) -> None:
    database.execute("create table t (id int primary key)")
    for more, said in (
        ({"row.columns": "vaule"}, "row.columns names vaule, which is not a column of the rows; the nearest is value"),
        ({"transforms": "a", "transforms.a.type": "x"}, "not supported with rows = typed"),
        ({"rows": "arrow"}, "rows must be one of bytes, typed"),
    ):
        with pytest.raises(Exception, match=r"rows|row\.columns|transforms") as refused:
            frame(spark, database, **more)
        found = cause(refused.value)
        assert isinstance(found, ConfigError)
        assert said in found.message


def read(spark: SparkSession, database: Database, **more: str) -> DataFrame:
    register(spark)
    texts = database.options(topic_prefix="s", **more)
    return spark.read.format("postgres-cdc").options(**options(texts)).load()


def test_a_read_is_of_one_position(spark: SparkSession, database: Database) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, repeat('x', 300) from generate_series(1, 40000) i",
    )
    source = read(spark, database, rows="typed", row_columns="position,after,op,table")
    assert source.rdd.getNumPartitions() > 1
    found = source.selectExpr("position", "op", "after.id").collect()
    assert sorted(row.id for row in found) == list(range(1, 40001))
    assert {row.op for row in found} == {"r"}
    (position,) = {row.position for row in found}
    with database.connect() as connection:
        row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
        assert row is not None
        assert 0 < int(position, 16) < row[0]
        slots = connection.execute("select count(*) from pg_replication_slots").fetchone()
        assert slots == (0,)
    # each action of the DataFrame reads at a position of its own, and all tasks of an action at the same position
    database.execute("delete from t where id > 10")
    assert source.count() == 10
    database.execute("insert into t values (11)")
    ids = source.select("after.id")
    assert ids.join(ids.withColumnRenamed("id", "other"), ids.id == col("other")).count() == 11
    kept = source.persist()
    assert kept.count() == 11
    database.execute("insert into t values (12)")
    assert kept.count() == 11
    kept.unpersist()
    assert sorted(row.id for row in ids.collect()) == [*range(1, 13)]


def test_a_read_has_the_changes_up_to_its_position_and_no_other(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.execute("create table t (id int primary key)")
    assert run(frame(spark, database, **{"snapshot.mode": "no_data"}), tmp_path) == []
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        with database.connect() as connection:
            number = 0
            while not ended.is_set():
                connection.execute("insert into t values (%s)", (number,))
                number += 1
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        found = read(spark, database, rows="typed").selectExpr("position", "after.id").collect()
    finally:
        ended.set()
        writer.join()
    (position,) = {row.position for row in found}
    changes = run(frame(spark, database, **{"snapshot.mode": "no_data"}), tmp_path)
    assert {row.after.id for row in changes if row.position <= position} == {row.id for row in found}
    assert any(row.position > position for row in changes)


def test_a_snapshot_is_read_by_its_tasks_until_it_is_closed(database: Database) -> None:
    database.execute("create table t (id int primary key)", "insert into t select generate_series(1, 1000)")
    config = parse("postgres", database.options(topic_prefix="s"))
    snapshot = held(config, EventSettings.from_options(config))
    assert not snapshot.is_read()
    (task,) = pickle.loads(pickle.dumps(snapshot.tasks))
    rows = task.read()
    assert next(rows).num_rows == 1000
    assert snapshot.is_read()
    list(rows)
    snapshot.close()
    with database.connect() as connection:
        # the server ends the session by itself
        open_ones = "select from pg_stat_activity where datname = %s and state = 'idle in transaction'"
        deadline = time.monotonic() + 60
        while connection.execute(open_ones, (database.name,)).fetchone() is not None:
            assert time.monotonic() < deadline
    with pytest.raises(ConnectionFailed, match=r"Load again: that takes a new snapshot"):
        list(task.read())


def test_a_read_of_events_and_of_nothing(spark: SparkSession, database: Database) -> None:
    database.execute("create table t (id int primary key)")
    assert read(spark, database).collect() == []
    database.execute("insert into t values (1)")
    (row,) = read(spark, database, key_converter_schemas_enable="false").collect()
    assert (row.key, row.op, row.topic) == (b'{"id":1}', "r", "s.public.t")


def test_a_read_without_what_it_needs(spark: SparkSession, database: Database) -> None:
    with pytest.raises(Exception, match=r"(?s).+") as refused:
        read(spark, database, rows="typed", database_password="wrong", database_user="nobody_such")
    assert isinstance(cause(refused.value), ConnectionFailed | PrerequisiteError)
