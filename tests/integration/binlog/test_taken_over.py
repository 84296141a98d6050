"""Offsets of Debezium that a pipeline goes on behind, and those that it refuses by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.errors import ConfigError, PositionLost, PrerequisiteError
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven


def stored(database: MySqlDatabase, **more: Any) -> dict[str, Any]:
    """Return the offset that Debezium would store at the end of the log."""
    row = database.execute("show master status")[0]
    ids = row[4] if database.server.dialect == "mysql" else database.execute("select @@gtid_binlog_pos")[0][0]
    found = {"ts_sec": 1, "file": row[0], "pos": int(row[1]), "gtids": str(ids).replace("\n", ""), "server_id": 1}
    return {name: value for name, value in (found | more).items() if value is not None}


def taking_over(offset: dict[str, Any], **options: str) -> dict[str, str]:
    return {"snapshot_mode": "no_data", "capture_start_offset": json.dumps(offset)} | options


def test_it_goes_on_behind_the_offset_also_after_a_restart(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (id int primary key, v varchar(9))", "insert into t values (1, 'before')")
    offset = stored(binlog_database)
    binlog_database.execute(
        "insert into t values (2, 'two')", "alter table t add w int first", "insert into t values (7, 3, 'three')"
    )
    with driven(binlog_database, **taking_over(offset)) as query:
        query.until(lambda: len(query.of("t")) >= 2)
        assert [row["value"]["after"] for row in query.of("t")] == [
            {"id": 2, "v": "two"}, {"w": 7, "id": 3, "v": "three"}
        ]  # fmt: skip
        reached = query.offset
    binlog_database.execute("insert into t values (8, 4, 'four')")
    # the checkpoint counts, not the option
    with driven(binlog_database, reached, **taking_over(offset)) as query:
        query.until(lambda: bool(query.of("t")))
        assert [row["value"]["after"]["id"] for row in query.of("t")] == [4]


def test_without_names_in_the_log_the_first_row_ends_it(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (a int primary key, b int)")
    offset = stored(binlog_database)
    session = binlog_database.connect()
    known = binlog_database.server.execute("select @@global.binlog_row_metadata")[0][0]
    binlog_database.server.execute("set global binlog_row_metadata = 'MINIMAL'")
    try:
        with session.cursor() as cursor:
            cursor.execute("insert into t values (1, 2)")
            # the same types under other names: nothing but the statement tells
            cursor.execute("alter table t change a b int, change b a int")
            cursor.execute("alter table t modify a int")
            cursor.execute("insert into t (a, b) values (3, 4)")
    finally:
        session.close()
        binlog_database.server.execute(f"set global binlog_row_metadata = '{known}'")
    with driven(binlog_database, **taking_over(offset)) as query:
        query.batch()
        with pytest.raises(PrerequisiteError, match=r"is not known: its definition at Debezium's offset is not known"):
            query.until(lambda: len(query.of("t")) >= 2)
        assert query.of("t") == []


def test_a_place_that_is_not_certain_is_read_again_with_a_word(
    binlog_database: MySqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    binlog_database.execute("create table t (id int primary key)")
    offset = stored(binlog_database, event=2, row=1)
    binlog_database.execute("insert into t values (1), (2)")
    # of another server the place is another
    with driven(binlog_database, **taking_over(offset | {"pos": offset["pos"] + 1000})) as query:
        query.until(lambda: len(query.of("t")) >= 2)
    assert [row["key"]["id"] for row in query.of("t")] == [1, 2]
    assert "read as a whole, and some of its changes may come twice" in caplog.text


def test_an_offset_that_the_server_does_not_have_is_refused(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (id int primary key)")
    mysql = binlog_database.server.dialect == "mysql"
    offset = stored(binlog_database)
    own = offset["gtids"].split(":")[0] if mysql else ""
    ahead = f"{own}:1-999999" if mysql else offset["gtids"].rpartition("-")[0] + "-999999"
    other = "0-1-5" if mysql else "f2989ddc-e9fa-11f1-9c10-02fc00000001:1-5"
    for changed, kind, message in (
        ({"gtids": ahead}, PositionLost, "The server has (not )?executed"),
        ({"gtids": None}, PrerequisiteError, "have ids .GTIDs. for the server, and none for the offset"),
        ({"gtids": other}, PrerequisiteError, "are those of the other server"),
    ):
        given = {name: value for name, value in (offset | changed).items() if value is not None}
        with pytest.raises(kind, match=message), driven(binlog_database, **taking_over(given)) as query:
            query.batch()


@pytest.mark.parametrize(
    ("offset", "options", "message"),
    [
        ({"snapshot": "INITIAL"}, {}, "was stored within a snapshot"),
        ({"incremental_snapshot_signal_id": "s"}, {}, "within an incremental snapshot"),
        ({"file": None}, {}, "has no log file"),
        ({"pos": "x"}, {}, "has no place"),
        ({"gtids": "?"}, {}, "has no set of transactions"),
        ({}, {"snapshot_mode": "initial"}, r"capture\.start\.offset needs snapshot\.mode=no_data"),
    ],
)
def test_an_offset_that_cannot_be_used_is_told_at_once(
    mysql: MySqlDatabase, offset: dict[str, Any], options: dict[str, str], message: str
) -> None:
    given = {"file": "binlog.000001", "pos": 4, "gtids": ""} | offset
    with pytest.raises(ConfigError, match=message), driven(mysql, **taking_over(given, **options)):
        pass
