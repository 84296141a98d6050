"""Sessions of a simulated PostgreSQL with tables: transactions, exported snapshots and locks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import adbc_driver_manager
import pyarrow as pa
from psycopg import pq

from tailrace.connectors.postgres.server.connection import Address
from tailrace.errors import ConnectionFailed
from tests.simulation.server import Failed, Rows, Session, refused
from tests.simulation.tables import Snapshot
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.database import Database

LOCK_SECONDS = 0.2
_NAME = re.compile(r'"public"\."(\w+)"')


@dataclass(slots=True)
class Open:
    """A session's transaction: its snapshot, the tables that it has locked against alterations, and those at its
    savepoints."""

    snapshot: Snapshot | None = None
    locks: set[int] = field(default_factory=set)
    savepoints: dict[str, set[int]] = field(default_factory=dict)
    is_hasty: bool = False
    """True if it has a lock timeout."""


class TableSession(Session):
    """A session of a database with tables."""

    server: Database

    def __init__(self, server: Database, process: Process) -> None:
        super().__init__(server, process)
        self.open: Open | None = None
        # the snapshot exported by the creation of a slot ends with the next statement
        self.exports: Open | None = None
        self._snapshot: Snapshot | None = None

    @property
    def locks(self) -> set[int]:
        return self.open.locks if self.open is not None else set()

    @property
    def transaction_status(self) -> int:
        return int(pq.TransactionStatus.IDLE if self.open is None else pq.TransactionStatus.INTRANS)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the current statement."""
        assert self._snapshot is not None
        return self._snapshot

    def close(self) -> None:
        super().close()
        self.open = self.exports = None

    def execute(self, statement: str | bytes, values: Sequence[Any] = (), *, binary: bool = False) -> Rows:
        text = (statement.decode() if isinstance(statement, bytes) else statement).strip()
        self.exports = None
        if self._is_control(text):
            self.call(text[:40])
            self._control(text)
            return Rows([])
        self.begin_statement()
        return super().execute(statement, values, binary=binary)

    def begin_statement(self) -> None:
        if self.open is None:
            self._snapshot = self.server.snapshot()
            return
        if self.open.snapshot is None:
            self.open.snapshot = self.server.snapshot()
        self._snapshot = self.open.snapshot

    @staticmethod
    def _is_control(text: str) -> bool:
        return text.startswith(("begin", "rollback", "savepoint", "release", "lock table", "set "))

    def _control(self, text: str) -> None:
        """Run a statement that controls the transaction and returns no rows."""
        words = text.split()
        if words[0] == "begin":
            self.open = Open()
        elif words[0] == "rollback" and len(words) == 1:
            self.open = None
        elif words[0] == "lock":
            self.lock(text)
        elif text.startswith("set transaction snapshot"):
            self._take_over(text.split("'")[1])
        elif text.startswith("set local lock_timeout"):
            assert self.open is not None
            self.open.is_hasty = True
        elif words[0] == "savepoint":
            assert self.open is not None
            self.open.savepoints[words[1]] = set(self.open.locks)
        elif words[0] == "rollback":
            assert self.open is not None
            self.open.locks = set(self.open.savepoints[words[-1]])

    def _take_over(self, name: str) -> None:
        assert self.open is not None
        holder, of, snapshot = self.server.exported.get(name, (None, None, None))
        if holder is None or holder not in self.server.sessions or of not in (holder.open, holder.exports):
            raise self.refused("42704", f'snapshot "{name}" does not exist')
        assert self.open.snapshot is None
        self.open.snapshot = snapshot

    def export(self, snapshot: Snapshot) -> str:
        """Export a snapshot until the transaction ends, or, outside a transaction, until the next statement."""
        of = self.open
        if of is None:
            of = self.exports = Open()
        name = f"{len(self.server.exported) + 1:08X}-1"
        self.server.exported[name] = self, of, snapshot
        return name

    def lock(self, text: str) -> int:
        """Lock the tables named in the text against alterations, after waiting for running ones; return the oid of the
        last table."""
        names = _NAME.findall(text)
        assert names, text
        return [self._lock(name) for name in names][-1]

    def _lock(self, name: str) -> int:
        server = self.server
        while True:
            now = server.snapshot()
            oids = [oid for oid in server.tables.shapes if self._is_named(oid, name, now)]
            waits = [oid for oid in oids if server.is_altered(oid)]
            if not waits:
                break
            hasty = self.open is not None and self.open.is_hasty

            def is_free(oid: int = waits[0]) -> bool:
                return self.is_lost or not server.is_altered(oid)

            if not self.process.wait(LOCK_SECONDS if hasty else None, is_free):
                raise self.refused("55P03", "canceling statement due to lock timeout")
            if self.is_lost:
                raise Failed("the connection is lost: it waits for a lock")
        shape = server.named(name)
        if shape is None:
            raise self.refused("42P01", f"relation {name} does not exist")
        if self.open is not None:
            self.open.locks.add(shape.oid)
        return shape.oid

    def _is_named(self, oid: int, name: str, now: Snapshot) -> bool:
        shape = self.server.tables.shown(oid, now)
        return shape is not None and shape.name == name

    def refused(self, state: str, text: str) -> Exception:
        """Return a statement's error, in the driver's class."""
        return refused(state, text)


class TaskSession(TableSession):
    """A session of a task, behind ADBC's interface; `answer` returns the rows of a select."""

    answer: Callable[[TaskSession, str], pa.RecordBatch]

    def refused(self, state: str, text: str) -> Exception:
        return adbc_driver_manager.OperationalError(
            text, status_code=adbc_driver_manager.AdbcStatusCode.IO, sqlstate=state
        )

    def begun(self, what: str) -> None:
        try:
            self.call(what[:40])
        except Failed as error:
            # an error that ends the session has no SQLSTATE in ADBC
            raise adbc_driver_manager.OperationalError(
                str(error), status_code=adbc_driver_manager.AdbcStatusCode.IO
            ) from None

    def run(self, text: str) -> None:
        self.begun(text)
        try:
            for statement in map(str.strip, text.split(";")):
                if self._is_control(statement):
                    self._control(statement)
        except Failed as error:
            raise adbc_driver_manager.OperationalError(
                str(error), status_code=adbc_driver_manager.AdbcStatusCode.IO
            ) from None

    def rows(self, text: str) -> Iterator[pa.RecordBatch]:
        from tests.simulation.statements import selected

        self.begun(text)
        self.begin_statement()
        found = selected(self, text)
        return self._sent(found)

    def _sent(self, found: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for low in range(0, found.num_rows, 2) or (0,):
            yield found.slice(low, 2)
            try:
                self.call("rows")
            except Failed as error:
                raise ConnectionFailed(f"PostgreSQL ended a query: {error}") from None


class Kept:
    """The `KeptConnection` of a simulated worker; `process` and `server` are the current ones."""

    process: Process
    server: Database

    def __init__(self) -> None:
        self.process.step()
        if self.server.rng.random() < self.server.odds.fails:
            raise adbc_driver_manager.OperationalError(
                "no connection", status_code=adbc_driver_manager.AdbcStatusCode.IO
            )
        self._session = TaskSession(self.server, self.process)

    @classmethod
    def take(cls, address: Address) -> Kept:
        return cls()

    def execute(self, text: str) -> None:
        self._session.run(text)

    begin = execute

    def query(self, text: str) -> Iterator[pa.RecordBatch]:
        return self._session.rows(text)

    def close(self) -> None:
        self._session.close()
