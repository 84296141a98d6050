"""A snapshot of the captured tables at one log position, kept open for the tasks that read it. Holder process."""

from __future__ import annotations

import logging
import os

from tailrace.columns.table import TableSchema
from tailrace.config import Config
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.position import position_text
from tailrace.connectors.binlog.server.connection import connect, dialect_of
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.snapshot.chunks import BATCHES, TableSnapshots
from tailrace.connectors.binlog.snapshot.progress import SnapshotProgress
from tailrace.connectors.checkpoint import table_filter
from tailrace.errors import PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.process.runtime import THREADS

log = logging.getLogger("tailrace")


class HeldSnapshot:
    """Implements tailrace.connectors.consistent_read.ConsistentRead; `position` and `tables` are as in
    ComparedSource."""

    position: str
    tables: tuple[TableSchema, ...]
    tasks: tuple[Task, ...]

    def __init__(self, config: Config, settings: EventSettings) -> None:
        """Take the snapshot. Raises TailraceError and the driver's errors."""
        names = Admission(settings, form_of(dialect_of(config)))
        parallelism = config["event.order.segments"] or os.cpu_count() or 1
        self._snapshots = TableSnapshots(
            config,
            settings,
            table_filter(config),
            lambda: connect(config, limited=False),
            names.admit,
            parallelism,
            THREADS,
        )
        try:
            plan, bounds = self._snapshots.start()
            point = self._snapshots.point
            if not point.is_exact:
                if config["snapshot.locking.mode"] == "none":
                    raise PrerequisiteError(
                        "snapshot.locking.mode=none takes no lock under which all tables are read at one position.",
                        "Leave snapshot.locking.mode out.",
                    )
                raise PrerequisiteError(
                    "The user may take no lock under which all tables are read at one position.",
                    "Grant RELOAD to the user, or LOCK TABLES on the captured tables.",
                )
            progress = SnapshotProgress(plan, bounds, point, len(plan))
            self.tasks = tuple(self._snapshots.tasks(progress, 0, BATCHES * parallelism, once=True))
            # `pos` is where the next transaction begins
            self.position = position_text(0, point.file, max(point.pos - 1, 0))
            self.tables = tuple(self._snapshots.planned())
        except BaseException:
            self.close()
            raise
        log.info("read of %d tables in %d chunks at %s:%d", len(plan.tables), len(plan), point.file, point.pos)

    def is_read(self) -> bool:
        return self._snapshots.is_reading

    def close(self) -> None:
        self._snapshots.close()


def held(config: Config, settings: EventSettings) -> HeldSnapshot:
    """See tailrace.connectors.consistent_read.Reading."""
    return explained(HeldSnapshot)(config, settings)
