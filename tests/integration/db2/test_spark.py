"""The source `db2-cdc` works in Spark: options through Spark's reader, batches, a checkpoint that continues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import sinks
from tailrace.connectors.registry import parse
from tailrace.spark import options, register
from tests.fix_db2 import Db2Database


def deliver(spark: SparkSession, database: Db2Database, folder: Path) -> None:
    """Read all present changes into JSON lines below `folder`, from its checkpoint."""
    register(spark)
    given = database.options(table_include_list=r"MYSCHEMA\..*", value_converter_schemas_enable="false")
    frame = spark.readStream.format("db2-cdc").options(**options(parse("db2", given).texts)).load()
    sink = sinks.open("file", {"path": str(folder / "out")})
    sink.start(frame, folder / "checkpoint", {"availableNow": True}).awaitTermination()


def ops(folder: Path) -> list[str | None]:
    """Return the operations of the table's records in order; None for a tombstone."""
    lines = [line for path in sorted((folder / "out").glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    records = [json.loads(line) for line in lines]
    return [one["value"] and one["value"]["op"] for one in records if one["topic"].endswith(".CUSTOMERS")]


@pytest.mark.full
def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, customers: Db2Database, tmp_path: Path) -> None:
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    deliver(spark, customers, tmp_path)
    assert ops(tmp_path) == ["r"]
    customers.capture.run("UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x'", "DELETE FROM MYSCHEMA.CUSTOMERS")
    deliver(spark, customers, tmp_path)
    assert ops(tmp_path) == ["r", "u", "d", None]
