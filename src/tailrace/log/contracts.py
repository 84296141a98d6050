"""Contracts of the log engine: the interface that Spark calls, and the classes that each database implements.

Spark calls a `Planner`, which `LogEngine` implements, and its `Task`s. A database implements a `Source`, a
`QueryOffset`, `Snapshots` and an `OpenLog`. For a log that a thread reads ahead, `LogReader` is most of the `OpenLog`;
it takes `IndexedRun`s from a `LogFeed`. Signals need a `tailrace.snapshot.windows.WindowSource` too. No I/O.

Unless a method says otherwise, the planner's main thread calls it, in the planner process, one call at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import pyarrow as pa

from tailrace.columns.batch import Bytes, Int64s
from tailrace.columns.table import TableSchema
from tailrace.log.notifications import PendingNotifications
from tailrace.log.retention import LogRetention
from tailrace.snapshot.progress import NO_PROGRESS, Progress
from tailrace.snapshot.windows import Windows

# --- planner and tasks ------------------------------------------------------------------------------------------------

Offset = dict[str, Any]
"""A position as Spark stores it: strings, integers and booleans; equal positions have equal JSON text."""


class Task(Protocol):
    """A part of a batch. Pickled by the planner, read by workers, possibly several times."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `EventSettings.row_schema`, in order; the same events at every call.

        A worker calls it; it has nothing but what was pickled. Raises TailraceError.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReaderState:
    """The state of the reader at a moment.

    `is_connected` is True while a session to the database stands. `setbacks` has the number of lost sessions by the
    kind of `Setback`. `read_bytes` counts the bytes of log read since the start, `held_bytes` those that wait for
    Spark; `limit_bytes` is their limit, 0 without one. `attributes` has the numbers that only this connector's beans
    show in Debezium, by context of the bean and name of the attribute. `snapshot_tables` is the number of tables of the
    latest snapshot since the start; 0 if there was none, or if unknown. `captured_tables` is the number of tables that
    are captured now; None if unknown. `transactions` counts the transactions whose end was read, `transaction_bytes` is
    the size of the largest one; None for a log that is not read by transactions. `planned_read_s` is the time, in s
    since 1970, at which the reader received the last changes of the latest planned batch; None for a log that is not
    read ahead. `schema_changes` counts the changes of tables, by table and kind (see `SchemaChanges`).
    """

    is_connected: bool = False
    setbacks: Mapping[str, int] = field(default_factory=dict)
    read_bytes: int = 0
    held_bytes: int = 0
    limit_bytes: int = 0
    attributes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    snapshot_tables: int = 0
    captured_tables: int | None = None
    transactions: int | None = None
    transaction_bytes: int | None = None
    planned_read_s: float | None = None
    schema_changes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def after(self, before: ReaderState) -> ReaderState:
        """Return the state with the counts of an earlier log of the same query added."""
        setbacks = dict(before.setbacks)
        for kind, count in self.setbacks.items():
            setbacks[kind] = setbacks.get(kind, 0) + count
        return replace(
            self,
            setbacks=setbacks,
            read_bytes=self.read_bytes + before.read_bytes,
            transactions=_both(before.transactions, self.transactions, int.__add__),
            transaction_bytes=_both(before.transaction_bytes, self.transaction_bytes, max),
        )


def _both(first: int | None, second: int | None, join: Callable[[int, int], int]) -> int | None:
    """Return `join` of two numbers; if one number is None, return the other number."""
    return second if first is None else first if second is None else join(first, second)


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

    def reading(self) -> ReaderState:
        """Return the state of the reader. Called by any thread; no I/O, never fails."""
        ...

    def retention(self) -> LogRetention | None:
        """Return the latest known retention of the server's log; None if the planner does not watch it. Called by any
        thread; no I/O, never fails."""
        ...

    def heed(self, found: LogRetention) -> LogRetention:
        """Apply the options `log.*.percent` to a retention that was just read; return it with the pipeline's level.

        The planner acts on that level from now on. Called by any thread; no I/O, never fails.
        """
        ...

    def close(self) -> None:
        """Release connections; calls after it are errors."""
        ...


# --- positions and offsets --------------------------------------------------------------------------------------------


class Position(Protocol):
    """A place in a log. Immutable; equal places are equal."""

    def is_before(self, other: Self, /) -> bool:
        """Return True if `other` is further. Called by any thread; never fails."""
        ...


class Snapshot(Protocol):
    """A snapshot, running or complete, as an offset stores it. Immutable."""

    @property
    def is_complete(self) -> bool:
        """True once every chunk is in a batch. The engine reads the log from then on."""
        ...


P = TypeVar("P", bound=Position)
T = TypeVar("T")
"""The newest committed position at a moment, where a query with Trigger.AvailableNow ends."""
Committed = TypeVar("Committed")
"""A committed position in the form in which a feed acknowledges it."""
Taken = TypeVar("Taken")
"""Rows of a run in the form in which tasks and windows use them."""
Committed_contra = TypeVar("Committed_contra", contravariant=True)
Taken_co = TypeVar("Taken_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOffset(ABC):
    """A position of a query, as Spark stores it. Immutable; without arguments it is the initial offset.

    A database's offset is a dataclass with these fields and its own. `snapshot` is the latest snapshot, kept until the
    first batch of the log after it. `heartbeat_ms` is the time of the newest heartbeat, in ms since 1970; 0 if there
    was none. `progress` belongs to signals and incremental snapshots.
    """

    snapshot: Any = None
    heartbeat_ms: int = 0
    progress: Progress = NO_PROGRESS

    @property
    @abstractmethod
    def log(self) -> Any:
        """The position up to which the log has been read, of type `P`. A field of most offsets."""

    @property
    @abstractmethod
    def place(self) -> int | str:
        """The position that heartbeats and notifications of the batch show, in the form of `position_text`."""

    @abstractmethod
    def to_json(self) -> Offset:
        """Return the offset as Spark stores it, with sorted keys: equal offsets give equal text, in every version."""

    @classmethod
    @abstractmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return the offset that `to_json` of this or an earlier version has written.

        Raises PositionLost for anything else (`tailrace.connectors.checkpoint.understood`).
        """

    def shared_json(self) -> Offset:
        """Return the fields of heartbeat and progress for `to_json`, without those that have their initial value."""
        fields: Offset = {"heartbeat_ms": self.heartbeat_ms} if self.heartbeat_ms else {}
        return fields if self.progress == NO_PROGRESS else fields | {"progress": self.progress.to_json()}

    @staticmethod
    def shared_from(fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return heartbeat and progress for `from_json`, as keyword arguments."""
        progress = Progress.from_json(fields.get("progress", {}))
        return {"heartbeat_ms": fields.get("heartbeat_ms", 0), "progress": progress}

    @property
    def is_initial(self) -> bool:
        """True if the query has no position yet: it has just begun, without a checkpoint."""
        return self == type(self)()


O = TypeVar("O", bound=QueryOffset)  # noqa: E741

# --- a log that a thread reads ahead ----------------------------------------------------------------------------------

# Retries when the disk refuses data. There is a limit, because a full disk seldom empties by itself, and the server
# must keep its log meanwhile.
DISK_RETRIES = 8


class IndexedRun(Protocol[P, Taken_co]):
    """A run of the log: its raw bytes, with an index of the captured changes in them (its rows), in log order.

    The reader's thread makes runs and puts them into the spool; the planner's thread plans batches over them and takes
    their rows. Runs are never changed, so both may call every method. No method does I/O or fails, except `with_data`,
    which calls its argument `read`. The defaults suit a log in which each row may end a batch.
    """

    @property
    def data(self) -> Bytes:
        """The raw bytes; the spool may write them to disk and keep the rest of the run."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def first_after(self, position: P, /) -> int:
        """Return the index of the first row after `position`; the number of rows if there is none."""

    def size(self, first: int, last: int, /) -> int:
        """Return the bytes from row `first` to the end of row `last` - 1; 0 without rows.

        The result never falls as `last` grows. Takes constant time, because each plan asks for many sizes.
        """

    def end(self, start: P, first: int, last: int, upto: P | None, /) -> P | None:
        """Return the last place among the rows up to `last` where a batch should end; None if there is none.

        The batch begins at `start` and has this run's rows from `first` on. If `first` is -1, the batch already has
        rows of earlier runs. The place is at most `upto`, and it is the same when the batch is planned again.
        """
        return self.cut(last - 1, start) if last > max(first, 0) else None

    def cut(self, row: int, start: P, /) -> P:
        """Return the position after `row`, even within a transaction, for a batch that begins at `start`."""

    def sizes_between_ends(self) -> Int64s | None:
        """Return the bytes of the rows before the first end of a transaction, between each two, and after the last.

        The caller may change the array. None if the log does not tell where transactions end.
        """
        return None

    def leads_to(self, before: P, /) -> P:
        """Return the position up to which the log has been read once this run is added; `before` is that without it.

        Never earlier than `before`: a new session may send rows again.
        """

    def is_passed(self, position: P, /) -> bool:
        """Return True if batches that begin at `position` need nothing of this run. The spool then drops it."""
        return self.first_after(position) == len(self)

    def joined(self, other: Self, /) -> Self | None:
        """Return one run with the rows of this run and of `other`, the next one; None to keep them apart.

        Only called for small runs in memory.
        """
        return None

    def without_data(self) -> Self:
        """Return a copy without raw bytes. Its positions and sizes remain known."""

    def with_data(self, first: int, last: int, read: Callable[[int, int], Bytes], /) -> Self:
        """Return a copy with enough raw bytes for its rows `[first, last)` to be taken.

        `read(low, high)` returns a range of the bytes that `without_data` has left out. It raises SpoolFailed.
        """

    def taken(self, first: int, last: int, /) -> Taken_co:
        """Return the rows `[first, last)` in the form in which `OpenLog.tasks` and windows use them."""


@dataclass(frozen=True, slots=True)
class Step(Generic[P, Taken]):
    """The result of one read: a run to keep. If `is_wanted` is False, nothing is lost without it."""

    run: IndexedRun[P, Taken]
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Setback:
    """The consequence of an error that has ended a session.

    Failures of one `kind` are retried `limit` times in a row (-1: for ever), with pauses that double from `first` to
    `longest` seconds. `text` is for the log file and contains no data. `error` is what the planner raises when no
    session follows.
    """

    kind: str
    text: str
    limit: int
    first: float
    longest: float
    error: BaseException

    @classmethod
    def last(cls, error: BaseException) -> Setback:
        """Return the setback after which no session follows."""
        return cls("", "", 0, 0.0, 0.0, error)

    def of_disk(self) -> Setback:
        """Return a copy of kind `disk`, with at most DISK_RETRIES retries, for a disk that has refused data."""
        return replace(self, kind="disk", limit=DISK_RETRIES if self.limit < 0 else min(self.limit, DISK_RETRIES))

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after `failures` earlier failures in a row."""
        return min(self.longest, self.first * 2.0 ** min(failures, 64))


class LogFeed(Protocol[P, Committed_contra, Taken]):
    """Sessions that read a database's log, each from the last run that was kept. Independent of Spark.

    The reader's thread calls the methods up to `setback`: `open`, then `read` and `keep` in turn, and `close` at the
    end of each session, whatever ended it. They raise the driver's own errors; `setback` says what follows. The
    planner's thread reads the attributes and calls the methods from `hurry` on meanwhile, without a lock. Their results
    advance only when a run has been kept.
    """

    @property
    def progress(self) -> int:
        """A number that grows with what the server has sent. Growth resets the count of failures."""

    @property
    def is_behind(self) -> bool:
        """True while a backlog is being read: then a batch waits a moment to become larger."""
        return False

    @property
    def is_prompt(self) -> bool:
        """True if `read` with `is_asked` returns within a moment. `LogReader.refresh` then waits for it."""
        return False

    def open(self) -> None:
        """Begin a session after the last run that was kept.

        Raises PositionLost if the server no longer has the log from there on, or has another log.
        """

    def read(self, is_asked: bool, is_hurried: Callable[[], bool], /) -> Step[P, Taken] | None:
        """Return the next step; None if there is nothing new for a while.

        With `is_asked` a caller waits for what the server has sent until now. While `read` waits for the server, each
        `hurry` makes it ask `is_hurried` again; if that is True, it returns what is available.
        """

    def keep(self, step: Step[P, Taken], /) -> None:
        """Note that the run of the latest step has been kept. Never fails."""

    def rest(self) -> None:
        """Answer the server while the spool is full, so that the session lasts."""
        return None

    def close(self) -> None:
        """End the session, if there is one."""

    def setback(self, error: BaseException, /) -> Setback:
        """Return what follows `error`: `Setback.last` if another session would fail too. Never fails.

        Called for the error of each session, and once more for the error that ends the thread.
        """

    def hurry(self) -> None:
        """Let `read` ask `is_hurried` again, if it waits for the server. Never waits itself."""
        return None

    def has_read(self, target: P, /) -> bool:
        """Return True if everything up to `target`, an end that `Source.present` has returned, has been kept."""

    def has_passed(self, position: P, /) -> bool:
        """Return True if no row up to `position` can follow any more."""

    def reached(self, start: P, /) -> P:
        """Return `start` moved to where the log has been read by now, as if no row followed it.

        Returns `start` itself if the log has been read no further.
        """

    def acknowledge(self, position: Committed_contra, /) -> P:
        """Let the server discard, in time, everything up to `position`; return it as a position.

        `position` is in Spark's commit log. Nothing else may be given to the server. By default the server discards its
        log by itself.
        """
        return cast(P, position)


# --- batches ----------------------------------------------------------------------------------------------------------

Result = TypeVar("Result")
IDLE_BYTES = 16 << 20
"""Bytes of log without a captured change after which an idle position is committed."""
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest number of rows and bytes of a batch; None: no limit.

    `enough_bytes` is a soft limit: the batch ends at the last end of a transaction within it. It is ignored if there is
    no such end.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    enough_bytes: int | None = None

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


NO_LIMITS = Limits()


class OpenLog(ABC, Generic[O, P, T]):
    """A log that is open for reading from a position on. Every method raises TailraceError, or errors that
    `Source.called` translates.

    The defaults suit a log that is queried for changes at each call; a `LogReader` overrides them. `windows` opens the
    windows of snapshots, None if the configuration has no signals. `outlives_snapshots` is True if the log can stay
    open during a blocking snapshot. `batch_tables` are the table versions of the rows in the latest call of `tasks`, in
    the order of the log.

    The engine calls, for each batch: `acknowledge`, `refresh`, then `window_end` or `plan` (and `wait` until there is
    something), `changes` if there are windows, and `offset`. Spark then asks for `tasks`. Any call may fail, and is
    repeated with the same arguments.
    """

    windows: Windows[Any, Any, Any, Any, Any, Any] | None = None
    outlives_snapshots = True
    batch_tables: Sequence[TableSchema] = ()

    def reading(self) -> ReaderState:
        """Return the state of the reader. Called by any thread; no I/O, never fails."""
        return ReaderState(is_connected=True)

    @property
    def has_failed(self) -> bool:
        """True if nothing more will be read. After the call that raises the failure, the engine opens another log."""
        return False

    def fits(self, since: O) -> bool:
        """Return False if the log must be opened anew to read on from `since`, with other tables."""
        return True

    @abstractmethod
    def acknowledge(self, since: O) -> None:
        """Note that `since` is in Spark's commit log: nothing before it will be requested again.

        Only here may the database learn that it can discard its log.
        """

    def refresh(self) -> None:
        """Fetch what the server has sent until now, if that takes only a moment."""
        return

    def check(self) -> None:
        """Raise the error that ended reading, if there is one and everything read before it has been delivered.

        Called while changes gather for `poll.dispatch.interval.ms`, when nothing is planned.
        """
        return

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait until rows arrive that the latest `plan` or `is_filling` has not seen, at most `seconds`."""

    def is_filling(self, max_bytes: int, target: T | None = None) -> bool:
        """Return True while reading is behind (a backlog, or `target` not reached) and less than half of `max_bytes`
        has been read. The engine then waits a little before it plans."""
        return False

    @abstractmethod
    def plan(self, start: P, limits: Limits, target: T | None) -> P:
        """Return the end of the next batch after `start`, not past `target`; `start` if there is no change for it.

        The batch ends at the end of a transaction, unless a single transaction exceeds the limits.
        """

    @abstractmethod
    def whole(self, start: P) -> P:
        """Return the end of a batch after `start` without limits, not even those of the configuration.

        Called before `plan` if batches have an interval. The engine compares both ends: a batch that its limits have
        cut is followed at once.
        """

    @abstractmethod
    def has_seen(self, target: T) -> bool:
        """Return True if the latest `plan`, which was for `target`, saw everything up to it.

        The query ends when it is True and `plan` has found nothing. What arrives during the plan does not count.
        """

    @abstractmethod
    def idle_position(self, start: P) -> P:
        """Return the position up to which the log holds no captured change after `start`.

        `start` if a change waits or nothing is known. Called when `plan` has found nothing: while no captured table
        changes, an offset that moves on lets the server discard its log.
        """

    @abstractmethod
    def is_far(self, start: P, idle: P) -> bool:
        """Return True if `idle` is so far after `start` that an offset should store it without delay."""

    @abstractmethod
    def window_end(self, progress: Progress, start: P, limits: Limits, target: T | None) -> P | None:
        """Open the next window and return the end of its batch, which may be after `target`.

        None if no snapshot runs or the log is too far behind: the batch must hold all of the log up to the window.
        Called only if there are `windows`.
        """

    @abstractmethod
    def changes(self, start: P, end: P) -> Any:
        """Return the changes of the batch `(start, end]`, in the form that windows expect."""

    @abstractmethod
    def offset(self, since: O, end: P, heartbeat_ms: int, progress: Progress) -> O:
        """Return the offset of the batch from `since` to `end`, without a snapshot."""

    @abstractmethod
    def tasks(self, since: O, until: O, end: Offset, beside: Sequence[Task]) -> list[Task]:
        """Return the tasks of the batch `(since, until]`: for its changes, `beside`, and for the rows of its window.

        `end` is `until` as Spark stores it. A batch that was planned before a restart is read again, with the same
        changes. `since` and `until` may be at one position: then the batch has a heartbeat, a notification or a window.
        """

    def close(self) -> None:
        """Release the resources. Called once, also after an error; must not fail."""
        return


class Snapshots(ABC, Generic[O]):
    """Initial and blocking snapshots of the captured tables, read in chunks while the log waits.

    Every method raises TailraceError, or errors that `Source.called` translates. `notifications` collects the reports
    of snapshots.
    """

    notifications: PendingNotifications[Any, Any]

    @abstractmethod
    def start(self, since: O, *, fresh: bool) -> O:
        """Plan a snapshot and return the offset at its beginning, with no chunk done.

        `fresh`: the log will be read from the snapshot's position, because there is no earlier position or it is lost.
        No change may be missing between the snapshot and the log.
        """

    @abstractmethod
    def block(self, since: O) -> O | None:
        """Plan the snapshot of the tables in `since.progress.blocking` and return the offset at its beginning.

        None if the log must be read further first. Raises ConfigError or PrerequisiteError if the tables cannot be
        read; the engine then gives the snapshot up, and the query goes on. ConnectionFailed, DiskFailed and
        PositionLost end the call.
        """

    @property
    def table_count(self) -> int:
        """The number of tables of the latest planned snapshot, empty ones too; 0 if unknown."""
        return 0

    @abstractmethod
    def count(self) -> Mapping[Any, int]:
        """Return the number of rows of each table of the latest planned snapshot, in the order of reading.

        Called only if notifications are wanted.
        """

    @abstractmethod
    def advance(self, since: O, max_rows: int | None, *, everything: bool) -> Any:
        """Return the snapshot after the next chunks. A batch has enough chunks to keep every core busy for a while.

        `everything`: Spark has asked for all available data. May be called twice for one offset.
        """

    def close(self) -> None:
        """Release the resources of a running snapshot. Called before each batch of the log, too."""
        return


class Source(ABC, Generic[O, P, T]):
    """A database as one query sees it. Construction does no I/O.

    `memory` lists the objects that are rolled back when a call fails (see `Undo`). All methods but `called`,
    `recover`, `status` and `close` run within `called`, and raise TailraceError or errors that it translates.
    """

    snapshots: Snapshots[O]
    memory: Sequence[object] = ()

    @property
    def captured_tables(self) -> int | None:
        """The number of tables that are captured now; None if not known. Called by any thread; no I/O, never fails."""
        return None

    @abstractmethod
    def called(self, work: Callable[[], Result]) -> Result:
        """Return the result of a call of the query, with the driver's errors raised as TailraceErrors.

        `work` may run again after an error, since a failed run changes nothing.
        """

    def recover(self) -> bool:
        """Make the source usable after a failed call. Return True if its sessions can be used for another try.

        If they cannot, the source gives up everything that was begun and returns False. The engine then starts anew, as
        after a crash.
        """
        return True

    @abstractmethod
    def prepare(self, since: O) -> None:
        """Prepare the server, and raise if it cannot be read. Called before everything else, at each beginning."""

    @abstractmethod
    def clear_lost(self, since: O) -> str:
        """Clear away what is left of a lost position, such as a slot that can no longer be read.

        Return the reason why the log no longer reaches `since`, as a sentence; "" if it does, and nothing is cleared.
        Called only in snapshot modes that mend a lost position.
        """

    @abstractmethod
    def first(self) -> O:
        """Return the offset at which a query without checkpoint and without snapshot begins to read the log."""

    @abstractmethod
    def open(self, since: O, until: O | None, target: T | None) -> OpenLog[O, P, T]:
        """Begin to read the log at `since`; `until` is the end of a batch that is read again after a restart.

        Raises PositionLost if the log no longer reaches `since`.
        """

    @abstractmethod
    def present(self) -> T:
        """Return the newest position that is committed now. Called by `stop_at_present`, perhaps before `prepare`."""

    @abstractmethod
    def tasks(self, since: O, until: O) -> list[Task]:
        """Return the tasks of the batch other than its changes: chunks of its snapshot, alterations of tables."""

    def look_again(self) -> None:
        """Check the tables for changes since the start that the log does not report.

        Called now and then, and at the end of a query that ends at the present. Raises if going on is useless.
        """
        return

    def beat(self) -> None:
        """Run the actions of a heartbeat, before its offset is planned."""
        return

    @abstractmethod
    def status(self, log: OpenLog[O, P, T] | None) -> Offset | None:
        """Return the newest known position and the running snapshot; None if nothing is known. No I/O."""

    def retention(self) -> LogRetention | None:
        """Return the latest retention that a thread of the source has read; None if the source has no such thread.

        Called by any thread; no I/O, never fails.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the resources. Called once, after the log is closed; must not fail."""
