"""The positions acknowledged to the server, and the positions that count as read, on servers that flush late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.connectors.postgres.log.identity import flushed_end, flushed_present, present
from tailrace.connectors.postgres.log.reading import ReaderSettings
from tailrace.connectors.postgres.log.slot import READ_AGAIN_BYTES, Slot
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import AcknowledgedLsn, LogPosition
from tailrace.demo.embedded import THROWAWAY, Server
from tailrace.errors import PositionLost
from tailrace.process.runtime import Threads
from tests.fix_capture import reader_of
from tests.fix_postgres import Database, Postgres, create, describe, drop
from tests.fix_query import Query
from tests.waiting import until

LAZY = {
    "wal_writer_delay": "10s",
    "wal_writer_flush_after": "1GB",
    "wal_buffers": "64kB",
    "autovacuum": "off",
    "bgwriter_lru_maxpages": "0",
}
"""Settings of a server that flushes its log at synchronous commits, and hardly ever of its own."""


@pytest.fixture(scope="module")
def lazy_server() -> Iterator[Postgres]:
    with Server(settings={**THROWAWAY, **LAZY}) as server:
        yield describe(server.dsn())


@pytest.fixture
def lazy(lazy_server: Postgres) -> Iterator[Database]:
    """A database whose server has written more of its log than it has flushed, after `commit_unflushed`."""
    made = create(lazy_server, "lazy")
    yield made
    drop(lazy_server, "lazy")


@pytest.fixture
def closing() -> Iterator[list[Query]]:
    made: list[Query] = []
    yield made
    for one in made:
        one.planner.close()


def lsn(database: Database, expression: str) -> int:
    with database.connect() as connection:
        row = connection.execute(f"select (({expression}) - '0/0'::pg_lsn)::int8".encode()).fetchone()
    assert row is not None
    return -1 if row[0] is None else int(row[0])


def flushed(database: Database) -> int:
    return lsn(database, "pg_current_wal_flush_lsn()")


def commit_unflushed(database: Database, first: int, count: int) -> None:
    """Commit transactions of one row that are visible and in the written log, but not in the flushed log."""
    with database.connect() as connection:
        connection.execute("set synchronous_commit = off")
        before = flushed(database)
        for number in range(first, first + count):
            connection.execute("insert into t values (%s, repeat('x', 1000))", (number,))
        assert flushed(database) == before
        assert lsn(database, "pg_current_wal_lsn()") > before


def ids(query: Query) -> list[int]:
    return [int(change[2][0]) for change in query.changes if change[1] == "t" and change[2] and change[2][0]]


def shrink(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    original = ReaderSettings.of
    monkeypatch.setattr(ReaderSettings, "of", lambda config: replace(original(config), **sizes))


def committed(query: Query) -> int:
    assert query.committed is not None
    return PostgresOffset.from_json(query.committed).log.safe_lsn


def slot(query: Query) -> str:
    return f"select %s from pg_replication_slots where slot_name = '{query.options['slot.name']}'"


def stands(query: Query) -> int:
    return lsn(query.database, slot(query) % "confirmed_flush_lsn")


def acknowledged(query: Query) -> int:
    """Return the flushed position of the last status message to the slot's walsender; -1 before the first."""
    with query.database.connect() as connection:
        row = connection.execute(
            "select coalesce((r.flush_lsn - '0/0'::pg_lsn)::int8, -1) from pg_stat_replication r "
            "join pg_replication_slots s on s.active_pid = r.pid where s.slot_name = %s",
            (query.options["slot.name"],),
        ).fetchone()
    return -1 if row is None else int(row[0])


def test_a_catch_up_that_ends_at_unflushed_log_loses_nothing(
    lazy: Database, closing: list[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch, catch_up_above=1 << 12, stream_below=0, first_slice_bytes=1 << 15)
    lazy.execute("create table t (id int primary key, v text)")
    one = Query(lazy, **{"snapshot.mode": "no_data"})
    closing.append(one)
    one.step()
    one.planner.close()
    lazy.execute("insert into t select i, repeat('y', 1000) from generate_series(0, 19) i")
    commit_unflushed(lazy, 20, 280)
    one.planner = one.start()
    one.until(20)

    until(lambda: one.planner._log is not None and reader_of(one.planner).feed.gear == "streaming", "the gear")
    # a synchronous commit flushes the whole log before it
    lazy.execute("insert into t values (300, 'last')")
    one.until(301)
    assert ids(one) == list(range(301))


def test_available_now_waits_for_what_is_committed_and_not_flushed(lazy: Database, closing: list[Query]) -> None:
    lazy.execute("create table t (id int primary key, v text)")
    one = Query(lazy, **{"snapshot.mode": "no_data"})
    closing.append(one)
    one.step()
    lazy.execute("insert into t values (0, 'flushed')")
    commit_unflushed(lazy, 1, 299)
    end = flushed(lazy)
    drained = threading.Thread(target=one.drain_now)
    drained.start()
    until(
        lambda: (
            not drained.is_alive()
            or (one.planner._log is not None and reader_of(one.planner).has_read(LogPosition(end)))
        ),
        "what is flushed",
    )
    lazy.execute("insert into t values (300, 'later')")
    drained.join()
    assert ids(one)[:300] == list(range(300))
    one.drain_now()
    assert ids(one) == list(range(301))


def test_nothing_is_acknowledged_that_is_only_read(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a catch-up, and after a reconnect while rows wait for Spark."""
    shrink(monkeypatch, catch_up_above=1 << 15, stream_below=1 << 12, first_slice_bytes=1 << 15)
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "status.update.interval.ms": "100"})
    one.step()
    one.planner.close()
    database.execute(*(f"insert into t values ({number}, repeat('x', 1000))" for number in range(100)))
    one.planner = one.start()
    while one.planned is None:
        one.step(commit=False)
    until(lambda: reader_of(one.planner).feed.gear == "streaming" and acknowledged(one) > 0, "the gear")
    assert acknowledged(one) <= committed(one)
    assert stands(one) <= committed(one)

    database.execute("select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null")
    database.execute("insert into t values (100, 'after')")
    end = flushed(database)
    until(lambda: reader_of(one.planner).has_read(LogPosition(end)) and acknowledged(one) > 0, "the row after the cut")
    assert acknowledged(one) <= committed(one)
    assert stands(one) <= committed(one)

    one.kill()
    one.until(101)
    assert ids(one) == list(range(101))
    until(lambda: not one.step() and acknowledged(one) == committed(one), "the acknowledgement")


class Clock(Threads):
    """Time that a test moves: `sleeps` are the calls of `sleep`, each of which runs the next of `steps`."""

    def __init__(self, *steps: Callable[[Clock], Any]) -> None:
        self.now = 0.0
        self._steps = list(steps)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self._steps.pop(0)(self)


def test_a_window_without_watermarks_ends_behind_what_its_snapshot_shows(lazy: Database) -> None:
    lazy.execute("create table t (id int primary key, v text)")
    commit_unflushed(lazy, 0, 100)
    shown = lsn(lazy, "pg_current_wal_lsn()")
    # a commit of another session flushes
    clock = Clock(lambda clock: lazy.execute("insert into t values (100, 'flushes')"))
    with lazy.connect() as connection:
        upto = flushed_present(connection, clock)
    assert upto is not None
    assert upto >= shown


def test_a_window_whose_log_is_not_flushed_in_time_is_void(lazy: Database) -> None:
    lazy.execute("create table t (id int primary key, v text)")
    commit_unflushed(lazy, 0, 100)

    def pass_by(clock: Clock) -> None:
        clock.now += 100

    with lazy.connect() as connection:
        assert flushed_present(connection, Clock(pass_by, pass_by)) is None


def test_what_is_wanted_at_present_is_flushed_by_the_server_itself(lazy: Database) -> None:
    """An open transaction leaves unflushed log, and no commit makes the server flush it."""
    lazy.execute("create table t (id int primary key, v text)", "alter system set wal_writer_delay = '50ms'")
    try:
        lazy.execute("select pg_reload_conf()")
        with lazy.connect(autocommit=False) as writer:
            writer.execute("insert into t values (1, 'open')")
            with lazy.connect() as connection:
                target = present(connection)
                until(lambda: flushed_end(connection) >= target, "the flush")
            writer.rollback()
    finally:
        lazy.execute("alter system reset wal_writer_delay", "select pg_reload_conf()")


def test_a_slot_that_someone_else_has_read_from_is_noticed_by_each_gear(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    one.planner.close()
    database.execute("insert into t values (1, 'x')", "insert into t values (2, 'y')")
    database.execute(f"select pg_replication_slot_advance('{one.options['slot.name']}', pg_current_wal_flush_lsn())")
    with pytest.raises(PositionLost, match="ahead of the checkpoint"):
        one.drain_now()
    one.planner.close()
    one.planner = one.start()
    with pytest.raises(PositionLost, match="ahead of the checkpoint"):
        one.until(2)


def test_the_server_keeps_nothing_of_a_backlog_that_was_read(database: Database, query: Any) -> None:
    """No log before or behind the last change is kept, though the slot is advanced over all of it at once."""
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "message.prefix.exclude.list": "other", "row.blocks": "last"})
    one.drain_now()
    # after a CHECKPOINT the log has a place from which the server may read
    database.execute("checkpoint", "insert into t values (1, 'x')")
    database.execute("select pg_logical_emit_message(false, 'other', repeat('x', 1 << 20)) from generate_series(1, 24)")
    database.execute("checkpoint")
    end = flushed(database)
    assert end - stands(one) > READ_AGAIN_BYTES
    one.drain_now()
    until(lambda: stands(one) >= end, "the move of the slot")
    # the position shows before the second advance of the same call has moved restart_lsn
    until(lambda: stands(one) - lsn(database, slot(one) % "restart_lsn") < READ_AGAIN_BYTES, "the log that is let go")


def test_a_run_that_ends_has_asked_for_the_last_move(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a run Spark ends the planner at once, however slow its reader is."""
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "row.blocks": "last"})
    one.drain_now()
    database.execute("insert into t values (1, 'x')")
    end = flushed(database)
    advance, ask, asked = Slot.advance, Slot._ask, []

    def late(of: Slot, *given: Any, **more: Any) -> None:
        if of.acknowledged > of.stands:
            time.sleep(0.2)
        advance(of, *given, **more)

    def noted(of: Slot, to: AcknowledgedLsn) -> None:
        asked.append(to)
        ask(of, to)

    monkeypatch.setattr(Slot, "advance", late)
    monkeypatch.setattr(Slot, "_ask", noted)
    one.drain_now()
    assert asked
    assert asked[-1] >= end
