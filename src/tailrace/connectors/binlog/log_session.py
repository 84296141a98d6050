"""BinlogLogSession: the open log, which gives batches their ends, offsets, windows and tasks. Planner."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.config import Config, TableFilter
from tailrace.config.filters import lists_text
from tailrace.config.processors import processors
from tailrace.connectors.binlog.log.feed import BinlogFeed
from tailrace.connectors.binlog.log.indexed_run import Rows, boundaries, schema_changes
from tailrace.connectors.binlog.log.position import WHOLE, BinlogPosition, ChangeContext, Committed, number_of
from tailrace.connectors.binlog.log.row_log import BinlogRowLog
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import Definitions, State
from tailrace.connectors.binlog.schema.statement import Place
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.reselection import Reread, RereadRows
from tailrace.log import contracts
from tailrace.log.contracts import NO_LIMITS, Limits, Offset, Task
from tailrace.log.control_tasks import BoundaryTask
from tailrace.log.reader import LogReader
from tailrace.log.rows import partitioning
from tailrace.log.rows.segment import versions_of
from tailrace.log.rows.tasks import LogTask
from tailrace.process.runtime import Runtime
from tailrace.snapshot.progress import Progress, read_through
from tailrace.snapshot.table_commands import NO_COMMANDS, TableCommands, settled

if TYPE_CHECKING:
    from tailrace.connectors.binlog.log.forms import BinlogTable

# A window of an incremental snapshot is given up if its end has not been read after this time, in s.
WINDOW_SECONDS = 10.0
# a constant, because the call takes longer than planning a small batch's tasks
_CORES = os.cpu_count() or 1


def parallelism(config: Config) -> int:
    """Return the number of parallel tasks of a batch."""
    return config["event.order.segments"] or _CORES


def _place(position: BinlogPosition) -> Place:
    """Return a position as the place for a look-up of definitions."""
    epoch, number, start, _ = position.key
    return Place(epoch, number, start, WHOLE if position.consumed is None else -1)


class Changes:
    """The rows of a batch and their table versions, for windows and look-ups. `state` has the definitions at its
    `end`."""

    def __init__(
        self, rows: Sequence[Rows], versions: Sequence[BinlogTable], end: BinlogPosition, state: State
    ) -> None:
        self.rows = rows
        self.versions = versions
        self.end = end
        self.state = state

    @property
    def tables(self) -> Mapping[Name, TableDefinition]:
        return self.state.tables


class BinlogLogSession(LogReader[BinlogOffset, BinlogPosition, Committed, Rows]):
    """The log that `feed` reads. `schema_task` makes the task that delivers records of schema changes. `present`
    returns the reader of current rows, for values that are not in the log.

    The feed reads the tables that were captured at the session's first offset, so other `commands` need a new session.
    `listed` are the tables that edited lists have added since that offset.
    """

    windows: Any = None

    def __init__(
        self,
        feed: BinlogFeed,
        config: Config,
        settings: EventSettings,
        form: SourceForm,
        definitions: Definitions,
        windows: Any,
        present: Callable[[], RereadRows] | None,
        schema_task: Callable[[Sequence[tuple[bytes, ChangeContext]], EventSettings], Task],
        runtime: Runtime,
        commands: TableCommands = NO_COMMANDS,
    ) -> None:
        memory, disk = feed.settings.memory_limit, feed.settings.disk_limit
        super().__init__(
            feed, feed.start, memory_limit=memory, disk_limit=disk, name="tailrace-binlog-reader", runtime=runtime
        )
        self.feed = feed
        self.windows = windows
        self.versions = feed.indexer.versions
        self._config = config
        self._settings = settings
        self._row_log = BinlogRowLog(form)
        self._definitions = definitions
        self._present = present
        self._schema_task = schema_task
        self._processors = processors(config).processors
        self._committed = feed.start
        self._commands = commands
        self._lists = lists_text(config)
        self.listed: Collection[Name] = ()

    def fits(self, since: BinlogOffset) -> bool:
        return settled(since.progress.commands, self._config) == self._commands

    def close(self) -> None:
        super().close()
        self.feed.end()

    def acknowledge(self, since: BinlogOffset) -> None:
        # Spark continues from an offset only once it has committed it
        self._committed = since.log
        self._definitions.forget(_place(since.log))
        self.release(Committed(since.log))

    def has_read(self, target: BinlogPosition) -> bool:
        return super().has_read(self._aimed(target))

    def plan_upto(
        self, start: BinlogPosition, upto: BinlogPosition | None, limits: Limits = NO_LIMITS
    ) -> BinlogPosition:
        end = super().plan_upto(start, None if upto is None else self._aimed(upto), limits)
        # skip the log without captured changes, so that the next query need not read it
        return self.idle_position(end) if upto is not None and end != start else end

    def _aimed(self, target: BinlogPosition) -> BinlogPosition:
        """Return a target, a place in a server's log, as a position in the log that is read now."""
        if target.server and target.server != self.feed.server:
            # the server was replaced meanwhile: the target is the end of the new server's log at that moment
            return self.feed.first_head
        return replace(target, epoch=self.feed.epoch)

    def is_far(self, start: BinlogPosition, idle: BinlogPosition) -> bool:
        if idle.key[:2] != start.key[:2]:
            return True
        return idle.end - start.end >= contracts.IDLE_BYTES

    def read_through(self, target: BinlogPosition, seconds: float) -> bool:
        """Wait until everything before `target` has been read. Return False after `seconds`, or if the spool is full.

        Raises the error that ended the reader's thread before it reached `target`.
        """
        deadline = self._runtime.monotonic() + seconds
        while not self.has_read(target):
            self._raise()
            left = deadline - self._runtime.monotonic()
            if left <= 0 or self.spool.full:
                return False
            self._feed.hurry()
            self.spool.wait(min(left, 0.25))
        return True

    def window_end(
        self, progress: Progress, start: BinlogPosition, limits: Limits, target: BinlogPosition | None
    ) -> BinlogPosition | None:
        windows = self.windows
        if windows is None or self.feed.is_behind:
            return None
        window = windows.open(progress, start)
        if window is None:
            return None
        # checked before and after reading: a place in one server's log has no meaning in another's
        is_here = window.upto.server == self.feed.server and self.read_through(window.upto, WINDOW_SECONDS)
        if not is_here or window.upto.server != self.feed.server:
            windows.give_up()
            return None
        return self.plan_upto(start, window.upto)

    def changes(self, start: BinlogPosition, end: BinlogPosition) -> Changes:
        rows = self.take(start, end) if start.is_before(end) else []
        return Changes(rows, self.versions, end, self._definitions.upto(_place(end)))

    def offset(self, since: BinlogOffset, end: BinlogPosition, heartbeat_ms: int, progress: Progress) -> BinlogOffset:
        state = self._definitions.upto(_place(end))
        if self.windows is not None:
            state = self.windows.defined(state, end)
        late = self._late(since, progress, state)
        return BinlogOffset(
            end, schemas=state.to_text(), late=late, lists=self._lists, heartbeat_ms=heartbeat_ms, progress=progress
        )

    def _late(self, since: BinlogOffset, progress: Progress, state: State) -> tuple[Name, ...]:
        """Return the added tables of which no snapshot has read all rows.

        Only tables that are defined at the end of the batch count: of tables created later the log has all rows.
        """
        was, now = since.progress.commands, progress.commands
        listed = self.listed if since.lists != self._lists else ()
        found = {*since.late} | {*now.added} - {*was.added} | {*was.removed} | {*listed}
        if not found:
            return ()
        captured = TableFilter(self._config)
        captured.overrule(now.added, now.removed)
        read = read_through(since.progress, progress)
        there, known = (
            one.tables.keys() | one.doubtful.keys() for one in (state, self._definitions.upto(_place(since.log)))
        )
        # tables that were not captured have no definition until they have a row; the catalog has shown that they exist
        there |= {*since.late, *listed} - known
        return tuple(sorted(one for one in found & there if captured.includes(*one) and ".".join(one) not in read))

    def tasks(self, since: BinlogOffset, until: BinlogOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        settings = self._settings
        tasks: list[Task] = []
        rows: list[Rows] = []
        self.batch_tables = ()
        if since.log.is_before(until.log):
            rows = self.take(since.log, until.log)
            again = self._again()
            # rows of a window may have the keys of changes; tables routed to the same topic may have equal keys
            if settings.blocks and self.windows is None and settings.routing is None:
                settings = replace(settings, apart=True)
            groups = self._groups(rows, settings)
            tasks.extend(LogTask(tuple(group), settings, self._row_log, again) for group in groups)
            if records := schema_changes(rows):
                tasks.append(self._schema_task(records, settings))
            if found := boundaries(rows):
                tasks.append(BoundaryTask(tuple(found), settings))
        tasks += beside
        if self.windows is not None:
            state = self._definitions.upto(_place(until.log))
            tasks += self.windows.reads(end, Changes(rows, self.versions, until.log, state))
        return tasks

    def _again(self) -> Reread | None:
        """Return the Reread for values that are not in the log; None if no post-processor needs them."""
        present = self._present
        return Reread(self._processors, present()) if self._processors and present is not None else None

    def _groups(self, rows: Sequence[Rows], settings: EventSettings) -> Sequence[Sequence[Any]]:
        versions = self.versions
        self.batch_tables = [versions[number] for number in versions_of(rows)]
        shared = names.shared(settings, (table.id for table in self.batch_tables))
        return partitioning.tasks(
            self._row_log,
            rows,
            versions,
            lambda table: shared[table.id],
            self._config["event.order"] == "key",
            parallelism(self._config),
            # rows that workers would leave out are left out here, since Spark's JVM holds the tasks
            self._settings.most_change_bytes,
            self._settings.takes_last,
        )

    def newest(self) -> BinlogPosition:
        """Return the newest position that is known to exist."""
        epoch, number, end = self.feed.head
        file = self.feed.indexer.read_to[0]
        if number_of(file) != number:
            file = f"{file.rpartition('.')[0]}.{number:06d}"
        return BinlogPosition(file, max(end - 1, 0), end, epoch=epoch)
