"""The binary log through the planner: transactions, images, restarts, and servers that have lost or replaced it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import PositionLost
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import Driven, driven
from tests.servers.mysql import MARIADB_10, MARIADB_11, MYSQL_8, MYSQL_57, Version

Make = Callable[[Version], MySqlDatabase]


def begun(planner: Driven) -> None:
    """Take the first offset, so that what follows is read from the log."""
    planner.until(lambda: bool(planner.offset["log"].get("file")))


def changes(planner: Driven, table: str = "t") -> list[tuple[Any, ...]]:
    """Return operation and rows of the table's changes so far."""
    return [(row["op"], row["value"]["before"], row["value"]["after"]) for row in planner.of(table)]


def ids(planner: Driven, table: str = "t") -> list[int]:
    return [(row["value"]["after"] or row["value"]["before"])["id"] for row in planner.of(table)]


def test_an_xa_transaction_comes_with_its_commit_also_over_a_restart(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (id int primary key)")
    with driven(binlog_database, snapshot_mode="no_data") as planner, binlog_database.connect() as session:
        begun(planner)
        with session.cursor() as cursor:
            for statement in ("xa start 'a'", "insert into t values (1), (2)", "xa end 'a'", "xa prepare 'a'"):
                cursor.execute(statement)
            binlog_database.execute("insert into t values (3)")
            planner.until(lambda: ids(planner) == [3])
            assert planner.offset["log"]["held"]
            with driven(binlog_database, planner.offset, snapshot_mode="no_data") as again:
                cursor.execute("xa commit 'a'")
                again.until(lambda: ids(again) == [1, 2])
                assert "held" not in again.offset["log"]
                for statement in ("xa start 'b'", "insert into t values (4)", "xa end 'b'", "xa prepare 'b'"):
                    cursor.execute(statement)
                cursor.execute("xa rollback 'b'")
                binlog_database.execute("insert into t values (5)")
                again.until(lambda: ids(again) == [1, 2, 5])


@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
def test_rows_of_decided_xa_transactions_are_not_read_again_by_later_definitions(
    make_mysql: Make, metadata: str
) -> None:
    """Reading begins at a transaction that is still prepared, before one that was committed, and its table altered."""
    database = make_mysql(MYSQL_8)
    database.execute("create table held (id int primary key)", "create table t (id int primary key, gone int, v int)")
    known = database.server.execute("select @@global.binlog_row_metadata")[0][0]
    database.server.execute(f"set global binlog_row_metadata = '{metadata}'")
    try:
        with driven(database, snapshot_mode="no_data") as planner, database.connect() as one, database.connect() as two:
            begun(planner)
            for session, name, insert in (
                (one, "a", "insert into held values (1)"), (two, "b", "insert into t values (1, 2, 3)"),
            ):  # fmt: skip
                with session.cursor() as cursor:
                    for statement in (f"xa start '{name}'", insert, f"xa end '{name}'", f"xa prepare '{name}'"):
                        cursor.execute(statement)
            with two.cursor() as cursor:
                cursor.execute("xa commit 'b'")
            database.execute("alter table t drop column gone", "insert into t values (2, 4)")
            planner.until(lambda: ids(planner) == [1, 2])
            assert planner.offset["log"]["held"]
            with driven(database, planner.offset, snapshot_mode="no_data") as again, one.cursor() as cursor:
                cursor.execute("xa commit 'a'")
                database.execute("insert into t values (3, 5)")
                again.until(lambda: ids(again) == [3])
                assert ids(again, "held") == [1]
                assert changes(again)[0][2] == {"id": 3, "v": 5}
    finally:
        database.server.execute(f"set global binlog_row_metadata = '{known}'")


def test_what_an_image_does_not_carry_is_unavailable(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (id int primary key, n int, note text)", "insert into t values (1, 1, 'a')")
    with driven(binlog_database, snapshot_mode="no_data") as planner:
        begun(planner)
        binlog_database.execute("set session binlog_row_image=NOBLOB", "update t set n=2")
        planner.until(lambda: len(changes(planner)) == 1)
    (operation, before, after) = changes(planner)[0]
    assert operation == "u"
    assert (before["n"], after["n"]) == (1, 2)
    assert after["note"] == "__debezium_unavailable_value"


def test_documents_of_partial_updates_are_exact(mysql: MySqlDatabase) -> None:
    mysql.execute("create table t (id int primary key, j json)", "insert into t values (1, '{\"a\": 1}')")
    with driven(mysql, snapshot_mode="no_data") as planner:
        begun(planner)
        mysql.execute(
            "set session binlog_row_value_options=PARTIAL_JSON",
            "update t set j=json_set(j, '$.b', json_array(1, 'x'))",
            "update t set j=json_array_insert(j, '$.b[1]', true)",
            "update t set j=json_remove(j, '$.a')",
        )
        planner.until(lambda: len(changes(planner)) == 3)
    documents = [after["j"] for _, _, after in changes(planner)]
    assert documents == ['{"a":1,"b":[1,"x"]}', '{"a":1,"b":[1,true,"x"]}', '{"b":[1,true,"x"]}']


def test_compressed_events_are_read(mariadb: MySqlDatabase) -> None:
    mariadb.execute("create table t (id int primary key, note text)")
    with driven(mariadb, snapshot_mode="no_data") as planner:
        begun(planner)
        mariadb.server.execute("set global log_bin_compress=ON, global log_bin_compress_min_len=20")
        try:
            mariadb.execute("insert into t values (1, repeat('x', 500))", "update t set note=repeat('y', 300)")
            mariadb.execute("delete from t")
            planner.until(lambda: len(changes(planner)) == 3)
        finally:
            mariadb.server.execute("set global log_bin_compress=OFF, global log_bin_compress_min_len=256")
    found = [(op, before and before["note"][:1], after and after["note"][:1]) for op, before, after in changes(planner)]
    assert found == [("c", None, "x"), ("u", "x", "y"), ("d", "y", None)]


def test_rows_behind_a_savepoint_that_was_taken_back_are_left_out(mariadb: MySqlDatabase) -> None:
    mariadb.execute("create table t (id int primary key)", "create table m (id int primary key) engine=MyISAM")
    with driven(mariadb, snapshot_mode="no_data") as planner:
        begun(planner)
        mariadb.execute(
            "begin", "insert into t values (1)", "savepoint s", "insert into t values (2)", "insert into m values (1)",
            "rollback to s", "insert into t values (3)", "commit",
        )  # fmt: skip
        planner.until(lambda: len(planner.of("t")) == 2)
    assert ids(planner) == [1, 3]
    assert ids(planner, "m") == [1]


def test_history_of_a_versioned_table_is_no_change(mariadb: MySqlDatabase) -> None:
    mariadb.execute("create table t (id int primary key, n int) with system versioning")
    with driven(mariadb, snapshot_mode="no_data") as planner:
        begun(planner)
        mariadb.execute(
            "insert into t values (1, 1), (2, 2)", "update t set n=5 where id=1", "delete from t where id=2",
            "delete history from t", "insert into t values (3, 3)",
        )  # fmt: skip
        planner.until(lambda: ids(planner)[-1:] == [3])
    held: dict[int, int] = {}
    for operation, before, after in changes(planner):
        if operation == "d":
            del held[before["id"]]
        else:
            held[after["id"]] = after["n"]
    assert held == {1: 5, 3: 3}


def test_a_batch_may_end_after_each_row_and_a_restart_goes_on_there(any_binlog_database: MySqlDatabase) -> None:
    database = any_binlog_database
    database.execute("create table t (id int primary key, note text)")
    with driven(database, snapshot_mode="no_data") as planner:
        begun(planner)
        offset = planner.offset
        database.execute(
            "begin", "insert into t values (1, 'a'), (2, 'b')", "update t set note='c' where id=1", "commit",
            "insert into t values (3, 'd')", "truncate table t", "insert into t values (4, 'e')",
        )  # fmt: skip
        planner.until(lambda: ids(planner)[-1:] == [4])
        whole = [(row["position"], row["ordinal"], row["op"]) for row in planner.of("t")]
    parts: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + 60
    while len(parts) < len(whole) and time.monotonic() < deadline:
        with driven(database, offset, snapshot_mode="no_data") as planner:
            planner.until(lambda planner=planner: planner.batch(1) or bool(planner.rows), 30)
            parts += [(row["position"], row["ordinal"], row["op"]) for row in planner.of("t")]
            offset = planner.offset
    assert parts == whole
    assert len({one[:2] for one in whole}) == len(whole)


def test_a_killed_session_is_followed_by_another(binlog_database: MySqlDatabase) -> None:
    database = binlog_database
    database.execute("create table t (id int primary key)")
    with driven(database, snapshot_mode="no_data") as planner:
        begun(planner)
        for number in range(1, 4):
            database.execute(f"insert into t values ({number})")
            planner.until(lambda number=number: ids(planner) == [*range(1, number + 1)])
            for thread, *_ in database.execute(
                "select id from information_schema.processlist where command like 'Binlog Dump%'"
            ):
                database.execute(f"kill {thread}")
        database.execute("insert into t values (4)")
        planner.until(lambda: ids(planner) == [1, 2, 3, 4])


# --- logs that are lost or replaced -----------------------------------------------------------------------------------


def read_one(database: MySqlDatabase) -> Any:
    """Return the offset behind one change."""
    database.execute("create table t (id int primary key)")
    with driven(database, snapshot_mode="no_data") as planner:
        begun(planner)
        database.execute("insert into t values (1)")
        planner.until(lambda: ids(planner) == [1])
        return planner.offset


def lost(database: MySqlDatabase, offset: Any) -> str:
    with driven(database, offset, snapshot_mode="no_data") as planner, pytest.raises(PositionLost) as raised:
        planner.until(lambda: False, 20)
    return raised.value.message


def test_a_purged_log_is_lost(binlog_database: MySqlDatabase) -> None:
    offset = read_one(binlog_database)
    server = binlog_database.server
    server.execute("flush binary logs", "flush binary logs")
    ((file, *_),) = server.execute("show master status")
    server.execute(f"purge binary logs to '{file}'")
    if file in [row[0] for row in server.execute("show binary logs")][:1]:
        assert "log" in lost(binlog_database, offset)


def test_a_log_that_was_begun_anew_is_lost(binlog_database: MySqlDatabase) -> None:
    binlog_database.server.execute("reset master")
    offset = read_one(binlog_database)
    binlog_database.server.execute("reset master")
    binlog_database.execute("drop table t", "create table t (id int primary key)", "insert into t values (1), (7)")
    assert lost(binlog_database, offset)


@pytest.mark.parametrize("versions", [(MYSQL_8, MYSQL_57), (MARIADB_11, MARIADB_10)], ids=lambda pair: pair[0].dialect)
def test_a_replica_that_has_the_transactions_takes_the_servers_place(
    versions: tuple[Version, Version], make_mysql: Make
) -> None:
    first, second = (make_mysql(version) for version in versions)
    offset = read_one(first)
    gtids = offset["log"]["gtids"]
    # the second server has executed what the first one has, and goes on
    second.server.execute("reset master")
    name = "gtid_purged" if first.server.dialect == "mysql" else "gtid_binlog_state"
    second.server.execute(f"set global {name}='{gtids}'")
    second.server.execute(f"drop database if exists {first.name}", f"create database {first.name}")
    second.server.execute("create table t (id int primary key)", "insert into t values (2), (3)", database=first.name)
    replica = MySqlDatabase(second.server, first.name)
    try:
        end = offset["log"]["end"]
        planned = {**offset, "log": {**offset["log"], "start": end, "end": end + 300}}
        with (
            driven(replica, offset, snapshot_mode="no_data") as planner,
            pytest.raises(PositionLost, match="has to be read again"),
        ):
            planner.planner.partitions(offset, planned)
        with driven(replica, offset, snapshot_mode="no_data") as planner:
            planner.until(lambda: ids(planner) == [2, 3])
            assert planner.offset["log"]["epoch"] == 1
            reached = planner.offset
        second.server.execute("insert into t values (4)", database=first.name)
        with driven(replica, reached, snapshot_mode="no_data") as planner:
            planner.until(lambda: ids(planner) == [4])
    finally:
        second.server.execute(f"drop database {first.name}")
    # a server that lacks them does not
    second.server.execute("reset master")
    assert "has not executed" in lost(replica, offset) or "were read" in lost(replica, offset)
