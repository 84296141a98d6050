"""spark.read of SQL Server and Db2 gives all rows at one position, however late a task reads them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.connectors.changetables import consistent_read as opening
from tailrace.connectors.changetables.consistent_read import HeldTables, held
from tailrace.connectors.changetables.log.sessions import close_idle
from tailrace.connectors.changetables.snapshot import consistent_tasks
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, PositionLost, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.monitoring.failures import cause
from tailrace.spark import options
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database
from tests.integration.changetables.test_typed import frame, run

SIGNALS = "CREATE TABLE {} (id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))"


@pytest.fixture(autouse=True)
def sessions() -> Iterator[None]:
    yield
    close_idle()


@pytest.fixture
def server(sqlserver_database: TestDatabase) -> TestDatabase:
    """Return a database with a table to which rows are written."""
    sqlserver_database.execute(SIGNALS.format("dbo.marks"))
    sqlserver_database.enable("dbo.marks")
    return sqlserver_database


def named(database: TestDatabase, **more: str) -> dict[str, str]:
    texts = {"driver.encrypt": "false", "read.signal.data.collection": "dbo.marks", "topic.prefix": "shop"}
    return database.options() | texts | more


def opened(database: TestDatabase, **more: str) -> HeldTables:
    config = parse("sqlserver", named(database, **more) | {"key.converter.schemas.enable": "false"})
    return held(config, EventSettings.from_options(config))


def rows(snapshot: HeldTables, *names: str) -> list[tuple[Any, ...]]:
    """Return columns of the rows of all tasks, which are read twice, as Spark may do."""
    from tests.fix_capture import strict

    tasks = pickle.loads(pickle.dumps(snapshot.tasks))
    found = []
    for _ in range(2):
        read = [row for task in tasks for batch in task.read() for row in batch.to_pylist()]
        assert {row["position"] for row in read} <= {snapshot.position}
        assert len({row["ordinal"] for row in read}) == len(read)
        payloads = [strict(row["value"])["payload"]["after"] for row in read]
        found.append(sorted((tuple(one[name] for name in names) for one in payloads), key=repr))
    assert found[0] == found[1]
    return found[0]


def test_changes_behind_the_position_are_undone(server: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of every kind are undone, in every part of the table, also of rows that were deleted, moved and
    recreated."""
    monkeypatch.setattr(opening, "PART_ROWS", 45)
    values = ", ".join(f"({number}, N'old {number}')" for number in range(100))
    server.execute(
        "CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v NVARCHAR(20))", f"INSERT INTO dbo.t VALUES {values}"
    )
    server.enable("dbo.t")
    snapshot = opened(server)
    assert len(snapshot.tasks) > 1
    assert not snapshot.is_read()
    expected = sorted(((number, f"old {number}") for number in range(100)), key=repr)
    server.execute(
        "UPDATE dbo.t SET v = N'new' WHERE id < 30",
        "UPDATE dbo.t SET v = N'newer' WHERE id < 10",
        "DELETE FROM dbo.t WHERE id >= 90",
        "DELETE FROM dbo.t WHERE id IN (5, 71)",
        "INSERT INTO dbo.t VALUES (5, N'again'), (1000, N'other'), (-5, N'first'), (95, NULL)",
        "UPDATE dbo.t SET id = id + 500 WHERE id BETWEEN 40 AND 50",
        "UPDATE dbo.t SET id = id + 1 WHERE id BETWEEN 60 AND 70",
        "DELETE FROM dbo.t WHERE id = 1000",
    )
    assert rows(snapshot, "id", "v") == expected
    # A row committed before the next one is in it, captured or not.
    number = server.query("SELECT count(*) FROM dbo.t")[0][0]
    assert len(rows(opened(server), "id")) == number


def test_values_that_change_tables_lack(server: TestDatabase) -> None:
    """Large values that an update leaves unchanged come from the table, or from a later change's old row."""
    server.execute(
        "CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, n INT, v NVARCHAR(MAX), note NTEXT)",
        "INSERT INTO dbo.t VALUES (1, 0, N'v1', N'n1'), (2, 0, N'v2', N'n2'), (3, 0, N'v3', NULL), (4, 0, NULL, N'n4')",
    )
    server.enable("dbo.t")
    expected = [(1, 0, "v1", "n1"), (2, 0, "v2", "n2"), (3, 0, "v3", None), (4, 0, None, "n4")]
    snapshot = opened(server)
    server.execute(
        "UPDATE dbo.t SET n = 1",
        "UPDATE dbo.t SET n = 2, v = N'w' WHERE id = 2",
        "UPDATE dbo.t SET v = NULL WHERE id IN (2, 4)",
        "UPDATE dbo.t SET n = 3 WHERE id = 2",
    )
    assert rows(snapshot, "id", "n", "v", "note") == expected
    server.execute("UPDATE dbo.t SET note = N'other' WHERE id = 1")
    found = rows(opened(server), "id", "note")
    assert found[0] == (1, "other")


def test_the_position_is_right_while_others_write(spark: SparkSession, server: TestDatabase, tmp_path: Path) -> None:
    """A stream after the position shows exactly the changes that the read lacks."""
    values = ", ".join(f"({number}, 0)" for number in range(50))
    server.execute("CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v INT)", f"INSERT INTO dbo.t VALUES {values}")
    server.enable("dbo.t")
    server.capture()
    texts = named(server, **{"table.include.list": "dbo.t"})
    stream = texts | {"snapshot.mode": "no_data"}
    assert run(frame(spark, "sqlserver", stream), tmp_path) == []
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 100
        while not ended.is_set():
            server.execute(
                f"INSERT INTO dbo.t VALUES ({number}, 1)",
                f"UPDATE dbo.t SET v = {number} WHERE id = {number % 50}",
                f"DELETE FROM dbo.t WHERE id = {number - 3}",
            )
            number += 1
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        source = read(spark, texts | {"rows": "typed"})
        assert source.schema["after"].dataType.simpleString() == "struct<id:int,v:int>"
        found = source.selectExpr("op", "position", "after.id", "after.v").collect()
    finally:
        ended.set()
        writer.join()
    server.capture()
    (position,) = {row.position for row in found}
    state: dict[int, int] = dict.fromkeys(range(50), 0)
    changes = run(frame(spark, "sqlserver", stream), tmp_path)
    assert any(row.position <= position for row in changes)
    assert any(row.position > position for row in changes)
    for row in changes:
        if row.position > position:
            continue
        if row.op == "d":
            del state[row.before.id]
        else:
            state[row.after.id] = row.after.v
    assert {row.op for row in found} == {"r"}
    assert {row.id: row.v for row in found} == state


def read(spark: SparkSession, texts: dict[str, str], connector: str = "sqlserver") -> DataFrame:
    given = {**texts, "include.schema.changes": "false"}
    return spark.read.format(f"{connector}-cdc").options(**options(given)).load()


def test_tables_that_cannot_be_read_at_a_position(server: TestDatabase, caplog: pytest.LogCaptureFixture) -> None:
    server.execute("CREATE TABLE dbo.bare (id INT)", "CREATE TABLE dbo.made (id INT PRIMARY KEY, n AS id + 1)")
    server.enable("dbo.bare", "dbo.made")
    with pytest.raises(PrerequisiteError, match=r"needs keys, and dbo\.bare has none"):
        opened(server, **{"table.include.list": "dbo.bare"})
    assert opened(server, **{"table.include.list": "dbo.made"}).tables[0].columns[-1].name == "id"
    assert "spark.read leaves out computed columns" in caplog.text
    assert "dbo.made (n)" in caplog.text
    caplog.clear()
    made = opened(server, **{"table.include.list": "dbo.made", "column.exclude.list": "dbo.made.n"})
    assert rows(made, "id") == []
    assert "computed" not in caplog.text
    for more, said in (
        ({"read.signal.data.collection": ""}, r"needs read\.signal\.data\.collection"),
        ({"read.signal.data.collection": "dbo.none"}, "has no change table"),
        ({"snapshot.isolation.mode": "read_uncommitted"}, "the log does not contain changes that are rolled back"),
        ({"data.query.mode": "function"}, "does not tell the order"),
        ({"database.names": f"{server.name},other"}, "reads one database"),
        (
            {
                "snapshot.select.statement.overrides": "dbo.made",
                "snapshot.select.statement.overrides.dbo.made": "select * from dbo.made",
                "table.include.list": "dbo.made",
                "column.exclude.list": "dbo.made.n",
            },
            "is not supported by spark.read",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            opened(server, **more)


def test_a_moment_that_is_gone(server: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    server.execute("CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v INT)", "INSERT INTO dbo.t VALUES (1, 1)")
    server.enable("dbo.t")
    snapshot = opened(server)
    server.execute("UPDATE dbo.t SET v = 2")
    server.clean_up("dbo_t", server.capture())
    with pytest.raises(PositionLost, match="cleaned up"):
        rows(snapshot, "id")
    altered = opened(server)
    server.execute("ALTER TABLE dbo.t ALTER COLUMN v BIGINT")
    with pytest.raises(PositionLost, match=r"dbo\.t was altered while it was read"):
        rows(altered, "id")
    monkeypatch.setattr(consistent_tasks, "CAPTURED_SECONDS", 0.3)
    server.stop_agent()
    marks = server.query("SELECT id FROM dbo.marks")
    with pytest.raises(PrerequisiteError, match=r"was not captured within"):
        opened(server, **{"incremental.snapshot.watermarking.strategy": "insert_delete"})
    server.start_agent()
    assert server.query("SELECT id FROM dbo.marks") == marks


def test_a_read_without_a_signal_table(spark: SparkSession, server: TestDatabase) -> None:
    with pytest.raises(Exception, match=r"spark\.read") as refused:
        read(spark, named(server, **{"read.signal.data.collection": ""})).collect()
    assert isinstance(cause(refused.value), ConfigError)


def test_db2(spark: SparkSession, db2: Db2Database) -> None:
    db2.execute(
        "CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY, AMOUNT DECIMAL(9, 2), V VARCHAR(20))",
        SIGNALS.format("INVENTORY.MARKS"),
    )
    db2.capture.register("INVENTORY", "T")
    db2.capture.register("INVENTORY", "MARKS")
    db2.capture.capture()
    db2.capture.run("INSERT INTO INVENTORY.T VALUES (1, 1.5, 'a'), (2, NULL, 'b'), (3, 3, NULL), (4, 4, 'd')")
    named = db2.options() | {
        "topic.prefix": "shop", "read.signal.data.collection": "INVENTORY.MARKS",
        "table.include.list": r"INVENTORY\.T", "include.schema.changes": "false",
    }  # fmt: skip
    config = parse("db2", named | {"key.converter.schemas.enable": "false"})
    with db2.capture.working():
        snapshot = held(config, EventSettings.from_options(config))
        # After the position, before its tasks.
        db2.execute(
            "UPDATE INVENTORY.T SET V = 'z', AMOUNT = 7 WHERE ID < 3",
            "UPDATE INVENTORY.T SET ID = 9 WHERE ID = 2",
            "DELETE FROM INVENTORY.T WHERE ID = 3",
            "INSERT INTO INVENTORY.T VALUES (2, 0, 'other'), (5, 5, 'e')",
            "DELETE FROM INVENTORY.T WHERE ID = 4",
        )
        assert rows(snapshot, "ID", "V") == [(1, "a"), (2, "b"), (3, None), (4, "d")]
        found = read(spark, named | {"rows": "typed"}, "db2").selectExpr("after.*", "position").collect()
    assert sorted((row.ID, row.V) for row in found) == [(1, "z"), (2, "other"), (5, "e"), (9, "z")]
    assert {row.position > snapshot.position for row in found} == {True}
