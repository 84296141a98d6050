"""A running snapshot: its session, the selected tables, its plan, and the tasks of each batch. Planner.

The tables are listed and described once for each session, under the snapshot itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.postgres.log.identity import flushed_present, waiting
from tailrace.connectors.postgres.log.reading import Environment
from tailrace.connectors.postgres.protocol.position import TargetLsn
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog, captured_tables
from tailrace.connectors.postgres.schema.coverage import EVERYTHING, carried
from tailrace.connectors.postgres.schema.history import StoredHistory
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.snapshot import conditions
from tailrace.connectors.postgres.snapshot.rights import in_part, lacking, refusal
from tailrace.connectors.postgres.snapshot.session import (
    SnapshotOrigin,
    SnapshotProgress,
    SnapshotSession,
    override_error,
    override_statement,
    select_statement,
    take_over,
)
from tailrace.connectors.postgres.snapshot.tasks import Consecutive, SnapshotTask
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.snapshot.plan import Chunk, SnapshotPlan
from tailrace.snapshot.selection import by_row_count, overrides, selected

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

# Seconds for which a snapshot waits for transactions that wait for a standby, and the pause between two attempts.
UNSEEN_SECONDS, UNSEEN_PAUSE = 60.0, 0.1
# The most attempts to take a snapshot whose tables are not altered before they can be locked.
_ATTEMPTS = 5
# The most tasks that look for rows that have moved, and the number of chunk numbers (see `as_reads`).
_MOST_MOVED, _CHUNK_NUMBERS = 64, 1 << 22
# A blocking snapshot reads the tables that its signal names, and ignores this option.
_ALL: dict[str, Any] = {"snapshot.include.collection.list": []}


class TableSnapshots:
    """The snapshots of one query, at most one at a time.

    `outside` opens sessions; `control` returns the planner's ordinary connection; `admit` checks a schema and returns
    it with the key of its events. All methods raise TailraceError.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        tables: TableFilter,
        outside: Environment,
        control: Callable[[], psycopg.Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
    ) -> None:
        self._config = config
        self._settings = settings
        self._filter = tables
        self._connect, self._runtime = outside.connect, outside.runtime
        self._control = control
        self._admit = admit
        self._session: SnapshotSession | None = None
        self._tables: dict[str, CapturedTable] = {}
        self._catalog: Catalog | None = None
        self._storage: dict[int, int] = {}
        self._forms: dict[int, str] = {}
        self._carried = EVERYTHING
        # all captured tables, by `schema.table`, as the running snapshot shows them
        self.schemas: dict[str, TableSchema] = {}
        self._statements: dict[str, str] = {}
        self._reread: set[str] = set()
        self._planned: list[str] = []
        # the number of rows that a signal's SQL selects, by table
        self._counts: dict[str, int] = {}
        # tables that a signal has asked for and whose SQL fails
        self.failing: list[tuple[str, str]] = []
        self._chosen: Mapping[str, str | None] | None = None
        # the chunk from which this session reads a snapshot that another session began
        self._resumed_at: int | None = None

    def choose(self, statements: Mapping[str, str | None] | None) -> None:
        """Read only these tables, by `schema.table`, each by its statement if it has one; None: the tables of the
        options."""
        self._chosen = statements

    def covered(self) -> frozenset[str] | None:
        """Return the tables that the snapshot reads; None: all captured tables."""
        names = frozenset(self._planned)
        return None if names == set(self._tables) else names

    def _selected(self, captured: Mapping[str, CapturedTable]) -> list[str]:
        """Return the names of the tables to read; the 1.7 format reads partitions, and not their tables."""
        if self._chosen is None:
            names = selected(self._config, list(captured))
            return [name for name in names if not (self._settings.legacy and captured[name][2] == "p")]
        # in the order of an initial snapshot, not of the signal; the signal table too, if it is asked for
        rest = [name for name in captured if name in self._chosen]
        ordered = [name for name in selected({**self._config, **_ALL}, list(captured)) if name in self._chosen]
        return ordered + [name for name in rest if name not in ordered]

    @property
    def names_read(self) -> list[tuple[str, str]]:
        """The schemas and names of the tables that the running snapshot reads."""
        return [(table.schema, table.table) for _, table, _ in (self._tables[name] for name in self._planned)]

    @property
    def session(self) -> SnapshotSession:
        """The session of the running snapshot."""
        assert self._session is not None
        return self._session

    def start(self, exported: str | None, parallelism: int) -> tuple[SnapshotPlan, bool]:
        """Take a snapshot, or take over the `exported` one, and plan the selected tables.

        Return the plan, for `parallelism` tasks a batch, and True if the snapshot is the exported one. If a table was
        altered since the export, that snapshot is useless, and a new one is taken. A table whose SQL, given by a
        signal, fails is logged, left out, and listed in `failing`.
        """
        taken_over = self._open(exported)
        names = self._selected(self._tables)
        if self._config["snapshot.tables.order.by.row.count"] != "disabled":
            counts = self.session.row_counts([self._tables[name] for name in names])
            names = by_row_count(self._config, names, counts)
        self._counts = {}
        faults = {name: fault for name in names if name in self._statements and (fault := self._fault(name))}
        for name, fault in faults.items():
            log.warning("%s is left out of the blocking snapshot: its statement %s. %s", name, fault, conditions.REMEDY)
        self.failing = [(self._tables[name][1].schema, self._tables[name][1].table) for name in faults]
        self._planned = names = [name for name in names if name not in faults]
        if faults and not names:
            raise ConfigError("the statements of all its tables fail.", conditions.REMEDY)
        tables = [self._tables[name] for name in names]
        self._demand_rights(tables)
        plan = self.session.plan(tables, parallelism, self._statements, self._counts)
        self.session.release()
        return plan, taken_over

    def _demand_rights(self, tables: Sequence[CapturedTable]) -> None:
        """Raise PrerequisiteError if the role may not read a column that events of one of the tables show."""
        connection = self.session.connection
        parts = in_part(connection, [oid for oid, _, _ in tables])
        for oid, table, _ in tables:
            if oid in parts and str(table) not in self._statements:
                shown = self._table(str(table))
                if columns := lacking(connection, shown):
                    raise refusal(shown, columns)

    def _is_asked(self, name: str) -> bool:
        """Return True if the table's statement comes from a signal."""
        return self._chosen is not None and self._chosen.get(name) is not None

    def _fault(self, name: str) -> str:
        """Return why the statement of a signal for a table fails, as the rest of a sentence; "" if it does not fail.

        The statement is computed for all rows: a failure in a task would end the query, and would recur at each start.
        Raises ConfigError for a failing statement of the options.
        """
        fault = self.session.statement_fault(self._table(name), self._statements[name])
        if not self._is_asked(name):
            if fault:
                raise override_error(self._table(name).id, fault)
            return ""
        if fault:
            return fault
        self._counts[name], state = self.session.try_query(self._select(name))
        return f"fails with SQLSTATE {state}" if state else ""

    def _open(self, exported: str | None) -> bool:
        """Open a session, and lock and describe its tables; return True if it shows the `exported` snapshot."""
        for _ in range(_ATTEMPTS):
            self.close()
            self._session = self._take(exported)
            catalog = self._session.catalog(self._config["database.dbname"], self._settings.shaping.comments)
            captured = captured_tables(catalog.tables(), self._filter)
            self._carried = carried(self._session.connection, self._config, self._settings, captured)
            captured = self._carried.tables(captured)
            by_name = {str(entry[1]): entry for entry in captured}
            read = [by_name[name] for name in self._selected(by_name)]
            altered = self._session.hold(read)
            if not altered:
                self._catalog = catalog
                self._tables = by_name
                self._statements = overrides(self._config, list(by_name))
                for name, statement in (self._chosen or {}).items():
                    if statement is not None:
                        self._statements[name] = statement.strip().rstrip(";").rstrip()
                self._storage = self._session.storage([oid for oid, _, _ in captured])
                self._forms = self._session.forms([oid for oid, _, _ in read])
                self.schemas = {
                    str(found.id): found for found in catalog.schemas([oid for oid, _, _ in captured]).values()
                }
                return exported is not None
            log.warning("taking the snapshot again: %s altered meanwhile", ", ".join(altered))
            exported = None
        self.close()
        raise PrerequisiteError(
            f"Tables were altered at each of {_ATTEMPTS} attempts to take a snapshot of them.",
            "Start again when no schema change is running.",
        )

    def _take(self, exported: str | None) -> SnapshotSession:
        """Return a session with the `exported` snapshot, or with a new one.

        A new snapshot must show all transactions that the log has before the slot's position, even those whose commit
        waits for a standby: otherwise neither a row nor a change would show them. All transactions that it shows must
        be flushed: a crash would lose unflushed ones, and reuse their ids. Raises ConnectionFailed if that takes too
        long.
        """
        unseen = np.array([] if exported else waiting(self._control()), np.int64)
        waited = 0.0
        while True:
            session = SnapshotSession(self._connect(self._config), exported, self._control())
            if exported is not None:
                return session
            # everything that the snapshot shows committed before its LSN, and the session has written a later commit
            shown = TargetLsn(session.origin.lsn)
            if session.visible.shows(unseen).all() and flushed_present(self._control(), self._runtime, shown):
                return session
            session.close()
            if waited >= UNSEEN_SECONDS:
                raise ConnectionFailed(
                    "A new snapshot does not show all that the log has as committed, or shows commits not yet flushed.",
                    "Transactions wait for a synchronous standby (see pg_stat_replication and "
                    "synchronous_standby_names), or the server is too busy to flush its log.",
                )
            self._runtime.sleep(UNSEEN_PAUSE)
            waited += UNSEEN_PAUSE

    def tasks(self, progress: SnapshotProgress, first: int, most: int) -> list[Task]:
        """Return the tasks of the chunks `[first, done)` of `progress`, about `most` at most.

        One task reads several small chunks in turn. After a restart, and after a table was altered, the remaining
        chunks are read under a new snapshot, and the log makes the rows converge. Rows of the first chunk's table that
        may have moved to earlier pages are read with it. A table dropped meanwhile gives no more rows. A table that was
        rewritten, with its rows in other places, is read again from its beginning.
        """
        if self._session is None or self.session.forms(list(self._forms)) != self._forms:
            self._open(None)
            self.session.release()
            self._resumed_at = first
        tasks: list[SnapshotTask] = self._moved(progress, first) if first == self._resumed_at else []
        for chunk in progress.plan.chunks(first, progress.done):
            name = str(chunk.table)
            if name not in self._tables:
                log.warning("the table %s was dropped while its snapshot was running: left out", name)
                continue
            if self._is_written_anew(chunk):
                if name in self._reread:
                    continue
                log.warning("the table %s was rewritten while its snapshot was running: it is read again", name)
                self._reread.add(name)
                chunk = replace(chunk, first_page=0, last_page=None)  # noqa: PLW2901
            tasks.append(self._task(progress.origin, chunk))
        return _gathered(tasks, most)

    def _moved(self, progress: SnapshotProgress, first: int) -> list[SnapshotTask]:
        """Return tasks for rows that may have moved to pages of the chunks before `first`, which are not read again.

        Before the new snapshot, an update can move a row from an unread page to a page that was read. Its event in the
        log lacks unchanged TOAST values, and options may leave the event out. Therefore all rows of these pages that
        were written since the snapshot began are read, also those that the log repeats.
        """
        (chunk,) = progress.plan.chunks(first, first + 1)
        pages = chunk.first_page
        if not pages or str(chunk.table) not in self._tables or self._is_written_anew(chunk):
            return []
        total = len(progress.plan)
        count = max(min(progress.done - first, pages, _MOST_MOVED, _CHUNK_NUMBERS // total - 2), 1)
        log.info("looking for rows of %s that have moved among the %d pages that were read before", chunk.table, pages)
        parts = [
            Chunk(
                # a number that no other chunk and no other restart has
                number=total * (part + 1) + first,
                table=chunk.table,
                first_page=pages * part // count,
                last_page=pages * (part + 1) // count,
                opens_table=False,
                closes_table=False,
                opens_snapshot=False,
                closes_snapshot=False,
            )
            for part in range(count)
        ]
        # without a known xmin all rows are read
        return [self._task(progress.origin, part, progress.origin.xmin or None) for part in parts]

    def _is_written_anew(self, chunk: Chunk) -> bool:
        """Return True if the chunk's table, a captured one, was rewritten since it was planned."""
        oid = self._tables[str(chunk.table)][0]
        return bool(chunk.table.storage) and chunk.table.storage != self._storage.get(oid)

    def _task(self, origin: SnapshotOrigin, chunk: Chunk, since: int | None = None) -> SnapshotTask:
        """Return the task of a chunk; with `since` only for rows that this or a later transaction has written."""
        name = str(chunk.table)
        oid, _, relkind = self._tables[name]
        return SnapshotTask(
            connections.Address.of(self._config, self._control()),
            self.session.name,
            self._table(name),
            chunk,
            self._statement(name, chunk, relkind, since),
            origin,
            self._settings,
            self._forms[oid],
            name in self._statements,
            self._is_asked(name),
        )

    def planned(self) -> list[TableSchema]:
        """Return the tables of the running snapshot, also those without rows, with the columns that are read."""
        return [self._table(name) for name in self._planned]

    @property
    def table_count(self) -> int:
        """The number of planned tables."""
        return len(self._planned)

    def count(self) -> dict[tuple[str, str], int]:
        """Count the rows of each planned table in the snapshot, in the order of reading; this reads all rows."""
        found = {}
        for name in self._planned:
            _, table, relkind = self._tables[name]
            known = self._counts.get(name)
            if known is None:
                known = self.session.count(table, relkind, self._statements.get(name))
            found[table.schema, table.table] = known
        return found

    def history(self, tables: frozenset[str] | None) -> StoredHistory:
        """Return the facts that the log does not carry about the captured tables, or about `tables`, at the snapshot.

        They are valid for every change in the log after the snapshot, up to the next alteration, which the log
        announces.
        """
        assert self._catalog is not None
        return _history(
            self._catalog, [found for name, found in self.schemas.items() if tables is None or name in tables]
        )

    def history_at(self, exported: str) -> StoredHistory:
        """Return the history of all captured tables at an `exported` snapshot of which no rows are read."""
        connection = self._connect(self._config)
        try:
            connection.execute("begin isolation level repeatable read read only")
            take_over(connection, exported)
            catalog = Catalog(connection, self._config["database.dbname"], self._settings.shaping.comments)
            captured = captured_tables(catalog.tables(), self._filter)
            return _history(catalog, list(catalog.schemas([oid for oid, _, _ in captured]).values()))
        finally:
            connection.close()

    def _table(self, name: str) -> TableSchema:
        """Return the table as it is read: with the key of its events, and without columns that no event needs."""
        return self._settings.shaping.read(self._carried.schema(self._admit(self.schemas[name])))

    def _statement(self, name: str, chunk: Chunk, relkind: str, since: int | None) -> str:
        assert self._catalog is not None
        if name in self._statements:
            return self._select(name)
        table = self._table(name)
        outputs = self._catalog.output_functions(table.columns)
        return select_statement(table, outputs, chunk, relkind, since, self._carried.condition(table.oid))

    def _select(self, name: str) -> str:
        """Return the query of a table that has a statement of its own."""
        assert self._catalog is not None
        table = self._table(name)
        outputs = self._catalog.output_functions(table.columns)
        return override_statement(table, outputs, self._catalog.type_names(table.columns), self._statements[name])

    def close(self) -> None:
        """End the snapshot, if one is running."""
        if self._session is not None:
            self._session.close()
        self._session = None
        self._tables, self._forms, self._storage, self.schemas = {}, {}, {}, {}
        self._catalog, self._resumed_at = None, None


def _history(catalog: Catalog, tables: Sequence[TableSchema]) -> StoredHistory:
    return StoredHistory(tuple(sorted(catalog.attributes(tables).items(), key=lambda entry: entry[0])))


def _gathered(tasks: Sequence[SnapshotTask], most: int) -> list[Task]:
    """Group successive tasks into about `most` groups of equal work."""
    share = sum(task.chunk.work for task in tasks) / most
    groups: list[list[SnapshotTask]] = []
    work = 0
    for task in tasks:
        if not groups or work + task.chunk.work > share:
            groups.append([])
            work = 0
        groups[-1].append(task)
        work += task.chunk.work
    return [group[0] if len(group) == 1 else Consecutive(tuple(group)) for group in groups]
