"""Capture: a planner and its tasks run as Spark runs them, one batch at a time, in the test's own process."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

from tailrace.config import parse
from tailrace.connectors.base import Offset
from tailrace.connectors.mongodb.planner import MongoPlanner
from tailrace.events.settings import EventSettings

Event = dict[str, Any]


class Capture:
    """One query; `offset` is what its checkpoint would hold."""

    def __init__(self, offset: Offset | None = None, **options: str) -> None:
        named = {name if "." in name else name.replace("_", "."): text for name, text in options.items()}
        plain = {"poll.interval.ms": "50", "key.converter.schemas.enable": "false",
                 "value.converter.schemas.enable": "false", "cursor.max.await.time.ms": "50",
                 # a server that went away is looked for as often
                 "mongodb.heartbeat.frequency.ms": "500", "mongodb.server.selection.timeout.ms": "5000",
                 "retriable.restart.connector.wait.ms": "200"}  # fmt: skip
        config = parse("mongodb", plain | named)
        self.planner = MongoPlanner(config, EventSettings.from_options(config, "run"))
        self.offset = offset or self.planner.initial_offset()
        self.batches: list[tuple[Offset, Offset]] = []

    def step(self, rows: int | None = None, size: int | None = None) -> list[Event] | None:
        """The records of the next batch; None when there is none."""
        end = json.loads(json.dumps(self.planner.latest_offset(self.offset, rows, size)))
        if end == self.offset:
            return None
        self.batches.append((self.offset, end))
        found = self.read(*self.batches[-1])
        self.offset = end
        return found

    def read(self, start: Offset, end: Offset) -> list[Event]:
        """The records of a batch, as plain values."""
        found: list[Event] = []
        for task in self.planner.partitions(start, end):
            for batch in pickle.loads(pickle.dumps(task)).read():
                found += [_event(row) for row in batch.to_pylist()]
        return found

    def until(self, count: int, seconds: float = 40.0, **limits: int) -> list[Event]:
        """The records of the next batches until there are `count`."""
        found: list[Event] = []
        until = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} records: {found}"
            found += self.step(**limits) or []
        return found

    def idle(self, times: int = 3) -> list[Event]:
        """The records until nothing comes for some batches."""
        found: list[Event] = []
        still = 0
        while still < times:
            batch = self.step()
            still = 0 if batch else still + 1
            found += batch or []
        return found

    def close(self) -> None:
        self.planner.close()


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
    """The document after the change."""
    text = event["value"]["after"]
    return None if text is None else json.loads(text)


def keys(events: list[Event]) -> list[tuple[str, str]]:
    """Operation and key of each event."""
    return [(event["op"], event["key"]) for event in events]
