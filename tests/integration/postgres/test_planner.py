"""The planner against a real server: every change once, in order, at any interruption."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tailrace.connectors.postgres.log import gears
from tailrace.connectors.postgres.log.reading import ReaderSettings
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.registry import parse
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests.fix_capture import StillClock, reader_of
from tests.fix_postgres import Database
from tests.fix_query import Change, Query, row
from tests.waiting import until


def test_a_snapshot_is_followed_by_the_log_without_gap_or_repeat(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    one = query()
    one.until(2)
    assert one.changes == [("r", "t", row(1, "a")), ("r", "t", row(2, "b"))]
    database.execute("insert into t values (3, 'c')", "update t set v = 'z' where id = 1", "delete from t where id = 2")
    assert one.until(5)[2:] == [("c", "t", row(3, "c")), ("u", "t", row(1, "z")), ("d", "t", (b"2", None))]


def test_a_restart_goes_on_after_the_last_commit(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    for number in range(5):
        database.execute(f"insert into t values ({number}, 'x')")
        one.until(number + 1)
        one.kill()
    assert [change[2] for change in one.changes] == [row(number, "x") for number in range(5)]


def test_a_planned_batch_is_replayed_the_same_after_a_crash(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t select i, 'v' from generate_series(1, 100) i")
    while one.planned is None:
        one.step(commit=False)
    database.execute("insert into t values (1000, 'later')")
    one.kill()
    assert one.step()
    assert [change[2][0] for change in one.changes] == [str(number).encode() for number in range(1, 101)]
    one.until(101)
    assert one.changes[-1] == ("c", "t", row(1000, "later"))


def test_a_transaction_larger_than_a_batch_is_cut_and_survives_a_restart_inside(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute(
        "insert into t select i, 'v' from generate_series(1, 1000) i", "insert into t values (5000, 'end')"
    )
    one.max_rows = 70
    for _ in range(6):
        one.step()
    assert one.committed is not None
    assert "consumed" in one.committed["log"]
    one.kill()
    one.until(1001)
    expected = [str(number).encode() for number in [*range(1, 1001), 5000]]
    assert [change[2][0] for change in one.changes] == expected


def test_a_transaction_streamed_while_in_progress_arrives_once_without_its_aborted_parts(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = []
    original = gears.StreamedTransactions.start
    monkeypatch.setattr(
        gears.StreamedTransactions, "start", lambda self, message: blocks.append(message) or original(self, message)
    )
    database.execute(
        "create table t (id int primary key, v text)",
        f"alter database {database.name} set logical_decoding_work_mem = '64kB'",
    )
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    with database.connect(autocommit=False) as connection:
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 2000) i")
        connection.execute("savepoint a")
        connection.execute("insert into t select i, repeat('y', 200) from generate_series(2001, 4000) i")
        connection.execute("rollback to a")
        connection.execute("insert into t select i, repeat('z', 200) from generate_series(5001, 6000) i")
        database.execute("insert into t values (-1, 'meanwhile')")
        one.until(1)
        assert [change[2][0] for change in one.changes] == [b"-1"]
        if database.server.version >= 14:
            assert len(blocks) > 2
        connection.commit()
    one.until(3001)
    assert [change[2][0] for change in one.changes[1:]] == [
        str(number).encode() for number in [*range(1, 2001), *range(5001, 6001)]
    ]


def test_runs_that_end_anywhere_in_a_transaction_lose_nothing(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 1)
    database.execute("create table t (id int primary key, v text)", "create table other (id int)")
    one = query(**{"snapshot.mode": "no_data", "provide.transaction.metadata": "true", "skipped.operations": "none"})
    one.step()
    with database.connect() as connection, connection.transaction():
        connection.execute("insert into t select i, 'v' from generate_series(1, 20) i")
        connection.execute("insert into other values (1)")
        connection.execute("truncate other, t")
    database.execute("insert into t values (100, 'alone')", "insert into other values (2)")
    one.until(25)
    of_t = [change for change in one.changes if change[1] == "t"]
    assert [change[0] for change in of_t] == ["c"] * 20 + ["t", "c"]
    assert [change[0] for change in one.changes if change[1] == "other"] == ["c", "t", "c"]
    assert one.boundaries == [None, 23, None, 1, None, 1]


def test_both_gears_yield_the_same_batches(database: Database, query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "create table other (id int)",
        "create publication dbz_publication for all tables",
        f"select pg_create_logical_replication_slot('first_{database.name}', 'pgoutput')",
    )
    for number in range(30):
        database.execute(
            f"insert into t select i, 'v' || i from generate_series({number * 100}, {number * 100 + 99}) i",
            f"update t set v = 'w' where id = {number}",
            f"insert into other values ({number})",
            f"delete from t where id = {number + 50}",
        )
    database.execute("truncate t, other", "insert into t values (1, 'after')")
    database.execute(f"select pg_copy_logical_replication_slot('first_{database.name}', 'second_{database.name}')")
    options = {"snapshot.mode": "no_data", "skipped.operations": "none"}
    caught_up = query(**options, **{"slot.name": f"first_{database.name}"})
    caught_up.drain_now()
    streamed = query(**options, **{"slot.name": f"second_{database.name}"})
    streamed.until(len(caught_up.changes))
    assert reader_of(streamed.planner).feed.gear == "streaming"

    def of(one: Query, table: str) -> list[Change]:
        return [change for change in one.changes if change[1] == table]

    assert len(of(caught_up, "t")) == 3062
    assert of(caught_up, "t") == of(streamed, "t")
    assert of(caught_up, "other") == of(streamed, "other")
    assert caught_up.committed["log"]["commit"] == streamed.committed["log"]["commit"]


def shrink(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Give every reader these sizes, in bytes."""
    original = ReaderSettings.of
    monkeypatch.setattr(ReaderSettings, "of", lambda config: replace(original(config), **sizes))


def test_the_catch_up_gear_reads_a_backlog_in_slices_and_hands_over(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"catch_up_above": 1 << 16, "stream_below": 1 << 14, "first_slice_bytes": 1 << 15}
    shrink(monkeypatch, **small, slice_bytes=1 << 17)
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    one.kill()
    for number in range(40):
        database.execute(f"insert into t select i, 'v' from generate_series({number * 100}, {number * 100 + 99}) i")
    one.until(4000)
    deadline = time.monotonic() + 60
    while reader_of(one.planner).feed.gear != "streaming" and time.monotonic() < deadline:
        one.step()
    assert reader_of(one.planner).feed.gear == "streaming"
    database.execute("insert into t values (9999, 'live')")
    one.until(4001)
    assert [change[2][0] for change in one.changes] == [str(n).encode() for n in [*range(4000), 9999]]


def test_a_stream_that_falls_behind_catches_up_from_where_it_is(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, advance = gears.Streaming.poll, gears.CatchUp.advance
    advanced: list[int] = []

    def slowly(self: gears.Streaming, seconds: float, hurried: bool) -> gears.Messages | None:
        time.sleep(0.3)
        return poll(self, seconds, hurried)

    def noted(self: gears.CatchUp, lsn: int) -> None:
        advanced.append(lsn)
        advance(self, lsn)

    shrink(monkeypatch, catch_up_above=1 << 15, stream_below=1 << 12, slice_bytes=1 << 17)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 2000)
    monkeypatch.setattr(gears.Streaming, "poll", slowly)
    monkeypatch.setattr(gears.CatchUp, "advance", noted)
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (-1, 'first')")
    one.until(1)
    for number in range(40):
        database.execute(f"insert into t select i, 'v' from generate_series({number * 100}, {number * 100 + 99}) i")
    # the stream alone would take minutes
    one.until(4001)
    assert advanced
    assert [change[2][0] for change in one.changes] == [str(n).encode() for n in range(-1, 4000)]


def test_available_now_reads_what_is_there_and_ends(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (0, 'x')")
    one = query()
    one.drain_now()
    assert [change[0] for change in one.changes] == ["r"]
    assert one.drain_now() == 0
    database.execute("insert into t select i, 'v' from generate_series(1, 10) i")
    one.drain_now()
    assert len(one.changes) == 11
    assert one.drain_now() == 0


def test_the_slot_follows_what_is_committed_and_not_what_is_only_planned(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "status.update.interval.ms": "100"})
    one.step()

    def confirmed() -> int:
        with database.connect() as connection:
            found = connection.execute(
                "select (confirmed_flush_lsn - '0/0')::int8 from pg_replication_slots where slot_name = %s",
                (one.options["slot.name"],),
            ).fetchone()
        assert found is not None
        return int(found[0])

    before = confirmed()
    database.execute("insert into t values (1, 'a')")
    while one.planned is None:
        one.step(commit=False)
    told = (
        "select reply_time from pg_stat_replication r join pg_replication_slots s on s.active_pid = r.pid "
        f"where slot_name = '{one.options['slot.name']}'"
    )
    with database.connect() as connection:
        for _ in range(3):
            last = connection.execute(told).fetchone()
            until(lambda last=last: connection.execute(told).fetchone() != last, "another message of the reader's")
    assert confirmed() == before
    one.step()
    one.step()
    deadline = time.monotonic() + 60
    while confirmed() == before and time.monotonic() < deadline:
        one.step()
    assert confirmed() > before


def test_an_idle_captured_table_beside_a_busy_one_lets_the_slot_advance(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.log.contracts.IDLE_BYTES", 1 << 16)
    database.execute("create table t (id int primary key)", "create table busy (id int)")
    one = query(
        **{"table.include.list": "public.t", "snapshot.mode": "no_data", "publication.autocreate.mode": "filtered"}
    )
    one.step()
    start = one.committed["log"].get("idle")
    database.execute("insert into busy select i from generate_series(1, 20000) i")
    deadline = time.monotonic() + 60
    while one.committed["log"].get("idle") == start and time.monotonic() < deadline:
        one.step()
    assert one.committed["log"].get("idle") != start
    assert one.changes == []
    database.execute("insert into t values (1)")
    assert one.until(1) == [("c", "t", (b"1",))]


def test_a_snapshot_beside_an_older_slot_shows_each_transaction_once(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "create publication dbz_publication for all tables")
    one = query()
    database.execute(f"select pg_create_logical_replication_slot('{one.options['slot.name']}', 'pgoutput')")
    database.execute("insert into t values (1, 'a')", "insert into t values (2, 'b')")
    with database.connect(autocommit=False) as open_transaction:
        open_transaction.execute("insert into t values (3, 'open')")
        one.until(2)
        open_transaction.commit()
    database.execute("insert into t values (4, 'd')")
    one.until(4)
    assert [change[0] + change[2][0].decode() for change in one.changes] == ["r1", "r2", "c3", "c4"]


def test_a_large_table_is_read_in_chunks_and_a_crash_reads_the_rest_only(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.connectors.postgres.snapshot.session.CHUNK_PAGES", 2)
    database.execute(
        "create table t (id int primary key, v text)", "insert into t select i, 'v' from generate_series(1, 5000) i"
    )
    one = query(**{"event.order.segments": "1"})
    one.step()
    read_before = len(one.changes)
    assert 0 < read_before < 5000
    one.kill()
    database.execute("update t set v = 'w' where id = 5000")
    one.until(5001)
    reads = [int(change[2][0]) for change in one.changes if change[0] == "r"]
    assert sorted(reads) == list(range(1, 5001))
    assert one.changes[-1] == ("u", "t", row(5000, "w"))


def test_snapshot_mode_always_takes_one_at_each_start(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"snapshot.mode": "always"})
    one.until(1)
    database.execute("insert into t values (2, 'b')")
    one.until(2)
    one.planner.close()
    database.execute("insert into t values (3, 'c')")
    one.planner = one.start()
    one.until(5)
    database.execute("insert into t values (4, 'd')")
    one.until(6)
    assert [change[0] + change[2][0].decode() for change in one.changes] == ["r1", "c2", "r1", "r2", "r3", "c4"]


def test_snapshot_mode_always_takes_one_after_the_replay_of_an_interrupted_batch(
    database: Database, query: Any
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"snapshot.mode": "always"})
    one.until(1)
    database.execute("insert into t values (2, 'b')")
    while one.planned is None:
        one.step(commit=False)
    database.execute("insert into t values (3, 'c')")
    one.kill()
    one.until(5)
    database.execute("insert into t values (4, 'd')")
    one.until(6)
    assert [change[0] + change[2][0].decode() for change in one.changes] == ["r1", "c2", "r1", "r2", "r3", "c4"]


def test_a_slot_that_is_gone_is_an_error(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (1)")
    one.until(1)
    one.planner.close()
    database.execute(f"select pg_drop_replication_slot('{one.options['slot.name']}')")
    one.planner = one.start()
    with pytest.raises(PositionLost, match="gone"):
        one.step()


def test_a_slot_that_was_created_anew_is_an_error_and_not_a_gap(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (1)")
    one.until(1)
    one.planner.close()
    slot = one.options["slot.name"]
    database.execute(
        f"select pg_drop_replication_slot('{slot}')",
        "insert into t values (2)",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    )
    one.planner = one.start()
    with pytest.raises(PositionLost, match="ahead of the checkpoint"):
        one.until(2)


def test_a_slot_that_another_client_reads_is_an_error(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (1)")
    one.until(1)
    two = query(**{"snapshot.mode": "no_data", "slot.max.retries": "0", "slot.name": one.options["slot.name"]})
    with pytest.raises(PrerequisiteError, match="in use"):
        two.until(1)


def test_the_reader_reconnects_after_the_server_has_cut_its_session(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    for number in range(3):
        database.execute(f"insert into t values ({number})")
        one.until(number + 1)
        with database.connect() as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = %s",
                (database.name,),
            )
    database.execute("insert into t values (3)")
    assert [change[2][0] for change in one.until(4)] == [b"0", b"1", b"2", b"3"]


def test_a_key_change_keeps_its_table_in_one_segment(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "event.order": "key", "event.order.segments": "4"})
    one.step()
    with database.connect() as connection, connection.transaction():
        connection.execute("insert into t select i, 'v' from generate_series(1, 6000) i")
    start = one.committed
    end = start
    while end == start:
        end = one.planner.latest_offset(start, None, 64 << 20)
    tasks = one.planner.partitions(start, end)
    assert len(tasks) == 4
    assert sum(len(segment) for task in tasks for segment in task.segments) == 6000
    one.committed = end
    with database.connect() as connection, connection.transaction():
        connection.execute("update t set v = 'w'")
        connection.execute("update t set id = -id where id = 77")
    end = one.committed
    while end == one.committed:
        end = one.planner.latest_offset(one.committed, None, 64 << 20)
    assert len(one.planner.partitions(one.committed, end)) == 1


def test_connections_are_refused_with_a_remedy_and_without_the_password(database: Database) -> None:
    options = database.options(**{"topic.prefix": "s", "database.dbname": "no_such_database"})
    config = parse("postgres", options)
    planner = PostgresPlanner(config, EventSettings.from_options(config, "run"))
    with pytest.raises(PrerequisiteError, match="no_such_database") as caught:
        planner.latest_offset(planner.initial_offset(), None, None)
    assert database.server.password not in str(caught.value)
    assert caught.value.remedy


def test_changes_gather_between_two_batches(database: Database, query: Any, dispatch_clock: StillClock) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "poll.dispatch.interval.ms": "60000", "poll.interval.ms": "50"})
    one.step()
    database.execute("insert into t values (1, 'a')")
    assert len(one.until(1)) == 1
    database.execute("insert into t values (2, 'b'), (3, 'c')")
    for seconds in (30, 29):
        dispatch_clock.now += seconds
        assert not any(one.step() for _ in range(5))
    dispatch_clock.now += 1.5
    assert [change[2] for change in one.until(3)] == [row(1, "a"), row(2, "b"), row(3, "c")]


def test_what_a_batch_has_no_room_for_gathers_no_longer(
    database: Database, query: Any, dispatch_clock: StillClock
) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data", "poll.dispatch.interval.ms": "60000", "poll.interval.ms": "50"})
    one.step()
    one.max_rows = 2
    # one transaction: were the first one planned alone, the others would gather
    database.execute("begin", *(f"insert into t values ({number}, 'x')" for number in range(5)), "commit")
    assert [change[2] for change in one.until(5)] == [row(number, "x") for number in range(5)]
    # a run that ends at the present does not wait either
    database.execute("insert into t values (5, 'x')")
    one.step()
    assert one.drain_now() >= 1
    assert len(one.changes) == 6


def test_an_error_does_not_wait_for_changes_to_gather(
    database: Database, query: Any, dispatch_clock: StillClock
) -> None:
    database.execute("create table t (id int primary key, v text)")
    waits = {"poll.dispatch.interval.ms": "60000", "retriable.restart.connector.wait.ms": "500"}
    one = query(**{"snapshot.mode": "no_data", "poll.interval.ms": "50", **waits})
    one.step()
    database.execute("insert into t values (1, 'a')")
    one.until(1)
    slot = one.options["slot.name"]
    database.execute(f"select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '{slot}'")
    active = f"select from pg_replication_slots where active and slot_name = '{slot}'"
    with database.connect() as connection:
        until(lambda: connection.execute(active).fetchone() is None, "the end of the session")
    database.execute(f"select pg_drop_replication_slot('{slot}')")
    with pytest.raises(PositionLost):
        one.until(2)
