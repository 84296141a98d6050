"""Rows of MySQL and MariaDB outside of a stream: at one position, compared with a copy, and looked up by key."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tailrace.config import Config, TableFilter, parse
from tailrace.connectors.binlog.captured_tables import captured
from tailrace.connectors.binlog.consistent_read import held
from tailrace.connectors.binlog.row_lookup import owned_gtids, present
from tailrace.connectors.binlog.server.connection import connect
from tailrace.connectors.binlog.snapshot.chunks import TableSnapshots
from tailrace.connectors.binlog.snapshot.progress import SnapshotProgress
from tailrace.connectors.binlog.snapshot.row_lookup import PresentRows
from tailrace.connectors.binlog.snapshot.tasks import SnapshotTask
from tailrace.connectors.binlog.verify_source import compared
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.process.runtime import THREADS
from tests import waiting
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import CONNECTORS

RUN = "00000000-0000-0000-0000-000000000000"


def configured(database: MySqlDatabase, **options: str) -> tuple[Config, EventSettings]:
    found = CONNECTORS[database.server.dialect]
    given = database.options(**({"value_converter_schemas_enable": "false"} | options))
    config = parse(found.traits, found.load_options(), given, lambda name: "")
    return config, EventSettings.from_options(config, RUN)


def afters(tasks: Iterator[Task] | tuple[Task, ...]) -> list[Any]:
    """Return the rows of tasks."""
    found = [
        json.loads(value) for task in tasks for batch in task.read() for value in batch.column("value").to_pylist()
    ]
    return [value["after"] for value in found]


def test_all_rows_are_read_at_one_position(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table t (id int primary key, v varchar(9))", "insert into t values (1, 'a'), (2, 'b')",
        "create table keyless (v int)", "insert into keyless values (1), (1)",
    )  # fmt: skip
    config, settings = configured(binlog_database)
    with closing(held(config, settings)) as read:
        binlog_database.execute("update t set v = 'later'", "insert into keyless values (2)")
        assert sorted(map(str, afters(read.tasks))) == sorted(
            map(str, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"v": 1}, {"v": 1}])
        )
        assert [str(table.id).partition(".")[2] for table in read.tables] == ["keyless", "t"]
        position = read.position

    assert captured(config, settings).position > position


def test_tasks_of_a_snapshot_that_is_closed_say_so(mysql: MySqlDatabase) -> None:
    mysql.execute("create table t (id int primary key)", "insert into t values (1)")
    with closing(held(*configured(mysql))) as read:
        tasks = read.tasks

    with pytest.raises(ConnectionFailed, match="has ended, or runs on another host"):
        afters(tasks)


def test_keys_that_changed_behind_a_position_are_told(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table t (id int primary key, v int)", "create table u (id int primary key)",
        "insert into t values (1, 1), (2, 1), (3, 1), (4, 1)",
    )  # fmt: skip
    config, settings = configured(binlog_database)
    with closing(compared(config, settings)) as before:
        before.take()
        start = before.position
    binlog_database.execute(
        "update t set v = 2 where id = 2", "delete from t where id = 3", "insert into t values (9, 1)",
        "insert into u values (5)",
    )  # fmt: skip

    with closing(compared(config, settings)) as after:
        after.take()
        (table,) = (one for one in after.tables if one.id.table == "t")
        found = after.touched(table, start, after.position)
        rows = afters(tuple(after.of_table(table)))

    assert not found.everything
    assert set(found.columns[0]) == {b"2", b"3", b"9"}
    assert sorted(row["id"] for row in rows) == [1, 2, 4, 9]
    condition = after.condition(["id"], [[2], [9]])
    assert binlog_database.execute(f"select id from t where {condition} order by id") == [(2,), (9,)]


KEYS = (
    ("int", "7", b"7"),
    ("bigint unsigned", "18446744073709551615", b"18446744073709551615"),
    ("decimal(10,2)", "-1.50", b"-1.50"),
    ("float", "0.1", b"0.1"),
    ("double", "1e100", b"1e100"),
    ("varchar(20) character set latin1", "'é'", "é".encode()),
    ("varchar(20)", "'a\\\\b''c'", b"a\\b'c"),
    ("binary(4)", "x'00ff'", b"\\x00ff0000"),
    ("enum('x','y')", "'y'", b"y"),
    ("bit(9)", "b'100000001'", b"\\x0101"),
    ("year", "2024", b"2024"),
    ("date", "'2024-02-29'", b"2024-02-29"),
    ("datetime(3)", "'2024-02-29 01:02:03.120'", b"2024-02-29 01:02:03.120"),
    ("timestamp(3) default current_timestamp(3)", "'2024-02-29 01:02:03.120'", b"2024-02-29 01:02:03.120"),
    ("time(1)", "'-838:59:58.5'", b"-838:59:58.5"),
)


@pytest.mark.parametrize(("of", "value", "text"), KEYS, ids=[of.partition(" ")[0] for of, _, _ in KEYS])
def test_a_row_is_found_by_the_logs_text_of_its_key(
    binlog_database: MySqlDatabase, of: str, value: str, text: bytes
) -> None:
    binlog_database.execute(
        f"create table t (k {of} primary key, v blob, f float)", f"insert into t values ({value}, x'0aff', 0.1)"
    )
    config, settings = configured(binlog_database)
    (table,) = captured(config, settings).tables

    found = list(PresentRows(config).of_keys(table, ("k",), [(text.decode(),)], ["v", "f"]))

    assert [(list(places), [column.to_pylist() for column in columns]) for places, columns in found] == [
        ([0], [[b"\\x0aff"], [b"0.10000000149011612"]])
    ]


def test_keys_that_the_collation_takes_for_equal_are_other_keys(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table t (k varchar(9) primary key, v int)", "insert into t values ('A', 1), ('b', 2)"
    )
    config, settings = configured(binlog_database)
    (table,) = captured(config, settings).tables

    found = list(PresentRows(config).of_keys(table, ("k",), [("a",), ("b",), ("c",)], ["v"]))

    assert [(list(places), [column.to_pylist() for column in columns]) for places, columns in found] == [
        ([1], [[b"2"]])
    ]


def test_a_look_up_waits_for_transactions_that_have_an_id_and_are_not_over(mysql: MySqlDatabase) -> None:
    mysql.execute("create table t (id int primary key)")
    config, settings = configured(mysql)
    name = (mysql.name, mysql.name, "t")
    with closing(present(config, settings)) as tables, mysql.connect() as session, session.cursor() as cursor:
        tables.table(name)
        # an id of its own, as a transaction has between its place in the log and its commit
        cursor.execute(f"set gtid_next = '{uuid.uuid4()}:1'")
        cursor.execute("begin")
        cursor.execute("insert into t values (1)")
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(tables.table, name)
            waiting.until(lambda: count(mysql, "gtid_owned") > 1, "the look-up asked again")
            assert not found.done()
            cursor.execute("commit")
            found.result(10)
        cursor.execute("set gtid_next = 'automatic'")


def count(mysql: MySqlDatabase, words: str) -> int:
    """Return how often a statement with the words has run."""
    query = "select coalesce(sum(count_star), 0) from performance_schema.events_statements_summary_by_digest"
    ((found,),) = mysql.execute(f"{query} where digest_text like '%{words}%' and digest_text not like '%digest%'")
    return int(found)


@pytest.mark.parametrize("mode", ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE"])
def test_without_gtids_a_look_up_is_refused(mysql: MySqlDatabase, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr("tailrace.connectors.binlog.row_lookup.rows", lambda session, statement: [(mode, "")])
    mysql.execute("create table t (id int primary key)")
    with closing(present(*configured(mysql))) as tables, pytest.raises(PrerequisiteError, match="gtid_mode=ON"):
        tables.table((mysql.name, mysql.name, "t"))


def test_ids_that_sessions_own_are_read() -> None:
    assert owned_gtids("") == set()
    assert owned_gtids("a-b:1#7:3#9, c-d:tag:5#8") == {("a-b", "1"), ("a-b", "3"), ("c-d:tag", "5")}


def test_a_task_that_does_not_reach_the_planner_reads_by_itself(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table t (id int primary key)", "insert into t values (1), (2)",
        "create table keyless (v int)", "insert into keyless values (1)",
    )  # fmt: skip
    config, settings = configured(binlog_database)
    snapshots = TableSnapshots(
        config, settings, TableFilter(config), lambda: connect(config), lambda table: table, 1, THREADS
    )
    try:
        plan, bounds = snapshots.start()
        progress = SnapshotProgress(plan, bounds, snapshots.point, len(plan))
        tasks = [task for task in snapshots.tasks(progress, 0, 9) if isinstance(task, SnapshotTask)]
    finally:
        snapshots.close()
    by_name = {task.table.id.table: task for task in tasks}

    assert afters((by_name["t"],)) == [{"id": 1}, {"id": 2}]
    with pytest.raises(ConnectionFailed, match="runs on another host"):
        afters((by_name["keyless"],))
    binlog_database.execute("alter table t add column v int")
    with pytest.raises(ConnectionFailed, match="was altered"):
        afters((by_name["t"],))


def test_a_snapshot_waits_for_prepared_transactions_and_then_refuses(
    mysql: MySqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.connectors.binlog.snapshot.point.XA_SECONDS", 0.0)
    mysql.execute("create table t (id int primary key)")
    with mysql.connect() as session, session.cursor() as cursor:
        cursor.execute(f"xa start '{mysql.name}'")
        cursor.execute("insert into t values (1)")
        cursor.execute(f"xa end '{mysql.name}'")
        cursor.execute(f"xa prepare '{mysql.name}'")
        try:
            with pytest.raises(PrerequisiteError, match="XA transactions are prepared"):
                held(*configured(mysql))
        finally:
            cursor.execute(f"xa rollback '{mysql.name}'")
