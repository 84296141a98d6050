"""The type checker tells positions of MongoDB's log apart: read and committed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.architecture import typing_rules

callers = partial(typing_rules.callers, "mongodb")

MIXED = """
from tailrace.connectors.mongodb.log import position as p
from tailrace.connectors.mongodb.log.indexed_run import IndexedRun
from tailrace.connectors.mongodb.log.feed import MongoFeed
from tailrace.connectors.mongodb.log_session import MongoLogSession


def commit(log: MongoLogSession, planned: p.ChangePosition, read: p.Read, committed: p.Committed) -> None:
    log.release(committed)
    log.release(read)  # wrong
    log.release(planned)  # wrong
    log.release(log.feed.reached_position)  # wrong


def read(feed: MongoFeed, run: IndexedRun, wanted: p.ChangePosition, committed: p.Committed) -> None:
    feed.reached_position = run.reached
    feed.reached_position = run.position(0)
    feed.reached_position = wanted  # wrong
    feed.reached_position = committed  # wrong
    feed.reached_position = p.ChangePosition(7)  # wrong
    IndexedRun.of(run.rows, wanted, None, 0)  # wrong
"""


def test_the_type_checker_refuses_positions_of_the_wrong_kind(tmp_path: Path) -> None:
    typing_rules.check_refused(MIXED, tmp_path)


def test_only_what_spark_has_committed_is_given_up() -> None:
    # The position from which Spark continues.
    assert callers("Committed") == callers("release") == ["log_session.acknowledge"]
