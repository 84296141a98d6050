"""A pipeline from a PostgreSQL into tables, run again and again with one checkpoint."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.connectors.source_status import SourceStatus
from tailrace.errors import SinkError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.formats.known import found_at
from tailrace.sinks.tables.positions import NAME
from tailrace.status import Status
from tests.fix_postgres import Database


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
        self.counted = 0
        """The events of the last run, as the status counts them."""
        self.set(**options)

    def set(self, **options: str) -> None:
        self.entries |= {
            f"debezium.{name.replace('__', '-').replace('_', '.')}": text for name, text in options.items()
        }

    def run(self) -> None:
        """Write what the database has committed."""
        pipeline = Pipeline(from_entries(self.entries, {}), self.spark)
        try:
            query = pipeline.start(available_now=True)
            assert query.awaitTermination(400)
            described = [
                Status.of(json.loads(one.json), lambda end, newest: SourceStatus()) for one in query.recentProgress
            ]
            self.counted = sum(status.events for status in described)
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
        found = self.frame(table).where(where)
        return sorted((tuple(row) for row in found.selectExpr(*columns.split(", ")).collect()), key=repr)

    def frame(self, table: str) -> DataFrame:
        """The rows of a table, in whatever format it is."""
        path = str(self.path / table)
        return found_at(self.spark, path).table(self.spark, path).rows()

    def source(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            found = connection.execute(f"select {columns} from {table}".encode()).fetchall()
        return sorted((tuple(map(_as_spark_shows, row)) for row in found), key=repr)

    def moments(self) -> list[bool]:
        """Of the recorded moments whether they are whole, in their order."""
        found = self.spark.read.format("delta").load(str(self.path / NAME)).orderBy("batch")
        return [row.whole for row in found.collect()]

    def equals(self, *tables: str) -> None:
        """Each table is the source's, row for row."""
        for table in tables:
            assert self.rows(f"public.{table}") == self.source(table), table


@pytest.fixture
def lake(spark: SparkSession, database: Database, tmp_path: Path) -> Callable[..., Lake]:
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return lambda **options: Lake(spark, database, tmp_path, options)
