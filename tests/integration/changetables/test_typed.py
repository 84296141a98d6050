"""Typed rows of change tables are structs of the newest capture table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.spark import options
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database


def run(source: DataFrame, checkpoint: Path) -> list[Any]:
    """Return the present rows in order."""
    found: list[Any] = []

    def take(batch: DataFrame, number: int) -> None:
        found.extend(batch.collect())

    writer = source.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    return found


def frame(spark: SparkSession, connector: str, texts: Mapping[str, str]) -> DataFrame:
    given = {**texts, "topic.prefix": "shop", "rows": "typed", "include.schema.changes": "false"}
    return spark.readStream.format(f"{connector}-cdc").options(**options(given)).load()


def test_of_sql_server(spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.orders (id INT NOT NULL PRIMARY KEY, amount DECIMAL(9, 2), at DATETIME2(3), day DATE, "
        "name NVARCHAR(20) NOT NULL)",
        "INSERT INTO dbo.orders VALUES (1, 1.5, '2020-01-02T03:04:05.678', '2020-01-02', N'Ann')",
    )
    database.enable("dbo.orders")
    database.capture()
    texts = database.options() | {"driver.encrypt": "false"}
    source = frame(spark, "sqlserver", texts)
    assert source.schema["after"].dataType.simpleString() == (
        "struct<id:int,amount:decimal(9,2),at:timestamp_ntz,day:date,name:string>"
    )
    (row,) = run(source, tmp_path)
    assert row.after.asDict() == {
        "id": 1, "amount": Decimal("1.50"), "at": datetime(2020, 1, 2, 3, 4, 5, 678000), "day": date(2020, 1, 2),
        "name": "Ann",
    }  # fmt: skip
    database.execute(
        "UPDATE dbo.orders SET amount = 2 WHERE id = 1", "UPDATE dbo.orders SET id = 2", "DELETE FROM dbo.orders"
    )
    database.capture()
    rows = run(frame(spark, "sqlserver", texts), tmp_path)
    assert [(row.op, row.key.id) for row in rows] == [("u", 1), ("d", 1), ("c", 2), ("d", 2)]
    assert (rows[0].before.amount, rows[0].after.amount) == (Decimal("1.50"), Decimal("2.00"))
    assert [row.position for row in rows] == sorted(row.position for row in rows)


def test_of_db2(spark: SparkSession, db2: Db2Database, tmp_path: Path) -> None:
    for table in ("CUSTOMERS", "ORDERS"):
        db2.execute(f"CREATE TABLE INVENTORY.{table} (ID INTEGER NOT NULL PRIMARY KEY, AMOUNT DECIMAL(9, 2))")
        db2.capture.register("INVENTORY", table)
    db2.execute("INSERT INTO INVENTORY.CUSTOMERS VALUES (1, 1.5)")
    db2.capture.capture()
    texts = db2.options() | {"table.include.list": r"INVENTORY\.CUSTOMERS"}
    source = frame(spark, "db2", texts)
    assert source.schema["after"].dataType.simpleString() == "struct<ID:int,AMOUNT:decimal(9,2)>"
    (row,) = run(source, tmp_path)
    assert row.after.asDict() == {"ID": 1, "AMOUNT": Decimal("1.50")}
    db2.capture.run("UPDATE INVENTORY.CUSTOMERS SET AMOUNT = NULL")
    (row,) = run(frame(spark, "db2", texts), tmp_path)
    assert (row.op, row.before.AMOUNT, row.after.AMOUNT) == ("u", Decimal("1.50"), None)
    both = frame(spark, "db2", db2.options())
    assert both.schema["after"].dataType.simpleString() == "variant"
