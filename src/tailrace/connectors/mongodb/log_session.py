"""MongoLogSession: reads the oplog or change stream, with the windows of incremental snapshots. Planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.config import Config
from tailrace.connectors.mongodb.log.feed import MongoFeed
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Namespace
from tailrace.connectors.mongodb.log.namespaces import choice
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition, Committed
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.records.partition import tasks_of
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.records.transactions import NumberedChanges, numbered
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot.placing import placed
from tailrace.connectors.mongodb.snapshot.windows import Changes, Incremental, LogPlace
from tailrace.connectors.mongodb.values import fields
from tailrace.log import contracts
from tailrace.log.contracts import NO_LIMITS, Limits, Offset, Task
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.reader import LogReader
from tailrace.process.runtime import Runtime
from tailrace.snapshot.progress import Progress


class MongoLogSession(LogReader[MongoOffset, ChangePosition, Committed, ChangeArrays]):
    """The log that `feed` reads: changes of the collections `names`, in segments of the given `kind`.

    `present` returns the timestamp of the server's newest operation. `server` is stored in offsets.
    """

    windows: Incremental | None

    def __init__(
        self,
        feed: MongoFeed,
        config: Config,
        settings: MongoSettings,
        names: Sequence[Namespace],
        kind: str,
        incremental: Incremental | None,
        parallelism: int,
        present: Callable[[], int],
        server: str,
        runtime: Runtime,
    ) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        name = "tailrace-mongodb-reader"
        super().__init__(feed, feed.start, memory_limit=memory, disk_limit=disk, name=name, runtime=runtime)
        self.feed = feed
        self.windows = incremental
        self._settings = settings
        self._choice = choice(config)
        self._server = server
        self._names = names
        self._kind = kind
        self._by_key = config["event.order"] == "key"
        self._parallelism = parallelism
        self._present = present
        # the server's timestamp when the snapshot before the log had been read
        self._over = 0
        # the end of the last planned batch, and the bytes that had been read when it was planned
        self._planned = ChangePosition()
        self._read_bytes = 0

    def acknowledge(self, since: MongoOffset) -> None:
        self._planned = since.log
        if since.snapshot is None:
            self._over = 0
        elif self._settings.events.blocks and not self._over:
            self._over = self._present()
        # Spark asks for the batch after an offset once the offset is in its commit log
        self.release(Committed(since.log))

    def plan_upto(
        self, start: ChangePosition, upto: ChangePosition | None, limits: Limits = NO_LIMITS
    ) -> ChangePosition:
        end = super().plan_upto(start, upto, limits)
        # without a limit the batch may end after changes that are not captured
        return self.idle_position(end) if upto is None and end != start else end

    def is_far(self, start: ChangePosition, idle: ChangePosition) -> bool:
        return self.feed.read_bytes - self._read_bytes >= contracts.IDLE_BYTES

    def newest(self) -> ChangePosition:
        """Return the newest position that is known to exist; the end of the last batch if no captured change waits."""
        waiting = self.feed.reached_position if len(self.spool) else self._planned
        return max(self._planned, waiting, self.feed.head(), key=lambda one: one.key)

    def window_end(
        self, progress: Progress, start: ChangePosition, limits: Limits, target: ChangePosition | None
    ) -> ChangePosition | None:
        if self.windows is None or self.feed.is_behind or self.has_failed:
            return None
        window = self.windows.open(progress, LogPlace(self, self.feed, start))
        return None if window is None else window.upto.position

    def changes(self, start: ChangePosition, end: ChangePosition) -> Changes:
        return Changes(self.take(start, end) if start.is_before(end) else [], self._names)

    def offset(self, since: MongoOffset, end: ChangePosition, heartbeat_ms: int, progress: Progress) -> MongoOffset:
        opened = since.transaction
        if self._settings.events.provide_transaction_metadata and since.log.is_before(end):
            opened = self._numbered(self.take(since.log, end), since).open
        self._planned, self._read_bytes = end, self.feed.read_bytes
        if not self._settings.events.blocks:
            shown, whole = 0, False
        else:
            shown, whole = self._shown(since, end), self._is_whole(since, end)
        return MongoOffset(
            end, opened, shown, whole, self._choice, self._server, heartbeat_ms=heartbeat_ms, progress=progress
        )

    def _is_whole(self, since: MongoOffset, end: ChangePosition) -> bool:
        """Return True if the batch ends with all captured changes of its last transaction."""
        if end.number in (0, WHOLE) or self.idle_position(end).time > end.time:
            return True
        rows = self.take(since.log, end) if since.log.is_before(end) else []
        if not rows:
            return since.whole
        # only changes of transactions have a txnNumber, and only they share a timestamp
        places, _ = fields.locate(rows[-1].data, rows[-1].at[-1:], ("txnNumber",))
        return bool(places[0][0] < 0)

    def _shown(self, since: MongoOffset, end: ChangePosition) -> int:
        """Return the newest timestamp whose changes may already be in the documents of events; 0 if it is not after
        `end`."""
        # no document that was read until now is newer than the server's current timestamp
        looks_up = self._settings.looks_up and since.log.is_before(end)
        shown = self._present() if looks_up else self._over if since.snapshot is not None else since.shown
        return shown if shown > end.time else 0

    def tasks(self, since: MongoOffset, until: MongoOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        events = self._settings.events
        tasks: list[Task] = []
        rows: list[ChangeArrays] = []
        changes: list[LogTask] = []
        if since.log.is_before(until.log):
            rows = self.take(since.log, until.log)
            counted = self._numbered(rows, since) if events.provide_transaction_metadata else None
            if counted is not None and counted.boundaries:
                tasks.append(BoundaryTask(tuple(counted.boundaries), events))
            changes = tasks_of(
                rows,
                self._names,
                self._kind,
                self._settings,
                by_key=self._by_key,
                parallelism=self._parallelism,
                numbers=None if counted is None else counted.numbers,
            )
        if self.windows is not None:
            changes = placed(changes, self.windows.reads(end, Changes(rows, self._names)), self._settings)
        return [*tasks, *changes, *beside]

    def _numbered(self, rows: Sequence[ChangeArrays], since: MongoOffset) -> NumberedChanges:
        """Return the numbers of a batch's events in their transactions."""
        settings = self._settings
        return numbered(
            rows,
            self._names,
            since.transaction,
            settings.events.skipped_operations,
            settings.replica_set if settings.legacy else None,
        )
