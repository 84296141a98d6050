"""PostgresPlanner: what the planner process does for a PostgreSQL query, from the first slot to the last batch."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, PrefixFilter, TableFilter
from tailrace.connectors.base import Offset, Task
from tailrace.connectors.beside import BoundaryTask, HeartbeatTask, NoticeTask
from tailrace.connectors.delay import StreamingDelay
from tailrace.connectors.dispatch import DispatchInterval
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.postgres.log import segments
from tailrace.connectors.postgres.log.chunk import Rows
from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.log.identity import CatalogXmin, present, refuse_standby
from tailrace.connectors.postgres.log.reader import LogReader
from tailrace.connectors.postgres.log.reading import OUTSIDE, Connections, Outside, ReaderSettings
from tailrace.connectors.postgres.log.tasks import LogTask, MessageTask
from tailrace.connectors.postgres.log.visible import Visible
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import Committed, LogPosition, TargetLsn, lsn_text
from tailrace.connectors.postgres.protocol.segment import MixedSegment, Segment
from tailrace.connectors.postgres.schema.captured import CapturedTable, captured_tables
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.schema.history import History, SchemaHistory
from tailrace.connectors.postgres.schema.relations import Relations
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.server.heartbeats import StatementHeartbeats
from tailrace.connectors.postgres.setup import publications, slots
from tailrace.connectors.postgres.snapshot.chunks import Snapshots
from tailrace.connectors.postgres.snapshot.notices import TableNotices
from tailrace.connectors.postgres.snapshot.session import BATCHES, SnapshotProgress
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, ReadTask, Rehearsal
from tailrace.connectors.postgres.snapshot.windows import Changes, Incremental, PostgresWindows
from tailrace.errors import ConfigError, PositionLost
from tailrace.events import names
from tailrace.events.admission import Admission
from tailrace.events.settings import EventSettings
from tailrace.snapshot.incremental import Collection
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.progress import Progress

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres.protocol import pgoutput

log = logging.getLogger("tailrace")

# An idle position is committed once this much WAL, or time with any WAL at all, has gone by without captured change.
IDLE_BYTES = 16 << 20
IDLE_SECONDS = 30.0
# While a backlog is read, a batch waits so long to become at least half full: each has a fixed cost of some 0.15 s.
FILL_SECONDS = 0.5
_UNLIMITED = 1 << 62
# A window of an incremental snapshot is opened when the log is at most so many bytes behind, and given up when it has
# not been read through after so many seconds.
WINDOW_LAG = 8 << 20
WINDOW_SECONDS = 10.0
# The most bytes of the log that are too little for a task of their own, beside a window.
SMALL_BYTES = 256 << 10


class PostgresPlanner:
    """Implements `tailrace.connectors.base.Planner` for PostgreSQL.

    The first call of `latest_offset` or `partitions` prepares the server (publication, slot, replica identities) and
    decides on a snapshot; the reader of the log starts when no snapshot is running.
    """

    def __init__(self, config: Config, settings: EventSettings, outside: Outside = OUTSIDE) -> None:
        self._outside = outside
        self._runtime = outside.runtime
        self._config = config
        self._settings = settings
        self._tables = TableFilter(config)
        prefixes = PrefixFilter(config)
        self._takes = None if settings.legacy or prefixes.excludes_all else prefixes.includes
        self._names = Admission(settings, FORM)
        self._control: psycopg.Connection[Any] | None = None
        self._mode = snapshot_mode(config)
        self._target: TargetLsn | None = None
        # whether a query's start is over, and with it what belongs to each start
        self._has_started = False
        self._parallelism = config["event.order.segments"] or os.cpu_count() or 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing has been read or prepared: what a planner is at first, and after a call that has failed."""
        config = self._config
        self._captured: list[CapturedTable] = []
        self._reader: LogReader | None = None
        self._snapshots = Snapshots(
            config, self._settings, self._tables, self._outside, self._connect, self._names.admit
        )
        self._prepared = False
        self._begun = False
        self._idle_since = self._runtime.monotonic()
        self._heartbeats = StatementHeartbeats(config, self._connect)
        self._delay = StreamingDelay(config)
        self._dispatch = DispatchInterval(config)
        self._xmin = CatalogXmin(config, self._connect)
        self._notices = TableNotices(config)
        self._rehearsed = False
        self._incremental: Incremental | None = None
        if config["signal.data.collection"] or set(config["signal.enabled.channels"]) - {"source"}:
            shaping = self._settings.shaping
            source = PostgresWindows(
                config,
                legacy=self._settings.legacy,
                parallelism=self._parallelism,
                connect=lambda: self._outside.connect(config),
                list_captured=self._captured_names,
                is_captured=self._tables.includes,
                admit=lambda table: shaping.read(self._names.admit(table)),
                comments=shaping.comments,
                runtime=self._runtime,
            )
            self._incremental = Incremental(config, source, self._runtime)

    # --- the calls of the query ----------------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        # The query's first call: what the reader needs is imported while Spark goes on with its own start.
        self._runtime.start(_import_reader, "tailrace-import")
        return PostgresOffset().to_json()

    @connections.explained
    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        since = PostgresOffset.from_json(start)
        with self._wholly():
            # Spark asks to go on from what it has committed
            found = self._next_offset(since, Committed(since.log), max_rows, max_bytes)
        self._has_started = True
        return start if found == since else found.to_json()

    def _next_offset(
        self, since: PostgresOffset, committed: Committed, max_rows: int | None, max_bytes: int | None
    ) -> PostgresOffset:
        began = self._begin(since)
        if began is not None:
            return began
        if since.snapshot is not None and not since.snapshot.is_complete:
            return self._next_chunks(since, max_rows is None and max_bytes is None)
        if not self._mode.streams:
            return since
        self._snapshots.close()
        if not self._may_stream(since):
            return since
        if since.is_initial:
            # Nothing is read before the checkpoint has a position and the tables at it: a slot that is missing later
            # would be created again otherwise.
            first = self._slot_start()
            self._read_log(first)
            return first
        reader = self._read_log(since)
        reader.committed(committed)
        reader.refresh()
        limits = max_rows or _UNLIMITED, max_bytes or _UNLIMITED
        if self._incremental is not None and since.progress.blocking:
            blocked = self._block(self._incremental, since)
            if blocked is not None:
                return blocked
            reader = self._read_log(since)
        progress = past = replace(since.progress, notices=(), reading=())
        if self._incremental is None:
            found = self._next_batch(reader, since.log, *limits)
        else:
            found, progress = self._next_window(reader, self._incremental, since.log, past, *limits)
        progress = self._notices.add_to(progress)
        moved = found != since.log or progress != past
        heartbeat_ms = self._heartbeats.newest(since.heartbeat_ms, moved or self._target is None)
        if heartbeat_ms != since.heartbeat_ms and found == since.log:
            found = reader.idle_position(since.log)
        elif not moved:
            return since
        visible = since.visible
        if visible is not None and found.commit_lsn >= visible.before_lsn:
            visible = None
        xmin = self._xmin.now() if since.log.is_before(found) else since.xmin
        schemas = reader.history(since.log, found)
        server = reader.server or since.server
        end = PostgresOffset(found, None, visible, heartbeat_ms, xmin, progress, schemas, server)
        if self._incremental is not None:
            self._incremental.planned(end.to_json())
        return end

    @connections.explained
    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        with self._wholly():
            return self._tasks(PostgresOffset.from_json(start), PostgresOffset.from_json(end), end)

    def _tasks(self, since: PostgresOffset, until: PostgresOffset, end: Offset) -> list[Task]:
        tasks: list[Task] = []
        snapshot = until.snapshot
        if snapshot is not None:
            same = since.snapshot is not None and since.snapshot.origin == snapshot.origin
            first = since.snapshot.done if same and since.snapshot is not None else 0
            if first < snapshot.done:
                self._choose(until.progress.reading)
                tasks.extend(self._snapshots.tasks(snapshot, first, 3 * self._parallelism))
        rows: list[Rows] = []
        groups: list[list[Segment | MixedSegment]] = []
        if since.log.is_before(until.log):
            reader = self._read_log(since, until)
            rows = reader.take(since.log, until.log)
            groups = segments.tasks(
                rows,
                reader.versions,
                lambda table: names.topic(self._settings, table.id),
                self._config["event.order"] == "key",
                self._parallelism,
                # Spark's JVM gets the tasks first, and would have to hold what workers then leave out
                self._settings.most_change_bytes,
            )
            messages = segments.messages(rows, self._settings.most_change_bytes)
            tasks.extend(LogTask(tuple(group), self._settings, until.xmin) for group in groups)
            if messages is not None:
                tasks.append(MessageTask(messages, self._settings, until.xmin))
            found = segments.boundaries(rows)
            if found:
                tasks.append(BoundaryTask(tuple(found), self._settings))
        if until.progress.notices != since.progress.notices and self._notices.are_records:
            tasks.append(NoticeTask(until.progress.notices, until.log.commit_lsn, self._settings))
        if until.heartbeat_ms > since.heartbeat_ms:
            tasks.append(HeartbeatTask(until.heartbeat_ms, until.log.commit_lsn, self._settings))
        if self._incremental is not None and self._reader is not None:
            changes = Changes(rows, self._reader.versions)
            reads = self._incremental.reads(end, changes)
            if reads:
                address = connections.Address.of(self._config, self._connect())
                parts = self._incremental.spread(reads, self._parallelism)
                read = [ReadTask(address, part, self._settings) for part in parts]
                if _is_small(groups):
                    tasks, read = [Consecutive((*tasks, read[0]))], read[1:]
                tasks.extend(read)
                if self._reader.lag <= WINDOW_LAG:
                    self._incremental.open_ahead(end, until.progress, until.log.commit_lsn)
            elif rows and not self._rehearsed:
                self._rehearsed = True
                self._incremental.rehearse(changes)
                if groups and _is_small(groups):
                    tasks += [Rehearsal(tasks[0])] * (self._parallelism - len(tasks))
        return tasks

    @connections.explained
    def stop_at_present(self) -> None:
        refuse_standby(self._connect())
        self._target = present(self._connect())

    def status(self) -> Offset | None:
        if self._reader is None or not self._reader.head_lsn:
            return None
        newest = PostgresOffset().to_json()
        newest["log"]["idle"] = lsn_text(self._reader.head_lsn)
        if self._config["skip.messages.without.change"]:
            newest["unchanged"] = self._reader.unchanged
        running = None if self._incremental is None else self._incremental.status()
        if running is not None:
            newest["snapshot"] = running
        return newest

    def close(self) -> None:
        self._release()
        if self._control is not None:
            self._control.close()
            self._control = None

    @contextmanager
    def _wholly(self) -> Iterator[None]:
        """A call that fails may have done half of its work: the next one begins anew, as after a crash."""
        try:
            yield
        except BaseException:
            self._release()
            self._begin_anew()
            raise

    def _release(self) -> None:
        """End the reader, the snapshot and the sessions of windows."""
        if self._reader is not None:
            self._reader.close()
        self._snapshots.close()
        if self._incremental is not None:
            self._incremental.close()

    # --- the start -----------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        if self._control is None or connections.is_lost(self._control, self._runtime):
            self._control = self._outside.connect(self._config)
        return self._control

    def _prepare(self) -> None:
        """Publication and replica identities; once for each planner."""
        if self._prepared:
            return
        control = self._connect()
        refuse_standby(control)
        catalog = Catalog(control, self._config["database.dbname"], self._settings.shaping.comments)
        self._captured = captured_tables(catalog.tables(), self._tables)
        guard_number(self._config, len(self._captured))
        if self._mode.streams:
            publications.prepare_publication(control, self._config, self._captured)
            publications.warn_of_unpublished(control, self._config["publication.name"], self._captured)
            if self._config["slot.failover"]:
                slots.warn_of_failover(control, self._config["slot.name"])
        publications.set_replica_identities(control, self._config["replica.identity.autoset.values"], self._captured)
        publications.warn_of_identities(control, self._captured)
        with connections.one_moment(control):
            schemas = catalog.schemas([oid for oid, _, _ in self._captured])
        for schema in schemas.values():
            self._names.admit(schema)
        prefixes = self._config["message.prefix.include.list"] or self._config["message.prefix.exclude.list"]
        if prefixes and control.info.server_version < 140000:
            log.warning("servers before PostgreSQL 14 send no logical messages: message.prefix lists have no effect")
        self._prepared = True

    def _begin(self, since: PostgresOffset) -> PostgresOffset | None:
        """What precedes the log: the offset of the first batch of a snapshot, or of the new slot; None when done."""
        if self._begun:
            return None
        self._prepare()
        running = since.snapshot is not None and not since.snapshot.is_complete
        lost = self._mode.mends and not since.is_initial and self._lost(since)
        each = self._mode.reads == "each start" and not self._has_started
        wanted = each or (self._mode.reads == "once" and since.is_initial)
        first = self._start_snapshot(since, lost) if lost or (wanted and not running) else None
        if first is None and not running and not self._has_started:
            self._notices.skipped()
        self._begun = True
        return first

    def _lost(self, since: PostgresOffset) -> bool:
        """Whether the log no longer reaches the checkpoint; then a slot that cannot be read any more is dropped."""
        reason = slots.lost_position(self._connect(), self._config, since.log, since.server, self._outside.connect)
        if reason:
            log.warning("%s: a new snapshot is taken", reason)
        return bool(reason)

    def _slot_start(self) -> PostgresOffset:
        """Where a query without snapshot starts to read: the slot's position, and the tables when it was created."""
        with closing(slots.slot_start(self._connect(), self._config, self._outside.connect)) as slot:
            schemas = History() if slot.snapshot is None else self._snapshots.history_at(slot.snapshot)
            return PostgresOffset(slot.position, schemas=schemas, server=slot.server)

    def _start_snapshot(self, since: PostgresOffset, lost: bool = False) -> PostgresOffset:
        """Plan a snapshot; its first chunks are the first batch. `lost`: the position in the log is of no use."""
        if self._reader is not None:
            # it was started for the replay of a batch, and knows nothing of this snapshot
            self._reader.close()
            self._reader = None
        self._runtime.sleep(self._config["snapshot.delay.ms"] / 1000)
        self._choose(())
        # Source blocks tell of no commit before the snapshot.
        position = replace(since.log, end_lsn=0, idle_lsn=since.log.safe_lsn)
        server, exported = since.server, None
        with ExitStack() as until_taken_over:
            if self._mode.streams and (since.is_initial or lost):
                slot = slots.slot_start(self._connect(), self._config, self._outside.connect)
                until_taken_over.enter_context(closing(slot))
                position, server, exported = slot.position, slot.server, slot.snapshot
            plan, is_cut = self._snapshots.start(exported, self._parallelism)
        log.info("snapshot of %d tables in %d chunks", len(plan.tables), len(plan))
        position = replace(position, at_us=self._snapshots.session.origin.at_us)
        # An older slot still holds what the snapshot shows; a new one begins exactly where its snapshot ends.
        visible = None if is_cut or not self._mode.streams else self._shown_by_snapshot()
        progress = SnapshotProgress(plan, self._snapshots.session.origin, 0)
        # A query that goes on has its own history; a new one begins with the snapshot's: of all tables where the log
        # begins with it too, else of those whose earlier changes are left out.
        schemas = since.schemas
        if self._mode.streams and (since.is_initial or lost):
            schemas = self._snapshots.history(None if visible is None else visible.tables)
        self._notices.started(self._snapshots.count() if self._notices.are_wanted else {})
        return self._next_chunks(
            PostgresOffset(position, progress, visible, since.heartbeat_ms, 0, since.progress, schemas, server), False
        )

    def _shown_by_snapshot(self) -> Visible:
        return replace(self._snapshots.session.visible, tables=self._snapshots.covered())

    def _block(self, incremental: Incremental, since: PostgresOffset) -> PostgresOffset | None:
        """Start the blocking snapshot that a signal has asked for: the log waits while its tables are read.

        What the log then brings of these tables that the snapshot has shown is left out, except of tables that are read
        by a statement, which may leave rows out. None when a delivered transaction is not visible to new snapshots yet:
        its row would come again as it was. Tables whose filter fails are left out; without others it is given up.
        """
        tables = since.progress.blocking
        self._choose(tables)
        try:
            plan, _ = self._snapshots.start(None, self._parallelism)
        except ConfigError as error:
            # a signal must not end the query, let alone at each of its starts
            log.warning("the blocking snapshot of %s is given up: %s", ", ".join(map(str, tables)), error.message)
            self._snapshots.close()
            self._notices.given_up()
            told = self._notices.add_to(replace(since.progress, blocking=(), notices=()))
            return replace(since, progress=told)
        session = self._snapshots.session
        if incremental.streamed.hidden(session.visible, since.log.commit_lsn):
            self._snapshots.close()
            return None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        log.info("blocking snapshot of %s in %d chunks", ", ".join(map(str, tables)), len(plan))
        self._notices.started(self._snapshots.count() if self._notices.are_wanted else {})
        self._notices.left_out(self._snapshots.failing)
        begun = replace(
            since,
            snapshot=SnapshotProgress(plan, replace(session.origin, previous_end=session.origin.lsn), 0),
            visible=replace(session.visible, tables=self._snapshots.covered(wholly=True)),
            progress=replace(since.progress, blocking=(), reading=tables),
        )
        return self._next_chunks(begun, False)

    def _choose(self, tables: Sequence[Collection]) -> None:
        """Let snapshots read `tables`, each by its filter, a whole statement, where it has one; none: the options'."""
        self._snapshots.choose({str(one): one.filter for one in tables} if tables else None)

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _next_chunks(self, since: PostgresOffset, everything: bool) -> PostgresOffset:
        """The offset after the next chunks: as many for each batch as keep every core busy for a while."""
        assert since.snapshot is not None
        plan, done = since.snapshot.plan, len(since.snapshot.plan)
        if not everything:
            done = plan.reached(since.snapshot.done, self._chunks_per_batch(done))
        self._notices.chunks(plan, since.snapshot.done, done, asked=bool(since.progress.reading))
        told = self._notices.add_to(replace(since.progress, notices=()))
        return replace(since, snapshot=replace(since.snapshot, done=done), progress=told)

    def _chunks_per_batch(self, total: int) -> int:
        """As many whole ones as keep every core busy for a while, and leave BATCHES batches."""
        if self._config.is_set("max.batch.size"):
            return self._parallelism
        return max(self._parallelism, min(3 * self._parallelism, total // BATCHES))

    # --- signals and incremental snapshots -----------------------------------------------------------------------

    def _next_window(
        self,
        reader: LogReader,
        incremental: Incremental,
        start: LogPosition,
        past: Progress,
        max_rows: int,
        max_bytes: int,
    ) -> tuple[LogPosition, Progress]:
        """The end of the next batch, with a window in it when an incremental snapshot is running.

        A window waits while the log is far behind: its batch has to hold all of it.
        """
        progress = incremental.begin(past)
        window = incremental.open(progress, start.commit_lsn) if reader.lag <= WINDOW_LAG else None
        if window is not None:
            reader.extend(window.upto)
            if not reader.read_through(window.upto, WINDOW_SECONDS):
                incremental.give_up()
                window = None
        if window is not None:
            found = reader.plan(start, _UNLIMITED, _UNLIMITED, window.upto)
            if self._target is None and incremental.opens_ahead:
                # it was opened a while ago: what has come since does not wait for the next batch
                further = reader.plan(start, max_rows, max_bytes)
                found = further if found.is_before(further) else found
        elif progress != past:
            # the window of the last batch is closed: the offset should say so soon
            found = reader.plan(start, max_rows, max_bytes, self._target)
        else:
            found = self._next_batch(reader, start, max_rows, max_bytes)
        rows = reader.take(start, found) if start.is_before(found) else []
        return found, incremental.finish(progress, Changes(rows, reader.versions))

    def _captured_names(self) -> list[tuple[str, str]]:
        """The tables that are captured now; some may have been made since the query began."""
        catalog = Catalog(self._connect(), self._config["database.dbname"])
        self._captured = captured_tables(catalog.tables(), self._tables)
        return [(table.schema, table.table) for _, table, _ in self._captured]

    # --- the log -------------------------------------------------------------------------------------------------

    def _read_log(self, since: PostgresOffset, until: PostgresOffset | None = None) -> LogReader:
        """The running reader, started at `since` at the first call; `until` is the end of a batch to replay."""
        if self._reader is not None:
            return self._reader
        self._prepare()
        config = self._config
        if slots.find_slot(self._connect(), config) is None:
            raise PositionLost(
                f"The replication slot {config['slot.name']} is gone.",
                "The changes since the last commit are lost: delete the checkpoint to start again with a snapshot.",
            )
        replayed = None if until is None else (until.schemas, until.log)
        history = SchemaHistory(since.schemas, since.log, replayed)
        feed = PostgresFeed(
            ReaderSettings.of(config),
            Connections.of(config, self._connect(), self._outside),
            database=config["database.dbname"],
            relations=Relations(history, self._is_captured, self._names.admit, self._runtime),
            start=since.log,
            server=since.server if until is None else until.server or since.server,
            reached_lsn=(until or since).log.reached_lsn,
            visible=since.visible,
            target_lsn=self._target,
            numbered_without=(
                self._settings.skipped_operations if self._settings.provide_transaction_metadata else None
            ),
            comments=self._settings.shaping.comments,
            takes=self._takes,
            shows=self._shown if config["skip.messages.without.change"] else None,
            streamed=None if self._incremental is None else self._incremental.streamed,
            runtime=self._runtime,
        )
        reader = LogReader(feed)
        if self._incremental is not None:
            self._incremental.follow(self._connect())
        reader.start()
        self._reader = reader
        return reader

    def _shown(self, table: TableSchema) -> list[str]:
        """The columns whose change makes an update an event: those that values show, and the key."""
        shaping = self._settings.shaping
        return [column.name for column in table.columns if shaping.shows(table.id, column.name)] + list(table.key)

    def _is_captured(self, relation: pgoutput.Relation) -> bool:
        return self._tables.includes(relation.namespace, relation.name)

    def _next_batch(self, reader: LogReader, start: LogPosition, max_rows: int, max_bytes: int) -> LogPosition:
        """The end of the next batch; waits up to `poll.interval.ms` for a change, or for the target to be reached.

        Returns `start` as well while changes are to gather, which they do until the target at most.
        """
        began = self._runtime.monotonic()
        patience = min(self._config["poll.interval.ms"] / 1000, self._heartbeats.remaining())
        deadline = began + patience
        target = self._target
        if target is None and self._dispatch.seconds:
            over = self._dispatch.is_over(patience)
            reader.check()
            if not over:
                return start
            # with what was sent meanwhile
            reader.refresh()
        while True:
            if reader.is_filling(max_bytes) and self._runtime.monotonic() < began + FILL_SECONDS:
                reader.spool.wait(0.05)
                continue
            # in this order: what is read between two of the calls must not be missed
            seen = reader.spool.version
            reached = target is not None and reader.has_read(target)
            whole = reader.plan(start, _UNLIMITED, _UNLIMITED) if self._dispatch.seconds else start
            found = reader.plan(start, max_rows, max_bytes, target)
            if found != start:
                self._idle_since = self._runtime.monotonic()
                self._dispatch.begun(is_cut=found.is_before(whole))
                return found
            left = deadline - self._runtime.monotonic()
            if reached or (target is None and left <= 0):
                return self._idle(reader, start)
            reader.wait(left if target is None else 0.5, seen)

    def _may_stream(self, since: PostgresOffset) -> bool:
        """Whether no snapshot has just ended, or `streaming.delay.ms` have gone by since; waits for that a while."""
        if since.snapshot is None or self._reader is not None:
            return True
        return self._delay.is_over(wholly=self._target is not None)

    def _idle(self, reader: LogReader, start: LogPosition) -> LogPosition:
        """`start`, or once in a while a position beyond what held no captured change, so that the slot can follow."""
        moved = reader.idle_position(start)
        waited = self._runtime.monotonic() - self._idle_since
        if moved != start and (moved.safe_lsn - start.safe_lsn >= IDLE_BYTES or waited >= IDLE_SECONDS):
            self._idle_since = self._runtime.monotonic()
            return moved
        return start


def _is_small(groups: Sequence[Sequence[Segment | MixedSegment]]) -> bool:
    return len(groups) <= 1 and sum(one.data.nbytes for group in groups for one in group) <= SMALL_BYTES


def _import_reader() -> None:
    """Load the driver and the compiled kernels of the planner."""
    import adbc_driver_postgresql  # noqa: F401

    from tailrace.connectors.postgres.protocol import scan

    scan.load()
