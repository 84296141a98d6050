"""PostgresLogSession: the open log of PostgreSQL, and the ends, offsets, windows and tasks of its batches. Planner."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tailrace.config import Config
from tailrace.config.processors import processors
from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.identity import CatalogXmin
from tailrace.connectors.postgres.log.indexed_run import Rows, boundaries
from tailrace.connectors.postgres.log.messages import MessageTask, messages
from tailrace.connectors.postgres.log.row_log import PostgresRowLog
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import Committed, FlushedLsn, LogPosition, MixedSegment, Segment
from tailrace.connectors.postgres.schema.hypertables import HypertableCatalog
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.postgres.setup.coverage_watch import CoverageWatch
from tailrace.connectors.postgres.snapshot.row_lookup import PresentRows
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, ReadTask, Rehearsal
from tailrace.connectors.postgres.snapshot.windows import Changes, Incremental
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.reselection import Reread
from tailrace.log import contracts
from tailrace.log.contracts import Limits, Offset, Task
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.reader import LogReader
from tailrace.log.rows import partitioning
from tailrace.log.rows.segment import versions_of
from tailrace.log.rows.tasks import LogTask
from tailrace.snapshot.progress import Progress, read_through
from tailrace.snapshot.table_commands import TableCommands, settled

# A window of an incremental snapshot is opened only if the reader is at most WINDOW_LAG bytes behind the log's end. It
# is given up if the log has not been read to the window's end within WINDOW_SECONDS.
WINDOW_LAG = 8 << 20
WINDOW_SECONDS = 10.0
# Up to this many bytes of the log get no task of their own beside a window.
SMALL_BYTES = 256 << 10

Groups = Sequence[Sequence[Segment | MixedSegment]]
"""Segments by the tasks that read them."""


# a constant, because the call takes longer than planning a small batch's tasks
_CORES = os.cpu_count() or 1


def parallelism(config: Config) -> int:
    """Return the number of tasks of a batch that may run in parallel."""
    return config["event.order.segments"] or _CORES


class PostgresLogSession(LogReader[PostgresOffset, LogPosition, Committed, Rows]):
    """The log that `feed` reads. Tasks read rows at `address`, and `stock` has the captured tables as last found.

    The feed leaves out transactions that one snapshot has shown, so another snapshot needs another session. Other
    `commands` also need one: the feed reads the tables that were captured at the session's first offset.
    """

    windows: Incremental | None
    outlives_snapshots = False

    def __init__(
        self,
        feed: PostgresFeed,
        config: Config,
        settings: EventSettings,
        windows: Incremental | None,
        xmin: CatalogXmin,
        address: Callable[[], Address],
        hypertables: HypertableCatalog,
        stock: CoverageWatch,
        commands: TableCommands,
    ) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        super().__init__(feed, feed.start, memory_limit=memory, disk_limit=disk, runtime=feed.runtime)
        self.feed = feed
        self.versions = feed.relations.versions
        self._stock = stock
        self.windows = windows
        self._config = config
        self._settings = settings
        self._hypertables = hypertables
        self._xmin = xmin
        self._address = address
        self._processors = processors(config).processors
        self._has_rehearsed = False
        self._commands = commands

    def fits(self, since: PostgresOffset) -> bool:
        return settled(since.progress.commands, self._config) == self._commands

    def close(self) -> None:
        super().close()
        self.feed.end()

    @property
    def lag(self) -> int:
        """Bytes of log that the server has flushed, as far as known, and that have not been read."""
        return max(0, self.feed.head_lsn - self.feed.progress)

    def acknowledge(self, since: PostgresOffset) -> None:
        # Spark has committed the position from which it asks to continue
        self.release(Committed(since.log))

    def plan(self, start: LogPosition, limits: Limits, target: LogPosition | None) -> LogPosition:
        end = super().plan(start, limits, target)
        # the last batch of a query also skips log without captured changes, so that the next query does not read it
        # again
        return end if target is None or end == start else self.idle_position(end)

    def read_through(self, target: FlushedLsn, seconds: float) -> bool:
        """Wait until everything before `target` has been read; return False if that takes too long.

        Returns False at once when the spool is full, since its content must be delivered first. Raises the error that
        ended the thread before it reached `target`.
        """
        deadline = self._runtime.monotonic() + seconds
        self.feed.want(target)
        while not self.has_read(LogPosition(target)):
            self._raise()
            left = deadline - self._runtime.monotonic()
            if left <= 0 or self.spool.full:
                return False
            self.spool.wait(min(left, 0.25))
        return True

    def is_far(self, start: LogPosition, idle: LogPosition) -> bool:
        return idle.safe_lsn - start.safe_lsn >= contracts.IDLE_BYTES

    def window_end(
        self, progress: Progress, start: LogPosition, limits: Limits, target: LogPosition | None
    ) -> LogPosition | None:
        windows = self.windows
        if windows is None or self.lag > WINDOW_LAG:
            return None
        window = windows.open(progress, start.commit_lsn)
        if window is None:
            return None
        # if reading ends at a target, extend the target to the window's end
        self.feed.extend(window.upto)
        if not self.read_through(window.upto, WINDOW_SECONDS):
            windows.give_up()
            return None
        found = self.plan_upto(start, LogPosition(window.upto))
        if target is None and windows.opens_ahead:
            # the window was opened a while ago: changes after it need not wait for the next batch
            further = self.plan_upto(start, None, limits)
            found = further if found.is_before(further) else found
        return found

    def changes(self, start: LogPosition, end: LogPosition) -> Changes:
        return Changes(self.take(start, end) if start.is_before(end) else [], self.versions)

    def offset(self, since: PostgresOffset, end: LogPosition, heartbeat_ms: int, progress: Progress) -> PostgresOffset:
        visible = since.visible
        if visible is not None and end.commit_lsn >= visible.before_lsn:
            visible = None
        hypertables = since.hypertables
        if self._hypertables.is_asked:
            hypertables = self._hypertables.learned(hypertables, self._tables(since.log, end, progress))
        self._stock.note_read(read_through(since.progress, progress))
        return PostgresOffset(
            end,
            visible=visible,
            xmin=self._xmin.now() if since.log.is_before(end) else since.xmin,
            schemas=self.feed.relations.history.upto(since.log, end),
            server=self.feed.server or since.server,
            hypertables=hypertables,
            inventory=self._stock.inventory or since.inventory,
            heartbeat_ms=heartbeat_ms,
            progress=progress,
        )

    def _tables(self, start: LogPosition, end: LogPosition, progress: Progress) -> Iterator[tuple[str, str]]:
        """Yield the tables with rows in a batch, as (schema, table)."""
        for number in versions_of(self.changes(start, end).rows):
            table = self.versions[number].id
            yield table.schema, table.table
        for state in (progress.before, progress.state):
            for collection in () if state is None else state.collections:
                yield collection.schema, collection.table

    def tasks(self, since: PostgresOffset, until: PostgresOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        settings = self._hypertables.settings(until.hypertables)
        tasks: list[Task] = []
        rows: list[Rows] = []
        groups: Groups = []
        self.batch_tables = ()
        if since.log.is_before(until.log):
            rows = self.take(since.log, until.log)
            groups = self._groups(rows, settings)
            again = self._again() if groups else None
            # rows of a window may have the keys of changes, and so may tables that are routed into one
            if settings.blocks and self.windows is None and settings.routing is None:
                settings = replace(settings, apart=True)
            row_log = PostgresRowLog(until.xmin)
            tasks.extend(LogTask(tuple(group), settings, row_log, again) for group in groups)
            logical = messages(rows, self._settings.most_change_bytes)
            if logical is not None:
                tasks.append(MessageTask(logical, settings, until.xmin))
            found = boundaries(rows)
            if found:
                tasks.append(BoundaryTask(tuple(found), settings))
        tasks += beside
        return (
            tasks
            if self.windows is None
            else self._with_window(self.windows, tasks, groups, rows, until, end, settings)
        )

    def _again(self) -> Reread | None:
        """Return the means to reread values that the log does not carry; None if no post-processor asks for them."""
        return Reread(self._processors, PresentRows(self._address())) if self._processors else None

    def _with_window(
        self,
        windows: Incremental,
        tasks: list[Task],
        groups: Groups,
        rows: Sequence[Rows],
        until: PostgresOffset,
        end: Offset,
        settings: EventSettings,
    ) -> list[Task]:
        """Return the tasks of a batch together with those of its window.

        `groups` are the segments of `tasks`, and `rows` the rows of the segments.
        """
        parallel = parallelism(self._config)
        changes = Changes(rows, self.versions)
        reads = windows.reads(end, changes)
        if reads:
            address = self._address()
            read: list[Task] = [ReadTask(address, part, settings) for part in windows.spread(reads, parallel)]
            if _is_small(groups):
                tasks, read = [Consecutive((*tasks, read[0]))], read[1:]
            tasks = [*tasks, *read]
            # rows of a table that was added must not be read before its changes arrive
            if self.lag <= WINDOW_LAG and self.fits(until):
                windows.open_ahead(end, until.progress, until.log.commit_lsn)
        elif rows and not self._has_rehearsed:
            self._has_rehearsed = True
            windows.rehearse(changes)
            if groups and _is_small(groups):
                tasks = tasks + [Rehearsal(tasks[0])] * (parallel - len(tasks))
        return tasks

    def _groups(self, rows: Sequence[Rows], settings: EventSettings) -> Groups:
        versions = self.versions
        self.batch_tables = [versions[number] for number in versions_of(rows)]
        shared = names.shared(settings, (table.id for table in self.batch_tables))
        return partitioning.tasks(
            PostgresRowLog(),
            rows,
            versions,
            lambda table: shared[table.id],
            self._config["event.order"] == "key",
            parallelism(self._config),
            # Spark's JVM gets the tasks first, and would hold the bytes of messages that workers then leave out
            self._settings.most_change_bytes,
            self._settings.takes_last,
        )


def _is_small(groups: Groups) -> bool:
    return len(groups) <= 1 and sum(one.data.nbytes for group in groups for one in group) <= SMALL_BYTES
