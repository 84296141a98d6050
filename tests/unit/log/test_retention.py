"""A log that its server keeps for a time: levels come and go with the lag, and a pipeline acts on them."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Limits, ReaderState
from tailrace.log.engine import LogEngine
from tailrace.log.retention import FINE, PAUSED, STOPPED, WARNED, LogMargin, LogRetention
from tailrace.snapshot.incremental import Collection, IncrementalSnapshot
from tailrace.snapshot.progress import Progress
from tailrace.spark import measures
from tests.unit.log.memory import At, Clock, Memory, Place, Query
from tests.unit.log.test_engine import Window

DAY = 86_400.0
KEPT = LogRetention(kept_s=10 * DAY, setting="binlog_expire_logs_seconds")


def config(**options: str) -> Any:
    given = {"database.hostname": "h", "database.user": "u", "topic.prefix": "shop", "database.include.list": "d"}
    return parse("mysql", given | {name.replace("_", "."): value for name, value in options.items()})


class Looks:
    """The looks at a server, a minute apart."""

    def __init__(self, **options: str) -> None:
        self.clock = Clock()
        self.margin = LogMargin(config(**options), self.clock)

    def level(self, behind_days: float, found: LogRetention = KEPT) -> int | None:
        self.clock.now += 60
        return self.margin.heed(replace(found, behind_s=behind_days * DAY)).level


def test_levels_come_and_go_with_the_lag(caplog: pytest.LogCaptureFixture) -> None:
    looks = Looks()
    with caplog.at_level(logging.WARNING, "tailrace"):
        assert looks.level(4.9) == FINE
        assert not caplog.text
        assert looks.level(5) == WARNED
        assert "it loses changes in 5 days unless it catches up" in caplog.text
        assert "or raise binlog_expire_logs_seconds" in caplog.text
        assert not looks.margin.holds_back
        assert looks.level(8) == PAUSED
        assert "incremental snapshots wait (log.pause.percent)" in caplog.text
        assert looks.margin.holds_back
        # a level ends 5 percent below its threshold
        assert looks.level(7.6) == PAUSED
        assert looks.level(7.4) == WARNED
        assert "snapshots go on" in caplog.text
        assert looks.level(4.6) == WARNED
        assert looks.level(0) == FINE
    notes = list(looks.margin.news())
    assert [one.type for one in notes] == ["WARNED", "PAUSED", "WARNED", "FINE"]
    assert {one.aggregate for one in notes} == {"Source Log"}
    assert dict(notes[0].data) == {
        "connector_name": "shop", "behind_seconds": "432000", "kept_seconds": "864000", "seconds_left": "432000",
    }  # fmt: skip


def test_a_log_without_an_end_has_no_levels() -> None:
    looks = Looks()
    assert looks.level(100, LogRetention()) is None
    assert looks.level(100, LogRetention(oldest_s=5.0)) is None


def test_what_lasts_longer_than_the_present_log_counts() -> None:
    # the log of a young server spans little, and nothing of it is removed yet
    assert Looks().level(1, LogRetention(kept_s=DAY, lasting_s=100 * DAY)) == FINE


def test_a_threshold_of_0_is_none() -> None:
    looks = Looks(log_warn_percent="0", log_pause_percent="0")
    assert looks.level(9.9) == FINE


def test_a_pipeline_ends_once_it_falls_back_behind_the_threshold() -> None:
    looks = Looks(log_stop_percent="90")
    # after a start the first batch shows how old the position is: what comes next says whether it catches up
    assert looks.level(0) == FINE
    assert looks.level(9.5) == PAUSED
    assert looks.level(9.4) == PAUSED
    looks.margin.demand()
    assert looks.level(9.4 + 60 / DAY) == STOPPED
    with pytest.raises(PrerequisiteError, match=r"log\.stop\.percent is 90.* Raise binlog_expire") as raised:
        looks.margin.demand()
    assert raised.value.exit_code == 4
    assert [one.type for one in looks.margin.news()][-1] == "STOPPED"


READING = Progress(state=IncrementalSnapshot("s", (Collection("d", "t"),)))


def engine(**options: str) -> tuple[Query, LogEngine[Any, Any, Any], list[object]]:
    """Return a query whose incremental snapshot runs, its engine, and the list of the windows that it asks for."""
    parsed, clock = config(**options), Clock()
    memory = Memory(parsed, clock)
    found: LogEngine[Any, Any, Any] = LogEngine(parsed, EventSettings.from_options(parsed, "run"), clock, memory, Place)
    asked: list[object] = []

    def window_end(progress: Progress, start: At, limits: Limits, target: int | None) -> At | None:
        asked.append(progress)
        return None

    made = Query(memory, found, clock, EventSettings.from_options(parsed, "run"), found.initial_offset())
    made.next()
    memory.windows = cast(Any, Window())
    memory.window_end = window_end  # type: ignore[method-assign]
    made.at = Place(At(0), progress=READING).to_json()
    return made, found, asked


def test_an_incremental_snapshot_waits_and_the_log_goes_on() -> None:
    query, found, asked = engine(snapshot_mode="no_data", notification_enabled_channels="sink",
                                 notification_sink_topic_name="n")  # fmt: skip
    query.memory.write()
    assert found.heed(replace(KEPT, behind_s=8.5 * DAY)).level == PAUSED
    assert query.next()["log"] == 1
    assert asked == []
    told = [(one.aggregate, one.type) for one, _ in Place.from_json(query.at).progress.notifications]
    assert ("Source Log", "PAUSED") in told
    found.heed(replace(KEPT, behind_s=0.0))
    query.memory.write()
    query.next()
    assert len(asked) == 1


def test_a_level_is_told_at_once_while_the_query_stands_still(caplog: pytest.LogCaptureFixture) -> None:
    """A sink that stands still is what brings a level about, and keeps the planner from being called."""
    given = {"notification_enabled_channels": "log,sink", "notification_sink_topic_name": "n", "log_stop_percent": "90"}
    query, found, _ = engine(snapshot_mode="no_data", **given)
    with caplog.at_level(logging.INFO):
        found.heed(replace(KEPT, behind_s=8.5 * DAY))
        assert "Source Log PAUSED id=" in caplog.text
        # the record on the topic comes with the next batch, and no second line
        query.memory.write()
        query.next()
        assert caplog.text.count("Source Log PAUSED id=") == 1
        notes = [
            one.type for one, _ in Place.from_json(query.at).progress.notifications if one.aggregate == "Source Log"
        ]
        assert notes == ["PAUSED"]
        query.clock.now += 60
        found.heed(replace(KEPT, behind_s=9.5 * DAY))
        found.heed(replace(KEPT, behind_s=9.5 * DAY))
        assert "Source Log STOPPED id=" in caplog.text


def test_a_pipeline_that_has_reached_its_end_plans_no_more() -> None:
    query, found, _ = engine(snapshot_mode="no_data", log_stop_percent="90")
    for behind_s in (9.5 * DAY, 9.5 * DAY):
        found.heed(replace(KEPT, behind_s=behind_s))
    with pytest.raises(PrerequisiteError):
        query.next()


def test_the_lag_is_the_age_of_the_moment_up_to_which_everything_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    seen: list[float | None] = []

    state = [ReaderState(is_connected=True)]

    class Planner:
        def reading(self) -> ReaderState:
            return state[0]

        def retention(self) -> None:
            return None

        def heed(self, found: LogRetention) -> LogRetention:
            seen.append(found.behind_s)
            return found

    asked = SimpleNamespace(load_retention=lambda: lambda _: KEPT)
    monkeypatch.setattr(measures, "find", lambda _: asked)
    found = measures.PlannerMeasures(config(), cast(Any, Planner()), lambda: now[0])
    monkeypatch.setattr(found, "write", lambda: None)
    monkeypatch.setattr(found, "_thread", object())

    def behind(start: int, end: int, at: float) -> float | None:
        found.planned({"log": start}, {"log": end})
        now[0] = at
        found.sample()
        return seen[-1]

    # a snapshot needs the log from the start on, however long it takes
    assert behind(0, 1, 1600.0) == 600.0
    assert behind(1, 1, 5000.0) == 0.0
    # a sink that stands still after hours without a change is behind since then
    now[0] = 90_000.0
    found.planned({"log": 1}, {"log": 1})
    assert behind(1, 2, 90_030.0) == 30.0
    # without a session nobody knows whether something waits
    assert behind(2, 2, 90_040.0) == 0.0
    state[0] = ReaderState(is_connected=False)
    assert behind(2, 2, 90_100.0) == 70.0
