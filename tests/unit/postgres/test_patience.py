"""A planner whose server is unreachable is called again, and a query that waits for it can be stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.connectors.postgres.log.reading import Environment
from tailrace.connectors.postgres.planner import PostgresPlanner, RetryingPlanner
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import ReaderState
from tailrace.process.runtime import Threads

START, END = {"log": {"commit": "0/1"}}, {"log": {"commit": "0/2"}}


class Clock(Threads):
    """Time that passes only in `sleep`; `slept` are the pauses in s."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if seconds:
            self.slept.append(seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The outcomes of successive calls of the planner below: a result, or an error to raise."""
    given: list[Any] = []

    def answer(*arguments: Any) -> Any:
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    for name in ("latest_offset", "partitions", "stop_at_present"):
        monkeypatch.setattr(PostgresPlanner, name, answer)
    return given


@pytest.fixture
def made(clock: Clock) -> Callable[..., RetryingPlanner]:
    def make(**options: str) -> RetryingPlanner:
        named = {name.replace("_", "."): text for name, text in options.items()}
        login = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "s"}
        config = parse("postgres", {**login, **named})
        return RetryingPlanner(config, EventSettings.from_options(config, "run"), Environment(runtime=clock))

    return make


def gone(**more: Any) -> ConnectionFailed:
    return ConnectionFailed("The server is gone.", "Wait.", **more)


def latest(planner: RetryingPlanner) -> Any:
    return planner.latest_offset(START, None, None)


def test_the_first_call_fails_at_once(made: Any, answers: list[Any], clock: Clock) -> None:
    answers[:] = [gone()]
    with pytest.raises(ConnectionFailed):
        latest(made())


def test_a_query_gets_nothing_new_until_the_server_is_back(made: Any, answers: list[Any], clock: Clock) -> None:
    planner = made(poll_interval_ms="100")
    answers[:] = [START, gone(), gone(), END]
    assert latest(planner) == START
    found = START
    calls = 0
    while found == START:
        found = latest(planner)
        calls += 1
    assert found == END
    # each call ended before it could delay the stop of a query; 0.2 and then 0.4 s passed
    assert calls > 2
    assert max(clock.slept) <= 0.1
    assert sum(clock.slept) == pytest.approx(0.6)


def test_a_query_that_ends_at_the_present_waits(made: Any, answers: list[Any], clock: Clock) -> None:
    planner = made()
    answers[:] = [None, gone(), gone(), END]
    planner.stop_at_present()
    assert latest(planner) == END
    assert clock.slept == pytest.approx([0.2, 0.4])


def test_the_tasks_of_a_batch_are_waited_for(made: Any, answers: list[Any], clock: Clock) -> None:
    planner = made()
    answers[:] = [END, gone(), []]
    assert latest(planner) == END
    assert planner.partitions(START, END) == []
    assert clock.slept == pytest.approx([0.2])


def test_tries_and_pauses_are_those_of_the_options(made: Any, answers: list[Any], clock: Clock) -> None:
    planner = made(errors_max_retries="3", retriable_restart_connector_wait_ms="300")
    # a success resets the count
    answers[:] = [END, gone(), gone(), gone(), [], *(gone() for _ in range(4))]
    assert latest(planner) == END
    assert planner.partitions(START, END) == []
    assert clock.slept == pytest.approx([0.2, 0.3, 0.3])
    with pytest.raises(ConnectionFailed):
        planner.partitions(START, END)
    assert clock.slept == pytest.approx([0.2, 0.3, 0.3] * 2)
    assert not answers


@pytest.mark.parametrize("error", [gone(is_lasting=True), PositionLost("The slot is gone.", "Start anew.")])
def test_what_lasts_is_raised(made: Any, answers: list[Any], clock: Clock, error: Exception) -> None:
    planner = made()
    answers[:] = [END, error]
    assert latest(planner) == END
    with pytest.raises(type(error)):
        latest(planner)


def test_lost_sessions_of_the_reader_count_beside_failed_plans(
    made: Any, answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresPlanner, "reading", lambda _: ReaderState(True, {"session": 2, "disk": 1}))
    planner = made()
    assert planner.reading().setbacks == {"session": 2, "disk": 1}
    answers[:] = [END, gone(), []]
    latest(planner)
    planner.partitions(START, END)
    assert planner.reading().setbacks == {"session": 2, "disk": 1, "planning": 1}
