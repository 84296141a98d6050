"""Signals of every channel and kind, blocking snapshots and notifications against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.postgres.snapshot.tasks import ReadTask
from tests.fix_postgres import Database
from tests.fix_query import simple
from tests.integration.postgres.signalled import SIGNALS, SINK, execute, is_over, kinds, reads, run


def test_stop_pause_and_resume(database: Database, make_query: Any) -> None:
    def signal(kind: str, data: str = "{}") -> None:
        database.execute(f"insert into debezium_signal values ('{kind}-{len(one.changes)}', '{kind}', '{data}')")

    database.execute(SIGNALS)
    for name in "abc":
        database.execute(
            f"create table {name} (id int primary key)", f"insert into {name} select generate_series(1, 9)"
        )
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.a", "public.b", "public.c")
    run(one, lambda q: bool(reads(q, "a")))
    signal("pause-snapshot")
    run(one, lambda q: q.committed["progress"]["state"].get("paused", False))
    held = len(reads(one, "a"))
    for _ in range(3):
        one.step()
    assert len(reads(one, "a")) == held
    signal("stop-snapshot", '{"data-collections": ["public.b"]}')
    signal("resume-snapshot")
    run(one, lambda q: bool(reads(q, "c")))
    signal("stop-snapshot")
    run(one, is_over)
    assert len(reads(one, "a")) == 9
    assert reads(one, "b") == []
    assert len(reads(one, "c")) < 9


@pytest.mark.parametrize(
    "row",
    [
        "('x', 'execute-snapshot', 'no json')",
        "('x', 'execute-snapshot', '[]')",
        "('x', 'execute-snapshot', null)",
        "('x', 'execute-snapshot', '{\"data-collections\": \"public.t\"}')",
        "('x', 'execute-snapshot', '{\"data-collections\": [\"public.(t\"]}')",
        '(\'x\', \'execute-snapshot\', \'{"data-collections": ["public.t"], "type": "whole"}\')',
        "('x', 'dance', '{}')",
        "('x', 'execute-snapshot', '{\"data-collections\": [\"public.x\\u0000\"]}')",
        "('x', 'execute-snapshot', '{\"data-collections\": [\"public.\\ud800\"]}')",
        "('', '', '')",
    ],
)
def test_a_malformed_signal_is_told_and_stops_nothing(
    database: Database, make_query: Any, caplog: pytest.LogCaptureFixture, row: str
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    one = make_query()
    one.step()
    database.execute(f"insert into debezium_signal values {row}", "insert into t values (2)")
    run(one, lambda q: len(q.changes) == 2)
    assert [op for op, _, _ in one.changes] == ["c", "c"]
    assert " is ignored: " in caplog.text


def test_notifications_tell_the_course_of_snapshots(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key)", "create table u (id int primary key)",
        "insert into t select generate_series(1, 6)",
    )  # fmt: skip
    one = make_query(snapshot_mode="initial", incremental_snapshot_window_chunks="1", **SINK)
    run(one, lambda q: len(reads(q)) == 6)
    assert kinds(one)[0] == ("Initial", "STARTED")
    assert kinds(one)[-1] == ("Initial", "COMPLETED")
    scanned = {
        dict(n.data)["scanned_collection"]: dict(n.data) for n in one.notifications if n.type == "TABLE_SCAN_COMPLETED"
    }
    assert {name: data["total_rows_scanned"] for name, data in scanned.items()} == {
        "public.t": "6", "public.u": "0",
    }  # fmt: skip
    one.notifications.clear()
    execute(database, "public.t")
    run(one, lambda q: ("Incremental", "COMPLETED") in kinds(q))
    assert [kind for _, kind in kinds(one)] == [
        "STARTED", "IN_PROGRESS", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED",
    ]  # fmt: skip
    assert {notification.id for notification in one.notifications} == {"ad-hoc"}
    assert dict(one.notifications[1].data) | {"last_processed_key": "4", "maximum_key": "6"} == dict(
        one.notifications[1].data
    )
    one.notifications.clear()
    one.kill()
    run(one, lambda q: ("Initial", "SKIPPED") in kinds(q))
    for _ in range(3):
        one.step()
    assert ("Initial", "STARTED") not in kinds(one)


def test_a_blocking_snapshot_whose_filter_fails_is_given_up_for_good(
    database: Database, make_query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    one = make_query(**SINK)
    one.step()
    condition = {"data-collection": "public.t", "filter": "select 1 as id) as r; drop table t; select * from (select 1"}
    execute(database, "public.t", type="blocking", **{"additional-conditions": [condition]})
    run(one, lambda q: ("Initial", "ABORTED") in kinds(q))
    one.kill()
    database.execute("insert into t values (2)")
    run(one, lambda q: ("c", "t", (b"2",)) in q.changes)
    assert reads(one) == []
    assert "the blocking snapshot of public.t is given up" in caplog.text


def test_a_file_may_hold_signals(database: Database, make_query: Any, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1), (2)")
    file = tmp_path / "signals.txt"
    one = make_query(signal_data_collection="", signal_enabled_channels="file", signal_file=str(file),
                signal_poll_interval_ms="1")  # fmt: skip
    one.step()
    file.write_text('{"id": "1", "type": "execute-snapshot", "data": {"data-collections": ["public.t"]}}\n')
    run(one, lambda q: len(reads(q)) == 2)
    one.kill()
    for _ in range(4):
        one.step()
    assert len(reads(one)) <= 4
    file.write_text(file.read_text() + '{"id": "2", "type": "log", "data": {"message": "at {}"}}\n')
    run(one, lambda q: q.committed["progress"]["positions"] == [["file", file.stat().st_size]])
    assert is_over(one)


def test_a_blocking_snapshot_reads_its_tables_before_the_log_goes_on(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "create table u (id int primary key, v int)",
        "insert into t select i, 0 from generate_series(1, 5) i", "insert into u values (1, 0)",
    )  # fmt: skip
    one = make_query(**SINK)
    one.step()
    condition = {"data-collection": "public.t", "filter": "select * from public.t where id > 2"}
    execute(database, "public.t", type="blocking", **{"additional-conditions": [condition]})
    run(one, lambda q: len(q.changes) == 1)
    # these are in the log and in the snapshot: the condition leaves rows out, so all changes are delivered
    database.execute("update t set v = 1", "update u set v = 1")
    run(one, lambda q: len(reads(q)) == 3)
    database.execute("update t set v = 2 where id = 3", "update u set v = 2")
    run(one, lambda q: ("u", "u", (b"1", b"2")) in q.changes)
    assert [op for op, table, _ in one.changes if table == "t"] == ["r", "r", "r", *"uuuuu", "u"]
    assert [op for op, table, _ in one.changes if table == "u"] == ["u", "u"]
    assert reads(one) == [(b"3", b"1"), (b"4", b"1"), (b"5", b"1")]
    assert ("Initial", "COMPLETED") in kinds(one)
    # the requested tables, without the signal table
    listed = [
        dict(notification.data).get("data_collections")
        for notification in one.notifications
        if notification.type != "SKIPPED"
    ]
    assert listed == [None, "public.t", "public.t", None]


def test_what_happens_between_a_signal_and_its_blocking_snapshot_comes(database: Database, make_query: Any) -> None:
    database.execute(
        SIGNALS, "create table t (id int primary key, v int)", "insert into t select i, 0 from generate_series(1, 3) i"
    )
    one = make_query(**SINK)
    one.step()
    one.planner.close()
    execute(database, "public.t", type="blocking")
    database.execute("delete from t where id = 1", "update t set v = 1 where id = 2")
    one.planner = one.start()
    # the signal is alone in its batch
    one.max_rows = 1
    run(one, lambda q: ("u", "t", (b"2", b"1")) in q.changes)
    assert sorted(reads(one)) == [(b"2", b"1"), (b"3", b"0")]
    # the deleted row has no other event
    assert [(op, values[0]) for op, table, values in one.changes if table == "t" and op != "r"] == [
        ("d", b"1"),
        ("u", b"2"),
    ]


def test_a_blocking_snapshot_goes_on_after_a_restart(database: Database, make_query: Any) -> None:
    database.execute(SIGNALS)
    for name in "abc":
        database.execute(f"create table {name} (id int primary key)", f"insert into {name} values (1)")
    one = make_query(max_batch_size="2", event_order_segments="1")
    one.step()
    execute(database, "public.[abc]", type="blocking")
    run(one, lambda q: bool(reads(q, "a")))
    one.kill()
    database.execute("insert into a values (2)")
    run(one, lambda q: ("c", "a", (b"2",)) in q.changes)
    assert [reads(one, name) for name in "abc"] == [[(b"1",)]] * 3


def test_a_snapshot_of_some_tables_leaves_the_log_of_the_others_alone(database: Database, make_query: Any) -> None:
    database.execute("create table t (id int primary key)", "create table u (id int primary key)")
    one = make_query(
        signal_data_collection="", snapshot_mode="always", snapshot_include_collection_list="public.t",
        skipped_operations="none",
    )  # fmt: skip
    one.step()
    for name in "tu":
        database.execute(f"insert into {name} values (1)")
    database.execute("truncate t, u", "insert into t values (2)", "insert into u values (2)")
    one.kill()
    run(one, lambda q: ("c", "u", (b"2",)) in q.changes)
    assert [op for op, table, _ in one.changes if table == "t"] == ["r"]
    assert [op for op, table, _ in one.changes if table == "u"] == ["c", "t", "c"]


def test_the_columns_of_a_signal_table_may_have_any_names(database: Database, make_query: Any) -> None:
    database.execute(
        'create table debezium_signal ("Code" varchar(42) primary key, kind varchar(32) not null, body text)',
        "create table t (id int primary key)", "insert into t values (1), (2)",
    )  # fmt: skip
    one = make_query(incremental_snapshot_watermarking_strategy="insert_delete")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: is_over(q) and bool(reads(q)))
    assert reads(one) == [(b"1",), (b"2",)]
    with database.connect() as connection:
        assert connection.execute('select "Code" from debezium_signal').fetchall() == [("ad-hoc",)]


def test_rows_tell_of_their_watermark_where_signals_come_by_another_way(
    database: Database, make_query: Any, tmp_path: Path
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t values (1)")
    file = tmp_path / "signals.txt"
    one = make_query(signal_enabled_channels="file", signal_file=str(file), signal_poll_interval_ms="1")
    one.step()
    execute(database, "public.t", id="not read here")
    file.write_text('{"type": "execute-snapshot", "data": {"data-collections": ["public.t"]}}\n')
    plain, origins = one.planner.partitions, []

    def noting(start: Any, end: Any) -> Any:
        tasks = plain(start, end)
        origins.extend(part.origin for task in simple(tasks) if isinstance(task, ReadTask) for part in task.reads)
        return tasks

    one.planner.partitions = noting
    run(one, lambda q: is_over(q) and bool(reads(q)))
    assert len(reads(one)) == 1
    # a change is before its transaction's commit; without a watermark, both are the window's end
    assert [origin.lsn < origin.position for origin in origins] == [True]
