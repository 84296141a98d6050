"""Sessions that write to PostgreSQL, and their knowledge of commits and rollbacks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg

SCHEMA = "chaos"
WRITERS = 4
ROWS = 12_000
"""Rows before the first start: several chunks of a snapshot."""
PAD = 1_900
FURTHEST = 400 << 20
"""Writers leave out large transactions while the pipeline's slot is this many bytes behind."""


@dataclass
class Writers:
    """Sessions that write until they are stopped. `acknowledged` holds the commits of each."""

    dsn: str
    slot: str
    seed: int
    signals: bool = True
    reads_first: Callable[[], bool] = lambda: False
    """True while the first snapshot runs, which a truncate or an alteration of a table would end."""
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    rolled_back: set[tuple[int, int]] = field(default_factory=set)
    quiet: threading.Event = field(default_factory=threading.Event)
    relaxed: threading.Event = field(default_factory=threading.Event)
    """True if all commits are asynchronous, so that only the server's own writer flushes the log."""
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _counters: dict[int, int] = field(default_factory=dict)
    _columns: int = 0
    _begun: int = 0

    def start(self) -> None:
        """Begin to write. A later round continues with new transactions."""
        self._stop.clear()
        self._begun += 1
        jobs: list[tuple[int, Callable[[psycopg.Connection[Any], random.Random, int], None]]] = [
            (number, self._mixed) for number in range(WRITERS)
        ]
        jobs += [(WRITERS, self._bulk), (WRITERS + 1, self._rare)]
        self._threads = [
            threading.Thread(target=self._work, args=(number, job), name=f"writer-{number}", daemon=True)
            for number, job in jobs
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.quiet.clear()
        self.relaxed.clear()
        for thread in self._threads:
            thread.join(60)

    def lost(self) -> list[tuple[int, int]]:
        """Return acknowledged synchronous commits that the server no longer has, and rolled-back ones that it has."""
        with psycopg.connect(self.dsn) as connection:
            there = set(connection.execute(f"select w, txn from {SCHEMA}.ledger".encode()).fetchall())
        return sorted((self.acknowledged - there) | (self.rolled_back & there))

    def _work(self, number: int, job: Callable[[psycopg.Connection[Any], random.Random, int], None]) -> None:
        choice = random.Random(f"{self.seed}/{self._begun}/{number}")
        while not self._stop.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
                    connection.execute(f"set search_path = {SCHEMA}")
                    connection.execute("set lock_timeout = '20s'")
                    while not self._stop.is_set():
                        if self.quiet.is_set():
                            time.sleep(0.05)
                            continue
                        job(connection, choice, number)
            except psycopg.errors.QueryCanceled:
                continue
            except psycopg.OperationalError:
                # The server is down, or has ended this session; the ledger tells whether the transaction was committed.
                time.sleep(0.1)
            except Exception as error:
                self.failures.append(f"writer {number}: {type(error).__name__}: {error}")
                time.sleep(1)

    def _next(self, number: int) -> int:
        self._counters[number] = self._counters.get(number, 0) + 1
        return self._counters[number]

    def _mixed(self, connection: psycopg.Connection[Any], choice: random.Random, number: int) -> None:
        """Run a small transaction: rows of the writer's own, and one of a few rows that all writers change."""
        txn = self._next(number)
        asynchronous = choice.random() < 0.4 or self.relaxed.is_set()
        rolled_back = choice.random() < 0.05
        try:
            with connection.transaction():
                if asynchronous:
                    connection.execute("set local synchronous_commit = off")
                connection.execute("insert into ledger values (%s, %s)", (number, txn))
                for step in range(choice.choice((1, 1, 1, 2, 3, 8))):
                    self._statement(connection, choice, number, txn, f"{number}-{txn}-{step}")
                if choice.random() < 0.15:
                    # One subtransaction is rolled back, and one is kept.
                    with suppress(_GivenUp), connection.transaction():
                        self._statement(connection, choice, number, txn, f"{number}-{txn}-gone")
                        raise _GivenUp
                    with connection.transaction():
                        self._statement(connection, choice, number, txn, f"{number}-{txn}-sub")
                if rolled_back:
                    raise _GivenUp
        except _GivenUp:
            self.rolled_back.add((number, txn))
            return
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            self.rolled_back.add((number, txn))
            return
        if not asynchronous:
            self.acknowledged.add((number, txn))
        time.sleep(choice.choice((0, 0.01, 0.03, 0.06)))

    def _statement(
        self, connection: psycopg.Connection[Any], choice: random.Random, number: int, txn: int, tag: str
    ) -> None:
        own = choice.randrange(ROWS // WRITERS) * WRITERS + number
        fresh = ROWS + (txn * 40 + choice.randrange(40)) * WRITERS + number
        kind = choice.choices(range(8), (6, 8, 2, 2, 2, 2, 2, 2))[0]
        if kind == 0:
            connection.execute(
                "insert into t_row values (%s, %s, 0, %s, repeat(md5(%s), %s)) on conflict do nothing",
                (fresh, number, tag, tag, choice.choice((0, 1, 90))),
            )
        elif kind == 1:
            connection.execute("update t_row set n = n + 1, tag = %s where id = %s", (tag, own))
        elif kind == 2:
            connection.execute("update t_row set n = n + 1, big = repeat(md5(%s), 90) where id = %s", (tag, own))
        elif kind == 3:
            connection.execute("delete from t_row where id = %s", (own,))
        elif kind == 4:
            # Rows that all writers change: the writers wait for each other, so the order of their commits shows.
            connection.execute("update t_row set n = n + 1, tag = %s where id = %s", (tag, choice.randrange(4)))
        elif kind == 5:
            place = choice.randrange(250) * WRITERS + number
            connection.execute("update t_move set id = id + 1000000, n = n + 1, tag = %s where id = %s", (tag, place))
            connection.execute(
                "insert into t_move values (%s, 0, %s) "
                "on conflict (id) do update set n = t_move.n + 1, tag = excluded.tag",
                (place, tag),
            )
            connection.execute("delete from t_move where id = %s", (place + 1000000,))
        elif kind == 6:
            connection.execute("insert into t_cut values (%s, %s) on conflict do nothing", (fresh, tag))
        else:
            connection.execute("update t_row set tag = %s where id between %s and %s and w = %s",
                               (tag, own, own + 40, number))  # fmt: skip

    def _bulk(self, connection: psycopg.Connection[Any], choice: random.Random, number: int) -> None:
        """Run large transactions, which are streamed, and bursts of them, which make the reader change its gear."""
        self._sleep(choice.uniform(1, 9))
        # A first snapshot of many rows would take most of a round on a busy machine.
        burst = choice.random() < 0.25 and not self.reads_first()
        if self._behind(connection) > FURTHEST:
            return
        for _ in range(choice.randrange(3, 6) if burst else 1):
            if self._stop.is_set():
                return
            txn = self._next(number)
            asynchronous = choice.random() < 0.5 or self.relaxed.is_set()
            count = choice.randrange(4_000, 6_000) if burst else choice.randrange(100, 2_500)
            with connection.transaction():
                if asynchronous:
                    connection.execute("set local synchronous_commit = off")
                connection.execute("insert into ledger values (%s, %s)", (number, txn))
                connection.execute(
                    "insert into t_bulk select %s * 10000 + i, %s, %s, repeat(md5((%s * 10000 + i)::text), %s) "
                    "from generate_series(1, %s) i",
                    (txn, number, txn, txn, PAD // 32, count),
                )
                if choice.random() < 0.5:
                    with suppress(_GivenUp), connection.transaction():
                        connection.execute("delete from t_bulk where txn = %s and id %% 2 = 0", (txn,))
                        raise _GivenUp
            if not asynchronous:
                self.acknowledged.add((number, txn))
            if txn > 6:
                with connection.transaction():
                    if asynchronous:
                        connection.execute("set local synchronous_commit = off")
                    connection.execute("delete from t_bulk where txn = %s", (txn - 6,))

    def _rare(self, connection: psycopg.Connection[Any], choice: random.Random, number: int) -> None:
        """Truncate, add a column, send a signal, change a table that is not captured, or let all writers pause."""
        self._sleep(choice.uniform(1, 3))
        kinds = ("truncate", "column", "signal", "noise", "pause", "relax")
        kind = choice.choices(kinds, (1, 1, 1, 2, 2, 3))[0]
        if kind in ("truncate", "column", "signal") and self.reads_first():
            return
        if kind == "truncate":
            connection.execute("truncate t_cut")
        elif kind == "column" and self._columns < 20:
            self._columns += 1
            connection.execute(f"alter table t_new add column c{self._columns} text".encode())
            connection.execute(
                f"insert into t_new (id, tag, c{self._columns}) values (%s, 'new', 'x')".encode(), (self._columns,)
            )
            connection.execute("update t_new set tag = tag || 'y'")
        elif kind == "signal" and self.signals:
            table = choice.choice(("t_row", "t_move", "t_move", "t_cut"))
            data = f'{{"type": "incremental", "data-collections": ["{SCHEMA}.{table}"]}}'
            connection.execute(
                "insert into other.signals values (%s, 'execute-snapshot', %s)",
                (f"{self.seed}-{self._begun}-{self._next(number)}", data),
            )
        elif kind == "noise" and self._behind(connection) < FURTHEST:
            connection.execute("insert into other.noise select i, repeat('x', 900) from generate_series(1, 20000) i")
            connection.execute("truncate other.noise")
        elif kind == "pause":
            self.quiet.set()
            self._sleep(choice.uniform(1, 3))
            self.quiet.clear()
        elif kind == "relax":
            self.relaxed.set()
            self._sleep(choice.uniform(3, 10))
            self.relaxed.clear()

    def _behind(self, connection: psycopg.Connection[Any]) -> int:
        found = connection.execute(
            "select (pg_current_wal_lsn() - confirmed_flush_lsn)::int8 from pg_replication_slots where slot_name = %s",
            (self.slot,),
        ).fetchone()
        return int(found[0]) if found and found[0] is not None else 0

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)


class _GivenUp(Exception):
    """A transaction or subtransaction is rolled back on purpose."""
