"""Windows of incremental snapshots: chunks that are read while the log is read, between two watermarks. Planner.

A window is part of one batch: the opening watermark is written, the next chunks are read or planned, the closing
watermark is written, and the batch reads the log up to the closing watermark. A row whose key has changed in the log
meanwhile is left out: the log wins. So a delivered row shows the state after the last change before it, and no later
change of its key is older (Debezium documentation, "Incremental snapshots"; A. Andreakis, I. Papapanagiotou: "DBLog",
2019).

The progress is part of every offset. The offset of a batch with a window also has the snapshot's state before the
window. A new planner cannot know whether the window's rows were delivered or the batch was only replayed, so it reads
the window again. A replayed batch has its changes and no rows of a window.
"""

from __future__ import annotations

import functools
import json
import logging
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar

from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.channels import Channels
from tailrace.snapshot.incremental import (
    Collection,
    Cursor,
    IncrementalSnapshot,
    Key,
    Notification,
    Notifications,
    UnusableTable,
)
from tailrace.snapshot.pace import Pace
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signal_handler import LiveTables, SignalHandler
from tailrace.snapshot.signals import WINDOW_CLOSE, WINDOW_OPEN, Signal
from tailrace.snapshot.table_commands import settled

log = logging.getLogger("tailrace")

View = TypeVar("View")
Chunk = TypeVar("Chunk")
Upto = TypeVar("Upto")
At = TypeVar("At")
Changes = TypeVar("Changes")
Read = TypeVar("Read")
At_contra = TypeVar("At_contra", contravariant=True)
Changes_contra = TypeVar("Changes_contra", contravariant=True)
Read_co = TypeVar("Read_co", covariant=True)


class WindowVoid(Exception):
    """The window is void: none of its rows is delivered, and another window is opened later. The raiser logs why."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """A row of the signal table, identified by `id`, which is inserted or deleted."""

    id: str
    kind: str
    data: str | None
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class FoundChunks(Generic[Chunk]):
    """The next chunks of a table, none at its end, and the cursor after them.

    `count` is their number in chunks of the configured size. `estimate` is the approximate number of rows of the table,
    given with its first chunks; None if unknown. `shown` are the cursor's last and greatest key as notifications show
    them; None: as they are in the cursor.
    """

    chunks: Sequence[Chunk]
    cursor: Cursor
    count: int = 0
    estimate: int | None = None
    shown: tuple[Key, Key] | None = None


@dataclass(slots=True)
class Window(Generic[View, Chunk, Upto]):
    """A window: the state of the snapshot `before` and `after` it, and the chunks and notifications in between.

    `at` is the log's position when it was opened, `view` the view in which the chunks were read. `count` is their
    number in chunks of the configured size, `took` the time taken in s. `closing` is None if no watermarks are written.
    The log must be read up to `upto`. `number` counts the windows of the query. `end` is the offset of the window's
    batch, once the batch is planned.
    """

    before: IncrementalSnapshot
    number: int
    at: object
    opened: datetime
    after: IncrementalSnapshot | None
    chunks: list[Chunk]
    notifications: list[Notification]
    count: int
    took: float
    view: View
    closing: Watermark | None
    upto: Upto
    end: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> tuple[str, ...]:
        """The tables that the window reads to their ends, except those with a condition."""
        entire = {str(collection) for collection in self.before.collections if collection.filter is None}
        ended = (dict(notification.data) for notification in self.notifications)
        names = [data["scanned_collection"] for data in ended if data.get("status") in ("SUCCEEDED", "EMPTY")]
        return tuple(name for name in names if name in entire)


class WindowSource(Protocol[At_contra, View, Chunk, Upto, Changes_contra, Read_co]):
    """The operations of a database for windows. Planner.

    Its types: `At`, the position up to which the log has been read when a window is opened; `View`, such as a snapshot,
    in which chunks are read; `Chunk`; `Upto`, the end of a batch; `Changes`, the changes of a batch; `Read`, the
    content of tasks.

    A window is opened by `is_ready`, `waiting`, `mark`, `view`, `next_chunks` for each table, `mark` and `locate`, in
    this order. The planner's main thread calls them, or with `opens_ahead` the thread `tailrace-window`; never both at
    once, since `Windows.begin` waits for the thread. The main thread calls all others. A method raises the database's
    own errors, which end the call of the query and may be retried by `Source.called`, and those named here.
    """

    pace: Pace
    refuses: Callable[[str], str]
    """Returns the reason to refuse a signal's condition; see `conditions.refusal`."""
    writes: bool
    """True if watermarks are written."""
    legacy: bool = False
    """True if watermarks have no data, as in Debezium 1.7."""
    needs_watermarks: bool = False
    """True if no window can be opened without watermarks."""
    live: LiveTables | None = None
    """The functions that add tables while the query runs; None if no table can be added."""
    opens_ahead: bool = False
    """True if the next window is opened while Spark reads the batch of the current one."""

    def is_ready(self, at: At_contra) -> bool:
        """Return True if a window may be opened now. Otherwise nothing is written, and the next batch asks again."""
        return True

    def waiting(self, collections: Sequence[Collection]) -> frozenset[Collection]:
        """Return the tables of which no chunk may be read yet. Called before the window's view is taken."""
        return frozenset()

    def mark(self, watermark: Watermark | None) -> int:
        """Write a watermark (None: write none) and return the log's position then, 0 if the database does not report
        it. Raises WindowVoid if a later window will do."""
        ...

    def view(self, at: At_contra, opened_at: int) -> AbstractContextManager[View]:
        """Return the view in which a window's chunks are read; `opened_at` is the position of the opening watermark.

        It shows at least every change up to `at`. Raises WindowVoid if a later window will do.
        """
        ...

    def next_chunks(self, view: View, state: IncrementalSnapshot, count: int) -> FoundChunks[Chunk]:
        """Return the next `count` chunks of the state's first table, after the state's cursor.

        No chunk means that the table has been read; it may have been dropped or altered since the last window. Raises
        UnusableTable if it cannot be read at all, and WindowVoid if a later window will do.
        """
        ...

    def locate(self, at: At_contra, closing: Watermark | None, closed_at: int) -> Upto:
        """Return the end of the batch, after the chunks and the closing watermark, which is at `closed_at`.

        By then the log has been read past every change that a chunk shows. Raises WindowVoid if a later window will do.
        """
        ...

    def reads(self, window: Window[View, Chunk, Upto], changes: Changes_contra) -> Sequence[Read_co]:
        """Return the window's chunks for tasks, without the rows that the batch's changes supersede.

        Called each time that Spark asks for the tasks of the batch.
        """
        ...

    def is_void(self, window: Window[View, Chunk, Upto]) -> bool:
        """Return True if tasks may have missed part of the window's chunks, so that they must be read again.

        Called when Spark has committed the window's batch.
        """
        return False

    def signals(self, changes: Changes_contra) -> list[tuple[Signal, str]]:
        """Return the signals among a batch's changes in log order, each with its position as text.

        Anybody may write to the signal table, so rows that are no signals are left out, and never an error.
        """
        ...

    def captured(self, changes: Changes_contra) -> Sequence[tuple[str, str]]:
        """Return the tables that signals may name, in the order of their names. Called only if there is a signal."""
        ...

    def local(self, entry: str) -> str:
        """Return a table name in a signal in the form of `captured`."""
        return entry


class Windows(Generic[At, View, Chunk, Upto, Changes, Read]):
    """The signals and windows of one query, over its database's `source`. Planner, its main thread.

    Plans take effect only in `planned`, so a failed call may be repeated.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        source: WindowSource[At, View, Chunk, Upto, Changes, Read],
        runtime: Runtime = THREADS,
    ) -> None:
        self._source = source
        self._pace = source.pace
        self._runtime = runtime
        self.opens_ahead = source.opens_ahead
        self._deletes = config["incremental.snapshot.watermarking.strategy"] == "insert_delete"
        self._reads_source = "source" in config["signal.enabled.channels"]
        self._channels = Channels.of(config)
        self._notifications = Notifications(config["topic.prefix"])
        self._helper = runtime.helper("tailrace-window")
        # the next window, opened while Spark reads the batch of the current window
        self._ahead: Future[Window[View, Chunk, Upto] | None] | None = None
        # the window of the batch that is being planned, and the window of the last planned batch
        self._next: Window[View, Chunk, Upto] | None = None
        self._open: Window[View, Chunk, Upto] | None = None
        # the number of the window after the last one whose chunks were given to tasks
        self._served: int | None = None
        # approximate number of rows of each table that was begun
        self._estimates: dict[str, int | None] = {}
        # tables that lacked rows and were begun by this planner, and the tables that the last batch has finished
        self._mended: set[tuple[str, str]] = set()
        self._finished: tuple[str, ...] = ()
        # the running snapshot in the batch that is being planned, and in the last planned batch
        self._coming: IncrementalSnapshot | None = None
        self._state: IncrementalSnapshot | None = None

    @property
    def parts(self) -> tuple[object, ...]:
        """The objects whose state lasts between two calls."""
        return self, self._source, self._pace, self._channels

    def close(self) -> None:
        self._helper.close()
        self._channels.close()

    # --- the course of a batch -----------------------------------------------------------------------------------

    def begin(self, progress: Progress) -> Progress:
        """Return the progress before the next batch, from the last batch's, without notifications and window."""
        self._pace.returned()
        if self._ahead is not None:
            # the thread uses the sessions that are needed from here on
            self._helper.wait(self._ahead)
        state = progress.state
        if progress.before is not None:
            # otherwise it is unknown whether Spark has delivered the last window's rows or only replayed the batch
            is_served = progress.windows == self._served
            if is_served and self._open is not None and self._source.is_void(self._open):
                log.info("a table has changed while it was read; its chunks are read again")
                is_served = False
            if not is_served:
                state = progress.before
        self._next = None
        self._finished = progress.done
        return replace(progress, state=state, before=None, notifications=(), done=())

    def open(self, progress: Progress, at: At) -> Window[View, Chunk, Upto] | None:
        """Return the next window, if a snapshot runs and one can be opened; the log has been delivered up to `at`."""
        ahead, self._ahead = self._ahead, None
        if progress.state is None or progress.state.paused:
            return None
        # another try mends an earlier failure, or raises it
        window = None if ahead is None or ahead.exception() is not None else ahead.result()
        if window is None or window.before != progress.state or window.at != at:
            window = self._opened(progress.state, progress.windows, at, self._pace.chunks())
        if window is not None:
            self._pace.read(window.took)
        self._next = window
        return window

    def open_ahead(self, end: dict[str, Any], progress: Progress, at: At) -> None:
        """Open the next window while Spark reads the batch that ends at the offset `end`.

        The window shows every change sent before; all later changes are in the next batch. So it equals a window that
        is opened after this batch, but is ready when the next batch is planned.
        """
        state = progress.state
        if not self.opens_ahead or self._pace.waits or self._open is None or self._open.end != end:
            return
        if state is None or state.paused or progress.blocking:
            return
        if self._ahead is not None:
            # Spark plans a batch again for each action on it, and another window would end the view of this batch's
            return
        chunks = self._pace.chunks()
        self._ahead = self._helper.submit(self._opened, state, progress.windows, at, chunks)

    def give_up(self) -> None:
        """Discard the window, because its log cannot be read in time. Nothing of it was delivered."""
        self._next = None

    def finish(self, progress: Progress, changes: Changes) -> Progress:
        """Return the progress after the batch of `changes`: with its window read and all signals handled."""
        notes: list[Notification] = []
        before = None
        if self._next is not None:
            notes += self._next.notifications
            before = self._next.before
            progress = replace(progress, state=self._next.after, windows=progress.windows + 1)
        arrived = self._source.signals(changes) if self._reads_source else []
        received, positions = self._channels.poll(dict(progress.positions))
        progress = replace(progress, positions=tuple(sorted(positions.items())))
        if self._source.live is not None:
            progress = replace(progress, commands=settled(progress.commands, self._source.live.config))
        captured = functools.partial(self._source.captured, changes)
        source = self._source
        handler = SignalHandler(captured, self._notifications, source.refuses, source.local, source.live)
        for signal, position in [*arrived, *((signal, signal.id) for signal in received)]:
            progress, before, reports = handler.handle(signal, position, progress, before)
            notes += reports
        if self._source.live is not None:
            lacking = self._lacking(self._source.live, progress, before)
            progress, before, reports = handler.read_unread(lacking, progress, before)
            notes += reports
        if progress.state is not None and self._source.needs_watermarks and not self._source.writes:
            log.warning("an incremental snapshot needs a signal table for its watermarks: set signal.data.collection")
            notes.append(self._notifications.stopped(progress.state))
            progress = replace(progress, state=None)
        now = self._runtime.time_ns() // 1_000_000
        self._coming = progress.state
        done = () if before is None or self._next is None else self._next.done
        return replace(progress, before=before, notifications=tuple((note, now) for note in notes), done=done)

    def _lacking(
        self, live: LiveTables, progress: Progress, before: IncrementalSnapshot | None
    ) -> list[tuple[tuple[str, str], str]]:
        """Return the tables that must be read because the log lacks their rows, and that no snapshot reads yet."""
        found = live.unread()
        self._mended &= {table for table, _ in found}
        if not found:
            return []
        going = {(collection.schema, collection.table) for collection in (*progress.blocking, *progress.reading)}
        going |= {(paused.collection.schema, paused.collection.table) for paused in progress.held}
        for state in (progress.state, before):
            if state is not None:
                going |= {(collection.schema, collection.table) for collection in state.collections}
        done = set(self._finished)
        # a table that cannot be read is tried once by each planner
        lacking = [
            (table, kind) for table, kind in found if table not in going | self._mended and ".".join(table) not in done
        ]
        self._mended |= {table for table, _ in lacking}
        return lacking

    def planned(self, end: dict[str, Any]) -> None:
        """Note that the batch ends at the offset `end`."""
        self._pace.planned(0 if self._next is None else max(self._next.count, 1))
        if self._next is not None:
            self._next.end = end
        self._open, self._next, self._state = self._next, None, self._coming

    def reads(self, end: dict[str, Any], changes: Changes) -> Sequence[Read]:
        """Return the chunks, for tasks, of the window in the batch that ends at `end` and has these changes.

        Empty for a batch that another planner has planned.
        """
        if self._open is None or self._open.end != end:
            return []
        found = self._source.reads(self._open, changes)
        self._served = self._open.number + 1
        return found

    def status(self) -> dict[str, Any] | None:
        """Return the state of the running snapshot, in the form that the status shows; None if none runs."""
        state = self._state
        if state is None:
            return None
        found: dict[str, Any] = {
            "table": str(state.current),
            "rows": state.cursor.rows,
            "waiting": [str(collection) for collection in state.collections[1:]],
            "paused": state.paused,
        }
        estimate = self._estimates.get(str(state.current))
        if estimate is not None:
            found["of"] = max(estimate, state.cursor.rows)
        return found

    # --- windows -------------------------------------------------------------------------------------------------

    def _opened(self, state: IncrementalSnapshot, number: int, at: At, count: int) -> Window[View, Chunk, Upto] | None:
        """Return the next window of `state`, of `count` chunks; None if it is void, or none can be opened now."""
        if not self._source.is_ready(at):
            return None
        waiting = self._source.waiting(state.collections)
        if state.cursor.maximum is None and state.current in waiting:
            return None
        began, opened, name = self._runtime.monotonic(), self._now(), str(uuid.uuid4())
        try:
            _, low = self._mark(name, WINDOW_OPEN, openWindowTimestamp=opened)
            found = None
            try:
                with self._source.view(at, low) as view:
                    found = self._next_chunks(view, state, count, waiting)
            except WindowVoid:
                # write the closing watermark all the same, for other readers of the signal table's changes
                pass
            closed = self._now()
            closing, high = self._mark(name, WINDOW_CLOSE, openWindowTimestamp=opened, closeWindowTimestamp=closed)
            if found is None:
                return None
            took = self._runtime.monotonic() - began
            upto = self._source.locate(at, closing, high)
        except WindowVoid:
            return None
        chunks, after, notes, used = found
        return Window(state, number, at, opened, after, chunks, notes, used, took, view, closing, upto)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._runtime.time_ns() / 1_000_000_000, UTC)

    def _mark(self, name: str, kind: str, **stamps: datetime) -> tuple[Watermark | None, int]:
        """Write a watermark of the window `name`, if watermarks are written; return it and its position."""
        watermark = None
        if self._source.writes:
            is_deletion = kind == WINDOW_CLOSE and self._deletes
            suffix = "open" if is_deletion or kind == WINDOW_OPEN else "close"
            data = json.dumps({stamp: _instant(at) for stamp, at in stamps.items()})
            bare = is_deletion or self._source.legacy
            watermark = Watermark(f"{name}-{suffix}", kind, None if bare else data, is_deletion)
        return watermark, self._source.mark(watermark)

    def _next_chunks(
        self, view: View, state: IncrementalSnapshot, count: int, waiting: Container[Collection]
    ) -> tuple[list[Chunk], IncrementalSnapshot | None, list[Notification], int]:
        """Return the next `count` chunks, the state after them, the notifications, and the number of chunks.

        No table of `waiting` is begun.
        """
        chunks: list[Chunk] = []
        notes: list[Notification] = []
        used = 0
        left: IncrementalSnapshot | None = state
        while left is not None and used < count:
            if left.cursor.maximum is None and left.current in waiting:
                break
            status = "SUCCEEDED"
            found: FoundChunks[Chunk]
            try:
                self._check_condition(left)
                found = self._source.next_chunks(view, left, count - used)
            except UnusableTable as reason:
                status, found = str(reason), FoundChunks([], left.cursor)
                log.warning("incremental snapshot %s: %s is left out: %s", left.id, left.current, _REASONS[status])
            if left.cursor.maximum is None:
                self._estimates[str(left.current)] = found.estimate
            left = left.moved(found.cursor)
            if found.chunks:
                notes.append(self._notifications.progress(left, found.shown))
                chunks += found.chunks
                used += found.count
                continue
            # without a greatest key there are no rows, or all keys are NULL
            is_empty = found.cursor.maximum == () and not found.cursor.rows
            notes.append(self._notifications.scanned(left, "EMPTY" if is_empty else status))
            left = left.next_table()
        if left is None:
            notes.append(self._notifications.of(state.id, "COMPLETED"))
        return chunks, left, notes, used

    def _check_condition(self, state: IncrementalSnapshot) -> None:
        """Raise UnusableTable if the condition is refused: other options, or an earlier version, may have accepted
        it."""
        condition = state.current.filter
        reason = "" if condition is None else self._source.refuses(condition)
        if reason:
            log.warning("signal %s: the condition of %s is refused: %s", state.id, state.current, reason)
            raise UnusableTable("SQL_EXCEPTION")


_REASONS = {
    "UNKNOWN_SCHEMA": "it is not captured, was dropped, or lacks the surrogate key",
    "NO_PRIMARY_KEY": "it has no primary key, and the signal names no surrogate-key",
    "SQL_EXCEPTION": "its query fails; see the filter of the signal and the user's privileges",
}


def _instant(at: datetime) -> str:
    """Return the time as Java's Instant prints it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
