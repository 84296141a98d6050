"""Conditions of signals that fail when rows are read: a warning, the table left out, everything else goes on."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tailrace.connectors.postgres.snapshot.tasks import ReadTask, SnapshotTask
from tailrace.errors import TailraceError
from tests.extent import by_day
from tests.fix_postgres import Database
from tests.fix_query import Query, simple
from tests.integration.postgres.signalled import SIGNALS, SINK, execute, is_over, reads, run

TABLES = (
    SIGNALS,
    "create table t (id int primary key, v text)",
    "insert into t select i, 'secret' || i from generate_series(1, 9) i",
    "create table u (id int primary key, v text)",
    "insert into u values (1, 'u')",
    "create function slow(integer) returns boolean language sql as 'select true from pg_sleep(60)'",
    "create function picky(integer) returns boolean language plpgsql as $$ begin "
    "if $1 = 5 then raise exception 'no % here', 'secret5'; end if; return true; end $$",
)
# a condition, and the SQLSTATE that the server answers
FAILING = {
    "division by zero": ("1 / (id - 5) > -99", "22012"),
    "cast": ("case when id = 5 then v::int > 0 else true end", "22P02"),
    "raised": ("picky(id)", "P0001"),
    "one row wanted": ("id <> case when id = 5 then (select id from t) else 0 end", "21000"),
    "written": ("case when id = 5 then lo_create(0) > 0 else true end", "25006"),
    "time-out": ("case when id = 5 then slow(id) else true end", "57014"),
}
KINDS = ("incremental", "blocking")


def ask(database: Database, kind: str, condition: str, *tables: str, **data: Any) -> None:
    """Signal a snapshot of t with the condition, and of other tables."""
    sql = condition if kind == "incremental" else f"select * from t where {condition}"
    listed = [{"data-collection": "public.t", "filter": sql}]
    execute(database, "public.t", *tables, type=kind, **{"additional-conditions": listed}, **data)


def told(query: Query) -> list[tuple[str, str]]:
    """Return the tables whose reading has ended, with the status of each."""
    found = [
        dict(notification.data) for notification in query.notifications if notification.type == "TABLE_SCAN_COMPLETED"
    ]
    return [(each["scanned_collection"], each["status"]) for each in found]


@pytest.mark.parametrize(
    ("kind", "name"),
    by_day(
        [("incremental", "division by zero"), ("incremental", "time-out"), *(("blocking", name) for name in FAILING)], 4
    ),
)
def test_a_condition_that_fails_for_a_row_leaves_out_its_table_alone(
    database: Database, make_query: Any, caplog: pytest.LogCaptureFixture, kind: str, name: str
) -> None:
    condition, sqlstate = FAILING[name]
    database.execute(*TABLES)
    limit = {"database_query_timeout_ms": "4000"} if name == "time-out" else {}
    one = make_query(incremental_snapshot_chunk_size="4", incremental_snapshot_window_chunks="1", **limit, **SINK)
    one.step()
    ask(database, kind, condition, "public.u")
    database.execute("update t set v = 'later' where id = 1")
    run(one, lambda q: bool(reads(q, "u")) and ("u", "t", (b"1", b"later")) in q.changes)
    assert reads(one, "u") == [(b"1", b"u")]
    assert {int(row[0]) for row in reads(one)} <= {1, 2, 3, 4}
    run(one, is_over)
    assert sorted(told(one)) == [("public.t", "SQL_EXCEPTION"), ("public.u", "SUCCEEDED")]
    lines = [line for line in caplog.messages if "public.t" in line and sqlstate in line]
    assert lines
    assert "secret" not in caplog.text
    assert "case when" not in caplog.text
    # the checkpoint has no trace of it
    one.kill()
    database.execute("insert into t values (10, 'ten')")
    run(one, lambda q: ("c", "t", (b"10", b"ten")) in q.changes)
    assert len(reads(one, "u")) == 1
    ask(database, kind, "id > 7", id="again")
    run(one, lambda q: len([row for row in reads(q) if int(row[0]) > 7]) == 3)


@pytest.mark.parametrize(("kind", "code"), by_day(list(product(KINDS, ("22012", "57014", "53100"))), 4))
def test_a_condition_that_fails_in_a_task_alone_ends_its_rows_and_not_the_query(
    database: Database, make_query: Any, caplog: pytest.LogCaptureFixture, kind: str, code: str
) -> None:
    """A function that succeeds for the planner, and fails for the task that reads after it."""
    database.execute(
        *TABLES,
        # functions look at the present catalog, whatever the snapshot shows
        f"""create function later(integer) returns boolean language plpgsql as $$ begin
              if $1 = 5 and to_regclass('public.busy') is not null then raise 'secret' using errcode = '{code}'; end if;
              return true;
            end $$""",
    )
    one = make_query(incremental_snapshot_chunk_size="20", **SINK)
    one.step()
    planned = one.planner.partitions
    found: list[int] = []

    def watched(start: Any, end: Any) -> list[Any]:
        tasks = simple(planned(start, end))
        if any(isinstance(task, ReadTask | SnapshotTask) for task in tasks):
            database.execute("create table if not exists busy ()")
            for task in tasks:
                # as a worker does it
                found.extend(rows.num_rows for rows in task.read())
        return tasks

    one.planner.partitions = watched
    ask(database, kind, "later(id)", "public.u")
    if code == "53100":
        # a failure of the server: a retry may succeed
        with pytest.raises(TailraceError, match=r"public\.t for the snapshot failed with SQLSTATE 53100"):
            run(one, lambda _: False)
        one.kill()
        database.execute("drop table busy")
        run(one, lambda q: len({row[0] for row in reads(q)}) == 9)
        return
    run(one, lambda q: bool(reads(q, "u")))
    run(one, is_over)
    assert {int(row[0]) for row in reads(one)} <= {1, 2, 3, 4}
    assert f"the condition of a signal for public.t fails with SQLSTATE {code}" in caplog.text
    assert "secret" not in caplog.text
    database.execute("insert into t values (10, 'ten')")
    run(one, lambda q: ("c", "t", (b"10", b"ten")) in q.changes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_around_a_failing_condition_loses_nothing_of_other_tables(
    database: Database, make_query: Any, kind: str
) -> None:
    database.execute(*TABLES, "insert into u select i, 'u' from generate_series(2, 9) i")
    one = make_query(incremental_snapshot_chunk_size="4", incremental_snapshot_window_chunks="1")
    one.step()
    ask(database, kind, "1 / (id - 5) > -99", "public.u")
    for _ in range(5):
        # planned and read, not committed; the next planner replays it
        one.step(commit=False)
        one.kill()
        one.step()
        one.kill()
        one.step()
        one.step()
    run(one, lambda q: is_over(q) and len(reads(q, "u")) >= 9)
    assert {int(row[0]) for row in reads(one, "u")} == set(range(1, 10))
    assert {int(row[0]) for row in reads(one)} <= {1, 2, 3, 4}


def test_changes_of_a_table_that_is_left_out_all_come(database: Database, make_query: Any) -> None:
    """The log is read on behind a blocking snapshot; changes of a table that it did not read are not left out."""
    database.execute(*TABLES)
    one = make_query()
    one.step()
    ask(database, "blocking", "1 / (id - 5) > -99", "public.u")
    run(one, lambda q: "blocking" in q.committed.get("progress", {}))
    database.execute("update t set v = 'new'", "update u set v = 'new'")
    run(one, lambda q: bool(reads(q, "u")))
    database.execute("insert into t values (10, 'ten')")
    run(one, lambda q: ("c", "t", (b"10", b"ten")) in q.changes)
    assert sorted(values for op, table, values in one.changes if (op, table) == ("u", "t")) == [
        (str(number).encode(), b"new") for number in range(1, 10)
    ]
    assert [op for op, table, _ in one.changes if table == "u"] == ["r", "u"]


def test_a_failure_without_a_signal_s_condition_stays_an_error(database: Database, make_query: Any) -> None:
    database.execute(*TABLES)
    one = make_query(
        snapshot_mode="initial",
        snapshot_select_statement_overrides="public.t",
        **{"snapshot.select.statement.overrides.public.t": "select * from t where 1 / (id - 5) > -99"},
    )
    with pytest.raises(TailraceError, match="division by zero"):
        run(one, lambda _: False)


def test_a_query_that_ends_with_its_session_is_no_fault_of_the_condition(database: Database, make_query: Any) -> None:
    database.execute(
        *TABLES,
        """create function ends(integer) returns boolean language plpgsql as $$ begin
             if $1 = 5 and to_regclass('public.busy') is not null then
               perform pg_terminate_backend(pg_backend_pid());
             end if;
             return true;
           end $$""",
    )
    one = make_query(incremental_snapshot_chunk_size="20")
    one.step()
    planned = one.planner.partitions

    def ended(start: Any, end: Any) -> Any:
        tasks = planned(start, end)
        if any(isinstance(task, ReadTask) for task in simple(tasks)):
            database.execute("create table if not exists busy ()")
        return tasks

    one.planner.partitions = ended
    ask(database, "incremental", "ends(id)")
    with pytest.raises(Exception, match=r"terminating connection|ended|closed"):
        run(one, lambda _: False)
    one.kill()
    database.execute("drop table busy")
    run(one, lambda q: len({row[0] for row in reads(q)}) == 9)


def test_a_condition_that_fails_for_a_row_without_a_key_is_found_by_the_planner(
    database: Database, make_query: Any
) -> None:
    database.execute(*TABLES, "alter table t add k int", "update t set k = 1 where id > 5")
    one = make_query(**SINK)
    one.step()
    condition = {"data-collection": "public.t", "filter": "1 / (id - 5) > -99"}
    execute(database, "public.t", **{"additional-conditions": [condition], "surrogate-key": "k"})
    run(one, lambda q: told(q) == [("public.t", "SQL_EXCEPTION")])
    assert reads(one) == []
