"""Incremental snapshots against a model: interleavings of writers, windows, crashes and restarts on a real server.

Writers run at the moments that matter: before and after a window's snapshot is taken, before a chunk is read, before
the batch ends, between batches. Every change of a key must come once and in order, and every READ must show the key
as the last event before it left it: no event of a key is ever older than one that was sent.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tailrace.columns.batch import ChangeBatch, Marker
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.connectors.postgres.snapshot.key_chunks import read_rows
from tailrace.connectors.postgres.snapshot.tasks import ReadTask
from tailrace.connectors.postgres.snapshot.windows import PostgresWindows
from tailrace.log.rows.tasks import LogTask
from tests.extent import sized
from tests.fix_postgres import Database
from tests.fix_query import Query, simple
from tests.integration.postgres.signalled import SIGNALS, execute, is_over

EXAMPLES = int(os.environ.get("TAILRACE_MODEL_EXAMPLES", sized(6, 60)))
KEYS = st.integers(1, 12)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["insert", "update", "delete"]), st.integers(0, 1), KEYS),
    st.tuples(st.just("rekey"), st.integers(0, 1), KEYS, KEYS),
    st.tuples(st.sampled_from(["commit", "rollback"])),
)
MOMENTS = st.lists(st.lists(OPERATIONS, max_size=3), max_size=25)
END = 1000
_numbers = itertools.count()


@dataclass
class Writers:
    """Two sessions: 0 commits each change at once, 1 holds a transaction open until `commit` or `rollback`.

    `history[key]` lists the versions of each key in the order of their commits; None for a delete.
    """

    database: Database
    history: dict[int, list[int | None]] = field(default_factory=dict)
    version: int = 0
    pending: list[tuple[int, int | None]] = field(default_factory=list)
    # windows of two chunks are opened by a thread of the planner's, beside the reading of the one before
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.sessions = [self.database.connect(autocommit=True), self.database.connect(autocommit=False)]
        for session in self.sessions:
            session.execute("set lock_timeout = 20")
        self.sessions[1].commit()

    def run(self, operation: tuple[Any, ...]) -> None:
        with self.turn:
            self._run(operation)

    def _run(self, operation: tuple[Any, ...]) -> None:
        kind = operation[0]
        if kind == "commit":
            self.sessions[1].commit()
            self._record(self.pending)
            self.pending = []
        elif kind == "rollback":
            self.sessions[1].rollback()
            self.pending = []
        else:
            self._change(*operation)

    def _change(self, kind: str, writer: int, key: int, other: int = 0) -> None:
        self.version += 1
        session = self.sessions[writer]
        statement, parameters = {
            "insert": ("insert into t values (%s, %s)", (key, self.version)),
            "update": ("update t set v = %s where id = %s", (self.version, key)),
            "delete": ("delete from t where id = %s", (key,)),
            "rekey": ("update t set id = %s, v = %s where id = %s", (other, self.version, key)),
        }[kind]
        if writer == 1:
            # so that the block below is a savepoint of a transaction that stays open
            session.execute("select")
        try:
            with session.transaction():
                if session.execute(statement, parameters).rowcount == 0:
                    return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            return
        found: list[tuple[int, int | None]] = (
            [(key, None)] if kind == "delete" or (kind == "rekey" and key != other) else []
        )
        if kind != "delete":
            found.append((other if kind == "rekey" else key, self.version))
        if writer == 0:
            self._record(found)
        else:
            self.pending += found

    def _record(self, changes: list[tuple[int, int | None]]) -> None:
        for key, version in changes:
            self.history.setdefault(key, []).append(version)

    def close(self) -> None:
        for session in self.sessions:
            session.close()


class Consumer:
    """Checks the events of each key against its history as they arrive."""

    def __init__(self, history: dict[int, list[int | None]], initial: int) -> None:
        self.history = history
        self.initial = initial
        self.seen: dict[int, int] = {}
        self.reads: set[int] = set()

    def log(self, key: int, version: int | None) -> None:
        place = self.seen.get(key, self._start(key)) + 1
        assert self.history[key][place] == version, f"key {key}: {version} is not what came next"
        self.seen[key] = place

    def read(self, key: int, version: int) -> None:
        place = self.seen.get(key, self._start(key))
        assert place >= 0, f"key {key}: a READ before its INSERT"
        assert self.history[key][place] == version, f"key {key}: a READ shows {version}, out of time"
        self.reads.add(key)

    def _start(self, key: int) -> int:
        """Return the place of the state before the log, which does not have the table's first rows."""
        return 0 if key <= self.initial else -1

    def finish(self) -> None:
        for key, versions in self.history.items():
            assert self.seen.get(key, self._start(key)) == len(versions) - 1, f"key {key}: a change is missing"
            if len(versions) == 1 and key <= self.initial:
                assert key in self.reads, f"key {key}: a row that nobody changed was not read"


def events(task: Any) -> Iterator[tuple[str, int, int | None]]:
    """Yield `(log or read, key, version)` for a task's changes of table t."""
    if isinstance(task, LogTask):
        batches: Iterator[ChangeBatch] = (decode(segment) for segment in task.segments)
    else:
        assert isinstance(task, ReadTask)
        batches = itertools.chain.from_iterable(
            read_rows(KeptConnection.take(task.address), p.snapshot, p.table, p.chunk, p.origin, p.superseded)
            for p in task.reads
        )
    for batch in batches:
        if batch.table.id.table != "t":
            continue
        for row in range(len(batch)):
            op = chr(batch.op[row])
            if op == "r":
                assert batch.marker is not None
                assert batch.marker[row] == Marker.INCREMENTAL
            old = batch.before is not None and (batch.before.present is None or batch.before.present[row])
            if op in "ud" and old:
                assert batch.before is not None
                yield "log", int(batch.before.columns[0][row].as_py()), None
            if op != "d":
                assert batch.after is not None
                key, version = (int(column[row].as_py()) for column in batch.after.columns)
                yield "read" if op == "r" else "log", key, version


@pytest.mark.seed("002-05", "002-06", "002-09", "002-10", "002-11", "002-14", "002-15", "002-16", "002-27", "002-29")
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(
    moments=MOMENTS,
    kills=st.sets(st.integers(0, 12), max_size=3),
    read_only=st.booleans(),
    chunks=st.sampled_from([1, 2]),
)
def test_no_interleaving_loses_or_reverses_anything(
    database: Database, moments: list[list[Any]], kills: set[int], read_only: bool, chunks: int
) -> None:
    initial = 9
    database.execute(
        "drop table if exists t, debezium_signal", SIGNALS, "create table t (id int primary key, v int not null)",
        f"insert into t select i, -i from generate_series(1, {initial}) i",
    )  # fmt: skip
    writers = Writers(database, {key: [-key] for key in range(1, initial + 1)})
    query = Query(
        database,
        **{
            "slot.name": f"model_{next(_numbers)}",
            "signal.data.collection": "public.debezium_signal",
            "snapshot.mode": "no_data",
            "incremental.snapshot.chunk.size": "2",
            "incremental.snapshot.window.chunks": str(chunks),
            "read.only": str(read_only).lower(),
            "poll.interval.ms": "20",
        },
    )
    consumer = Consumer(writers.history, initial)
    script = iter(moments)
    told: list[tuple[Any, ...]] = []

    def moment() -> None:
        for operation in next(script, []):
            told.append(operation)
            with contextlib.suppress(psycopg.errors.InFailedSqlTransaction):
                writers.run(operation)

    plain = PostgresWindows._take_snapshot

    def with_moments(*given: Any) -> Any:
        moment()
        taken = plain(*given)
        moment()
        return taken

    def trigger(kill: str) -> bool:
        start = query.committed if query.committed is not None else query.planner.initial_offset()
        if query.planned is None:
            end = query.planner.latest_offset(start, None, 64 << 20)
            if end == start:
                return False
            query.planned = end
        if kill == "planned":
            query.kill()
        tasks = simple(query.planner.partitions(start, query.planned))
        moment()
        found = [event for task in tasks for event in events(task)]
        moment()
        if kill == "read":
            query.kill()
            return True
        # in a batch, changes and rows come in any order, but a key never has both
        keys = [{key for kind, key, _ in found if kind == which} for which in ("log", "read")]
        assert not keys[0] & keys[1]
        for kind, key, version in found:
            if kind == "log":
                consumer.log(key, version)
            else:
                assert version is not None
                consumer.read(key, version)
        query.committed, query.planned = query.planned, None
        if kill == "committed":
            query.kill()
        return True

    PostgresWindows._take_snapshot = with_moments  # type: ignore[method-assign]
    try:
        trigger("")
        execute(database, "public.t")
        until = time.monotonic() + 30
        step, started, ended = 0, False, False
        while END not in consumer.seen or not is_over(query):
            kill = ("planned", "read", "committed")[step % 3] if step in kills else ""
            step += int(trigger(kill))
            if not ended and query.committed is not None and "state" not in query.committed.get("progress", {}):
                # the rest of the script does not matter once the snapshot is over, or if it has not begun
                ended = started and not trigger("")
                if ended:
                    # nothing follows the last insert, by which the end is told
                    script = iter(())
                    writers.run(("commit",))
                    writers.run(("insert", 0, END))
            started = started or "progress" in (query.committed or {})
            assert time.monotonic() < until
        consumer.finish()
    finally:
        note(f"{told}")
        PostgresWindows._take_snapshot = plain  # type: ignore[method-assign]
        query.planner.close()
        writers.close()
        with database.connect() as connection:
            connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                               "where not active and slot_name like 'model_%'")  # fmt: skip
