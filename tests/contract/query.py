"""A query run as Spark would, batch by batch, through the interface of every connector: descriptor, planner, tasks."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tailrace.connectors import registry
from tailrace.connectors.source_status import SourceStatus
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tests.contract.subject import TABLE, Subject

Row = dict[str, Any]
GENERAL = {
    "poll.interval.ms": "20",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "retriable.restart.connector.wait.ms": "50",
}
SECONDS = 60
"""Seconds for which a test waits for missing events, before it fails."""
_MADE_AT = ("ts_ms", "ts_us", "ts_ns")
"""The members of an event with the time of its creation, which differs at every reading."""


class Query:
    """A query, as a context manager. `committed` is the offset in Spark's commit log, as text."""

    def __init__(
        self,
        subject: Subject,
        more: Mapping[str, str] = MappingProxyType({}),
        *,
        committed: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`more` are options in addition to `options`, by default those of the subject."""
        self.descriptor = registry.find(subject.connector)
        given = {**GENERAL, **(subject.options if options is None else options), **more}
        self.config = registry.parse(subject.connector, given)
        self.planner = self.descriptor.load_planner()(self.config, EventSettings.from_options(self.config, "run"))
        self.initial = text_of(self.planner.initial_offset())
        self.committed = self.initial if committed is None else committed

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *error: object) -> None:
        self.planner.close()

    def plan(self) -> str | None:
        """Return the end of the next batch; None if nothing is new."""
        end = text_of(self.planner.latest_offset(json.loads(self.committed), None, None))
        return None if end == self.committed else end

    def tasks(self, end: str) -> list[Task]:
        """Return the tasks of the batch that ends at `end`, pickled as for workers."""
        return [sent(task) for task in self.planner.partitions(json.loads(self.committed), json.loads(end))]

    def read(self, end: str) -> list[Row]:
        """Return the rows of `things` in the batch that ends at `end`."""
        return [row for task in self.tasks(end) for row in rows_of(task)]

    def step(self) -> list[Row]:
        """Plan a batch, read it and commit it."""
        end = self.plan()
        if end is None:
            return []
        found = self.read(end)
        self.committed = end
        return found

    def begin(self) -> None:
        """Run batches until the query has a position in the log."""
        until = time.monotonic() + SECONDS
        while self.committed == self.initial:
            assert time.monotonic() < until, "no position in the log"
            self.step()

    def until(self, count: int) -> list[Row]:
        """Return the rows of the next batches until there are `count`, and of one more batch, to reveal extra rows."""
        found: list[Row] = []
        until = time.monotonic() + SECONDS
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} rows"
            found += self.step()
        return found + self.step()

    def planned(self) -> str:
        """Plan the next batch that has rows and return its end, uncommitted. Commits the batches without rows."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            end = self.plan()
            if end is not None:
                if self.read(end):
                    return end
                self.committed = end
        raise AssertionError("no batch has rows")

    def drain(self) -> list[Row]:
        """Return the rows of all batches until nothing is new."""
        found: list[Row] = []
        while (end := self.plan()) is not None:
            found += self.read(end)
            self.committed = end
        return found

    def status(self) -> SourceStatus:
        """Return the status, as the status line gets it."""
        newest = self.planner.status()
        return self.descriptor.load_describe()(json.loads(self.committed), newest or {})


def text_of(offset: Any) -> str:
    """Return an offset as the text that Spark stores; asserts that an offset may have its content."""
    _hold(offset)
    text = json.dumps(offset)
    assert text == json.dumps(offset, sort_keys=True), f"the keys of {text} are not in order"
    return text


def _hold(value: Any) -> None:
    if isinstance(value, dict):
        assert all(isinstance(name, str) for name in value)
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            _hold(one)
    else:
        assert value is None or isinstance(value, str | int), f"{value!r} in an offset"


def sent(task: Task) -> Task:
    """Return the task after pickling and unpickling."""
    found: Task = pickle.loads(pickle.dumps(task))
    return found


def rows_of(task: Task) -> list[Row]:
    """Return a task's rows of `things`."""
    rows = (row for batch in task.read() for row in batch.to_pylist())
    return [row for row in rows if (row["table"] or "").lower() == TABLE]


def told(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Return the parts of rows that are the same at every reading."""
    found = []
    for row in rows:
        event = json.loads(row["value"] or b"{}")
        value = {name: member for name, member in event.items() if name not in _MADE_AT}
        same = (row[name] for name in ("topic", "key", "op", "position", "ordinal", "transaction", "snapshot"))
        found.append((*same, value))
    return found


def numbers(rows: list[Row]) -> list[tuple[str, int]]:
    """Return operation and key of each row."""
    return [(row["op"], int(next(iter(json.loads(row["key"]).values())))) for row in rows]
