"""TableNotices: what the planner has to tell of snapshots of tables. Planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.config.filters import table_name
from tailrace.events.notices import Notices
from tailrace.snapshot.plan import SnapshotPlan


class TableNotices(Notices[tuple[str, str]]):
    """Notifications of one query; a table is `(schema, table)`, and one without rows has no chunks."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        signals = config["signal.data.collection"]
        self._signals = [table_name(signals)] if signals else []
        # so many of the tables of the running snapshot have been told of
        self._told = 0

    def started(self, rows: Mapping[tuple[str, str], int]) -> None:
        self._told = 0
        super().started(rows)

    def left_out(self, tables: Sequence[tuple[str, str]]) -> None:
        """Tables of the snapshot that has begun whose conditions fail: they are not read."""
        for table in tables:
            self._add(self._initial.scanned([*self._rows, *tables], table, 0, "SQL_EXCEPTION"))

    def chunks(self, plan: SnapshotPlan, first: int, done: int, asked: bool) -> None:
        """The chunks `[first, done)` of the snapshot are in the next batch; `asked`: a signal has asked for it."""
        if not self.are_wanted:
            return
        tables = list(self._rows) or [(table.schema, table.table) for table in plan.tables]
        for chunk in plan.chunks(first, done):
            table = (chunk.table.schema, chunk.table.table)
            if chunk.opens_table:
                self._pass_empty(tables, table, asked)
                self._add(self._initial.begun(tables, table))
            if chunk.closes_table:
                self._add(self._initial.scanned(self._listed(tables, asked), table, self._rows.get(table, 0)))
                self._told = tables.index(table) + 1
        if done >= len(plan):
            self._pass_empty(tables, None, asked)
            self._told = 0
            self._add(self._initial.of("COMPLETED"))

    def _pass_empty(self, tables: Sequence[tuple[str, str]], until: tuple[str, str] | None, asked: bool) -> None:
        """Tell of the tables before `until` that have no rows, and so no chunks."""
        while self._told < len(tables) and tables[self._told] != until:
            table = tables[self._told]
            if self._rows.get(table) == 0:
                self._add(self._initial.begun(tables, table))
                self._add(self._initial.scanned(self._listed(tables, asked), table, 0))
            self._told += 1

    def _listed(self, tables: Sequence[tuple[str, str]], asked: bool) -> Sequence[tuple[str, str]]:
        """The tables that are named when one has been scanned.

        As recordings have it: of an initial snapshot the signal table, which is not read, is among them, of one that a
        signal has asked for it is not.
        """
        return tables if asked else sorted({*tables, *self._signals})
