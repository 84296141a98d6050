"""Spark's use of a planner, in the test's own process: batches are planned, read, committed, killed and replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tailrace.columns.batch import ChangeBatch
from tailrace.connectors.postgres.log.messages import MessageTask
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.connectors.postgres.snapshot.key_chunks import read_rows
from tailrace.connectors.postgres.snapshot.rows import read_chunk
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, ReadTask, Rehearsal, SnapshotTask
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.log.control_tasks import BoundaryTask, HeartbeatTask, NotificationTask
from tailrace.log.rows.segment import MixedSegment
from tailrace.log.rows.small_tables import apart
from tailrace.log.rows.tasks import LogTask
from tailrace.snapshot.incremental import Notification
from tests import fix_invariant
from tests.fix_capture import has_read
from tests.fix_postgres import Database

Change = tuple[str, str, tuple[Any, ...] | None]


class Query:
    """A stand-in for Spark's query over a planner, which can be killed at any point."""

    def __init__(self, database: Database, **options: str) -> None:
        self.database = database
        own = {"slot.name": f"slot_{database.name}"[:60], "topic.prefix": "s", "poll.interval.ms": "50"}
        self.options = {**own, **options}
        self.committed: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.changes: list[Change] = []
        self.boundaries: list[int | None] = []
        self.heartbeats: list[int] = []
        self.messages: list[str] = []
        self.notifications: list[Notification] = []
        self.at: list[tuple[int, int]] = []
        self.max_rows: int | None = None
        self.max_bytes: int | None = 64 << 20
        fix_invariant.watch(database.server.dsn(), self.options["slot.name"], lambda: self.committed)
        self.planner = self.start()

    def start(self, available_now: bool = False) -> PostgresPlanner:
        config = parse("postgres", self.database.options(**self.options))
        planner = PostgresPlanner(config, EventSettings.from_options(config, "run"))
        if available_now:
            planner.stop_at_present()
        return planner

    def kill(self) -> None:
        self.planner.close()
        self.planner = self.start()

    def drain_now(self) -> int:
        """Run with Trigger.AvailableNow. Return the number of batches."""
        self.planner.close()
        self.planner = self.start(available_now=True)
        batches = 0
        while self.step():
            batches += 1
        return batches

    def step(self, commit: bool = True) -> bool:
        """Run one trigger. Return False if nothing was new."""
        fix_invariant.check()
        start = self.committed if self.committed is not None else self.planner.initial_offset()
        if self.planned is None:
            end = self.planner.latest_offset(start, self.max_rows, self.max_bytes)
            if end == start:
                return False
            self.planned = end
        tasks = simple(self.planner.partitions(start, self.planned))
        changes = [
            change for task in tasks if isinstance(task, LogTask | ReadTask | SnapshotTask) for change in read(task)
        ]
        if commit:
            for task in tasks:
                if isinstance(task, BoundaryTask):
                    self.boundaries += [
                        None if found.counts is None else found.counts.total for found in task.boundaries
                    ]
                elif isinstance(task, MessageTask):
                    found = task.messages(0, len(task.segment))
                    self.messages += [message.content.decode() for message in found]
                    self.at += [(message.commit_lsn, message.ordinal) for message in found]
                elif isinstance(task, HeartbeatTask):
                    self.heartbeats.append(task.at_ms)
                elif isinstance(task, NotificationTask):
                    self.notifications += [notification for notification, _ in task.notifications]
            self.changes.extend(changes)
            self.committed, self.planned = self.planned, None
        return True

    def until(self, count: int, seconds: float = 60) -> list[Change]:
        """Trigger until there are `count` changes and the server's log holds no more now. Fails for more changes."""
        target = self.database.flushed()
        deadline = time.monotonic() + seconds
        while not (len(self.changes) >= count and has_read(self.planner, target)) and time.monotonic() < deadline:
            self.step()
        before = -1
        while before < len(self.changes):
            # Changes that were read when the batch before was already planned.
            before = len(self.changes)
            self.step()
        return self.changes


def simple(tasks: Sequence[Task]) -> list[Task]:
    """Return the single tasks within the tasks that workers get, without empty ones."""
    parts = [task.tasks if isinstance(task, Consecutive) else (task,) for task in tasks]
    return [task for part in parts for task in part if not isinstance(task, Rehearsal)]


def read(task: Any) -> Iterator[Change]:
    if isinstance(task, LogTask):
        for segment in task.segments:
            for one in apart(segment) if isinstance(segment, MixedSegment) else [segment]:
                yield from changes(decode(one))
    elif isinstance(task, ReadTask):
        for part in task.reads:
            rows = KeptConnection.take(task.address)
            for batch in read_rows(rows, part.snapshot, part.table, part.chunk, part.origin, part.superseded):
                yield from changes(batch)
    else:
        assert isinstance(task, SnapshotTask)
        connection = KeptConnection.take(task.address)
        for batch in read_chunk(
            connection,
            task.snapshot,
            task.table,
            task.chunk,
            task.statement,
            task.origin,
            task.form,
            task.overridden,
            task.asked,
        ):
            yield from changes(batch)


def changes(batch: ChangeBatch) -> Iterator[Change]:
    for row in range(len(batch)):
        op = chr(batch.op[row])
        image = batch.after if op in "cur" else batch.before
        values = None
        if image is not None and op != "t":
            values = tuple(column[row].as_py() for column in image.columns)
        yield op, batch.table.id.table, values


@pytest.fixture
def query(database: Database) -> Iterator[Any]:
    made: list[Query] = []

    def make(**options: str) -> Query:
        made.append(Query(database, **options))
        return made[-1]

    yield make
    for one in made:
        one.planner.close()


def row(number: int, text: str) -> tuple[bytes, bytes]:
    return str(number).encode(), text.encode()
