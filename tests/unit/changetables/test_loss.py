"""Lost changes are an error: cleaned up, dropped, restored from a backup, or on a replica that is behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.errors import PositionLost
from tests.unit.changetables.driving import Query, batches_for_rows  # noqa: F401
from tests.unit.changetables.memory import MemorySession, Server


def server() -> Server:
    made = Server("l")
    made.table("dbo.a", ("id", "v"), ("id",))
    made.table("dbo.b", ("id", "v"), ("id",))
    return made


def test_a_dropped_capture_table_is_an_error() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.disable("dbo_a")
    with pytest.raises(PositionLost, match=r"dbo_a of dbo\.a is gone"):
        query.drain()


def test_a_capture_table_that_was_made_anew_is_not_taken_for_the_old_one() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.disable("dbo_a")
    database.enable("dbo.a")
    database.commit(("dbo.a", "c", None, ("2", "x")))
    with pytest.raises(PositionLost, match="is gone"):
        query.drain()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_position_that_is_cleaned_up_is_an_error(restarted: bool) -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    last = database.commit(("dbo.a", "c", None, ("2", "x")))
    database.clean(last)
    if restarted:
        query.restart()
    with pytest.raises(PositionLost, match="cleaned up"):
        query.drain()


def test_a_clean_up_of_what_was_read_is_none() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    last = database.commit(("dbo.a", "c", None, ("2", "x")))
    database.clean(last)
    query.restart()
    assert [event.after for event in query.drain()] == [("2", "x")]


def test_a_clean_up_while_rows_are_read_is_an_error() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    last = database.commit(("dbo.a", "c", None, ("2", "x")))
    end = query.plan()
    assert end is not None
    tasks = query.planner.partitions(query.start or {}, end)
    database.clean(last)
    with pytest.raises(PositionLost, match="cleaned up"):
        list(tasks[0].read())


def test_a_planned_batch_whose_changes_are_all_cleaned_up_is_an_error() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    end = query.plan()
    assert end is not None
    # The batch was planned and never written, and the server removed just this batch while nothing ran.
    query.restart()
    database.commit(("dbo.b", "c", None, ("1", "x")))
    database.clean(int(end["databases"]["db"]["commit"], 16) + 1)
    with pytest.raises(PositionLost, match="cleaned up"):
        query.read(end)


def test_a_clean_up_before_a_batch_is_planned_is_an_error() -> None:
    database = server()
    query = Query(database)
    query.drain()
    last = database.commit(("dbo.a", "c", None, ("1", "x")))
    # Such a query remembers positions that it has passed without a row.
    query.planner.stop_at_present()
    counted = MemorySession.total

    def cleaned_first(session: MemorySession, *span: Any) -> int:
        database.clean(last + 1)
        return counted(session, *span)

    with pytest.MonkeyPatch.context() as patch:
        # Between the check of the change tables and the count of their rows.
        patch.setattr(MemorySession, "total", cleaned_first)
        end = query.plan()
    assert end is not None
    with pytest.raises(PositionLost, match="cleaned up"):
        query.read(end)


@pytest.mark.parametrize("started", [False, True])
def test_a_change_table_that_is_made_anew_between_plan_and_read_is_an_error(started: bool) -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    end = query.plan()
    assert end is not None
    tasks = query.planner.partitions(query.start or {}, end)
    database.disable("dbo_a")
    database.enable("dbo.a")
    with pytest.raises(PositionLost, match="cleaned up" if started else "is gone"):
        list(tasks[0].read()) if started else query.read(end)


def test_a_change_table_that_says_later_where_it_begins_is_watched_from_then_on() -> None:
    database = server()
    silent = [replace(one, start=bytes(len(one.start))) for one in database.captures]
    telling, database.captures = database.captures, silent
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    database.captures = telling
    database.commit(("dbo.a", "c", None, ("2", "x")))
    assert [event.after for event in query.drain()] == [("2", "x")]
    last = database.commit(("dbo.a", "c", None, ("3", "x")))
    database.clean(last + 1)
    with pytest.raises(PositionLost, match="cleaned up"):
        query.drain()


def test_a_server_that_is_set_back_while_it_is_read_is_an_error() -> None:
    database = server()
    query = Query(database)
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    database.commits = database.commits[:1]
    with pytest.raises(PositionLost, match="restored"):
        query.drain()


def test_a_task_waits_for_a_replica_that_is_behind() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "c", None, ("2", "x")))
    end = query.plan()
    assert end is not None
    tasks = query.planner.partitions(query.start or {}, end)
    database.behind = 3
    assert [event.after for event in tasks[0].read()] == [("1", "x"), ("2", "x")]  # type: ignore[attr-defined]
    assert database.behind == 0
    database.behind = 1000
    with pytest.raises(PositionLost, match="a replica that is behind"):
        list(tasks[0].read())


def test_when_needed_takes_a_new_snapshot() -> None:
    database = server()
    query = Query(database, snapshot__mode="when_needed")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    last = database.commit(("dbo.a", "c", None, ("2", "x")))
    database.clean(last)
    query.restart()
    assert [(event.op, event.after) for event in query.drain()] == [("r", ("1", "x")), ("r", ("2", "x"))]


def test_a_restored_database_is_an_error() -> None:
    database = server()
    query = Query(database)
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    database.commits = database.commits[:1]
    query.restart()
    with pytest.raises(PositionLost, match="restored"):
        query.drain()


def test_a_capture_that_has_lost_its_beginning_was_ended_meanwhile() -> None:
    """Db2's register has no synch point for a newly registered table until its capture begins."""
    database = server()
    query = Query(database)
    query.drain()
    database.captures = [
        replace(one, start=bytes(len(one.start))) if one.name == "dbo_a" else one for one in database.captures
    ]
    database.commit(("dbo.b", "c", None, ("1", "x")))
    with pytest.raises(PositionLost, match=r"The capture of dbo\.a was ended"):
        query.drain()


def test_a_database_that_was_restored_and_has_grown_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The warning comes once, because the next offset has the new lineage."""
    database = server()
    database.lineage = "one"
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.drain()
    for lineage, is_told in (("one", False), ("two", True), ("two", False)):
        caplog.clear()
        database.lineage = lineage
        database.commit(("dbo.a", "c", None, (f"{lineage}{is_told}", "x")))
        query.restart()
        query.drain()
        assert ("remedy: tailrace verify --repair, or a new checkpoint" in caplog.text) == is_told
