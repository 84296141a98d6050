"""TableNotices: what the planner has to tell of snapshots of tables. Planner."""

from __future__ import annotations

from tailrace.columns.table import TableId
from tailrace.connectors.changetables.offset import TablesSnapshot
from tailrace.events.notices import Notices


class TableNotices(Notices[TableId]):
    """Notifications of one query; the numbers of rows are about those that a table has."""

    def chunks(self, snapshot: TablesSnapshot) -> None:
        """The chunks of `snapshot` are in the next batch."""
        if not self.are_wanted:
            return
        tables = [(table.schema, table.table) for table in snapshot.tables]
        for chunk in snapshot.chunks:
            if chunk.after is None:
                self._add(self._initial.begun(tables, tables[chunk.place]))
            if chunk.upto is None:
                rows = self._rows.get(snapshot.tables[chunk.place], 0)
                self._add(self._initial.scanned(tables, tables[chunk.place], rows))
        if snapshot.is_complete:
            self._add(self._initial.of("COMPLETED"))
