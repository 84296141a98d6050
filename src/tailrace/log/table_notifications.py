"""Notifications about snapshots of tables that are read by a SnapshotPlan. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tailrace.config.filters import table_name
from tailrace.log.notifications import PendingNotifications
from tailrace.process.runtime import Runtime
from tailrace.snapshot.plan import SnapshotPlan

Table = tuple[str, str]
"""Schema and table."""


class PlannedSnapshot(Protocol):
    """A snapshot of which `done` chunks of the plan have been read."""

    @property
    def plan(self) -> SnapshotPlan: ...

    @property
    def done(self) -> int: ...


class TableNotifications(PendingNotifications[Table, PlannedSnapshot]):
    """Pending notifications of one query. Tables without rows, which have no chunks, are reported too.

    `failing` returns the tables that the snapshot does not read, because their conditions fail.
    """

    def __init__(self, config: Mapping[str, Any], runtime: Runtime, failing: Callable[[], Sequence[Table]]) -> None:
        super().__init__(config, runtime)
        self._failing = failing
        signals = config["signal.data.collection"]
        self._signals = [table_name(signals)] if signals else []
        # the number of tables of the running snapshot that have been reported
        self._reported = 0

    def started(self, rows: Mapping[Table, int]) -> None:
        self._reported = 0
        super().started(rows)
        failing = self._failing()
        for table in failing:
            self._add(self._initial.scanned([*self._rows, *failing], table, 0, "SQL_EXCEPTION"))

    def chunks(self, before: PlannedSnapshot, after: PlannedSnapshot, *, asked: bool) -> None:
        if not self.are_wanted:
            return
        plan = after.plan
        tables = list(self._rows) or [(table.schema, table.table) for table in plan.tables]
        for chunk in plan.chunks(before.done, after.done):
            table = (chunk.table.schema, chunk.table.table)
            if chunk.opens_table:
                self._pass_empty(tables, table, asked)
                self._add(self._initial.begun(tables, table))
            if chunk.closes_table:
                self._add(self._initial.scanned(self._listed(tables, asked), table, self._rows.get(table, 0)))
                self._reported = tables.index(table) + 1
        if after.done >= len(plan):
            self._pass_empty(tables, None, asked)
            self._reported = 0
            self._add(self._initial.of("COMPLETED"))

    def _pass_empty(self, tables: Sequence[Table], until: Table | None, asked: bool) -> None:
        """Report the tables before `until` that have no rows and so no chunks."""
        while self._reported < len(tables) and tables[self._reported] != until:
            table = tables[self._reported]
            if self._rows.get(table) == 0:
                self._add(self._initial.begun(tables, table))
                self._add(self._initial.scanned(self._listed(tables, asked), table, 0))
            self._reported += 1

    def _listed(self, tables: Sequence[Table], asked: bool) -> Sequence[Table]:
        """Return the tables that the notification about a scanned table names.

        As in Debezium's recordings, an initial snapshot names the signal table too, though it is not read; a snapshot
        that a signal has asked for does not.
        """
        return tables if asked else sorted({*tables, *self._signals})
