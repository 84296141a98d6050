"""The sink `tables` over change tables makes Delta Lake tables that equal those of SQL Server and Db2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import ConfigError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.positions import read_at
from tdsserver.process import TestDatabase
from tests.extent import sized, turn
from tests.fix_db2 import Db2Database
from tests.fix_lake import Lake, step


class Shop(Lake):
    """A pipeline from a database with the options `source` into tables; by a query of Spark in a full run."""

    def __init__(self, spark: SparkSession, path: Path, source: dict[str, str], **options: str) -> None:
        if "delta" not in spark.conf.get("spark.sql.extensions", "").lower():
            pytest.skip("the jars of Delta Lake cannot be had")
        self.spark, self.path = spark, path / "lake"
        named = source | {"topic.prefix": "shop", "checkpoint.location": str(path / "checkpoint")}
        self.entries = {f"debezium.source.{name}": text for name, text in named.items()} | {
            "debezium.sink.type": "tables",
            "debezium.sink.tables.path": str(self.path),
        }
        self.set(**options)

    def drain(self, pipeline: Pipeline) -> int:
        return sized(step, super().drain)(pipeline)


def of_sql_server(database: TestDatabase) -> dict[str, str]:
    return database.options() | {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "driver.encrypt": "false",
        "include.schema.changes": "false",
    }


def of_db2(database: Db2Database) -> dict[str, str]:
    return database.options() | {
        "connector.class": "io.debezium.connector.db2.Db2Connector",
        "include.schema.changes": "false",
        "table.include.list": r"INVENTORY\..*",
    }


@turn(6, 7)
def test_latest_of_sql_server(spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    """There are a snapshot, updates, deletes, key changes, nulls of columns that change tables
    leave out, and moments."""
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.t (id INT NOT NULL, part NCHAR(2) NOT NULL, v NVARCHAR(MAX), note NTEXT, n DECIMAL(9, 2), "
        "at DATETIME2(3), PRIMARY KEY (part, id))",
        "INSERT INTO dbo.t VALUES (1, N'a', N'v1', N'note 1', 1.5, '2020-01-02T03:04:05.678'), "
        "(2, N'a', N'v2', N'note 2', 2, NULL), (3, N'b', NULL, NULL, NULL, NULL), (4, N'b', N'v4', N'note 4', 4, NULL)",
    )
    database.enable("dbo.t")
    database.capture()
    made = Shop(spark, tmp_path, of_sql_server(database))

    def check() -> None:
        made.run()
        assert made.rows("dbo.t") == sorted(map(tuple, database.query("SELECT * FROM dbo.t")), key=repr)

    check()
    assert not any(made.moments())
    database.execute(
        "UPDATE dbo.t SET v = N'w' WHERE id = 1",
        "UPDATE dbo.t SET note = NULL, v = NULL WHERE id = 2",
        "UPDATE dbo.t SET id = 5, part = N'c' WHERE id = 4",
        "DELETE FROM dbo.t WHERE id = 3",
        "INSERT INTO dbo.t VALUES (3, N'b', N'again', N'back', 3.25, NULL), (9, N'z', NULL, NULL, NULL, NULL)",
        "DELETE FROM dbo.t WHERE id = 9",
    )
    database.capture()
    check()
    database.execute("UPDATE dbo.t SET part = N'q' WHERE id = 5", "DELETE FROM dbo.t WHERE id = 2")
    database.capture()
    check()
    # Moments of commits that came after the snapshot.
    assert made.moments()[-1]
    moment = read_at(spark, str(made.path))
    assert moment.tables["dbo.t"].count() == 3


@pytest.mark.full
def test_history_and_log_of_sql_server(spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v INT)", "INSERT INTO dbo.t VALUES (1, 10), (2, 20)"
    )
    database.enable("dbo.t")
    database.capture()
    lakes = {
        mode: Shop(spark, tmp_path / mode, of_sql_server(database), sink_tables_mode=mode)
        for mode in ("history", "log")
    }
    for made in lakes.values():
        made.run()
    database.execute(
        "UPDATE dbo.t SET v = 11 WHERE id = 1", "UPDATE dbo.t SET id = 3 WHERE id = 2", "DELETE FROM dbo.t"
    )
    database.capture()
    for made in lakes.values():
        made.run()
    versions = lakes["history"].rows("dbo.t", "id, v, __valid_to is null")
    assert versions == [(1, 10, False), (1, 11, False), (2, 20, False), (3, 20, False)]
    changes = lakes["log"].spark.read.format("delta").load(str(lakes["log"].path / "dbo.t"))
    ordered = changes.orderBy("__position", "__ordinal", "__part").select("__op", "id", "v").collect()
    shown: list[tuple[Any, ...]] = [tuple(row) for row in ordered]
    assert shown[2:5] == [("u", 1, 11), ("d", 2, 20), ("c", 3, 20)]
    assert sorted(shown[5:]) == [("d", 1, 11), ("d", 3, 20)]


@pytest.mark.full
def test_latest_of_db2(spark: SparkSession, db2: Db2Database, tmp_path: Path) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY, AMOUNT DECIMAL(9, 2), V VARCHAR(20))")
    db2.capture.register("INVENTORY", "T")
    db2.execute("INSERT INTO INVENTORY.T VALUES (1, 1.5, 'a'), (2, NULL, 'b'), (3, 3, NULL)")
    db2.capture.capture()
    made = Shop(spark, tmp_path, of_db2(db2))

    def check() -> None:
        made.run()
        found = db2.capture.session.rows("SELECT * FROM INVENTORY.T")
        assert made.rows("INVENTORY.T", "ID, cast(AMOUNT as string), V") == sorted(
            ((row[0], None if row[1] is None else str(row[1]), row[2]) for row in found), key=repr
        )

    check()
    db2.capture.run(
        "UPDATE INVENTORY.T SET AMOUNT = NULL WHERE ID = 1",
        "UPDATE INVENTORY.T SET ID = 5, V = 'moved' WHERE ID = 2",
        "DELETE FROM INVENTORY.T WHERE ID = 3",
    )
    db2.capture.run("INSERT INTO INVENTORY.T VALUES (3, 4, 'back')")
    check()
    db2.capture.run("UPDATE INVENTORY.T SET V = 'last' WHERE ID = 5")
    check()
    assert made.moments()[-1]


def test_rows_that_are_not_committed_are_no_source(
    spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path
) -> None:
    sqlserver_database.execute("CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY)")
    sqlserver_database.enable("dbo.t")
    made = Shop(spark, tmp_path, of_sql_server(sqlserver_database) | {"snapshot.isolation.mode": "read_uncommitted"})
    with pytest.raises(ConfigError, match=r"snapshot\.isolation\.mode"):
        made.run()
