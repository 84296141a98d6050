"""Slots that cannot be read: the error has the reason, the other reader, or the earlier slot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import psycopg
import pytest

from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.log.endings import SlotInUse
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup.prerequisites import Finding, check
from tailrace.connectors.registry import parse
from tailrace.demo.embedded import Server
from tailrace.errors import PositionLost, PrerequisiteError
from tests import fix_postgres, waiting
from tests.fix_postgres import SETTINGS, Database, Postgres, describe, owned
from tests.fix_query import Query


@pytest.fixture(scope="module", params=["embedded", "system"])
def own(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A server whose slots may be invalidated."""
    binaries = fix_postgres.system_binaries() if request.param == "system" else None
    if request.param == "system" and binaries is None:
        pytest.skip("no PostgreSQL is installed on this system")
    with Server(binaries, SETTINGS) as server, owned(describe(server.dsn())) as found:
        yield found


@pytest.fixture
def apart(own: Postgres) -> Iterator[Database]:
    """A database of the server `own`."""
    database = fix_postgres.take(own, f"apart_{os.urandom(3).hex()}")
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    yield database
    fix_postgres.give_back(database)


@contextmanager
def setting(database: Database, name: str, value: str) -> Iterator[None]:
    database.execute(f"alter system set {name} = '{value}'", "select pg_reload_conf()")
    try:
        yield
    finally:
        database.execute(f"alter system reset {name}", "select pg_reload_conf()")


def lose(database: Database, slot: str) -> str:
    """Let the server remove log that the slot needs; return the reason that it gives."""
    with setting(database, "max_slot_wal_keep_size", "1MB"):
        return _until_invalid(
            database, slot, "select pg_switch_wal()", "insert into t values (0) on conflict do nothing"
        )


def idle(database: Database, slot: str) -> str:
    """Leave the slot unread until its idle time-out."""
    with setting(database, "idle_replication_slot_timeout", "1s"):
        [told] = [
            one for one in check(parse("postgres", database.options(topic_prefix="p"))) if one.subject == "idle_slot"
        ]
        assert told.text.startswith("idle_replication_slot_timeout is 1s")
        return _until_invalid(database, slot)


def _until_invalid(database: Database, slot: str, *writes: str) -> str:
    def look() -> str:
        database.execute(*writes, "checkpoint")
        with database.connect() as connection:
            query = f"select {invalidation.REASON} from pg_replication_slots s where slot_name = %s"
            row = connection.execute(query.encode(), (slot,)).fetchone()
        assert row is not None
        return str(row[0])

    return waiting.until(look, "the slot is invalidated", pace=0.1)


def found(database: Database, slot: str) -> Finding:
    config = parse("postgres", database.options(topic_prefix="p", slot_name=slot))
    [one] = [one for one in check(config) if one.subject == "slot"]
    return one


@pytest.mark.parametrize(
    ("spoil", "since", "reason", "advised"),
    [(lose, 0, "wal_removed", "max_slot_wal_keep_size"), (idle, 18, "idle_timeout", "idle_replication_slot_timeout")],
    ids=["log", "idle"],
)
def test_the_reason_of_an_invalidated_slot_is_told(
    apart: Database, spoil: Callable[[Database, str], str], since: int, reason: str, advised: str
) -> None:
    if apart.server.version < since:
        pytest.skip("an older server has no such reason")
    query = Query(apart)
    slot = query.options["slot.name"]
    try:
        query.until(1)
        query.planner.close()
        assert spoil(apart, slot) == reason
        told = found(apart, slot)
        assert told.level == "error"
        assert reason in told.text
        assert advised in told.remedy
        query.planner = query.start()
        with pytest.raises(PositionLost, match=reason) as caught:
            query.step()
        assert advised in caught.value.remedy
    finally:
        query.planner.close()
    # nor is a snapshot read for nothing; but where a lost position is mended, the slot is made anew
    for mode, count in (("initial", 0), ("when_needed", 1)):
        query = Query(apart, **{"snapshot.mode": mode})
        try:
            with nullcontext() if count else pytest.raises(PositionLost, match=reason):
                query.until(1)
            assert len(query.changes) >= count
        finally:
            query.planner.close()


@pytest.mark.parametrize("reason", ["rows_removed", "wal_level_insufficient", "conflicting", "of_a_later_version"])
def test_each_reason_has_its_words(reason: str) -> None:
    error = invalidation.invalidated("it's", reason)
    assert f"({reason})" in error.message
    assert "pg_drop_replication_slot('it''s')" in error.remedy
    assert "max_slot_wal_keep_size" not in error.remedy


@contextmanager
def reading(database: Database, slot: str) -> Iterator[int]:
    """Start a process that reads the slot, and return its number."""
    other = psycopg.connect(database.dsn, replication="database", autocommit=True)  # type: ignore[arg-type]
    try:
        command = f"START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', publication_names 'none')"
        other.pgconn.send_query(command.encode())
        with database.connect() as connection:
            query = "select active_pid from pg_replication_slots where slot_name = %s and active_pid is not null"
            row = waiting.until(lambda: connection.execute(query, (slot,)).fetchone(), "the slot is read")
        yield int(row[0])
    finally:
        other.close()


def test_a_slot_that_another_process_reads_is_waited_for_before_the_snapshot(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    query = Query(database, **{"slot.max.retries": "2", "slot.retry.delay.ms": "10"})
    slot = query.options["slot.name"]
    database.execute(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    try:
        with reading(database, slot) as pid:
            with pytest.raises(SlotInUse, match=f"in use by process {pid}") as caught:
                query.step()
            assert caught.value.exit_code == PrerequisiteError.exit_code
            assert caplog.text.count(f"in use by process {pid}; trying again") == 2
        assert query.changes == []
        query.until(1)
    finally:
        query.planner.close()


def test_another_slot_on_an_old_checkpoint_is_told_of_the_slot_of_before(database: Database) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    query = Query(database)
    before = query.options["slot.name"]
    try:
        query.until(1)
        query.planner.close()
        for made_now in (False, True):
            query.options["slot.name"] = f"{before}_2"
            if made_now:
                database.execute(
                    "insert into t values (2)", f"select pg_create_logical_replication_slot('{before}_2', 'pgoutput')"
                )
            query.planner = query.start()
            with pytest.raises(PositionLost) as caught:
                query.until(2)
            assert f"set it back and nothing is lost: there is {before}." in caught.value.remedy
            query.planner.close()
        query.options["slot.name"] = before
        query.planner = query.start()
        assert [values for _, _, values in query.until(2)] == [(b"1",), (b"2",)]
    finally:
        query.planner.close()


def test_a_slot_that_another_reader_has_left_is_taken_over_where_it_stands(database: Database) -> None:
    """So does a switch from Debezium without a gap: with its slot and publication, and without a snapshot."""
    query = Query(database, **{"snapshot.mode": "no_data"})
    slot = query.options["slot.name"]
    read = f"pg_logical_slot_get_binary_changes('{slot}', null, null, 'proto_version', '1', 'publication_names', 'p')"
    database.execute(
        "create table t (id int primary key)",
        "insert into t values (1)",
        "create publication p for table t",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "insert into t values (2)",
        f"select count(*) from {read}",
        "insert into t values (3)",
    )
    query.options["publication.name"] = "p"
    query.planner = query.start()
    try:
        assert [(op, values) for op, _, values in query.until(1)] == [("c", (b"3",))]
        database.execute("insert into t values (4)")
        assert [values for _, _, values in query.until(2)] == [(b"3",), (b"4",)]
    finally:
        query.planner.close()


def test_a_slot_that_sends_prepared_transactions_is_refused(database: Database) -> None:
    """Their rows were lost where they were prepared before a start and committed behind it."""
    database.execute(
        "create table t (id int primary key)",
        "create publication dbz_publication for all tables",
        "select pg_create_logical_replication_slot('two_phases', 'pgoutput', false, true)",
    )
    wanted = "The replication slot two_phases was made with two_phase"
    config = parse("postgres", database.options(topic_prefix="p", slot_name="two_phases"))
    (found,) = [one.text for one in check(config) if one.level == "error"]
    assert found.startswith(wanted)
    one = Query(database, **{"slot.name": "two_phases"})
    try:
        with pytest.raises(PrerequisiteError, match=wanted):
            one.step()
    finally:
        one.planner.close()


def test_a_slot_that_gets_two_phases_later_is_refused(database: Database) -> None:
    if database.server.version < 18:
        pytest.skip("before PostgreSQL 18 a slot keeps what it was made with")
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    one = Query(database, **{"slot.name": "two_phases"})
    try:
        one.until(1)
        one.planner.close()
        config = parse("postgres", database.options(topic_prefix="p"))
        with connections.connect(config, replication=True) as replication:
            replication.execute("ALTER_REPLICATION_SLOT two_phases (TWO_PHASE true)")
        one.planner = one.start()
        with pytest.raises(PrerequisiteError, match="was made with two_phase"):
            one.until(2, seconds=30)
    finally:
        one.planner.close()
