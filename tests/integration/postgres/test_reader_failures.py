"""Failures between the server and the spool lose no row: full disks, lost sessions, odd transactions."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import IO, Any, cast

import psycopg
import pytest

from tailrace.connectors.postgres.log import gears, identity
from tailrace.connectors.postgres.log.reading import ReaderSettings
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.errors import SpoolFailed
from tailrace.log import spool
from tailrace.log.spool import Spool
from tests.fix_capture import reader_of
from tests.fix_postgres import Database
from tests.fix_query import Query

NO_SNAPSHOT = {"snapshot.mode": "no_data"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lost sessions be retried at once."""
    settings(monkeypatch, retry_delay=0.02, slot_retries=200, slot_retry_delay=0.05)


def settings(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Give every reader these settings."""
    original = ReaderSettings.of
    monkeypatch.setattr(ReaderSettings, "of", lambda config: replace(original(config), **changed))


def keys(one: Query) -> list[int]:
    """Return the first column of each change, in the order of delivery."""
    return [int(change[2][0]) for change in one.changes if change[2] is not None]


def in_blocks(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Let the server send transactions of some size before their commit; return a list that notes the blocks."""
    blocks: list[bytes] = []
    original = gears.StreamedTransactions.start

    def noted(self: gears.StreamedTransactions, message: bytes) -> None:
        blocks.append(message)
        original(self, message)

    monkeypatch.setattr(gears.StreamedTransactions, "start", noted)
    database.execute(f"alter database {database.name} set logical_decoding_work_mem = '64kB'")
    return blocks


def by_both_gears(database: Database, query: Any, write: Any, count: int) -> list[Query]:
    """Run `write` in one transaction; return a query that streamed it in blocks and one that caught up."""
    options = NO_SNAPSHOT | {"provide.transaction.metadata": "true"}
    database.execute("create publication dbz_publication for all tables")
    streamed = query(**options, **{"slot.name": f"first_{database.name}"})
    streamed.step()
    database.execute(f"select pg_copy_logical_replication_slot('first_{database.name}', 'second_{database.name}')")
    with database.connect(autocommit=False) as connection:
        write(connection)
        connection.commit()
    streamed.until(count)
    caught_up = query(**options, **{"slot.name": f"second_{database.name}"})
    caught_up.step()
    caught_up.drain_now()
    assert keys(streamed) == keys(caught_up)
    assert streamed.messages == caught_up.messages
    assert streamed.at == caught_up.at
    assert streamed.boundaries == caught_up.boundaries
    return [streamed, caught_up]


@pytest.mark.parametrize("size", [10, 3000])
def test_a_transaction_with_an_origin_comes_by_both_gears(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    blocks = in_blocks(database, monkeypatch)
    database.execute("create table t (id int primary key, v text)")
    origin = f"origin_{database.name}"

    def write(connection: psycopg.Connection[Any]) -> None:
        connection.execute("select pg_replication_origin_session_setup(%s)", (origin,))
        connection.execute("select pg_replication_origin_xact_setup('0/ABCD', now())")
        connection.execute(f"insert into t select i, repeat('x', 200) from generate_series(1, {size}) i".encode())

    database.execute(f"select pg_replication_origin_create('{origin}')")
    try:
        for one in by_both_gears(database, query, write, size):
            assert keys(one) == list(range(1, size + 1))
        assert bool(blocks) == (size > 1000)
    finally:
        database.execute(f"select pg_replication_origin_drop('{origin}')")


def test_what_a_large_transaction_rolls_back_comes_by_neither_gear(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = in_blocks(database, monkeypatch)
    database.execute("create table t (id int primary key, v text)", "create table other (id int primary key, v text)")

    def write(connection: psycopg.Connection[Any]) -> None:
        # Relation messages come in a subtransaction that is rolled back later, and changes outside of it need them
        connection.execute("savepoint a")
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 1000) i")
        connection.execute("insert into other values (-1, 'gone')")
        connection.execute("savepoint b")
        connection.execute("alter table other add column w text")
        connection.execute("insert into other select i, repeat('x', 200), 'w' from generate_series(1, 1000) i")
        connection.execute("rollback to b")
        connection.execute("insert into other select i, repeat('y', 200) from generate_series(5001, 6000) i")
        connection.execute("rollback to a")
        connection.execute("insert into t select i, repeat('z', 200) from generate_series(7001, 8000) i")
        connection.execute("insert into other values (9000, 'stays')")

    for one in by_both_gears(database, query, write, 1001):
        assert keys(one) == [*range(7001, 8001), 9000]
    assert blocks


def test_messages_that_a_large_transaction_rolls_back_come_by_neither_gear(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database.server.version < 14:
        pytest.skip("servers before 14 send no logical messages")
    blocks = in_blocks(database, monkeypatch)
    database.execute("create table t (id int primary key, v text)")

    def write(connection: psycopg.Connection[Any]) -> None:
        connection.execute("select pg_logical_emit_message(true, 'p', 'first')")
        connection.execute("savepoint a")
        connection.execute("select pg_logical_emit_message(true, 'p', 'gone')")
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 2000) i")
        connection.execute("rollback to a")
        connection.execute("insert into t select i, repeat('y', 200) from generate_series(3001, 5000) i")
        connection.execute("select pg_logical_emit_message(true, 'p', 'last')")

    for one in by_both_gears(database, query, write, 2000):
        assert one.messages == ["first", "last"]
        assert keys(one) == list(range(3001, 5001))
    assert blocks


def test_a_session_that_is_lost_between_the_blocks_of_a_transaction_begins_it_anew(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = in_blocks(database, monkeypatch)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    with database.connect(autocommit=False) as connection:
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 2000) i")
        database.execute("insert into t values (-1, 'meanwhile')")
        one.until(1)
        assert blocks
        database.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots "
            f"where slot_name = '{one.options['slot.name']}'"
        )
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(2001, 4000) i")
        connection.commit()
    one.until(4001)
    assert keys(one) == [-1, *range(1, 4001)]


def test_a_session_that_is_lost_while_a_transaction_is_handed_out_loses_and_repeats_nothing(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(database, monkeypatch)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 20_000)
    poll = gears.Streaming.poll
    calls: list[int] = []

    def failing(self: gears.Streaming, *arguments: Any) -> gears.Messages | None:
        found = poll(self, *arguments)
        if found is not None and len(found.lsn) > 10:
            calls.append(1)
            if len(calls) in (3, 7, 20):
                raise OSError("the connection is gone")
        return found

    monkeypatch.setattr(gears.Streaming, "poll", failing)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    one.max_rows = 130
    database.execute("insert into t select i, repeat('x', 200) from generate_series(1, 3000) i")
    one.until(3000)
    # all three sessions were lost
    assert len(calls) >= 20
    assert keys(one) == list(range(1, 3001))


def test_a_full_disk_loses_nothing(database: Database, query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings(monkeypatch, memory_limit=4000, disk_limit=1 << 20)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 5000)
    write = spool._write
    calls: list[int] = []

    def full(descriptor: int, data: Any, start: int) -> None:
        calls.append(1)
        if len(calls) % 3 == 2:
            os.pwrite(descriptor, b"half", start)
            raise OSError(28, "No space left on device")
        write(descriptor, data, start)

    monkeypatch.setattr(spool, "_write", full)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    database.execute("insert into t values (0, 'x')", "insert into t select i, 'x' from generate_series(1, 2000) i")
    one.until(2001, 60)
    assert len(calls) > 6
    assert keys(one) == list(range(2001))


def full(*_: object) -> None:
    """Raise the error of a write to a full disk."""
    raise OSError(28, "No space left on device")


def test_on_a_disk_that_stays_full_a_large_transaction_goes_through_memory(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, memory_limit=20_000, disk_limit=1 << 20, max_retries=0)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 5000)
    monkeypatch.setattr(spool, "_write", full)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    database.execute("insert into t select i, repeat('x', 300) from generate_series(1, 2000) i")
    one.until(2000)
    assert keys(one) == list(range(1, 2001))


def test_a_replay_that_a_full_disk_does_not_take_ends_in_its_own_words(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    database.execute("insert into t select i, repeat('x', 300) from generate_series(1, 2000) i")
    while one.planned is None:
        one.step(commit=False)
    settings(monkeypatch, memory_limit=4000, disk_limit=1 << 20, retry_delay=0.01)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 5000)
    with monkeypatch.context() as patch:
        patch.setattr(spool, "_write", full)
        one.kill()
        with pytest.raises(SpoolFailed, match=r"No space left.* TMPDIR"):
            one.step()
    # and reading goes on after a new start
    one.kill()
    one.until(2000)
    assert keys(one) == list(range(1, 2001))


@pytest.mark.parametrize("fault", ["limit", "disk"])
def test_a_transaction_in_progress_that_is_too_large_is_left_to_the_server(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if database.server.version < 14:
        pytest.skip("servers before 14 send transactions after their commit")
    in_blocks(database, monkeypatch)
    sent: list[int] = []
    add = gears.StreamedTransactions.add

    def noted(self: gears.StreamedTransactions, message: bytes, lsn: int) -> None:
        if fault == "disk" and sum(sent) > 300_000:
            self._open[self.current or 0].file = cast(IO[bytes], SimpleNamespace(write=full, close=lambda: None))
        add(self, message, lsn)
        sent.append(len(message))

    monkeypatch.setattr(gears.StreamedTransactions, "add", noted)
    options = {"max.queue.size.in.bytes": "300000"} if fault == "limit" else {}
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT, **options)
    one.step()
    with database.connect(autocommit=False) as connection:
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(1, 4000) i")
        database.execute("insert into t values (-1, 'meanwhile')")
        while not one.changes:
            one.step()
        connection.execute("insert into t select i, repeat('x', 200) from generate_series(4001, 6000) i")
        connection.commit()
    one.until(6001)
    assert keys(one) == [-1, *range(1, 6001)]
    assert 200_000 < sum(sent) <= 300_000 + 1000


def test_a_large_transaction_of_a_backlog_stays_within_the_spool(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(monkeypatch, memory_limit=20_000, disk_limit=30_000)
    original = gears.CatchUp.slice

    def in_parts(self: gears.CatchUp, upto_lsn: int) -> Any:
        for run in original(self, upto_lsn):
            for first in range(0, len(run.lsn), 20):
                last = min(first + 20, len(run.lsn))
                low, high = run.offsets[first], run.offsets[last]
                yield gears.Messages(run.data[low:high], run.offsets[first : last + 1] - low, run.lsn[first:last])

    monkeypatch.setattr(gears.CatchUp, "slice", in_parts)
    held: list[int] = []
    put = Spool.put

    def noted(self: Spool[Any, Any, Any], *given: Any) -> None:
        put(self, *given)
        held.append(self.size)

    monkeypatch.setattr(Spool, "put", noted)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    # the stream would bring the transaction as one run, if it were still read
    one.kill()
    database.execute("insert into t select i, repeat('x', 300) from generate_series(1, 2000) i")
    one.drain_now()
    assert keys(one) == list(range(1, 2001))
    assert max(held) < 60_000


def test_a_backlog_that_the_server_may_not_keep_in_files_is_streamed(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[int] = []
    start = gears.Streaming.start

    def noted(self: gears.Streaming, *given: Any) -> None:
        started.append(given[2])
        start(self, *given)

    monkeypatch.setattr(gears.Streaming, "start", noted)
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    one.kill()
    for setting in ("work_mem", "temp_file_limit"):
        database.execute(f"alter database {database.name} set {setting} = '128kB'")
    # a slice that fits is read as one; the next one would be larger than what the server keeps in memory
    settings(monkeypatch, first_slice_bytes=1 << 16)
    for number in range(40):
        database.execute(f"insert into t select i, repeat('x', 400) from generate_series({number}00, {number}99) i")
    one.drain_now()
    assert keys(one) == list(range(4000))
    assert started
    assert "temp_file_limit" in caplog.text
    assert "Streaming the backlog instead" in caplog.text


@pytest.mark.parametrize(("before", "size"), [(0, 48), (90, 48), (200, 100), (2000, 256)])
def test_slices_grow_with_what_the_server_reads_before_each(before: int, size: int) -> None:
    """The server reads the log before each slice again."""
    assert ReaderSettings("slot", "publication", slice_bytes=48 << 20).size_of_slice(before << 20) == size << 20


def test_the_first_slice_is_small_unless_batches_gather() -> None:
    one = ReaderSettings("slot", "publication", first_slice_bytes=1, slice_bytes=2)
    assert one.size_of_slice(0, is_first=True) == 1
    assert replace(one, gathers=True).size_of_slice(0, is_first=True) == 2
    # the log before the slice is read, too
    assert one.size_of_slice(90, is_first=True) == 45


def read_backlog(database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, timeline_of: Any) -> None:
    """Read a backlog of ten rows, while connections report other timelines of their server."""
    database.execute("create table t (id int primary key)")
    one = query(**NO_SNAPSHOT)
    one.step()
    monkeypatch.setattr(identity, "timeline_of", timeline_of)
    database.execute("insert into t select generate_series(1, 10)")
    one.drain_now()
    assert keys(one) == list(range(1, 11))


def test_a_backlog_is_not_read_from_another_server_than_the_one_that_was_identified(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int | None] = []
    timeline_of = identity.timeline_of

    def found(connection: Any) -> int | None:
        # the host name leads once to a promoted server, and once to a standby
        asked.append([2, None][len(asked)] if len(asked) < 2 else timeline_of(connection))
        return asked[-1]

    read_backlog(database, query, monkeypatch, found)
    assert asked == [2, None, 1]
    assert "it is on timeline 2, and not on 1." in caplog.text
    assert "it is a standby." in caplog.text


def test_a_server_that_does_not_say_its_timeline_is_taken(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def unsupported(connection: Any) -> int | None:
        asked.append(1)
        list(connection.query("do $$ begin raise 'not supported' using errcode = '0A000'; end $$"))
        return 7

    read_backlog(database, query, monkeypatch, unsupported)
    assert asked == [1]


def test_a_failing_catalog_does_not_move_the_position_of_a_cut(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, v text)", "create table u (id int primary key)")
    one = query(**NO_SNAPSHOT)
    one.step()
    database.execute("insert into t values (0, 'x')")
    one.until(1)
    present = Catalog.present
    failures: list[int] = []

    def failing(self: Catalog, oids: Any) -> Any:
        if len(failures) < 2:
            failures.append(1)
            raise psycopg.OperationalError("the connection is gone")
        return present(self, oids)

    monkeypatch.setattr(Catalog, "present", failing)
    with database.connect(autocommit=False) as connection:
        connection.execute("insert into t select i, 'x' from generate_series(1, 10) i")
        connection.execute("insert into u select i from generate_series(11, 110) i")
        connection.commit()
        connection.execute("insert into u select i from generate_series(111, 120) i")
        connection.commit()
    one.max_rows = 30
    while len(one.changes) < 61:
        one.step()
    assert len(failures) == 2
    assert one.committed is not None
    assert "consumed" in one.committed["log"]
    one.kill()
    one.until(121)
    assert keys(one) == list(range(121))


def test_a_replay_that_no_longer_fits_the_spool_is_read_to_its_end(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**NO_SNAPSHOT)
    one.step()
    database.execute("insert into t select i, repeat('x', 300) from generate_series(1, 3000) i")
    planned: list[PostgresPlanner] = []
    while one.planned is None:
        one.step(commit=False)
        planned.append(one.planner)
    monkeypatch.setattr(gears.Streaming, "RUN_BYTES", 5000)
    one.options["max.queue.size.in.bytes"] = "20000"
    one.kill()
    one.until(3000)
    assert keys(one) == list(range(1, 3001))
    assert one.planner is not planned[0]
    # beyond the replayed batch the limit holds: the reader waits
    database.execute("insert into t select i, repeat('x', 300) from generate_series(3001, 6000) i")
    one.max_rows = 1
    deadline = time.monotonic() + 20
    while not reader_of(one.planner).spool.full and time.monotonic() < deadline:
        one.step()
    assert 20_000 <= reader_of(one.planner).spool.size < 40_000
    one.max_rows = None
    one.until(6000)
    assert keys(one) == list(range(1, 6001))
