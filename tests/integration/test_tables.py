"""The sink `tables`: tables of Delta Lake that equal those of a real PostgreSQL, after crashes too."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.errors import SinkError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables import once
from tailrace.sinks.tables.positions import Positions, read_at
from tests.fix_postgres import Database

BIG = "lpad('', 9000, md5(random()::text) || md5(random()::text))"
"""A text that PostgreSQL stores apart from its row."""


def _as_spark_shows(value: Any) -> Any:
    """Spark's instants have no zone in Python: they are those of the session's, UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


class Lake:
    """A pipeline from a database into tables under `path`, run again and again with one checkpoint."""

    def __init__(self, spark: SparkSession, database: Database, path: Path, options: dict[str, str]) -> None:
        self.spark, self.database, self.path = spark, database, path / "lake"
        source = database.options(topic_prefix="p", slot_name=f"slot_{database.name.lower()}"[:60])
        source["checkpoint.location"] = str(path / "checkpoint")
        self.entries = {f"debezium.source.{name}": text for name, text in source.items()} | {
            "debezium.sink.type": "tables",
            "debezium.sink.tables.path": str(self.path),
        }
        self.set(**options)

    def set(self, **options: str) -> None:
        self.entries |= {f"debezium.{name.replace('__', '-').replace('_', '.')}": text for name, text in options.items()}

    def run(self) -> None:
        """Write what the database has committed."""
        pipeline = Pipeline(from_entries(self.entries, {}), self.spark)
        try:
            assert pipeline.start(available_now=True).awaitTermination(400)
        except Exception as error:
            known = pipeline.cause(error)
            if known is not None:
                raise known from error
            raise
        finally:
            pipeline.stop()

    def fails(self) -> str:
        """What a run says that ends in an error of the sink."""
        with pytest.raises(SinkError) as caught:
            self.run()
        return str(caught.value)

    def rows(self, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        found = self.spark.read.format("delta").load(str(self.path / table)).where(where)
        return sorted((tuple(row) for row in found.selectExpr(*columns.split(", ")).collect()), key=repr)

    def source(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            found = connection.execute(f"select {columns} from {table}".encode()).fetchall()
        return sorted((tuple(map(_as_spark_shows, row)) for row in found), key=repr)

    def equals(self, *tables: str) -> None:
        """Each table is the source's, row for row."""
        for table in tables:
            assert self.rows(f"public.{table}") == self.source(table), table


@pytest.fixture
def lake(spark: SparkSession, database: Database, tmp_path: Path) -> Callable[..., Lake]:
    if "delta" not in spark.conf.get("spark.sql.extensions", "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return lambda **options: Lake(spark, database, tmp_path, options)


def test_latest_equals_the_source(lake: Callable[..., Lake], database: Database) -> None:
    """Snapshot, inserts, updates, deletes, key changes, truncates and values stored apart, batch by batch."""
    database.execute(
        "create table t (id int primary key, v text, n numeric(12,3), big text, at timestamptz, day date)",
        "alter table t alter column big set storage external",
        "create table \"Odd name; x\" (\"a b\" text, k bigint, primary key (k, \"a b\"), \"dot.ted\" double precision)",
        "create table emptied (id int primary key, v text)",
        f"insert into t select i, 'v' || i, i / 7.0, {BIG}, '2024-02-03 04:05:06.789+02', '2024-02-03' "
        "from generate_series(1, 50) i",
        "insert into \"Odd name; x\" select 'x' || i, i, i / 3.0 from generate_series(1, 20) i",
        "insert into emptied select i, 'old' from generate_series(1, 9) i",
    )  # fmt: skip
    made = lake()
    made.run()
    names = ("t", "emptied")
    made.equals(*names)
    assert made.rows("public.Odd name; x") == made.source('"Odd name; x"')
    database.execute(
        "update t set v = 'w' where id <= 10",
        "update t set v = 'x' where id <= 5",
        "update t set id = id + 100 where id between 4 and 8",
        "update t set v = 'moved twice', id = id + 100 where id between 104 and 105",
        f"update t set big = {BIG} where id = 20",
        "update t set n = null where id in (20, 21)",
        "delete from t where id in (30, 31)",
        f"insert into t values (31, 'back', 1, {BIG}, null, null), (60, null, null, null, null, null)",
        "delete from t where id = 60",
        "update emptied set v = 'lost'",
        "truncate emptied",
        "insert into emptied values (1, 'new'), (2, 'new')",
        "update emptied set v = 'newest' where id = 2",
        "update \"Odd name; x\" set \"a b\" = 'y' where k < 5",
    )  # fmt: skip
    made.run()
    made.equals(*names)
    assert made.rows("public.Odd name; x") == made.source('"Odd name; x"')
    database.execute("truncate emptied", "update t set v = 'last' where id > 100")
    made.run()
    made.equals(*names)


def test_a_crash_between_a_merge_and_its_commit_changes_nothing(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(
        "create table a (id int primary key, v int)",
        "create table b (id int primary key, v int)",
        "insert into a select i, 0 from generate_series(1, 100) i",
        "insert into b select i, 0 from generate_series(1, 100) i",
    )
    made = lake(sink_tables_tables_at_once="1")
    dies = random.Random(19)
    real = once.Once.run

    def ran(self: once.Once, session: SparkSession, statement: str) -> None:
        real(self, session, statement)
        if dies.random() < 0.5:
            raise RuntimeError("killed behind a MERGE")

    noted = Positions.add

    def added(self: Positions, *told: Any) -> None:
        if dies.random() < 0.3:
            raise RuntimeError("killed before the moment")
        noted(self, *told)

    made.run()
    monkeypatch.setattr(once.Once, "run", ran)
    monkeypatch.setattr(Positions, "add", added)
    deaths = 0
    for turn in range(3):
        database.execute(
            f"update a set v = v + 1 where id % 3 = {turn}",
            f"update b set v = v + 1, id = id + 1000 where id % 5 = {turn}",
            f"delete from a where id = {turn + 1}",
        )
        for _ in range(12):
            try:
                made.run()
                break
            except Exception as error:
                assert "killed" in str(error)
                deaths += 1
        made.equals("a", "b")
    assert deaths
    batches = made.rows("tailrace_positions", "batch")
    assert len(batches) == len(set(batches))
    for name in ("a", "b"):
        history = made.spark.sql(f"describe history delta.`{made.path}/public.{name}`").collect()
        merges = [row["userMetadata"] for row in history if row["operation"] == "MERGE"]
        assert len(merges) == len(set(merges)), "one MERGE for each batch"
