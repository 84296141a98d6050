"""TableNotifications: the notifications about snapshots of tables. Planner."""

from __future__ import annotations

from tailrace.columns.table import TableId
from tailrace.connectors.changetables.offset import TablesSnapshot
from tailrace.log.notifications import PendingNotifications


class TableNotifications(PendingNotifications[TableId, TablesSnapshot]):
    """PendingNotifications of one query; their numbers of rows are estimates of a table's rows."""

    def chunks(self, before: TablesSnapshot, after: TablesSnapshot, *, asked: bool) -> None:
        if not self.are_wanted:
            return
        tables = [(table.schema, table.table) for table in after.tables]
        for chunk in after.chunks:
            if chunk.after is None:
                self._add(self._initial.begun(tables, tables[chunk.place]))
            if chunk.upto is None:
                rows = self._rows.get(after.tables[chunk.place], 0)
                self._add(self._initial.scanned(tables, tables[chunk.place], rows))
        if after.is_complete:
            self._add(self._initial.of("COMPLETED"))
