"""ChangeTablesPlanner: what the planner process does for a query over change tables."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tailrace.columns.batch import Boundary
from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.base import Offset, Task
from tailrace.connectors.beside import BoundaryTask, HeartbeatTask, NoticeTask
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.forms import Forms
from tailrace.connectors.changetables.log.heartbeats import StatementHeartbeats
from tailrace.connectors.changetables.log.numbering import numbered
from tailrace.connectors.changetables.log.rows import skipped_rows
from tailrace.connectors.changetables.log.sessions import Retries
from tailrace.connectors.changetables.log.tasks import (
    LogTask,
    Part,
    SchemaTask,
    Source,
)
from tailrace.connectors.changetables.offset import Reached, TablesOffset
from tailrace.connectors.changetables.position import Newest
from tailrace.connectors.changetables.snapshot.initial import TableSnapshots
from tailrace.connectors.changetables.snapshot.notices import TableNotices
from tailrace.connectors.changetables.snapshot.windows import Incremental
from tailrace.connectors.changetables.undo import Undo
from tailrace.connectors.delay import StreamingDelay
from tailrace.connectors.dispatch import DispatchInterval
from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConfigError, PositionLost
from tailrace.events import names
from tailrace.events.admission import Admission
from tailrace.events.form import Form
from tailrace.events.settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

log = logging.getLogger("tailrace")
T = TypeVar("T")

# An idle position is committed once so much time has gone by without a captured change.
IDLE_SECONDS = 30.0
# How often the server is asked what is amiss.
WARN_SECONDS = 60.0
# A batch of fewer rows is one task: another would cost more than it saves.
SMALL = 4096
# Pause between two looks for something new, in s.
LOOK = 0.1


class ChangeTablesPlanner:
    """Implements `tailrace.connectors.base.Planner` over a dialect. The first call of `latest_offset` connects."""

    def __init__(self, config: Config, settings: EventSettings, dialect: Dialect, form: Form) -> None:
        self._config = config
        self._settings = settings
        self._dialect = dialect
        self._mode = snapshot_mode(config)
        self._filter = TableFilter(config)
        self._names = Admission(settings, form)
        self._retries = Retries.of(config)
        self._parallelism = os.cpu_count() or 1
        transactions = config["max.iteration.transactions"] if config.is_set("max.iteration.transactions") else 0
        self._databases = {
            name: Database(dialect, name, self._includes, self._names.admit, transactions) for name in dialect.databases
        }
        self._snapshots = TableSnapshots(config, self._databases, self._shown, self._parallelism)
        self._notices = TableNotices(config)
        self._heartbeats = StatementHeartbeats(config, self._execute)
        self._incremental = Incremental(config, settings, dialect, self._databases, self._shown)
        only = config["schema.history.internal.store.only.captured.tables.ddl"]
        skipped = skipped_rows(settings.skipped_operations, dialect.pairs)
        self._forms = Forms(self._databases, self._includes, only, skipped)
        self._begun = False
        self._streaming = False
        self._target: dict[str, Newest] | None = None
        self._idle_since = time.monotonic()
        self._warn_due = 0.0
        self._delay = StreamingDelay(config)
        self._dispatch = DispatchInterval(config)
        self._newest: dict[str, Newest] = {}
        # whether a replica answers that has not come to the end of a query with AvailableNow yet
        self._is_behind = False
        # sessions, and what they have said of the server, are no part of it: a lost one is lost
        self._undo = Undo(
            self,
            self._snapshots,
            self._notices,
            self._heartbeats,
            self._delay,
            self._dispatch,
            *self._incremental.parts,
        )

    # --- the calls of the query ----------------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        return TablesOffset().to_json()

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        return self._call(lambda: self._latest(TablesOffset.from_json(start), max_rows).to_json())

    def _call(self, work: Callable[[], T]) -> T:
        """The result of `work`, tried again when a connection is lost. Each try begins with what the planner remembered
        before the first one, and an error leaves it so."""

        def attempt() -> T:
            with self._undo.on_failure():
                return work()

        return self._retries.run(attempt, self._lose)

    def _latest(self, since: TablesOffset, max_rows: int | None) -> TablesOffset:
        began = self._begin(since, max_rows)
        if began is not None:
            return began
        if since.snapshot is not None and not since.snapshot.is_complete:
            return self._next_chunks(since, max_rows)
        if not self._mode.streams or not self._may_stream(since):
            return since
        self._check_signals(since)
        deadline = time.monotonic() + min(self._config["poll.interval.ms"] / 1000, self._heartbeats.remaining())
        while True:
            found = self._next_batch(since, max_rows)
            left = deadline - time.monotonic()
            if found is not None:
                return found
            if not self._is_behind if self._target is not None else left <= 0:
                return since
            time.sleep(LOOK if self._target is not None else min(left, LOOK))

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        since, until = TablesOffset.from_json(start), TablesOffset.from_json(end)
        return self._call(lambda: self._tasks(since, until))

    def stop_at_present(self) -> None:
        def ask() -> dict[str, Newest]:
            found = {name: database.session.newest() for name, database in self._databases.items()}
            return {name: position for name, position in found.items() if position is not None}

        self._target = self._call(ask)

    def status(self) -> Offset | None:
        found: Offset = {}
        if self._newest:
            found["newest"] = {name: position.hex() for name, position in sorted(self._newest.items())}
        running = self._snapshots.status() or self._incremental.status()
        if running is not None:
            found["snapshot"] = running
        return found or None

    def close(self) -> None:
        self._lose()
        self._incremental.close()

    # --- the start -----------------------------------------------------------------------------------------------

    def _begin(self, since: TablesOffset, max_rows: int | None) -> TablesOffset | None:
        """What precedes the log: the first batch of a snapshot, or the position at which a query begins."""
        if self._begun:
            return None
        found: TablesOffset | None = None
        if since.is_initial:
            found = TablesOffset({name: database.begin() for name, database in self._databases.items()})
            count = sum(len(reached.eras.latest()) for reached in found.databases.values())
            guard_number(self._config, count)
        lost = [] if since.is_initial else self._lost(since)
        if lost and not self._mode.mends:
            raise PositionLost(
                lost[0],
                "Start again with a new checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot.",
            )
        if lost:
            log.warning("%s A new snapshot is taken.", lost[0])
            fresh = {name: database.begin() for name, database in self._databases.items()}
            found = replace(since, databases=fresh, snapshot=None)
        running = since.snapshot is not None and not since.snapshot.is_complete
        self._begun = True
        if lost or (self._reads(since) and not running):
            return self._start_snapshot(found if found is not None else since, max_rows)
        if not running:
            self._notices.skipped()
        return found

    def _reads(self, since: TablesOffset) -> bool:
        return self._mode.reads == "each start" or (self._mode.reads == "once" and since.is_initial)

    def _lost(self, since: TablesOffset) -> list[str]:
        """What the checkpoint builds on and the databases no longer have."""
        missing = sorted(set(since.databases) ^ set(self._databases))
        if missing:
            raise ConfigError(
                f"The checkpoint is of other databases than the configuration: {', '.join(missing)}.",
                "Read another list of databases with another checkpoint.",
            )
        for name, reached in since.databases.items():
            for era in reached.eras.at(reached.position):
                if self._includes(era.table.id):
                    self._names.admit(era.table)
            database = self._databases[name]
            sentence = database.resume(self._wanted(reached))
            if sentence:
                return [sentence]
        return []

    def _wanted(self, reached: Reached) -> Reached:
        """Without the tables that the lists leave out now."""
        gone = {era.table.id for era in reached.eras.entries if not self._includes(era.table.id)}
        return replace(reached, eras=reached.eras.without(gone)) if gone else reached

    def _includes(self, table: TableId) -> bool:
        return self._filter.includes(table.schema, table.table)

    def _shown(self, table: TableSchema) -> TableSchema:
        """The table as events need it: with its key, and without the columns that no event shows."""
        return self._settings.shaping.read(self._names.admit(table))

    def _lose(self) -> bool:
        """Drop the sessions. Whether another try is of use: a server that never let us in is not asked again."""
        for database in self._databases.values():
            database.lose()
        return any(database.was_connected for database in self._databases.values())

    def _execute(self, statement: str) -> None:
        next(iter(self._databases.values())).session.execute(statement)

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _start_snapshot(
        self, found: TablesOffset, max_rows: int | None, chosen: Mapping[TableId, str | None] | None = None
    ) -> TablesOffset:
        if chosen is None:
            time.sleep(self._config["snapshot.delay.ms"] / 1000)
        snapshot = self._snapshots.begin(found.databases, chosen)
        if self._notices.are_wanted:
            rows = {table: self._snapshots.database(table).session.row_count(table) for table in snapshot.tables}
            self._notices.started(rows)
        return self._next_chunks(replace(found, snapshot=snapshot), max_rows)

    def _next_chunks(self, since: TablesOffset, max_rows: int | None) -> TablesOffset:
        assert since.snapshot is not None
        snapshot = self._snapshots.advance(since.snapshot, since.databases, max_rows)
        self._notices.chunks(snapshot)
        told = self._notices.add_to(replace(since.progress, notices=()))
        return replace(since, snapshot=snapshot, progress=told)

    def _block(self, since: TablesOffset, max_rows: int | None) -> TablesOffset | None:
        """Start the blocking snapshot that a signal has asked for; None while the log is not read to its end."""
        for name, database in self._databases.items():
            newest = database.session.newest()
            if newest is not None and self._target is not None:
                newest = min(newest, self._target.get(name, newest))
            if newest is not None and newest > since.databases[name].position:
                return None
        tables = self._incremental.tables(since.progress.blocking, since.databases)
        begun = replace(since, progress=replace(since.progress, blocking=(), reading=since.progress.blocking))
        return self._start_snapshot(begun, max_rows, tables)

    def _may_stream(self, since: TablesOffset) -> bool:
        """Whether no snapshot has just ended, or `streaming.delay.ms` have gone by since; waits for that a while."""
        if since.snapshot is not None and not self._streaming:
            self._streaming = self._delay.is_over(wholly=self._target is not None)
            return self._streaming
        self._streaming = True
        return True

    # --- the log -------------------------------------------------------------------------------------------------

    def _check_signals(self, since: TablesOffset) -> None:
        self._incremental.check(since.databases)

    def _next_batch(self, since: TablesOffset, max_rows: int | None) -> TablesOffset | None:
        """The end of the next batch; None when there is nothing to do now."""
        past = replace(since.progress, notices=(), reading=())
        progress = self._incremental.begin(past)
        observed = {}
        for name, database in self._databases.items():
            reached = self._wanted(since.databases[name])
            observed[name] = database.observe(reached)
            newest = observed[name][0]
            if newest is not None:
                self._newest[name] = newest
        seen = {name: newest or since.databases[name].position for name, (newest, _) in observed.items()}
        self._is_behind = any(seen[name] < end for name, end in (self._target or {}).items())
        window = self._incremental.open(progress, since.databases, observed)
        # a snapshot does not wait for changes to gather, and the log goes on with it
        running = bool(progress.blocking) or (progress.state is not None and not progress.state.paused)
        ends = self._target is not None
        gathers = not ends and not running and not self._dispatch.is_over(0)
        is_cut = False
        rows = 0
        found: dict[str, Reached] = {}
        for name, database in self._databases.items():
            after = since.databases[name].position
            newest, eras = observed[name]
            if window is not None and name == window.database:
                # the batch reads to the closing watermark, however much that is
                _, eras = database.observe(self._wanted(since.databases[name]))
                upto = window.upto
                rows += sum(database.total(stretch) for stretch in eras.stretches(after, upto))
            else:
                if newest is not None and self._target is not None:
                    newest = min(newest, self._target[name]) if name in self._target else None
                upto, count = after, 0
                if newest is not None and newest > after:
                    if not gathers:
                        upto, count = database.limit(after, newest, eras, max_rows, wholly=ends)
                    is_cut |= upto < newest
                rows += count
            found[name] = Reached(max(after, upto), eras)
        self._warn(found)
        progress = self._incremental.finish(progress, since.databases, found)
        if progress.blocking and not rows and window is None:
            blocked = self._block(replace(since, databases=found, progress=progress), max_rows)
            if blocked is not None:
                return blocked
        progress = self._notices.add_to(progress)
        moved = bool(rows) or progress != past
        heartbeat_ms = self._heartbeats.newest(since.heartbeat_ms, moved or not ends)
        # what was passed without a change is kept: by a query that ends at once, by any other one now and then
        idle = ends or time.monotonic() - self._idle_since >= IDLE_SECONDS
        further = any(found[name].position > since.databases[name].position for name in found)
        first = since.snapshot is not None
        if not (moved or heartbeat_ms != since.heartbeat_ms or (further and (idle or first))):
            return None
        self._idle_since = time.monotonic()
        if rows:
            self._dispatch.begun(is_cut=is_cut)
        end = TablesOffset(found, None, heartbeat_ms, progress)
        self._incremental.planned(end.to_json())
        return end

    def _warn(self, found: Mapping[str, Reached]) -> None:
        if time.monotonic() < self._warn_due:
            return
        self._warn_due = time.monotonic() + WARN_SECONDS
        for name, database in self._databases.items():
            database.warn(found[name].eras)

    def _tasks(self, since: TablesOffset, until: TablesOffset) -> list[Task]:
        source = Source(
            self._dialect,
            self._settings,
            self._retries,
            time.time_ns() // 1000,
            self._config["skip.messages.without.change"],
        )
        tasks: list[Task] = []
        if self._config["include.schema.changes"] and self._settings.tells_schema_changes:
            changes = self._forms.told(since, until, source.at_us)
            if changes:
                tasks.append(SchemaTask(source, tuple(changes)))
        if until.snapshot is not None and until.snapshot != since.snapshot:
            tasks += self._snapshots.tasks(until.snapshot, until.databases, source)
        else:
            # the log stands still while a snapshot runs; where one mends a gap, nothing of the gap can be read
            tasks += self._log_tasks(since, until, source)
        if until.progress.notices != since.progress.notices and self._notices.are_records:
            tasks.append(NoticeTask(until.progress.notices, until.position, self._settings))
        if until.heartbeat_ms > since.heartbeat_ms:
            tasks.append(HeartbeatTask(until.heartbeat_ms, until.position, self._settings))
        tasks += self._incremental.tasks(until.to_json(), since.databases, until.databases, source)
        return tasks

    def _log_tasks(self, since: TablesOffset, until: TablesOffset, source: Source) -> list[Task]:
        """One task for each topic that has changes; one for all of them where they are few."""
        topics: dict[str, list[Part]] = {}
        rows: dict[str, int] = {}
        boundaries: list[Boundary] = []
        for name, reached in until.databases.items():
            if name not in since.databases or name not in self._databases:
                continue
            parts = []
            stretches = self._wanted(reached).eras.stretches(since.databases[name].position, reached.position)
            for stretch in stretches:
                whole = stretch.era.table
                count = self._databases[name].total(stretch)
                if count:
                    topic = names.topic(self._settings, whole.id)
                    rows[topic] = rows.get(topic, 0) + count
                    parts.append(Part(name, stretch, self._shown(whole)))
            self._databases[name].verify(stretches, reached.position)
            if self._settings.provide_transaction_metadata and parts:
                parts, ends = numbered(source, parts)
                boundaries += ends
            for part in parts:
                topics.setdefault(names.topic(self._settings, part.table.id), []).append(part)
        groups = [tuple(topics[topic]) for topic in sorted(topics, key=lambda topic: -rows[topic])]
        tasks: list[Task] = [LogTask(source, (group,)) for group in groups]
        if sum(rows.values()) < SMALL and groups:
            tasks = [LogTask(source, tuple(groups))]
        if boundaries:
            tasks.append(BoundaryTask(tuple(boundaries), self._settings))
        return tasks
