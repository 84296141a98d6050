"""A database in memory whose log the engine reads: positions are the numbers of its changes, and time stands still.

`Memory` implements the connector's part (see `tailrace.log.contracts`): a test writes changes to it, and it records the
engine's calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Limits, Offset, OpenLog, QueryOffset, Snapshots, Source, Task
from tailrace.log.engine import LogEngine
from tailrace.log.notifications import PendingNotifications
from tailrace.process.runtime import Thread, Threads
from tailrace.snapshot.progress import NO_PROGRESS, Progress

Result = TypeVar("Result")
LOGIN = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "server"}


class Clock(Threads):
    """A clock that advances only during sleeps. `slept` holds the pauses in s."""

    def __init__(self) -> None:
        self.now, self.slept, self.started = 1000.0, list[float](), list[str]()

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return round(self.now * 1_000_000_000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if seconds:
            self.slept.append(seconds)

    def start(self, run: Callable[[], None], name: str) -> Thread:
        self.started.append(name)
        run()
        return _Done()


class _Done:
    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        return


@dataclass(frozen=True)
class At:
    """A position: a number of changes in the log."""

    number: int

    def is_before(self, other: At) -> bool:
        return self.number < other.number


@dataclass(frozen=True)
class Chunks:
    """A snapshot with `left` chunks still to be read."""

    left: int

    @property
    def is_complete(self) -> bool:
        return not self.left


@dataclass(frozen=True)
class Place(QueryOffset):
    """The offsets of the log."""

    log: At = At(-1)
    snapshot: Chunks | None = field(default=None, kw_only=True)

    @property
    def place(self) -> int:
        return self.log.number

    def to_json(self) -> Offset:
        found: Offset = {"log": self.log.number, "beat": self.heartbeat_ms}
        if self.snapshot is not None:
            found["left"] = self.snapshot.left
        if self.progress != NO_PROGRESS:
            found["progress"] = self.progress.to_json()
        return found

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Place:
        snapshot = Chunks(fields["left"]) if "left" in fields else None
        progress = Progress.from_json(fields.get("progress", {}))
        return cls(At(fields["log"]), snapshot=snapshot, heartbeat_ms=fields["beat"], progress=progress)


@dataclass(frozen=True)
class Read:
    """The task of a part of the log, or of a chunk. `first` and `last` are its bounds."""

    kind: str
    first: int
    last: int

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(())


class Waiting(PendingNotifications[str, Chunks]):
    """The notifications of the snapshots in memory."""

    def chunks(self, before: Chunks, after: Chunks, *, asked: bool) -> None:
        if after.is_complete:
            self._add(self._initial.of("COMPLETED", chunks=str(before.left - after.left), asked=str(asked)))


class Memory(Source[Place, At, int], OpenLog[Place, At, int], Snapshots[Place]):
    """A source, its open log and its snapshots in one. The log has `written` changes, some of which are `captured`.

    `told` names the calls of the engine; `faults` holds the errors that the next calls raise, by name.
    """

    def __init__(self, config: Mapping[str, Any], clock: Clock) -> None:
        self.clock = clock
        self.written, self.captured = 0, set[int]()
        self.snapshots, self.notifications = self, Waiting(config, clock)
        self.told: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.why_lost, self.keeps, self.fills, self.far = "", True, False, False
        self.rows, self.chunk_count = {"t": 3}, 2
        self.arrivals: list[int] = []
        self.waited: list[float] = []
        self.limits: list[Limits] = []

    def write(self, count: int = 1, *, captured: bool = True) -> None:
        """Write a number of changes."""
        if captured:
            self.captured.update(range(self.written + 1, self.written + count + 1))
        self.written += count

    def _tell(self, call: str) -> None:
        self.told.append(call)
        fault = self.faults.pop(call, None)
        if fault is not None:
            raise fault

    # --- the source ----------------------------------------------------------------------------------------------

    def called(self, work: Callable[[], Result]) -> Result:
        return work()

    def recover(self) -> bool:
        return self.keeps

    def prepare(self, since: Place) -> None:
        self._tell("prepare")

    def clear_lost(self, since: Place) -> str:
        return self.why_lost

    def first(self) -> Place:
        return Place(At(self.written))

    def open(self, since: Place, until: Place | None, target: int | None) -> Memory:
        self._tell("open")
        return self

    def present(self) -> int:
        return self.written

    def beat(self) -> None:
        self._tell("beat")

    def status(self, log: object) -> Offset | None:
        return Place(At(self.written)).to_json()

    def close(self) -> None:
        self._tell("close")

    # --- the log -------------------------------------------------------------------------------------------------

    def acknowledge(self, since: Place) -> None:
        self._tell("acknowledge")

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.now += seconds
        if self.arrivals:
            self.write(self.arrivals.pop(0))

    def is_filling(self, max_bytes: int, target: int | None = None) -> bool:
        return self.fills

    def plan(self, start: At, limits: Limits, target: int | None) -> At:
        self._tell("plan")
        self.limits.append(limits)
        rows = sorted(number for number in self.captured if start.number < number <= (target or self.written))
        rows = rows[: limits.rows]
        return At(rows[-1]) if rows else start

    def whole(self, start: At) -> At:
        return At(max((number for number in self.captured if number > start.number), default=start.number))

    def has_seen(self, target: int) -> bool:
        return self.written >= target

    def idle_position(self, start: At) -> At:
        return start if any(number > start.number for number in self.captured) else At(self.written)

    def is_far(self, start: At, idle: At) -> bool:
        return self.far

    def window_end(self, progress: Progress, start: At, limits: Limits, target: int | None) -> At | None:
        return None

    def changes(self, start: At, end: At) -> object:
        return range(start.number + 1, end.number + 1)

    def offset(self, since: Place, end: At, heartbeat_ms: int, progress: Progress) -> Place:
        return Place(end, heartbeat_ms=heartbeat_ms, progress=progress)

    def tasks(self, since: Place, until: Place, end: Offset | None = None, beside: Sequence[Task] = ()) -> list[Task]:
        """Return the tasks of both: with an `end` those of the log, without one those of the chunks."""
        if end is not None:
            return [Read("log", since.log.number, until.log.number), *beside]
        if until.snapshot is None or (until.snapshot.is_complete and since.snapshot == until.snapshot):
            return []
        return [Read("chunk", self.chunk_count if since.snapshot is None else since.snapshot.left, until.snapshot.left)]

    # --- snapshots -----------------------------------------------------------------------------------------------

    def start(self, since: Place, *, fresh: bool) -> Place:
        self._tell("snapshot" if fresh else "snapshot of what is known")
        position = At(self.written) if fresh else since.log
        return Place(position, snapshot=Chunks(self.chunk_count), heartbeat_ms=since.heartbeat_ms)

    def block(self, since: Place) -> Place | None:
        self._tell("block")
        return replace(since, snapshot=Chunks(1))

    def count(self) -> Mapping[str, int]:
        return self.rows

    def advance(self, since: Place, max_rows: int | None, *, everything: bool) -> Chunks:
        self._tell("everything" if everything else "chunk")
        assert since.snapshot is not None
        return Chunks(0 if everything else since.snapshot.left - 1)


@dataclass
class Query:
    """An engine over a database in memory, and Spark's side of it: the committed offset."""

    memory: Memory
    engine: LogEngine[Place, At, int]
    clock: Clock
    settings: EventSettings
    at: Offset

    def next(self, max_rows: int | None = None) -> Offset:
        """Return the end of the next batch, and commit it."""
        self.at = self.engine.latest_offset(self.at, max_rows, None if max_rows is None else 1 << 20)
        return self.at

    def batch(self, max_rows: int | None = None) -> list[Any]:
        """Return the tasks of the next batch; [] if there is no batch."""
        before = self.at
        return [] if self.next(max_rows) == before else list(self.engine.partitions(before, self.at))


def query(**options: str) -> Query:
    """Return a query with these options, `_` for `.`, without a snapshot unless they name one."""
    return loading(lambda: None, **options)


def loading(load: Callable[[], None], **options: str) -> Query:
    """Return a query of an engine that has something to import."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    config = parse("postgres", LOGIN | {"snapshot.mode": "no_data"} | named)
    clock = Clock()
    memory = Memory(config, clock)
    settings = EventSettings.from_options(config, "run")
    engine = LogEngine(config, settings, clock, memory, Place, load)
    return Query(memory, engine, clock, settings, engine.initial_offset())


def again(before: Query, **options: str) -> Query:
    """Return the query restarted from its checkpoint: the same database, another engine."""
    found = query(**options)
    found.memory.written, found.memory.captured = before.memory.written, before.memory.captured
    found.at = before.at
    return found
