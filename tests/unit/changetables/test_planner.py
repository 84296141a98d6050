"""The planner over change tables: snapshots, batches, cut-overs, loss, retries, against a database in memory."""

from __future__ import annotations

import json
import logging

import pytest

from tailrace.connectors import source_status
from tailrace.connectors.changetables.log.sessions import borrowed, close_idle
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tests.fix_capture import StillClock
from tests.unit.changetables.driving import Query, batches_for_rows, brief  # noqa: F401
from tests.unit.changetables.memory import MemoryDialect, Server, at


def server(request_name: str = "s", **settings: object) -> Server:
    made = Server(request_name, **settings)  # type: ignore[arg-type]
    made.table("dbo.a", ("id", "v"), ("id",))
    made.table("dbo.b", ("id", "v"), ("id",))
    return made


def test_reads_the_tables_then_the_log() -> None:
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")), ("dbo.a", "c", None, ("2", "y")))
    query = Query(database)
    events = query.drain()
    assert [(event.op, event.after, event.marker) for event in events] == [
        ("r", ("1", "x"), "first"),
        ("r", ("2", "y"), "last"),
    ]
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "z")), ("dbo.b", "c", None, ("9", None)))
    database.commit(("dbo.a", "d", ("2", "y"), None))
    assert brief(sorted(query.drain(), key=lambda event: (event.commit, event.change or 0))) == [
        ("dbo.a", "u", ("1", "x"), ("1", "z")),
        ("dbo.b", "c", None, ("9", None)),
        ("dbo.a", "d", ("2", "y"), None),
    ]
    assert query.drain() == []


@pytest.mark.seed("001-06")
@pytest.mark.seed("001-07")
@pytest.mark.seed("001-08")
def test_numbers_events_of_one_change_position() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")))
    database.commit(("dbo.a", "u", ("1", "y"), ("2", "y")))
    events = query.drain()
    assert [(event.op, event.serial, event.ordinal) for event in events] == [
        ("c", 1, 0),
        ("u", 2, 1),
        ("d", 1, 0),
        ("c", 2, 1),
    ]
    assert len({(event.commit, event.change, event.ordinal) for event in events}) == 4
    assert events[2].change == events[3].change
    assert events[2].commit == events[3].commit


def test_what_is_skipped_is_not_numbered() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data", skipped__operations="u,d")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")))
    database.commit(("dbo.a", "u", ("1", "y"), ("2", "y")))
    database.commit(("dbo.a", "d", ("2", "y"), None))
    assert [(event.op, event.serial, event.after) for event in query.drain()] == [
        ("c", 1, ("1", "x")),
        ("c", 1, ("2", "y")),
    ]


def test_half_of_a_pair_is_not_left_out_before_it_is_put_together() -> None:
    database = server(pairs=True)
    query = Query(database, snapshot__mode="no_data", skipped__operations="d")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")))
    assert brief(query.drain()) == [
        ("dbo.a", "c", None, ("1", "x")),
        ("dbo.a", "u", ("1", "x"), ("1", "y")),
    ]


def test_times_are_those_of_the_mapping() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    first = database.commit(("dbo.a", "c", None, ("1", "x")))
    second = database.commit(("dbo.a", "c", None, ("2", "x")))
    # The server's clock was set back between the two, and it recorded no time for the third.
    database.commits = [(first, 5_000_000), (second, 4_000_000), *database.commits[-1:]]
    third = database.commit(("dbo.a", "c", None, ("3", "x")))
    database.commits = [(first, 5_000_000), (second, 4_000_000), (third + 1, 9_000_000)]
    assert [event.at_us for event in query.drain()] == [5_000_000, 4_000_000, 4_000_000]


def test_no_update_is_torn_by_a_fetch() -> None:
    for pairs in (False, True):
        database = server(pairs=pairs, fetch=1)
        query = Query(database, snapshot__mode="no_data")
        query.drain()
        database.commit(("dbo.a", "c", None, ("1", "x")), ("dbo.a", "c", None, ("2", "x")))
        database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")), ("dbo.a", "u", ("2", "x"), ("2", "y")))
        assert brief(query.drain())[2:] == [
            ("dbo.a", "u", ("1", "x"), ("1", "y")),
            ("dbo.a", "u", ("2", "x"), ("2", "y")),
        ]


def test_a_pair_is_of_one_transaction() -> None:
    database = server(pairs=True)
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "d", ("1", "x"), None))
    database.commit(("dbo.a", "c", None, ("1", "y")))
    assert [event.op for event in query.drain()] == ["c", "d", "c"]


def test_batches_end_between_transactions() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    for number in range(6):
        database.commit(("dbo.a", "c", None, (str(number), "x")), ("dbo.b", "c", None, (str(number), "x")))
    sizes = []
    while (events := query.batch(5)) is not None:
        sizes.append(len(events))
        assert len({event.commit for event in events}) * 2 == len(events)
    assert sizes == [4, 4, 4]


def test_a_transaction_larger_than_a_batch_is_one_batch() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(*[("dbo.a", "c", None, (str(number), "x")) for number in range(9)])
    assert len(query.batch(2) or []) == 9


def test_max_iteration_transactions_limits_a_batch() -> None:
    database = server()
    query = Query(database, snapshot__mode="no_data", max__iteration__transactions="2")
    query.drain()
    for number in range(5):
        database.commit(("dbo.a", "c", None, (str(number), "x")))
    assert [len(query.batch() or []) for _ in range(3)] == [2, 2, 1]


def test_nothing_waits_that_is_not_captured_yet() -> None:
    database = server(eager=False)
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    assert query.drain() == []
    database.capture()
    assert len(query.drain()) == 1


def test_a_replayed_batch_has_the_same_changes() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")))
    end = query.plan()
    assert end is not None
    first = query.read(end)
    database.commit(("dbo.a", "d", ("1", "y"), None))
    query.restart()
    assert query.read(end) == first


def test_offsets_are_the_same_text_for_the_same_position() -> None:
    database = server()
    query = Query(database)
    query.drain()
    text = json.dumps(query.start)
    query.restart()
    assert query.drain() == []
    assert json.dumps(query.start) == text
    assert text == json.dumps(json.loads(text), sort_keys=True)


# --- which change table ----------------------------------------------------------------------------------------------


def test_a_second_capture_table_takes_over_at_its_start() -> None:
    database = Server("s")
    database.table("dbo.a", ("id", "v", "w"), ("id",), captured=False)
    database.enable("dbo.a", "_1", ("id", "v"))
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x", "old")))
    database.enable("dbo.a", "_2")
    database.commit(("dbo.a", "c", None, ("2", "x", "new")))
    events = query.drain()
    assert [(event.after, event.version) for event in events] == [(("1", "x"), 1), (("2", "x", "new"), 2)]
    database.commit(("dbo.a", "c", None, ("3", "x", "new")))
    database.disable("dbo_a_1")
    assert [event.after for event in query.drain()] == [("3", "x", "new")]
    query.restart()
    database.commit(("dbo.a", "c", None, ("4", "x", "new")))
    assert [event.after for event in query.drain()] == [("4", "x", "new")]


def test_a_replayed_cut_over_reads_both_capture_tables_again() -> None:
    database = Server("s")
    database.table("dbo.a", ("id", "v", "w"), ("id",), captured=False)
    database.enable("dbo.a", "_1", ("id", "v"))
    query = Query(database, snapshot__mode="no_data")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x", "old")))
    database.enable("dbo.a", "_2")
    database.commit(("dbo.a", "c", None, ("2", "x", "new")))
    end = query.plan()
    assert end is not None
    first = query.read(end)
    query.restart()
    assert query.read(end) == first
    assert len(first) == 2


def test_a_table_that_is_captured_later_is_read_from_its_start() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.table("dbo.late", ("id",), ("id",))
    database.commit(("dbo.late", "c", None, ("1",)))
    assert brief(query.drain()) == [("dbo.late", "c", None, ("1",))]


def test_tables_without_a_change_table_are_told(caplog: pytest.LogCaptureFixture) -> None:
    database = server()
    database.table("dbo.bare", ("id",), ("id",), captured=False)
    with caplog.at_level(logging.WARNING, "tailrace"):
        Query(database).drain()
    assert "without a change table, whose changes are not captured: dbo.bare." in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tailrace"):
        Query(database, table__exclude__list="dbo[.]bare").drain()
    assert "dbo.bare" not in caplog.text


def test_a_database_without_captured_tables_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PrerequisiteError, match=r"match no table of the database[.] There are: dbo[.]a"):
        Query(server(), table__include__list="dbo[.]other").drain()
    with caplog.at_level(logging.WARNING, "tailrace"):
        Query(server(), table__include__list="dbo[.]other", no__table__handling__mode="warn").drain()
    assert "match no table" in caplog.text


def test_a_server_that_has_captured_nothing_is_read_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    database = server()
    database.commits.clear()
    query = Query(database)
    with caplog.at_level(logging.WARNING, "tailrace"):
        assert query.drain() == []
    assert "captured nothing yet" in caplog.text
    database.commit(("dbo.a", "c", None, ("1", "x")))
    assert [event.op for event in query.drain()] == ["c"]


# --- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["connect", "newest", "captures", "total", "changes", "commit_times", "oldest"])
def test_a_lost_connection_is_tried_again(call: str) -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    close_idle()
    database.fail[call] = 2
    assert [event.after for event in query.drain()] == [("1", "x")]


def test_a_server_that_cannot_be_reached_at_the_start_is_an_error() -> None:
    database = server()
    database.fail["connect"] = 1
    with pytest.raises(ConnectionFailed):
        Query(database).drain()


def test_rows_are_read_on_from_where_the_connection_was_lost() -> None:
    for failing in range(5):
        database = server(fetch=2)
        query = Query(database, snapshot__mode="no_data")
        query.drain()
        database.commit(*[("dbo.a", "c", None, (str(number), "x")) for number in range(5)])
        database.commit(*[("dbo.a", "u", (str(number), "x"), (str(number), "y")) for number in range(3)])
        database.failing_fetch = failing
        events = query.drain()
        assert [(event.op, (event.after or ())[0]) for event in events] == [
            *[("c", str(number)) for number in range(5)],
            *[("u", str(number)) for number in range(3)],
        ]


def test_one_lost_session_closes_those_that_wait_beside_it() -> None:
    database = server()
    query = Query(database)
    query.drain()
    dialect = MemoryDialect(database.name)
    with borrowed(dialect, "db") as one, borrowed(dialect, "db") as other:
        assert one is not other
    with pytest.raises(ConnectionFailed), borrowed(dialect, "db"):
        raise ConnectionFailed("The server restarted.")
    assert one.closed  # type: ignore[attr-defined]
    assert other.closed  # type: ignore[attr-defined]


def test_errors_max_retries_ends_it() -> None:
    database = server()
    query = Query(database, errors__max__retries="2")
    database.fail["newest"] = 100
    with pytest.raises(ConnectionFailed):
        query.drain()
    assert database.calls["newest"] == 3


# --- snapshots -------------------------------------------------------------------------------------------------------


def test_chunks_cover_a_table_and_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.connectors.changetables.snapshot import initial

    monkeypatch.setattr(initial, "CHUNK_ROWS", 4)
    for rows in (1, 4, 7, 8, 9, 40):
        database = server()
        database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(rows)])
        database.commit(("dbo.b", "c", None, ("1", "x")))
        query = Query(database)
        found = []
        while (events := query.batch()) is not None:
            found += events
            query.restart()
        reads = [event for event in found if event.op == "r"]
        assert [event.after[0] for event in reads if event.after and event.table == "dbo.a"] == [
            f"{number:03}" for number in range(rows)
        ]
        marked = [event.marker for event in reads]
        assert marked[0] == "first"
        assert marked[-1] == "last"
        assert marked.count("last") == 1
        if rows > 1:
            assert marked[rows - 1] == "last_in_data_collection"
            assert set(marked[1 : rows - 1]) <= {"true"}


def test_tells_how_far_a_snapshot_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.connectors.changetables.snapshot import initial

    monkeypatch.setattr(initial, "CHUNK_ROWS", 1)
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(200)])
    query = Query(database)
    assert query.planner.status() is None
    query.batch()
    told = query.planner.status() or {}
    (one,) = source_status.tables({}, told)
    assert (one.table, one.of, one.waiting) == ("dbo.a", 200, ())
    assert 0 < one.done < 200
    query.drain()
    assert source_status.tables({}, query.planner.status() or {}) == ()


def test_an_empty_first_table_leaves_no_first_row() -> None:
    database = server()
    database.commit(("dbo.b", "c", None, ("1", "x")))
    assert [event.marker for event in Query(database).drain()] == ["last"]


def test_what_changes_during_a_snapshot_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.connectors.changetables.snapshot import initial

    monkeypatch.setattr(initial, "CHUNK_ROWS", 1)
    database = server()
    database.commit(*[("dbo.a", "c", None, (f"{number:03}", "x")) for number in range(30)])
    query = Query(database)
    events = query.batch() or []
    database.commit(("dbo.a", "u", ("000", "x"), ("000", "y")))
    database.commit(("dbo.a", "u", ("029", "x"), ("029", "y")))
    events += query.drain()
    state = {}
    for event in events:
        if event.after:
            state[event.after[0]] = event.after[1]
    assert state["000"] == state["029"] == "y"
    assert [event.op for event in events[-2:]] == ["u", "u"]


@pytest.mark.parametrize(("mode", "ops"), [("no_data", ["c"]), ("initial", ["r", "c"]), ("initial_only", ["r"])])
def test_snapshot_modes(mode: str, ops: list[str]) -> None:
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(database, snapshot__mode=mode)
    events = query.drain()
    database.commit(("dbo.a", "c", None, ("2", "x")))
    assert [event.op for event in events + query.drain()] == ops


def test_always_reads_at_each_start() -> None:
    database = server()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query = Query(database, snapshot__mode="always")
    assert [event.op for event in query.drain()] == ["r"]
    query.restart()
    assert [event.op for event in query.drain()] == ["r"]


def test_stops_at_the_present() -> None:
    database = server()
    query = Query(database)
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.planner.stop_at_present()
    database.commit(("dbo.a", "c", None, ("2", "x")))
    assert [event.after for event in query.drain()] == [("1", "x")]


def test_a_query_that_ends_at_the_present_passes_what_is_not_captured() -> None:
    database = server()
    database.table("dbo.other", ("id",), ("id",), captured=False)
    query = Query(database, max__iteration__transactions="2")
    query.drain()
    for number in range(9):
        database.commit(("dbo.other", "c", None, (str(number),)))
    database.commit(("dbo.a", "c", None, ("1", "x")))
    query.restart()
    query.planner.stop_at_present()
    assert [event.after for event in query.drain()] == [("1", "x")]


def test_a_query_that_ends_at_the_present_keeps_how_far_it_came_without_a_change() -> None:
    database = server()
    database.table("dbo.other", ("id",), ("id",), captured=False)
    query = Query(database, max__iteration__transactions="2")
    query.drain()
    for number in range(9):
        last = database.commit(("dbo.other", "c", None, (str(number),)))
    query.restart()
    query.planner.stop_at_present()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    assert query.drain() == []
    assert query.start is not None
    assert query.start["databases"]["db"]["commit"] == at(last).hex()
    # The server may remove what was passed.
    database.clean(last)
    query.restart()
    query.planner.stop_at_present()
    assert [event.after for event in query.drain()] == [("1", "x")]


def test_changes_gather_between_two_batches(dispatch_clock: StillClock) -> None:
    database = server()
    query = Query(database, poll__dispatch__interval__ms="60000")
    query.drain()
    database.commit(("dbo.a", "c", None, ("1", "x")))
    assert len(query.drain()) == 1
    database.commit(("dbo.a", "c", None, ("2", "x")))
    database.commit(("dbo.b", "c", None, ("3", "x")))
    dispatch_clock.now += 59
    assert query.drain() == []
    dispatch_clock.now += 2
    assert sorted(event.after for event in query.drain()) == [("2", "x"), ("3", "x")]


def test_what_a_batch_has_no_room_for_gathers_no_longer(dispatch_clock: StillClock) -> None:
    database = server()
    query = Query(database, poll__dispatch__interval__ms="60000")
    query.drain()
    for number in range(5):
        database.commit(("dbo.a", "c", None, (str(number), "x")))
    assert [event.after for event in query.drain(max_rows=2)] == [(str(number), "x") for number in range(5)]


def test_a_moment_is_whole_behind_what_the_snapshot_may_have_shown() -> None:
    """The rows of tables are newer than the position of their snapshot until a later commit is read."""
    database = server(eager=False)
    database.commit(("dbo.a", "c", None, ("1", "x")))
    database.capture()
    query = Query(database, row__blocks="last")
    # The snapshot shows the change, and the log has it later.
    database.commit(("dbo.a", "u", ("1", "x"), ("1", "y")))
    query.batch()
    database.capture()
    query.drain()
    assert query.offsets[-1]["shown_us"] == {"db": 4_000_000}
    database.commit(("dbo.a", "u", ("1", "y"), ("1", "z")))
    database.capture()
    query.drain()
    assert "shown_us" not in query.offsets[-1]
    events = Query(database)
    events.drain()
    assert all("shown_us" not in offset for offset in events.offsets)
