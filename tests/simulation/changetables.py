"""Histories of a query over change tables: a database in memory, a simulated Spark, and random faults, from a seed.

Checked: no change is lost or out of order, however calls fail and processes die; and with the rows that snapshots and
windows read, the events lead to the rows of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.log.sessions import close_idle
from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.changetables.planner import ChangeTablesPlanner
from tailrace.connectors.changetables.snapshot import initial
from tailrace.errors import ConnectionFailed, PositionLost
from tailrace.events import record_assembly
from tailrace.process.runtime import Threads
from tests.simulation.course import Counts, configured
from tests.simulation.mutants import replaced
from tests.simulation.world import Killed, Stuck
from tests.unit.changetables.driving import FORM, Event, Query, shown
from tests.unit.changetables.memory import SERVERS, MemoryDialect, MemorySession, Row, Server

STEPS = 25
MOST_STEPS = 400
BUSY = 400
"""Number of transactions after which further ones are rare."""
MOST_LOST = 300
"""The most connections that are lost in one history."""
CAPTURED = ("dbo.a", "dbo.b")
Logged = tuple[int, str, Row | None, Row | None]
"""A change of a table: commit, op, before, after."""


class Clock(Threads):
    """A clock that advances a little at each look, and jumps ahead when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.02
        return self.now

    def time_ns(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class TablesHistory:
    """A history, drawn from its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.server = Server("simulated", pairs=rng.random() < 0.3, eager=False, fetch=rng.choice([1, 3, 50]))
        HISTORIES[self.server.name] = self
        self.log: dict[str, list[Logged]] = {name: [] for name in CAPTURED}
        self.number = self.replicas = self.lost = 0
        for name in CAPTURED:
            self.server.table(name, ("id", "v"), ("id",))
        self.server.table("dbo.left", ("id", "v"), ("id",), captured=False)
        self.server.table("dbo.signals", ("id", "type", "data"), ("id",))
        self.kill = rng.choice([0.0, 0.003, 0.02])
        self.error = rng.choice([0.0, 0.01, 0.05])
        self.acts = rng.choice([0.0, 0.1, 0.4])
        self.is_calm = self.has_cleaned_ahead = self.has_been_behind = self.is_lost = False
        self.delivered: dict[str, list[Logged]] = {name: [] for name in CAPTURED}
        self.state: dict[str, dict[Row, Row]] = {name: {} for name in CAPTURED}
        self.begins: int | None = None
        self.starts = self.batches = 0
        self.is_acting = False
        self.clock = Clock()
        for _ in range(rng.randint(0, 8)):
            self.commit()
        self.snapshot = rng.choice(["initial", "no_data"])
        self.query = TablesQuery(self, rng)

    # --- the database ---

    def act(self) -> None:
        """Do something random in the database."""
        rng, server = self.rng, self.server
        what = rng.random()
        if what < 0.55:
            self.commit()
        elif what < 0.7:
            # transactions without captured changes
            for _ in range(rng.choice([1, 5])):
                self.number += 1
                server.commit(("dbo.left", "c", None, (f"{self.number:06}", "x")))
        elif what < 0.9:
            self.capture()
        elif what < 0.93:
            server.behind, self.has_been_behind = 1, True
            self.replicas += 1
        elif what < 0.95 and self.begins is not None:
            self.signal()
        else:
            self.clean()

    def commit(self) -> None:
        rng, server = self.rng, self.server
        work: list[tuple[str, str, Row | None, Row | None]] = []
        used: set[tuple[str, Row]] = set()
        for _ in range(rng.choice([1, 1, 2, 6])):
            name = rng.choice(CAPTURED)
            if any(one[:2] == (name, "d") for one in work):
                # if updates are pairs of rows, an insert after a delete would be taken for an update
                continue
            self.number += 1
            old = [row for row in server.tables[name].rows.values() if (name, row) not in used]
            kind = rng.random()
            new = (f"{self.number:06}", f"v{self.number}")
            if kind < 0.4 or not old:
                work.append((name, "c", None, new))
                used.add((name, new))
                continue
            row = rng.choice(old)
            used.add((name, row))
            if kind < 0.7:
                changed = (row[0], f"v{self.number}")
                work.append((name, "u", row, changed))
                used.add((name, changed))
            elif kind < 0.8:
                work.append((name, "u", row, new))
                used.add((name, new))
            else:
                work.append((name, "d", row, None))
        server.commit(*work)

    def capture(self) -> None:
        for commit, entries in self.server.pending:
            self._write_down(commit, entries)
        self.server.capture()

    def _write_down(self, commit: int, entries: list[tuple[str, int, Row]]) -> None:
        """Add the expected events of a transaction to `log`."""
        place = 0
        while place < len(entries):
            name, operation, row = entries[place]
            follows = entries[place + 1] if place + 1 < len(entries) else None
            is_pair = operation in (1, 3) and follows is not None and follows[0] == name and follows[1] == operation + 1
            place += 1
            if name not in self.log:
                continue
            if is_pair and follows is not None and (operation == 3 or self.server.pairs):
                self.log[name].append((commit, "u", row, follows[2]))
                place += 1
            else:
                self.log[name].append((commit, "d", row, None) if operation == 1 else (commit, "c", None, row))

    def signal(self) -> None:
        self.number += 1
        kind = self.rng.choice(["execute-snapshot", "execute-snapshot", "stop-snapshot", "pause-snapshot"])
        data = {"data-collections": [f"db.{self.rng.choice(CAPTURED)}"], "type": "incremental"}
        self.server.commit(("dbo.signals", "c", None, (f"s{self.number}", kind, json.dumps(data))))
        if kind == "pause-snapshot":
            self.number += 1
            self.server.commit(("dbo.signals", "c", None, (f"s{self.number}", "resume-snapshot", "{}")))

    def clean(self) -> None:
        """Delete old changes: mostly committed ones, rarely more."""
        if self.query.committed is None:
            return
        position = TablesOffset.from_json(self.query.committed).databases["db"].position
        upto = int.from_bytes(position, "big") + 1
        if self.rng.random() < 0.03:
            self.has_cleaned_ahead = True
            upto += self.rng.randint(1, 5)
        self.server.clean(min(upto, self.server.last))

    def step(self, session: MemorySession, name: str) -> None:
        """Called at each request of a session: others act, and faults happen."""
        rng = self.rng
        if self.is_acting:
            return
        if self.is_calm:
            # capture goes on, also while a window waits for its watermarks
            self.capture()
            return
        # rarely in a busy history: a waiting call may ask thousands of times
        if rng.random() < (self.acts if self.server.last < BUSY else self.acts / 20):
            self.is_acting = True
            self.act()
            self.is_acting = False
        if rng.random() < self.kill:
            raise Killed
        # at most MOST_LOST: a query that retries for ever may wait for changes that nobody captures meanwhile
        if self.lost < MOST_LOST and rng.random() < self.error:
            self.lost += 1
            session.lose(name)

    # --- the history ---

    def run(self) -> None:
        with simulated(), self._forgotten():
            for _ in range(STEPS):
                self.act()
                self._go_on()
                if self.is_lost:
                    return
            self._calm()

    @contextmanager
    def _forgotten(self) -> Iterator[None]:
        """Forget the server at the end: there may be a million histories."""
        try:
            yield
        finally:
            del HISTORIES[self.server.name], SERVERS[self.server.name]

    def counts(self) -> Counts:
        return self.starts, self.batches, self.is_lost, sum(map(len, self.delivered.values()))

    def _calm(self) -> None:
        """Run without faults until all changes have arrived, and check them."""
        self.is_calm, self.server.behind = True, 0
        # batches of any size: cut batches are tested before, with faults
        self.query.is_ending, self.query.max_rows = False, None
        self.capture()
        # a batch may have only one transaction
        for _ in range(MOST_STEPS + self.server.last):
            # windows write watermarks
            self.capture()
            if not self._go_on() and not self.is_lost and self._is_idle():
                break
            if self.is_lost:
                return
        else:
            raise Stuck("a query does not come to its end")
        for name in CAPTURED:
            assert self.delivered[name] == self._expected(name), f"{name}: changes are missing"
            if self.snapshot == "initial":
                assert self.state[name] == self.server.tables[name].rows, f"{name}: the events lead to other rows"

    def _is_idle(self) -> bool:
        return all(self.delivered[name] == self._expected(name) for name in CAPTURED) and not self.server.pending

    def _expected(self, name: str) -> list[Logged]:
        return [one for one in self.log[name] if self.begins is not None and one[0] > self.begins]

    def _go_on(self) -> bool:
        """Run a batch of the query, or start it again if it has ended; return False if nothing was new."""
        try:
            return self.query.batch_done()
        except Killed:
            pass
        except PositionLost as error:
            if self.has_been_behind and "before the one that was read" in error.message:
                # when a query starts, a replica that lags cannot be told from a restored server
                self.query.begin()
                return True
            if not self.has_cleaned_ahead:
                raise AssertionError("the position is not lost") from error
            self.is_lost = True
            return False
        except ConnectionFailed:
            pass
        self.query.begin()
        return True

    def commit_batch(self, events: list[Event], offset: dict[str, Any]) -> None:
        """Check a batch that Spark has committed."""
        if self.begins is None:
            self.begins = int.from_bytes(TablesOffset.from_json(offset).databases["db"].position, "big")
        self.batches += 1
        for event in events:
            if event.table not in self.log:
                continue
            rows = self.state[event.table]
            if event.op != "r":
                change = (event.commit, event.op, event.before, event.after)
                place = len(self.delivered[event.table])
                wanted = self._expected(event.table)[place : place + 1]
                assert [change] == wanted, f"{event.table}: {change} where {wanted} comes next"
                self.delivered[event.table].append(change)
            if event.before is not None:
                rows.pop((event.before[0],), None)
            if event.after is not None:
                rows[(event.after[0],)] = event.after

    def check_present(self, present: int) -> None:
        """Check an ended AvailableNow query: all changes captured before its start are delivered."""
        for name in CAPTURED:
            left = [one for one in self._expected(name)[len(self.delivered[name]) :] if one[0] <= present]
            assert not left, f"{name}: an AvailableNow query leaves out {left}"


class TablesQuery(Query):
    """The simulated Spark: `committed` and `planned` are its logs, and outlive each run."""

    def __init__(self, history: TablesHistory, rng: Random) -> None:
        self.history, self.rng = history, rng
        options = {
            "snapshot__mode": history.snapshot,
            "signal__data__collection": "db.dbo.signals",
            "incremental__snapshot__chunk__size": rng.choice(["2", "5", "100"]),
            "incremental__snapshot__window__chunks": rng.choice(["1", "2"]),
            "incremental__snapshot__watermarking__strategy": rng.choice(["insert_insert", "insert_delete"]),
            "retriable__restart__connector__wait__ms": "0",
            "errors__max__retries": rng.choice(["-1", "0", "2"]),
            "max__iteration__transactions": rng.choice(["1", "2", "500"]),
        }
        self.committed: dict[str, Any] | None = None
        self.planned: dict[str, Any] | None = None
        self.kept: list[Event] | None = None
        super().__init__(history.server, **options)
        self.begin()

    def fresh(self) -> ChangeTablesPlanner:
        config, settings = configured("sqlserver", self.options)
        return ChangeTablesPlanner(config, settings, SimulatedDialect(self.server.name), FORM, self.history.clock)

    def begin(self) -> None:
        """Start a new run of the query."""
        close_idle()
        self.history.starts += 1
        self.planner = self.fresh()
        self.is_ending = self.rng.random() < 0.25
        self.present: int | None = None
        self.max_rows = self.rng.choice([None, 1, 3, 20])

    def batch_done(self) -> bool:
        """Plan, read and commit a batch; return False if nothing is new."""
        if self.is_ending and self.present is None:
            captured = max(commit for commit, _ in self.server.commits)
            behind, self.server.behind = self.history.replicas, 0
            self.planner.stop_at_present()
            # a lagging replica has a present of its own
            self.present = captured if self.history.replicas == behind else 0
        first = json.loads(json.dumps(self.planner.initial_offset()))
        self.start = self.committed if self.committed is not None else first
        if self.planned is None:
            end = json.loads(json.dumps(self.planner.latest_offset(self.start, self.max_rows, None)))
            if end == self.start:
                if self.present is not None:
                    self.history.check_present(self.present)
                    self.begin()
                return False
            self.planned, self.kept = end, None
            self._may_die()
        events = self.read(self.planned)
        log = [event for event in events if event.op != "r"]
        # snapshot rows may differ when read again
        assert self.kept is None or self.kept == log, "a batch that is read again is another one"
        self.kept = log
        self._may_die()
        self.committed, self.planned = self.planned, None
        self.history.commit_batch(events, self.committed)
        return True

    def _may_die(self) -> None:
        if not self.history.is_calm and self.rng.random() < self.history.kill:
            raise Killed


HISTORIES: dict[str, TablesHistory] = {}


@dataclass(frozen=True)
class SimulatedDialect(MemoryDialect):
    def connect(self, database: str) -> MemorySession:
        session = SimulatedSession(SERVERS[self.server])
        session.called("connect")
        return session


class SimulatedSession(MemorySession):
    def called(self, name: str, *, writes: bool = False) -> None:
        super().called(name, writes=writes)
        HISTORIES[self.server.name].step(self, name)

    def written(self, name: str) -> None:
        HISTORIES[self.server.name].step(self, name)


@contextmanager
def simulated() -> Iterator[None]:
    """Patch tasks to return plain events, and chunks to be small."""
    with ExitStack() as stack:
        stack.enter_context(replaced(loading, "form", lambda connector: FORM))
        stack.enter_context(replaced(record_assembly, "to_rows", lambda batch, settings, form: shown(batch)))
        stack.enter_context(replaced(initial, "CHUNK_ROWS", 2))
        yield
        close_idle()
