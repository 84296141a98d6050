"""Initial and blocking snapshots over change tables: the rows that each batch reads. Planner.

The position of the log is taken first. Then tasks read the tables in chunks by key, in the isolation level of the
options. A row may therefore show a change that the log repeats later. The log is read from the position on, so every
row ends in its last state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.changetables.capture_history import CapturePeriod
from tailrace.connectors.changetables.dialect import Key, KeyRange
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.tasks import SnapshotTask, TaskSource
from tailrace.connectors.changetables.offset import DatabaseProgress, SnapshotChunk, TablesSnapshot
from tailrace.log.contracts import Task
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.plan import Chunk, PlannedTable
from tailrace.snapshot.selection import by_row_count, overrides, selected

log = logging.getLogger("tailrace")

# The rows of a chunk.
CHUNK_ROWS = 50_000
# A blocking snapshot reads the tables that its signal names, and ignores this option.
_ALL: dict[str, Any] = {"snapshot.include.collection.list": []}


class TableSnapshots:
    """Plans the snapshots of one query. `shown` returns a table with the columns and the key that its events need."""

    def __init__(
        self,
        config: Mapping[str, Any],
        databases: Mapping[str, Database],
        shown: Callable[[TableSchema], TableSchema],
        parallelism: int,
        runtime: Runtime = THREADS,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._databases = databases
        self._shown = shown
        self._parallelism = parallelism
        # the table that is being read: its place, and estimates of its planned rows and of all its rows
        self._current: tuple[int, int, int] | None = None
        self._running: TablesSnapshot | None = None

    def database(self, table: TableId) -> Database:
        """Return the database of a table; the server may write its name in another case than the configuration."""
        return self._databases[named(table.database, self._databases)]

    def begin(
        self, reached: Mapping[str, DatabaseProgress], chosen: Mapping[TableId, str | None] | None = None
    ) -> TablesSnapshot:
        """Return a snapshot of the captured tables that the options select, or of the tables `chosen`.

        `chosen` has the statement of each table, or None.
        """
        tables: list[TableId] = []
        first: list[str] = []
        for name, database in self._databases.items():
            eras = {str(era.table.id): era for era in reached[name].eras.at(reached[name].position)}
            wanted = self._selected(name, list(eras), chosen)
            if self._config["snapshot.tables.order.by.row.count"] != "disabled":
                counts = {one: database.session.row_count(eras[one].table.id) for one in wanted}
                wanted = by_row_count(self._config, wanted, counts)
            for place, one in enumerate(wanted):
                table = eras[one].table.id
                if self._statement(table, chosen) or not database.session.is_empty(table):
                    tables.append(table)
                    if not place:
                        first.append(name)
        texts = () if chosen is None else tuple((table, text) for table, text in chosen.items() if text is not None)
        log.info("the snapshot begins (tables with rows: %d)", len(tables))
        return TablesSnapshot(tuple(tables), self._runtime.time_ns() // 1000, tuple(first), conditions=texts)

    def _selected(
        self, database: str, captured: Sequence[str], chosen: Mapping[TableId, str | None] | None
    ) -> list[str]:
        if chosen is None:
            return selected(self._config, captured)
        names = {str(table) for table in chosen if table.database.lower() == database.lower()}
        ordered = [name for name in selected({**self._config, **_ALL}, captured) if name in names]
        # the signal table too, if the signal names it
        return ordered + [name for name in captured if name in names and name not in ordered]

    def _statement(self, table: TableId, chosen: Mapping[TableId, str | None] | None) -> str | None:
        if chosen is not None:
            text = chosen.get(table)
            return None if text is None else text.strip().rstrip(";").rstrip()
        return overrides(self._config, [str(table)]).get(str(table))

    def advance(
        self, snapshot: TablesSnapshot, reached: Mapping[str, DatabaseProgress], max_rows: int | None
    ) -> TablesSnapshot:
        """Return the snapshot after the next batch, with the batch's chunks, which are enough to keep every core
        busy."""
        rows = CHUNK_ROWS if max_rows is None else max(1, min(CHUNK_ROWS, max_rows // self._parallelism))
        count = 3 * self._parallelism if max_rows is None else self._parallelism
        chunks: list[SnapshotChunk] = []
        place, last = snapshot.place, snapshot.last
        while len(chunks) < count and place < len(snapshot.tables):
            end = self._boundary(snapshot, reached, place, last, rows)
            chunks.append(SnapshotChunk(snapshot.count + len(chunks), place, last, end))
            self._count(snapshot, place, rows)
            last = end
            if end is None:
                place += 1
        done = replace(snapshot, place=place, last=last, chunks=tuple(chunks), count=snapshot.count + len(chunks))
        self._running = None if done.is_complete else done
        return done

    def _count(self, snapshot: TablesSnapshot, place: int, rows: int) -> None:
        table = snapshot.tables[place]
        if self._current is None or self._current[0] != place:
            self._current = (place, 0, self.database(table).session.row_count(table))
        # without statistics the server estimates 0 rows
        planned, known = self._current[1] + rows, self._current[2]
        self._current = (place, min(planned, known) if known > 0 else planned, known)

    def status(self) -> dict[str, Any] | None:
        """Return the progress of the running snapshot for `Planner.status`; None if none is running."""
        if self._running is None or self._current is None:
            return None
        place, rows, of = self._current
        return {
            "table": str(self._running.tables[place]),
            "rows": rows,
            "of": of if of > 0 else None,
            "waiting": [str(table) for table in self._running.tables[place + 1 :]],
            "paused": False,
        }

    def _boundary(
        self, snapshot: TablesSnapshot, reached: Mapping[str, DatabaseProgress], place: int, last: Key | None, rows: int
    ) -> Key | None:
        """Return the key at which the next chunk ends; None if it is the table's last."""
        id_ = snapshot.tables[place]
        era = _era(reached, id_)
        key = () if era is None else self.database(id_).ordering(era.table)
        if era is None or not key or self._statement(id_, _chosen(snapshot)):
            return None
        session = self.database(id_).session
        end = session.boundary(era.table, KeyRange(key, last), rows)
        if end is None or session.boundary(era.table, KeyRange(key, end), 1) is None:
            return None
        return end

    def tasks(
        self, snapshot: TablesSnapshot, reached: Mapping[str, DatabaseProgress], source: TaskSource
    ) -> list[Task]:
        """Return the tasks of the chunks of the batch that ends with `snapshot`."""
        tasks: list[Task] = []
        for one in snapshot.chunks:
            id_ = snapshot.tables[one.place]
            era = _era(reached, id_)
            if era is None:
                log.warning("the table %s is no longer captured: left out of the snapshot", id_)
                continue
            own = [place for place, table in enumerate(snapshot.tables) if table.database == id_.database]
            opens, closes = one.after is None, one.upto is None
            chunk = Chunk(
                number=one.number,
                table=PlannedTable(id_.schema, id_.table, 1),
                first_page=0,
                last_page=None,
                opens_table=opens,
                closes_table=closes,
                opens_snapshot=opens and one.place == own[0] and self.database(id_).name in snapshot.first,
                closes_snapshot=closes and one.place == own[-1],
            )
            statement = self._statement(id_, _chosen(snapshot))
            key = () if statement else self.database(id_).ordering(era.table)
            tasks.append(
                SnapshotTask(
                    source,
                    self.database(id_).name,
                    with_columns(self._shown(era.table), era.table, key),
                    chunk,
                    KeyRange(key, one.after, one.upto) if key else KeyRange(),
                    statement,
                    reached[self.database(id_).name].position,
                    snapshot.at_us,
                    bool(snapshot.conditions),
                    self._config["snapshot.isolation.mode"] == "read_committed",
                    era.capture.is_partial,
                )
            )
        return tasks


def with_columns(shown: TableSchema, whole: TableSchema, names: Sequence[str]) -> TableSchema:
    """Return `shown` with the missing columns of `names`: reading needs them, even if events do not show them."""
    present = {column.name for column in shown.columns}
    missing = tuple(column for column in whole.columns if column.name in names and column.name not in present)
    return replace(shown, columns=shown.columns + missing)


def named(database: str, known: Iterable[str]) -> str:
    """Return the configured name of `database`, which may differ in case."""
    return next(name for name in known if name.lower() == database.lower())


def _chosen(snapshot: TablesSnapshot) -> Mapping[TableId, str | None] | None:
    return dict(snapshot.conditions) if snapshot.conditions else None


def _era(reached: Mapping[str, DatabaseProgress], table: TableId) -> CapturePeriod | None:
    here = reached[named(table.database, reached)]
    return next((era for era in here.eras.at(here.position) if era.table.id == table), None)
