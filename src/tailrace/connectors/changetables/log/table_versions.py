"""The table versions that begin in a batch, for the topic of schema changes. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tailrace.columns.batch import Marker
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CapturePeriod
from tailrace.connectors.changetables.dialect import Position
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.rows import RowAssembly, TimesByPosition, whole
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset
from tailrace.connectors.changetables.position import preceding
from tailrace.events.schema_changes import ALTER, CREATE, PrecedingChange, SchemaChange


class TableVersions:
    """The table versions of one query. Raises the errors of sessions.

    `includes` returns True for a captured table. At the start all other tables also have records, if the dialect lists
    them; `only_captured` (schema.history.internal.store.only.captured.tables.ddl) drops tables that the lists exclude.
    `skipped` are the operations whose rows are not counted as changes; see `rows.skipped_rows`.
    """

    def __init__(
        self,
        databases: Mapping[str, Database],
        includes: Callable[[TableId], bool],
        only_captured: bool,
        skipped: tuple[int, ...],
    ) -> None:
        self._databases = databases
        self._includes = includes
        self._only_captured = only_captured
        self._skipped = skipped

    def changes(self, since: TablesOffset, until: TablesOffset, at_us: int) -> list[SchemaChange]:
        """Return the schema changes of the batch `(since, until]`: all tables at a query's start, later the new
        versions.

        A table's first change table is a new table, each further one a changed table.
        """
        found = []
        for name, reached in sorted(until.databases.items()):
            before = since.databases.get(name)
            if before is None:
                found += self._at_start(name, reached, at_us, until.snapshot is not None)
            else:
                found += self._begun(name, before, reached, at_us)
        return found

    def _at_start(self, name: str, reached: DatabaseProgress, at_us: int, reads: bool) -> list[SchemaChange]:
        """Return all tables in order. If no rows are read, the last one ends the database's snapshot."""
        captured = [era.table for era in reached.eras.at(reached.position) if self._includes(era.table.id)]
        tables = sorted([*captured, *self._others(name, captured)], key=lambda table: table.id)
        return [
            SchemaChange(
                CREATE,
                table,
                reached.position,
                at_us,
                number,
                Marker.LAST if not reads and number == len(tables) - 1 else Marker.TRUE,
            )
            for number, table in enumerate(tables)
        ]

    def _others(self, name: str, captured: Sequence[TableSchema]) -> list[TableSchema]:
        known = {table.id for table in captured}
        others = self._databases[name].session.uncaptured(known)
        return [table for table in others if not self._only_captured or self._includes(table.id)]

    def _begun(self, name: str, before: DatabaseProgress, reached: DatabaseProgress, at_us: int) -> list[SchemaChange]:
        """Return the versions that begin within the batch, except those that already apply at its start."""
        known = before.eras.at(before.position)
        eras = [
            era
            for era in reached.eras.entries
            if before.position < era.since <= reached.position and era not in known and self._includes(era.table.id)
        ]
        return [self._change(name, era, at_us, number) for number, era in enumerate(eras)]

    def _change(self, name: str, era: CapturePeriod, at_us: int, number: int) -> SchemaChange:
        if era.table.version == 1:
            return SchemaChange(CREATE, era.table, era.since, at_us, number)
        shown = self._preceding(self._databases[name], era.since, at_us)
        return SchemaChange(ALTER, era.table, era.since, at_us, number, preceding=shown)

    def _preceding(self, database: Database, since: Position, at_us: int) -> PrecedingChange | None:
        """Return the last change of any captured table before `since`; None if the change tables have no earlier
        change."""
        session = database.session
        captures = [one for one in session.captures() if self._includes(one.source)]
        ends = {one: session.last(one, preceding(since), self._skipped) for one in captures}
        commit = max((end for end in ends.values() if end is not None), default=None)
        if commit is None:
            return None
        times = TimesByPosition.of(session.commit_times(preceding(commit), commit), at_us)
        found: list[PrecedingChange] = []
        for one in (capture for capture, end in ends.items() if end == commit):
            bare = TableSchema(one.source, (), ())
            assembly = RowAssembly(bare, times, database.pairs, self._skipped)
            for rows in whole(session.changes(one, bare, preceding(commit), commit), database.pairs):
                batch = assembly.batch(rows)
                if batch is not None and batch.serial is not None:
                    at = int(batch.transactions.commit_us[-1])
                    change, serial = batch.lsn[-1].as_py(), batch.serial[-1].as_py()
                    found.append(PrecedingChange(one.source, commit, change, serial, at))
        return max(found, key=lambda one: (one.change_lsn, one.serial), default=None)
