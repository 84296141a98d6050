"""Histories of a query over the binary log of MySQL or MariaDB: writers, XA transactions, files that are left and
forgotten, servers that take over, and random faults.

Checked: each topic gets the committed changes in the order of the log, once; the position is lost only if the server
has forgotten needed files, or if a batch was planned on a server that is gone.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from tailrace.connectors.binlog.log import feed, indexing
from tailrace.connectors.binlog.log.gtids import MysqlGtids
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.planner import BinlogPlanner, Environment
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError, SpoolFailed
from tailrace.log import spool
from tailrace.log.contracts import Offset
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.rows.segment import Segment
from tailrace.log.rows.tasks import LogTask
from tests.simulation.course import TURNS, Course, configured
from tests.simulation.disk import Disk
from tests.simulation.mutants import replaced
from tests.simulation.mysqld import SOURCES, Odds, Server, Session
from tests.simulation.spark import Batch, Checkpoint, Row
from tests.simulation.world import Process

TRANSACTIONS = "transactions"
"""The topic of transaction markers."""


@dataclass
class Faults:
    """The faults of a history, as probabilities."""

    kill: float
    fail_over: float
    purge: float
    disk: float

    @classmethod
    def drawn(cls, rng: Random, has_ids: bool) -> Faults:
        return cls(
            kill=rng.choice([0.0, 0.01, 0.04]),
            fail_over=rng.choice([0.0, 0.0, 0.02]) if has_ids else 0.0,
            purge=rng.choice([0.0, 0.0, 0.05]),
            disk=rng.choice([0.0, 0.0, 0.2, 0.6]),
        )


class BinlogHistory(Course[Checkpoint]):
    """A history, drawn from its seed."""

    expected = (ConnectionFailed, SpoolFailed)
    persistence = 0.4
    altering = False
    """True if tables are altered between transactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Checkpoint())
        rng = self.rng
        self.is_mariadb = rng.random() < 0.4
        self.has_gtids = self.is_mariadb or rng.random() < 0.7
        self.faults = Faults.drawn(rng, self.has_gtids)
        odds = Odds(
            fails=rng.choice([0.0, 0.002, 0.02]),
            drops=rng.choice([0.0, 0.0, 0.01, 0.05]),
            act=rng.choice([0.2, 0.5, 0.9]),
            rotates=rng.choice([0.0, 0.02, 0.1]),
            prepares=rng.choice([0.0, 0.0, 0.3]),
        )
        self.interruption = rng.choice([0.0, 0.05, 0.2])
        has_names = True
        if self.altering:
            odds.alters, has_names = rng.choice([0.05, 0.2, 0.5]), rng.random() < 0.4
        self.server = self._server(odds, has_names)
        self.config, self.settings = configured("mariadb" if self.is_mariadb else "mysql", self._options())
        self.begins: int | None = None
        """The number of transactions before the query's first position."""
        self.present = 0
        self.turns = TURNS
        for _ in range(rng.choice([0, 5, 30])):
            self.server.act()
        self._limits = rng.choice([(1 << 27, 1 << 29), (1, 1 << 29), (300, 3000)])
        self._sizes = rng.choice([(8 << 20, 32 << 20, 4 << 20), (60, 0, 200), (60, 100, 1)])

    def _server(self, odds: Odds, has_names: bool) -> Server:
        return Server(
            self.rng, odds, lambda: self.world.now, is_mariadb=self.is_mariadb, has_gtids=self.has_gtids,
            has_names=has_names,
        )  # fmt: skip

    def _options(self) -> dict[str, str]:
        rng = self.rng
        found = {
            "database.hostname": "h", "database.user": "u", "database.password": "p", "topic.prefix": "s",
            "table.exclude.list": "d[.]left", "snapshot.mode": "no_data", "include.schema.changes": "false",
            "event.order.segments": rng.choice(["1", "3"]), "event.order": rng.choice(["key", "topic"]),
            "retriable.restart.connector.wait.ms": rng.choice(["200", "10000"]),
            "errors.max.retries": rng.choice(["-1", "-1", "3"]),
        }  # fmt: skip
        if rng.random() < 0.5:
            found["max.queue.size.in.bytes"] = str(rng.choice([1, 300, 3000]))
        if rng.random() < 0.3:
            found["provide.transaction.metadata"] = "true"
        return found

    def around(self) -> ExitStack:
        """Patch limits and sizes to be small."""
        stack = ExitStack()
        stack.enter_context(Disk(self.rng, lambda: self.faults.disk))
        memory, disk = self._limits
        held, prepared, run = self._sizes
        for owner, name, value in (
            (feed, "MEMORY_LIMIT", memory),
            (feed, "DISK_LIMIT", disk),
            (feed, "RUN_BYTES", run),
            (indexing, "HELD_BYTES", held),
            (indexing, "PREPARED_BYTES", prepared),
            (indexing, "Spill", spool.Spill),
        ):
            stack.enter_context(replaced(owner, name, value))
        return stack

    # --- actions ---

    def act(self) -> None:
        rng, server, faults = self.rng, self.server, self.faults
        if rng.random() < server.odds.act:
            server.act()
        if rng.random() < faults.purge:
            server.purge(rng.randint(0, len(server.files.contents)))
        if server.generation == 0 and rng.random() < faults.fail_over:
            server.fail_over()
        if rng.random() < faults.kill:
            self.end()

    def calm(self) -> None:
        odds = self.server.odds
        self.faults.disk = odds.fails = odds.drops = 0.0
        for xid in [*self.server.prepared]:
            self.server.decide(xid, is_commit=True)

    def calm_act(self) -> None:
        return

    def planner(self, process: Process) -> BinlogPlanner:
        def connect(config: Any, *, dump: bool = False, limited: bool = True) -> Any:
            process.step()
            if self.rng.random() < self.server.odds.fails:
                raise ConnectionFailed("The server cannot be reached.", "Start again.")
            return self._session(process)

        return BinlogPlanner(self.config, self.settings, Environment(connect, process))

    def _session(self, process: Process) -> Session:
        return Session(self.server, process)

    def meaning(self) -> Rows:
        return Rows()

    def note_present(self) -> None:
        self.present = len(self.server.history)

    def is_expected(self, failure: BaseException) -> bool:
        is_waiting = isinstance(failure, PrerequisiteError) and "XA transactions are prepared" in failure.message
        return is_waiting or super().is_expected(failure)

    # --- checks ---

    def _position(self) -> BinlogPosition | None:
        """Return the position that Spark has committed; before the first commit, the planned one."""
        offsets = self.checkpoint.offsets
        found = offsets[max(0, self.checkpoint.commits - 1)] if offsets else None
        return None if found is None else BinlogOffset.from_json(json.loads(found)).log

    def _expected(self, upto: int) -> dict[str, list[Row]]:
        """Return the rows that each topic must get from the first `upto` transactions."""
        found: dict[str, list[Row]] = {}
        for one in self.server.history[self.begins or 0 : upto]:
            for name, *row in one.changes:
                if name != "left":
                    found.setdefault(f"d.{name}", []).append(self._row_of(name, tuple(row)))
        return found

    def _row_of(self, name: str, row: Row) -> Row:
        """Return the row of a change as it must be delivered."""
        return row

    def _logged(self, batch: Batch) -> Batch:
        """Return the part of a batch that was read from the log."""
        return batch

    def _begun(self, offset: BinlogOffset) -> int:
        """Return the number of transactions before a position."""
        at = offset.log
        names = [f"{number + 1}@h{number}:3306" if self.is_mariadb else SOURCES[number] for number in (0, 1)]
        files = self.server.files_of[names.index(at.server)]
        key = int(at.file.rpartition(".")[2]) - 1, at.end if at.consumed is None else at.start
        return sum((file, end) <= key for file, _, end in files.places.values())

    def check(self, batch: int) -> None:
        offset = BinlogOffset.from_json(json.loads(self.checkpoint.offsets[batch]))
        if self.has_gtids:
            self._check_ids(offset)
        if self.begins is None:
            self.begins = self._begun(offset)
        expected = self._expected(len(self.server.history))
        for topic, rows in self._logged(self.checkpoint.sink[batch]).items():
            if topic == TRANSACTIONS:
                continue
            first = self.delivered.get(topic, 0)
            self.delivered[topic] = first + len(rows)
            wanted = expected.get(topic, [])[first : first + len(rows)]
            assert rows == wanted, f"{topic}: {rows} where {wanted} come next"

    def _check_ids(self, offset: BinlogOffset) -> None:
        """Check that the ids of a position are those of the transactions before it."""
        of = self.server.history[: self._begun(offset)]
        most = {one.source: one.number for one in of}
        if self.is_mariadb:
            wanted = f"0-{of[-1].source + 1}-{len(of)}" if of else ""
        else:
            wanted = ",".join(f"{SOURCES[source]}:1-{number}" for source, number in sorted(most.items()))
        found, expected = (
            str(MysqlGtids(text) if not self.is_mariadb else text) for text in (offset.log.gtids, wanted)
        )
        assert found == expected, f"{offset.log}: {found}, and not {expected}"

    def is_delivered(self) -> bool:
        if self.is_lost:
            return True
        if self.checkpoint.committed() is None:
            return False
        expected = self._expected(len(self.server.history))
        return all(self.delivered.get(topic, 0) == len(rows) for topic, rows in expected.items())

    def check_present(self) -> None:
        for topic, rows in self._expected(self.present).items():
            assert self.delivered.get(topic, 0) >= len(rows), f"{topic}: an AvailableNow query leaves out rows"

    def check_lost(self, failure: PositionLost) -> None:
        position, server = self._position(), self.server
        assert position is not None, f"there is no position: {failure}"
        if "has to be read again from the server" in failure.message:
            assert server.generation, f"no server has taken over: {failure}"
            return
        if "was prepared before the place where reading began" in failure.message:
            # committed between the look at the log's end and that at prepared transactions
            begun = self._begun(BinlogOffset.from_json(json.loads(self.checkpoint.offsets[0])))
            found = re.search("x'([0-9a-f]+)'", failure.message)
            assert found is not None, failure
            assert server.places_prepared[int(found[1], 16)] < begun, f"the transaction was read before: {failure}"
            return
        if "ids of transactions (GTIDs)" in failure.message:
            # a server on which nothing was executed yet has no ids either
            assert server.generation, f"no server has taken over: {failure}"
            assert not position.gtids, f"there are ids: {failure}"
            return
        begins = position.resumes
        is_here = position.server == "" or position.epoch == server.generation
        file = int(begins.file.rpartition(".")[2]) - 1
        gone = file < server.files.first if is_here else bool(server.files.first)
        # the server that has purged its log may have been replaced since
        assert gone or any(files.first for files in server.files_of), f"the position is not lost: {failure}"


class AlteringBinlogHistory(BinlogHistory):
    """A history whose tables are altered, with a log that mostly does not name columns."""

    altering = True


class ReturningBinlogHistory(AlteringBinlogHistory):
    """A history without faults, whose tables are altered and altered back while a query begins."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        odds = self.server.odds
        odds.act, odds.alters, odds.undoes = 0.5, 0.5, 0.9
        odds.fails = odds.drops = odds.prepares = odds.rotates = 0.0
        self.faults = Faults(0.0, 0.0, 0.0, 0.0)
        self.server.has_names = False


class RefusingBinlogHistory(AlteringBinlogHistory):
    """A history whose tables are altered often, while the disk refuses what memory has no room for."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        odds = self.server.odds
        odds.act, odds.alters = 0.9, 0.5
        odds.fails = odds.drops = odds.prepares = 0.0
        self.faults = Faults(kill=0.0, fail_over=0.0, purge=0.0, disk=0.6)
        self.server.has_names = False
        self._limits, self._sizes = (1, 1 << 29), (60, 0, 200)


class Rows:
    """Interprets the planner's offsets and tasks. A row is a change: operation, id, number; or a transaction marker."""

    def check(self, start: Offset, end: Offset) -> None:
        before, after = BinlogOffset.from_json(start).log, BinlogOffset.from_json(end).log
        assert not after.is_before(before), "a planned position goes back"

    def rows(self, tasks: Sequence[Any]) -> Batch:
        found: dict[str, list[tuple[Row, Row]]] = {}
        markers: list[Row] = []
        for task in tasks:
            if isinstance(task, BoundaryTask):
                markers += [(one.xid, one.counts is None, one.ordinal) for one in task.boundaries]
                continue
            assert isinstance(task, LogTask), f"an unknown task: {task}"
            for segment in task.segments:
                assert isinstance(segment, Segment)
                of, transactions = segment.by_row, segment.transactions
                rows = [
                    ((*transactions.key(int(of.transaction[place])), int(of.ordinal[place])), self.row(segment, place))
                    for place in range(len(segment))
                ]
                assert rows == sorted(rows), "a task has rows out of order"
                found.setdefault(f"d.{segment.table.id.table}", []).extend(rows)
        batch = {topic: [row for _, row in sorted(rows)] for topic, rows in found.items()}
        return batch | ({TRANSACTIONS: markers} if markers else {})

    def row(self, segment: Segment[Any, Any], place: int) -> Row:
        return _row(segment, place)

    def again(self, kept: Batch, rows: Batch) -> Batch:
        assert kept == rows, "a batch that is read again is another one"
        return kept


def _row(segment: Segment[Any, Any], place: int) -> Row:
    """Return a row by the columns that its segment's table has; the others must have the values of their names."""
    message = segment.data[segment.offsets[place] : segment.offsets[place + 1]].tobytes()
    op = chr(segment.by_row.images[segment.by_row.image[place]].op)
    names = tuple(column.name for column in segment.table.columns)
    image = 1 + 4 * len(names)
    assert len(message) == image * (2 if op == "u" else 1), f"{len(message)} bytes, by a table of {names}"
    values = dict(zip(names, struct.unpack(f"<{len(names)}I", message[1 - image :]), strict=True))
    id_, number = values.pop("id"), values.pop("n")
    wrong = {name: value for name, value in values.items() if name != f"x{value}"}
    assert not wrong, f"columns have values of others: {wrong}"
    assert segment.table.key == ("id",), segment.table.key
    return op, id_, number, names
