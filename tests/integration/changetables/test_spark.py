"""Whole pipelines over change tables, in Spark and into files, run first and from their checkpoint.

In the short extent a golden case of Db2 runs through Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.pipeline import Pipeline
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database


def run(spark: SparkSession, folder: Path, connector: str, options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Run a pipeline up to the captured changes. Return every record written so far, in the order of positions."""
    entries = {f"debezium.source.{name}": text for name, text in options.items()} | {
        "debezium.source.connector.class": connector,
        "debezium.source.checkpoint.location": str(folder / "checkpoint"),
        "debezium.format.schemas.enable": "false",
        "debezium.sink.type": "parquet",
        "debezium.sink.parquet.path": str(folder / "out"),
    }
    pipeline = Pipeline(from_entries(entries), spark)
    assert pipeline.start(available_now=True).awaitTermination(120)
    rows = pq.read_table(str(folder / "out")).to_pylist()
    return sorted(rows, key=lambda row: (row["position"], row["ordinal"]))


def brief(rows: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(row["table"], row["op"], json.loads(row["key"])["ID" if row["table"].isupper() else "id"]) for row in rows]


def test_a_pipeline_of_sql_server(spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.orders (id INT NOT NULL PRIMARY KEY, customer INT)",
        "CREATE TABLE dbo.customers (id INT NOT NULL PRIMARY KEY, name NVARCHAR(20))",
        "INSERT INTO dbo.customers VALUES (1, N'Ann'), (2, N'Bob')",
    )
    database.enable("dbo.customers", "dbo.orders")
    database.capture()
    options = database.options() | {
        "topic.prefix": "shop",
        "driver.encrypt": "false",
        "include.schema.changes": "false",
    }
    rows = run(spark, tmp_path, "io.debezium.connector.sqlserver.SqlServerConnector", options)
    assert brief(rows) == [("customers", "r", 1), ("customers", "r", 2)]
    database.execute(
        "BEGIN TRANSACTION; INSERT INTO dbo.orders VALUES (10, 1); "
        "UPDATE dbo.customers SET name = N'Eve' WHERE id = 1; INSERT INTO dbo.orders VALUES (11, 1); COMMIT",
        "UPDATE dbo.orders SET id = 12 WHERE id = 11",
        "DELETE FROM dbo.customers WHERE id = 2",
    )
    database.capture()
    rows = run(spark, tmp_path, "io.debezium.connector.sqlserver.SqlServerConnector", options)
    # One order over all tables, within a transaction as well.
    assert brief(rows)[2:] == [
        ("orders", "c", 10),
        ("customers", "u", 1),
        ("orders", "c", 11),
        ("orders", "d", 11),
        ("orders", "tombstone", 11),
        ("orders", "c", 12),
        ("customers", "d", 2),
        ("customers", "tombstone", 2),
    ]
    changes = [row for row in rows[2:] if row["op"] != "tombstone"]
    assert len({(row["position"], row["ordinal"]) for row in changes}) == len(changes)
    again = run(spark, tmp_path, "io.debezium.connector.sqlserver.SqlServerConnector", options)
    assert brief(again) == brief(rows)


@pytest.mark.full
def test_a_pipeline_of_db2(spark: SparkSession, db2: Db2Database, tmp_path: Path) -> None:
    for table in ("CUSTOMERS", "ORDERS"):
        db2.execute(f"CREATE TABLE INVENTORY.{table} (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20))")
        db2.capture.register("INVENTORY", table)
    db2.execute("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 'Ann'), (2, 'Bob')")
    db2.capture.capture()
    options = db2.options() | {"topic.prefix": "shop", "include.schema.changes": "false"}
    rows = run(spark, tmp_path, "io.debezium.connector.db2.Db2Connector", options)
    assert brief(rows) == [("CUSTOMERS", "r", 1), ("CUSTOMERS", "r", 2)]
    db2.capture.run(
        "INSERT INTO INVENTORY.ORDERS VALUES (10, 'x')",
        "UPDATE INVENTORY.CUSTOMERS SET NAME = 'Eve' WHERE ID = 1",
        "INSERT INTO INVENTORY.ORDERS VALUES (11, 'y')",
    )
    db2.capture.run("UPDATE INVENTORY.ORDERS SET ID = 12 WHERE ID = 11", "DELETE FROM INVENTORY.CUSTOMERS WHERE ID = 2")
    rows = run(spark, tmp_path, "io.debezium.connector.db2.Db2Connector", options)
    assert brief(rows)[2:] == [
        ("ORDERS", "c", 10),
        ("CUSTOMERS", "u", 1),
        ("ORDERS", "c", 11),
        ("ORDERS", "d", 11),
        ("ORDERS", "tombstone", 11),
        ("ORDERS", "c", 12),
        ("CUSTOMERS", "d", 2),
        ("CUSTOMERS", "tombstone", 2),
    ]
