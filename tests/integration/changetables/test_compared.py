"""`tailrace verify` reads rows of SQL Server and Db2, the keys that changes touch, and knows when
the log is complete."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tailrace.columns.blocks import ROWS
from tailrace.columns.table import TableSchema
from tailrace.connectors import registry
from tailrace.connectors.consistent_read import ComparedSource
from tailrace.errors import ConfigError
from tailrace.events.event_settings import EventSettings
from tdsserver.process import TestDatabase
from tests.fix_db2 import Db2Database
from tests.waiting import until


def opened(connector: str, options: dict[str, str]) -> ComparedSource:
    """Return a reader of the source, not begun."""
    config = registry.parse(connector, options | {"topic.prefix": "p", "row.blocks": "last"})
    opening = registry.find(connector).load_verify_source()
    assert opening is not None
    return opening(config, replace(EventSettings.from_options(config, "verify"), blocks=ROWS))


def rows(of: ComparedSource, table: TableSchema) -> list[tuple[Any, ...]]:
    """Return the rows of a table in comparable form."""
    batches = [batch for task in of.of_table(table) for batch in task.read()]
    found = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    return sorted(found, key=repr)


def keys(of: ComparedSource, table: TableSchema, after: str) -> list[tuple[bytes, ...]]:
    """Return the keys that changes after a position touch."""
    touched = of.touched(table, after, of.position)
    assert not touched.everything
    return sorted(zip(*touched.columns, strict=True))


def test_sql_server(sqlserver_database: TestDatabase) -> None:
    """Rows captured before the read are in it; the keys of all later changes are reported once all are captured."""
    database = sqlserver_database
    database.execute(
        "CREATE TABLE dbo.signals (id VARCHAR(42) NOT NULL PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
        "CREATE TABLE dbo.t (part NCHAR(2) NOT NULL, id INT NOT NULL, v NVARCHAR(MAX), PRIMARY KEY (part, id))",
        "CREATE TABLE dbo.other (id INT NOT NULL PRIMARY KEY)",
        "CREATE TABLE dbo.[odd name] (raw VARBINARY(8) NOT NULL PRIMARY KEY)",
        "INSERT INTO dbo.[odd name] VALUES (0x0006), (0x0007)",
        *(f"INSERT INTO dbo.t VALUES (N'it', {i}, N'v{i}')" for i in range(5)),
    )
    database.enable("dbo.t", "dbo.other", "dbo.signals")
    database.execute("UPDATE dbo.t SET v = N'w' WHERE id = 0")
    database.capture()
    options = database.options(signal_data_collection=f"{database.name}.dbo.signals") | {"driver.encrypt": "false"}
    with closing(opened("sqlserver", options)) as found:
        found.take()
        other, t = found.tables
        assert (str(other.id), str(t.id)) == ("dbo.other", "dbo.t")
        database.stop_agent()
        database.execute(
            "UPDATE dbo.t SET v = N'x' WHERE id = 1",
            "UPDATE dbo.t SET id = 9 WHERE id = 2",
            "DELETE FROM dbo.t WHERE id = 3",
        )
        shown = rows(found, t)
        assert shown == [("it", 0, "w"), ("it", 1, "x"), ("it", 4, "v4"), ("it", 9, "v2")]
        assert rows(found, other) == []
        # Rows requested by their keys, one of which belongs to no row.
        asked = found.condition(["part", "id"], [["it", 1], ["it", 9], ["it's", 4]])
        assert sorted(database.query(f"SELECT id FROM dbo.t WHERE {asked}")) == [(1,), (9,)]
        asked = found.condition(["raw"], [[b"\0\7"], [b"\0\t"]])
        assert [bytes(raw) for (raw,) in database.query(f"SELECT raw FROM dbo.[odd name] WHERE {asked}")] == [b"\0\7"]
        # A change that is committed but not captured is not reported.
        assert not found.is_told()
        assert not found.is_told()
        database.start_agent()
        until(found.is_told, "the position of the read in the log")
        late = [(b"it", b"1"), (b"it", b"2"), (b"it", b"3"), (b"it", b"9")]
        assert keys(found, t, found.position) == late
        assert keys(found, other, found.position) == []
        # From a time before the read.
        start = bytes(database.query("SELECT start_lsn FROM cdc.change_tables WHERE capture_instance = 'dbo_t'")[0][0])
        assert keys(found, t, start.hex().upper() + "~") == [(b"it", b"0"), *late]
        # From a time of which nothing is known.
        assert found.touched(t, "00" * 10, found.position).everything
        assert database.query("SELECT type FROM dbo.signals") == [("snapshot-window-close",)]
    assert database.query("SELECT * FROM dbo.signals") == []


def test_a_later_commit_tells_without_a_signal_table(sqlserver_database: TestDatabase) -> None:
    database = sqlserver_database
    database.execute("CREATE TABLE dbo.t (id INT NOT NULL PRIMARY KEY, v INT)", "INSERT INTO dbo.t VALUES (1, 1)")
    database.enable("dbo.t")
    database.execute("UPDATE dbo.t SET v = 2")
    database.capture()
    options = database.options() | {"driver.encrypt": "false"}
    with closing(opened("sqlserver", options)) as found:
        found.take()
        assert not found.is_told()
        database.capture()
        assert not found.is_told()
        for number in range(200):
            # Its time may equal that of the read, because the clock of commits has steps of 3 ms.
            database.execute(f"UPDATE dbo.t SET v = {number + 3}")
            database.capture()
            if found.is_told():
                break
        assert found.is_told()
    with pytest.raises(ConfigError, match="the positions of their logs have no order"):
        opened("sqlserver", options | {"database.names": f"{database.name},other"})


def test_db2(db2: Db2Database) -> None:
    db2.execute(
        "CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL, K VARCHAR(9) NOT NULL, V VARCHAR(20), PRIMARY KEY (K, ID))",
        "CREATE TABLE INVENTORY.SIGNALS (ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32), DATA VARCHAR(2048))",
    )
    for name in ("T", "SIGNALS"):
        db2.capture.register("INVENTORY", name)
    db2.capture.run("INSERT INTO INVENTORY.T VALUES (1, 'a', 'v1'), (2, 'a', 'v2'), (3, 'a', NULL)")
    options = db2.options(signal_data_collection="INVENTORY.SIGNALS", table_include_list=r"INVENTORY\..*")
    with closing(opened("db2", options)) as found:
        found.take()
        (t,) = found.tables
        db2.execute("UPDATE INVENTORY.T SET V = 'x' WHERE ID = 1", "DELETE FROM INVENTORY.T WHERE ID = 2")
        assert rows(found, t) == [(1, "a", "x"), (3, "a", None)]
        assert not found.is_told()
        with db2.capture.working():
            until(found.is_told, "the position of the read in the log")
        assert keys(found, t, found.position) == [(b"a", b"1"), (b"a", b"2")]
    assert db2.capture.session.rows("SELECT * FROM INVENTORY.SIGNALS") == []
