"""A planner and its tasks in the test's own process, run like Spark one batch at a time.

Every batch must fulfil two invariants: its end is not before its start, and not ahead of the state of a majority of the
server's replica set. The majority's state is read after the batch was planned, and never goes back.
"""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

from pymongo.errors import PyMongoError

from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.connectors.mongodb.planner import MongoPlanner
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Offset
from tests import fix_capture
from tests.fix_mongodb import Mongo

Event = dict[str, Any]

COMMENT = "what a majority has"
"""The comment of the command that reads the majority's state."""


class Ahead(AssertionError):
    """A position went back, or is ahead of a majority."""


def reached(offset: Offset) -> tuple[int, int]:
    """Return the position up to which an offset has read the log, as comparable numbers."""
    seconds, increment = offset["log"]["time"]
    return seconds << 32 | increment, offset["log"]["number"]


class Capture:
    """A query. `offset` is the content of its checkpoint."""

    def __init__(self, offset: Offset | None = None, **options: str) -> None:
        named = {name if "." in name else name.replace("_", "."): text for name, text in options.items()}
        plain = {"poll.interval.ms": "50", "key.converter.schemas.enable": "false",
                 "value.converter.schemas.enable": "false", "cursor.max.await.time.ms": "50",
                 # The client looks as often for a server that was unreachable.
                 "mongodb.heartbeat.frequency.ms": "500", "mongodb.server.selection.timeout.ms": "5000",
                 "retriable.restart.connector.wait.ms": "200"}  # fmt: skip
        config = parse("mongodb", plain | named)
        self.planner = MongoPlanner(config, EventSettings.from_options(config, "run"))
        self._reads_oplog = config["capture.mode"] == "oplog"
        self._offset = offset or self.planner.initial_offset()
        self.batches: list[tuple[Offset, Offset]] = []

    @property
    def offset(self) -> Offset:
        """The offset that was committed last."""
        return self._offset

    @offset.setter
    def offset(self, offset: Offset) -> None:
        if reached(offset) < reached(self._offset):
            raise Ahead(f"the position went back from {self._offset['log']} to {offset['log']}")
        self._offset = offset

    def _hold(self, end: Offset) -> None:
        """Raise Ahead if the offset is ahead of the majority's present state."""
        head = self._majority()
        if head is not None and reached(end)[0] > head:
            raise Ahead(f"{end['log']} is ahead of {head >> 32}:{head & 0xFFFFFFFF}, which a majority has")

    def _majority(self) -> int | None:
        """Return the newest timestamp of a majority; None if the server does not tell it or is unreachable."""
        client = self.planner._source.connect()
        try:
            if self._reads_oplog:
                command = {"find": "oplog.rs", "filter": {}, "sort": {"$natural": -1}, "limit": 1, "singleBatch": True,
                           "readConcern": {"level": "majority"}, "comment": COMMENT}  # fmt: skip
                found = client.local.command(command)["cursor"]["firstBatch"]
                at = found[0]["ts"] if found else None
            else:
                at = client.admin.command("hello").get("lastWrite", {}).get("majorityOpTime", {}).get("ts")
        except PyMongoError:
            return None
        return None if at is None else int(at.time) << 32 | int(at.inc)

    def step(self, rows: int | None = None, size: int | None = None) -> list[Event] | None:
        """Return the records of the next batch; None if there is none."""
        end = self.plan(rows, size)
        if end is None:
            return None
        self.batches.append((self.offset, end))
        found = self.read(*self.batches[-1])
        self.offset = end
        return found

    def plan(self, rows: int | None = None, size: int | None = None) -> Offset | None:
        """Return the end of the next batch in Spark's form; None if nothing is new."""
        end: Offset = json.loads(json.dumps(self.planner.latest_offset(self.offset, rows, size)))
        if end == self.offset:
            return None
        self._hold(end)
        return end

    def read(self, start: Offset, end: Offset) -> list[Event]:
        """Return the records of a batch as plain values."""
        return [_event(row) for row in self.rows(start, end)]

    def rows(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        """Return the records of a batch as Spark gets them."""
        tasks = [pickle.loads(pickle.dumps(task)) for task in self.planner.partitions(start, end)]
        return [row for task in tasks for batch in task.read() for row in batch.to_pylist()]

    def until(self, count: int, seconds: float = 40.0, **limits: int) -> list[Event]:
        """Return the records of the next batches until there are `count`."""
        found: list[Event] = []
        until = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} records: {found}"
            found += self.step(**limits) or []
        return found

    def present(self) -> int:
        """Return the readable end of the log; 0 if the server does not tell it or is unreachable."""
        return self._majority() or 0

    def has_read(self, target: int) -> bool:
        """Return True if the planner holds, or has delivered, every change up to the timestamp `target`."""
        return self.planner._log is None or self.planner._log.has_read(ChangePosition(target, WHOLE))

    def idle(self, times: int = 3) -> list[Event]:
        """Return the records until some batches in a row are empty."""
        found: list[Event] = []
        still = 0
        while still < times:
            batch = self.step()
            still = 0 if batch else still + 1
            found += batch or []
        return found

    def close(self) -> None:
        self.planner.close()


class Query:
    """A query that may crash, in the format 3, or in 1.1 if `mongodb.name` is among the options.

    `events` are the events of committed batches; `options` are read again at a restart.
    """

    def __init__(self, server: Mongo, **options: str) -> None:
        named = {name if "." in name else name.replace("_", "."): text for name, text in options.items()}
        own = {"mongodb.hosts": server.hosts} if "mongodb.name" in named else {"topic.prefix": "p"}
        if "mongodb.hosts" not in own | named:
            own["mongodb.connection.string"] = server.uri
        waits = {"retriable.restart.connector.wait.ms": "200", "mongodb.server.selection.timeout.ms": "5000",
                 "mongodb.heartbeat.frequency.ms": "500"}  # fmt: skip
        self.options = {**own, **waits, **named}
        self.events: list[fix_capture.Event] = []
        self._planned: Offset | None = None
        self._capture = Capture(**self.options)

    def restart(self) -> None:
        """Crash and restart from the checkpoint, with a batch that was planned and not committed."""
        self.close()
        self._capture = Capture(self._capture.offset, **self.options)

    def step(self, commit: bool = True) -> list[fix_capture.Event]:
        """Run one trigger. Return the events of its batch; [] if nothing was new."""
        if self._planned is None:
            self._planned = self._capture.plan(None, 64 << 20)
        if self._planned is None:
            return []
        strict = fix_capture.strict
        rows = self._capture.rows(self._capture.offset, self._planned)
        events = [fix_capture.Event(strict(row["key"]), strict(row["value"]), row) for row in rows]
        if commit:
            self._capture.offset, self._planned = self._planned, None
            self.events += events
        return events

    def until(self, count: int, seconds: float = 60) -> list[fix_capture.Event]:
        """Trigger until there are `count` events and the server's log holds no more now. Fails for more events."""
        target = self._capture.present()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (len(self.events) >= count and self._capture.has_read(target)):
            self.step()
        before = -1
        while before < len(self.events):
            # Changes that were read when the batch before was already planned.
            before = len(self.events)
            self.step()
        return self.events

    def begin(self) -> None:
        """Trigger until there is a position and no snapshot is left."""
        self.step()
        while self.step():
            pass

    def close(self) -> None:
        self._capture.close()


def _event(row: dict[str, Any]) -> Event:
    value = row["value"]
    return {
        "topic": row["topic"],
        "op": row["op"],
        "key": json.loads(row["key"])["id"] if row["key"] and b'"id"' in row["key"] else row["key"],
        "value": None if value is None else json.loads(value),
        "position": (row["position"], row["ordinal"]),
        "snapshot": row["snapshot"],
        "transaction": row["transaction"],
    }


def after(event: Event) -> Any:
    """Return the document after the change."""
    text = event["value"]["after"]
    return None if text is None else json.loads(text)


def keys(events: list[Event]) -> list[tuple[str, str]]:
    """Return operation and key of each event."""
    return [(event["op"], event["key"]) for event in events]
