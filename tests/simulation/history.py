"""A history: a server that works, a query that runs and whatever goes wrong, by a seed; and what must hold.

Nothing is lost, what is delivered has the order of the log, a batch is the same however often it is read, and the slot
is never told to forget what Spark has not committed. The position is lost only where the server's log has gone back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.config import parse
from tailrace.connectors.postgres import spool
from tailrace.connectors.postgres.endings import SlotInUse
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.reading import Outside
from tailrace.connectors.postgres.spill import Place, Spill, spool_failed
from tailrace.errors import ConnectionFailed, PositionLost, SpoolFailed
from tailrace.events.settings import EventSettings
from tests.simulation.log import BEGIN_LSN, CAPTURED, Reading, Transaction
from tests.simulation.server import SLOT, Odds, Server, sessions
from tests.simulation.spark import Batch, Checkpoint, Query, Row
from tests.simulation.world import Process, World, noting

Limits = Callable[[], tuple[int | None, int | None]]
TURNS = 150
"""How many steps things go wrong for."""
EXPECTED = (ConnectionFailed, SpoolFailed, SlotInUse)
"""What a query may end with, to be started again."""
MOST_TURNS = 20_000
"""How many steps it takes at most to deliver the rest."""


@dataclass
class Faults:
    """What a history goes through, each as a probability."""

    kill: float
    crash: float
    promotion: float
    disk: float
    error: float
    catalog: float

    @classmethod
    def drawn(cls, rng: Random) -> Faults:
        return cls(
            kill=rng.choice([0.0, 0.004, 0.02]),
            crash=rng.choice([0.0, 0.0, 0.005]),
            promotion=rng.choice([0.0, 0.0, 0.0, 0.003]),
            disk=rng.choice([0.0, 0.0, 0.2, 0.6]),
            error=rng.choice([0.0, 0.002, 0.02]),
            catalog=rng.choice([0.0, 0.0, 0.5]),
        )


@dataclass
class Totals:
    """What histories have gone through: starts of the query, batches, lost positions, changes delivered."""

    histories: int = 0
    starts: int = 0
    batches: int = 0
    lost: int = 0
    changes: int = 0

    def add(self, one: History) -> None:
        self.histories += 1
        self.starts += one.starts
        self.batches += one.checkpoint.commits
        self.lost += one.is_lost
        self.changes += sum(one.delivered.values())


class History:
    """One history from its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.faults = Faults.drawn(rng)
        self.checkpoint = Checkpoint(BEGIN_LSN)
        odds = Odds(
            fails=self.faults.error,
            catalog=self.faults.catalog,
            act=rng.choice([0.2, 0.5, 0.9]),
            flush=rng.choice([0.1, 0.6, 1.0]),
            unseen=rng.choice([0.0, 0.0, 0.5]),
            jump=rng.choice([0.0, 0.03]),
        )
        self.server = self._server(odds)
        self.world = World(rng)
        self.config = parse("postgres", self._options())
        self.settings = EventSettings.from_options(self.config, "run")
        self.process: Process | None = None
        self.query: Query | None = None
        # how probable it is at each step that commits are seen by all
        self.seen = 0.1
        self.is_lost = self.is_calm = False
        # what the log held before each promotion; whether something was delivered that the new server does not have
        self.pasts: list[dict[str, list[Row]]] = []
        self.has_diverged = False
        self.delivered: dict[str, int] = {}
        self.starts = 0
        self._known: tuple[int, int, Reading, dict[str, list[Row]]] = -1, 0, Reading(), {}

    def _server(self, odds: Odds) -> Server:
        return Server(self.rng, odds, lambda: self.checkpoint.forgettable)

    def _options(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "database.hostname": "h", "database.user": "u", "database.password": "p", "database.dbname": "d",
            "topic.prefix": "s", "slot.name": SLOT, "publication.name": "all", "snapshot.mode": "no_data",
            "table.include.list": ",".join(f"public.{name}" for name in CAPTURED.values()),
            "poll.interval.ms": "100", "errors.max.retries": rng.choice(["-1", "-1", "3"]),
            "slot.max.retries": rng.choice(["6", "1"]),
            "status.update.interval.ms": rng.choice(["10000", "500", "100"]),
        }  # fmt: skip
        if rng.random() < 0.5:
            found["max.queue.size.in.bytes"] = str(rng.choice([1, 300, 3000]))
        return found

    # --- what goes on ---

    def run(self) -> None:
        """All of it. Raises AssertionError where something does not hold."""
        with _Disk(self.rng, self.faults):
            try:
                self.world.run(self._turn, lambda: self.is_lost or self.world.turns >= TURNS, TURNS + 1)
                self._calm()
                if not self.is_lost:
                    self.world.run(self._calm_turn, self._is_delivered, MOST_TURNS)
            finally:
                self._end()
        assert self._is_delivered()

    def _turn(self) -> None:
        rng, server, faults = self.rng, self.server, self.faults
        if rng.random() < server.odds.act:
            server.act()
        if rng.random() < 0.05:
            server.flush()
        if rng.random() < 0.1:
            server.notice()
        if rng.random() < 0.02:
            server.checkpoint()
        if rng.random() < self.seen:
            server.unseen.clear()
        if rng.random() < faults.crash:
            server.crash()
        if rng.random() < faults.promotion:
            self.pasts.append(defaultdict(list, {topic: list(rows) for topic, rows in self._expected().items()}))
            server.promote()
        if rng.random() < faults.kill:
            self._end()
        self._keep_running()

    def _calm(self) -> None:
        """From here on nothing goes wrong any more, and nobody writes."""
        self.is_calm = True
        self.faults.disk = self.server.odds.fails = self.server.odds.catalog = 0.0
        self.server.finish()

    def _calm_turn(self) -> None:
        self.server.flush()
        self.server.notice()
        self._keep_running()

    def _keep_running(self) -> None:
        """Have a query run: start one, or see how it has ended."""
        process, query = self.process, self.query
        assert not self.server.broken, self.server.broken[0]
        if process is not None and process.failure is not None:
            failure = process.failure
            self._end()
            if isinstance(failure, PositionLost):
                self._check_lost(failure)
                self.is_lost = True
                return
            if not self._is_expected(failure):
                raise failure
        elif query is not None and query.is_over:
            self._check_present()
            self._end()
        if self.process is None:
            self._begin()

    def _is_expected(self, failure: BaseException) -> bool:
        """Whether a query may end with it."""
        return isinstance(failure, EXPECTED)

    def _begin(self) -> None:
        self.starts += 1
        process = self.process = Process(self.world)
        rng = self.rng
        connect, arrow = sessions(self.server, process)
        planner = PostgresPlanner(self.config, self.settings, Outside(connect, arrow, process))
        limits = rng.choice([(None, 1 << 30), (3, 1 << 30), (None, 200), (1, 1 << 30)])
        self.query = self._query(
            planner, process, lambda: (None, 1 << 30) if self.is_calm else limits, rng.random() < 0.2
        )
        # what others see committed when an AvailableNow query begins
        self.present = self.server.end
        process.start(self.query.run, "query")

    def _query(self, planner: PostgresPlanner, process: Process, limits: Limits, available_now: bool) -> Query:
        return Query(self.checkpoint, planner, process, self._check, limits, available_now)

    def _end(self) -> None:
        """Kill the query, if one runs."""
        if self.process is not None:
            self.process.kill()
            for session in self.server.sessions:
                if session.process is self.process:
                    session.is_gone = True
        self.process = self.query = None

    # --- what must hold ---

    def _expected(self) -> dict[str, list[Row]]:
        """What each topic gets of the log as it is now."""
        server, (cuts, records, reading, found) = self.server, self._known
        if cuts != server.cuts:
            records, reading, found = 0, Reading(), defaultdict(list)
        for one in reading.transactions(server.records[records:]):
            for topic, row in self._rows(one):
                found[topic].append(row)
        self._known = server.cuts, len(server.records), reading, found
        return found

    def _rows(self, one: Transaction) -> Iterator[tuple[str, Row]]:
        """What the topics get of a transaction."""
        for ordinal, (_, change, _) in enumerate(one.changes):
            row = (change.kind, 0 if change.kind == "T" else change.number, one.commit_lsn, ordinal)
            if change.kind == "L":
                yield "messages", row
            for oid in change.tables:
                if oid in CAPTURED:
                    yield CAPTURED[oid], row

    def _check(self, batch: int) -> None:
        """A batch has been committed: what it holds follows what was delivered before."""
        expected = self._expected()
        for topic, rows in self._logged(self.checkpoint.sink[batch]).items():
            first = self.delivered.get(topic, 0)
            self.delivered[topic] = first + len(rows)
            wanted, *older = (log[topic][first : first + len(rows)] for log in (expected, *self.pasts))
            if rows != wanted and rows in older:
                # it had been read before the promotion
                self.has_diverged = True
            assert self.has_diverged or rows == wanted, f"{topic}: {rows} where {wanted} come next"
        if self.has_diverged:
            return
        for topic, rows in expected.items():
            for row in rows[self.delivered.get(topic, 0) :][:1]:
                assert self.checkpoint.forgettable <= row[2], f"{topic}: {row} is still to come, and may be forgotten"

    def _logged(self, batch: Batch) -> Batch:
        """What of a batch is of the log."""
        return batch

    def _is_delivered(self) -> bool:
        if self.is_lost or self.has_diverged:
            return self.is_lost
        return all(self.delivered.get(topic, 0) == len(rows) for topic, rows in self._expected().items())

    def _check_present(self) -> None:
        """An AvailableNow query has ended by itself: it has delivered what was committed when it began."""
        for topic, rows in () if self.has_diverged else self._expected().items():
            left = [row for row in rows[self.delivered.get(topic, 0) :] if row[2] < self.present]
            assert not left, f"{topic}: an AvailableNow query leaves out {left}"

    def _check_lost(self, failure: PositionLost) -> None:
        gone = any(self.server.told > lsn for _, lsn in self.server.branches)
        assert gone, f"the position is not lost: {failure}"


class _Disk:
    """The disk that spools spill to; it takes nothing now and then."""

    def __init__(self, rng: Random, faults: Faults) -> None:
        class Failing(Spill):
            def append(self, data: Any) -> Place:
                if rng.random() < faults.disk:
                    raise spool_failed(OSError(28, "No space left on device"))
                return super().append(data)

        self._kind = Failing

    def __enter__(self) -> None:
        setattr(spool, "Spill", self._kind)  # noqa: B010  (no name that the module gives away)

    def __exit__(self, *_: object) -> None:
        setattr(spool, "Spill", Spill)  # noqa: B010


def run(seeds: Iterable[int], kind: Callable[[int], History] = History) -> Totals:
    """Run the histories. What fails has its seed in a note."""
    totals = Totals()
    for seed in seeds:
        with noting(seed):
            one = kind(seed)
            one.run()
        totals.add(one)
    return totals
