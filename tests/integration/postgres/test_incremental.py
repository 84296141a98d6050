"""Incremental snapshots against a real server: every row is read, and the log takes precedence, at any interruption."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import numpy as np
import psycopg
import pytest

from tailrace.connectors.postgres.snapshot import windows
from tailrace.connectors.postgres.snapshot.tasks import ReadTask
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.snapshot.progress import NO_PROGRESS
from tests.fix_capture import StillClock
from tests.fix_postgres import Database
from tests.fix_query import Query, simple
from tests.integration.postgres.signalled import SIGNALS, SINK, execute, is_over, reads, run
from tests.waiting import until


@pytest.mark.seed("002-01", "002-02", "002-19", "002-25")
@pytest.mark.parametrize("read_only", ["false", "true"])
@pytest.mark.parametrize("chunks", ["1", "0"])
def test_a_signal_makes_every_row_a_read(database: Database, make_query: Any, read_only: str, chunks: str) -> None:
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' || i from generate_series(1, 22) i",
    )
    one = make_query(read_only=read_only, incremental_snapshot_window_chunks=chunks)
    one.step()
    execute(database, "public.t")
    run(one, lambda q: bool(reads(q)))
    run(one, is_over)
    assert [int(row[0]) for row in reads(one)] == list(range(1, 23))
    watermarks = [values for op, name, values in one.changes if name == "debezium_signal" and b"window" in values[1]]
    assert bool(watermarks) == (read_only == "false")


@pytest.mark.seed("002-21")
def test_an_empty_list_asks_for_nothing(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    one = make_query()
    one.step()
    execute(database)
    run(one, lambda q: len(q.changes) == 1)
    for _ in range(3):
        one.step()
    assert reads(one) == []
    assert is_over(one)


@pytest.mark.seed("002-22", "002-26", "002-23", "002-24", "002-20")
def test_names_with_dots_are_quoted_and_the_type_may_be_left_out(database: Database, make_query: Any) -> None:
    database.execute(
        'create schema "My.Schema"',
        'create table "My.Schema"."The.Signals" (id varchar(42) primary key, type varchar(32), data text)',
        'create table public."My.Table" (id int primary key)',
        'insert into public."My.Table" values (1), (2)',
    )
    one = make_query(signal_data_collection='"My.Schema"."The.Signals"')
    one.step()
    database.execute(
        'insert into "My.Schema"."The.Signals" (id, type, data) values '
        """('any id', 'execute-snapshot', '{"data-collections": ["\\"public\\".\\"My.Table\\""]}')"""
    )
    run(one, lambda q: bool(reads(q, "My.Table")))
    assert reads(one, "My.Table") == [(b"1",), (b"2",)]


@pytest.mark.seed("002-07", "002-18")
def test_tables_follow_one_another_and_may_come_again(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS)
    for name in "abc":
        database.execute(f"create table {name} (id int primary key)", f"insert into {name} values (1), (2), (3)")
    one = make_query(incremental_snapshot_window_chunks="1", incremental_snapshot_chunk_size="2")
    one.step()
    execute(database, "public.a", id="first")
    run(one, lambda q: len(reads(q, "a")) == 2)
    execute(database, r"public\.[bc]", id="second")
    execute(database, "public.a", id="third")
    run(one, lambda q: len(reads(q, "a")) == 6)
    run(one, is_over)
    order = [name for op, name, _ in one.changes if op == "r"]
    assert order == ["a"] * 3 + ["b"] * 3 + ["c"] * 3 + ["a"] * 3


@pytest.mark.seed("002-06")
def test_a_restart_reads_at_most_the_last_window_again(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)", "analyze t"
    )
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: len(reads(q)) == 12)
    told = one.planner.status()
    assert told is not None
    assert told["snapshot"] == {"table": "public.t", "rows": 12, "waiting": [], "paused": False, "of": 20}
    one.kill()
    run(one, is_over)
    found = [int(row[0]) for row in reads(one)]
    assert found == [*range(1, 13), *range(9, 21)]
    one.kill()
    one.step()
    one.step()
    assert len(reads(one)) == len(found)


@pytest.mark.seed("002-29")
def test_tables_without_key_and_unknown_ones_are_left_out_with_a_word(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table nokey (a int)", "insert into nokey values (1)",
                     "create table t (id int primary key)", "insert into t values (1)")  # fmt: skip
    one = make_query(**SINK)
    one.step()
    execute(database, "public.nokey", "public.gone", "public.t")
    run(one, lambda q: is_over(q) and bool(reads(q)))
    assert reads(one, "nokey") == []
    assert reads(one) == [(b"1",)]
    scanned = [
        dict(notification.data) for notification in one.notifications if notification.type == "TABLE_SCAN_COMPLETED"
    ]
    assert [(each["scanned_collection"], each["status"]) for each in scanned] == [
        ("public.nokey", "NO_PRIMARY_KEY"),
        ("public.t", "SUCCEEDED"),
        ("public.gone", "UNKNOWN_SCHEMA"),
    ]


def test_a_condition_that_fails_ends_the_table_and_not_the_stream(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1), (2)")
    one = make_query()
    one.step()
    execute(database, "public.t", **{"additional-conditions": [{"data-collection": "public.t", "filter": "nonsense"}]})
    run(one, lambda q: bool(q.changes))
    for _ in range(3):
        one.step()
    execute(
        database, "public.t", id="2", **{"additional-conditions": [{"data-collection": "public.t", "filter": "id = 2"}]}
    )
    run(one, lambda q: bool(reads(q)))
    assert reads(one) == [(b"2",)]


@pytest.mark.seed("002-28")
def test_a_table_that_changes_between_snapshot_and_reading_is_read_again(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' from generate_series(1, 6) i",
    )
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    changes = ["alter table t add w int not null default 7", "alter table t drop v", "alter table t alter w type text"]
    plain = one.planner.partitions

    def with_a_change(start: Any, end: Any) -> Any:
        tasks = plain(start, end)
        if "before" in end.get("progress", {}) and changes:
            database.execute(changes.pop(0))
        return tasks

    one.planner.partitions = with_a_change
    run(one, lambda q: is_over(q) and bool(reads(q)))
    # a row may have been read before a column was added; its last read shows it as it is now
    last = {int(row[0]): row[1:] for row in reads(one)}
    assert last == dict.fromkeys(range(1, 7), (b"7",))
    assert set(map(len, reads(one))) <= {2, 3}


@pytest.mark.parametrize("lock_ms", [windows.LOCK_MS, 60_000])
@pytest.mark.parametrize("change", ["alter v type text", "drop v", "rename v to w"])
def test_a_table_that_is_altered_while_a_window_opens_is_read_afterwards(
    database: Database, make_query: Any, monkeypatch: pytest.MonkeyPatch, change: str, lock_ms: int
) -> None:
    """A snapshot that was taken before a table was rewritten shows it empty."""
    monkeypatch.setattr(windows, "LOCK_MS", lock_ms)
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select generate_series(1, 9), 1"
    )
    one = make_query()
    one.step()
    with database.connect(autocommit=False) as other:
        other.execute(f"alter table t {change}".encode())
        execute(database, "public.t")
        run(one, lambda q: len(q.changes) == 1)
        ended = threading.Timer(1.0, other.commit)
        ended.start()
        for _ in range(3):
            one.step()
        ended.join()
    run(one, lambda q: is_over(q) and bool(reads(q)))
    assert sorted(int(row[0]) for row in reads(one)) == list(range(1, 10))


def test_trigger_available_now_finishes_a_snapshot(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    one.drain_now()
    assert [int(row[0]) for row in reads(one)] == list(range(1, 21))


def test_a_table_without_key_is_read_by_a_surrogate_key_once(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (a int, v text)", "alter table t replica identity full",
        "insert into t select i % 3, 'v' || i % 2 from generate_series(1, 12) i",
    )  # fmt: skip
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t", **{"surrogate-key": "a"})
    run(one, lambda q: is_over(q) and bool(reads(q)))
    assert len(reads(one)) == 12


def test_changes_of_a_table_without_key_are_told_from_its_rows_by_what_both_have(database: Database) -> None:
    """The log has the columns that are left out, but not the generated ones; the rows have it the other way round."""
    # later servers refuse such updates, unless generated columns are published
    generated = "generated always as (a * 2) stored" if database.server.version < 18 else "default 0"
    database.execute(
        SIGNALS,
        f"create table t (a int, hidden text, v text, twice int {generated})",
        "alter table t replica identity full",
        "insert into t select i, 'h' || i, 'v' from generate_series(1, 6) i",
    )
    one = Query(
        database,
        **{
            "signal.data.collection": "public.debezium_signal",
            "snapshot.mode": "no_data",
            "column.exclude.list": r"public\.t\.(a|hidden)",
            "poll.interval.ms": "50",
        },
    )
    one.step()
    execute(database, "public.t", **{"surrogate-key": "a"})
    incremental = one.planner._source.incremental
    assert incremental is not None
    opened, pending = incremental.open, ["update t set v = 'w' where a = 2", "delete from t where a = 3"]

    def with_changes(*args: Any) -> Any:
        window = opened(*args)
        if window is not None and pending:
            database.execute(*pending)
            pending.clear()
            window.upto = _present(database)
        return window

    incremental.open = with_changes  # type: ignore[method-assign]
    try:
        run(one, lambda q: is_over(q) and bool(reads(q)))
    finally:
        one.planner.close()
    # v and twice are shown, and a is read for the chunks
    assert sorted(int(row[2]) for row in reads(one)) == [1, 4, 5, 6]


def _present(database: Database) -> int:
    with database.connect() as connection:
        row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
    assert row is not None
    return int(row[0])


def test_the_sessions_of_the_planner_may_be_lost_between_two_windows(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: len(reads(q)) >= 4)
    with database.connect() as connection:
        ended = connection.execute(
            "select pid, pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and application_name = 'tailrace' and backend_type = 'client backend'"
        ).fetchall()
        left = "select from pg_stat_activity where pid = any(%s)"
        until(
            lambda: connection.execute(left, [[pid for pid, _ in ended]]).fetchone() is None, "the end of the sessions"
        )
    run(one, is_over)
    assert sorted({int(row[0]) for row in reads(one)}) == list(range(1, 21))


def test_a_window_that_was_opened_ahead_is_void_when_the_snapshot_is_stopped(
    database: Database, make_query: Any
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 40)")
    one = make_query(incremental_snapshot_window_chunks="2", incremental_snapshot_chunk_size="2")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: bool(reads(q)))
    database.execute("insert into debezium_signal values ('s', 'stop-snapshot', '{\"type\": \"incremental\"}')")
    run(one, is_over)
    found = [int(row[0]) for row in reads(one)]
    assert found == list(range(1, len(found) + 1))
    assert len(found) < 40
    execute(database, "public.t", id="again")
    run(one, lambda q: is_over(q) and len(reads(q)) == len(found) + 40)


def test_no_snapshot_is_held_when_nothing_is_read(database: Database, make_query: Any) -> None:
    """A transaction that stays open keeps vacuum from removing rows."""
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="2", incremental_snapshot_chunk_size="2")
    one.step()
    execute(database, "public.t")
    run(one, is_over)
    one.step()
    with database.connect() as connection:
        held = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and application_name = 'tailrace' and state like 'idle in transaction%'"
        ).fetchone()
    assert held == (0,)


def test_what_the_server_refuses_is_told_as_an_error_of_tailrace(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    one = make_query()
    one.step()
    execute(database, "public.t")
    # without the third column no watermark can be written
    run(one, lambda q: len(q.changes) == 1)
    database.execute("alter table debezium_signal drop data")
    with pytest.raises(PrerequisiteError, match="refuses a statement"):
        run(one, is_over)


def test_transactions_that_are_visible_are_forgotten_while_no_snapshot_runs(
    database: Database, make_query: Any
) -> None:
    database.execute(SIGNALS)
    one = make_query()
    one.step()
    incremental = one.planner._source.incremental
    incremental.streamed.add(np.arange(3, 60_003) % 500 + 3, np.zeros(60_000, np.int64))
    incremental.begin(NO_PROGRESS)
    assert len(incremental.streamed) == 0


@pytest.mark.parametrize(("settled", "modest"), [(True, False), (False, False), (False, True)])
def test_no_row_is_read_that_shows_less_than_was_streamed(
    database: Database, make_query: Any, settled: bool, modest: bool
) -> None:
    """A transaction that waits for a synchronous standby is in the log, and invisible to every new snapshot.

    A `modest` user may not see which transactions wait.
    """
    database.execute(SIGNALS, "create table t (id int primary key, v int)", "insert into t values (1, 0), (2, 0)")
    login = {}
    if modest:
        login = {"database_user": f"user_{database.name}", "publication_autocreate_mode": "disabled"}
        database.execute(
            "create publication dbz_publication for all tables",
            f"create role user_{database.name} login replication password '{database.server.password}'",
            f"grant select on all tables in schema public to user_{database.name}",
            f"grant insert on debezium_signal to user_{database.name}",
        )
    one = make_query(**login)
    one.step()
    with database.connect() as admin:
        admin.execute("alter system set synchronous_standby_names = 'nobody'")
        admin.execute("select pg_reload_conf()")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with database.connect() as fresh:
            if fresh.execute("show synchronous_standby_names").fetchone() == ("nobody",):
                break
    # a new session after that: an older one may not know yet that its commits have to wait
    writer = database.connect()
    try:
        waiting = threading.Thread(target=lambda: _quietly(writer, "update t set v = 1 where id = 1"))
        waiting.start()
        run(one, lambda q: ("u", "t", (b"1", b"1")) in q.changes)
        with database.connect(autocommit=False) as signaller:
            signaller.execute("set synchronous_commit = local")
            signaller.execute(
                "insert into debezium_signal values ('1', 'execute-snapshot', '{\"data-collections\": [\"public.t\"]}')"
            )
        for _ in range(4):
            one.step()
        assert reads(one) == []
        if not settled:
            one.kill()
            one.step()
            assert reads(one) == []
    finally:
        with database.connect() as admin:
            admin.execute("alter system reset synchronous_standby_names")
            admin.execute("select pg_reload_conf()")
        waiting.join(10)
        writer.close()
    run(one, lambda q: len(reads(q)) >= 2)
    assert set(reads(one)) == {(b"1", b"1"), (b"2", b"0")}
    if modest:
        one.planner.close()
        database.execute(f"drop owned by user_{database.name}", f"drop role user_{database.name}")


def _quietly(connection: psycopg.Connection[Any], statement: str) -> None:
    with contextlib.suppress(psycopg.Error):
        connection.execute(statement.encode())


@pytest.mark.seed("002-07")
def test_a_table_that_is_asked_for_twice_is_read_twice(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key)", "create table u (id int primary key)",
        "insert into t select generate_series(1, 3)", "insert into u select generate_series(1, 3)",
    )  # fmt: skip
    one = make_query(incremental_snapshot_chunk_size="2", incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t", "public.u")
    execute(database, "public.u", id="again")
    run(one, lambda q: bool(reads(q, "u")))
    run(one, is_over)
    assert [len(reads(one, name)) for name in "tu"] == [3, 6]


def test_the_first_log_batch_loads_every_worker(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key, v text)")
    one = make_query(event_order_segments="3")
    one.step()
    found = []
    for number in (1, 2):
        database.execute(f"insert into t values ({number}, 'v')")
        start = end = one.committed
        while end == start:
            end = one.planner.latest_offset(start, None, 64 << 20)
        found.append(one.planner.partitions(start, end))
        one.committed = end
    first, second = found
    assert [type(task).__name__ for task in first] == ["LogTask", "Rehearsal", "Rehearsal"]
    assert [sum(len(rows) for rows in task.read()) for task in first] == [1, 0, 0]
    assert [type(task).__name__ for task in second] == ["LogTask"]


def test_a_snapshot_does_not_wait_for_changes_to_gather(
    database: Database, make_query: Any, dispatch_clock: StillClock
) -> None:
    database.execute(
        SIGNALS,
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' || i from generate_series(1, 40000) i",
    )
    one = make_query(poll_dispatch_interval_ms="60000", incremental_snapshot_chunk_size="1024")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: not is_over(q))
    run(one, is_over)
    assert len(reads(one)) == 40000
    # its last batch is over, and the next changes wait for more
    database.execute("insert into t values (0, 'late')")
    assert not any(one.step() for _ in range(5))
    dispatch_clock.now += 61
    assert one.step()


def exporters(database: Database) -> list[int]:
    """Return the sessions that hold a window's snapshot."""
    with database.connect() as connection:
        return [
            pid
            for (pid,) in connection.execute(
                "select pid from pg_stat_activity where datname = current_database() and state = 'idle in transaction'"
                " and query like %s",
                ("select pg_export_snapshot(), pg_current_snapshot()::text,%",),
            )
        ]


def end(database: Database, pids: list[int]) -> None:
    with database.connect() as connection:
        ended = connection.execute("select pg_terminate_backend(pid, 5000) from unnest(%s::int[]) pid", (pids,))
        assert ended.fetchall() == [(True,)] * len(pids)


def test_a_window_whose_snapshot_has_gone_with_its_session_is_an_error_and_is_read_after_a_restart(
    database: Database, make_query: Any
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: len(reads(q)) == 8)
    start = one.committed
    one.planned = one.planner.latest_offset(start, None, None)
    (task,) = [part for part in simple(one.planner.partitions(start, one.planned)) if isinstance(part, ReadTask)]
    assert task.reads
    end(database, exporters(database))
    with pytest.raises(ConnectionFailed, match=r"Reading public\.t for the snapshot failed"):
        list(task.read())
    one.kill()
    run(one, is_over)
    assert {int(row[0]) for row in reads(one)} == set(range(1, 21))


def test_a_window_whose_snapshot_has_gone_before_its_chunks_are_found_is_opened_again(
    database: Database, make_query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    take = windows.PostgresWindows._take_snapshot
    ended = []

    def once(self: Any, exporter: Any, *others: Any) -> Any:
        taken = take(self, exporter, *others)
        if not ended:
            ended.append(exporter.info.backend_pid)
            end(database, ended)
        return taken

    monkeypatch.setattr(windows.PostgresWindows, "_take_snapshot", once)
    execute(database, "public.t")
    run(one, lambda q: bool(reads(q)))
    run(one, is_over)
    assert ended
    assert [int(row[0]) for row in reads(one)] == list(range(1, 21))


def test_a_table_that_was_away_while_its_chunk_was_read_is_read_again(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: len(reads(q)) == 8)
    start = one.committed
    one.planned = one.planner.latest_offset(start, None, None)
    tasks = simple(one.planner.partitions(start, one.planned))
    database.execute("alter table t rename to elsewhere")
    assert [row for task in tasks if isinstance(task, ReadTask) for row in task.read()] == []
    database.execute("alter table elsewhere rename to t")
    # Spark has committed the batch without these rows
    one.committed, one.planned = one.planned, None
    run(one, is_over)
    assert {int(row[0]) for row in reads(one)} == set(range(1, 21))


def test_a_table_that_the_server_cannot_read_for_a_moment_is_read_later(
    database: Database, make_query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(
        SIGNALS,
        "create table t (id int primary key)",
        "insert into t select generate_series(1, 6)",
        "create table busy ()",
        """create function has_room() returns boolean language plpgsql as $$ begin
             if to_regclass('busy') is not null then raise 'no room' using errcode = 'disk_full'; end if;
             return true;
           end $$""",
    )
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    condition = {"data-collection": "public.t", "filter": "has_room()"}
    execute(database, "public.t", **{"additional-conditions": [condition]})
    run(one, lambda _: "a query of public.t failed: 53100" in caplog.text)
    assert not is_over(one)
    database.execute("drop table busy")
    run(one, is_over)
    assert [int(row[0]) for row in reads(one)] == [1, 2, 3, 4, 5, 6]
