"""Heartbeats and logical messages: each once, in order, at any interruption."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.fix_postgres import Database
from tests.fix_query import Query, row
from tests.waiting import until


def test_heartbeats_move_an_idle_slot_and_run_their_statement(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)", "create table beats (n int)")
    one = query(
        **{
            "snapshot.mode": "no_data",
            "table.include.list": "public.t",
            "heartbeat.interval.ms": "100",
            "heartbeat.action.query": "insert into beats values (1)",
            "poll.interval.ms": "50",
        }
    )
    one.step()
    deadline = time.monotonic() + 60
    positions = []
    while len(one.heartbeats) < 4 and time.monotonic() < deadline:
        if one.step():
            positions.append(one.committed["log"]["idle"])
    assert len(one.heartbeats) == 4
    assert sorted(set(one.heartbeats)) == one.heartbeats
    assert positions[0] < positions[-1]
    with database.connect() as connection:
        assert connection.execute("select count(*) from beats").fetchone() == (4,)
    database.execute("insert into t values (7)")
    assert one.until(1) == [("c", "t", (b"7",))]
    beaten = len(one.heartbeats)
    assert one.drain_now() == 0
    assert len(one.heartbeats) == beaten


def test_the_heartbeat_of_a_batch_is_the_same_when_the_batch_is_replayed(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data", "heartbeat.interval.ms": "1", "heartbeat.action.query": "no sql"})
    one.step()
    before = len(one.heartbeats)
    database.execute("insert into t values (1)")
    while one.planned is None or one.planned["log"]["commit"] == "0/0":
        one.step(commit=one.planned is not None)
    planned = one.planned["heartbeat_ms"]
    one.kill()
    until(lambda: time.time_ns() // 1_000_000 > planned + 1, "another time of a heartbeat")
    one.step()
    assert one.changes == [("c", "t", (b"1",))]
    assert one.heartbeats[-1] == planned
    assert len(set(one.heartbeats[before:])) == len(one.heartbeats[before:])


def emit(database: Database, *contents: str, transactional: bool = False, prefix: str = "app") -> None:
    flag = str(transactional).lower()
    database.execute(*(f"select pg_logical_emit_message({flag}, '{prefix}', '{text}')" for text in contents))


def until_messages(one: Query, count: int, seconds: float = 60) -> list[str]:
    """Trigger until there are `count` messages, and once more."""
    deadline = time.monotonic() + seconds
    while len(one.messages) < count and time.monotonic() < deadline:
        one.step()
    one.step()
    return one.messages


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_messages_come_once_and_in_order_through_restarts_and_cuts(
    database: Database, query: Any, rows: int | None
) -> None:
    if database.server.version < 14:
        pytest.skip("pgoutput sends messages from PostgreSQL 14 on")
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "message.prefix.exclude.list": "secret"})
    one.max_rows = rows
    one.step()
    expected = []
    for number in range(4):
        emit(database, f"alone {number}", f"again {number}")
        emit(database, "hidden", prefix="secret")
        with database.connect(autocommit=False) as connection:
            # the commit record begins where the record of the message before it ends
            connection.execute(f"insert into t values ({2 * number}, 'x'), ({2 * number + 1}, 'y')")
            connection.execute(f"select pg_logical_emit_message(true, 'app', 'inside {number}')")
            connection.execute(f"select pg_logical_emit_message(false, 'app', 'before {number}')")
            connection.commit()
        expected += [f"alone {number}", f"again {number}", f"before {number}", f"inside {number}"]
        for _ in range(3):
            one.step(commit=one.planned is not None and number % 2 == 0)
        one.kill()
    assert until_messages(one, len(expected)) == expected
    assert [change[2] for change in one.until(8)] == [row(n, "xy"[n % 2]) for n in range(8)]
    assert sorted(set(one.at)) == one.at
    one.kill()
    for _ in range(3):
        one.step()
    assert one.messages == expected


def test_messages_beside_a_transaction_that_is_streamed_in_progress(database: Database, query: Any) -> None:
    if database.server.version < 14:
        pytest.skip("pgoutput sends messages from PostgreSQL 14 on")
    database.execute(
        "create table t (id int primary key, v text)",
        f"alter database {database.name} set logical_decoding_work_mem = '64kB'",
    )
    one = query(**{"snapshot.mode": "no_data", "provide.transaction.metadata": "true"})
    one.step()
    with database.connect(autocommit=False) as connection:
        connection.execute("select pg_logical_emit_message(true, 'app', 'first inside')")
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 2000) i")
        emit(database, "meanwhile")
        assert until_messages(one, 1) == ["meanwhile"]
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(2001, 4000) i")
        connection.execute("select pg_logical_emit_message(true, 'app', 'last inside')")
        emit(database, "later")
        connection.commit()
    assert until_messages(one, 4) == ["meanwhile", "later", "first inside", "last inside"]
    assert len(one.until(4000)) == 4000
    assert one.boundaries == [None, 4002]


def test_both_gears_yield_the_same_messages(database: Database, query: Any) -> None:
    if database.server.version < 14:
        pytest.skip("pgoutput sends messages from PostgreSQL 14 on")
    database.execute(
        "create table t (id int primary key)",
        "create publication dbz_publication for all tables",
        f"select pg_create_logical_replication_slot('first_{database.name}', 'pgoutput')",
    )
    for number in range(20):
        emit(database, f"alone {number}")
        emit(database, f"inside {number}", transactional=True)
        database.execute(f"insert into t values ({number})")
    database.execute(f"select pg_copy_logical_replication_slot('first_{database.name}', 'second_{database.name}')")
    options = {"snapshot.mode": "no_data", "event.format": "3"}
    caught_up = query(**options, **{"slot.name": f"first_{database.name}"})
    caught_up.drain_now()
    streamed = query(**options, **{"slot.name": f"second_{database.name}"})
    until_messages(streamed, 40)
    assert len(caught_up.messages) == 40
    assert caught_up.messages == streamed.messages
    assert caught_up.at == streamed.at
    assert len(streamed.until(20)) == len(caught_up.changes) == 20


def test_messages_before_a_snapshot_beside_an_older_slot_are_not_lost(database: Database, query: Any) -> None:
    if database.server.version < 14:
        pytest.skip("pgoutput sends messages from PostgreSQL 14 on")
    database.execute("create table t (id int primary key, v text)", "create publication dbz_publication for all tables")
    one = query()
    database.execute(f"select pg_create_logical_replication_slot('{one.options['slot.name']}', 'pgoutput')")
    emit(database, "alone")
    with database.connect() as connection, connection.transaction():
        connection.execute("insert into t values (1, 'a')")
        connection.execute("select pg_logical_emit_message(true, 'app', 'inside')")
    assert until_messages(one, 2) == ["alone", "inside"]
    assert [change[0] for change in one.changes] == ["r"]


def test_updates_that_change_nothing_that_is_shown_are_left_out_and_counted(database: Database, query: Any) -> None:
    database.execute(
        "create table t (id int primary key, v text, w text, big text)",
        "alter table t alter big set storage external",
        "alter table t replica identity full",
        "create table plain (id int primary key, v text)",
        "insert into t values (1, 'a', 'w', repeat('x', 5000))",
        "insert into plain values (1, 'a')",
    )
    options = {"skip.messages.without.change": "true", "column.exclude.list": "public.t.w"}
    one = query(**{"snapshot.mode": "no_data", "provide.transaction.metadata": "true", **options})
    one.step()
    with database.connect() as connection, connection.transaction():
        for change in ("v = 'a'", "w = 'other'", "v = 'b'", "v = null", "v = null", "id = 2", "big = 'y'", "big = 'y'"):
            connection.execute(f"update t set {change}".encode())
        connection.execute("update plain set v = 'a'")
    one.until(5)
    assert [change[2] and change[2][:2] for change in one.changes if change[1] == "t"] == [
        (b"1", b"b"),
        (b"1", None),
        (b"2", None),
        (b"2", None),
    ]
    # without old rows in the log, no update of the table counts as unchanged
    assert [change[1] for change in one.changes].count("plain") == 1
    # the change of the key is two events
    assert one.boundaries == [None, 6]
    assert one.planner.status()["unchanged"] == 4


def test_the_slots_xmin_is_part_of_the_offset_and_so_of_a_replayed_batch(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data", "xmin.fetch.interval.ms": "1"})
    one.step()
    database.execute("insert into t values (1)")
    while one.planned is None or one.planned["log"]["commit"] == "0/0":
        one.step(commit=one.planned is not None)
    xmin = one.planned["xmin"]
    one.kill()
    (task,) = one.planner.partitions(one.committed, one.planned)
    assert 0 < xmin == task.log.xmin
    value = json.loads(next(iter(task.read())).column("value")[0].as_py())
    assert value["payload"]["source"]["xmin"] == xmin
