"""BinlogPlanner: the log engine for MySQL and MariaDB, from the first position to the last batch. Planner process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.expressions import compile_expression
from tailrace.config.filters import lists_text, with_lists
from tailrace.connectors.binlog.chunking import BinlogSnapshots
from tailrace.connectors.binlog.debezium_offset import DebeziumOffset
from tailrace.connectors.binlog.live_tables import AddedTables
from tailrace.connectors.binlog.log import faults
from tailrace.connectors.binlog.log.feed import BinlogFeed, ReaderSettings, Sessions
from tailrace.connectors.binlog.log.form import form_of
from tailrace.connectors.binlog.log.identity import identify
from tailrace.connectors.binlog.log.indexing import Indexer
from tailrace.connectors.binlog.log.position import BinlogPosition, number_of
from tailrace.connectors.binlog.log.row_log import BinlogRowLog
from tailrace.connectors.binlog.log.schema_changes import task as schema_task
from tailrace.connectors.binlog.log.statements import LogEnd, statements
from tailrace.connectors.binlog.log.takeover import position_of
from tailrace.connectors.binlog.log_session import BinlogLogSession
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.catalog import quoted
from tailrace.connectors.binlog.schema.definition import Name
from tailrace.connectors.binlog.schema.definitions import may_alter
from tailrace.connectors.binlog.schema.first_definitions import initial_state, opened, wanted
from tailrace.connectors.binlog.schema.statement import Statement
from tailrace.connectors.binlog.server.connection import connect, dialect_of, is_gone, rows, server_id, variables
from tailrace.connectors.binlog.server.errors import explained
from tailrace.connectors.binlog.setup import coverage
from tailrace.connectors.binlog.setup.prerequisites import misspelt, unlogged, unmatched_lists
from tailrace.connectors.binlog.snapshot.point import Point
from tailrace.connectors.binlog.snapshot.row_lookup import PresentRows
from tailrace.connectors.binlog.snapshot.windows import BinlogWindows, Incremental
from tailrace.connectors.findings import demanded
from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Offset, ReaderState, Task
from tailrace.log.engine import LogEngine
from tailrace.log.retention import LogRetention
from tailrace.log.retrying import Retrying
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.signal_handler import LiveTables
from tailrace.snapshot.table_commands import NO_COMMANDS, settled

if TYPE_CHECKING:
    from pymysql.connections import Connection

log = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies of the planner: the function that opens sessions, and the runtime with its clock."""

    connect: Callable[..., Connection[Any]] = connect
    runtime: Runtime = THREADS


OUTSIDE = Environment()


class BinlogEngine(LogEngine[BinlogOffset, BinlogPosition, BinlogPosition]):
    """Implements `tailrace.log.contracts.Planner` for MySQL and MariaDB."""

    def __init__(self, config: Config, settings: EventSettings, outside: Environment = OUTSIDE) -> None:
        self._binlog = BinlogSource(config, settings, outside)
        super().__init__(config, settings, outside.runtime, self._binlog, BinlogOffset, _import_reader)

    def reading(self) -> ReaderState:
        return replace(super().reading(), attributes=self._binlog.attributes(self._log))

    def heed(self, found: LogRetention) -> LogRetention:
        """Return `found`, with the end of the server's log in the epoch that is being read."""
        log = self._log
        if found.newest is not None and isinstance(log, BinlogLogSession) and log.feed.epoch:
            here = {**found.newest["log"], "epoch": log.feed.epoch}
            found = replace(found, newest={**found.newest, "log": here})
        return super().heed(found)


class BinlogPlanner(Retrying[BinlogOffset, BinlogPosition, BinlogPosition], BinlogEngine):
    """The planner for Spark. It continues when its server is reachable again after a while."""


Log = contracts.OpenLog[BinlogOffset, BinlogPosition, BinlogPosition]


class BinlogSource(contracts.Source[BinlogOffset, BinlogPosition, BinlogPosition]):
    """A server and its log. If a call fails, work in progress is given up together with its sessions."""

    snapshots: BinlogSnapshots

    def __init__(self, config: Config, settings: EventSettings, outside: Environment) -> None:
        self._config = config
        self._settings = settings
        self._outside = outside
        self._dialect = dialect_of(config)
        self._form = form_of(self._dialect)
        self._tables = TableFilter(config)
        self._names = Admission(settings, self._form)
        self._control: Connection[Any] | None = None
        self._is_prepared = self._is_recovered = False
        self._commands = NO_COMMANDS
        # True if the log has all names in lower case
        self._is_folded = False
        self._has_gtids: bool | None = None
        self._captured_count: int | None = None
        # the warnings about tables that were logged: a server that is back says nothing new
        self._told: set[str] = set()
        # the lists before they were edited, and the tables that the edit has added
        self._edited: tuple[str, tuple[Name, ...]] | None = None
        self.incremental = self._incremental()
        self.snapshots = BinlogSnapshots(
            config,
            settings,
            self._tables,
            lambda: outside.connect(config, limited=False),
            self._names.admit,
            self._placed,
            outside.runtime,
            lambda: None if self.incremental is None else self.incremental.latest,
            self._late,
            # a snapshot without a log after it must not need the right to read the log
            self._altered if snapshot_mode(config).streams else None,
        )

    def _incremental(self) -> Incremental | None:
        config = self._config
        if not config["signal.data.collection"] and not set(config["signal.enabled.channels"]) - {"source"}:
            return None
        source = BinlogWindows(
            config,
            self._settings,
            connect=lambda: self._outside.connect(config),
            is_captured=self._tables.includes,
            list_captured=self._captured,
            admit=self._names.admit,
            row_log=BinlogRowLog(self._form),
            is_folded=lambda: self._is_folded,
            runtime=self._outside.runtime,
        )
        if snapshot_mode(config).streams and self._settings.typed is None:
            new = AddedTables(
                config,
                self._settings,
                self._connect,
                # a new Admission, so that refused tables are not remembered
                lambda table: Admission(self._settings, self._form).admit(table),
                self._statements,
                lambda: self._is_folded,
                lambda: self._captured_count or 0,
                writes=source.writes,
            )
            source.new_tables, source.live = new, LiveTables(config, new.every, new.prepared, source.signal_table)
        return Incremental(config, source, self._outside.runtime)

    def _captured(self) -> list[tuple[str, str]]:
        """Return the tables that are captured now, including those created since the query began."""
        listed = [one.id for one in catalog.names(self._connect()) if catalog.holds_rows(one)]
        return [name for name in listed if self._tables.includes(*name)]

    def called(self, work: Callable[[], contracts.Result]) -> contracts.Result:
        return explained(work)()

    def recover(self) -> bool:
        self.snapshots.begin_anew()
        if self.incremental is not None:
            self.incremental.close()
        self.incremental = self._incremental()
        self._end_control()
        self._is_prepared = False
        return False

    def _connect(self) -> Connection[Any]:
        """Return the planner's session; a new one if it has ended."""
        if self._control is not None:
            try:
                self._control.ping(reconnect=False)
            except Exception as error:
                if not is_gone(error):
                    raise
                self._end_control()
        if self._control is None:
            self._control = self._outside.connect(self._config)
        return self._control

    def _end_control(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            control._force_close()

    # --- the start -----------------------------------------------------------------------------------------------

    def prepare(self, since: BinlogOffset) -> None:
        """Check the server and the captured tables: at the first call, and again after commands about tables."""
        commands = settled(since.progress.commands, self._config)
        if self._is_prepared and commands == self._commands:
            return
        self._is_prepared = False
        session = self._connect()
        # no log is open whose reader would use the same lists
        self._commands = commands
        self._tables.overrule(commands.added, commands.removed)
        of = variables(session, "lower_case_table_names", "binlog_row_image")
        self._is_folded = of.get("lower_case_table_names", "0") != "0"
        if snapshot_mode(self._config).streams:
            self._has_gtids = identify(session).has_gtids
        every = catalog.names(session)
        there = [one for one in every if catalog.holds_rows(one)]
        fault = unmatched_lists(self._config, there, is_fresh=since.is_initial)
        found = [*([] if fault is None else [fault]), *misspelt(self._config, session, there)]
        found += coverage.views(self._config, every)
        if snapshot_mode(self._config).streams:
            captured = {one.id for one in there if self._tables.includes(*one.id)}
            found += [*unlogged(session, sorted({database for database, _ in captured}))]
            found += coverage.images(of)
            found += coverage.findings(session, there, captured, copies=self._settings.copies)
        for one in demanded(found):
            if one.text not in self._told:
                self._told.add(one.text)
                log.warning("%s %s", one.text, one.remedy)
        self._captured_count = sum(self._tables.includes(*one.id) for one in there)
        guard_number(self._config, self._captured_count)
        self._is_prepared = True

    def _late(self, since: BinlogOffset) -> tuple[Name, ...]:
        """Return the tables with rows that edited lists have added since an offset. Logs warnings for them, and for
        captured tables that the lists leave out now, once for each edit."""
        if since.lists in ("", lists_text(self._config)):
            return ()
        if self._edited is not None and self._edited[0] == since.lists:
            return self._edited[1]
        session, commands = self._connect(), since.progress.commands
        before = TableFilter(with_lists(self._config, since.lists))
        before.overrule(commands.added, commands.removed)
        there = catalog.listed_names(catalog.names(session))
        was, now = ({name for name in there if one.includes(*name)} for one in (before, self._tables))
        late = tuple(name for name in sorted(now - was) if _has_rows(session, name))
        for name in sorted(was - now):
            log.warning(
                "no change of %s arrives any more, so copies of it stay as they are; remedy: remove the copies, or let "
                "the lists capture it again, and then run tailrace verify --repair", ".".join(name),
            )  # fmt: skip
        for name in late:
            log.warning(
                "%s is captured from now on, but the log does not bring the rows that it already has; remedy: read it "
                "by a snapshot (signal execute-snapshot)", ".".join(name),
            )  # fmt: skip
        self._edited = since.lists, late
        return late

    def clear_lost(self, since: BinlogOffset) -> str:
        try:
            self._demand(since.log)
        except PositionLost as error:
            return error.message
        return ""

    def _demand(self, position: BinlogPosition) -> None:
        """Raise PositionLost if the server no longer has the log from `position` on, or has another log."""
        session = self._connect()
        identity = identify(session)
        is_same = not position.server or position.server == identity.uuid
        if identity.has_gtids and position.gtids:
            faults.demand_executed(identity, position, is_same)
        elif not is_same:
            raise faults.other_server(position, identity)
        if is_same and position.file:
            _demand_file(session, position)

    def first(self) -> BinlogOffset:
        """Return the offset of a new query: the end of the log, and the definitions of tables there."""
        session = self._connect()
        lists = lists_text(self._config)
        if self._config["capture.start.offset"]:
            return replace(self._taken_over(session, self._config["capture.start.offset"]), lists=lists)
        begin = identify(session).position()
        before = initial_state(session, self._config, self._tables)
        for _ in range(_TRIES):
            position = identify(session).position()
            # after the position: the rows of a transaction that is prepared now would be missing
            refuse_prepared(session)
            after = initial_state(session, self._config, self._tables)
            is_same = before == after and begin.server == position.server
            if is_same and not self._altered((begin.file, begin.end), (position.file, position.end)):
                return BinlogOffset(position, schemas=after.to_text(), lists=lists)
            begin, before = position, after
        raise ConnectionFailed(
            "Tables were altered each time that their definitions were read.", "Start again when that is over."
        )

    def _altered(self, begin: LogEnd, end: LogEnd) -> bool:
        """Return True if the log between two places has, or may have, a statement that alters a table whose definition
        is kept.

        A comparison of definitions would miss a table that was altered and altered back.
        """
        # a snapshot may be a little before the end that the server returned earlier
        begin, end = sorted((begin, end), key=lambda place: (number_of(place[0]), place[1]))
        found = self._statements(begin, end)
        keeps = wanted(self._config, self._tables)
        return found is None or any(may_alter(one, self._dialect, keeps) for one in found)

    def _statements(self, begin: LogEnd, end: LogEnd) -> Sequence[Statement] | None:
        """Return the statements of the log between two places; None if they cannot be found."""
        if begin == end:
            return ()
        dump = self._outside.connect(self._config, dump=True)
        is_mariadb = self._dialect.name == "mariadb"
        return statements(dump, begin, end, is_mariadb=is_mariadb, runtime=self._outside.runtime)

    def _taken_over(self, session: Connection[Any], text: str) -> BinlogOffset:
        """Return the offset that continues an offset of Debezium.

        The tables have their current definitions, which are doubtful until the log names their columns.
        """
        refuse_prepared(session)
        dump = self._outside.connect(self._config, dump=True)
        position = position_of(
            DebeziumOffset.from_text(text), identify(session), dump, server_id(self._config), self._outside.runtime,
            has_statements=self._config["include.query"],
        )  # fmt: skip
        self._demand(position)
        state = initial_state(session, self._config, self._tables)
        why = "its definition at Debezium's offset is not known"
        doubtful = {name: why for name in state.tables if self._tables.includes(*name)} | dict(state.doubtful)
        return BinlogOffset(position, schemas=replace(state, doubtful=doubtful).to_text())

    def _placed(self, point: Point, server: str, since: BinlogOffset) -> BinlogPosition:
        """Return the position after a point of a snapshot on `server`."""
        return BinlogPosition(
            point.file,
            point.pos - 1,
            point.pos,
            epoch=since.log.epoch,
            gtids=point.gtids,
            server=server,
            at_us=point.at_us,
        )

    def present(self) -> BinlogPosition:
        return identify(self._connect()).position()

    # --- the log -------------------------------------------------------------------------------------------------

    def open(self, since: BinlogOffset, until: BinlogOffset | None, target: BinlogPosition | None) -> BinlogLogSession:
        self.prepare(since)
        config, settings = self._config, self._settings
        definitions = opened(
            config,
            settings,
            self._schemas(since, until),
            self._session,
            self._tables,
            removed=self._commands.removed,
            later="" if until is None else until.schemas,
            before=since.schemas,
        )
        wants_numbers = settings.provide_transaction_metadata
        indexer = Indexer(
            since.log,
            definitions,
            self._dialect.name == "mariadb",
            settings.skipped_operations if wants_numbers else None,
            config["include.query"],
            self._takes(),
            self._shown if config["skip.messages.without.change"] else None,
            settings.copies,
        )
        sessions = Sessions(lambda: self._outside.connect(config, dump=True), identify)
        reader = replace(ReaderSettings.of(config), server_id=server_id(config))
        feed = BinlogFeed(reader, sessions, indexer, self._outside.runtime, None if until is None else until.log)
        listed = self._late(since)
        session = BinlogLogSession(
            feed, config, settings, self._form, definitions, self.incremental, lambda: PresentRows(config), schema_task,
            self._outside.runtime, self._commands,
        )  # fmt: skip
        session.listed = listed
        session.start()
        return session

    def _schemas(self, since: BinlogOffset, until: BinlogOffset | None) -> str:
        """Return the definitions with which reading begins; "" to read them from the catalog.

        snapshot.mode=recovery does so once, at the start, unless a batch is read again.
        """
        if self._config["snapshot.mode"] != "recovery" or until is not None or self._is_recovered:
            return since.schemas
        self._is_recovered = True
        log.warning("snapshot.mode=recovery: the tables are taken to have been since the checkpoint what they are now")
        return ""

    def _session(self) -> Connection[Any]:
        return self._outside.connect(self._config)

    def _takes(self) -> Callable[[str], bool] | None:
        """Return a test for the sources whose transactions are delivered; None if all are."""
        config = self._config
        included = [compile_expression(one) for one in config["gtid.source.includes"]]
        excluded = [compile_expression(one) for one in config["gtid.source.excludes"]]
        if not config["gtid.source.filter.dml.events"] or not (included or excluded):
            return None

        def takes(source: str) -> bool:
            # the server's UUID comes before the tag
            name = source.partition(":")[0]
            if included:
                return any(one.fullmatch(name) for one in included)
            return not any(one.fullmatch(name) for one in excluded)

        return takes

    def _shown(self, table: TableSchema) -> Iterable[str]:
        """Return the columns that count as a change: an update that changes none of them gives no event."""
        shaping = self._settings.shaping
        return [one.name for one in table.columns if one.name and shaping.shows(table.id, one.name)] + list(table.key)

    def tasks(self, since: BinlogOffset, until: BinlogOffset) -> list[Task]:
        return self.snapshots.tasks(since, until)

    # --- beside the log ------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Run `heartbeat.action.query`."""
        import pymysql

        query: str | None = self._config["heartbeat.action.query"]
        if not query:
            return
        try:
            rows(self._connect(), query)
        except pymysql.err.Error as error:
            reason = faults.words(error)
            log.warning("heartbeat.action.query fails: %s; the heartbeat goes on without it", reason)

    @property
    def captured_tables(self) -> int | None:
        return self._captured_count

    def status(self, log: Log | None) -> Offset | None:
        if not isinstance(log, BinlogLogSession):
            return None
        newest = BinlogOffset(log.newest()).to_json()
        if self._config["skip.messages.without.change"]:
            newest["unchanged"] = log.feed.indexer.unchanged
        running = None if self.incremental is None else self.incremental.status()
        return newest if running is None else newest | {"snapshot": running}

    def attributes(self, log: Log | None) -> Mapping[str, Mapping[str, float]]:
        """Return the attributes of Debezium's beans that only this connector has. For any thread; no I/O."""
        streaming: dict[str, float] = {}
        if isinstance(log, BinlogLogSession):
            streaming["BinlogPosition"] = log.feed.indexer.read_to[1]
        if self._has_gtids is not None:
            streaming["IsGtidModeEnabled"] = self._has_gtids
        return {"streaming": streaming, "snapshot": {"HoldingGlobalLock": self.snapshots.holds_global_lock}}

    def close(self) -> None:
        if self.incremental is not None:
            self.incremental.close()
        self.snapshots.close()
        self._end_control()


# Most attempts to read the same definitions before and after the log's end.
_TRIES = 5


def _has_rows(session: Connection[Any], name: Name) -> bool:
    """Return False if a table has no row; True also if the user may not read it."""
    import pymysql

    try:
        return bool(rows(session, f"SELECT 1 FROM {quoted(*name)} LIMIT 1"))
    except pymysql.err.Error as error:
        if is_gone(error):
            raise
        return True


def _demand_file(session: Connection[Any], position: BinlogPosition) -> None:
    """Raise PositionLost if the server no longer has the file of a position, or the file ends before the position."""
    origin = position.resumes
    files = {str(row[0]): int(row[1]) for row in rows(session, "SHOW BINARY LOGS")}
    if origin.file not in files:
        first = min(files, key=number_of, default="")
        what = f"its log begins with {first}" if first else "it has no log"
        raise PositionLost(
            f"The server no longer has the log file {origin.file}: {what}.",
            "Delete the checkpoint to start again with a snapshot, or set snapshot.mode=when_needed.",
        )
    if files[origin.file] < origin.start:
        raise PositionLost(
            f"The server's log file {origin.file} ends at {files[origin.file]}, before the checkpoint at "
            f"{origin.start}: the log was begun anew, or this is another server.",
            "Delete the checkpoint to start again with a snapshot.",
        )


def refuse_prepared(session: Connection[Any]) -> None:
    """Raise PrerequisiteError if XA transactions are prepared, whose rows are neither in a snapshot nor in the log
    after it."""
    import pymysql

    try:
        found = rows(session, "XA RECOVER")
    except pymysql.err.Error:
        # a user without the right to see them (XA_RECOVER_ADMIN)
        return
    if found:
        raise PrerequisiteError(
            f"{len(found)} XA transactions are prepared and neither committed nor rolled back; reading that begins now "
            "would miss their rows.",
            "Commit them or roll them back (XA RECOVER lists them), then start again.",
        )


def _import_reader() -> None:
    """Load the driver and the compiled kernels of the planner."""
    import pymysql  # noqa: F401

    from tailrace.connectors.binlog.log import row_kernels  # noqa: F401
