"""Snapshots: their rows, the order of tables, and tables that are altered meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.postgres.snapshot import chunks
from tailrace.connectors.postgres.snapshot.session import select_statement
from tailrace.errors import ConfigError, ConnectionFailed, PositionLost
from tailrace.snapshot.plan import PlannedTable, SnapshotPlan
from tests.fix_postgres import Database
from tests.fix_query import Query, row


def reads(one: Query) -> list[str]:
    """Return the tables of the reads, in order, each once."""
    return list(dict.fromkeys(table for op, table, _ in one.changes if op == "r"))


def three_tables(database: Database) -> None:
    database.execute(
        "create table a (id int primary key)",
        "create table b (id int primary key)",
        'create table "C.d" (id int primary key)',
        "insert into a values (1), (2)",
        "insert into b values (1)",
        'insert into "C.d" values (1), (2), (3)',
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["C.d", "a", "b"]),
        ({"snapshot.include.collection.list": r"public\.[ab]"}, ["a", "b"]),
        ({"snapshot.include.collection.list": r"PUBLIC\.C\.D"}, ["C.d"]),
        ({"table.include.list": r"public\.b,public\.a", "event.format": "1.7"}, ["b", "a"]),
        ({"table.include.list": r"public\.b,public\.a", "event.format": "3"}, ["b", "a"]),
        ({"snapshot.tables.order.by.row.count": "ascending"}, ["b", "a", "C.d"]),
        ({"snapshot.tables.order.by.row.count": "descending"}, ["C.d", "a", "b"]),
    ],
)
def test_a_snapshot_takes_the_selected_tables_in_order(
    database: Database, query: Any, options: dict[str, str], expected: list[str]
) -> None:
    three_tables(database)
    one = query(**options)
    while one.step():
        pass
    assert reads(one) == expected


def test_a_table_left_out_of_the_snapshot_is_captured_all_the_same(database: Database, query: Any) -> None:
    three_tables(database)
    one = query(**{"snapshot.include.collection.list": r"public\.a"})
    one.until(2)
    database.execute("insert into b values (2)")
    assert one.until(3)[2:] == [("c", "b", (b"2",))]


def test_a_statement_of_its_own_takes_the_place_of_a_tables_rows(database: Database, query: Any) -> None:
    database.execute(
        'create table "T.x" (id int primary key, v varchar(10), n numeric(5,2))',
        "insert into \"T.x\" select i, 'v' || i, i from generate_series(1, 9) i",
    )
    name = "public.T.x"
    one = query(
        **{
            "snapshot.select.statement.overrides": name,
            # in lower case, as Spark passes names on
            f"snapshot.select.statement.overrides.{name}".lower(): (
                'select n + 1 as n, 7 as more, upper(v) as v, id from "T.x" where id > 7 order by id desc ;'
            ),
        }
    )
    assert one.until(2) == [("r", "T.x", (b"9", b"V9", b"10.00")), ("r", "T.x", (b"8", b"V8", b"9.00"))]
    database.execute("insert into \"T.x\" values (20, 'w', 1)")
    assert one.until(3)[2:] == [("c", "T.x", (b"20", b"w", b"1.00"))]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("select id from t", r"public\.t does not give the column v once"),
        ("select id, v, v from t", r"does not give the column v \(2 times\) once"),
        ("select nothing from t", r"public\.t fails with SQLSTATE 42703"),
        ("delete from t returning *", r"public\.t fails with SQLSTATE 42601"),
    ],
)
def test_a_statement_that_fails_or_lacks_a_column_names_its_table(
    database: Database, query: Any, statement: str, reason: str
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'secret')")
    listed = "snapshot.select.statement.overrides"
    one = query(**{listed: "public.t", f"{listed}.public.t": statement})
    with pytest.raises(ConfigError, match=reason) as caught:
        one.step()
    assert "secret" not in str(caught.value)


def test_a_statement_that_fails_while_rows_are_read_tells_no_data(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'secret')")
    listed = "snapshot.select.statement.overrides"
    one = query(**{listed: "public.t", f"{listed}.public.t": "select v::int as id, v from t offset 0"})
    start = one.planner.initial_offset()
    (task,) = one.planner.partitions(start, one.planner.latest_offset(start, None, None))
    with pytest.raises(ConfigError, match="has ended half-way") as caught:
        list(task.read())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"snapshot.select.statement.overrides": "public.t"}, "lists public.t, which has no statement"),
        ({"snapshot.select.statement.overrides.public.t": "select 1"}, "does not list public.t"),
    ],
)
def test_overrides_and_their_statements_belong_together(
    database: Database, query: Any, options: dict[str, str], reason: str
) -> None:
    database.execute("create table t (id int primary key)")
    with pytest.raises(ConfigError, match=reason):
        query(**options).step()


def test_more_tables_than_the_guardrail_are_an_error_or_a_warning(
    database: Database, query: Any, caplog: pytest.LogCaptureFixture
) -> None:
    three_tables(database)
    limit = {"guardrail.collections.max": "2"}
    with pytest.raises(ConfigError, match="3 tables are captured"):
        query(**limit, **{"guardrail.collections.limit.action": "fail"}).step()
    query(**limit).until(6)
    assert "more than guardrail.collections.max = 2" in caplog.text
    caplog.clear()
    assert len(query(**{"guardrail.collections.max": "3", "slot.name": f"s2_{database.name}"}).until(6)) == 6
    assert "guardrail" not in caplog.text


def test_the_snapshot_waits_as_long_as_it_is_told(database: Database, query: Any) -> None:
    three_tables(database)
    one = query(**{"snapshot.delay.ms": "700"})
    began = time.monotonic()
    one.step()
    assert time.monotonic() - began >= 0.7


def test_when_needed_reads_again_when_the_slot_is_gone_and_not_before(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"snapshot.mode": "when_needed"})
    one.until(1)
    database.execute("insert into t values (2, 'b')")
    one.until(2)
    one.kill()
    database.execute("insert into t values (3, 'c')")
    one.until(3)
    assert [change[0] for change in one.changes] == ["r", "c", "c"]
    one.planner.close()
    database.execute(
        f"select pg_drop_replication_slot('{one.options['slot.name']}')", "update t set v = 'z' where id = 1"
    )
    one.planner = one.start()
    one.until(6)
    database.execute("insert into t values (4, 'd')")
    one.until(7)
    assert sorted(change[2] for change in one.changes[3:6]) == [row(1, "z"), row(2, "b"), row(3, "c")]
    assert one.changes[6] == ("c", "t", row(4, "d"))


def test_when_needed_reads_again_when_the_slot_stands_ahead_of_the_checkpoint(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"snapshot.mode": "when_needed"})
    one.until(1)
    database.execute("insert into t values (2, 'b')")
    one.until(2)
    one.planner.close()
    slot = one.options["slot.name"]
    database.execute(
        f"select pg_drop_replication_slot('{slot}')",
        "insert into t values (3, 'c')",
        f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "insert into t values (4, 'd')",
    )
    one.planner = one.start()
    one.until(6)
    assert sorted(change[2] for change in one.changes[2:]) == [row(1, "a"), row(2, "b"), row(3, "c"), row(4, "d")]
    assert {change[0] for change in one.changes[2:]} == {"r"}


@pytest.mark.parametrize(
    ("data", "stream", "expected"), [(True, True, "rcrr"), (True, False, "rrr"), (False, True, "cc")]
)
def test_the_switches_of_configuration_based_are_obeyed(
    database: Database, query: Any, data: bool, stream: bool, expected: str
) -> None:
    based = "snapshot.mode.configuration.based"
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(
        **{
            "snapshot.mode": "configuration_based",
            f"{based}.snapshot.data": str(data),
            f"{based}.start.stream": str(stream),
        }
    )
    one.step()
    database.execute("insert into t values (2, 'b')")
    one.until(2, 3)
    one.kill()
    if expected == "cc":
        database.execute("insert into t values (3, 'c')")
    one.until(len(expected), 3)
    assert "".join(change[0] for change in one.changes) == expected


def test_configuration_based_mends_a_lost_position_only_when_told(database: Database, query: Any) -> None:
    based = "snapshot.mode.configuration.based"
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    options = {"snapshot.mode": "configuration_based", f"{based}.start.stream": "true"}
    one = query(**options)
    one.step()
    one.planner.close()
    database.execute(f"select pg_drop_replication_slot('{one.options['slot.name']}')")
    one.planner = one.start()
    with pytest.raises(PositionLost):
        one.step()
    one.options[f"{based}.snapshot.on.data.error"] = "true"
    one.kill()
    assert one.until(1) == [("r", "t", (b"1",))]


def test_a_table_altered_between_the_snapshot_and_its_lock_is_read_under_another_snapshot(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("create table t (id int primary key, v int)", "insert into t values (1, 10), (2, 20)")
    taken: list[Any] = []

    class Altering(chunks.SnapshotSession):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            taken.append(self)
            if len(taken) == 1:
                # rewritten: under the first snapshot it would appear empty
                database.execute("alter table t alter v type text using 'v' || v", "insert into t values (3, 'v30')")

    monkeypatch.setattr(chunks, "SnapshotSession", Altering)
    one = query()
    one.until(3)
    assert len(taken) == 2
    assert one.changes == [("r", "t", row(1, "v10")), ("r", "t", row(2, "v20")), ("r", "t", row(3, "v30"))]
    database.execute("insert into t values (4, 'v40')")
    assert one.until(4)[3:] == [("c", "t", row(4, "v40"))]


def test_a_table_altered_in_the_middle_of_its_snapshot_is_read_on_in_its_new_form(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.connectors.postgres.snapshot.session.CHUNK_PAGES", 2)
    database.execute(
        "create table t (id int primary key, v int, w int)",
        "insert into t select i, i, -i from generate_series(1, 3000) i",
    )
    one = query(**{"event.order.segments": "1"})
    one.step()
    assert 0 < len(one.changes) < 3000
    # not blocked by the snapshot
    database.execute("set lock_timeout = '5s'", "alter table t drop v, add v text default 'new'")
    one.until(3000)
    assert {int(change[2][0]) for change in one.changes} == set(range(1, 3001))
    for _, _, values in one.changes:
        assert values in ((values[0], values[0], b"-" + values[0]), (values[0], b"-" + values[0], b"new"))


@pytest.mark.parametrize(
    "statement",
    [
        "alter table t drop v, add v text",
        "alter table t alter v type text using 'w' || v",
        "begin; alter table t rename v to x; alter table t rename w to v; alter table t rename x to w; commit",
        "vacuum full t",
    ],
)
def test_a_chunk_whose_table_is_altered_before_it_is_read_is_an_error_that_a_restart_mends(
    database: Database, query: Any, statement: str
) -> None:
    database.execute("create table t (id int primary key, v text, w text)", "insert into t values (1, 'v', 'w')")
    one = query()
    start = one.planner.initial_offset()
    one.planned = one.planner.latest_offset(start, None, None)
    (task,) = one.planner.partitions(start, one.planned)
    database.execute(statement)
    with pytest.raises(ConnectionFailed, match=r"public\.t was altered"):
        list(task.read())
    one.kill()
    one.until(1)
    with database.connect() as connection:
        rows = connection.execute("select * from t").fetchall()
    expected = [tuple(None if value is None else str(value).encode() for value in found) for found in rows]
    assert [change[2] for change in one.changes] == expected


@pytest.mark.parametrize("statement", ["vacuum full t", "alter table t alter v type text using 'w' || v"])
def test_a_table_written_anew_between_two_runs_of_its_snapshot_loses_no_row(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr("tailrace.connectors.postgres.snapshot.session.CHUNK_PAGES", 2)
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, 'v' from generate_series(1, 3000) i",
        # the remaining rows move to pages that were read
        "delete from t where id % 7 > 0",
    )
    one = query(**{"event.order.segments": "1"})
    one.step()
    read_before = len(one.changes)
    assert 0 < read_before < 428
    one.kill()
    database.execute(statement)
    while one.step():
        pass
    one.until(0)
    assert {int(change[2][0]) for change in one.changes} == set(range(7, 3001, 7))


def test_a_table_dropped_between_two_runs_of_its_snapshot_is_left_out(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.connectors.postgres.snapshot.session.CHUNK_PAGES", 2)
    three_tables(database)
    database.execute("insert into a select i from generate_series(3, 3000) i")
    one = query(**{"event.order.segments": "1"})
    one.step()
    one.kill()
    database.execute("drop table a")
    while one.step():
        pass
    assert ("r", "b", (b"1",)) in one.changes


LARGE = "x" * 10_000


def half_read(database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, before: Any = None) -> Query:
    """A snapshot of which a part is read: the row 2500, whose column v is stored apart, is not.

    The pages that were read have room for other rows. `before` is called when the slot has been made.
    """
    monkeypatch.setattr("tailrace.connectors.postgres.snapshot.session.CHUNK_PAGES", 2)
    database.execute(
        "create table t (id int primary key, n int, v text)",
        "alter table t alter v set storage external",
        f"insert into t select i, 0, case i when 2500 then '{LARGE}' end from generate_series(1, 3000) i",
        "delete from t where id between 2 and 100",
        "vacuum t",
    )
    one: Query = query(**{"event.order.segments": "1"})
    if before is not None:
        database.execute(f"select pg_create_logical_replication_slot('{one.options['slot.name']}', 'pgoutput')")
        before()
    one.step()
    assert 0 < len(one.changes) < 2000
    return one


def page(database: Database, number: int) -> int:
    with database.connect() as connection:
        found = connection.execute("select (ctid::text::point)[0]::int from t where id = %s", (number,)).fetchone()
    assert found is not None
    return int(found[0])


def finished(one: Query) -> dict[int, list[tuple[Any, ...]]]:
    """Return the reads of each row at the end of the snapshot."""
    while one.step():
        pass
    one.until(0)
    found: dict[int, list[tuple[Any, ...]]] = {}
    for op, _, values in one.changes:
        if op == "r":
            assert values is not None
            found.setdefault(int(values[0]), []).append(values)
    assert set(found) == {1, *range(101, 3001)}
    return found


@pytest.mark.parametrize("later", ["", "vacuum (freeze) t"])
def test_a_row_that_moves_to_pages_that_were_read_before_a_restart_is_read_there(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    one = half_read(database, query, monkeypatch)
    one.kill()
    away = page(database, 2500)
    database.execute("update t set n = 1 where id = 2500", *filter(None, [later]))
    assert page(database, 2500) < 2 < away
    reads_ = finished(one)
    assert reads_.pop(2500) == [(b"2500", b"1", LARGE.encode())]
    # no other row is read twice
    assert {len(each) for each in reads_.values()} == {1}
    # the log has no value for it
    assert ("u", "t", (b"2500", b"1", None)) in one.changes


def test_a_row_moved_by_a_subtransaction_that_was_running_when_the_snapshot_began_is_read(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.connect(autocommit=False) as connection:

        def move() -> None:
            connection.execute("create temp table mine (id int)")
            connection.execute("savepoint within")
            connection.execute("update t set n = 1 where id = 2500")
            connection.execute("release savepoint within")
            # later ids are in use before the snapshot is taken
            database.execute("select pg_current_xact_id()")

        one = half_read(database, query, monkeypatch, move)
        one.kill()
        connection.commit()
    assert page(database, 2500) < 2
    assert finished(one)[2500] == [(b"2500", b"1", LARGE.encode())]


def test_rows_are_looked_for_after_every_restart_and_each_read_is_an_event_of_its_own(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = half_read(database, query, monkeypatch)
    numbers: list[int] = []
    moved = []
    for candidates in ([2500], range(1900, 2000)):
        one.kill()
        for number in candidates:
            database.execute(f"update t set n = 1 where id = {number}")
            if page(database, number) < 2:
                break
        else:
            pytest.fail("no row moves to the pages that were read")
        moved.append(number)
        start = one.committed
        assert start is not None
        one.planned = one.planner.latest_offset(start, None, one.max_bytes)
        numbers += [task.chunk.number for task in one.planner.partitions(start, one.planned)]
        one.step()
    assert len(set(numbers)) == len(numbers)
    found = finished(one)
    assert moved[0] == 2500
    assert found[2500][0] == (b"2500", b"1", LARGE.encode())
    assert found[moved[1]] == [(str(moved[1]).encode(), b"1", None)]


def test_an_offset_that_does_not_tell_when_the_snapshot_began_has_all_rows_looked_through(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = half_read(database, query, monkeypatch)
    read_before = {int(change[2][0]) for change in one.changes}
    assert one.committed is not None
    del one.committed["snapshot"]["xmin"]
    one.kill()
    found = finished(one)
    assert {number for number, each in found.items() if len(each) == 2} == read_before


@pytest.mark.parametrize(
    ("since", "later", "earlier"),
    [
        (1000, [1000, 1001, 2**31], [999, 3, 2, 1]),
        # ids of 32 bits wrap around
        (2**32 - 5, [2**32 - 5, 2**32 - 1, 3, 1000], [2**32 - 6, 2, 1]),
        (7 * 2**32 + 10, [10, 2**31], [9, 3, 2**32 - 1]),
    ],
)
def test_rows_are_looked_for_by_ids_that_come_around(
    database: Database, since: int, later: list[int], earlier: list[int]
) -> None:
    table = TableSchema(TableId("d", "public", "t"), (), ())
    (chunk,) = SnapshotPlan((PlannedTable("public", "t", 1),), 1).chunks(0, 1)
    _, condition = select_statement(table, {}, chunk, "r", since).split(" where ")
    with database.connect() as connection:
        found = connection.execute(
            f"select xmin from unnest(%s::int8[]) xmin where {condition}".encode(), (later + earlier,)
        ).fetchall()
    assert [xmin for (xmin,) in found] == later
