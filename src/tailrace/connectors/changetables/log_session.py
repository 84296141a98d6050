"""ChangeTablesSession: plan batches of change tables, and the windows of incremental snapshots. Planner.

There is no reader thread: each poll queries the newest position of every database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tailrace.columns.batch import Boundary
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CaptureHistory
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.numbering import numbered
from tailrace.connectors.changetables.log.tasks import LogTask, Part, TaskSource
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset, TablesPosition, TablesSnapshot
from tailrace.connectors.changetables.position import Newest, read_to
from tailrace.connectors.changetables.snapshot.windows import Changes, Incremental, LogPlace
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Limits, Offset, Task
from tailrace.log.control_tasks import BoundaryTask
from tailrace.process.runtime import Runtime
from tailrace.snapshot.progress import Progress

# The interval of checks for warnings, in s.
WARN_SECONDS = 60.0
# A batch of fewer rows is one task: a second task would cost more than it saves.
SMALL = 4096
# The pause between two polls, in s.
LOOK = 0.1

Target = Mapping[str, Newest]
"""The newest position of each database at a given time, without databases that had captured nothing."""
Observed = Mapping[str, tuple[Newest | None, CaptureHistory]]
"""By database, the end of the captured log after a position (None if nothing is new), and the change tables."""


class ChangeTablesSession(contracts.OpenLog[TablesOffset, TablesPosition, Target]):
    """The change tables of `databases`.

    `wanted` returns a position without tables that the lists now exclude. `shown` returns a table with the columns and
    key that its events need, `source` the TaskSource of a batch. `check` raises an error for a signal table that is not
    captured.
    """

    windows: Incremental

    def __init__(
        self,
        settings: EventSettings,
        databases: Mapping[str, Database],
        wanted: Callable[[DatabaseProgress], DatabaseProgress],
        shown: Callable[[TableSchema], TableSchema],
        source: Callable[[], TaskSource],
        windows: Incremental,
        check: Callable[[Mapping[str, DatabaseProgress]], None],
        runtime: Runtime,
    ) -> None:
        self.windows = windows
        self.newest: dict[str, Newest] = {}
        """The newest known position of each database."""
        self._seen: dict[str, bytes] = {}
        """The position of each database that was read or seen at the last poll."""
        self.captured: dict[str, int] = {}
        """The number of captured tables of each database at the last poll."""
        self._settings = settings
        self._databases = databases
        self._wanted = wanted
        self._shown = shown
        self._source = source
        self._check = check
        self._runtime = runtime
        self._warn_due = 0.0
        # the position reached without changes at the last poll; whether an offset should keep it at once
        self._passed = TablesPosition({})
        self._is_kept = False
        # the snapshot that was read before the log, and the time at which it had been read
        self._over: tuple[TablesSnapshot | None, dict[str, int]] = (None, {})

    def acknowledge(self, since: TablesOffset) -> None:
        self._check(since.databases)
        self._passed = since.log
        # the first offset after a snapshot no longer holds the snapshot
        self._is_kept = since.snapshot is not None
        if self._settings.blocks and since.snapshot is not None and since.snapshot != self._over[0]:
            now = {name: database.session.now_us() for name, database in self._databases.items()}
            self._over = since.snapshot, now
        if self._runtime.monotonic() >= self._warn_due:
            self._warn_due = self._runtime.monotonic() + WARN_SECONDS
            for name, database in self._databases.items():
                database.warn(since.databases[name].eras)

    def wait(self, seconds: float) -> None:
        self._runtime.sleep(min(seconds, LOOK))

    def plan(self, start: TablesPosition, limits: Limits, target: Target | None) -> TablesPosition:
        # a query with a target keeps a position without changes at once, another query only from time to time
        self._is_kept |= target is not None
        self._passed, rows, _ = self._limited(start, self.observed(start), limits, target)
        return self._passed if rows else start

    def observed(self, start: TablesPosition) -> Observed:
        """Return the end of the captured log after `start`, and the change tables, of each database."""
        found: dict[str, tuple[Newest | None, CaptureHistory]] = {}
        for name, database in self._databases.items():
            found[name] = newest, history = database.observe(self._wanted(start.databases[name]))
            self.captured[name] = len(history.latest())
            self._seen[name] = start.databases[name].position if newest is None else newest
            if newest is not None:
                self.newest[name] = newest
        return found

    def _limited(
        self, start: TablesPosition, observed: Observed, limits: Limits, target: Target | None
    ) -> tuple[TablesPosition, int, bool]:
        """Return the end of the batch after `start`, the number of its rows, and True if captured rows remain."""
        found: dict[str, DatabaseProgress] = {}
        rows, is_cut = 0, False
        for name, database in self._databases.items():
            after = upto = start.databases[name].position
            newest, eras = observed[name]
            if newest is not None and target is not None:
                newest = min(newest, target[name]) if name in target else None
            if newest is not None and newest > after:
                upto, count = database.limit(after, newest, eras, limits.max_rows, wholly=target is not None)
                rows += count
                is_cut |= upto < newest
            found[name] = DatabaseProgress(max(after, upto), eras)
        return TablesPosition(found), rows, is_cut

    def window_end(
        self, progress: Progress, start: TablesPosition, limits: Limits, target: Target | None
    ) -> TablesPosition | None:
        """Return the position of the closing watermark as the end of the batch, regardless of the number of rows before
        it."""
        observed = self.observed(start) if progress.state is not None and not progress.state.paused else {}
        window = self.windows.open(progress, LogPlace(start.databases, observed))
        if window is None:
            return None
        name = window.upto.database
        here = start.databases[name]
        _, eras = self._databases[name].observe(self._wanted(here))
        found, _, _ = self._limited(start, {**observed, name: (None, eras)}, limits, target)
        return TablesPosition({**found.databases, name: DatabaseProgress(max(here.position, window.upto.commit), eras)})

    def changes(self, start: TablesPosition, end: TablesPosition) -> Changes:
        # signals may name tables that have been captured since
        found = self.idle_position(start) if end == start else end
        return Changes(start.databases, found.databases)

    def to_end(self, start: TablesPosition, target: Target | None) -> TablesPosition | None:
        """Return the end of the captured log, or of the query, after `start`; None if there is a row in between."""
        found, rows, is_cut = self._limited(start, self.observed(start), Limits(), target)
        return None if rows or is_cut else found

    def whole(self, start: TablesPosition) -> TablesPosition:
        found = {}
        for name, (newest, eras) in self.observed(start).items():
            found[name] = DatabaseProgress(start.databases[name].position if newest is None else read_to(newest), eras)
        return TablesPosition(found)

    def has_seen(self, target: Target) -> bool:
        return all(name in self._seen and self._seen[name] >= wanted for name, wanted in target.items())

    def idle_position(self, start: TablesPosition) -> TablesPosition:
        return self._passed if start.is_before(self._passed) else start

    def is_far(self, start: TablesPosition, idle: TablesPosition) -> bool:
        return self._is_kept

    def offset(self, since: TablesOffset, end: TablesPosition, heartbeat_ms: int, progress: Progress) -> TablesOffset:
        lineages = {name: found for name, database in self._databases.items() if (found := database.lineage)}
        shown_us = self._shown_us(since, end)
        return TablesOffset(end.databases, shown_us, lineages, heartbeat_ms=heartbeat_ms, progress=progress)

    def _shown_us(self, since: TablesOffset, end: TablesPosition) -> dict[str, int]:
        """Return, by database, the time at which a snapshot had been read, if it may show commits after `end`.

        Every commit that the snapshot has shown had ended by this time. A commit with a later time is later in the log,
        because commits have their positions in the order of their times.
        """
        if not self._settings.blocks:
            return {}
        if since.snapshot is not None:
            return self._over[1]
        found = {}
        for name, shown_us in since.shown_us.items():
            after, upto = since.databases[name].position, end.databases[name].position
            times = self._databases[name].session.commit_times(after, upto).at_us if upto > after else ()
            if max(times, default=0) <= shown_us:
                found[name] = shown_us
        return found

    def tasks(self, since: TablesOffset, until: TablesOffset, end: Offset, beside: Sequence[Task]) -> list[Task]:
        source = self._source()
        self.batch_tables = ()
        tasks = self._changes(since, until, source) if since.log.is_before(until.log) else []
        parts = self.windows.reads(end, Changes(since.databases, until.databases))
        return [*tasks, *beside, *(part(source) for part in parts)]

    def _changes(self, since: TablesOffset, until: TablesOffset, source: TaskSource) -> list[Task]:
        """Return one task for each topic that has changes; one for all topics if there are few changes."""
        tables: list[TableSchema] = []
        found: list[Part] = []
        topics: dict[str, list[Part]] = {}
        rows: dict[TableId, int] = {}
        boundaries: list[Boundary] = []
        for name, reached in until.databases.items():
            if name not in since.databases or name not in self._databases:
                continue
            parts = []
            spans = self._wanted(reached).eras.spans(since.databases[name].position, reached.position)
            for span in spans:
                whole = span.era.table
                count = self._databases[name].total(span)
                if count:
                    tables.append(whole)
                    rows[whole.id] = rows.get(whole.id, 0) + count
                    parts.append(Part(name, span, self._shown(whole)))
            self._databases[name].verify(spans, reached.position)
            if self._settings.provide_transaction_metadata and parts:
                parts, ends = numbered(source, parts)
                boundaries += ends
            found += parts
        self.batch_tables = tables
        shared = names.shared(self._settings, rows)
        for part in found:
            topics.setdefault(shared[part.table.id], []).append(part)
        groups = sorted(map(tuple, topics.values()), key=lambda group: -sum(rows[one] for one in _tables(group)))
        tasks: list[Task] = [LogTask(source, (group,)) for group in groups]
        if sum(rows.values()) < SMALL and groups:
            tasks = [LogTask(source, tuple(groups))]
        if boundaries:
            tasks.append(BoundaryTask(tuple(boundaries), self._settings))
        return tasks


def _tables(parts: Sequence[Part]) -> set[TableId]:
    return {part.table.id for part in parts}
