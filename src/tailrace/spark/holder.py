"""The process that takes snapshots for Spark's reads and keeps them open: the one that plans a read ends before its
tasks begin, and Spark plans the reads of a DataFrame once, however many actions it has.

It is made by the planning process, gets the configuration by a pipe, gives the tasks of a snapshot back by another one,
and stays. In a local session the tasks of each action ask it for a snapshot of that action, over a socket of this host.
On a cluster they cannot reach it, and read the one that was taken with the plan. It ends when the process that serves
Spark's driver does, or when no task has read for `read.hold.ms`.
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
    from tailrace.connectors.held import Held
    from tailrace.events.settings import EventSettings
    from tailrace.log.planner import Task

log = logging.getLogger("tailrace")

_LOOK_S = 1.0
"""How often it looks whether it is still needed."""
_HOLD_MS = 600_000
"""For so long a connector whose snapshots need nothing that is kept open is asked for others."""
_FRESH_S = 1.0
"""For so long the snapshot that was taken with the plan is one of the action that has it planned."""
_LOAD_AGAIN = "Load the DataFrame again: that takes a new snapshot. read.hold.ms says how long one is kept unread."


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan knows of its holder: the tasks of a first snapshot, and where the holder is asked for others."""

    tasks: Sequence[Task]
    address: Any
    key: bytes = field(repr=False)


@contextmanager
def asked(planned: Planned, action: str, place: int, count: int) -> Iterator[Sequence[Task]]:
    """The tasks of one of `count` partitions, of the snapshot that all tasks of an action read. Worker.

    Raises TailraceError as the connector does, ProcessLost where there is no holder any more.
    """
    try:
        connection = Client(planned.address, authkey=planned.key)
    except OSError:
        raise ProcessLost("The process that takes the snapshots of this DataFrame has ended.", _LOAD_AGAIN) from None
    # the holder takes the end of the connection for the end of the reading
    with connection:
        try:
            connection.send((action, place, count))
            found = connection.recv()
        except (EOFError, OSError):
            raise ProcessLost("The process that holds the snapshot has ended.", "Read again.") from None
        if isinstance(found, TailraceError):
            raise found
        yield found


def planned(config: Config, settings: EventSettings) -> Planned:
    """Take a snapshot that a new process keeps open, and that takes others. Planning process.

    Raises TailraceError as the connector does; ProcessLost where the process ends before it has given an answer.
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
        # the parent is Spark's: it is there for as long as its driver is
        key = secrets.token_bytes(32)
        child.stdin.write(pickle.dumps((config, settings, os.getppid(), key)))
        child.stdin.close()
        said = child.stdout.read()
    # it outlives this process, and nobody waits for its end
    child.returncode = 0
    if not said:
        raise ProcessLost("The process that holds the snapshot has ended.", "See its log above, and read again.")
    found = pickle.loads(said)
    if isinstance(found, TailraceError):
        raise found
    tasks, address = found
    return Planned(tasks, address, key)


@dataclass(slots=True)
class _Open:
    """A snapshot: how many tasks read it now, which partitions were read to their ends, and since when nobody reads."""

    held: Held
    idle_since: float
    reading: int = 0
    done: set[int] = field(default_factory=set)
    count: int = 0

    @property
    def is_over(self) -> bool:
        return not self.reading and 0 < self.count <= len(self.done)


class Snapshots:
    """The snapshots of one DataFrame, one for each action; `first` is that of the plan. Holder process.

    `take` takes another one. A snapshot that all partitions have read goes when another action begins, any other one
    when nobody has read it for `hold_s` seconds.
    """

    def __init__(
        self, first: Held, take: Callable[[], Held], hold_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first: _Open | None = _Open(first, clock())
        self._planned_at = self._idle_since = clock()
        self._take, self._hold_s, self._clock = take, hold_s, clock
        self._open: dict[str, _Open] = {}
        self._over: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def reading(self, action: str, place: int, count: int) -> Iterator[Sequence[Task]]:
        """The tasks of a partition, while it is read. Raises TailraceError."""
        with self._lock:
            self._idle_since = self._clock()
            one = self._of(action)
            one.reading += 1
            one.count = count
        try:
            yield one.held.tasks[place::count]
            one.done.add(place)
        finally:
            with self._lock:
                one.reading -= 1
                one.idle_since = self._idle_since = self._clock()

    def _of(self, action: str) -> _Open:
        if action in self._over:
            raise PrerequisiteError("The snapshot of this action is no longer kept.", _LOAD_AGAIN)
        if action not in self._open:
            for name, one in list(self._open.items()):
                if one.is_over:
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
        """Return False when nobody has read for too long; close what nobody has read for as long. Raises TailraceError
        where the snapshot of the plan is lost."""
        with self._lock:
            now = self._clock()
            if self._first is not None:
                if self._first.held.stays and self._first.held.is_read():
                    self._first.idle_since = now
                return now - self._first.idle_since < self._hold_s
            for name, one in list(self._open.items()):
                if not one.reading and now - one.idle_since >= self._hold_s:
                    self._end(name)
            return bool(self._open) or now - self._idle_since < self._hold_s

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for one in (*self._open.values(), *([] if self._first is None else [self._first])):
                one.held.close()
            self._open, self._first = {}, None


def serve(listener: Listener, snapshots: Snapshots) -> None:
    """Answer tasks, each in a thread of its own, until the listener is closed. Holder process."""
    while True:
        try:
            connection = listener.accept()
        except OSError:
            return
        except Exception:
            # whoever does not know the key
            continue
        threading.Thread(target=_answer, args=(connection, snapshots), daemon=True).start()


def _answer(connection: Connection, snapshots: Snapshots) -> None:
    with connection, suppress(OSError, EOFError):
        action, place, count = connection.recv()
        try:
            with snapshots.reading(action, place, count) as tasks:
                connection.send(tasks)
                with suppress(EOFError):
                    # the end of the connection is the end of the reading
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
    """Give up what came from the parent: whoever waits for its output would wait for this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)


def main() -> int:
    config, settings, parent, key = pickle.loads(sys.stdin.buffer.read())
    from tailrace.connectors import registry

    reading = registry.find(config.connector).load_held()
    assert reading is not None
    try:
        held = reading(config, settings)
    except TailraceError as error:
        sys.stdout.buffer.write(pickle.dumps(error))
        return error.exit_code
    snapshots = Snapshots(held, lambda: reading(config, settings), (config.get("read.hold.ms") or _HOLD_MS) / 1000)
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
