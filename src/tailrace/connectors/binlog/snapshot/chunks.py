"""A running snapshot: its point, the selected tables and their definitions, its plan, and the tasks of each batch.

Planner. Definitions are read before and after the point is taken: if they are equal, they are valid at the point. A
metadata lock is held only while a query runs, so that no statement waits for the whole snapshot. Each query first
checks that the table was not altered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.log.position import BinlogPosition
from tailrace.connectors.binlog.log.schema_changes import blocking_records, snapshot_records
from tailrace.connectors.binlog.log.statements import LogEnd
from tailrace.connectors.binlog.schema import catalog, first_definitions
from tailrace.connectors.binlog.schema.catalog import Created
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.definitions import State
from tailrace.connectors.binlog.schema.tables import aligned, schema_of
from tailrace.connectors.binlog.server.connection import dialect_of
from tailrace.connectors.binlog.server.errors import number_of
from tailrace.connectors.binlog.server.errors import refused as failure_of
from tailrace.connectors.binlog.snapshot import division
from tailrace.connectors.binlog.snapshot.keys import Key, key_columns, literal, qualified, where, within
from tailrace.connectors.binlog.snapshot.point import (
    HeldPoint,
    Point,
    PointTaking,
    RowOrigin,
    end_of_log,
    has_ids,
    is_behind,
)
from tailrace.connectors.binlog.snapshot.progress import SnapshotProgress
from tailrace.connectors.binlog.snapshot.relay import Relay, TaskQuery, text_of_rows
from tailrace.connectors.binlog.snapshot.result import rows, run
from tailrace.connectors.binlog.snapshot.rows import select_list
from tailrace.connectors.binlog.snapshot.tasks import Consecutive, SnapshotTask, is_exact, override_error
from tailrace.connectors.findings import listed
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError, StatementCutOff
from tailrace.events.event_settings import EventSettings
from tailrace.log.contracts import Task
from tailrace.process.runtime import Runtime
from tailrace.snapshot.plan import Chunk, PlannedTable, SnapshotPlan
from tailrace.snapshot.selection import by_row_count, overrides, selected

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = logging.getLogger("tailrace")

# The most attempts to take a point at which no table is being altered.
_ATTEMPTS = 5
# The approximate number of batches of a snapshot, from which the size of chunks follows. A crash repeats one batch.
BATCHES = 12
_TAKEN_AGAIN = "tables were altered while the snapshot began: it is taken again"
_CHANGED = (1412, 1054, 1146, 1049, 1051)
# A blocking snapshot reads the tables that its signal names, without regard to this option.
_ALL: dict[str, Any] = {"snapshot.include.collection.list": []}
_FORM = (
    "select ordinal_position, column_name, column_type, coalesce(character_set_name, ''), extra "
    "from information_schema.columns where table_schema = {0} and table_name = {1} order by ordinal_position"
)


Altered = Callable[[LogEnd, LogEnd], bool]
"""Returns True if the log between two places has, or may have, a statement that alters a table."""


class TableSnapshots:
    """The snapshots of one query, at most one at a time.

    `connect` opens a session without a limit for its statements. `admit` checks a schema and returns it with the key of
    its events. `altered` searches the log between two readings of the definitions; None if no log is read after the
    snapshot. All methods raise TailraceError and PyMySQL's errors.
    """

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        tables: TableFilter,
        connect: Callable[[], Connection[Any]],
        admit: Callable[[TableSchema], TableSchema],
        parallelism: int,
        runtime: Runtime,
        altered: Altered | None = None,
    ) -> None:
        self._config, self._settings = config, settings
        self._altered = altered
        self._connect, self._admit = connect, admit
        self._parallelism = parallelism
        self._exact = is_exact(settings)
        self._filter, self._captured = tables, tables.includes
        self._dialect = dialect_of(config)
        self._taking = PointTaking(
            connect, self._dialect, config["snapshot.locking.mode"], config["snapshot.lock.timeout.ms"], runtime
        )
        self._held: HeldPoint | None = None
        self._relay: Relay | None = None
        # the definitions at the log position of the rows
        self._known: Mapping[Name, TableDefinition] = {}
        # the definitions at the point, and the captured tables among them by `database.table`
        self.state: State | None = None
        self._created: dict[Name, Created] = {}
        self._tables: dict[str, TableSchema] = {}
        self._forms: dict[str, str] = {}
        self._statements: dict[str, str] = {}
        self._chosen: Mapping[str, str | None] | None = None
        self._planned: list[str] = []
        self._counts: dict[str, int] = {}
        # tables of a signal whose statements fail
        self.failing: list[tuple[str, str]] = []

    def choose(self, statements: Mapping[str, str | None] | None) -> None:
        """Read only these tables, by `database.table`, each with its statement if it has one; None: the tables of the
        options."""
        self._chosen = statements

    @property
    def point(self) -> Point:
        assert self._held is not None
        return self._held.point

    @property
    def server(self) -> str:
        """The UUID of the server of the snapshot's sessions; another server may have taken over since."""
        return identify(self._session).uuid

    def shows(self, at: BinlogPosition) -> bool:
        """Return True if the point shows everything that was delivered up to `at`.

        Without ids the places of two servers are not comparable; the reader refuses such a change of server anyway.
        """
        point = self.point
        if at.gtids or at.gtid:
            return has_ids(point.gtids, at, self._dialect)
        return self.server != at.server or is_behind(point.file, point.pos, at)

    @property
    def _session(self) -> Connection[Any]:
        assert self._held is not None
        return self._held.sessions[0]

    def start(self) -> tuple[SnapshotPlan, tuple[tuple[Key, ...], ...]]:
        """Take a point, and return the plan of the selected tables and the bounds of each.

        Tables with a failing statement of a signal are logged, left out, and listed in `failing`. A table that is
        altered after the point cannot be read at the point: another point is taken.
        """
        import pymysql

        for _ in range(_ATTEMPTS):
            self._open()
            try:
                return self._divided()
            except pymysql.err.MySQLError as error:
                if number_of(error) not in _CHANGED:
                    raise
                log.warning(_TAKEN_AGAIN)
        self.close()
        raise _altered_at_each()

    def _divided(self) -> tuple[SnapshotPlan, tuple[tuple[Key, ...], ...]]:
        """Return the plan of the selected tables and the bounds of each, at the point."""
        names = self._selected()
        if self._config["snapshot.tables.order.by.row.count"] != "disabled":
            counts = {name: division.estimate(self._session, self._tables[name])[0] for name in names}
            names = by_row_count(self._config, names, counts)
        self._counts = {}
        faults = {name: fault for name in names if name in self._statements and (fault := self._fault(name))}
        for name, fault in faults.items():
            log.warning("%s is left out of the blocking snapshot: its statement %s", name, fault)
        self.failing = [(self._tables[name].id.schema, self._tables[name].id.table) for name in faults]
        self._planned = names = [name for name in names if name not in faults]
        if faults and not names:
            raise ConfigError("the statements of all its tables fail.", "Send the signal again with other statements.")
        planned: list[PlannedTable] = []
        bounds: list[tuple[Key, ...]] = []
        first = True
        for place, name in enumerate(names):
            table = self._tables[name]
            if not self._has_rows(name):
                first = first and place > 0
                continue
            found = () if name in self._statements else tuple(self._bounds(table))
            planned.append(PlannedTable(table.id.schema, table.id.table, len(found) + 1))
            bounds.append(found)
        self._begin_relay()
        return SnapshotPlan(tuple(planned), 1, first), tuple(bounds)

    def _bounds(self, table: TableSchema) -> list[Key]:
        _, size = division.estimate(self._session, table)
        most = max(1, min(division.MOST_CHUNKS, -(-size // division.LEAST_CHUNK_BYTES)))
        chunks = max(-(-size // division.CHUNK_BYTES), min(most, BATCHES * self._parallelism))
        run(self._session, "savepoint tailrace")
        try:
            return division.bounds(self._session, table, min(chunks, division.MOST_CHUNKS))
        finally:
            run(self._session, "rollback to savepoint tailrace")

    def _begin_relay(self) -> None:
        assert self._held is not None
        self._relay = Relay(self._held.sessions, self._connect, self._taking.later, releases=self._taking.releases)

    # --- tables at the point -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take a point at which the definitions of all tables are known."""
        control = self._connect()
        try:
            begin = self._end(control)
            before = first_definitions.read_tables(control, self._config, self._filter)
            for _ in range(_ATTEMPTS):
                self.close()
                found, doubtful = before
                captured = {name: one for name, one in found.items() if self._captured(*name)}
                self._demand(doubtful)
                chosen = self._names(captured)
                self._held = self._taking.take(self._parallelism, chosen)
                before = first_definitions.read_tables(control, self._config, self._filter)
                end = self.point.file, self.point.pos
                is_altered = self._altered is not None and self._altered(begin, end)
                begin = end
                if _same(before, (found, doubtful)) and not is_altered:
                    schemas = (self._admit(schema_of(one.table)) for one in captured.values())
                    self._tables = {str(one.id): one for one in schemas}
                    self._statements = self._overrides()
                    self._created = found
                    self.state = first_definitions.state_of(found, doubtful, catalog.databases(control))
                    if self._hold(chosen):
                        return
                log.warning(_TAKEN_AGAIN)
        finally:
            control.close()
        self.close()
        raise _altered_at_each()

    def _end(self, session: Connection[Any]) -> LogEnd:
        """Return the end of the log; ("", 0) if it is not needed."""
        if self._altered is None:
            return "", 0
        file, pos, _ = end_of_log(session)
        return file, pos

    def _demand(self, doubtful: Mapping[Name, str]) -> None:
        for name, why in doubtful.items():
            raise PrerequisiteError(
                f"The table {'.'.join(name)} cannot be read: {why}.",
                "Leave it out with table.exclude.list, and report its definition.",
            )

    def _overrides(self) -> dict[str, str]:
        found = overrides(self._config, list(self._tables))
        for name, statement in (self._chosen or {}).items():
            if statement is not None:
                found[name] = statement.strip().rstrip(";").rstrip()
        return found

    def _names(self, captured: Mapping[Name, Any]) -> list[Name]:
        """Return the tables to read, in order."""
        by_text = {".".join(name): name for name in sorted(captured)}
        if self._chosen is None:
            return [by_text[name] for name in selected(self._config, list(by_text))]
        # in the order of an initial snapshot, not of the signal; including the signal table, if the signal names it
        rest = [name for name in by_text if name in self._chosen]
        ordered = [name for name in selected({**self._config, **_ALL}, list(by_text)) if name in self._chosen]
        return [by_text[name] for name in (*ordered, *(name for name in rest if name not in ordered))]

    def _selected(self) -> list[str]:
        return [
            ".".join(name)
            for name in self._names({(one.id.schema, one.id.table): one for one in self._tables.values()})
        ]

    def _hold(self, names: Sequence[Name]) -> bool:
        """Store the form of each table to read, at the point. Return False if a table was altered since."""
        import pymysql

        self._forms = {}
        for name in names:
            table = self._tables[".".join(name)]
            run(self._session, "savepoint tailrace")
            try:
                run(self._session, _held(table))
                self._forms[str(table.id)] = text_of_rows(self._session, _form(table))
            except pymysql.err.MySQLError as error:
                if number_of(error) not in _CHANGED:
                    raise
                return False
            finally:
                # releases the table
                run(self._session, "rollback to savepoint tailrace")
        return True

    def _has_rows(self, name: str) -> bool:
        known = self._counts.get(name)
        if known is not None:
            return known > 0
        return bool(self._passing(f"select 1 from {self._source(name)} limit 1"))

    def _passing(self, query: str) -> list[tuple[str | None, ...]]:
        """Return the rows of a query, and release the metadata locks of its tables."""
        run(self._session, "savepoint tailrace")
        try:
            return rows(self._session, query)
        finally:
            run(self._session, "rollback to savepoint tailrace")

    def _source(self, name: str) -> str:
        if name in self._statements:
            return f"({self._statements[name]}\n) as tailrace_rows"
        return qualified(self._tables[name])

    def _fault(self, name: str) -> str:
        """Return why the statement of a signal for a table fails, as the rest of a sentence; "" if it does not.

        The rows are counted to find failures: a failure in a task would end the query, again at each start. Raises
        ConfigError for a failing statement of the options, and PyMySQL's error for a lost session.
        """
        import pymysql

        is_asked = self._is_asked(name)
        select = self._select(name)
        try:
            if is_asked:
                ((count,),) = self._passing(f"select count(*) from ({select}\n) as tailrace_read")
                self._counts[name] = int(count or 0)
            else:
                self._passing(f"select * from ({select}\n) as tailrace_read limit 0")
        except pymysql.err.MySQLError as error:
            reason = failure_of(error)
            if isinstance(reason, ConnectionFailed) and not isinstance(reason, StatementCutOff):
                # not the statement's own fault: the call is repeated
                raise
            fault = f"fails with error {number_of(error)}"
            if is_asked:
                return fault
            raise override_error(self._tables[name].id, fault) from None
        return ""

    def _is_asked(self, name: str) -> bool:
        """Return True if the table's statement comes from a signal."""
        return self._chosen is not None and self._chosen.get(name) is not None

    # --- chunks ------------------------------------------------------------------------------------------------------

    def tasks(
        self, progress: SnapshotProgress, first: int, most: int, schemas: str = "", *, once: bool = False
    ) -> list[Task]:
        """Return the tasks of the chunks `[first, done)` of `progress`, about `most` at most.

        `schemas` is the text of the definitions at the log position of the rows; "" if there is none. After a restart
        the remaining chunks are read in a later state, and changes from the log make the result consistent. A table
        that was dropped meanwhile has no more rows.
        """
        if self._relay is None:
            self._open()
            self._begin_relay()
            left = {str(chunk.table) for chunk in progress.plan.chunks(first, len(progress.plan))}
            if keyless := sorted(name for name in left if name in self._tables and not self._tables[name].key):
                log.warning(
                    "%s: the snapshot reads what is left in a later state, and the log brings the changes since its "
                    "begin again: without a key, rows may come twice; remedy: add a primary key, or begin anew with "
                    "another checkpoint if rows must come once",
                    listed(keyless),
                )
        self._known = State.from_text(schemas).tables if schemas else {}
        tasks: list[SnapshotTask] = []
        for chunk in progress.plan.chunks(first, progress.done):
            name = str(chunk.table)
            if name not in self._forms:
                log.warning("the table %s was dropped while its snapshot was running: left out", name)
                continue
            tasks.append(self._task(progress, chunk, once))
        return _gathered(tasks, most)

    def _task(self, progress: SnapshotProgress, chunk: Chunk, once: bool) -> SnapshotTask:
        assert self._relay is not None
        name = str(chunk.table)
        table, point = self._shown(name), progress.point
        is_whole = name in self._statements
        query = TaskQuery(
            self._select(name) if is_whole else self._ranged(name, progress, chunk),
            "" if is_whole else _held(table),
            "" if is_whole else _form(table),
            "" if is_whole else self._forms[name],
            once or not self._tables[name].key,
        )
        return SnapshotTask(
            self._relay.route,
            table,
            chunk,
            query,
            progress.origin or RowOrigin(point.file, point.pos, point.at_us, progress.epoch),
            self._settings,
            self._config,
            self._config["snapshot.fetch.size"],
            is_whole,
            self._is_asked(name),
            once,
        )

    def _shown(self, name: str) -> TableSchema:
        """Return the table with the columns that are read, without columns that no event needs, numbered as in the
        log."""
        table = self._tables[name]
        return self._settings.shaping.read(aligned(table, self._known.get((table.id.database, table.id.table))))

    def _ranged(self, name: str, progress: SnapshotProgress, chunk: Chunk) -> str:
        table, shown = self._tables[name], self._shown(name)
        own = progress.range_of(chunk)
        conditions = within(key_columns(table, table.key), own) if own.after or own.upto else []
        return f"select {select_list(shown.columns, exact=self._exact)} from {qualified(table)}{where(conditions)}"

    def _select(self, name: str) -> str:
        """Return the query of a table with a snapshot statement."""
        columns = select_list(self._shown(name).columns, exact=self._exact)
        return f"select {columns} from {self._source(name)}"

    def records(self, only: Collection[Name] = ()) -> list[bytes]:
        """Return the records of all definitions, or of a blocking snapshot's tables, for the topic of schema
        changes."""
        control = self._connect()
        try:
            created = self._created or first_definitions.read_tables(control, self._config, self._filter)[0]
            if only:
                return blocking_records({name: one for name, one in created.items() if name in only})
            return told_records(control, self._config, self._filter, created)
        finally:
            control.close()

    def planned(self) -> list[TableSchema]:
        """Return the tables of the running snapshot with the columns that are read, including tables without rows."""
        return [self._shown(name) for name in self._planned]

    @property
    def table_count(self) -> int:
        """The number of planned tables."""
        return len(self._planned)

    def count(self) -> dict[tuple[str, str], int]:
        """Return the number of rows of each planned table at the point, in the order of reading. This reads all
        rows."""
        found = {}
        with self._taking_turn() as session:
            for name in self._planned:
                known = self._counts.get(name)
                if known is None:
                    ((text,),) = rows(session, f"select count(*) from {self._source(name)}")
                    known = int(text or 0)
                table = self._tables[name].id
                found[table.schema, table.table] = known
        return found

    def _taking_turn(self) -> Any:
        assert self._relay is not None
        return self._relay.borrowed()

    @property
    def holds_global_lock(self) -> bool:
        """True while the snapshot holds the lock that blocks all writes to all tables. For any thread."""
        held = self._held
        return held is not None and held.is_global

    @property
    def is_reading(self) -> bool:
        """True while a task reads through the relay."""
        return self._relay is not None and self._relay.is_reading

    def close(self) -> None:
        """End the snapshot, if one is running."""
        if self._relay is not None:
            self._relay.close()
        if self._held is not None:
            self._held.close()
        self._relay = self._held = None
        self._tables, self._forms = {}, {}


def told_records(
    session: Connection[Any], config: Config, tables: TableFilter, created: Mapping[Name, Created]
) -> list[bytes]:
    """Return the records of the definitions that have records, in Debezium's order."""
    tells = first_definitions.told(config, tables)
    ((charset, collation),) = rows(session, "select @@global.character_set_server, @@global.collation_server")
    found = {name: one for name, one in created.items() if tells(*name)}
    return snapshot_records(found, catalog.databases(session), str(charset), str(collation))


def _altered_at_each() -> PrerequisiteError:
    return PrerequisiteError(
        f"Tables were altered at each of {_ATTEMPTS} attempts to take a snapshot of them.",
        "Start again when no schema change is running.",
    )


def _held(table: TableSchema) -> str:
    """Return the query that takes a table's metadata lock, and fails if the table was rebuilt since the point."""
    return f"select 1 from {qualified(table)} limit 1"


def _form(table: TableSchema) -> str:
    """Return the query for a table's current columns."""
    return _FORM.format(literal(table.id.schema), literal(table.id.table))


def _same(
    one: tuple[Mapping[Name, Any], Mapping[Name, str]], other: tuple[Mapping[Name, Any], Mapping[Name, str]]
) -> bool:
    tables, more = ({name: found.table for name, found in each[0].items()} for each in (one, other))
    return tables == more and one[1] == other[1]


def _gathered(tasks: Sequence[SnapshotTask], most: int) -> list[Task]:
    """Group successive tasks so that about `most` are left."""
    if not tasks:
        return []
    share = -(-len(tasks) // max(most, 1))
    groups = [tasks[place : place + share] for place in range(0, len(tasks), share)]
    return [group[0] if len(group) == 1 else Consecutive(tuple(group)) for group in groups]
