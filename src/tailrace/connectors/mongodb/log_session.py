"""OpenedLog: the oplog or change stream while the planner reads it, with the windows of incremental snapshots.
Planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.config import Config
from tailrace.connectors.mongodb.log.indexed_run import Namespace, Rows
from tailrace.connectors.mongodb.log.namespaces import choice
from tailrace.connectors.mongodb.log.position import WHOLE, Committed, Position
from tailrace.connectors.mongodb.log.reader import MongoLogReader
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.records.partition import tasks_of
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.records.transactions import Numbered, numbered
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot.placing import placed
from tailrace.connectors.mongodb.snapshot.windows import Changes, Incremental, LogPlace
from tailrace.connectors.mongodb.values import fields
from tailrace.log import contracts
from tailrace.log.contracts import Limits, Offset, Task
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.reader import ReadLog
from tailrace.snapshot.progress import Progress


class MongoLogSession(ReadLog[MongoOffset, Position]):
    """The log that `reader` reads: changes of the collections `names`, in segments of the given `kind`.

    `present` returns the timestamp of the server's newest operation.
    """

    reader: MongoLogReader
    windows: Incremental | None

    def __init__(
        self,
        config: Config,
        settings: MongoSettings,
        reader: MongoLogReader,
        names: Sequence[Namespace],
        kind: str,
        incremental: Incremental | None,
        parallelism: int,
        present: Callable[[], int],
    ) -> None:
        self.reader = reader
        self.windows = incremental
        self._settings = settings
        self._choice = choice(config)
        self._names = names
        self._kind = kind
        self._by_key = config["event.order"] == "key"
        self._parallelism = parallelism
        self._present = present
        # the server's timestamp when the snapshot before the log had been read
        self._over = 0
        # the end of the last planned batch, and the bytes that had been read when it was planned
        self._planned = Position()
        self._read_bytes = 0

    def committed(self, since: MongoOffset) -> None:
        self._planned = since.log
        if since.snapshot is None:
            self._over = 0
        elif self._settings.events.blocks and not self._over:
            self._over = self._present()
        # Spark asks for the batch after an offset once the offset is in its commit log
        self.reader.committed(Committed(since.log))

    @staticmethod
    def upto(target: int) -> Position:
        return Position(target, WHOLE)

    def is_far(self, start: Position, idle: Position) -> bool:
        return self.reader.read_bytes - self._read_bytes >= contracts.IDLE_BYTES

    def newest(self) -> Position:
        """Return the newest position that is known to exist."""
        return self.reader.newest(self._planned)

    def window_end(self, progress: Progress, start: Position, limits: Limits, target: int | None) -> Position | None:
        if self.windows is None or self.reader.is_behind or self.reader.has_failed:
            return None
        window = self.windows.open(progress, LogPlace(self.reader, start))
        return None if window is None else window.upto.position

    def changes(self, start: Position, end: Position) -> Changes:
        return Changes(self.reader.take(start, end) if start.is_before(end) else [], self._names)

    def offset(self, since: MongoOffset, end: Position, heartbeat_ms: int, progress: Progress) -> MongoOffset:
        opened = since.transaction
        if self._settings.events.provide_transaction_metadata and since.log.is_before(end):
            opened = self._numbered(self.reader.take(since.log, end), since).open
        self._planned, self._read_bytes = end, self.reader.read_bytes
        if not self._settings.events.blocks:
            return MongoOffset(end, None, heartbeat_ms, opened, progress, choice=self._choice)
        shown, whole = self._shown(since, end), self._is_whole(since, end)
        return MongoOffset(end, None, heartbeat_ms, opened, progress, shown, whole, self._choice)

    def _is_whole(self, since: MongoOffset, end: Position) -> bool:
        """Return True if no captured change of the last change's transaction is still to come."""
        if end.number in (0, WHOLE) or self.reader.idle_position(end).time > end.time:
            return True
        rows = self.reader.take(since.log, end) if since.log.is_before(end) else []
        if not rows:
            return since.whole
        # only changes of transactions have a txnNumber, and only they share a timestamp
        places, _ = fields.locate(rows[-1].data, rows[-1].at[-1:], ("txnNumber",))
        return bool(places[0][0] < 0)

    def _shown(self, since: MongoOffset, end: Position) -> int:
        """Return the newest timestamp whose changes documents may show ahead of the log; 0 if it is not after `end`."""
        # no document that was read until now is newer than the present timestamp
        looks_up = self._settings.looks_up and since.log.is_before(end)
        shown = self._present() if looks_up else self._over if since.snapshot is not None else since.shown
        return shown if shown > end.time else 0

    def tasks(self, since: MongoOffset, until: MongoOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        events = self._settings.events
        tasks: list[Task] = []
        rows: list[Rows] = []
        changes: list[LogTask] = []
        if since.log.is_before(until.log):
            rows = self.reader.take(since.log, until.log)
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

    def _numbered(self, rows: Sequence[Rows], since: MongoOffset) -> Numbered:
        """Return the numbers of a batch's events in their transactions."""
        settings = self._settings
        return numbered(
            rows,
            self._names,
            since.transaction,
            settings.events.skipped_operations,
            settings.replica_set if settings.legacy else None,
        )
