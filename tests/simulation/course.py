"""Course: the base of histories. A query runs, ends and is started again, by a seed; subclasses define the database."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Planner
from tests.simulation.spark import Checkpoint, Limits, Meaning, Query
from tests.simulation.world import Process, World, noting

TURNS = 150
"""Number of steps with faults."""
MOST_TURNS = 20_000
"""The most steps in which the rest must be delivered."""

Counts = tuple[int, int, bool, int]
"""Starts of the query, batches, True if the position was lost, changes delivered."""
AnyCheckpoint = TypeVar("AnyCheckpoint", bound=Checkpoint)


def configured(connector: str, options: Mapping[str, str]) -> tuple[Config, EventSettings]:
    """Return configuration and settings of the options. Histories share cached ones; nobody may change them."""
    return _configured(connector, tuple(options.items()))


@functools.cache
def _configured(connector: str, options: tuple[tuple[str, str], ...]) -> tuple[Config, EventSettings]:
    config = parse(connector, dict(options))
    return config, EventSettings.from_options(config, "00000000-0000-7000-8000-000000000000")


class Course(ABC, Generic[AnyCheckpoint]):
    """A history, drawn from its seed. It draws from `rng` in the same order each time."""

    turns = TURNS
    expected: tuple[type[Exception], ...] = (ConnectionFailed,)
    """Errors after which a query is started again."""
    persistence = 0.0
    """Probability that the same planner is called again after a failed call."""
    interruption = 0.0
    """Probability that a query is killed between the plan of a batch and its first reading."""
    available = 0.2
    """Share of queries that run with AvailableNow."""
    limits: tuple[Limits, ...] = ((None, 1 << 30), (3, 1 << 30), (None, 200), (1, 1 << 30))

    def __init__(self, seed: int, checkpoint: AnyCheckpoint) -> None:
        self.rng = Random(seed)
        self.checkpoint = checkpoint
        self.world = World(self.rng)
        self.process: Process | None = None
        self.query: Query | None = None
        self.is_lost = self.is_calm = False
        self.delivered: dict[str, int] = {}
        """Number of delivered changes by topic."""
        self.starts = 0

    def run(self) -> None:
        """Run the whole history. Raises AssertionError if a check fails."""
        with self.around():
            try:
                self.world.run(self._turn, lambda: self.is_lost or self.world.turns >= self.turns, self.turns + 1)
                self.is_calm = True
                self.calm()
                if not self.is_lost:
                    self.world.run(self._calm_turn, self.is_delivered, MOST_TURNS)
            finally:
                self.end()
        assert self.is_delivered()

    def counts(self) -> Counts:
        return self.starts, self.checkpoint.commits, self.is_lost, sum(self.delivered.values())

    def _turn(self) -> None:
        self.act()
        self._keep_running()

    def _calm_turn(self) -> None:
        self.calm_act()
        self._keep_running()

    def _keep_running(self) -> None:
        """Check a query that has ended, and start one if none runs."""
        process, query = self.process, self.query
        if process is not None and process.failure is not None:
            failure = process.failure
            self.end()
            if isinstance(failure, PositionLost):
                self.check_lost(failure)
                self.is_lost = True
                return
            if not self.is_expected(failure):
                raise failure
        elif query is not None and query.is_over:
            self.check_present()
            self.end()
        if self.process is None:
            self._begin()

    def _begin(self) -> None:
        self.starts += 1
        process = self.process = Process(self.world)
        planner = self.planner(process)
        limits = self.rng.choice(self.limits)
        self.query = Query(
            self.checkpoint,
            planner,
            self.meaning(),
            process,
            self.check,
            lambda: (None, 1 << 30) if self.is_calm else limits,
            lambda: self.persistence > 0 and self.rng.random() < self.persistence,
            self._planned,
            available_now=self.rng.random() < self.available,
        )
        self.note_present()
        process.start(self.query.run, "query")

    def _planned(self) -> None:
        if self.interruption > 0 and not self.is_calm and self.rng.random() < self.interruption:
            self.end()

    def end(self) -> None:
        """Kill the query, if one runs."""
        if self.process is not None:
            self.process.kill()
            self.ended(self.process)
        self.process = self.query = None

    # --- implemented by subclasses ---

    def is_expected(self, failure: BaseException) -> bool:
        """Return True if a query may end with this failure."""
        return isinstance(failure, self.expected)

    def around(self) -> AbstractContextManager[object]:
        """Return a context in which the history runs."""
        return nullcontext()

    def ended(self, process: Process) -> None:
        """Called after a process was killed."""
        return

    @abstractmethod
    def planner(self, process: Process) -> Planner:
        """Return the planner of a query that starts."""

    @abstractmethod
    def meaning(self) -> Meaning: ...

    @abstractmethod
    def act(self) -> None:
        """Act in the database between two steps."""

    @abstractmethod
    def calm(self) -> None:
        """Called once: from here on there are no faults, and nobody writes."""

    @abstractmethod
    def calm_act(self) -> None:
        """Act between two steps after `calm`."""

    @abstractmethod
    def note_present(self) -> None:
        """Note the changes committed when a query starts: with AvailableNow it must deliver them."""

    @abstractmethod
    def check(self, batch: int) -> None:
        """Check a committed batch: its changes follow those delivered before."""

    @abstractmethod
    def check_present(self) -> None:
        """Check an AvailableNow query that has ended by itself: it has delivered all changes of `note_present`."""

    @abstractmethod
    def check_lost(self, failure: PositionLost) -> None:
        """Check that the position is lost, after a query has ended with that error."""

    @abstractmethod
    def is_delivered(self) -> bool:
        """Return True if every change is delivered."""


@dataclass
class Totals:
    """Sums over histories: starts of the query, batches, lost positions, changes delivered."""

    histories: int = 0
    starts: int = 0
    batches: int = 0
    lost: int = 0
    changes: int = 0

    def add(self, one: Counts) -> None:
        self.histories += 1
        starts, batches, is_lost, changes = one
        self.starts += starts
        self.batches += batches
        self.lost += is_lost
        self.changes += changes


class Told(Protocol):
    """A history with its counts."""

    def run(self) -> None: ...

    def counts(self) -> Counts: ...


def run(kind: Callable[[int], Told], seeds: Iterable[int], again: str = "") -> Totals:
    """Run histories. An error gets a note with the seed, and with the command `again` that runs the seed again."""
    totals = Totals()
    for seed in seeds:
        with noting(f"the history of seed {seed}" + (again and f"; to run it again: {again.format(seed=seed)}")):
            one = kind(seed)
            one.run()
        totals.add(one.counts())
    return totals
