"""What of MongoDB's log was read, committed and may be given up cannot be taken for each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.architecture import typing_rules

callers = partial(typing_rules.callers, "mongodb")

MIXED = """
from tailrace.connectors.mongodb.log import position as p
from tailrace.connectors.mongodb.log.chunk import Chunk
from tailrace.connectors.mongodb.log.reader import LogReader


def commit(reader: LogReader, planned: p.Position, read: p.Read, committed: p.Committed) -> None:
    reader.release(p.releasable(committed))
    reader.release(committed)  # wrong
    reader.release(read)  # wrong
    reader.release(planned)  # wrong
    reader.release(reader.reached)  # wrong
    p.releasable(read)  # wrong
    p.releasable(planned)  # wrong


def read(reader: LogReader, chunk: Chunk, wanted: p.Position, committed: p.Committed) -> None:
    reader.reached = chunk.reached
    reader.reached = chunk.position(0)
    reader.reached = wanted  # wrong
    reader.reached = committed  # wrong
    reader.reached = p.Position(7)  # wrong
    Chunk(chunk.rows, wanted, None, 0)  # wrong
"""


def test_the_type_checker_refuses_positions_of_the_wrong_kind(tmp_path: Path) -> None:
    typing_rules.check_refused(MIXED, tmp_path)


def test_only_what_spark_has_committed_is_given_up() -> None:
    assert callers("Releasable") == ["position.releasable"]
    # what Spark asks to go on from
    assert callers("Committed") == callers("releasable") == callers("release") == ["planner._next"]
