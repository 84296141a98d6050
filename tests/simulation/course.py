"""A history: a query that runs, is started again and ends, by a seed. What it reads from, subclasses say."""

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
from tailrace.events.settings import EventSettings
from tailrace.log.planner import Planner
from tests.simulation.spark import Checkpoint, Limits, Meaning, Query
from tests.simulation.world import Process, World, noting

TURNS = 150
"""How many steps things go wrong for."""
MOST_TURNS = 20_000
"""How many steps it takes at most to deliver the rest."""

Counts = tuple[int, int, bool, int]
"""Starts of the query, batches, whether the position was lost, changes delivered."""
AnyCheckpoint = TypeVar("AnyCheckpoint", bound=Checkpoint)


def configured(connector: str, options: Mapping[str, str]) -> tuple[Config, EventSettings]:
    """What the options mean. Histories share the few configurations that they draw: nobody changes one."""
    return _configured(connector, tuple(options.items()))


@functools.cache
def _configured(connector: str, options: tuple[tuple[str, str], ...]) -> tuple[Config, EventSettings]:
    config = parse(connector, dict(options))
    return config, EventSettings.from_options(config, "00000000-0000-7000-8000-000000000000")


class Course(ABC, Generic[AnyCheckpoint]):
    """One history from its seed. What it draws from `rng`, it draws in the same order each time."""

    turns = TURNS
    expected: tuple[type[Exception], ...] = (ConnectionFailed,)
    """What a query may end with, to be started again."""
    persistence = 0.0
    """How probable it is that the same planner is asked again after a call that has failed."""
    interruption = 0.0
    """How probable it is that a query is killed between the plan of a batch and its first reading."""
    available = 0.2
    """How many of the queries run with AvailableNow."""
    limits: tuple[Limits, ...] = ((None, 1 << 30), (3, 1 << 30), (None, 200), (1, 1 << 30))

    def __init__(self, seed: int, checkpoint: AnyCheckpoint) -> None:
        self.rng = Random(seed)
        self.checkpoint = checkpoint
        self.world = World(self.rng)
        self.process: Process | None = None
        self.query: Query | None = None
        self.is_lost = self.is_calm = False
        self.delivered: dict[str, int] = {}
        """How many changes each topic has got."""
        self.starts = 0

    def run(self) -> None:
        """All of it. Raises AssertionError where something does not hold."""
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
        """Have a query run: start one, or see how it has ended."""
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

    # --- what subclasses say ---

    def is_expected(self, failure: BaseException) -> bool:
        """Whether a query may end with it."""
        return isinstance(failure, self.expected)

    def around(self) -> AbstractContextManager[object]:
        """What is in place while the history runs."""
        return nullcontext()

    def ended(self, process: Process) -> None:
        """A process is gone."""
        return

    @abstractmethod
    def planner(self, process: Process) -> Planner:
        """The planner of a query that starts."""

    @abstractmethod
    def meaning(self) -> Meaning: ...

    @abstractmethod
    def act(self) -> None:
        """What happens between two steps."""

    @abstractmethod
    def calm(self) -> None:
        """From here on nothing goes wrong any more, and nobody writes."""

    @abstractmethod
    def calm_act(self) -> None:
        """What happens between two steps then."""

    @abstractmethod
    def note_present(self) -> None:
        """A query begins: what is committed now, one with AvailableNow has to deliver."""

    @abstractmethod
    def check(self, batch: int) -> None:
        """A batch has been committed: what it holds follows what was delivered before."""

    @abstractmethod
    def check_present(self) -> None:
        """An AvailableNow query has ended by itself: it has delivered what was committed when it began."""

    @abstractmethod
    def check_lost(self, failure: PositionLost) -> None:
        """A query has ended with a lost position: is it?"""

    @abstractmethod
    def is_delivered(self) -> bool:
        """Whether everything is."""


@dataclass
class Totals:
    """What histories have gone through: starts of the query, batches, lost positions, changes delivered."""

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
    """A history, and what it has gone through."""

    def run(self) -> None: ...

    def counts(self) -> Counts: ...


def run(kind: Callable[[int], Told], seeds: Iterable[int], again: str = "") -> Totals:
    """Run the histories. What fails has its seed in a note, and the command `again` that runs the seed again."""
    totals = Totals()
    for seed in seeds:
        with noting(f"the history of seed {seed}" + (again and f"; to run it again: {again.format(seed=seed)}")):
            one = kind(seed)
            one.run()
        totals.add(one.counts())
    return totals
