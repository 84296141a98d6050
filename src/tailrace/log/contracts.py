"""Contracts between the engine, which plans batches over a log, and each database. No I/O.

`O` is the type of a database's offsets, `P` of positions in its log, `T` of the target at which a query that ends at
the present stops. Each connector has separate types for four kinds of positions, so that they are never mixed up:

- *read*: derived only from data that the server has sent, never from what was requested;
- *planned*: the end of a batch that is, or will be, in Spark's offset log;
- *committed*: the position from which Spark continues; it is in Spark's commit log;
- *forgettable*: derived from committed positions alone.

The effects of a call are kept only if it succeeds; see `Source.has_kept`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from tailrace.log.notifications import PendingNotifications
from tailrace.log.planner import Offset, Task
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.windows import Windows

Result = TypeVar("Result")
IDLE_BYTES = 16 << 20
"""Bytes of log without a captured change after which an idle position is committed."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest number of rows and bytes of a batch; None: no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None

    @property
    def rows(self) -> int:
        return self.max_rows or UNLIMITED

    @property
    def bytes(self) -> int:
        return self.max_bytes or UNLIMITED

    @property
    def are_none(self) -> bool:
        """True if Spark asks for everything that is available."""
        return self.max_rows is None and self.max_bytes is None


class Place(Protocol):
    """A position in a log."""

    def is_before(self, other: Self, /) -> bool: ...


class Snapshot(Protocol):
    """A snapshot, running or complete, as an offset stores it."""

    @property
    def is_complete(self) -> bool: ...


class QueryOffset(Protocol):
    """An immutable position of a query, as Spark stores it. Without arguments it is the initial offset."""

    @property
    def log(self) -> Any:
        """The position up to which the log has been read, of type `P`."""
        ...

    @property
    def snapshot(self) -> Any:
        """The latest snapshot, until the first batch of the log after it."""
        ...

    @property
    def heartbeat_ms(self) -> int:
        """Time of the newest heartbeat, in ms since 1970; 0 if there was none."""
        ...

    @property
    def progress(self) -> Progress: ...

    @property
    def is_initial(self) -> bool: ...

    @property
    def place(self) -> int | str:
        """Position of records that belong to no change, in the form that `position_text` expects."""
        ...

    def to_json(self) -> Offset: ...

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the offset that `to_json` has written. Raises PositionLost for anything else."""
        ...

    def going_on(self, snapshot: Any, progress: Progress) -> Self:
        """Return an offset at the same place in the log with another snapshot and progress."""
        ...


O = TypeVar("O", bound=QueryOffset)  # noqa: E741
P = TypeVar("P", bound=Place)
T = TypeVar("T")


class OpenLog(ABC, Generic[O, P, T]):
    """A log that is open for reading from a position on. Every method raises TailraceError, or errors that
    `Source.called` translates.

    The defaults suit a log that is asked for changes at each call; a log that a thread reads overrides them. `windows`
    are those of incremental snapshots, None if the configuration has no signals. `outlives_snapshots` is True if the
    log can stay open during a blocking snapshot.
    """

    windows: Windows[Any, Any, Any, Any, Any, Any] | None = None
    outlives_snapshots = True

    @property
    def version(self) -> int:
        """A number that changes whenever something is read."""
        return 0

    @abstractmethod
    def committed(self, since: O) -> None:
        """Note that `since` is in Spark's commit log: nothing before it will be requested again."""

    def refresh(self) -> None:
        """Fetch what the server has sent until now, if that takes only a moment."""
        return

    def check(self) -> None:
        """Raise the error that ended reading, if one did and nothing that was read is left."""
        return

    @abstractmethod
    def wait(self, seconds: float, since: int) -> None:
        """Wait until something is read after `version` was `since`, at most `seconds`."""

    def is_filling(self, max_bytes: int, target: T | None = None) -> bool:
        """Return True while reading is behind (a backlog, or `target` not reached) and less than half of `max_bytes` is
        here."""
        return False

    @abstractmethod
    def plan(self, start: P, limits: Limits, target: T | None) -> P:
        """Return the end of the next batch after `start`, not past `target`; `start` if there is no change for it.

        The batch ends at the end of a transaction, unless a single transaction exceeds the limits.
        """

    @abstractmethod
    def whole(self, start: P) -> P:
        """Return the end of a batch after `start` without limits."""

    @abstractmethod
    def has_read(self, target: T) -> bool:
        """Return True if everything up to `target` has been read."""

    def has_seen(self, target: T) -> bool:
        """Return True if the last `plan` saw everything up to `target`.

        This may be False although `has_read` was True: a session was lost meanwhile and the next one reached a replica
        that is behind.
        """
        return True

    @abstractmethod
    def idle_position(self, start: P) -> P:
        """Return the position up to which the log holds no captured change after `start`.

        `start` if a change waits or nothing is known.
        """

    @abstractmethod
    def is_far(self, start: P, idle: P) -> bool:
        """Return True if `idle` is so far after `start` that an offset should store it without delay."""

    @abstractmethod
    def window_end(self, progress: Progress, start: P, limits: Limits, target: T | None) -> P | None:
        """Open the next window and return the end of its batch, which may be after `target`.

        None if no snapshot runs or the log is too far behind: the batch must hold all of the log up to the window.
        """

    @abstractmethod
    def changes(self, start: P, end: P) -> Any:
        """Return the changes of the batch `(start, end]`, in the form that windows expect."""

    @abstractmethod
    def offset(self, since: O, end: P, heartbeat_ms: int, progress: Progress) -> O:
        """Return the offset of the batch from `since` to `end`, without a snapshot."""

    @abstractmethod
    def tasks(self, since: O, until: O, end: Offset, beside: Sequence[Task]) -> list[Task]:
        """Return the tasks of the batch `(since, until]`: its changes, `beside`, and the rows of its window.

        `end` is `until` as Spark stores it. A batch that was planned before a restart is read again.
        """

    def close(self) -> None:
        """Release the resources."""
        return


class Snapshots(ABC, Generic[O]):
    """Initial and blocking snapshots of the captured tables, read in chunks while the log waits."""

    notifications: PendingNotifications[Any, Any]

    @abstractmethod
    def start(self, since: O, *, fresh: bool) -> O:
        """Plan a snapshot and return the offset at its beginning, with no chunk done.

        `fresh`: the log will be read from the snapshot's position, since nothing of it was read or it is lost.
        """

    @abstractmethod
    def block(self, since: O) -> O | None:
        """Plan the snapshot of the tables in `since.progress.blocking` and return the offset at its beginning.

        None if the log must be read further first. Raises ConfigError if the tables cannot be read.
        """

    @abstractmethod
    def count(self) -> Mapping[Any, int]:
        """Return the number of rows of each table of the latest planned snapshot, in the order of reading."""

    @abstractmethod
    def advance(self, since: O, max_rows: int | None, *, everything: bool) -> Any:
        """Return the snapshot after the next chunks: enough of them per batch to keep every core busy for a while."""

    def close(self) -> None:
        """Release the resources of a running snapshot."""
        return


class Source(ABC, Generic[O, P, T]):
    """A database as one query sees it. Construction does no I/O.

    `memory` lists the objects that are rolled back when a call fails (see `Undo`).
    """

    snapshots: Snapshots[O]
    memory: Sequence[object] = ()

    @abstractmethod
    def called(self, work: Callable[[], Result]) -> Result:
        """Return the result of a call of the query, with the driver's errors raised as TailraceErrors.

        `work` may run again after an error, since a failed run changes nothing.
        """

    def has_kept(self, log: OpenLog[O, P, T] | None) -> bool:
        """Return True if, after a failed call, its sessions and `log` can be used for another try.

        Otherwise everything that was begun is given up, and the engine starts anew, as after a crash.
        """
        return True

    @abstractmethod
    def prepare(self, since: O) -> None:
        """Prepare the server, and raise if it cannot be read. Called before everything else."""

    @abstractmethod
    def lost(self, since: O) -> str:
        """Return the reason why the log no longer reaches `since`, as a sentence; "" if it does.

        Called only in snapshot modes that mend a lost position.
        """

    @abstractmethod
    def first(self) -> O:
        """Return the offset at which a query without checkpoint and without snapshot begins to read the log."""

    @abstractmethod
    def open(self, since: O, until: O | None, target: T | None) -> OpenLog[O, P, T]:
        """Begin to read the log at `since`; `until` is the end of a batch that is read again after a restart."""

    @abstractmethod
    def present(self) -> T:
        """Return the end of what is committed now."""

    @abstractmethod
    def tasks(self, since: O, until: O) -> list[Task]:
        """Return the tasks of the batch other than its changes: chunks of its snapshot, alterations of tables."""

    def look_again(self) -> None:
        """Check the tables for changes since the start that the log does not report.

        Called now and then, and at the end of a query that ends at the present. Raises if going on is useless.
        """
        return

    def beat(self) -> None:
        """Run the actions of a heartbeat."""
        return

    @abstractmethod
    def status(self, log: OpenLog[O, P, T] | None) -> Offset | None:
        """Return the newest known position and the running snapshot; None if nothing is known."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources."""
