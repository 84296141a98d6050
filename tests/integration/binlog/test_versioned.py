"""Tables of MariaDB whose rows in the log are not the rows of a SELECT: versioned ones, sequences and periods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.errors import PrerequisiteError
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import Driven, driven
from tests.integration.binlog.test_prerequisites import texts
from tests.integration.binlog.test_sessions import configured

NAMED = (
    "create table t (id int primary key, n int, {0} generated always as row start, {1} generated always as row end, "
    "period for system_time(s, e)) with system versioning"
)


@pytest.fixture(params=["FULL", "NO_LOG"])
def described(request: pytest.FixtureRequest, mariadb: MySqlDatabase) -> Iterator[MySqlDatabase]:
    """Yield a database whose log names columns, and then one whose log does not."""
    mariadb.server.execute(f"set global binlog_row_metadata={request.param}")
    yield mariadb
    mariadb.server.execute("set global binlog_row_metadata=FULL")


def replayed(planner: Driven, table: str = "t") -> dict[Any, Any]:
    """Return the rows of a table by their keys, as a reader of all changes has them."""
    held = {}
    for row in planner.of(table):
        key = tuple(row["key"].items())
        if row["op"] == "d":
            held.pop(key, None)
        else:
            held[key] = row["value"]["after"]
    return held


def run(database: MySqlDatabase, statements: list[str], **options: str) -> Driven:
    """Return the planner after a snapshot and statements, the last of which writes to a table of its own."""
    with driven(database, **options) as planner:
        planner.until(lambda: bool(planner.offset["log"].get("file")) and not planner.batch())
        database.execute(*statements, "create table done (id int primary key)", "insert into done values (1)")
        planner.until(lambda: bool(planner.of("done")))
    return planner


WRITES = [
    "update t set n=10 where id=1", "delete from t where id=2", "update t set id=7 where id=3", "delete history from t",
    "update t set n=11 where id=1",
]  # fmt: skip


def test_a_copy_has_the_current_rows_of_a_table_that_shows_its_period(described: MySqlDatabase) -> None:
    made = NAMED.format("s timestamp(6)", "e timestamp(6)")
    described.execute(made, "insert into t (id, n) values (1, 1), (2, 2), (3, 3)", "update t set n=n+1")
    planner = run(described, WRITES, row_copy="true")
    found = sorted((row["id"], row["n"]) for row in replayed(planner).values())
    assert found == sorted(described.execute("select id, n from t")) == [(1, 11), (7, 4)]


def test_events_have_the_historical_rows_too(mariadb: MySqlDatabase) -> None:
    """As Debezium's have; the end of their period tells them from the others."""
    made = NAMED.format("s timestamp(6)", "e timestamp(6)")
    mariadb.execute(made, "insert into t (id, n) values (1, 1), (2, 2), (3, 3)")
    planner = run(mariadb, WRITES)
    held = replayed(planner)
    assert sorted((row["id"], row["n"]) for row in held.values()) == [(1, 10), (1, 11), (7, 3)]
    assert len({row["e"] for row in held.values()}) == 2
    told = texts(configured(mariadb), "warning")["tables"]
    assert [f"named period columns: {mariadb.name}.t." in text for text in told if "versioning" in text] == [True]
    assert not texts(configured(mariadb, row_copy="true"), "warning").get("tables")


def test_a_table_whose_versions_are_marked_by_transactions_is_refused(mariadb: MySqlDatabase) -> None:
    mariadb.execute(NAMED.format("s bigint unsigned", "e bigint unsigned"))
    found = texts(configured(mariadb), "error")["tables"]
    assert f"marked by transaction ids: {mariadb.name}.t." in found[0]
    with driven(mariadb) as planner, pytest.raises(PrerequisiteError, match="marked by transaction ids"):
        planner.batch()
    # the log has the statement
    mariadb.execute("drop table t", "create table u (id int primary key)")
    with driven(mariadb) as planner:
        planner.until(lambda: bool(planner.offset["log"].get("file")) and not planner.batch())
        mariadb.execute(NAMED.format("s bigint unsigned", "e bigint unsigned"), "insert into t (id, n) values (1, 1)")
        with pytest.raises(PrerequisiteError) as caught:
            planner.until(lambda: bool(planner.of("t")))
    assert "marked by transaction ids" in caught.value.remedy


def test_a_column_makes_a_table_a_versioned_one(described: MySqlDatabase) -> None:
    described.execute("create table before_it (id int primary key)")
    statements = [
        "create table t (id int primary key, a int with system versioning, b int)", "insert into t values (1, 1, 1)",
        "update t set b=2", "update t set a=2", "delete history from t",
    ]  # fmt: skip
    planner = run(described, statements)
    assert [*replayed(planner).values()] == [{"id": 1, "a": 2, "b": 2}]


def test_the_rows_of_sequences_are_not_delivered(described: MySqlDatabase) -> None:
    described.execute("create sequence s cache 5", "create table t (id int primary key default nextval(s), v int)")
    statements = [
        "insert into t (v) values (1)", "create sequence later", "insert into t (id, v) values (100, nextval(later))",
        "alter sequence s restart 500", "insert into t (v) values (2)", "drop sequence later",
    ]  # fmt: skip
    planner = run(described, statements)
    assert sorted(row["id"] for row in replayed(planner).values()) == [1, 100, 500]
    assert {row["table"] for row in planner.rows if row["op"] in "crud"} == {"t", "done"}


def test_periods_of_the_application_come_and_go(described: MySqlDatabase) -> None:
    described.execute("create table t (room int not null, a date, b date, v int)")
    statements = [
        "alter table t add period for p (a, b), add unique k (room, p without overlaps)",
        "insert into t values (1, '2000-01-01', '2010-01-01', 1), (2, '2000-01-01', '2010-01-01', 1)",
        "update t for portion of p from '2003-01-01' to '2004-01-01' set v=5 where room=1",
        "delete from t for portion of p from '2005-01-01' to '2006-01-01' where room=2",
        "alter table t drop index k, drop period for p, add primary key (room, a)",
        "insert into t values (3, '2000-01-01', '2010-01-01', 1)",
    ]  # fmt: skip
    planner = run(described, statements)
    found = [(row["room"], row["v"]) for row in replayed(planner).values()]
    assert sorted(found) == sorted(described.execute("select room, v from t"))
