"""MongoPlanner: what the planner process does for a MongoDB query, from the first position to the last batch."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.config import Config
from tailrace.connectors.base import Offset, Task
from tailrace.connectors.beside import BoundaryTask, HeartbeatTask, NoticeTask
from tailrace.connectors.delay import StreamingDelay
from tailrace.connectors.dispatch import DispatchInterval
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.chunk import Namespace, Rows
from tailrace.connectors.mongodb.log.majority import Majority
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.oplog import OplogFeed, newest, operation_time
from tailrace.connectors.mongodb.log.position import WHOLE, Committed, Position, releasable
from tailrace.connectors.mongodb.log.reader import Feed, LogReader
from tailrace.connectors.mongodb.offset import MongoOffset, SnapshotProgress
from tailrace.connectors.mongodb.records.partition import tasks_of
from tailrace.connectors.mongodb.records.segment import OPLOG, STREAM
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.records.transactions import Numbered, numbered
from tailrace.connectors.mongodb.server.connection import Address, retries
from tailrace.connectors.mongodb.server.faults import (
    explained,
    explained_error,
    is_not_yet_committed,
    is_passing,
    patiently,
)
from tailrace.connectors.mongodb.server.outside import OUTSIDE, Outside
from tailrace.connectors.mongodb.server.routers import answers, for_cursors
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot import chunks as snapshots
from tailrace.connectors.mongodb.snapshot.incremental import Incremental
from tailrace.connectors.mongodb.snapshot.notices import CollectionNotices
from tailrace.connectors.mongodb.snapshot.placing import placed
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.events.heartbeat import Heartbeats
from tailrace.events.settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.progress import Progress

if TYPE_CHECKING:
    from pymongo import MongoClient

log = logging.getLogger("tailrace")

# An idle position is committed once this much of the log, or time with any of it, has gone by without captured change.
IDLE_BYTES = 16 << 20
IDLE_SECONDS = 30.0
# While a backlog is read, a batch waits so long to become at least half full: each has a fixed cost of some 0.15 s.
FILL_SECONDS = 0.5
# How long the first position of a stream may take.
START_SECONDS = 60.0
# How long the server may wait for changes when the query ends at the present, in ms.
TARGET_AWAIT_MS = 50
_UNLIMITED = 1 << 62


class MongoPlanner:
    """Implements `tailrace.connectors.base.Planner` for MongoDB.

    The first call of `latest_offset` finds the position at which the log is to be read, then takes the snapshot; the
    reader of the log starts when no snapshot is running. A call that raises has changed nothing: it may come again.
    """

    def __init__(self, config: Config, settings: EventSettings, outside: Outside = OUTSIDE) -> None:
        self._outside = outside
        self._runtime = outside.runtime
        self._config = config
        self._events = settings
        self._captured = CollectionFilter(config)
        self._namespaces = Namespaces(self._captured)
        self._streams = config["capture.mode"] != "oplog"
        self._kind = STREAM if self._streams else OPLOG
        self._majority = Majority(self._connect)
        self._mode = snapshot_mode(config)
        self._client: MongoClient[Any] | None = None
        # what cursors are opened with, by the reader's thread too
        self._router: MongoClient[Any] | None = None
        self._lock = self._runtime.condition()
        self._settings: MongoSettings | None = None
        self._reader: LogReader | None = None
        self._begun = False
        # where the last batch ends that was planned
        self._planned = Position()
        self._target: int | None = None
        self._idle_since = self._runtime.monotonic()
        self._idle_bytes = 0
        self._heartbeats = Heartbeats(config["heartbeat.interval.ms"])
        self._delay = StreamingDelay(config)
        self._dispatch = DispatchInterval(config)
        self._parallelism = config["event.order.segments"] or os.cpu_count() or 1
        self._notices = CollectionNotices(config)
        self._incremental: Incremental | None = None
        if config["signal.data.collection"] or set(config["signal.enabled.channels"]) - {"source"}:
            self._incremental = Incremental(
                config,
                self._captured.signals,
                self._cursors,
                lambda: sorted(self._existing()),
                self._captured.includes,
                kind=self._kind,
                present=operation_time if self._streams else lambda client: newest(client).time,
                sees_majority=self._majority.is_seen,
                runtime=self._runtime,
            )

    # --- the calls of the query ----------------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        # The query's first call: what the reader needs is imported while Spark goes on with its own start.
        self._runtime.start(_import_reader, "tailrace-import")
        return MongoOffset().to_json()

    @explained
    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        with self._unless_failed():
            end = self._next(start, max_rows, max_bytes)
        self._planned = MongoOffset.from_json(end).log
        return end

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """Where what is done within fails, the planner is as it was: the log is read anew from what is committed."""
        with self._notices.unless_failed():
            try:
                yield
            except BaseException:
                if self._reader is not None and self._reader.has_failed:
                    self._reader.close()
                    self._reader = None
                raise

    def _next(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        since = MongoOffset.from_json(start)
        began = None if self._begun else self._begin(since)
        self._begun = True
        if began is not None:
            return began.to_json()
        if since.snapshot is not None and not since.snapshot.is_complete:
            return self._next_chunks(since, max_rows is None and max_bytes is None).to_json()
        if not self._mode.streams or not self._may_stream(since):
            return start
        reader = self._read_log(since)
        # Spark asks for what follows an offset when that is in its commit log
        reader.release(releasable(Committed(since.log)))
        limits = max_rows or _UNLIMITED, max_bytes or _UNLIMITED
        if self._incremental is not None and since.progress.blocking:
            return self._block(since).to_json()
        progress = past = replace(since.progress, notices=(), reading=())
        if self._incremental is None:
            found = self._next_batch(reader, since.log, *limits)
        else:
            progress = self._incremental.begin(past, start)
            found, progress = self._next_window(reader, self._incremental, since.log, past, progress, *limits)
        progress = self._notices.add_to(progress)
        moved = found != since.log or progress != past
        heartbeat_ms = self._heartbeats.newest(since.heartbeat_ms, moved or self._target is None)
        if heartbeat_ms != since.heartbeat_ms and found == since.log:
            found = self._beyond(reader, since.log)
        elif not moved:
            return start
        opened = since.transaction
        if self._events.provide_transaction_metadata and since.log.is_before(found):
            opened = self._numbered(reader.take(since.log, found), since).open
        end = MongoOffset(found, None, heartbeat_ms, opened, progress).to_json()
        if self._incremental is not None:
            self._incremental.planned(end, progress)
        return end

    @explained
    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        with self._unless_failed():
            return self._tasks(start, end)

    def _tasks(self, start: Offset, end: Offset) -> list[Task]:
        since, until = MongoOffset.from_json(start), MongoOffset.from_json(end)
        settings = self._shape()
        tasks: list[Task] = []
        if until.snapshot is not None:
            tasks += self._chunk_tasks(since, until.snapshot, until.log)
        rows: list[Rows] = []
        changes: list[LogTask] = []
        # a snapshot that begins with the batch has set the position: nothing before it is read
        if until.snapshot is None and since.log.is_before(until.log) and not since.is_initial:
            rows = self._rows(since, until)
            counted = self._numbered(rows, since) if self._events.provide_transaction_metadata else None
            if counted is not None and counted.boundaries:
                tasks.append(BoundaryTask(tuple(counted.boundaries), settings.events))
            changes = tasks_of(
                rows,
                self._namespaces.names,
                self._kind,
                settings,
                by_key=self._config["event.order"] == "key",
                parallelism=self._parallelism,
                numbers=None if counted is None else counted.numbers,
            )
        if self._incremental is not None:
            changes = placed(changes, self._incremental.reads(end, rows, self._namespaces.names), settings)
        tasks += changes
        if until.progress.notices != since.progress.notices and self._notices.are_records:
            tasks.append(NoticeTask(until.progress.notices, until.log.time, settings.events))
        if until.heartbeat_ms > since.heartbeat_ms:
            tasks.append(HeartbeatTask(until.heartbeat_ms, until.log.time, settings.events))
        return tasks

    @explained
    def stop_at_present(self) -> None:
        # the timestamp of an entry that the feed will come upon
        self._shape()
        self._target = operation_time(self._connect()) if self._streams else self._majority_present()

    def status(self) -> Offset | None:
        if self._reader is None:
            return None
        newest_ = MongoOffset(self._reader.newest(self._planned)).to_json()
        running = None if self._incremental is None else self._incremental.status()
        return newest_ if running is None else newest_ | {"snapshot": running}

    def close(self) -> None:
        if self._incremental is not None:
            self._incremental.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        for client in (self._router, self._client):
            if client is not None:
                client.close()
        self._router = self._client = None

    # --- the start -----------------------------------------------------------------------------------------------

    def _connect(self) -> MongoClient[Any]:
        if self._client is None:
            self._client = self._outside.connect(Address.of(self._config))
        return self._client

    def _cursors(self) -> MongoClient[Any]:
        """A client whose cursors stay with their server; another one when its router is gone."""
        with self._lock:
            if self._router is not None and (self._router is self._client or answers(self._router)):
                return self._router
            if self._router is not None:
                self._router.close()
            self._router = for_cursors(self._connect(), Address.of(self._config), self._outside.connect)
            return self._router

    def _shape(self) -> MongoSettings:
        """The settings of events, with the name of the replica set."""
        if self._settings is None:
            name = str(self._connect().admin.command("hello").get("setName") or "")
            if not name and not self._streams:
                raise PrerequisiteError(
                    "The server is no member of a replica set, so it has no oplog.",
                    "Start it with --replSet and run rs.initiate(); a sharded cluster is read through change streams.",
                )
            self._settings = MongoSettings.of(self._config, self._events, name)
        return self._settings

    def _begin(self, since: MongoOffset) -> MongoOffset | None:
        """What precedes the log: the offset of the first batch; None when there is nothing before it."""
        self._shape()
        if self._config["guardrail.collections.max"]:
            count = sum(one != self._captured.signals for one in self._existing())
            guard_number(self._config, count, "collections")
        running = since.snapshot is not None and not since.snapshot.is_complete
        lost = self._mode.mends and not since.is_initial and self._is_lost(since.log)
        wanted = self._mode.reads == "each start" or (self._mode.reads == "once" and since.is_initial)
        if lost or (wanted and not running):
            return self._start_snapshot(since)
        if not running:
            self._notices.skipped()
        if since.is_initial and self._mode.streams:
            # nothing is read before the checkpoint has a position
            return MongoOffset(self._first_position())
        return None

    def _first_position(self) -> Position:
        """Where a query without checkpoint begins to read the log: now, or where capture.start.op.time says."""
        at = self._config["capture.start.op.time"]
        if not self._streams:
            return Position(at, WHOLE) if at and at > 0 else self._majority.newest()
        if at and at > 0:
            # no token: the first answer of a stream that begins there holds changes already
            return Position(at, 0)
        feed = self._feed()
        until = self._runtime.monotonic() + START_SECONDS
        try:
            feed.open(Position())
            while self._runtime.monotonic() < until:
                chunk = feed.read()
                if chunk is not None and chunk.reached.token:
                    return chunk.reached
        finally:
            feed.close()
        raise PrerequisiteError(
            "The server gives no resume token for a change stream in which nothing happens.",
            "Change streams need MongoDB 4.0.7 or later.",
        )

    def _demand(self, position: Position) -> None:
        """Raise PositionLost where the log can no longer be read from `position`."""

        def look() -> None:
            feed = self._feed()
            try:
                feed.open(position)
                feed.read()
            finally:
                feed.close()

        patiently(look, *retries(self._config), self._runtime)

    def _majority_present(self) -> int:
        """The timestamp of the newest entry that a majority has; waits for a new primary to know that."""
        return patiently(self._majority.present, *retries(self._config), self._runtime, is_not_yet_committed).time

    def _is_lost(self, position: Position) -> bool:
        """Whether the log can no longer be read from `position`."""
        try:
            self._demand(position)
        except PositionLost as error:
            log.warning("%s A new snapshot is taken.", error.message)
            return True
        except Exception as error:
            told = explained_error(error)
            if isinstance(told, PositionLost):
                log.warning("%s A new snapshot is taken.", told.message)
                return True
            raise
        return False

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _start_snapshot(self, since: MongoOffset) -> MongoOffset:
        """Plan a snapshot; its first chunks are the first batch. The log is read from before the snapshot on.

        At a later start (`always`) that leaves out what was changed in between: the snapshot shows it, as in Debezium.
        """
        if self._reader is not None:
            # it was started for the replay of a batch, and reads from elsewhere
            self._reader.close()
            self._reader = None
        self._runtime.sleep(self._config["snapshot.delay.ms"] / 1000)
        at = self._present()
        position = self._first_position() if self._mode.streams else since.log
        if self._mode.streams and not self._streams:
            at = position
        client = self._connect()
        names = snapshots.chosen(self._config, self._existing(), self._captured)
        after = self._majority.after(names, at, position)
        made = snapshots.plan(client, names, snapshots.filters(self._config), after=after)
        log.info("snapshot of %d collections in %d chunks", len({c.namespace for c in made.chunks}), len(made.chunks))
        self._notices.started(self._counts(names))
        begun = replace(since, log=position, snapshot=SnapshotProgress(made, at, 0, _number(since)))
        return self._next_chunks(begun, False)

    def _counts(self, names: Sequence[Namespace]) -> dict[Namespace, int]:
        """How many documents each collection has, where that is to be told."""
        if not self._notices.are_wanted:
            return {}
        return {name: self._connect()[name[0]][name[1]].count_documents({}) for name in names}

    def _existing(self) -> list[Namespace]:
        """The captured collections that exist now, in the order of a snapshot."""
        return snapshots.collections(self._connect(), self._captured, self._shape().legacy)

    def _block(self, since: MongoOffset) -> MongoOffset:
        """Start the blocking snapshot that a signal has asked for: the log waits while its collections are read."""
        tables = since.progress.blocking
        from pymongo.errors import OperationFailure

        names = [(one.schema, one.table) for one in tables]
        conditions = tuple(((one.schema, one.table), one.filter) for one in tables if one.filter)
        at = self._present()
        try:
            made = snapshots.plan(self._connect(), names, conditions, after=self._majority.after(names, at, since.log))
        except (ValueError, OperationFailure) as error:
            if is_passing(error):
                raise
            # a signal must not end the query, let alone at each of its starts
            why = f"code {error.code}" if isinstance(error, OperationFailure) else error
            log.warning("the blocking snapshot of %s is given up: %s", ", ".join(map(str, tables)), why)
            self._notices.given_up()
            told = self._notices.add_to(replace(since.progress, blocking=(), notices=()))
            return replace(since, progress=told)
        log.info("blocking snapshot of %s in %d chunks", ", ".join(map(str, tables)), len(made.chunks))
        self._notices.started(self._counts(names))
        progress = replace(since.progress, blocking=(), reading=tables)
        return self._next_chunks(
            replace(since, snapshot=SnapshotProgress(made, at, 0, _number(since)), progress=progress), False
        )

    def _present(self) -> Position:
        """The position that rows of a snapshot tell which does not begin a query."""
        return Position(operation_time(self._connect())) if self._streams else self._majority.newest()

    def _next_chunks(self, since: MongoOffset, everything: bool) -> MongoOffset:
        """The offset after the next chunks: as many for each batch as keep every core busy for a while."""
        assert since.snapshot is not None
        total = len(since.snapshot.plan.chunks)
        done = min(total, since.snapshot.done + (total if everything else 3 * self._parallelism))
        self._notices.chunks(since.snapshot.plan, since.snapshot.done, done)
        told = self._notices.add_to(replace(since.progress, notices=()))
        return replace(since, snapshot=replace(since.snapshot, done=done), progress=told)

    def _chunk_tasks(self, since: MongoOffset, until: SnapshotProgress, position: Position) -> list[Task]:
        same = since.snapshot is not None and since.snapshot.number == until.number
        first = since.snapshot.done if same and since.snapshot is not None else 0
        address = Address.of(self._config)
        plan, done, last = until.plan, until.done, -1
        chunks = [(chunk, plan.filter(chunk.namespace)) for chunk in plan.chunks]
        after = self._majority.after([chunk.namespace for chunk, _ in chunks], until.at, position)
        if until.is_complete and chunks:
            # what was emptied since the snapshot was planned cannot hold its last document
            last = snapshots.last_filled(self._connect(), plan, first, after)
            done = last + 1
        return [
            snapshots.SnapshotTask(
                address,
                replace(chunks[number][0], last=number == last),
                chunks[number][1],
                until.at,
                number,
                self._config["snapshot.fetch.size"],
                self._shape(),
                after,
                tuple(chunks[:number]) if number == last else (),
                asked=bool(since.progress.blocking or since.progress.reading),
            )
            for number in range(first, done)
        ]

    # --- the log -------------------------------------------------------------------------------------------------

    def _feed(self) -> Feed:
        config = self._config
        await_ms = config["cursor.max.await.time.ms"] or None
        if self._target is not None:
            # a query that ends at the present should not wait for what comes later
            await_ms = min(await_ms or TARGET_AWAIT_MS, TARGET_AWAIT_MS)
        client = self._connect()
        if self._streams:
            settings = StreamSettings.of(config, self._captured)
            return ChangeStreamFeed(self._cursors, self._namespaces, settings, await_ms=await_ms)
        whole = self._events.provide_transaction_metadata
        return OplogFeed(client, self._namespaces, await_ms=await_ms, majority=self._majority.is_seen(), whole=whole)

    def _read_log(self, since: MongoOffset) -> LogReader:
        """The running reader, started at `since` at the first call."""
        if self._reader is None:
            config = self._config
            attempts, first, longest = retries(config)
            self._reader = LogReader(
                self._feed(),
                since.log,
                memory_limit=config["max.queue.size.in.bytes"] or 128 << 20,
                max_retries=attempts,
                retry_delay=longest,
                first_delay=first,
                runtime=self._runtime,
            )
            self._reader.start()
        return self._reader

    def _rows(self, since: MongoOffset, until: MongoOffset) -> list[Rows]:
        """The changes of a batch; for one that was planned before a restart they are read again.

        Raises PositionLost where the log does not hold both ends of the batch as they were.
        """
        if self._reader is None:
            self._demand(until.log)
        reader = self._read_log(since)
        while not reader.read_through(until.log, 1.0):
            pass
        return reader.take(since.log, until.log)

    def _numbered(self, rows: Sequence[Rows], since: MongoOffset) -> Numbered:
        """The numbers of a batch's events in their transactions."""
        settings = self._shape()
        return numbered(
            rows,
            self._namespaces.names,
            since.transaction,
            self._events.skipped_operations,
            settings.replica_set if settings.legacy else None,
        )

    def _next_window(
        self,
        reader: LogReader,
        incremental: Incremental,
        start: Position,
        past: Progress,
        progress: Progress,
        max_rows: int,
        max_bytes: int,
    ) -> tuple[Position, Progress]:
        """The end of the next batch, with a window in it when an incremental snapshot is running.

        `progress` follows `past`, that of the batch before. A window waits while the log is behind: its batch has to
        hold all of it.
        """
        upto = None if reader.is_behind or reader.has_failed else incremental.open(progress, reader, start)
        if upto is not None:
            found = upto
        elif progress != past:
            # the window of the last batch is closed: the offset should say so soon
            found = reader.plan(start, max_rows, max_bytes)
        else:
            found = self._next_batch(reader, start, max_rows, max_bytes)
        rows = reader.take(start, found) if start.is_before(found) else []
        return found, incremental.finish(progress, rows, self._namespaces.names)

    def _next_batch(self, reader: LogReader, start: Position, max_rows: int, max_bytes: int) -> Position:
        """The end of the next batch; waits up to `poll.interval.ms` for a change, or for the target to be reached.

        Returns `start` as well while changes are to gather, which they do until the target at most.
        """
        began = self._runtime.monotonic()
        patience = min(self._config["poll.interval.ms"] / 1000, self._heartbeats.remaining())
        deadline = began + patience
        target = self._target
        upto = None if target is None else Position(target, WHOLE)
        if target is None and not self._dispatch.is_over(patience):
            reader.check()
            return start
        while True:
            # in this order: what is read between the two calls must not be missed
            reached = target is not None and reader.has_read(target)
            if reader.is_filling(max_bytes) and self._runtime.monotonic() < began + FILL_SECONDS:
                reader.wait(0.05)
                continue
            whole = reader.plan(start, _UNLIMITED, _UNLIMITED) if self._dispatch.seconds else start
            found = reader.plan(start, max_rows, max_bytes, upto)
            if found != start:
                self._idle_since, self._idle_bytes = self._runtime.monotonic(), reader.read_bytes
                self._dispatch.begun(is_cut=found.is_before(whole))
                return found
            left = deadline - self._runtime.monotonic()
            if reached or (target is None and left <= 0):
                return self._idle(reader, start)
            reader.wait(left if target is None else 0.5)

    def _idle(self, reader: LogReader, start: Position) -> Position:
        """`start`, or once in a while a position beyond what held no captured change, so that the log can be lost."""
        waited = self._runtime.monotonic() - self._idle_since
        read = reader.read_bytes - self._idle_bytes
        moved = self._beyond(reader, start) if read >= IDLE_BYTES or waited >= IDLE_SECONDS else start
        if moved != start:
            self._idle_since, self._idle_bytes = self._runtime.monotonic(), reader.read_bytes
        return moved

    @staticmethod
    def _beyond(reader: LogReader, start: Position) -> Position:
        """How far the log has been read behind `start` without a captured change; `start` when one waits.

        A token may move while the time that is known does not.
        """
        moved = reader.reached
        behind = start.is_before(moved) or (start.key == moved.key and start.token != moved.token)
        return moved if behind and not reader.has_changes else start

    def _may_stream(self, since: MongoOffset) -> bool:
        """Whether no snapshot has just ended, or `streaming.delay.ms` have gone by since; waits for that a while."""
        if since.snapshot is None or self._reader is not None:
            return True
        return self._delay.is_over(wholly=self._target is not None)


def _import_reader() -> None:
    """Load the driver and the compiled kernels of the planner."""
    import pymongo  # noqa: F401

    fields.load_kernels()


def _number(since: MongoOffset) -> int:
    """The number of the next snapshot."""
    return 1 if since.snapshot is None else since.snapshot.number + 1
