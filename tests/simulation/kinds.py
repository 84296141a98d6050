"""Kinds of histories, each with frequent events that are rare in others; and the names of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.postgres.snapshot.tasks import ReadTask, SnapshotTask
from tests.simulation.binlog import (
    AlteringBinlogHistory,
    BinlogHistory,
    RefusingBinlogHistory,
    ReturningBinlogHistory,
)
from tests.simulation.binlog_rows import (
    FailoverRowsBinlogHistory,
    LaggingRowsBinlogHistory,
    RowsBinlogHistory,
)
from tests.simulation.changetables import TablesHistory
from tests.simulation.course import Told
from tests.simulation.history import History
from tests.simulation.log import BEGIN_LSN
from tests.simulation.mongodb import MongoHistory
from tests.simulation.mutants import halves_lie_apart
from tests.simulation.rows import RowsHistory
from tests.simulation.server import SLOT, Slot
from tests.simulation.sessions import TableSession
from tests.simulation.spark import Row
from tests.simulation.world import Process


class AlteringHistory(RowsHistory):
    """A history with frequent alterations of tables, by transactions that others see late."""

    signalled = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen, self.server.odds.unseen, self.server.alters = 0.05, 0.5, 0.3
        self.server.slots.clear()

    def _options(self) -> dict[str, str]:
        return super()._options() | {"snapshot.mode": "no_data"}


class WaitingHistory(RowsHistory):
    """A history whose commits wait long for a standby, while a query takes its first snapshot."""

    signalled = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen, self.server.odds.unseen, self.faults.kill = 0.01, 0.5, 0.04

    def _options(self) -> dict[str, str]:
        return super()._options() | {"snapshot.mode": "initial", "event.order.segments": "1"}


class MovingHistory(RowsHistory):
    """A history of larger tables whose rows move between pages, while the first snapshot is killed and resumed."""

    signalled = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.alters, self.server.odds.act, self.server.odds.unseen = 0.0, 0.9, 0.0
        self.seen, self.faults.kill, self.faults.promotion = 0.05, 0.1, 0.0
        for _ in range(300):
            self.server.act()
        self.server.slots.clear()

    def _options(self) -> dict[str, str]:
        return super()._options() | {"snapshot.mode": "initial", "event.order.segments": "1"}


class CrashingHistory(RowsHistory):
    """A history whose server flushes its log late and crashes, while a query with an older slot takes a snapshot."""

    signalled = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.odds.flush, self.server.alters = 0.1, 0.0
        self.faults.crash, self.faults.promotion = 0.03, 0.0
        self.server.slots.setdefault(SLOT, Slot(BEGIN_LSN, BEGIN_LSN))

    def _options(self) -> dict[str, str]:
        return super()._options() | {"snapshot.mode": "initial", "event.order.segments": "1"}


class WindowsHistory(RowsHistory):
    """A history whose tables are read only by windows, while commits are seen late and queries are killed."""

    signalled = 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen, self.faults.kill = 0.01, 0.02
        self.server.odds.unseen, self.server.odds.fails, self.server.odds.catalog = 0.4, 0.0, 0.0
        self.server.alters = 0.0
        self.server.slots.clear()

    def _tried(self, task: SnapshotTask | ReadTask) -> list[Row]:
        holders = [session for session in self.server.sessions if isinstance(session, TableSession) and session.open]
        if holders and self.rng.random() < 0.1:
            # the snapshots that they have exported are lost
            for session in holders:
                session.lose()
            self.server.notice()
        return super()._tried(task)

    def _options(self) -> dict[str, str]:
        return super()._options() | {"snapshot.mode": "no_data"}


class BlockingHistory(RowsHistory):
    """A history whose signals ask for blocking snapshots, with many changes meanwhile."""

    signalled, blocking = 1.0, 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.odds.act, self.faults.kill = 0.9, 0.02


class SignallingHistory(MongoHistory):
    """A history of a change stream with signals, whose queries are killed after a batch was planned."""

    oplogs, signalled = 0.0, 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.interruption, self.signals, self.faults.signal = 0.2, 10, 0.1


class TailingHistory(MongoHistory):
    """A history of an oplog without faults, whose tails start again while it is written."""

    oplogs = 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.odds.act, self.server.odds.replicates = 0.5, 1.0


class HalvesHistory(History):
    """A history whose slices have a second half that does not directly follow the first."""

    @contextmanager
    def around(self) -> Iterator[None]:
        with super().around(), halves_lie_apart():
            yield


class PromotedHistory(History):
    """A history whose standby takes over far behind the read position, before a query with AvailableNow."""

    available = 0.9

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.faults.promotion, self.faults.kill, self.server.odds.jump = 0.03, 0.05, 0.1
        self.server.lag = 40
        self.faults.disk = self.server.odds.fails = self.server.odds.catalog = 0.0


class Failover(History):
    """A history whose standby takes over, with the probability `share`, just before a reader opens another session."""

    share: float

    def sessions(self, process: Process) -> tuple[Callable[..., Any], Callable[[Address], ArrowConnection]]:
        def opened(*given: Any, open_one: Callable[..., Any], **more: Any) -> Any:
            is_reading = any(session.process is process for session in self.server.sessions)
            if is_reading and not self.is_calm and self.rng.random() < self.share:
                self.promote()
            return open_one(*given, **more)

        connect, arrow = super().sessions(process)
        return partial(opened, open_one=connect), partial(opened, open_one=arrow)

    def _often(self) -> None:
        """Reduce other faults, and let the standby lag far."""
        self.server.odds.act, self.server.lag = 0.5, 40
        self.faults.disk = self.faults.promotion = self.server.odds.catalog = 0.0


class FailoverHistory(Failover):
    """A history whose standby takes over between two sessions of a reader."""

    available, share = 0.0, 0.3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._often()
        self.server.odds.jump = 0.1


class FailoverRowsHistory(Failover, RowsHistory):
    """A history whose standby takes over between the sessions of snapshots and readers."""

    available, share = 0.1, 0.05

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._often()


KINDS: dict[str, Callable[[int], Told]] = {
    "postgres": History,
    "postgres-halves": HalvesHistory,
    "postgres-promoted": PromotedHistory,
    "postgres-failover": FailoverHistory,
    "postgres-rows": RowsHistory,
    "postgres-rows-failover": FailoverRowsHistory,
    "postgres-rows-altering": AlteringHistory,
    "postgres-rows-waiting": WaitingHistory,
    "postgres-rows-crashing": CrashingHistory,
    "postgres-rows-moving": MovingHistory,
    "postgres-rows-windows": WindowsHistory,
    "postgres-rows-blocking": BlockingHistory,
    "mongodb": MongoHistory,
    "mongodb-signalling": SignallingHistory,
    "mongodb-tailing": TailingHistory,
    "changetables": TablesHistory,
    "binlog": BinlogHistory,
    "binlog-altering": AlteringBinlogHistory,
    "binlog-returning": ReturningBinlogHistory,
    "binlog-refusing": RefusingBinlogHistory,
    "binlog-rows": RowsBinlogHistory,
    "binlog-rows-failover": FailoverRowsBinlogHistory,
    "binlog-rows-lagging": LaggingRowsBinlogHistory,
}
"""The kinds of histories by their names on the command line."""
