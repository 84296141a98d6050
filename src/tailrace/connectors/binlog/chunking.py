"""BinlogSnapshots: start initial and blocking snapshots, and give each batch its chunks. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.filters import lists_text
from tailrace.connectors.binlog.log.position import ChangeContext
from tailrace.connectors.binlog.log.schema_changes import SchemaChangesTask
from tailrace.connectors.binlog.log_session import parallelism
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.schema.definition import Name
from tailrace.connectors.binlog.schema.definitions import State
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.chunks import BATCHES, Altered, TableSnapshots
from tailrace.connectors.binlog.snapshot.point import Point, RowOrigin
from tailrace.connectors.binlog.snapshot.progress import SnapshotProgress
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Task
from tailrace.log.table_notifications import TableNotifications
from tailrace.process.runtime import Runtime
from tailrace.snapshot.incremental import Collection

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from tailrace.connectors.binlog.log.position import BinlogPosition

log = logging.getLogger("tailrace")

# Seconds between two warnings of a blocking snapshot that waits.
_PATIENCE = 30.0


class BinlogSnapshots(contracts.Snapshots[BinlogOffset]):
    """Snapshots of the captured tables.

    `connect` opens a session without a limit for its statements. `admit` returns a schema with the key of its events.
    `place` returns the log position of a point on a server, given the previous offset. `latest` returns the place of
    the latest change that was delivered, `late` the tables that edited lists have added since an offset. `altered`: see
    TableSnapshots.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        tables: TableFilter,
        connect: Callable[[], Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
        place: Callable[[Point, str, BinlogOffset], BinlogPosition],
        runtime: Runtime,
        latest: Callable[[], RowOrigin | None],
        late: Callable[[BinlogOffset], Iterable[Name]],
        altered: Altered | None,
    ) -> None:
        self._config, self._settings = config, settings
        self._runtime = runtime
        self._place, self._latest, self._late = place, latest, late
        self._parallelism = parallelism(config)
        self._make: Callable[[], TableSnapshots] = lambda: TableSnapshots(
            config, settings, tables, connect, admit, self._parallelism, runtime, altered
        )
        self._chunks = self._make()
        # the tables of a blocking snapshot that has to be tried again, and the time of the next warning
        self._waits: tuple[Sequence[Collection], float] | None = None
        self.notifications = TableNotifications(config, runtime, lambda: self._chunks.failing)

    @property
    def holds_global_lock(self) -> bool:
        """True while a snapshot holds the lock that blocks all writes to all tables. For any thread."""
        return self._chunks.holds_global_lock

    def begin_anew(self) -> None:
        """Close the sessions of the running snapshot, as after a crash."""
        self._chunks.close()
        self._chunks = self._make()

    def start(self, since: BinlogOffset, *, fresh: bool) -> BinlogOffset:
        self._choose(())
        plan, bounds = self._chunks.start()
        read = {str(one.id) for one in self._chunks.planned()}
        late = sorted({*since.late, *self._late(since)})
        late = [one for one in late if ".".join(one) not in read]
        since = replace(since, late=tuple(late), lists=lists_text(self._config))
        log.info("the snapshot begins (tables: %d, chunks: %d)", len(plan.tables), len(plan))
        point, state = self._chunks.point, self._chunks.state
        assert state is not None
        if not fresh and self._settings.copies and since.log.file:
            # only the log shows the deletes since the last run
            return replace(since, snapshot=SnapshotProgress(plan, bounds, point, 0, since.log.epoch))
        # a later start (`always`) skips the changes since the last run, as Debezium does: the rows show their result
        if since.schemas:
            state = state.after(State.from_text(since.schemas))
        position = self._place(point, self._chunks.server, since)
        progress = SnapshotProgress(plan, bounds, point, 0, position.epoch)
        return replace(since, log=position, schemas=state.to_text(), snapshot=progress)

    @explained
    def block(self, since: BinlogOffset) -> BinlogOffset | None:
        """Return the offset at which a blocking snapshot of the signal's tables starts.

        All later changes of these tables in the log are delivered, even if the snapshot shows their result: deletes
        must be delivered, and so must the changes of their rows after them. Tables whose filter fails are left out.
        Returns None if the snapshot would not yet show all transactions that were delivered: a transaction is in the
        log a moment before other sessions see it.
        """
        self._choose(since.progress.blocking)
        plan, bounds = self._chunks.start()
        if not self._chunks.shows(since.log):
            self._chunks.close()
            self._wait(since)
            return None
        self._waits = None
        point, latest = self._chunks.point, self._latest()
        # the rows show the signal's transaction, and all that was read from the log
        origin = None if latest is None else replace(latest, pos=since.log.end, at_us=point.at_us)
        return replace(since, snapshot=SnapshotProgress(plan, bounds, point, 0, since.log.epoch, origin))

    def _wait(self, since: BinlogOffset) -> None:
        """Log that a blocking snapshot has to be tried again; as a warning if it has waited for some time."""
        tables, now = since.progress.blocking, self._runtime.monotonic()
        if self._waits is None or self._waits[0] != tables:
            log.info("the blocking snapshot waits: what the log has delivered is not visible yet")
            self._waits = tables, now + _PATIENCE
        elif now >= self._waits[1]:
            log.warning(
                "the blocking snapshot of %s waits: the server does not show what was delivered up to %s; remedy: see "
                "whether its commits hang (SHOW PROCESSLIST), or, if it has taken over, whether it has executed what "
                "the former server had",
                ", ".join(map(str, tables)),
                since.log,
            )
            self._waits = tables, now + _PATIENCE

    def _choose(self, tables: Sequence[Collection]) -> None:
        """Make snapshots read `tables`, each by its filter (a statement) if it has one; if empty, the tables of the
        options."""
        self._chunks.choose({str(one): one.filter for one in tables} if tables else None)

    @property
    def table_count(self) -> int:
        return self._chunks.table_count

    def count(self) -> Mapping[tuple[str, str], int]:
        return self._chunks.count()

    def advance(self, since: BinlogOffset, max_rows: int | None, *, everything: bool) -> SnapshotProgress:
        assert since.snapshot is not None
        plan, done = since.snapshot.plan, len(since.snapshot.plan)
        if not everything:
            done = min(done, since.snapshot.done + self._chunks_per_batch(len(plan)))
        return replace(since.snapshot, done=done)

    def _chunks_per_batch(self, total: int) -> int:
        """Return a number of chunks that keeps every core busy for a while."""
        if self._config.is_set("max.batch.size"):
            return self._parallelism
        return max(3 * self._parallelism, -(-total // BATCHES))

    def tasks(self, since: BinlogOffset, until: BinlogOffset) -> list[Task]:
        """Return the tasks of the chunks between the two offsets."""
        before, snapshot = since.snapshot, until.snapshot
        if snapshot is None:
            return self._definitions(until) if since.is_initial else []
        is_first = before is None or before.point != snapshot.point
        tasks = self._definitions(until) if is_first else []
        first = 0 if is_first or before is None else before.done
        if first >= snapshot.done:
            return tasks
        self._choose(until.progress.reading)
        return tasks + self._chunks.tasks(snapshot, first, 3 * self._parallelism, until.schemas)

    def _definitions(self, until: BinlogOffset) -> list[Task]:
        """Return the task with the records of definitions for the start of a snapshot or of the log, if wanted."""
        settings = self._settings
        if not self._config["include.schema.changes"] or settings.typed is not None or settings.copies:
            return []
        at, now_us = until.log, self._runtime.time_ns() // 1000
        context = ChangeContext(at.file, at.end, "", 0, now_us, at.text(), 0)
        blocking = {(one.schema, one.table) for one in until.progress.reading}
        found = self._chunks.records(blocking)
        records = ((record, replace(context, ordinal=number)) for number, record in enumerate(found))
        ends = not blocking and (until.snapshot is None or not len(until.snapshot.plan))
        return [SchemaChangesTask(tuple(records), settings, snapshot=True, ends=ends)]

    def close(self) -> None:
        self._chunks.close()
