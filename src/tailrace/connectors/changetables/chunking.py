"""ChunkedSnapshots: start snapshots over change tables, and give each batch its chunks. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tailrace.columns.table import TableId
from tailrace.config import Config
from tailrace.connectors.changetables.offset import TablesOffset, TablesPosition, TablesSnapshot
from tailrace.connectors.changetables.snapshot.initial import TableSnapshots
from tailrace.connectors.changetables.snapshot.windows import TableWindows
from tailrace.log import contracts
from tailrace.log.notifications import PendingNotifications
from tailrace.process.runtime import Runtime


class ChunkedSnapshots(contracts.Snapshots[TablesOffset]):
    """The snapshots that `tables` plans.

    `first` returns the offset of the newest positions. `to_end` returns the end of the captured log after a position,
    or None if there are changes in between.
    """

    def __init__(
        self,
        config: Config,
        tables: TableSnapshots,
        windows: TableWindows,
        first: Callable[[], TablesOffset],
        to_end: Callable[[TablesPosition], TablesPosition | None],
        runtime: Runtime,
    ) -> None:
        self.notifications = CapturedNotifications(config, runtime)
        self._tables = tables
        self._windows = windows
        self._first = first
        self._to_end = to_end
        self._planned: tuple[TableId, ...] = ()

    def start(self, since: TablesOffset, *, fresh: bool) -> TablesOffset:
        if fresh or since.is_initial:
            first = self._first()
            since = replace(since, databases=first.databases, lineages=first.lineages)
        return self._begun(since, None)

    def block(self, since: TablesOffset) -> TablesOffset | None:
        end = self._to_end(since.log)
        if end is None:
            return None
        chosen = self._windows.tables(since.progress.blocking, end.databases)
        return self._begun(replace(since, databases=end.databases), chosen)

    def _begun(self, since: TablesOffset, chosen: Mapping[TableId, str | None] | None) -> TablesOffset:
        snapshot = self._tables.begin(since.databases, chosen)
        self._planned = snapshot.tables
        return replace(since, snapshot=snapshot)

    @property
    def table_count(self) -> int:
        return len(self._planned)

    def count(self) -> Mapping[TableId, int]:
        return {table: self._tables.database(table).session.row_count(table) for table in self._planned}

    def advance(self, since: TablesOffset, max_rows: int | None, *, everything: bool) -> TablesSnapshot:
        assert since.snapshot is not None
        return self._tables.advance(since.snapshot, since.databases, max_rows)


class CapturedNotifications(PendingNotifications[TableId, TablesSnapshot]):
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
