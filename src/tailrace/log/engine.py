"""LogEngine: plans the batches of a query, from its first position to its last. Planner."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tailrace.columns.blocks import ROWS
from tailrace.config import Config
from tailrace.errors import ConnectionFailed, DiskFailed, PositionLost, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Limits, O, Offset, OpenLog, P, ReaderState, Source, T, Task
from tailrace.log.control_tasks import HeartbeatTask, NotificationTask
from tailrace.log.retention import LogMargin, LogRetention
from tailrace.log.schema_changes import SchemaChanges
from tailrace.log.timing import DispatchInterval, Heartbeats, StreamingDelay
from tailrace.process.runtime import Runtime
from tailrace.snapshot.channels import first_positions
from tailrace.snapshot.incremental import Notification
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signal_handler import LONGEST_MESSAGE
from tailrace.snapshot.signals import shown
from tailrace.snapshot.table_commands import settled


class Undo:
    """The state of some objects, restored when a call fails.

    It covers every attribute of `parts`; lists, dictionaries and sets are copied. Any other value is restored as the
    same object: it must be immutable, or be one of `parts`.
    """

    def __init__(self, *parts: object) -> None:
        self._parts = parts

    @contextmanager
    def on_failure(self) -> Iterator[None]:
        """Run a call; if it raises, restore the parts."""
        before = [_copied(part) for part in self._parts]
        try:
            yield
        except BaseException:
            for part, attributes in zip(self._parts, before, strict=True):
                vars(part).clear()
                vars(part).update(attributes)
            raise


def _copied(part: object) -> dict[str, Any]:
    return {name: value.copy() if isinstance(value, list | dict | set) else value for name, value in vars(part).items()}


# --- engine -----------------------------------------------------------------------------------------------------------

log = logging.getLogger("tailrace")
Result = TypeVar("Result")

# Seconds after which an idle position is committed, if there is one.
IDLE_SECONDS = 30.0
# While a backlog is read, a batch waits so long to become half full: each batch has a fixed cost of some 0.15 s.
FILL_SECONDS = 0.5
# Largest first batch of the log, unless a single transaction is larger. It does not wait to fill: its rows are
# delivered early, and the next batch fills meanwhile.
FIRST_BYTES = 6 << 20
# A batch of blocks becomes a MERGE or an append, which takes 1 to 6 s however few rows it has. So it waits longer.
MERGE_FILL_SECONDS = 10.0
# The interval, in s, at which an import gives way to the thread that queries the server. Python's own 5 ms would delay
# each of its many queries.
SWITCH_SECONDS = 0.0005
# Seconds between two checks for changes of tables that the log does not report.
LOOK_SECONDS = 60.0
_USUAL_SECONDS = sys.getswitchinterval()


@dataclass
class _Memory:
    """State that the engine keeps between two calls."""

    idle_since: float
    # time of the latest check for changed tables
    looked_at: float
    # True once everything before the log is done, in this planner or since its last failure
    begun: bool = False
    # True once the start of the query is over, and with it everything that belongs to each start
    has_started: bool = False
    # True once a batch of the log was planned, in this planner
    has_read: bool = False
    # True once a warning has named tables that nobody reads
    has_warned: bool = False


class LogEngine(Generic[O, P, T]):
    """Implements `tailrace.log.contracts.Planner` over a `Source`; `offsets` is the type of its offsets.

    The first call of `latest_offset` or `partitions` connects. The server's preparation and a snapshot come first; the
    log is opened when no snapshot runs. A call that fails changes nothing.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        runtime: Runtime,
        source: Source[O, P, T],
        offsets: type[O],
        load: Callable[[], None] | None = None,
    ) -> None:
        """`load` imports the modules that the first batches of the log need; it runs in a thread of its own."""
        self._config = config
        self._settings = settings
        self._runtime = runtime
        self._source = source
        self._offsets = offsets
        self._load = load
        self._snapshots = source.snapshots
        self._notifications = source.snapshots.notifications
        self._mode = snapshot_mode(config)
        self._target: T | None = None
        self._snapshot_tables = 0
        self._log: OpenLog[O, P, T] | None = None
        # the counts of the logs that were closed
        self._closed_logs = ReaderState()
        self._schema_changes = SchemaChanges()
        self._heartbeats = Heartbeats(config["heartbeat.interval.ms"], runtime, source.beat)
        self._delay = StreamingDelay(config, runtime)
        self._dispatch = DispatchInterval(config, runtime)
        # a connector with slots watches its slot instead
        has_margin = config.get("log.warn.percent") is not None
        self._margin = LogMargin(config, runtime, self._notifications.direct.tell) if has_margin else None
        self._memory = _Memory(runtime.monotonic(), runtime.monotonic())
        self._read: list[tuple[Offset, O]] = []
        self._undo = Undo(
            self._memory, self._notifications, self._heartbeats, self._delay, self._dispatch, *source.memory
        )

    # --- the calls of the query ----------------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        self._load_ahead()
        return self._offsets().to_json()

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        since = self._offset(start)
        end = self._called(lambda: self._next(since, Limits(max_rows, max_bytes)))
        self._memory.has_started = True
        return start if end == since else end.to_json()

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        since, until = self._offset(start), self._offset(end)
        tasks = self._called(lambda: self._tasks(since, until, end))
        if self._log is not None:
            self._schema_changes.see(end, self._log.batch_tables)
        return tasks

    def stop_at_present(self) -> None:
        self._target = self._called(self._source.present)

    def status(self) -> Offset | None:
        return self._source.status(self._log)

    def reading(self) -> ReaderState:
        log = self._log
        # no log is open while a snapshot runs, which sessions of the source read
        state = ReaderState(is_connected=self._memory.begun) if log is None else log.reading()
        return replace(
            state.after(self._closed_logs),
            snapshot_tables=self._snapshot_tables,
            captured_tables=self._source.captured_tables,
            schema_changes=self._schema_changes.counts(),
        )

    def retention(self) -> LogRetention | None:
        return self._source.retention()

    def heed(self, found: LogRetention) -> LogRetention:
        return found if self._margin is None else self._margin.heed(found)

    def close(self) -> None:
        self._close_log()
        self._source.close()

    def _load_ahead(self) -> None:
        """Import the log's modules in a thread, while Spark starts and the server answers."""
        load, self._load = self._load, None
        if load is not None and self._mode.streams:
            self._runtime.start(lambda: _beside_others(load), "tailrace-import")

    def _offset(self, fields: Offset) -> O:
        """Return the offset of the JSON. Spark passes each offset several times, so the last two are remembered."""
        for known, offset in self._read:
            if known == fields:
                return offset
        offset = self._offsets.from_json(fields)
        self._read = [*self._read[-1:], (fields, offset)]
        return offset

    def _called(self, work: Callable[[], Result]) -> Result:
        if self._margin is not None:
            self._margin.demand()

        def wholly() -> Result:
            with self._unless_failed():
                return work()

        return self._source.called(wholly)

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """Roll back the state if the call fails. If its sessions are unusable, the next call starts anew, as after a
        crash."""
        try:
            with self._undo.on_failure():
                yield
        except BaseException:
            is_usable = self._source.recover()
            if not is_usable or (self._log is not None and self._log.has_failed):
                self._close_log()
                self._memory.begun = False
            raise

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            closed, self._log = self._log, None
            self._closed_logs = closed.reading().after(self._closed_logs)

    # --- the end of the next batch -------------------------------------------------------------------------------

    def _next(self, since: O, limits: Limits) -> O:
        began = self._begin(since, limits)
        if began is not None:
            return began
        if since.snapshot is not None and not since.snapshot.is_complete:
            return self._next_chunks(since, limits, everything=limits.are_none)
        if not self._mode.streams:
            return since
        self._snapshots.close()
        if not self._may_stream(since):
            return since
        if since.is_initial:
            # Nothing is read before the checkpoint has a position: anything missing later would be created again.
            first = self._begun(since, self._source.first())
            self._open(first)
            return first
        opened = self._open(since)
        # Spark asks for the batch after an offset only when the offset is in its commit log
        opened.acknowledge(since)
        opened.refresh()
        self._look_again(is_last=False)
        if opened.windows is not None and since.progress.blocking:
            blocked = self._block(since, limits)
            if blocked is not None:
                return blocked
        return self._next_of_log(opened, since, limits)

    def _next_of_log(self, opened: OpenLog[O, P, T], since: O, limits: Limits) -> O:
        """Return the end of the next batch of the open log."""
        for notification in () if self._margin is None else self._margin.news():
            self._notifications.add_told(notification)
        progress = past = replace(since.progress, notifications=(), reading=())
        windows = opened.windows
        if windows is None:
            # tables may have been added by signals that the configuration has no more
            progress = replace(progress, commands=settled(progress.commands, self._config))
            self._warn_of_unread(progress)
            found = self._next_batch(opened, since.log, limits)
        else:
            begun = windows.begin(past)
            found = self._next_window(opened, begun, past, since.log, limits)
            progress = windows.finish(begun, opened.changes(since.log, found))
        progress = self._notifications.add_to(progress)
        moved = found != since.log or progress != past
        heartbeat_ms = self._heartbeats.newest(since.heartbeat_ms, moved or self._target is None)
        if heartbeat_ms != since.heartbeat_ms and found == since.log:
            found = opened.idle_position(since.log)
        elif not moved:
            self._look_again(is_last=self._target is not None)
            return since
        end = opened.offset(since, found, heartbeat_ms, progress)
        if windows is not None:
            windows.planned(end.to_json())
        return end

    def _warn_of_unread(self, progress: Progress) -> None:
        """Warn once of tables that signals have asked for, and that nobody reads without a channel for signals."""
        state = () if progress.state is None else progress.state.collections
        unread = [*state, *progress.blocking, *(paused.collection for paused in progress.held)]
        if unread and not self._memory.has_warned:
            self._memory.has_warned = True
            log.warning(
                "the snapshot of %s goes no further, and the rest of their rows is not read: the configuration has no "
                "channel for signals any more; remedy: name it again in signal.data.collection or "
                "signal.enabled.channels",
                shown(", ".join(dict.fromkeys(map(str, unread))), LONGEST_MESSAGE),
            )

    def _look_again(self, *, is_last: bool) -> None:
        """Let the source check its tables, if the check is due or no other call follows."""
        now = self._runtime.monotonic()
        if is_last or now >= self._memory.looked_at + LOOK_SECONDS:
            self._memory.looked_at = now
            self._source.look_again()

    def _next_window(
        self,
        opened: OpenLog[O, P, T],
        begun: Progress,
        past: Progress,
        start: P,
        limits: Limits,
    ) -> P:
        """Return the end of the next batch, with a window in it when an incremental snapshot is running.

        `past` is the progress of the previous batch without its notifications and the tables of its blocking snapshot;
        `begun` is the progress that follows it.
        """
        is_held = self._margin is not None and self._margin.holds_back
        found = None if is_held else opened.window_end(begun, start, limits, self._target)
        if found is None and begun != past:
            # the window of the last batch is closed, and the offset should say so soon
            found = opened.plan(start, limits, self._target)
        elif found is None:
            # while a snapshot runs, the log does not wait for changes to gather
            is_running = bool(begun.blocking) or (begun.state is not None and not begun.state.paused)
            found = self._next_batch(opened, start, limits, gathers=not is_running)
        return found

    def _next_batch(self, opened: OpenLog[O, P, T], start: P, limits: Limits, *, gathers: bool = True) -> P:
        """Return the end of the next batch; wait up to `poll.interval.ms` for a change, or until the target is reached.

        Returns `start` too while changes gather. They gather only if `gathers` is set and the query has no target.
        """
        began = self._runtime.monotonic()
        patience = min(self._config["poll.interval.ms"] / 1000, self._heartbeats.remaining())
        target = self._target
        is_first = not (self._memory.has_read or self._merges or limits.are_none)
        if is_first:
            limits = replace(limits, enough_bytes=FIRST_BYTES)
        full_at = began if is_first else began + self._fill_seconds
        if gathers and target is None and self._dispatch.seconds:
            is_over = self._dispatch.is_over(patience)
            opened.check()
            if not is_over:
                return start
            # include what was sent during the wait
            opened.refresh()
        while True:
            if self._runtime.monotonic() < full_at and self._is_filling(opened, limits):
                opened.wait(0.05)
                continue
            whole = opened.whole(start) if self._dispatch.seconds else start
            found = opened.plan(start, limits, target)
            if found != start:
                self._memory.has_read = True
                self._memory.idle_since = self._runtime.monotonic()
                self._dispatch.begun(is_cut=found.is_before(whole))
                return found
            left = began + patience - self._runtime.monotonic()
            is_over = left <= 0 if target is None else opened.has_seen(target)
            if is_over:
                return self._idle(opened, start)
            opened.wait(left if target is None else 0.5)

    @property
    def _merges(self) -> bool:
        return bool(self._settings.blocks) and self._settings.blocks != ROWS

    @property
    def _fill_seconds(self) -> float:
        return MERGE_FILL_SECONDS if self._merges else FILL_SECONDS

    def _is_filling(self, opened: OpenLog[O, P, T], limits: Limits) -> bool:
        return opened.is_filling(2 * limits.bytes, self._target) if self._merges else opened.is_filling(limits.bytes)

    def _idle(self, opened: OpenLog[O, P, T], start: P) -> P:
        """Return `start`, or now and then a later position if no captured change lies between, so that the server can
        discard log."""
        moved = opened.idle_position(start)
        if moved == start:
            return start
        waited = self._runtime.monotonic() - self._memory.idle_since
        if waited < IDLE_SECONDS and not opened.is_far(start, moved):
            return start
        self._memory.idle_since = self._runtime.monotonic()
        return moved

    # --- before the log --------------------------------------------------------------------------------------------

    def _begin(self, since: O, limits: Limits) -> O | None:
        """Do everything that precedes the log. Return the offset of a snapshot's first batch; None if there is none."""
        if self._memory.begun:
            return None
        self._source.prepare(since)
        is_running = since.snapshot is not None and not since.snapshot.is_complete
        reason = self._source.clear_lost(since) if self._mode.mends and not since.is_initial else ""
        each = self._mode.reads == "each start" and not self._memory.has_started
        wanted = each or (self._mode.reads == "once" and since.is_initial)
        first = None
        if reason or (wanted and not is_running):
            first = self._start_snapshot(since, limits, reason)
        elif not is_running and not self._memory.has_started:
            self._notifications.skipped()
        self._memory.begun = True
        return first

    def _may_stream(self, since: O) -> bool:
        """Return True unless a snapshot ended less than `streaming.delay.ms` ago; waits for a while."""
        if since.snapshot is None or self._log is not None:
            return True
        return self._delay.is_over(wholly=self._target is not None)

    def _open(self, since: O, until: O | None = None) -> OpenLog[O, P, T]:
        """Return the log, opened at `since` at the first call; `until` is the end of a batch to replay."""
        if self._log is not None and not self._log.fits(since):
            self._close_log()
        if self._log is None:
            self._log = self._source.open(since, until, self._target)
            self._load_ahead()
        return self._log

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _start_snapshot(self, since: O, limits: Limits, reason: str) -> O:
        """Plan a snapshot; its first chunks are the first batch. `reason` says why the position in the log is lost."""
        if reason:
            log.warning("%s A new snapshot is taken.", reason)
            data = (("connector_name", self._config["topic.prefix"]), ("reason", reason))
            self._notifications.add(Notification(str(uuid.uuid4()), "Captured Tables", "GAP", data))
        # the log was opened to replay a batch and knows nothing of this snapshot
        self._close_log()
        self._runtime.sleep(self._config["snapshot.delay.ms"] / 1000)
        fresh = self._mode.streams and (since.is_initial or bool(reason))
        begun = self._begun(since, self._snapshots.start(since, fresh=fresh))
        return self._first_chunks(begun, limits)

    def _begun(self, since: O, found: O) -> O:
        """Return the offset after `since`; if it is the query's first, with the positions where its channels begin."""
        positions = first_positions(self._config, self._runtime.time_ns() // 1_000_000) if since.is_initial else ()
        return replace(found, progress=replace(found.progress, positions=positions)) if positions else found

    def _block(self, since: O, limits: Limits) -> O | None:
        """Start the blocking snapshot that a signal has requested: the log waits while its tables are read.

        None if the log must be read further first. A snapshot that cannot be read is given up: a signal must not end
        the query, let alone at each of its starts.
        """
        tables = since.progress.blocking
        try:
            begun = self._snapshots.block(since)
        except (ConnectionFailed, DiskFailed, PositionLost):
            raise
        except TailraceError as error:
            reason = error.message.rstrip(".") + (f"; remedy: {error.remedy}" if error.remedy else "")
            log.warning("the blocking snapshot of %s is given up: %s", ", ".join(map(str, tables)), reason)
            self._snapshots.close()
            self._notifications.given_up()
            progress = self._notifications.add_to(replace(since.progress, blocking=(), notifications=()))
            return replace(since, progress=progress)
        if begun is None:
            return None
        if self._log is not None and not self._log.outlives_snapshots:
            self._close_log()
        log.info("blocking snapshot of %s", ", ".join(map(str, tables)))
        progress = replace(since.progress, blocking=(), reading=tables)
        return self._first_chunks(replace(begun, progress=progress), limits)

    def _first_chunks(self, begun: O, limits: Limits) -> O:
        self._snapshot_tables = self._snapshots.table_count
        self._notifications.started(self._snapshots.count() if self._notifications.are_wanted else {})
        return self._next_chunks(begun, limits, everything=False)

    def _next_chunks(self, since: O, limits: Limits, *, everything: bool) -> O:
        """Return the offset after the next chunks."""
        snapshot = self._snapshots.advance(since, limits.max_rows, everything=everything)
        self._notifications.chunks(since.snapshot, snapshot, asked=bool(since.progress.reading))
        progress = self._notifications.add_to(replace(since.progress, notifications=()))
        return replace(since, snapshot=snapshot, progress=progress)

    # --- the tasks of a batch ------------------------------------------------------------------------------------

    def _tasks(self, since: O, until: O, end: Offset) -> list[Task]:
        tasks = self._source.tasks(since, until)
        beside: list[Task] = []
        notifications = until.progress.notifications
        if notifications and notifications != since.progress.notifications and self._notifications.are_records:
            beside.append(NotificationTask(notifications, until.place, self._settings))
        if until.heartbeat_ms > since.heartbeat_ms:
            beside.append(HeartbeatTask(until.heartbeat_ms, until.place, self._settings))
        # the log stands still while a snapshot runs; a snapshot that mends a gap cannot read the log within the gap
        if until.snapshot is not None or since.is_initial:
            return tasks + beside
        if since.log.is_before(until.log):
            return tasks + self._open(since, until).tasks(since, until, end, beside)
        return tasks + (beside if self._log is None else self._log.tasks(since, until, end, beside))


def _beside_others(load: Callable[[], None]) -> None:
    """Run `load`, which imports modules, without holding up the process's other threads."""
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        load()
    finally:
        # not the previous value: another engine of the process may be importing too
        sys.setswitchinterval(_USUAL_SECONDS)
