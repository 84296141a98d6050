"""A call of the planner that fails changes nothing: the next one begins where the failed one did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.planner import PostgresPlanner, PostgresSource, RetryingPlanner
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.setup import publications, slots
from tailrace.connectors.postgres.snapshot.chunks import TableSnapshots
from tailrace.errors import ConnectionFailed
from tests import fix_query
from tests.fix_postgres import Database
from tests.fix_query import row
from tests.integration.postgres.signalled import SIGNALS, execute, is_over, reads, run


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool = False) -> None:
    """Let the first call of `owner.name` fail, or fail `after` it has done its work."""
    original: Callable[..., Any] = getattr(owner, name)
    failures = [ConnectionFailed("The server is gone for a moment.", "Try again.")]

    def failing(*arguments: Any, **named: Any) -> Any:
        if failures and not after:
            raise failures.pop()
        found = original(*arguments, **named)
        if failures:
            raise failures.pop()
        return found

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (publications, "prepare_publication", True),
        (slots, "create_slot", True),
        (TableSnapshots, "start", False),
        (TableSnapshots, "start", True),
        (Catalog, "tables", False),
        (PostgresPlanner, "_next_chunks", False),
    ],
)
def test_a_snapshot_whose_start_fails_is_taken_by_the_next_call(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query()
    fail_once(monkeypatch, owner, name, after)
    with pytest.raises(ConnectionFailed):
        one.step()
    database.execute("insert into t values (2, 'b')")
    one.until(2)
    assert one.changes == [("r", "t", row(1, "a")), ("r", "t", row(2, "b"))]
    database.execute("insert into t values (3, 'c')")
    assert one.until(3)[2:] == [("c", "t", row(3, "c"))]


@pytest.mark.parametrize("name", ["acknowledge", "plan", "offset", "take"])
def test_a_batch_whose_planning_fails_is_planned_by_the_next_call(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    database.execute("create table t (id int primary key, v text)")
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (1, 'a')", "insert into t values (2, 'b')")
    fail_once(monkeypatch, PostgresLogSession, name)
    with pytest.raises(ConnectionFailed):
        one.until(2)
    assert one.until(2) == [("c", "t", row(1, "a")), ("c", "t", row(2, "b"))]


@pytest.mark.parametrize("name", ["plan_upto", "read_through", "offset"])
def test_a_window_that_was_only_replayed_is_read_again_after_a_call_that_fails(
    database: Database, make_query: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = make_query(incremental_snapshot_window_chunks="1")
    one.step()
    execute(database, "public.t")
    run(one, lambda q: len(reads(q)) >= 4)
    while one.planned is None:
        one.step(commit=False)
    assert "before" in one.planned["progress"]
    one.kill()
    # the batch is replayed, without the rows of its window
    found = reads(one)
    assert one.step()
    assert reads(one) == found
    fail_once(monkeypatch, PostgresLogSession, name)
    with pytest.raises(ConnectionFailed):
        one.step()
    run(one, is_over)
    assert sorted(int(values[0]) for values in reads(one)) == list(range(1, 21))


def test_a_snapshot_of_each_start_is_not_taken_again_after_a_call_that_fails(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"snapshot.mode": "always"})
    assert one.until(1) == [("r", "t", row(1, "a"))]
    database.execute("insert into t values (2, 'b')")
    fail_once(monkeypatch, PostgresLogSession, "plan")
    with pytest.raises(ConnectionFailed):
        one.until(2)
    assert one.until(2) == [("r", "t", row(1, "a")), ("c", "t", row(2, "b"))]


@pytest.mark.parametrize(
    ("owner", "name"), [(PostgresSource, "_connect"), (PostgresPlanner, "_next_window"), (PostgresPlanner, "_tasks")]
)
def test_a_query_outlives_a_server_that_is_away(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    monkeypatch.setattr(fix_query, "PostgresPlanner", RetryingPlanner)
    database.execute(SIGNALS, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    one = query(**{"signal.data.collection": "public.debezium_signal", "poll.interval.ms": "50"})
    one.until(20)
    for number in range(21, 24):
        execute(database, "public.t", id=f"ad-hoc-{number}")
        fail_once(monkeypatch, owner, name)
        read = len(reads(one))
        database.execute(f"insert into t values ({number})")
        run(one, lambda q, read=read: len(reads(q)) >= read + 20 and is_over(q))
    run(one, lambda q: ("c", "t", (b"23",)) in q.changes)
    created = [values[0] for op, table, values in one.changes if op == "c" and table == "t"]
    assert created == [b"21", b"22", b"23"]
