"""Initial and blocking snapshots: their start, and the chunks of each batch. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.postgres.log.reading import Environment
from tailrace.connectors.postgres.log.visibility import UnsettledTransactions
from tailrace.connectors.postgres.log_session import parallelism
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.schema.history import StoredHistory
from tailrace.connectors.postgres.schema.hypertables import HypertableCatalog
from tailrace.connectors.postgres.server.connection import explained
from tailrace.connectors.postgres.setup import slots
from tailrace.connectors.postgres.setup.coverage_watch import CoverageWatch
from tailrace.connectors.postgres.snapshot.chunks import TableSnapshots
from tailrace.connectors.postgres.snapshot.session import BATCHES, SnapshotProgress
from tailrace.connectors.postgres.snapshot.tasks import with_settings
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Task
from tailrace.log.table_notifications import TableNotifications
from tailrace.snapshot.incremental import Collection
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.plan import SnapshotPlan

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# 64 MB of heap: the least that a batch reads where rows go into tables.
_PAGES_INTO_TABLES = 8192


class PostgresSnapshots(contracts.Snapshots[PostgresOffset]):
    """Snapshots of the tables that `tables` lets through. `control` returns a connection in autocommit mode.

    `admit` returns a table's schema with the key of its events. `streamed` returns the transactions read from the log;
    None if signals cannot ask for blocking snapshots. `stock` has the captured tables as last found.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        tables: TableFilter,
        outside: Environment,
        control: Callable[[], psycopg.Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
        streamed: Callable[[], UnsettledTransactions | None],
        hypertables: HypertableCatalog,
        stock: CoverageWatch,
    ) -> None:
        self._config = config
        self._stock = stock
        self._outside = outside
        self._control = control
        self._streamed = streamed
        self._hypertables = hypertables
        self._parallelism = parallelism(config)
        self._gives_blocks = bool(settings.blocks)
        self._streams = snapshot_mode(config).streams
        self._make: Callable[[], TableSnapshots] = lambda: TableSnapshots(
            config, settings, tables, outside, control, admit
        )
        self._chunks = self._make()
        self.notifications = TableNotifications(config, outside.runtime, lambda: self._chunks.failing)

    def begin_anew(self) -> None:
        """Forget the running snapshot's session, as after a crash."""
        self._chunks.close()
        self._chunks = self._make()

    def start(self, since: PostgresOffset, *, fresh: bool) -> PostgresOffset:
        self._choose(())
        # Source blocks show no commit before the snapshot.
        position = replace(since.log, end_lsn=0, idle_lsn=since.log.safe_lsn)
        server, exported = since.server, None
        with ExitStack() as until_taken_over:
            if fresh:
                slot = slots.slot_start(self._control(), self._config, self._outside.connect)
                until_taken_over.enter_context(closing(slot))
                position, server, exported = slot.position, slot.server, slot.snapshot
            plan, is_cut = self._chunks.start(exported, self._parallelism)
        log.info("the snapshot begins (tables with rows: %d, chunks: %d)", len(plan.tables), len(plan))
        session = self._chunks.session
        position = replace(position, at_us=session.origin.at_us)
        # An older slot still holds what the snapshot shows; a new slot begins exactly where its snapshot ends.
        visible = None if is_cut or not self._streams else replace(session.visible, tables=self._chunks.covered())
        # A query that goes on has its own history; a new query starts with the snapshot's history. That history covers
        # all tables if the log also starts with the snapshot, else the tables whose earlier changes are left out.
        schemas = since.schemas
        if fresh:
            schemas = self._chunks.history(None if visible is None else visible.tables)
        hypertables = self._hypertables.learned(since.hypertables, self._chunks.names_read)
        self._stock.note_read(self._chunks.covered())
        return PostgresOffset(
            position,
            visible=visible,
            schemas=schemas,
            server=server,
            hypertables=hypertables,
            inventory=self._stock.inventory or since.inventory,
            snapshot=SnapshotProgress(plan, session.origin, 0),
            heartbeat_ms=since.heartbeat_ms,
            progress=since.progress,
        )

    def history_at(self, exported: str) -> StoredHistory:
        """Return the facts about captured tables that the log does not carry, as the `exported` snapshot shows them."""
        return self._chunks.history_at(exported)

    @explained
    def block(self, since: PostgresOffset) -> PostgresOffset | None:
        """Return the offset at which a blocking snapshot of the signal's tables starts.

        All later changes of these tables in the log are delivered, even if the snapshot has shown them: a delete must
        be delivered, and so must all later changes of its row. Return None if a delivered transaction is not visible to
        new snapshots yet: the snapshot would deliver its rows in their old state. Tables whose filter fails are left
        out.
        """
        self._choose(since.progress.blocking)
        plan, _ = self._chunks.start(None, self._parallelism)
        session, streamed = self._chunks.session, self._streamed()
        if streamed is not None and streamed.hidden(session.visible, since.log.commit_lsn):
            self._chunks.close()
            return None
        origin = replace(session.origin, previous_end=session.origin.lsn)
        # with no table, nothing is left out of the log; `visible` still records the snapshot's LSN as reached
        visible = since.visible or replace(session.visible, tables=frozenset())
        hypertables = self._hypertables.learned(since.hypertables, self._chunks.names_read)
        return replace(since, snapshot=SnapshotProgress(plan, origin, 0), visible=visible, hypertables=hypertables)

    def _choose(self, tables: Sequence[Collection]) -> None:
        """Let snapshots read `tables`, each by its filter (a statement) if it has one; if empty, the tables of the
        options."""
        self._chunks.choose({str(one): one.filter for one in tables} if tables else None)

    @property
    def table_count(self) -> int:
        return self._chunks.table_count

    def count(self) -> Mapping[tuple[str, str], int]:
        return self._chunks.count()

    def advance(self, since: PostgresOffset, max_rows: int | None, *, everything: bool) -> SnapshotProgress:
        assert since.snapshot is not None
        plan, done = since.snapshot.plan, len(since.snapshot.plan)
        if not everything:
            done = plan.reached(since.snapshot.done, self._chunks_per_batch(plan))
        return replace(since.snapshot, done=done)

    def _chunks_per_batch(self, plan: SnapshotPlan) -> int:
        """Return the number of chunks of a batch: enough to keep every core busy, and few enough for BATCHES batches.

        Where rows go into tables, return at least _PAGES_INTO_TABLES pages: each batch costs a second there.
        """
        if self._config.is_set("max.batch.size"):
            return self._parallelism
        least = _PAGES_INTO_TABLES // plan.chunk_pages if self._gives_blocks else 1
        return max(self._parallelism, least, min(3 * self._parallelism, len(plan) // BATCHES))

    def tasks(self, since: PostgresOffset, until: PostgresOffset) -> list[Task]:
        """Return the tasks of the chunks between the two offsets."""
        before, snapshot = since.snapshot, until.snapshot
        if snapshot is None:
            return []
        first = before.done if before is not None and before.origin == snapshot.origin else 0
        if first >= snapshot.done:
            return []
        self._choose(until.progress.reading)
        tasks = self._chunks.tasks(snapshot, first, 3 * self._parallelism)
        return [with_settings(task, self._hypertables.settings(until.hypertables)) for task in tasks]

    def close(self) -> None:
        self._chunks.close()
