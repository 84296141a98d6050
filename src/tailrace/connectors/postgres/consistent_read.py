"""A snapshot of the captured tables at one log position, kept open for the tasks that read it. Holder process.

The creation of a slot exports a snapshot that shows exactly what committed before the slot's start. The slot is
temporary: it ends with its session, as soon as the snapshot is taken over.
"""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.batch import position_text
from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.checkpoint import table_filter
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.log.identity import refuse_standby
from tailrace.connectors.postgres.log.reading import OUTSIDE
from tailrace.connectors.postgres.schema.hypertables import HypertableCatalog
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup.slots import create_slot
from tailrace.connectors.postgres.snapshot.chunks import TableSnapshots
from tailrace.connectors.postgres.snapshot.session import BATCHES, SnapshotProgress
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, SnapshotTask, with_settings
from tailrace.errors import PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.records.hypertables import NO_HYPERTABLES

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

_ATTEMPTS = 5
_READING = "select exists (select from pg_catalog.pg_stat_activity where application_name = %s)"


class HeldSnapshot:
    """See tailrace.connectors.consistent_read. `position` and `tables` are those of `Compared`."""

    position: str
    tables: tuple[TableSchema, ...]

    def __init__(self, config: Config, settings: EventSettings, *, is_told_apart: bool = True) -> None:
        """Take the snapshot. Raises TailraceError.

        With `is_told_apart` the tasks open sessions with an application name of their own, by which `is_read` finds
        them. Otherwise they use the sessions that workers keep.
        """
        # a caller gets all rows of a table, or an error
        config = replace(config, typed=config.typed | {"row.copy": True})
        self._name = f"tailrace_read_{secrets.token_hex(8)}"
        self._is_told_apart = is_told_apart
        self._hypertables = HypertableCatalog(config, settings, connections.connect)
        # a read for a pipeline's copies has the pipeline's tables
        tables = TableFilter(config) if is_told_apart else table_filter(config)
        self._control: psycopg.Connection[Any] = connections.connect(config)
        names = Admission(settings, FORM)
        self._snapshots = TableSnapshots(config, settings, tables, OUTSIDE, lambda: self._control, names.admit)
        try:
            refuse_standby(self._control)
            self.tasks = self._taken(config, config["event.order.segments"] or os.cpu_count() or 1)
        except BaseException:
            self.close()
            raise

    def _taken(self, config: Config, parallelism: int) -> tuple[Task, ...]:
        for _ in range(_ATTEMPTS):
            with closing(connections.connect(config, replication=True)) as replication:
                slot = create_slot(replication, self._name, temporary=True)
                plan, is_cut = self._snapshots.start(slot.snapshot, parallelism)
            session = self._snapshots.session
            # the snapshot shows only commits before the slot's position, so its own position is one less
            origin = replace(session.origin, lsn=slot.consistent_lsn - 1)
            found = self._snapshots.tasks(SnapshotProgress(plan, origin, len(plan)), 0, BATCHES * parallelism)
            if is_cut and session is self._snapshots.session:
                settings = self._hypertables.settings(
                    self._hypertables.learned(NO_HYPERTABLES, self._snapshots.names_read)
                )
                self.position, self.tables = position_text(origin.lsn), tuple(self._snapshots.planned())
                log.info("read of %d tables in %d chunks at %d", len(plan.tables), len(plan), origin.lsn)
                return tuple(self._named(with_settings(task, settings)) for task in found)
        raise PrerequisiteError(
            f"Tables were altered at each of {_ATTEMPTS} attempts to read them.",
            "Read again when no schema change is running.",
        )

    def _named(self, task: Task) -> Task:
        """Return the task for this snapshot, with the application name of its sessions."""
        if isinstance(task, Consecutive):
            return Consecutive(tuple(self._named(one) for one in task.tasks))
        assert isinstance(task, SnapshotTask)
        if not self._is_told_apart:
            return replace(task, once=True)
        uri = task.address.uri.replace("application_name=tailrace", f"application_name={self._name}")
        return replace(task, address=replace(task.address, uri=uri), once=True)

    def is_read(self) -> bool:
        row = self._control.execute(_READING, (self._name,)).fetchone()
        return bool(row and row[0])

    def close(self) -> None:
        self._snapshots.close()
        self._hypertables.close()
        self._control.close()


def held(config: Config, settings: EventSettings) -> HeldSnapshot:
    """See tailrace.connectors.consistent_read.Reading."""
    return connections.explained(lambda: HeldSnapshot(config, settings))()
