"""The test harness: it waits for a position, so it notices one event too many or too few."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors.postgres.protocol.position import LogPosition
from tests.fix_capture import Captures, reader_of
from tests.fix_postgres import Database

TABLE = "create table t (id int primary key)"


@pytest.mark.parametrize(("count", "seconds"), [(2, 20), (4, 0)])
def test_a_capture_takes_neither_more_nor_fewer_events(
    capture: Captures, database: Database, count: int, seconds: float
) -> None:
    one = capture(TABLE)
    database.execute("insert into t values (1), (2)", "insert into t values (3)")
    with pytest.raises(AssertionError):
        one.take(count, seconds)


def test_a_query_has_what_the_log_held_when_it_was_asked(query: Any, database: Database) -> None:
    database.execute(TABLE)
    one = query(**{"snapshot.mode": "no_data"})
    one.step()
    database.execute("insert into t values (1)", *["insert into t select max(id) + 1 from t"] * 40)
    assert len(one.until(1)) == 41


def test_a_position_is_reached_without_a_captured_change(query: Any, database: Database) -> None:
    database.execute(TABLE, "create table other (id int primary key)")
    one = query(**{"snapshot.mode": "no_data", "table.include.list": "public.t", "status.update.interval.ms": "600000"})
    one.step()
    database.execute("insert into other values (1)")
    assert one.until(0, seconds=60) == []
    assert reader_of(one.planner).has_read(LogPosition(database.flushed()))
