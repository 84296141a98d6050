"""A query without Spark: planner and tasks are driven batch by batch, and records are read as by a consumer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tailrace.connectors.postgres.log_session import PostgresLogSession
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.log import engine
from tailrace.log.timing import DispatchInterval
from tailrace.process.runtime import Threads
from tests import fix_invariant
from tests.fix_postgres import Database


@dataclass(frozen=True, slots=True)
class Event:
    """A record. `key` and `value` are the parsed JSON, None if the record has none; `row` is the row for Spark."""

    key: Any
    value: Any
    row: dict[str, Any]

    @property
    def topic(self) -> str:
        return str(self.row["topic"])

    @property
    def op(self) -> str:
        return str(self.row["op"])

    @property
    def headers(self) -> dict[str, Any]:
        """The headers by their names, which are unique."""
        pairs = self.row["headers"] or []
        found = {pair["key"]: strict(pair["value"]) for pair in pairs}
        assert len(found) == len(pairs)
        return found

    @property
    def id(self) -> Any:
        """The key without its schema."""
        return payload(self.key)

    @property
    def payload(self) -> Any:
        """The value without its schema."""
        return payload(self.value)

    @property
    def source(self) -> dict[str, Any]:
        found: dict[str, Any] = self.payload["source"]
        return found


def payload(content: Any) -> Any:
    """Return the content of a key or a value, without its schema if it has one."""
    return content["payload"] if isinstance(content, dict) and set(content) == {"schema", "payload"} else content


def strict(text: bytes | None) -> Any:
    """Parse JSON in UTF-8. Raises ValueError for anything beyond RFC 8259, and for a repeated name in an object."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name stands twice in one object")
        return dict(pairs)

    if text is None:
        return None
    return json.loads(text.decode("utf-8"), parse_constant=refuse, object_pairs_hook=members)


class StillClock(Threads):
    """A clock for `poll.dispatch.interval.ms` that a test moves. `now` is in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Sleep for a short time, not for `seconds`."""
        time.sleep(min(seconds, 0.02))


@pytest.fixture
def dispatch_clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    """Give the planner a clock that stands still for the gathering of changes, and for nothing else."""
    clock = StillClock()
    monkeypatch.setattr(engine, "DispatchInterval", lambda config, runtime: DispatchInterval(config, clock))
    return clock


class Capture:
    """A query over `database`, with the names of the documents: server PostgreSQL_server, in the format of 1.7."""

    def __init__(self, database: Database, **options: str) -> None:
        names = {"database.server.name": "PostgreSQL_server", "slot.name": f"slot_{database.name}"[:60]}
        if "topic.prefix" in options:
            names.pop("database.server.name")
        config = parse("postgres", database.options(**{**names, "poll.interval.ms": "50", **options}))
        self.planner = PostgresPlanner(config, EventSettings.from_options(config, "run"))
        self.events: list[Event] = []
        self._database = database
        self._committed: dict[str, Any] = self.planner.initial_offset()
        fix_invariant.watch(database.server.dsn(), config["slot.name"], lambda: self._committed)

    def step(self) -> bool:
        """Plan a batch, read it and commit it. Return False if nothing is new."""
        fix_invariant.check()
        end = self.planner.latest_offset(self._committed, None, 64 << 20)
        if end == self._committed:
            return False
        for task in self.planner.partitions(self._committed, end):
            for rows in task.read():
                self.events += [Event(strict(row["key"]), strict(row["value"]), row) for row in rows.to_pylist()]
        self._committed = end
        return True

    def take(self, count: int, seconds: float = 60) -> list[Event]:
        """Return the next `count` events. Fails if the server's log now holds more."""
        target = self._database.flushed()
        deadline = time.monotonic() + seconds
        while not (len(self.events) >= count and has_read(self.planner, target)) and time.monotonic() < deadline:
            self.step()
        before = -1
        while before < len(self.events):
            # Transactions that were read when the batch before was already planned.
            before = len(self.events)
            self.step()
        taken, self.events = self.events, []
        assert len(taken) == count, [(event.op, event.topic, event.id) for event in taken]
        return taken


def has_read(planner: PostgresPlanner, target: FlushedLsn) -> bool:
    """Return True if the planner holds, or has delivered, every transaction that commits before `target`."""
    # The call makes the reader ask: the server rarely reports its position while nothing is captured.
    return planner._log is None or reader_of(planner).read_through(target, 0.02)


def reader_of(planner: PostgresPlanner) -> PostgresLogSession:
    """Return the reader of the planner's open log."""
    assert isinstance(planner._log, PostgresLogSession)
    return planner._log


class Captures:
    """A factory of captures of the test's database, which it closes at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._made: list[Capture] = []

    def __call__(self, *statements: str, **options: str) -> Capture:
        """Return a capture of the changes after `statements`; with snapshot_mode=initial it begins with their rows.

        The names of options are written with underscores instead of dots.
        """
        self._database.execute(*statements)
        named = {name.replace("_", "."): text for name, text in options.items()}
        made = Capture(self._database, **{"snapshot.mode": "never", **named})
        self._made.append(made)
        made.step()
        return made

    def close(self) -> None:
        for made in self._made:
            made.planner.close()


@pytest.fixture
def capture(database: Database) -> Iterator[Captures]:
    """Yield a factory of captures of the test's database."""
    made = Captures(database)
    yield made
    made.close()
