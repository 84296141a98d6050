"""A query is planned right: the ends of its batches, what precedes the log, and the state after a failure."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.log.contracts import UNLIMITED, Limits
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.engine import FIRST_BYTES
from tailrace.snapshot.incremental import Collection, Cursor, IncrementalSnapshot, PausedTable
from tailrace.snapshot.progress import Progress
from tests.unit.log.memory import At, Place, Query, Read, again, loading, query


def test_a_query_begins_where_the_log_ends_and_says_so_before_it_reads() -> None:
    found = query()
    found.memory.write(5)
    assert found.at == Place().to_json()
    assert found.next() == Place(At(5)).to_json()
    assert "plan" not in found.memory.told


@pytest.mark.parametrize("mode", ["initial", "no_data"])
def test_the_first_offset_has_the_time_from_which_on_a_topic_of_signals_counts(mode: str) -> None:
    """A topic is first read behind the snapshot, perhaps by another process."""
    topic = {"signal_enabled_channels": "kafka", "signal_kafka_bootstrap_servers": "h:1"}
    found = query(snapshot_mode=mode, **topic)
    progress = Place.from_json(found.next()).progress
    assert progress.positions == (("kafka", -(found.clock.time_ns() // 1_000_000)),)
    found = query(snapshot_mode=mode)
    assert Place.from_json(found.next()).progress == Progress()


def test_a_batch_has_what_was_written_since_the_last_one() -> None:
    found = query()
    found.next()
    found.memory.write(3)
    assert found.batch() == [Read("log", 0, 3)]
    found.memory.write(2)
    assert found.batch() == [Read("log", 3, 5)]


@pytest.mark.parametrize(("most", "ends"), [(2, [2, 4, 5]), (None, [5]), (100, [5])])
def test_a_batch_ends_at_its_limits(most: int | None, ends: list[int]) -> None:
    found = query()
    found.next()
    found.memory.write(5)
    assert [found.next(most)["log"] for _ in ends] == ends


def test_a_batch_waits_for_a_change_as_long_as_the_poll_interval() -> None:
    found = query(poll_interval_ms="500")
    found.next()
    began = found.clock.now
    assert found.batch() == []
    assert found.clock.now - began == pytest.approx(0.5)
    # Changes that come meanwhile are read at once.
    found.memory.arrivals = [1]
    assert found.batch() == [Read("log", 0, 1)]


def test_an_offset_is_committed_before_anything_behind_it_is_read() -> None:
    found = query()
    found.next()
    found.memory.write()
    found.next()
    told = found.memory.told
    assert told.index("open") < told.index("acknowledge") < told.index("plan")


def test_limits_that_are_not_given_are_none() -> None:
    assert (Limits().rows, Limits().bytes, Limits().are_none) == (UNLIMITED, UNLIMITED, True)
    assert (Limits(7).rows, Limits(7).bytes, Limits(7).are_none) == (7, UNLIMITED, False)


# --- the present ----------------------------------------------------------------------------------------------------


def test_a_query_that_ends_at_the_present_goes_no_further() -> None:
    found = query()
    found.next()
    found.memory.write(3)
    found.engine.stop_at_present()
    found.memory.write(3)
    assert found.batch() == [Read("log", 0, 3)]
    assert found.batch() == []


def test_a_query_that_ends_at_the_present_waits_until_it_is_read() -> None:
    found = query(poll_interval_ms="10")
    found.next()
    found.memory.write(2)
    found.engine.stop_at_present()
    found.memory.written, found.memory.captured, found.memory.arrivals = 0, set(), [1, 1]
    assert found.batch() == [Read("log", 0, 1)]
    assert found.batch() == [Read("log", 1, 2)]
    assert found.batch() == []


# --- time -----------------------------------------------------------------------------------------------------------


def test_batches_are_as_far_apart_as_the_dispatch_interval() -> None:
    found = query(poll_dispatch_interval_ms="60000", poll_interval_ms="500")
    found.next()
    found.memory.write()
    began = found.clock.now
    assert found.batch() == [Read("log", 0, 1)]
    found.memory.write()
    # The query can be stopped meanwhile, because each call waits at most the poll interval.
    while not found.batch():
        assert found.clock.slept[-1] <= 0.5
    assert found.clock.now - began == pytest.approx(60)
    assert found.at["log"] == 2


def test_a_batch_that_its_limits_have_cut_is_followed_at_once() -> None:
    found = query(poll_dispatch_interval_ms="60000")
    found.next()
    found.memory.write(3)
    began = found.clock.now
    assert [found.next(2)["log"], found.next(2)["log"]] == [2, 3]
    assert found.clock.now == began


def test_a_query_that_ends_at_the_present_waits_for_nothing_to_gather() -> None:
    found = query(poll_dispatch_interval_ms="60000")
    found.next()
    found.memory.write()
    found.next()
    found.memory.write()
    found.engine.stop_at_present()
    began = found.clock.now
    assert found.batch() == [Read("log", 1, 2)]
    assert found.clock.now == began


def test_the_log_waits_behind_a_snapshot_for_the_streaming_delay() -> None:
    found = query(snapshot_mode="initial", streaming_delay_ms="2000", poll_interval_ms="500")
    while found.at.get("left") != 0:
        found.next()
    found.memory.write()
    began = found.clock.now
    while not found.batch():
        pass
    assert found.clock.now - began == pytest.approx(2)


def test_a_backlog_that_is_being_read_is_waited_for_a_while() -> None:
    found = query()
    found.next()
    found.memory.write()
    found.memory.fills = True
    began = found.clock.now
    # the first rows are wanted early
    assert found.batch(100) == [Read("log", 0, 1)]
    assert found.clock.now == began
    found.memory.write()
    assert found.batch(100) == [Read("log", 1, 2)]
    assert found.clock.now - began == pytest.approx(0.5, abs=0.05)


def test_the_first_batch_of_the_log_is_small() -> None:
    found = query()
    found.next(100)
    found.memory.write()
    found.next(100)
    found.memory.write()
    found.next(100)
    assert [limits.enough_bytes for limits in found.memory.limits] == [FIRST_BYTES, None]


def test_heartbeats_come_with_their_batches_and_alone_where_nothing_changes() -> None:
    found = query(heartbeat_interval_ms="1000", poll_interval_ms="300")
    found.next()
    found.memory.write()
    found.clock.now += 1
    log, beat = found.batch()
    assert log == Read("log", 0, 1)
    assert (beat.at_ms, beat.position) == (1_001_000, 1)
    began = found.clock.now
    tasks: list[Any] = []
    while not tasks:
        tasks = found.batch()
    assert found.clock.now - began == pytest.approx(1)
    assert tasks[-1].at_ms == 1_002_000
    assert found.memory.told.count("beat") == 2


def test_a_heartbeat_moves_the_position_over_what_is_not_captured() -> None:
    found = query(heartbeat_interval_ms="1000", poll_interval_ms="300")
    found.next()
    found.memory.write(7, captured=False)
    while found.at["beat"] == 0:
        found.next()
    assert found.at["log"] == 7


def test_a_heartbeat_is_later_than_the_one_before_whatever_the_clock_says() -> None:
    found = query(heartbeat_interval_ms="1000")
    found.next()
    found.at = Place(At(0), heartbeat_ms=5_000_000).to_json()
    found.memory.write()
    found.clock.now += 1
    assert found.next()["beat"] == 5_000_001


def test_at_the_present_no_heartbeat_comes_for_its_own_sake() -> None:
    found = query(heartbeat_interval_ms="1000")
    found.next()
    found.engine.stop_at_present()
    found.clock.now += 10
    assert found.batch() == []
    found = query()
    found.next()
    found.clock.now += 1000
    assert found.batch() == []
    assert "beat" not in found.memory.told


def test_what_is_not_captured_is_passed_over_once_in_a_while() -> None:
    found = query(poll_interval_ms="500")
    found.next()
    found.memory.write(7, captured=False)
    began = found.clock.now
    while found.at["log"] == 0:
        found.next()
    assert found.clock.now - began == pytest.approx(30, abs=1)
    # Or at once, if much of the log has passed.
    found.memory.write(7, captured=False)
    found.memory.far = True
    assert found.next()["log"] == 14


# --- what precedes the log ------------------------------------------------------------------------------------------


def test_a_snapshot_precedes_the_log_chunk_by_chunk() -> None:
    found = query(snapshot_mode="initial")
    found.memory.write(4)
    assert found.batch() == [Read("chunk", 2, 1)]
    assert found.batch() == [Read("chunk", 1, 0)]
    assert found.at["log"] == 4
    found.memory.write()
    assert found.batch() == [Read("log", 4, 5)]
    # It is planned once.
    assert found.memory.told.count("snapshot") == 1


@pytest.mark.parametrize(
    ("mode", "streams", "each"),
    [("initial", True, False), ("initial_only", False, False), ("always", True, True), ("no_data", True, False)],
)
def test_modes_say_when_rows_are_read_and_whether_the_log_is(mode: str, streams: bool, each: bool) -> None:
    found = query(snapshot_mode=mode)
    for _ in range(3):
        found.next()
    found.memory.write()
    assert bool(found.batch()) is streams
    # If the log is read after it, it begins where the snapshot does.
    begun = [call for call in found.memory.told if call.startswith("snapshot")]
    assert begun == {"no_data": [], "initial_only": ["snapshot of what is known"]}.get(mode, ["snapshot"])
    second = again(found, snapshot_mode=mode)
    second.next()
    assert ("snapshot of what is known" in second.memory.told) is each


def test_an_unfinished_snapshot_goes_on_after_a_restart() -> None:
    found = query(snapshot_mode="initial")
    found.next()
    second = again(found, snapshot_mode="initial")
    assert second.batch() == [Read("chunk", 1, 0)]
    assert "snapshot" not in second.memory.told


def test_a_log_that_does_not_reach_back_is_mended_by_a_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    found = query(snapshot_mode="when_needed")
    for _ in range(3):
        found.next()
    second = again(found, snapshot_mode="when_needed")
    second.memory.why_lost = "The log no longer reaches the position."
    # The log no longer has the changes that were written meanwhile.
    second.memory.write(5)
    with caplog.at_level(logging.WARNING, "tailrace"):
        assert second.batch() == [Read("chunk", 0, 1)]
    assert "A new snapshot is taken." in caplog.text


def test_where_spark_has_no_limits_the_rest_of_a_snapshot_is_one_batch() -> None:
    found = query(snapshot_mode="initial")
    found.memory.chunk_count = 10
    found.next(100)
    assert found.at["left"] == 9
    found.next()
    assert found.at["left"] == 0


def test_the_snapshot_waits_for_its_delay() -> None:
    found = query(snapshot_mode="initial", snapshot_delay_ms="3000")
    found.next()
    assert found.clock.slept == [3.0]


# --- failures and replays -------------------------------------------------------------------------------------------


def test_a_call_that_fails_leaves_everything_as_it_was() -> None:
    found = query(heartbeat_interval_ms="1000")
    found.next()
    found.memory.write()
    found.clock.now += 5
    found.memory.faults["plan"] = ConnectionFailed("gone")
    with pytest.raises(ConnectionFailed):
        found.next()
    # The heartbeat is still due, and the log is open.
    (log, beat) = found.batch()
    assert (log, beat.at_ms) == (Read("log", 0, 1), 1_005_000)
    assert found.memory.told.count("open") == 1


def test_a_snapshot_whose_first_chunk_fails_is_planned_again() -> None:
    found = query(snapshot_mode="initial", notification_enabled_channels="sink", notification_sink_topic_name="n")
    found.memory.faults["chunk"] = ConnectionFailed("gone")
    with pytest.raises(ConnectionFailed):
        found.next()
    found.next()
    assert found.memory.told.count("snapshot") == 2
    kinds = [notification.type for notification, _ in Place.from_json(found.at).progress.notifications]
    assert kinds == ["STARTED"]


def test_where_sessions_are_of_no_use_the_next_call_begins_anew() -> None:
    found = query()
    found.next()
    found.memory.write()
    found.memory.faults["plan"], found.memory.keeps = ConnectionFailed("gone"), False
    with pytest.raises(ConnectionFailed):
        found.next()
    assert found.batch() == [Read("log", 0, 1)]
    told = found.memory.told
    assert (told.count("open"), told.count("prepare")) == (2, 2)


def test_a_batch_that_was_planned_before_a_restart_is_read_again() -> None:
    found = query(heartbeat_interval_ms="1000")
    found.next()
    start = found.at
    found.memory.write(3)
    found.clock.now += 1
    tasks = found.batch()
    second = again(found, heartbeat_interval_ms="1000")
    assert list(second.engine.partitions(start, found.at)) == [
        tasks[0],
        type(tasks[1])(tasks[1].at_ms, tasks[1].position, tasks[1].settings),
    ]
    assert "beat" not in second.memory.told


def test_what_the_log_needs_is_imported_beside_when_it_is_going_to_be_read() -> None:
    loaded: list[int] = []
    for mode, count in (("no_data", 1), ("initial_only", 0)):
        loaded.clear()
        found = loading(lambda: loaded.append(1), snapshot_mode=mode)
        found.next()
        assert len(loaded) == count


def test_an_engine_closes_its_log_and_its_source() -> None:
    found = query()
    found.next()
    found.engine.close()
    assert found.memory.told[-2:] == ["close", "close"]
    assert found.engine.status() == Place(At(0)).to_json()


# --- notifications --------------------------------------------------------------------------------------------------


def test_notifications_of_a_snapshot_come_with_its_batches() -> None:
    found = query(snapshot_mode="initial", notification_enabled_channels="sink", notification_sink_topic_name="n")
    first, told = found.batch()
    assert first == Read("chunk", 2, 1)
    assert [(one.type, at) for one, at in told.notifications] == [("STARTED", 1_000_000)]
    _, told = found.batch()
    assert [one.type for one, _ in told.notifications] == ["COMPLETED"]
    assert told.position == 0
    found.memory.write()
    log, *more = found.batch()
    assert log == Read("log", 0, 1)
    # There is no task without rows either.
    assert more == []


def test_a_query_without_a_snapshot_says_that_it_was_skipped() -> None:
    found = query(notification_enabled_channels="sink", notification_sink_topic_name="n")
    found.next()
    found.memory.write()
    log, told = found.batch()
    assert log == Read("log", 0, 1)
    assert [one.type for one, _ in told.notifications] == ["SKIPPED"]


def test_notifications_for_the_log_alone_are_no_records(caplog: pytest.LogCaptureFixture) -> None:
    found = query(snapshot_mode="initial", notification_enabled_channels="log")
    with caplog.at_level(logging.INFO, "tailrace"):
        assert found.batch() == [Read("chunk", 2, 1)]
    assert "STARTED" in caplog.text
    assert "progress" not in found.at


def test_without_a_channel_nothing_is_noted() -> None:
    found = query(snapshot_mode="initial")
    assert [len(found.batch()), len(found.batch())] == [1, 1]
    assert "progress" not in found.at


BLOCKING = Progress(blocking=(Collection("public", "t"),))


class Window:
    """The windows of a query with signals, without any signal."""

    def begin(self, past: Progress) -> Progress:
        return past

    def finish(self, begun: Progress, changes: object) -> Progress:
        return begun

    def planned(self, end: object) -> None:
        return


def with_signals(**options: str) -> Query:
    """Return a query whose next batch must begin a blocking snapshot."""
    found = query(**options)
    found.next()
    found.memory.windows = cast(Any, Window())
    found.at = Place(At(0), progress=BLOCKING).to_json()
    return found


def test_a_snapshot_that_nobody_goes_on_with_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    found = query()
    found.next()
    state = IncrementalSnapshot("1", (Collection("public", "a"),))
    held = (PausedTable(Collection("public", "b"), Cursor(("7",), ("9",), 3)),)
    found.at = Place(At(0), progress=Progress(state=state, held=held)).to_json()
    with caplog.at_level(logging.WARNING, "tailrace"):
        for _ in range(3):
            found.memory.write()
            found.next()
    told = [one for one in caplog.messages if "the rest of their rows is not read" in one]
    assert len(told) == 1
    assert told[0].startswith("the snapshot of public.a, public.b goes no further")


@pytest.mark.parametrize("fault", [ConfigError("t has no key."), PrerequisiteError("t may not be read.", "grant it.")])
def test_a_blocking_snapshot_that_cannot_be_read_is_given_up(
    caplog: pytest.LogCaptureFixture, fault: TailraceError
) -> None:
    found = with_signals(notification_enabled_channels="sink", notification_sink_topic_name="n")
    found.memory.faults["block"] = fault
    with caplog.at_level(logging.WARNING, "tailrace"):
        found.next()
    assert "the blocking snapshot of public.t is given up" in caplog.text
    assert fault.remedy in caplog.text
    progress = Place.from_json(found.at).progress
    assert not progress.blocking
    assert "ABORTED" in [one.type for one, _ in progress.notifications]


def test_a_blocking_snapshot_stops_the_log_until_its_rows_are_read() -> None:
    found = with_signals()
    found.memory.write()
    before = found.at
    assert found.next()["left"] == 0
    first, *_ = found.engine.partitions(before, found.at)
    assert isinstance(first, Read)
    assert first.kind == "chunk"
    assert found.batch() == [Read("log", 0, 1)]


def test_a_task_of_boundaries_makes_their_rows() -> None:
    found = query()
    assert [rows.num_rows for rows in BoundaryTask((), found.settings).read()] == [0]
