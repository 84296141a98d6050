"""The contract of every connector, as tests. The module that imports them defines the fixture `subject`."""

from __future__ import annotations

import json

import pytest

from tailrace.connectors import registry
from tailrace.connectors.source_status import SourceStatus
from tailrace.errors import ConfigError, ConnectionFailed
from tailrace.snapshot.signals import Signal
from tests.contract.query import Query, numbers, rows_of, sent, text_of, told
from tests.contract.subject import Subject

MOST_CALLS = 200
"""The most calls of a planner whose server is gone, before a test fails."""


def created(*keys: int) -> list[tuple[str, int]]:
    return [("c", key) for key in keys]


def ask_on(query: Query) -> None:
    """Plan and read batches, even if there is nothing new."""
    for _ in range(MOST_CALLS):
        query.step()


def test_making_a_planner_asks_no_server(subject: Subject) -> None:
    with subject.losable() as (options, lose):
        lose()
        with Query(subject, options=options) as query:
            assert query.initial


def test_the_first_offset_is_a_constant(subject: Subject) -> None:
    with Query(subject) as query:
        subject.insert(1)
        query.begin()
        assert text_of(query.planner.initial_offset()) == query.initial
        with Query(subject, {"topic.prefix": "another"}) as other:
            assert other.initial == query.initial


def test_where_nothing_happens_the_position_keeps_its_text(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        subject.insert(1)
        assert numbers(query.until(1)) == created(1)
        query.drain()
        assert [query.plan(), query.plan()] == [None, None]


def test_a_batch_that_is_asked_for_twice_is_the_same(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        subject.insert(1, 2, 3)
        end = query.planned()
        first = told(query.read(end))
        assert first
        assert told(query.read(end)) == first


def test_a_task_is_pickled_and_read_as_often_as_spark_likes(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        subject.insert(1, 2)
        tasks = query.tasks(query.planned())
        first = [told(rows_of(task)) for task in tasks]
        assert [told(rows_of(task)) for task in tasks] == first
        assert [told(rows_of(sent(task))) for task in tasks] == first


def test_nothing_prints_a_secret(subject: Subject) -> None:
    with Query(subject, subject.snapshot) as query:
        subject.insert(1)
        shown = [repr(query.planner), *map(repr, query.tasks(query.planned()))]
        assert [secret for secret in subject.secrets if any(secret in text for text in shown)] == []


def test_a_planner_goes_on_from_what_was_committed(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        subject.insert(1, 2)
        assert numbers(query.until(2)) == created(1, 2)
        committed = query.committed
    subject.insert(3, 4)
    with Query(subject, committed=committed) as query:
        assert numbers(query.until(2)) == created(3, 4)
        subject.insert(5)
        assert numbers(query.until(1)) == created(5)


def test_a_batch_that_was_planned_before_a_restart_is_the_same(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        subject.insert(1, 2, 3)
        end, committed = query.planned(), query.committed
        first = told(query.read(end))
    subject.insert(4)
    with Query(subject, committed=committed) as query:
        assert told(query.read(end)) == first
        query.committed = end
        rest = created(1, 2, 3, 4)[len(first) :]
        assert numbers(query.until(len(rest))) == rest


def test_available_now_ends_at_what_was_committed_when_it_began(subject: Subject) -> None:
    with Query(subject) as query:
        query.begin()
        committed = query.committed
    subject.insert(1, 2)
    for expected, more in (((1, 2), (3, 4)), ((3, 4), ())):
        with Query(subject, committed=committed) as query:
            query.planner.stop_at_present()
            subject.insert(*more)
            assert numbers(query.drain()) == created(*expected)
            committed = query.committed


def test_a_snapshot_begins_the_query_and_ends(subject: Subject) -> None:
    subject.insert(1, 2, 3)
    with Query(subject, subject.snapshot) as query:
        found = query.until(3)
        assert sorted(numbers(found)) == [("r", 1), ("r", 2), ("r", 3)]
        assert [row["snapshot"] for row in found].count("last") == 1
        subject.insert(4)
        assert numbers(query.until(1)) == created(4)
        assert query.status().snapshot is None
        committed = query.committed
    subject.insert(5)
    with Query(subject, subject.snapshot, committed=committed) as query:
        assert numbers(query.until(1)) == created(5)


def test_a_signal_begins_an_incremental_snapshot(subject: Subject) -> None:
    subject.insert(1, 2, 3)
    with subject.at_work(), Query(subject, subject.signals) as query:
        query.begin()
        # a log that is whole has brought the rows as changes
        query.drain()
        asked = json.dumps({"type": "incremental", "data-collections": [subject.table]})
        query.descriptor.load_send_signal()(query.config, Signal("one", "execute-snapshot", asked))
        found = query.until(3)
        assert sorted(numbers(found)) == [("r", 1), ("r", 2), ("r", 3)]
        assert {row["snapshot"] for row in found} == {"incremental"}
        subject.insert(4)
        assert numbers(query.until(1)) == created(4)


def test_the_status_can_be_read(subject: Subject) -> None:
    describe = registry.find(subject.connector).load_describe()
    assert describe({}, {}) == SourceStatus()
    with Query(subject) as query:
        query.begin()
        subject.insert(1)
        query.until(1)
        found = query.status()
        assert found.position
        assert found.snapshot is None
        assert found.tables == ()


def test_a_lost_server_is_an_error_that_says_so(subject: Subject) -> None:
    at_once = {"errors.max.retries": "0"}
    with subject.losable() as (options, lose), Query(subject, at_once, options=options) as query:
        query.begin()
        subject.insert(1)
        assert numbers(query.until(1)) == created(1)
        lose()
        with pytest.raises(ConnectionFailed) as raised:
            ask_on(query)
        assert raised.value.remedy
        text = f"{raised.value.message} {raised.value.remedy}"
        assert [secret for secret in subject.secrets if secret in text] == []


def test_an_unknown_option_is_refused_with_the_nearest_name(subject: Subject) -> None:
    with pytest.raises(ConfigError, match=r"topic[.]prefx is not an option; the nearest is topic[.]prefix"):
        registry.parse(subject.connector, {**subject.options, "topic.prefx": "x"})
