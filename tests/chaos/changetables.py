"""The common part of SQL Server and Db2 as sources of the machine: tables, writers, and the committed changes.

The machine reads committed changes from the change tables itself. Rows are removed from these as soon as Spark has
committed their changes, so that a pipeline that goes back behind its commit log ends with a lost position.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.chaos import progress
from tests.chaos.changes import Change, Row, key_of, row_of
from tests.chaos.source import Offset

SCHEMA = "CHAOS"
SIGNALS = "SIGNALS"
WRITERS = 3
ROWS = 2_400
"""Rows before the first start: several chunks of a snapshot."""
PLACES = 300
"""Rows of the table whose keys change, and the distance between the two keys of each."""
AWAY = 1_000_000
KEPT = 5
"""Number of large transactions whose rows stay until a later one deletes them."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as types of its columns; only the columns in `nullable` may be null."""

    columns: Mapping[str, str]
    key: tuple[str, ...] = ("ID",)
    nullable: tuple[str, ...] = ()

    def statement(self, name: str) -> str:
        """Return the statement that creates the table in both databases."""
        columns = [f"{one} {kind}{'' if one in self.nullable else ' NOT NULL'}" for one, kind in self.columns.items()]
        return f"CREATE TABLE {SCHEMA}.{name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(self.key)}))"


TABLES = {
    "T_ROW": Table(
        {"ID": "INTEGER", "W": "INTEGER", "N": "INTEGER", "TAG": "VARCHAR(40)", "BIG": "VARCHAR(3000)"},
        nullable=("BIG",),
    ),
    "T_MOVE": Table({"ID": "INTEGER", "N": "INTEGER", "TAG": "VARCHAR(40)"}),
    "T_BULK": Table({"ID": "INTEGER", "TXN": "INTEGER", "FILL": "VARCHAR(300)"}),
    "LEDGER": Table({"TXN": "INTEGER", "W": "INTEGER"}, ("TXN", "W")),
}
"""The captured tables that are compared."""
SIGNAL_TABLE = Table({"ID": "VARCHAR(64)", "TYPE": "VARCHAR(32)", "DATA": "VARCHAR(2000)"}, nullable=("TYPE", "DATA"))
"""Captured but not compared, because the pipeline writes to it, also after the writers have stopped."""
SEED = Table({"ID": "INTEGER", "W": "INTEGER", "FILL": "VARCHAR(300)"})
NOISE = Table({"ID": "INTEGER", "FILL": "VARCHAR(300)"})
"""Neither of these two tables is captured."""


class Session(Protocol):
    """A connection for one thread. Statements between `begin` and `commit` or `rollback` are one transaction."""

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; [] for a statement without rows."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll back the transaction."""

    def close(self) -> None:
        """Close the connection, which rolls back an open transaction."""


class Writable(Protocol):
    """The interface to a server for its writers."""

    def connect(self) -> Session:
        """Return a session for a writer."""

    def meaning(self, error: Exception) -> str:
        """Return the meaning of a session's error.

        `away`: the server is unreachable. `conflict`: the transaction was rolled back in favour of another one. "": a
        fault.
        """

    def collection(self, table: str) -> str:
        """Return a table's name for signals."""

    def settle(self) -> None:
        """Wait until everything that was committed is in the log."""


class Server(Writable, Protocol):
    """The interface to a server with change tables, with the differences between the two."""

    def newest(self) -> bytes:
        """Return the position up to which the change tables are complete."""

    def changes(self, table: str, after: bytes, upto: bytes) -> Iterator[tuple[bytes, Change]]:
        """Return a change table's changes in `(after, upto]`, each with its commit's position, in
        the server's order."""

    def forget(self, through: bytes) -> None:
        """Remove everything before this commit from all change tables."""


def make_tables(session: Session, capture: Callable[[Sequence[str]], None]) -> None:
    """Create all tables, call `capture` with the names of those to capture, and insert the first rows."""
    captured = {**TABLES, SIGNALS: SIGNAL_TABLE}
    for name, table in {**captured, "T_SEED": SEED, "T_NOISE": NOISE}.items():
        session.begin()
        session.rows(table.statement(name))
        session.commit()
    for low in range(0, ROWS, 100):
        session.begin()
        rows = ", ".join(f"({n}, {n % WRITERS}, '{n}-{'p' * 200}')" for n in range(low, low + 100))
        session.rows(f"INSERT INTO {SCHEMA}.T_SEED VALUES {rows}")
        session.commit()
    capture(list(captured))
    for statement in (
        f"INSERT INTO {SCHEMA}.T_ROW SELECT ID, W, 0, 'first', FILL FROM {SCHEMA}.T_SEED",
        f"INSERT INTO {SCHEMA}.T_MOVE SELECT ID, 0, 'first' FROM {SCHEMA}.T_SEED WHERE ID < {PLACES}",
    ):
        session.begin()
        session.rows(statement)
        session.commit()


def tables_now(session: Session) -> dict[str, dict[str, Row]]:
    """Return the present rows of all compared tables."""
    found: dict[str, dict[str, Row]] = {}
    for name, table in TABLES.items():
        rows = session.rows(f"SELECT {', '.join(table.columns)} FROM {SCHEMA}.{name}")
        images = [dict(zip(table.columns, row, strict=True)) for row in rows]
        found[name] = {key_of({one: image[one] for one in table.key}): row_of(image) for image in images}
    return found


@dataclass
class Oracle:
    """A reader of new changes in the change tables, which keeps them until it is asked for them."""

    server: Server
    _read: bytes = b""
    _kept: list[tuple[bytes, Change]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> None:
        """Read up to the newest position."""
        with self._lock:
            upto = self.server.newest()
            after = self._read or bytes(len(upto))
            fresh = [one for table in TABLES for one in self.server.changes(table, after, upto)]
            self._kept += sorted(fresh, key=lambda one: one[0])
            self._read = upto

    def committed(self, begin: bytes) -> Iterator[tuple[Change, bool]]:
        """Return the changes committed since the last call, each with True if it is after the position `begin`."""
        self.read()
        with self._lock:
            kept, self._kept = self._kept, []
        for commit, change in kept:
            yield change, commit > begin


def begin_of(offset: Offset) -> bytes:
    """Return the position up to which an offset has read the only database."""
    ((_, reached),) = offset["databases"].items()
    return bytes.fromhex(reached["commit"])


def clean_up(server: Server, oracle: Oracle, checkpoint: Path) -> progress.CleanUp:
    """Return the clean-up of the change tables: the server forgets the changes that Spark has committed."""
    reached = b""

    def remove(stored: Offset) -> bool:
        nonlocal reached
        if not stored["databases"]:
            return False
        through = begin_of(stored)
        if through > reached:
            oracle.read()
            server.forget(through)
            reached = through
        return True

    return progress.CleanUp(checkpoint, remove, lambda error: bool(server.meaning(error)))


@dataclass
class ChangeWriters:
    """Sessions that write until they are stopped. `acknowledged` holds the commits of each."""

    server: Writable
    seed: int
    signals: bool
    reads_first: Callable[[], bool]
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    rolled_back: set[tuple[int, int]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    quiet: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _counters: dict[int, int] = field(default_factory=dict)
    _begun: int = 0

    def start(self) -> None:
        """Begin to write. A later round continues with new transactions."""
        self._stop.clear()
        self._begun += 1
        jobs = [self._mixed] * WRITERS + [self._bulk, self._rare]
        self._threads = [
            threading.Thread(target=self._work, args=(number, job), name=f"writer-{number}", daemon=True)
            for number, job in enumerate(jobs)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop, and wait until all changes are captured; later ones would not be part of any run."""
        self._stop.set()
        self.quiet.clear()
        for thread in self._threads:
            thread.join(60)
        if self._threads:
            self.server.settle()

    def lost(self) -> list[tuple[int, int]]:
        """Return acknowledged commits that the server no longer has, and rolled-back ones that it has."""
        session = self.server.connect()
        try:
            there = {(int(w), int(txn)) for w, txn in session.rows(f"SELECT W, TXN FROM {SCHEMA}.LEDGER")}
        finally:
            session.close()
        return sorted((self.acknowledged - there) | (self.rolled_back & there))

    def _work(self, number: int, job: Callable[[Session, random.Random, int], None]) -> None:
        choice = random.Random(f"{self.seed}/{self._begun}/{number}")
        while not self._stop.is_set():
            session: Session | None = None
            try:
                session = self.server.connect()
                while not self._stop.is_set():
                    if self.quiet.is_set():
                        time.sleep(0.05)
                        continue
                    job(session, choice, number)
            except Exception as error:
                if not self.server.meaning(error):
                    self.failures.append(f"writer {number}: {type(error).__name__}: {error}")
                # Otherwise the server is down, and the ledger tells whether the transaction was committed.
                self._stop.wait(0.2)
            finally:
                if session is not None:
                    session.close()

    def _transaction(self, session: Session, number: int, statements: Sequence[str], rolled_back: bool = False) -> bool:
        """Run the statements and the row of the ledger as one transaction. Return True if it was committed."""
        self._counters[number] = txn = self._counters.get(number, 0) + 1
        try:
            session.begin()
            for statement in (f"INSERT INTO {SCHEMA}.LEDGER VALUES ({txn}, {number})", *statements):
                session.rows(statement)
        except Exception as error:
            if self.server.meaning(error) != "conflict":
                raise
            rolled_back = True
        if rolled_back:
            session.rollback()
            self.rolled_back.add((number, txn))
            return False
        session.commit()
        self.acknowledged.add((number, txn))
        return True

    def _next(self, number: int) -> int:
        return self._counters.get(number, 0) + 1

    def _mixed(self, session: Session, choice: random.Random, number: int) -> None:
        """Run a small transaction: rows of the writer's own, and one of a few rows that all writers change."""
        txn = self._next(number)
        steps = choice.choice((1, 1, 1, 2, 3, 8))
        statements = [
            one for step in range(steps) for one in self._statements(choice, number, txn, f"{number}-{txn}-{step}")
        ]
        self._transaction(session, number, statements, choice.random() < 0.06)
        self._stop.wait(choice.choice((0, 0.02, 0.05, 0.2)))

    def _statements(self, choice: random.Random, number: int, txn: int, tag: str) -> list[str]:
        own = choice.randrange(ROWS // WRITERS) * WRITERS + number
        row, move = f"{SCHEMA}.T_ROW", f"{SCHEMA}.T_MOVE"
        kind = choice.choices(range(9), (6, 8, 2, 2, 2, 2, 2, 1, 1))[0]
        if kind == 0:
            fresh = ROWS + (txn * 10 + int(tag.rpartition("-")[2])) * WRITERS + number
            big = f"'{tag * 150}'" if choice.random() < 0.3 else "NULL"
            return [f"INSERT INTO {row} VALUES ({fresh}, {number}, 0, '{tag}', {big})"]
        if kind == 1:
            return [f"UPDATE {row} SET N = N + 1, TAG = '{tag}' WHERE ID = {own}"]
        if kind == 2:
            return [f"UPDATE {row} SET N = N + 1, BIG = '{tag * 150}' WHERE ID = {own}"]
        if kind == 3:
            return [f"DELETE FROM {row} WHERE ID = {own}"]
        if kind == 4:
            # Rows that all writers change show the order of commits.
            return [f"UPDATE {row} SET N = N + 1, TAG = '{tag}' WHERE ID = {choice.randrange(4)}"]
        place = choice.randrange(PLACES // WRITERS) * WRITERS + number
        if kind == 5:
            # Changes of the key, to another one and back, sometimes in one transaction.
            there = f"UPDATE {move} SET ID = ID + {AWAY}, N = N + 1, TAG = '{tag}' WHERE ID = {place}"
            back = f"UPDATE {move} SET ID = ID - {AWAY}, N = N + 1, TAG = '{tag}' WHERE ID = {place + AWAY}"
            return choice.choice(([there], [back], [there, back]))
        if kind == 6:
            return [f"UPDATE {row} SET TAG = '{tag}' WHERE ID BETWEEN {own} AND {own + 40} AND W = {number}"]
        if kind == 7:
            # The key disappears and returns within one transaction.
            return [
                f"DELETE FROM {move} WHERE ID = {place} OR ID = {place + AWAY}",
                f"INSERT INTO {move} VALUES ({place}, 0, '{tag}')",
            ]
        return [f"DELETE FROM {row} WHERE ID > {own} AND ID < {own + 12} AND W = {number}"]

    def _bulk(self, session: Session, choice: random.Random, number: int) -> None:
        """Run large transactions, some of which are rolled back; the rows of old ones are deleted."""
        self._stop.wait(choice.uniform(2, 9))
        # A first snapshot of many rows would take most of a round on a busy machine.
        count = choice.randrange(50, 200 if self.reads_first() else 1_500)
        txn = self._next(number)
        bulk = f"{SCHEMA}.T_BULK"
        insert = f"INSERT INTO {bulk} SELECT ID + {txn * 10_000}, {txn}, FILL FROM {SCHEMA}.T_SEED WHERE ID < {count}"
        more = [f"DELETE FROM {bulk} WHERE TXN = {txn} AND ID < {txn * 10_000 + 40}"] if choice.random() < 0.3 else []
        self._transaction(session, number, [insert, *more], choice.random() < 0.2)
        if txn > 2 * KEPT:
            self._transaction(session, number, [f"DELETE FROM {bulk} WHERE TXN <= {txn - 2 * KEPT}"])

    def _rare(self, session: Session, choice: random.Random, number: int) -> None:
        """Send a signal, change a table that is not captured, or let all writers pause."""
        self._stop.wait(choice.uniform(1, 4))
        kind = choice.choices(("signal", "noise", "pause"), (1, 2, 3))[0]
        txn = self._next(number)
        if kind == "signal" and self.signals and not self.reads_first():
            table = self.server.collection(choice.choice(("T_ROW", "T_MOVE", "T_MOVE", "T_BULK")))
            data = f'{{"type": "incremental", "data-collections": ["{table}"]}}'
            name = f"{self.seed}-{self._begun}-{txn}"
            insert = f"INSERT INTO {SCHEMA}.{SIGNALS} VALUES ('{name}', 'execute-snapshot', '{data}')"
            self._transaction(session, number, [insert])
        elif kind == "noise":
            noise = f"{SCHEMA}.T_NOISE"
            insert = f"INSERT INTO {noise} SELECT ID, FILL FROM {SCHEMA}.T_SEED WHERE ID < 1000"
            session.begin()
            session.rows(insert)
            session.rows(f"DELETE FROM {noise}")
            session.commit()
        elif kind == "pause":
            self.quiet.set()
            self._stop.wait(choice.uniform(1, 3))
            self.quiet.clear()
