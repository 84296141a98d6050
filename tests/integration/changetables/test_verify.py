"""`tailrace verify` over change tables finds, names and repairs differences from SQL Server and Db2.

The short extent has the queries to these databases (test_compared.py), and the whole command over PostgreSQL
(integration/test_verify.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.errors import ConfigError
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.sink import TablesSink
from tailrace.verify.check import Verification
from tailrace.verify.repair import Repair
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database
from tests.integration.changetables.test_tables import Shop, of_db2, of_sql_server
from tests.integration.test_verify import found


def verification(made: Shop) -> tuple[Verification, Pipeline]:
    run = from_entries(made.entries, {})
    pipeline = Pipeline(run, made.spark)
    assert isinstance(pipeline.sink, TablesSink)
    options = pipeline.options()
    return Verification(made.spark, pipeline.sink, run.source.connector, options, run.checkpoint), pipeline


def repaired(made: Shop, wait_s: float = 300) -> dict[str, dict[object, str]]:
    """Return the differences that remain after a repair."""
    wanted, pipeline = verification(made)
    mended = Repair(made.spark, pipeline.run, wanted, print).run(wanted.run((), wait_s), wait_s)
    return found(mended)


@pytest.mark.full
def test_sql_server(spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path) -> None:
    """Rows removed, changed and added in tables are distinguished, beside changes that are not read."""
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.signals (id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        "CREATE TABLE dbo.t (id INT NOT NULL, part NCHAR(2) NOT NULL, v NVARCHAR(MAX), n DECIMAL(9, 2), "
        "at DATETIME2(3), PRIMARY KEY (part, id))",
        "CREATE TABLE dbo.[odd name] (raw VARBINARY(8) NOT NULL PRIMARY KEY, v INT)",
        "CREATE TABLE dbo.empty (id INT NOT NULL PRIMARY KEY)",
        *(f"INSERT INTO dbo.t VALUES ({i}, N'it', N'v{i}', {i}.5, '2020-01-02T03:04:05.678')" for i in range(40)),
        *(f"INSERT INTO dbo.[odd name] VALUES (0x00{i:02x}, {i})" for i in range(9)),
    )
    database.enable("dbo.t", "dbo.odd name", "dbo.empty", "dbo.signals")
    database.capture()
    source = of_sql_server(database) | {"signal.data.collection": f"{database.name}.dbo.signals"}
    made = Shop(spark, tmp_path, source)
    made.run()
    # The first whole moment is after everything that the snapshot may have shown.
    for text in ("u", "w"):
        database.execute(f"UPDATE dbo.t SET v = N'{text}' WHERE id = 1")
        database.capture()
        made.run()
    assert found(verification(made)[0].run((), 0)) == {}
    t, odd = (f"delta.`{made.path}/dbo.{name}`" for name in ("t", "odd name"))
    for statement in (
        f"delete from {t} where id in (3, 4)",
        f"update {t} set n = 0 where id = 5",
        f"update {t} set v = null where id in (6, 7)",
        f"insert into {t} select 99, part, v, n, at from {t} where id = 8",
        f"update {odd} set v = 0 where v = 7",
    ):
        spark.sql(statement)
    # Not read yet.
    database.execute("UPDATE dbo.t SET v = N'late' WHERE id = 7", "DELETE FROM dbo.t WHERE id = 9")
    seen = verification(made)[0].run((), 30)
    assert not seen.is_running
    assert found(seen) == {
        "dbo.t": {
            ("it", 3): "missing", ("it", 4): "missing", ("it", 5): "different", ("it", 6): "different",
            ("it", 7): "(different)", ("it", 9): "(extra)", ("it", 99): "extra",
        },
        "dbo.odd name": {(b"\x00\x07",): "different"},
    }  # fmt: skip
    assert repaired(made) == {}
    assert made.rows("dbo.t") == sorted(map(tuple, database.query("SELECT * FROM dbo.t")), key=repr)
    assert made.rows("dbo.odd name", "v") == [(i,) for i in range(9)]
    # The row that marked the end of the read is gone again.
    assert not database.query("SELECT id FROM dbo.signals WHERE id LIKE 'tailrace-%'")


@pytest.mark.full
def test_what_is_not_captured_yet_is_not_certain(
    spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path
) -> None:
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v INT)", "INSERT INTO dbo.t VALUES (1, 1), (2, 2)"
    )
    database.enable("dbo.t")
    database.capture()
    made = Shop(spark, tmp_path, of_sql_server(database))
    made.run()
    for number in (2, 3):
        database.execute(f"UPDATE dbo.t SET v = {number} WHERE id = 1")
        database.capture()
        made.run()
    database.stop_agent()
    database.execute("UPDATE dbo.t SET v = 4 WHERE id = 1")
    spark.sql(f"update delta.`{made.path}/dbo.t` set v = 0 where id = 2")
    undecided = {"dbo.t": {(1,): "(different)", (2,): "(different)"}}
    assert found(verification(made)[0].run((), 0)) == undecided
    database.start_agent()
    database.capture()
    # A commit after the read shows that everything before it is captured; without a signal table, none is made for
    # that.
    assert found(verification(made)[0].run((), 0)) == undecided


def test_several_databases_are_not_compared(
    spark: SparkSession, sqlserver_database: TestDatabase, tmp_path: Path
) -> None:
    made = Shop(spark, tmp_path, of_sql_server(sqlserver_database))
    made.set(source_database_names=f"{sqlserver_database.name},other")
    with pytest.raises(ConfigError, match="the positions of their logs have no order"):
        verification(made)[0].run((), 0)


@pytest.mark.full
def test_db2(spark: SparkSession, db2: Db2Database, tmp_path: Path) -> None:
    db2.execute(
        "CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL, K VARCHAR(9) NOT NULL, V VARCHAR(20), PRIMARY KEY (K, ID))",
        "CREATE TABLE INVENTORY.SIGNALS (ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32), DATA VARCHAR(2048))",
    )
    for name in ("T", "SIGNALS"):
        db2.capture.register("INVENTORY", name)
    rows = ", ".join(f"({i}, 'it''s', 'v{i}')" for i in range(30))
    db2.capture.run(f"INSERT INTO INVENTORY.T VALUES {rows}")
    made = Shop(spark, tmp_path, of_db2(db2) | {"signal.data.collection": "INVENTORY.SIGNALS"})
    made.run()
    for text in ("u", "w"):
        db2.capture.run(f"UPDATE INVENTORY.T SET V = '{text}' WHERE ID = 1")
        made.run()
    assert found(verification(made)[0].run((), 0)) == {}
    spark.sql(f"delete from delta.`{made.path}/INVENTORY.T` where ID = 3")
    spark.sql(f"update delta.`{made.path}/INVENTORY.T` set V = 'x' where ID = 4")
    db2.capture.run("UPDATE INVENTORY.T SET V = 'late' WHERE ID = 5")
    with db2.capture.working():
        seen = verification(made)[0].run((), 60)
        assert found(seen) == {
            "INVENTORY.T": {("it's", 3): "missing", ("it's", 4): "different", ("it's", 5): "(different)"}
        }
        assert repaired(made) == {}
    assert len(made.rows("INVENTORY.T")) == 30
