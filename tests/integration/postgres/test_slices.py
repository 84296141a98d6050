"""A backlog in two halves at once is complete, whatever transactions cross its middle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg import sql

from tailrace.connectors.postgres.log import gears, slices
from tests.fix_capture import reader_of
from tests.fix_postgres import Database
from tests.fix_query import Query

NO_SNAPSHOT = {"snapshot.mode": "no_data"}


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let every slice come in halves; return the copies of the slot that gave a half."""
    monkeypatch.setattr(slices, "HALVES_ABOVE", 0)
    given: list[str] = []
    original = gears.CatchUp.slice

    def noted(self: gears.CatchUp, upto_lsn: int) -> Iterator[gears.Messages]:
        for run in original(self, upto_lsn):
            given.append(self._name)
            yield run

    monkeypatch.setattr(gears.CatchUp, "slice", noted)
    return given


def drained(query: Any, slot: str) -> Query:
    one: Query = query(**NO_SNAPSHOT, **{"slot.name": slot, "provide.transaction.metadata": "true"})
    one.drain_now()
    return one


def copied(database: Database, slot: str) -> str:
    name = f"{slot}_again"
    database.execute(f"select pg_copy_logical_replication_slot('{slot}', '{name}')")
    return name


@contextmanager
def slots_but(database: Database, spare: int) -> Iterator[None]:
    """Leave the server `spare` free replication slots."""
    with database.connect() as connection:
        found = connection.execute(
            "select current_setting('max_replication_slots')::int - count(*)::int from pg_replication_slots"
        ).fetchone()
        assert found is not None
        for number in range(found[0] - spare):
            connection.execute("select pg_create_physical_replication_slot(%s, false, true)", [f"taken_{number}"])
        yield


@pytest.fixture
def slot(database: Database) -> str:
    """A slot from whose position on transactions interleave."""
    name = f"slot_{database.name}"
    database.execute(
        "create table t (id int primary key, v text)",
        "create publication dbz_publication for all tables",
        f"select pg_create_logical_replication_slot('{name}', 'pgoutput')",
    )
    with database.connect(autocommit=False) as long, database.connect(autocommit=False) as late:
        long.execute("insert into t select i, repeat('x', 100) from generate_series(10000, 10999) i")
        for number in range(30):
            rows = sql.SQL("insert into t select i, repeat('y', 100) from generate_series({}, {}) i")
            database.execute(rows.format(number * 100, number * 100 + 99).as_string(long))
            if number == 10:
                late.execute("insert into t select i, repeat('z', 100) from generate_series(20000, 20999) i")
            if number == 20:
                long.execute("update t set v = 'later' where id between 10000 and 10999")
                long.commit()
        late.commit()
        database.execute("insert into t values (-1, 'last')")
    return name


def test_both_halves_follow_each_other(database: Database, query: Any, halves: list[str], slot: str) -> None:
    again = copied(database, slot)
    found = drained(query, slot)
    assert set(halves) == {f"{slot[:40]}_catchup", f"{slot[:40]}_catchup_2"}
    whole = query(**NO_SNAPSHOT, **{"slot.name": again, "provide.transaction.metadata": "true"})
    whole.until(len(found.changes))
    assert reader_of(whole.planner).feed.gear == "streaming"
    assert len(found.changes) == 3000 + 2000 + 1000 + 1
    assert found.changes == whole.changes
    assert found.at == whole.at
    assert found.boundaries == whole.boundaries


@pytest.mark.parametrize("spare", [1, 2])
def test_the_last_slot_is_left_to_others(
    database: Database, query: Any, halves: list[str], slot: str, spare: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace")
    with slots_but(database, spare):
        found = drained(query, slot)
    assert len(found.changes) == 6001
    assert set(halves) == {f"{slot[:40]}_catchup"}
    assert "there is no second one" in caplog.text


def test_one_copy_goes_on_where_the_session_of_the_second_one_ends(
    database: Database, query: Any, halves: list[str], slot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = gears.CatchUp.advance

    def failing(self: gears.CatchUp, lsn: int) -> None:
        if self._name.endswith("_2"):
            with database.connect() as connection:
                connection.execute(
                    "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where slot_name = %s",
                    [self._name],
                )
        advance(self, lsn)

    monkeypatch.setattr(gears.CatchUp, "advance", failing)
    found = drained(query, slot)
    assert len(found.changes) == 6001
    assert set(halves) == {f"{slot[:40]}_catchup"}
    with database.connect() as connection:
        left = connection.execute("select slot_name from pg_replication_slots where database = %s", [database.name])
        assert left.fetchall() == [(slot,)]
