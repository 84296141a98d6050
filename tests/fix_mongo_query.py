"""What Spark does with a planner of MongoDB, in the test's own process: batches planned, read, committed, replayed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.config import parse
from tailrace.connectors.mongodb.planner import MongoPlanner
from tailrace.events.settings import EventSettings
from tests.fix_capture import Event, strict
from tests.fix_mongodb import Mongo


class MongoQuery:
    """One query over `server`, of the format 3, or 1.1 with `mongodb.name` among the options."""

    def __init__(self, server: Mongo, **options: str) -> None:
        named = {name if "." in name else name.replace("_", "."): text for name, text in options.items()}
        if "mongodb.name" not in named:
            named["topic.prefix"] = "p"
        else:
            named.setdefault("mongodb.hosts", server.hosts)
        if "mongodb.hosts" not in named:
            named["mongodb.connection.string"] = server.uri
        self.options = {"poll.interval.ms": "50", "cursor.max.await.time.ms": "100",
                        "retriable.restart.connector.wait.ms": "200", "mongodb.server.selection.timeout.ms": "5000",
                        "mongodb.heartbeat.frequency.ms": "500",
                        **named}  # fmt: skip
        self.committed: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.events: list[Event] = []
        self.planner = self._made()

    def _made(self) -> MongoPlanner:
        config = parse("mongodb", self.options)
        return MongoPlanner(config, EventSettings.from_options(config, "run"))

    def restart(self) -> None:
        """A crash and a new start from the checkpoint, with a batch that was planned and not committed."""
        self.planner.close()
        self.planner = self._made()

    def step(self, commit: bool = True) -> list[Event]:
        """One trigger: the events of its batch; none when nothing was new."""
        start = self.committed if self.committed is not None else self.planner.initial_offset()
        if self.planned is None:
            end = self.planner.latest_offset(start, None, 64 << 20)
            if end == start:
                return []
            # As Spark stores it.
            self.planned = json.loads(json.dumps(end))
        events = [
            Event(strict(row["key"]), strict(row["value"]), row)
            for task in self.planner.partitions(start, self.planned)
            for rows in task.read()
            for row in rows.to_pylist()
        ]
        if commit:
            self.committed, self.planned = self.planned, None
            self.events += events
        return events

    def until(self, count: int, seconds: float = 20) -> list[Event]:
        """Trigger until there are `count` events; a moment longer, to notice one too many."""
        deadline = time.monotonic() + seconds
        while len(self.events) < count and time.monotonic() < deadline:
            self.step()
        self.step()
        return self.events

    def begin(self) -> None:
        """Trigger until there is a position and no snapshot is left."""
        self.step()
        while self.step():
            pass


@pytest.fixture
def mongo_query() -> Iterator[Any]:
    made: list[MongoQuery] = []

    def make(server: Mongo, **options: str) -> MongoQuery:
        made.append(MongoQuery(server, **options))
        return made[-1]

    yield make
    for one in made:
        one.planner.close()
