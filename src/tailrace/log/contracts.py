"""What a database brings so that the engine can plan batches over its log. No I/O.

`O` is the type of its offsets, `P` that of positions in its log, `T` that of the end of a query that ends at the
present. Four kinds of positions must not be taken for each other, and have types of their own in each connector:

- *read*: only from what the server has sent, never from what was asked for;
- *planned*: where a batch ends that is in Spark's offset log, or is going to be;
- *committed*: what Spark asks to go on from, which is in its commit log;
- *forgettable*: made of what is committed alone.

What a call does is kept when it has succeeded; see `Source.has_kept`.
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
"""An idle position is committed once so much of the log has gone by without captured change."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """How many rows and bytes a batch may have at most; None: no limit."""

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
        """Whether Spark asks for all that there is at once."""
        return self.max_rows is None and self.max_bytes is None


class Place(Protocol):
    """A position in a log."""

    def is_before(self, other: Self, /) -> bool: ...


class Snapshot(Protocol):
    """A snapshot that is running or done, as an offset has it."""

    @property
    def is_complete(self) -> bool: ...


class QueryOffset(Protocol):
    """How far a query has come, as Spark stores it; immutable. Made without arguments it is the first one."""

    @property
    def log(self) -> Any:
        """How far the log has been read, of the type `P`."""
        ...

    @property
    def snapshot(self) -> Any:
        """The latest snapshot until the first batch of the log after it."""
        ...

    @property
    def heartbeat_ms(self) -> int:
        """The time of the newest heartbeat, in ms since 1970, 0 when there was none."""
        ...

    @property
    def progress(self) -> Progress: ...

    @property
    def is_initial(self) -> bool: ...

    @property
    def place(self) -> int | str:
        """Where records stand that belong to no change, as `position_text` takes it."""
        ...

    def to_json(self) -> Offset: ...

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The offset of what `to_json` gives. Raises PositionLost for anything else."""
        ...

    def going_on(self, snapshot: Any, progress: Progress) -> Self:
        """The same place in the log, with another snapshot and progress."""
        ...


O = TypeVar("O", bound=QueryOffset)  # noqa: E741
P = TypeVar("P", bound=Place)
T = TypeVar("T")


class OpenLog(ABC, Generic[O, P, T]):
    """A log that is being read from a position on. Every method raises TailraceError or what `Source.called` explains.

    What stands here is of a log that is asked for changes at each call; one that a thread reads has more to say.
    `windows` are those of incremental snapshots, None where the configuration has no signals. `outlives_snapshots`
    says whether it can be read on behind a blocking snapshot that has begun meanwhile.
    """

    windows: Windows[Any, Any, Any, Any, Any, Any] | None = None
    outlives_snapshots = True

    @property
    def version(self) -> int:
        """Changes when something is read."""
        return 0

    @abstractmethod
    def committed(self, since: O) -> None:
        """`since` is in Spark's commit log: nothing before it is asked for again."""

    def refresh(self) -> None:
        """Have what the server has sent until now, if that is a matter of a moment."""
        return

    def check(self) -> None:
        """Raise what reading has failed with, if it has and nothing that was read is left."""
        return

    @abstractmethod
    def wait(self, seconds: float, since: int) -> None:
        """Wait until something is read after `version` was `since`, at most `seconds`."""

    def is_filling(self, max_bytes: int, target: T | None = None) -> bool:
        """Whether a backlog, or what precedes `target`, is being read, and less than half of a batch of `max_bytes` is
        there."""
        return False

    @abstractmethod
    def plan(self, start: P, limits: Limits, target: T | None) -> P:
        """The end of the next batch behind `start`, not past `target`; `start` when there is no change for it.

        It ends at the end of a transaction, unless one transaction alone is more than the limits allow.
        """

    @abstractmethod
    def whole(self, start: P) -> P:
        """Where a batch behind `start` would end that no limit cuts."""

    @abstractmethod
    def has_read(self, target: T) -> bool:
        """Whether everything up to `target` has been read."""

    def has_seen(self, target: T) -> bool:
        """Whether the last `plan` has looked at everything up to `target`: since `has_read` was asked, a session may be
        lost, and the next one be with a replica that is behind."""
        return True

    @abstractmethod
    def idle_position(self, start: P) -> P:
        """How far the log holds no captured change behind `start`; `start` when one waits or nothing is known."""

    @abstractmethod
    def is_far(self, start: P, idle: P) -> bool:
        """Whether the idle position `idle` is so far behind `start` that an offset should say so without delay."""

    @abstractmethod
    def window_end(self, progress: Progress, start: P, limits: Limits, target: T | None) -> P | None:
        """Open the next window; the end of its batch, which may be behind `target`.

        None when no snapshot runs, or the log is too far behind: the batch has to hold all of it up to the window.
        """

    @abstractmethod
    def changes(self, start: P, end: P) -> Any:
        """The changes of the batch `(start, end]`, as windows take them."""

    @abstractmethod
    def offset(self, since: O, end: P, heartbeat_ms: int, progress: Progress) -> O:
        """The offset of the batch from `since` to `end`, without a snapshot."""

    @abstractmethod
    def tasks(self, since: O, until: O, end: Offset, beside: Sequence[Task]) -> list[Task]:
        """The tasks of the batch `(since, until]`: its changes, `beside`, and the rows of its window.

        `end` is `until` as Spark has it. A batch that was planned before a restart is read again.
        """

    def close(self) -> None:
        """Release what is held open."""
        return


class Snapshots(ABC, Generic[O]):
    """Initial and blocking snapshots of the captured tables, read in chunks while the log waits."""

    notifications: PendingNotifications[Any, Any]

    @abstractmethod
    def start(self, since: O, *, fresh: bool) -> O:
        """Plan a snapshot: the offset at its beginning, with none of its chunks done.

        `fresh`: the log is read from where the snapshot begins, since nothing of it was read or is left.
        """

    @abstractmethod
    def block(self, since: O) -> O | None:
        """Plan the snapshot of the tables in `since.progress.blocking`, likewise.

        None when the log has to go on first. Raises ConfigError where what was asked for cannot be read.
        """

    @abstractmethod
    def count(self) -> Mapping[Any, int]:
        """How many rows the snapshot that was planned last has of each table, in the order of reading."""

    @abstractmethod
    def advance(self, since: O, max_rows: int | None, *, everything: bool) -> Any:
        """The snapshot after the next chunks: as many for each batch as keep every core busy for a while."""

    def close(self) -> None:
        """End what a running snapshot holds open."""
        return


class Source(ABC, Generic[O, P, T]):
    """A database as one query sees it. Construction does no I/O.

    `memory` are the objects that remember something between two calls and are put back when one fails (see `Undo`).
    """

    snapshots: Snapshots[O]
    memory: Sequence[object] = ()

    @abstractmethod
    def called(self, work: Callable[[], Result]) -> Result:
        """The result of a call of the query, with the driver's errors raised as TailraceErrors.

        `work` may be done again after an error: one that fails has changed nothing.
        """

    def has_kept(self, log: OpenLog[O, P, T] | None) -> bool:
        """A call has failed. Whether its sessions and `log` are good for another try; else what it had begun is given
        up, and the engine begins anew, as after a crash."""
        return True

    @abstractmethod
    def prepare(self, since: O) -> None:
        """What comes before everything else: what the server needs, and whether it can be read at all."""

    @abstractmethod
    def lost(self, since: O) -> str:
        """Why the log no longer reaches `since`, as a sentence; empty where it does; asked where that is mended."""

    @abstractmethod
    def first(self) -> O:
        """Where a query without checkpoint and without snapshot begins to read the log."""

    @abstractmethod
    def open(self, since: O, until: O | None, target: T | None) -> OpenLog[O, P, T]:
        """Begin to read the log at `since`; `until` is the end of a batch that is read again after a restart."""

    @abstractmethod
    def present(self) -> T:
        """The end of what is committed now."""

    @abstractmethod
    def tasks(self, since: O, until: O) -> list[Task]:
        """The tasks of the batch that are not of its changes: chunks of its snapshot, alterations of tables."""

    def look_again(self) -> None:
        """See whether the server has changed what the start has found of the tables, as far as the log does not tell
        it. Asked now and then, and at the end of a query that ends. Raises what makes it useless to go on."""
        return

    def beat(self) -> None:
        """What is done at each heartbeat."""
        return

    @abstractmethod
    def status(self, log: OpenLog[O, P, T] | None) -> Offset | None:
        """The newest position that is known, and the running snapshot; None when nothing is known."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held open."""
