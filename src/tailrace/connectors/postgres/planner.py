"""PostgresPlanner: what the planner process does for a PostgreSQL query, from the first slot to the last batch."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.base import Offset, Task
from tailrace.connectors.postgres import connection as connections
from tailrace.connectors.postgres import segments, setup
from tailrace.connectors.postgres.arrow import ArrowConnection
from tailrace.connectors.postgres.catalog import Catalog
from tailrace.connectors.postgres.offset import PostgresOffset, SnapshotProgress
from tailrace.connectors.postgres.position import LogPosition
from tailrace.connectors.postgres.reader import Connections, LogReader, ReaderSettings
from tailrace.connectors.postgres.snapshot import CHUNK_PAGES, SnapshotSession, select_statement
from tailrace.connectors.postgres.tasks import BoundaryTask, LogTask, SnapshotTask
from tailrace.errors import PositionLost
from tailrace.events import names
from tailrace.events.settings import EventSettings

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres import pgoutput

log = logging.getLogger("tailrace")

# An idle position is committed once this much WAL, or time with any WAL at all, has gone by without captured change.
IDLE_BYTES = 16 << 20
IDLE_SECONDS = 30.0
# While a backlog is read, a batch waits so long to become at least half full: each has a fixed cost of some 0.15 s.
FILL_SECONDS = 0.5
_UNLIMITED = 1 << 62


class PostgresPlanner:
    """Implements `tailrace.connectors.base.Planner` for PostgreSQL.

    The first call of `latest_offset` or `partitions` prepares the server (publication, slot, replica identities) and
    decides on a snapshot; the reader of the log starts when no snapshot is running.
    """

    def __init__(self, config: Config, settings: EventSettings) -> None:
        self._config = config
        self._settings = settings
        self._tables = TableFilter(config)
        self._control: psycopg.Connection[Any] | None = None
        self._captured: list[setup.CapturedTable] = []
        self._reader: LogReader | None = None
        self._session: SnapshotSession | None = None
        self._slot_connection: psycopg.Connection[Any] | None = None
        self._snapshot_schemas: dict[str, TableSchema] = {}
        self._prepared = False
        self._begun = False
        self._start: LogPosition | None = None
        self._target: int | None = None
        self._idle_since = time.monotonic()
        self._parallelism = config["event.order.segments"] or os.cpu_count() or 1

    # --- the calls of the query ----------------------------------------------------------------------------------

    def initial_offset(self) -> Offset:
        # The query's first call: what the reader needs is imported while Spark goes on with its own start.
        threading.Thread(target=_import_reader, name="tailrace-import", daemon=True).start()
        return PostgresOffset().to_json()

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        since = PostgresOffset.from_json(start)
        began = self._begin(since)
        if began is not None:
            return began.to_json()
        if since.snapshot is not None and not since.snapshot.is_complete:
            return self._next_chunks(since, max_rows is None and max_bytes is None).to_json()
        if self._config["snapshot.mode"] == "initial_only":
            return start
        self._close_session()
        reader = self._read_log(since)
        reader.committed(since.log)
        found = self._next_batch(reader, since.log, max_rows or _UNLIMITED, max_bytes or _UNLIMITED)
        if found == since.log:
            return start if self._start is None or not since.is_initial else PostgresOffset(self._start).to_json()
        visible = since.visible
        if visible is not None and found.commit_lsn >= visible.before_lsn:
            visible = None
        return PostgresOffset(found, None, visible).to_json()

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        since, until = PostgresOffset.from_json(start), PostgresOffset.from_json(end)
        tasks: list[Task] = []
        snapshot = until.snapshot
        if snapshot is not None:
            same = since.snapshot is not None and since.snapshot.origin == snapshot.origin
            first = since.snapshot.done if same and since.snapshot is not None else 0
            if first < snapshot.done:
                tasks.extend(self._chunk_tasks(snapshot, first))
        if since.log.is_before(until.log):
            reader = self._read_log(since)
            rows = reader.take(since.log, until.log)
            groups = segments.tasks(
                rows,
                reader.versions,
                lambda table: names.topic(self._settings, table.id),
                self._config["event.order"] == "key",
                self._parallelism,
            )
            tasks.extend(LogTask(tuple(group), self._settings) for group in groups)
            found = segments.boundaries(rows)
            if found:
                tasks.append(BoundaryTask(tuple(found), self._settings))
        return tasks

    def stop_at_present(self) -> None:
        row = self._connect().execute("select (pg_current_wal_lsn() - '0/0'::pg_lsn)::int8").fetchone()
        assert row is not None
        self._target = int(row[0])

    def status(self) -> Offset | None:
        if self._reader is None or not self._reader.head_lsn:
            return None
        return PostgresOffset(LogPosition(idle_lsn=self._reader.head_lsn)).to_json()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._close_session()
        if self._control is not None:
            self._control.close()
            self._control = None

    # --- the start -----------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection[Any]:
        if self._control is None or self._control.closed:
            self._control = connections.connect(self._config)
        return self._control

    def _prepare(self) -> None:
        """Publication and replica identities; once for each planner."""
        if self._prepared:
            return
        control = self._connect()
        catalog = Catalog(control, self._config["database.dbname"])
        self._captured = setup.captured_tables(catalog.tables(), self._tables)
        if self._config["snapshot.mode"] != "initial_only":
            setup.prepare_publication(control, self._config, self._captured)
            setup.warn_of_unpublished(control, self._config["publication.name"], self._captured)
        setup.set_replica_identities(control, self._config["replica.identity.autoset.values"], self._captured)
        setup.warn_of_identities(control, self._captured)
        self._prepared = True

    def _begin(self, since: PostgresOffset) -> PostgresOffset | None:
        """What precedes the log: the offset of the first batch of a snapshot, or of the new slot; None when done.

        `always` takes a snapshot at each start of the query that is not in the middle of one.
        """
        mode = self._config["snapshot.mode"]
        if not self._begun:
            self._begun = True
            self._prepare()
            running = since.snapshot is not None and not since.snapshot.is_complete
            if not running and (
                mode == "always" or (since.is_initial and mode in ("initial", "initial_only", "exported"))
            ):
                return self._start_snapshot(since)
        if since.is_initial and mode != "initial_only":
            # Without a position of its own in the checkpoint, a slot that is missing later would be created again.
            self._start = self._start or self._slot_position(None)
        return None

    def _slot_position(self, snapshot_wanted: list[str] | None) -> LogPosition:
        """Where a query without checkpoint starts to read: the existing slot's position, or a new slot's start.

        A snapshot exported by the slot's creation is put into `snapshot_wanted`; without it the slot's connection is
        closed again.
        """
        control = self._connect()
        confirmed = setup.find_slot(control, self._config)
        if confirmed is not None:
            return LogPosition(idle_lsn=confirmed)
        replication = connections.connect(self._config, replication=True)
        created = setup.create_slot(replication, self._config["slot.name"])
        if snapshot_wanted is None:
            replication.close()
        else:
            snapshot_wanted.append(created.snapshot)
            self._slot_connection = replication
        return LogPosition(idle_lsn=created.consistent_lsn)

    def _start_snapshot(self, since: PostgresOffset) -> PostgresOffset:
        """Plan a snapshot; its first chunks are the first batch."""
        if self._reader is not None:
            # it was started for the replay of a batch, and knows nothing of this snapshot
            self._reader.close()
            self._reader = None
        exported: list[str] = []
        # Source blocks tell of no commit before the snapshot.
        position = replace(since.log, end_lsn=0, idle_lsn=since.log.safe_lsn)
        only_snapshot = self._config["snapshot.mode"] == "initial_only"
        if since.is_initial and not only_snapshot:
            position = self._slot_position(exported)
        session = self._open_session(exported[0] if exported else None)
        self._captured = setup.captured_tables(
            Catalog(self._connect(), self._config["database.dbname"]).tables(), self._tables
        )
        plan = session.plan(self._captured, CHUNK_PAGES)
        log.info("snapshot of %d tables in %d chunks", len(plan.tables), len(plan))
        origin = session.origin
        # An older slot still holds what the snapshot shows; a new one begins exactly where its snapshot ends.
        visible = None if exported or only_snapshot else session.visible
        progress = SnapshotProgress(plan, origin, 0)
        return self._next_chunks(PostgresOffset(position, progress, visible), False)

    def _open_session(self, exported: str | None) -> SnapshotSession:
        self._close_session(keep_slot_connection=exported is not None)
        self._session = SnapshotSession(connections.connect(self._config), exported, self._connect())
        if self._slot_connection is not None:
            # the session's own transaction holds the snapshot from now on
            self._slot_connection.close()
            self._slot_connection = None
        return self._session

    def _close_session(self, keep_slot_connection: bool = False) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
        if self._slot_connection is not None and not keep_slot_connection:
            self._slot_connection.close()
            self._slot_connection = None

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _next_chunks(self, since: PostgresOffset, everything: bool) -> PostgresOffset:
        """The offset after the next chunks: as many for each batch as keep every core busy for a while."""
        assert since.snapshot is not None
        total = len(since.snapshot.plan)
        step = total if everything else self._chunks_per_batch()
        done = min(total, since.snapshot.done + step)
        return replace(since, snapshot=replace(since.snapshot, done=done))

    def _chunks_per_batch(self) -> int:
        if self._config.is_set("max.batch.size"):
            return self._parallelism
        return 3 * self._parallelism

    def _chunk_tasks(self, snapshot: SnapshotProgress, first: int) -> list[Task]:
        """The tasks of chunks `[first, done)`, under this planner's snapshot."""
        if self._session is None:
            # A restart: the chunks that are missing are read under a new snapshot, and the log makes them converge.
            self._open_session(None)
        session = self._session
        assert session is not None
        catalog = Catalog(self._connect(), self._config["database.dbname"])
        known = {str(table): (oid, kind) for oid, table, kind in catalog.tables()}
        address = connections.uri(self._config)
        tasks: list[Task] = []
        for chunk in snapshot.plan.chunks(first, snapshot.done):
            name = f"{chunk.table.schema}.{chunk.table.table}"
            if name not in known:
                raise PositionLost(
                    f"The table {name} was dropped while its snapshot was running.",
                    "Delete the checkpoint to start again without it.",
                )
            oid, relkind = known[name]
            if name not in self._snapshot_schemas:
                self._snapshot_schemas.update({name: catalog.schemas([oid])[oid]})
            table = self._snapshot_schemas[name]
            statement = select_statement(table, catalog.output_functions(table.columns), chunk, relkind)
            tasks.append(SnapshotTask(address, session.name, table, chunk, statement, snapshot.origin, self._settings))
        return tasks

    # --- the log -------------------------------------------------------------------------------------------------

    def _read_log(self, since: PostgresOffset) -> LogReader:
        """The running reader, started at `since` at the first call."""
        if self._reader is not None:
            return self._reader
        self._prepare()
        config = self._config
        if setup.find_slot(self._connect(), config) is None:
            raise PositionLost(
                f"The replication slot {config['slot.name']} is gone.",
                "The changes since the last commit are lost: delete the checkpoint to start again with a snapshot.",
            )
        queue_bytes = config["max.queue.size.in.bytes"]
        sizes: dict[str, int] = {"memory_limit": queue_bytes, "disk_limit": 0} if queue_bytes else {}
        reader = LogReader(
            ReaderSettings(
                slot=config["slot.name"],
                publication=config["publication.name"],
                status_interval=config["status.update.interval.ms"] / 1000,
                max_retries=config["errors.max.retries"],
                retry_delay=config["retriable.restart.connector.wait.ms"] / 1000,
                slot_retries=config["slot.max.retries"],
                slot_retry_delay=config["slot.retry.delay.ms"] / 1000,
                slice_bytes=max(config["max.batch.size.in.bytes"], 1 << 20),
                **sizes,
            ),
            Connections(
                control=lambda: connections.connect(config),
                replication=lambda: connections.connect(config, replication=True),
                arrow=lambda: ArrowConnection(connections.uri(config)),
            ),
            config["database.dbname"],
            self._is_captured,
            since.log,
            since.visible,
            self._target,
            self._settings.skipped_operations if self._settings.provide_transaction_metadata else None,
        )
        reader.start()
        self._reader = reader
        return reader

    def _is_captured(self, relation: pgoutput.Relation) -> bool:
        return self._tables.includes(relation.namespace, relation.name)

    def _next_batch(self, reader: LogReader, start: LogPosition, max_rows: int, max_bytes: int) -> LogPosition:
        """The end of the next batch; waits up to `poll.interval.ms` for a change, or for the target to be reached."""
        began = time.monotonic()
        deadline = began + self._config["poll.interval.ms"] / 1000
        target = self._target
        while True:
            if reader.is_filling(max_bytes) and time.monotonic() < began + FILL_SECONDS:
                reader.spool.wait(0.05)
                continue
            # in this order: what is read between the two calls must not be missed
            reached = target is not None and reader.has_read(target)
            found = reader.plan(start, max_rows, max_bytes, target)
            if found != start:
                self._idle_since = time.monotonic()
                return found
            left = deadline - time.monotonic()
            if reached or (target is None and left <= 0):
                return self._idle(reader, start)
            reader.spool.wait(left if target is None else 0.5)

    def _idle(self, reader: LogReader, start: LogPosition) -> LogPosition:
        """`start`, or once in a while a position beyond what held no captured change, so that the slot can follow."""
        moved = reader.idle_position(start)
        waited = time.monotonic() - self._idle_since
        if moved != start and (moved.safe_lsn - start.safe_lsn >= IDLE_BYTES or waited >= IDLE_SECONDS):
            self._idle_since = time.monotonic()
            return moved
        return start


def _import_reader() -> None:
    """Load the driver and the compiled kernels of the planner."""
    import adbc_driver_postgresql  # noqa: F401

    from tailrace.connectors.postgres import scan

    scan.load()
