"""Progress in Spark's checkpoint, and the watch over the server's slot, which never stands ahead of the commit log."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg


def newest_commit(checkpoint: Path) -> int:
    """Return the number of the latest committed batch; -1 before the first."""
    try:
        return max((int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), default=-1)
    except OSError:
        return -1


def offset(checkpoint: Path, number: int) -> dict[str, Any] | None:
    """Return the source's offset at the end of a batch; None if it cannot be read."""
    try:
        lines = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
        found = json.loads(lines[2])
    except (OSError, ValueError, IndexError):
        return None
    return found if isinstance(found, dict) else None


def lsn(text: str) -> int:
    """Return the value of a pg_lsn's text."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def safe(found: dict[str, Any]) -> int:
    """Return the LSN up to which the server may discard the log, by an offset."""
    log = found["log"]
    return max(lsn(log.get(name, "0/0")) for name in ("end", "idle"))


class SlotWatch(threading.Thread):
    """A thread that samples the slot and then the commit log until it is stopped. `faults` holds moments with the slot
    ahead."""

    def __init__(self, dsn: str, slot: str, checkpoint: Path) -> None:
        super().__init__(name="slot-watch", daemon=True)
        self._dsn, self._slot, self._checkpoint = dsn, slot, checkpoint
        self._over = threading.Event()
        self.faults: list[str] = []
        self.samples = 0

    def stop(self) -> None:
        self._over.set()
        self.join(30)

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                    while not self._over.wait(0.1):
                        self._sample(connection)
            except psycopg.Error:
                self._over.wait(0.2)

    def _sample(self, connection: psycopg.Connection[Any]) -> None:
        found = connection.execute(
            "select (confirmed_flush_lsn - '0/0')::int8 from pg_replication_slots where slot_name = %s", (self._slot,)
        ).fetchone()
        if found is None or found[0] is None:
            return
        # Read after the slot, so that a commit in between raises no false alarm.
        number = newest_commit(self._checkpoint)
        stored = offset(self._checkpoint, number) if number >= 0 else None
        if stored is None:
            return
        self.samples += 1
        allowed = safe(stored)
        if found[0] > allowed:
            self.faults.append(
                f"{time.strftime('%H:%M:%S')}: the slot stands at {found[0]:X}, and batch {number}, the newest that is "
                f"committed, ends at {allowed:X}: {found[0] - allowed} bytes ahead"
            )


class CleanUp(threading.Thread):
    """A thread that removes from the server, as early as allowed, what Spark has committed, until it is stopped.

    `remove` gets the source's offset at the end of the newest committed batch; it returns False if that names no place.
    `is_expected` returns True for an error of a server that is killed. `faults` holds other errors.
    """

    def __init__(
        self, checkpoint: Path, remove: Callable[[dict[str, Any]], bool], is_expected: Callable[[Exception], bool]
    ) -> None:
        super().__init__(name="clean-up", daemon=True)
        self._checkpoint, self._remove, self._is_expected = checkpoint, remove, is_expected
        self._over = threading.Event()
        self.faults: list[str] = []
        self.samples = 0

    def stop(self) -> None:
        self._over.set()
        self.join(60)

    def run(self) -> None:
        while not self._over.wait(2):
            number = newest_commit(self._checkpoint)
            stored = offset(self._checkpoint, number) if number >= 0 else None
            try:
                self.samples += stored is not None and self._remove(stored)
            except Exception as error:
                if not self._is_expected(error):
                    self.faults.append(f"the clean-up failed: {type(error).__name__}: {error}")
