"""Contracts of the log engine: what Spark calls, what a database brings so that its log is read, and how it is planned.

`Planner` and `Task` are Spark's side. `LogFeed` reads a log and `IndexedRun` keeps what was read. `Source`, `Snapshots`
and `WindowSource` say what a batch has. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from tailrace.columns.batch import Bytes, Int64s
from tailrace.log.notifications import PendingNotifications
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.windows import Windows

# --- planner and tasks ------------------------------------------------------------------------------------------------

Offset = dict[str, Any]
"""A position as Spark stores it: strings, integers and booleans; equal positions have equal JSON text."""


class Task(Protocol):
    """A part of a batch. Pickled by the planner, read by workers, possibly several times."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `EventSettings.row_schema`, in order; the same events at every call."""
        ...


class Planner(Protocol):
    """The only reader of a source, in the planner process. Construction does no I/O; the first call may.

    A position lies at the end of a transaction or within one; a batch is `(start, end]`. All methods raise
    TailraceError.
    """

    def initial_offset(self) -> Offset:
        """Return the constant offset at which a query without checkpoint starts."""
        ...

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        """Return the end of the next batch after `start`. Spark has committed `start`, so the source may discard all
        before.

        Waits a moment for changes; returns `start` if there are none. None means no limit.
        """
        ...

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks of the batch `(start, end]`, which may have been planned before a restart."""
        ...

    def stop_at_present(self) -> None:
        """Let `latest_offset` go no further than what is committed in the database now (Trigger.AvailableNow)."""
        ...

    def status(self) -> Offset | None:
        """Return the newest position that is known to exist in the database."""
        ...

    def close(self) -> None:
        """Release connections; calls after it are errors."""
        ...


# --- the log ----------------------------------------------------------------------------------------------------------

# Retries when the disk refuses data: it does not become free by itself, and the server keeps its log meanwhile.
DISK_RETRIES = 8


class Position(Protocol):
    """A place in the log."""

    def is_before(self, other: Self, /) -> bool: ...


Pos = TypeVar("Pos", bound=Position)
Upto = TypeVar("Upto")
Committed = TypeVar("Committed")
Taken = TypeVar("Taken")
Upto_contra = TypeVar("Upto_contra", contravariant=True)
Committed_contra = TypeVar("Committed_contra", contravariant=True)
Taken_co = TypeVar("Taken_co", covariant=True)


class IndexedRun(Protocol[Pos, Upto_contra, Taken_co]):
    """A run of the log: its raw bytes, and its rows, which are the captured changes in them, in log order."""

    @property
    def data(self) -> Bytes:
        """The raw bytes, which may be on disk."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def first_after(self, position: Pos, /) -> int:
        """Return the index of the first row after `position`."""

    def rows_upto(self, upto: Upto_contra, /) -> int:
        """Return the number of rows of a batch that must not pass `upto`."""

    def size(self, first: int, last: int, /) -> int:
        """Return the bytes from row `first` to the end of row `last` - 1; 0 without rows."""

    def sizes(self, first: int, last: int, /) -> Int64s:
        """Return the bytes from row `first` to the end of each of the rows `[first, last)`."""

    def end(self, start: Pos, first: int, last: int, upto: Upto_contra | None, /) -> Pos | None:
        """Return the last place among the rows up to `last` where a batch should end; None if there is none.

        The batch begins at `start` and has the rows from `first` on; -1: it already has rows of earlier stretches.
        """

    def cut(self, row: int, start: Pos, /) -> Pos:
        """Return the position after `row`, even within a transaction, for a batch that begins at `start`."""

    def leads_to(self, before: Pos, /) -> Pos:
        """Return the position up to which the log has been read with this stretch; without it, that was `before`."""

    def is_passed(self, position: Pos, /) -> bool:
        """Return True if batches that begin at `position` need nothing of this stretch."""

    def joined(self, other: Self, /) -> Self | None:
        """Return this stretch and the next one as one; None to keep both."""

    def extent(self, first: int, last: int, /) -> tuple[int, int]:
        """Return the part of `data` that the rows `[first, last)` need."""

    def without_data(self) -> Self:
        """Return a copy without raw bytes. Its positions are still known."""

    def with_data(self, data: Bytes, low: int, high: int, /) -> Self:
        """Return a copy with `data`, the part `[low, high)` of the raw bytes, enough for the rows to be taken."""

    def taken(self, first: int, last: int, /) -> Taken_co:
        """Return the rows `[first, last)` in the form that a batch delivers."""


@dataclass(frozen=True, slots=True)
class Step(Generic[Pos, Upto, Taken]):
    """The result of one read: a stretch to keep. If `is_wanted` is False, nothing is lost without it."""

    stretch: IndexedRun[Pos, Upto, Taken]
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Setback:
    """A reason for a session's end that another session may mend.

    Failures of one `kind` are retried `limit` times in a row (-1: for ever), with pauses that double from `first` to
    `longest` seconds. `text` is for the log file and contains no data.
    """

    kind: str
    text: str
    limit: int
    first: float
    longest: float

    def of_disk(self) -> Setback:
        """Return a copy for a disk that has refused data."""
        return replace(self, kind="disk", limit=DISK_RETRIES if self.limit < 0 else min(self.limit, DISK_RETRIES))

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many earlier failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures, 64))


class LogFeed(Protocol[Pos, Committed_contra, Upto, Taken]):
    """A database's log after the part that has been kept. It knows nothing of Spark.

    The reader's thread calls the first part: `open`, then `read` and `keep` in turn, and `close` at the end of each
    session, whatever ended it. The planner's thread calls the second part meanwhile; its answers advance only once the
    stretch has been kept.
    """

    def open(self) -> None:
        """Begin a session after the last stretch that was kept."""

    def read(self, is_asked: bool, is_hurried: Callable[[], bool], /) -> Step[Pos, Upto, Taken] | None:
        """Return the next step; None if there is nothing new for a while.

        With `is_asked` a caller waits for what the server has sent until now. While `read` waits for the server, each
        `hurry` makes it ask `is_hurried` again; if that is True, it returns what is available.
        """

    def keep(self, step: Step[Pos, Upto, Taken], /) -> None:
        """Note that the stretch of the latest step has been kept. Never fails."""

    def rest(self) -> None:
        """Answer the server while nothing can be read, so that the session lasts."""

    def close(self) -> None:
        """End the session, if there is one."""

    def setback(self, error: Exception, /) -> Setback | None:
        """Return how to go on after `error` has ended the session; None if another session would fail too."""

    def lasting(self, error: BaseException, /) -> BaseException:
        """Return the error that the planner raises when no session follows."""

    @property
    def progress(self) -> int:
        """A number that grows with what the server has sent. Growth resets the count of failures."""

    @property
    def is_behind(self) -> bool:
        """True while a backlog is being read."""

    @property
    def is_prompt(self) -> bool:
        """True if `read` returns within a moment when it is asked."""

    def hurry(self) -> None:
        """Let `read` ask `is_hurried` again."""

    def want(self, target: int, /) -> None:
        """Read up to `target` soon, because a caller waits for it."""

    def has_read(self, target: int, /) -> bool:
        """Return True if everything before `target`, a place in the database's own numbers, has been kept."""

    def has_passed(self, position: Pos, /) -> bool:
        """Return True if no row up to `position` can follow any more."""

    def reached(self) -> Callable[[Pos], Pos]:
        """Return a function that moves a position to where the log has been read by now, if no row follows it.

        It returns the position unchanged if that is not earlier.
        """

    def forget(self, position: Committed_contra, /) -> Pos:
        """Let the server discard, in time, everything up to `position`; return it as a position."""


# --- batches ----------------------------------------------------------------------------------------------------------

pass

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
