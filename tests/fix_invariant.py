"""A watched invariant: no slot of PostgreSQL ever stands ahead of what its query has committed.

Tests announce queries by `watch`. A thread for each server samples the positions of the slots first, and then the
commits, which never go back: so a slot that it finds ahead was ahead. Until something is committed, and where a test
moves a slot itself, a slot must stay where it is first seen. A slot that the server has invalidated is not looked at:
the product may create it again, elsewhere.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

PERIOD = 0.025
"""Seconds between two samples."""

_SLOTS = (
    "select slot_name, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 from pg_replication_slots "
    "where slot_name = any(%s) and not temporary and confirmed_flush_lsn is not null and wal_status <> 'lost'"
)

Committed = Callable[[], dict[str, Any] | None]
"""Return the offset that a query has committed last, None before the first commit."""


class Ahead(AssertionError):
    """A slot was told to discard changes that no query has committed."""


def lsn(text: str) -> int:
    """Return the value of a pg_lsn's text."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def forgettable(offset: dict[str, Any] | None) -> int:
    """Return the LSN up to which the server may discard the log for a query that has committed `offset`."""
    if offset is None:
        return 0
    return max(lsn(offset["log"]["end"]), lsn(offset["log"].get("idle", "0/0")))


def committed_in(checkpoint: Path) -> Committed:
    """Return the offset in the newest file of a checkpoint's commit log."""

    def newest() -> dict[str, Any] | None:
        try:
            batches = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
        except OSError:
            return None
        if not batches:
            return None
        lines = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        found: dict[str, Any] = json.loads(lines[2])
        return found

    return newest


class Watch:
    """The slots of one server, sampled by a thread from the first `add` to `stop`.

    The thread uses `connection` if one is given, else one of its own.
    """

    def __init__(self, dsn: str, connection: psycopg.Connection[Any] | None = None) -> None:
        self._dsn = dsn
        self._connection = connection
        self._queries: dict[str, list[Committed]] = {}
        self._first: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invariant", daemon=True)
        self.found: list[str] = []
        self.samples = 0

    def add(self, slot: str, committed: Committed) -> None:
        with self._lock:
            self._queries.setdefault(slot, []).append(committed)
        if not self._thread.is_alive():
            self._thread.start()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Let a test move slots itself: from here on they count as seen for the first time."""
        with self._lock:
            yield
            self._first.clear()

    def stop(self) -> None:
        """End the thread, after a last sample."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        connection = self._connection
        while not self._stop.is_set():
            try:
                connection = connection or psycopg.connect(self._dsn, autocommit=True, connect_timeout=2)
                self._sample(connection)
            except psycopg.Error:
                # A test may stop its server, or use up its locks.
                if connection is not None:
                    connection.close()
                connection = None
            self._stop.wait(PERIOD)
        if connection is not None:
            try:
                self._sample(connection)
            except psycopg.Error:
                return
            finally:
                if connection is not self._connection:
                    connection.close()

    def _sample(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            stands: dict[str, int] = dict(connection.execute(_SLOTS, (list(self._queries),)).fetchall())
            self._first = {slot: self._first.get(slot, at) for slot, at in stands.items()}
            for slot, at in stands.items():
                if at > self._first[slot]:
                    self._compare(slot, at)
            self.samples += 1

    def _compare(self, slot: str, at: int) -> None:
        try:
            allowed = max(forgettable(committed()) for committed in self._queries[slot])
        except (OSError, IndexError, ValueError):
            # Spark may be writing the files.
            return
        if at > allowed and not self.found:
            self.found.append(
                f"the slot {slot} stands at {at >> 32:X}/{at & 0xFFFFFFFF:X}, ahead of what is committed: "
                f"{allowed >> 32:X}/{allowed & 0xFFFFFFFF:X}"
            )


@contextmanager
def watched(
    dsn: str, slot: str, committed: Committed, connection: psycopg.Connection[Any] | None = None
) -> Iterator[None]:
    """Watch one query while the block runs, over a connection of its own or the given one. Raises Ahead at the end."""
    one = Watch(dsn, connection)
    one.add(slot, committed)
    try:
        yield
    finally:
        one.stop()
    if one.found:
        raise Ahead(one.found[0])


_watches: dict[str, Watch] = {}


def watch(dsn: str, slot: str, committed: Committed) -> None:
    """Watch the query that reads `slot`, of the server behind `dsn`, until the test ends."""
    _watches.setdefault(dsn, Watch(dsn)).add(slot, committed)


@contextmanager
def moving(dsn: str) -> Iterator[None]:
    """Let the test drop, create or move slots of the server within the block."""
    found = _watches.get(dsn)
    if found is None:
        yield
        return
    with found.moving():
        yield


def check() -> None:
    """Raise Ahead if a slot was ahead since the test began. Harnesses call it at every step."""
    for one in _watches.values():
        if one.found:
            raise Ahead(one.found[0])


def stop() -> None:
    """End all watches. Raises Ahead if a slot was ahead."""
    watches = list(_watches.values())
    _watches.clear()
    for one in watches:
        one.stop()
    for one in watches:
        if one.found:
            raise Ahead(one.found[0])


@pytest.fixture(autouse=True)
def _acknowledgements_follow_commits() -> Iterator[None]:
    """Fail the test if a slot stands ahead of the commits of its query."""
    yield
    stop()
