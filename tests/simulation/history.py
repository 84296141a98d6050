"""History: a simulated PostgreSQL, a query and random faults, from a seed, with checks.

Checked: no change is lost, changes are delivered in log order, a batch is the same however often it is read, and no
position is acknowledged before Spark has committed it. The position is lost only if the server's log has gone back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.log import slices
from tailrace.connectors.postgres.log.endings import SlotInUse
from tailrace.connectors.postgres.log.messages import MessageTask
from tailrace.connectors.postgres.log.reading import Environment
from tailrace.connectors.postgres.planner import PostgresPlanner
from tailrace.connectors.postgres.protocol import pgoutput
from tailrace.connectors.postgres.protocol.position import LogPosition
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address
from tailrace.errors import ConnectionFailed, PositionLost, SpoolFailed
from tailrace.log.contracts import Offset
from tailrace.log.rows import partitioning
from tailrace.log.rows.segment import MixedSegment, Segment
from tailrace.log.rows.tasks import LogTask
from tests.simulation.course import Course, configured
from tests.simulation.disk import Disk
from tests.simulation.log import BEGIN_LSN, CAPTURED, Reading, Transaction
from tests.simulation.mutants import replaced
from tests.simulation.server import SLOT, Odds, Server, sessions
from tests.simulation.spark import Batch, Checkpoint, Row
from tests.simulation.world import Process


@dataclass
class Faults:
    """The faults of a history, as probabilities."""

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
class SlotCheckpoint(Checkpoint):
    """A checkpoint with `forgettable`: the LSN up to which the server may forget its log."""

    forgettable: int = BEGIN_LSN

    def commit(self) -> None:
        super().commit()
        self.forgettable = int(LogPosition.from_json(json.loads(self.offsets[-1])["log"]).safe_lsn)


class Segments:
    """Interprets the planner's offsets and tasks. A row is a change's kind and number, the LSN of its commit, and its
    ordinal."""

    def check(self, start: Offset, end: Offset) -> None:
        before, after = LogPosition.from_json(start["log"]), LogPosition.from_json(end["log"])
        assert not after.is_before(before), "a planned position goes back"
        assert after.safe_lsn >= before.safe_lsn, "what may be forgotten goes back"

    def rows(self, tasks: Sequence[Any]) -> Batch:
        found: Batch = {}
        for task in tasks:
            if isinstance(task, LogTask):
                for part in _parts(task):
                    for topic, rows in self._by_topic(part).items():
                        assert topic not in found, "two tasks have changes of a topic"
                        found[topic] = rows
            elif isinstance(task, MessageTask):
                found["messages"] = [_message(task.segment, number) for number in range(len(task.segment))]
            else:
                raise AssertionError(f"an unknown task: {task}")
        return found

    def again(self, kept: Batch, rows: Batch) -> Batch:
        assert kept == rows, f"a batch that is read again is another one: {kept}, and then {rows}"
        return rows

    def row(self, message: Any, table: TableSchema, commit_lsn: int, ordinal: int) -> Row:
        """Return the row of a change of the table."""
        if isinstance(message, pgoutput.Truncate):
            return "T", 0, commit_lsn, ordinal
        assert isinstance(message, pgoutput.Insert | pgoutput.Update | pgoutput.Delete)
        values: Any = message.old if isinstance(message, pgoutput.Delete) else message.new
        return type(message).__name__[0], int(bytes(values[0])), commit_lsn, ordinal

    def _by_topic(self, part: Sequence[Segment[Any, Any] | MixedSegment[Any, Any]]) -> Batch:
        """Return the rows of each topic, in log order."""
        topics: dict[str, list[tuple[int, Row]]] = {}
        for segment in part:
            for number in range(len(segment)):
                if isinstance(segment, Segment):
                    table = segment.table
                    place = number if segment.place is None else int(segment.place[number])
                else:
                    table, place = segment.tables[segment.table[number]], number
                row = self.row(_parsed(segment, number), table, *_position(segment, number))
                topics.setdefault(table.id.table, []).append((place, row))
        for topic, rows in topics.items():
            assert len({place for place, _ in rows}) == len(rows), f"{topic}: two changes have one place"
        return {topic: [row for _, row in sorted(rows, key=lambda entry: entry[0])] for topic, rows in topics.items()}


def _parts(task: LogTask) -> Iterator[Sequence[Segment[Any, Any] | MixedSegment[Any, Any]]]:
    """Yield all segments of single tables together, as several may share a topic; then each mixed segment."""
    yield [segment for segment in task.segments if isinstance(segment, Segment)]
    for segment in task.segments:
        if isinstance(segment, MixedSegment):
            yield [segment]


def _parsed(segment: Segment[Any, Any] | MixedSegment[Any, Any], number: int) -> Any:
    return pgoutput.parse(segment.data[segment.offsets[number] : segment.offsets[number + 1]].tobytes())


def _position(segment: Segment[Any, Any] | MixedSegment[Any, Any], number: int) -> tuple[int, int]:
    """Return the LSN of the commit, and the ordinal."""
    return int(segment.transactions.commit_lsn[segment.by_row.transaction[number]]), int(segment.by_row.ordinal[number])


def _message(segment: Segment[Any, Any], number: int) -> Row:
    message = _parsed(segment, number)
    assert isinstance(message, pgoutput.Message)
    return ("L", int(message.content), *_position(segment, number))


class History(Course[SlotCheckpoint]):
    """A history, drawn from its seed."""

    expected = (ConnectionFailed, SpoolFailed, SlotInUse)

    def __init__(self, seed: int) -> None:
        super().__init__(seed, SlotCheckpoint())
        # if true, changes of small tables share segments, however few these tables are
        self.is_mixed = bool(seed % 2)
        # if true, slices are made in two halves, however small they are
        self.is_halved = bool(seed // 2 % 2)
        rng = self.rng
        self.faults = Faults.drawn(rng)
        odds = Odds(
            fails=self.faults.error,
            catalog=self.faults.catalog,
            act=rng.choice([0.2, 0.5, 0.9]),
            flush=rng.choice([0.1, 0.6, 1.0]),
            unseen=rng.choice([0.0, 0.0, 0.5]),
            jump=rng.choice([0.0, 0.03]),
        )
        self.server = self._server(odds)
        self.config, self.settings = configured("postgres", self._options())
        # probability, at each step, that all commits become visible
        self.seen = 0.1
        # the log before each promotion; true once a change was delivered that the new server lacks
        self.pasts: list[dict[str, list[Row]]] = []
        self.has_diverged = False
        # the end of the log when the query started, for AvailableNow
        self.present = 0
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

    # --- actions ---

    @contextmanager
    def around(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(Disk(self.rng, lambda: self.faults.disk))
            if self.is_mixed:
                stack.enter_context(replaced(partitioning, "MIXED_TABLES", 1))
            if self.is_halved:
                stack.enter_context(replaced(slices, "HALVES_ABOVE", 0))
            yield

    def act(self) -> None:
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
            self.promote()
        # after the log has lost its end, records written there are newer than the query's start
        self.present = min(self.present, server.end)
        if rng.random() < faults.kill:
            self.end()
        assert not server.broken, server.broken[0]

    def promote(self) -> None:
        """Let a standby take over."""
        self.pasts.append(defaultdict(list, {topic: list(rows) for topic, rows in self._expected().items()}))
        self.server.promote()

    def calm(self) -> None:
        self.faults.disk = self.server.odds.fails = self.server.odds.catalog = 0.0
        self.server.finish()

    def calm_act(self) -> None:
        self.server.flush()
        self.server.notice()
        assert not self.server.broken, self.server.broken[0]

    def planner(self, process: Process) -> PostgresPlanner:
        return PostgresPlanner(self.config, self.settings, Environment(*self.sessions(process), process))

    def sessions(self, process: Process) -> tuple[Callable[..., Any], Callable[[Address], ArrowConnection]]:
        """Return the functions that open the process's sessions with the server."""
        return sessions(self.server, process)

    def meaning(self) -> Segments:
        return Segments()

    def note_present(self) -> None:
        # up to here, others see all commits
        self.present = self.server.end

    def ended(self, process: Process) -> None:
        for session in self.server.sessions:
            if session.process is process:
                session.is_gone = True

    # --- checks ---

    def _expected(self) -> dict[str, list[Row]]:
        """Return the rows that each topic must get from the current log."""
        server, (cuts, records, reading, found) = self.server, self._known
        if cuts != server.cuts:
            records, reading, found = 0, Reading(), defaultdict(list)
        for one in reading.transactions(server.records[records:]):
            for topic, row in self._rows(one):
                found[topic].append(row)
        self._known = server.cuts, len(server.records), reading, found
        return found

    def _rows(self, one: Transaction) -> Iterator[tuple[str, Row]]:
        """Yield topic and row of each change of a transaction."""
        for ordinal, (_, change, _) in enumerate(one.changes):
            row = (change.kind, 0 if change.kind == "T" else change.number, one.commit_lsn, ordinal)
            if change.kind == "L":
                yield "messages", row
            for oid in change.tables:
                if oid in CAPTURED:
                    yield CAPTURED[oid], row

    def _logged(self, batch: Batch) -> Batch:
        """Return the part of a batch that was read from the log."""
        return batch

    def check(self, batch: int) -> None:
        expected = self._expected()
        for topic, rows in self._logged(self.checkpoint.sink[batch]).items():
            first = self.delivered.get(topic, 0)
            self.delivered[topic] = first + len(rows)
            wanted, *older = (log[topic][first : first + len(rows)] for log in (expected, *self.pasts))
            if rows != wanted and rows in older:
                # it was read before the promotion
                self.has_diverged = True
            assert self.has_diverged or rows == wanted, f"{topic}: {rows} where {wanted} come next"
        # also diverged if only a position, and no change, lies in the part that a promotion has cut off
        self.has_diverged = self.has_diverged or self._is_cut_off()
        if self.has_diverged:
            return
        for topic, rows in expected.items():
            for row in rows[self.delivered.get(topic, 0) :][:1]:
                assert self.checkpoint.forgettable <= row[2], f"{topic}: {row} is still to come, and may be forgotten"

    def _is_cut_off(self) -> bool:
        """Return True if the committed position is on another timeline, after the point where the server's left it."""
        offset = json.loads(self.checkpoint.offsets[-1])
        timeline = offset["server"]["timeline"]
        return any(parent == timeline and self.checkpoint.forgettable > lsn for parent, lsn in self.server.branches)

    def is_delivered(self) -> bool:
        if self.is_lost or self.has_diverged:
            return self.is_lost
        return all(self.delivered.get(topic, 0) == len(rows) for topic, rows in self._expected().items())

    def check_present(self) -> None:
        for topic, rows in () if self.has_diverged else self._expected().items():
            left = [row for row in rows[self.delivered.get(topic, 0) :] if row[2] < self.present]
            assert not left, f"{topic}: an AvailableNow query leaves out {left}"

    def check_lost(self, failure: PositionLost) -> None:
        server = self.server
        gone = any(server.told > lsn for _, lsn in server.branches)
        # the point at which a timeline was left is known only in the history of its successors
        is_foreign = server.told_timelines - {server.timeline, *(timeline for timeline, _ in server.branches)}
        assert gone or is_foreign, f"the position is not lost: {failure}"
