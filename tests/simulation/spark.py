"""What Spark does with a planner: the offset log, the commit log, batches that are read again, AvailableNow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tailrace.connectors.base import Planner
from tailrace.connectors.postgres import pgoutput
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.segment import MessageSegment, Segment
from tailrace.connectors.postgres.tasks import LogTask, MessageTask
from tests.simulation.world import Process

Row = tuple[Any, ...]
"""Kind and number of a change, the LSN of its commit, its ordinal."""
Batch = dict[str, list[Row]]
"""The rows of each topic, in the order in which they are delivered."""


@dataclass
class Checkpoint:
    """What outlives a query: the offset and the commit log, and what the sink has kept of each batch.

    `forgettable` is what the server may forget of what is committed.
    """

    forgettable: int
    offsets: list[str] = field(default_factory=list)
    commits: int = 0
    sink: dict[int, Batch] = field(default_factory=dict)

    def committed(self) -> dict[str, Any] | None:
        """The offset at the end of the last committed batch."""
        return json.loads(self.offsets[self.commits - 1]) if self.commits else None

    def commit(self) -> None:
        """The last planned batch is committed."""
        self.commits += 1
        self.forgettable = int(PostgresOffset.from_json(json.loads(self.offsets[-1])).log.safe_lsn)


@dataclass
class Query:
    """One run of a query, from its start to its end, its failure or its being killed.

    `done(batch)` is called when a batch has been committed, with `limits` of rows and bytes asked for each. `read` does
    the tasks of a batch, `logged` gives what must be the same whenever it is read.
    """

    checkpoint: Checkpoint
    planner: Planner
    process: Process
    done: Callable[[int], None]
    limits: Callable[[], tuple[int | None, int | None]]
    available_now: bool = False
    is_over: bool = False
    read: Callable[[Any], Batch] = field(default_factory=lambda: read_tasks)
    logged: Callable[[Batch], Batch] = lambda batch: batch

    def run(self) -> None:
        """The thread that runs the query."""
        if self.available_now:
            self.planner.stop_at_present()
        checkpoint = self.checkpoint
        while True:
            self.process.step()
            committed = checkpoint.committed()
            start = self.planner.initial_offset() if committed is None else committed
            if len(checkpoint.offsets) == checkpoint.commits:
                end = self.planner.latest_offset(start, *self.limits())
                self.process.step()
                if self.process.world.rng.random() < 0.1:
                    self.planner.status()
                if end == start:
                    if self.available_now:
                        break
                    continue
                before, after = PostgresOffset.from_json(start).log, PostgresOffset.from_json(end).log
                assert not after.is_before(before), "a planned position goes back"
                assert after.safe_lsn >= before.safe_lsn, "what may be forgotten goes back"
                checkpoint.offsets.append(json.dumps(end))
            self._deliver(start, json.loads(checkpoint.offsets[-1]))
        self.planner.close()
        self.is_over = True

    def _deliver(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        checkpoint = self.checkpoint
        self.process.step()
        tasks = self.planner.partitions(start, end)
        self.process.step()
        rows = self.read(tasks)
        number = checkpoint.commits
        if number in checkpoint.sink:
            before, again = self.logged(checkpoint.sink[number]), self.logged(rows)
            assert before == again, f"a batch that is read again is another one: {before}, and then {again}"
        checkpoint.sink[number] = rows
        self.process.step()
        checkpoint.commit()
        self.done(number)


def read_tasks(tasks: Any) -> Batch:
    """The rows of a batch's tasks."""
    found: Batch = {}
    for task in tasks:
        if isinstance(task, LogTask):
            for segment in task.segments:
                topic = segment.table.id.table
                assert topic not in found, "two tasks have changes of a topic"
                found[topic] = [_row(segment, place) for place in range(len(segment))]
        elif isinstance(task, MessageTask):
            found["messages"] = [_row(task.segment, place) for place in range(len(task.segment))]
        else:
            raise AssertionError(f"an unknown task: {task}")
    return found


def _row(segment: Segment | MessageSegment, place: int) -> Row:
    message = pgoutput.parse(segment.data[segment.offsets[place] : segment.offsets[place + 1]].tobytes())
    commit_lsn = int(segment.transactions.commit_lsn[segment.transaction[place]])
    ordinal = int(segment.ordinal[place])
    if isinstance(message, pgoutput.Message):
        return "L", int(message.content), commit_lsn, ordinal
    if isinstance(message, pgoutput.Truncate):
        return "T", 0, commit_lsn, ordinal
    assert isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete)
    kind = type(message).__name__[0]
    values: Any = message.old if isinstance(message, pgoutput.Delete) else message.new
    return kind, int(bytes(values[0])), commit_lsn, ordinal
