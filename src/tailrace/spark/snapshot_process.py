"""The holder: a process that takes snapshots for Spark's batch reads and keeps them open.

The planning process cannot do this: it ends before the tasks begin. Moreover, Spark plans a DataFrame's read once,
however many actions the DataFrame has. The planning process starts the holder, sends it the configuration through a
pipe and gets the tasks of a first snapshot back. In a local session, the tasks of each action ask the holder for the
action's snapshot, over a socket of this host. On a cluster, tasks cannot reach the holder, and read the first snapshot.
The holder ends with the process that serves Spark's driver, or when no task has read for `read.hold.ms`.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import TYPE_CHECKING, Any

from tailrace.errors import PrerequisiteError, ProcessLost, TailraceError

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.connectors.consistent_read import ConsistentRead
    from tailrace.events.event_settings import EventSettings
    from tailrace.log.contracts import Task

log = logging.getLogger("tailrace")

_LOOK_S = 1.0
"""Seconds between checks whether the holder is still needed."""
_HOLD_MS = 600_000
"""Time without readers after which the holder ends, in ms, for connectors without the option read.hold.ms."""
_FRESH_S = 1.0
"""Seconds for which the plan's snapshot may serve the first action; later actions take a new snapshot."""
_LOAD_AGAIN = "Load the DataFrame again: that takes a new snapshot. read.hold.ms says how long one is kept unread."


@dataclass(frozen=True, slots=True)
class SnapshotHolder:
    """A started holder: the tasks of its first snapshot, and the address and key for requests of other snapshots."""

    tasks: Sequence[Task]
    address: Any
    key: bytes = field(repr=False)


@contextmanager
def asked(planned: SnapshotHolder, action: str, place: int, count: int) -> Iterator[Sequence[Task]]:
    """Ask the holder for the tasks of partition `place` of `count`, in the action's snapshot. Worker.

    The snapshot stays open inside the block. Raises the connector's TailraceErrors, and ProcessLost if the holder has
    ended.
    """
    try:
        connection = Client(planned.address, authkey=planned.key)
    except OSError:
        raise ProcessLost("The process that takes the snapshots of this DataFrame has ended.", _LOAD_AGAIN) from None
    with connection:
        try:
            connection.send((action, place, count))
            found = connection.recv()
        except (EOFError, OSError):
            raise ProcessLost("The process that holds the snapshot has ended.", "Read again.") from None
        if isinstance(found, TailraceError):
            raise found
        yield found
        # not reached by a task that dies: Spark runs it again, and it needs the same snapshot
        with suppress(OSError):
            connection.send(None)


def planned(config: Config, settings: EventSettings) -> SnapshotHolder:
    """Start a holder and have it take a first snapshot. Planning process.

    Raises the connector's TailraceErrors, and ProcessLost if the holder ends without an answer.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        # the parent belongs to Spark, and lives as long as the driver
        key = secrets.token_bytes(32)
        child.stdin.write(pickle.dumps((config, settings, os.getppid(), key)))
        child.stdin.close()
        answer = child.stdout.read()
    # prevents a warning of Popen: the holder outlives this process, and nobody waits for its end
    child.returncode = 0
    if not answer:
        raise ProcessLost("The process that holds the snapshot has ended.", "See its log above, and read again.")
    found = pickle.loads(answer)
    if isinstance(found, TailraceError):
        raise found
    tasks, address = found
    return SnapshotHolder(tasks, address, key)


@dataclass(slots=True)
class _Open:
    """An open snapshot: its current readers, the partitions that were read, and the time of the last read."""

    held: ConsistentRead
    idle_since: float
    reading: int = 0
    done: set[int] = field(default_factory=set)
    count: int = 0

    @property
    def is_over(self) -> bool:
        return not self.reading and 0 < self.count <= len(self.done)


class FrameSnapshots:
    """A DataFrame's snapshots, one per action. `first` was taken for the plan; `take` takes another snapshot. Holder.

    A snapshot whose partitions have all been read is closed when another action begins; any other snapshot when nobody
    has read it for `hold_s` seconds.
    """

    def __init__(
        self,
        first: ConsistentRead,
        take: Callable[[], ConsistentRead],
        hold_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first: _Open | None = _Open(first, clock())
        self._planned_at = self._idle_since = clock()
        self._take, self._hold_s, self._clock = take, hold_s, clock
        self._open: dict[str, _Open] = {}
        self._over: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def reading(self, action: str, place: int, count: int) -> Iterator[Sequence[Task]]:
        """Yield the tasks of a partition, and keep their snapshot open inside the block. Raises TailraceError."""
        with self._lock:
            self._idle_since = self._clock()
            snapshot = self._of(action)
            snapshot.reading += 1
            snapshot.count = count
        try:
            yield snapshot.held.tasks[place::count]
            snapshot.done.add(place)
        finally:
            with self._lock:
                snapshot.reading -= 1
                snapshot.idle_since = self._idle_since = self._clock()

    def _of(self, action: str) -> _Open:
        if action in self._over:
            raise PrerequisiteError("The snapshot of this action is no longer kept.", _LOAD_AGAIN)
        if action not in self._open:
            for name, snapshot in list(self._open.items()):
                if snapshot.is_over:
                    self._end(name)
            first, self._first = self._first, None
            if first is not None and self._clock() - self._planned_at > _FRESH_S:
                first.held.close()
                first = None
            self._open[action] = first or _Open(self._take(), self._clock())
        return self._open[action]

    def _end(self, action: str) -> None:
        self._open.pop(action).held.close()
        self._over.add(action)

    def is_wanted(self) -> bool:
        """Return False if nobody has read for `hold_s` seconds; close each snapshot that nobody has read for this time.

        Raises TailraceError if the snapshot of the plan is lost.
        """
        with self._lock:
            now = self._clock()
            if self._first is not None:
                if self._first.held.is_read():
                    self._first.idle_since = now
                return now - self._first.idle_since < self._hold_s
            for name, snapshot in list(self._open.items()):
                if not snapshot.reading and now - snapshot.idle_since >= self._hold_s:
                    self._end(name)
            return bool(self._open) or now - self._idle_since < self._hold_s

    def close(self) -> None:
        """Close all snapshots."""
        with self._lock:
            for snapshot in (*self._open.values(), *([] if self._first is None else [self._first])):
                snapshot.held.close()
            self._open, self._first = {}, None


def serve(listener: Listener, snapshots: FrameSnapshots) -> None:
    """Answer tasks, each in a new thread, until the listener is closed. Holder."""
    while True:
        try:
            connection = listener.accept()
        except OSError:
            return
        except Exception:
            # a peer without the key
            continue
        threading.Thread(target=_answer, args=(connection, snapshots), daemon=True).start()


def _answer(connection: Connection, snapshots: FrameSnapshots) -> None:
    with connection, suppress(OSError, EOFError):
        action, place, count = connection.recv()
        try:
            with snapshots.reading(action, place, count) as tasks:
                connection.send(tasks)
                # EOFError means that the task ended before it had read the partition
                connection.recv()
        except TailraceError as error:
            connection.send(error)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _quiet() -> None:
    """Close the standard files inherited from the parent: a process that waits for their end would wait for the
    holder."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def main() -> int:
    config, settings, parent, key = pickle.loads(sys.stdin.buffer.read())
    from tailrace.connectors import registry

    reading = registry.find(config.connector).load_consistent_read()
    assert reading is not None
    try:
        held = reading(config, settings)
    except TailraceError as error:
        sys.stdout.buffer.write(pickle.dumps(error))
        return error.exit_code
    snapshots = FrameSnapshots(held, lambda: reading(config, settings), (config.get("read.hold.ms") or _HOLD_MS) / 1000)
    try:
        with Listener(authkey=key) as listener:
            threading.Thread(target=serve, args=(listener, snapshots), daemon=True).start()
            sys.stdout.buffer.write(pickle.dumps((held.tasks, listener.address)))
            sys.stdout.buffer.flush()
            _quiet()
            while _is_alive(parent) and snapshots.is_wanted():
                time.sleep(_LOOK_S)
    except TailraceError as error:
        log.warning("the snapshot is lost: %s", error.message)
        return error.exit_code
    finally:
        snapshots.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
