"""ChangeTablesPlanner: the log engine over change tables. Planner process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.processors import processors
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.chunking import ChunkedSnapshots
from tailrace.connectors.changetables.coverage import carried
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.rows import skipped_rows
from tailrace.connectors.changetables.log.sessions import Retries
from tailrace.connectors.changetables.log.table_versions import TableVersions
from tailrace.connectors.changetables.log.tasks import SchemaTask, TaskSource
from tailrace.connectors.changetables.log_session import ChangeTablesSession, Target
from tailrace.connectors.changetables.offset import DatabaseProgress, TablesOffset, TablesPosition
from tailrace.connectors.changetables.snapshot.initial import TableSnapshots
from tailrace.connectors.changetables.snapshot.windows import Incremental, TableWindows
from tailrace.connectors.findings import demanded, unmatched
from tailrace.connectors.guardrail import guard_number
from tailrace.errors import ConfigError, ConnectionFailed, PositionLost, TailraceError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.log import contracts
from tailrace.log.contracts import Offset, ReaderState, Task
from tailrace.log.engine import LogEngine
from tailrace.process.runtime import THREADS, Runtime
from tailrace.snapshot.mode import snapshot_mode

log = logging.getLogger("tailrace")


class ChangeTablesPlanner(LogEngine[TablesOffset, TablesPosition, Target]):
    """Implements `tailrace.log.contracts.Planner` over a dialect."""

    def __init__(
        self, config: Config, settings: EventSettings, dialect: Dialect, form: SourceForm, runtime: Runtime = THREADS
    ) -> None:
        self._databases = TablesSource(config, settings, dialect, form, runtime)
        super().__init__(config, settings, runtime, self._databases, TablesOffset)

    def reading(self) -> ReaderState:
        state, lost = super().reading(), self._databases.lost_sessions
        is_connected = state.is_connected and not self._databases.is_away
        return replace(state, is_connected=is_connected, setbacks={"session": lost} if lost else {})


Log = contracts.OpenLog[TablesOffset, TablesPosition, Target]


class TablesSource(contracts.Source[TablesOffset, TablesPosition, Target]):
    """The databases of one query. It retries calls that lose their connection."""

    def __init__(
        self, config: Config, settings: EventSettings, dialect: Dialect, form: SourceForm, runtime: Runtime
    ) -> None:
        self._config = config
        self._settings = settings
        self._dialect = dialect
        self._runtime = runtime
        self._mends = snapshot_mode(config).mends
        self._filter = TableFilter(config)
        self._names = Admission(settings, form)
        self._retries = Retries.of(config)
        self._processors = processors(config).processors
        transactions = config["max.iteration.transactions"] if config.is_set("max.iteration.transactions") else 0
        reads = snapshot_mode(config).reads != "never"
        self._databases = {
            name: Database(dialect, name, self._includes, self._names.admit, transactions, reads=reads)
            for name in dialect.databases
        }
        only = config["schema.history.internal.store.only.captured.tables.ddl"]
        skipped = skipped_rows(settings.skipped_operations, dialect.pairs)
        self._versions = TableVersions(self._databases, self._includes, only, skipped)
        self._tables = TableSnapshots(config, self._databases, self._shown, os.cpu_count() or 1, runtime)
        windows = TableWindows(config, dialect, self._databases, self._shown, legacy=settings.legacy, runtime=runtime)
        self._incremental = Incremental(config, windows, runtime)
        self._log = ChangeTablesSession(
            settings,
            self._databases,
            self._wanted,
            self._shown,
            self._source,
            self._incremental,
            windows.check,
            runtime,
        )
        self._target: Target | None = None
        # the number of lost sessions, and True while calls are repeated because of one; read by any thread
        self.lost_sessions, self.is_away = 0, False
        self.snapshots = ChunkedSnapshots(config, self._tables, windows, self.first, self._to_end, runtime)
        # without the databases' sessions: a lost session cannot be restored
        self.memory = (self._tables, *self._incremental.parts)

    def called(self, work: Callable[[], contracts.Result]) -> contracts.Result:
        found = self._retries.run(work, self._lost, self._runtime)
        self.is_away = False
        return found

    def _lost(self) -> bool:
        """Note a lost session, and drop all. Return True if a retry may help."""
        self.lost_sessions += 1
        self.is_away = True
        return self._lose()

    def _lose(self) -> bool:
        """Drop the sessions. Return True if a retry may help: a server has accepted a connection before."""
        for database in self._databases.values():
            database.lose()
        return any(database.was_connected for database in self._databases.values())

    # --- the start -----------------------------------------------------------------------------------------------

    def prepare(self, since: TablesOffset) -> None:
        if since.is_initial:
            self._demand_listed()
        reason = "" if since.is_initial or self._mends else self.clear_lost(since)
        if reason:
            raise PositionLost(
                reason,
                "Start again with a new checkpoint, or with snapshot.mode=when_needed, which takes a new snapshot.",
            )

    def clear_lost(self, since: TablesOffset) -> str:
        missing = sorted(set(since.databases) ^ set(self._databases))
        if missing:
            raise ConfigError(
                f"The checkpoint and the configuration name different databases: {', '.join(missing)}.",
                "Use another checkpoint for another list of databases.",
            )
        for name, reached in since.databases.items():
            for era in reached.eras.at(reached.position):
                if self._includes(era.table.id):
                    self._names.admit(era.table)
            sentence = self._databases[name].resume(self._wanted(reached), since.lineages.get(name, ""))
            if sentence:
                return sentence
        return ""

    def _demand_listed(self) -> None:
        """Raise PrerequisiteError if the include lists match no table of any database."""
        if self._filter.is_open:
            return
        names: list[tuple[str, str]] = []
        for database in self._databases.values():
            session = database.session
            session.check()
            names += [(one.schema, one.table) for one in session.tables()]
            if not any(self._filter.lists(*name) for name in names):
                names += [(one.source.schema, one.source.table) for one in session.captures()]
            if any(self._filter.lists(*name) for name in names):
                return
        fault = unmatched(self._config, map(".".join, names), is_fresh=True)
        for one in demanded([] if fault is None else [fault]):
            log.warning("%s %s", one.text, one.remedy)

    def first(self) -> TablesOffset:
        found = TablesOffset(
            {name: database.begin() for name, database in self._databases.items()}, lineages=self._lineages()
        )
        guard_number(self._config, sum(len(reached.eras.latest()) for reached in found.databases.values()))
        return found

    def _lineages(self) -> dict[str, str]:
        """Return the known lineages of the databases."""
        return {name: found for name, database in self._databases.items() if (found := database.lineage)}

    def present(self) -> Target:
        found = {name: database.session.newest() for name, database in self._databases.items()}
        self._target = {name: position for name, position in found.items() if position is not None}
        return self._target

    def _wanted(self, reached: DatabaseProgress) -> DatabaseProgress:
        """Return a copy without the tables that the lists now exclude."""
        gone = {era.table.id for era in reached.eras.entries if not self._includes(era.table.id)}
        return DatabaseProgress(reached.position, reached.eras.without(gone)) if gone else reached

    def _includes(self, table: TableId) -> bool:
        return self._filter.includes(table.schema, table.table)

    def _shown(self, table: TableSchema) -> TableSchema:
        """Return the table as events need it: with its key, and without columns that no event shows."""
        return self._settings.shaping.read(carried(self._names.admit(table), copies=self._settings.copies))

    # --- the log -------------------------------------------------------------------------------------------------

    def open(self, since: TablesOffset, until: TablesOffset | None, target: Target | None) -> ChangeTablesSession:
        return self._log

    def _to_end(self, start: TablesPosition) -> TablesPosition | None:
        return self._log.to_end(start, self._target)

    def _source(self) -> TaskSource:
        """Return the parts that all tasks of a batch need to read."""
        at_us = self._runtime.time_ns() // 1000
        skips = self._config["skip.messages.without.change"]
        return TaskSource(self._dialect, self._settings, self._retries, at_us, skips, self._processors)

    def tasks(self, since: TablesOffset, until: TablesOffset) -> list[Task]:
        source = self._source()
        tasks: list[Task] = []
        if self._config["include.schema.changes"] and self._settings.tells_schema_changes:
            changes = self._versions.changes(since, until, source.at_us)
            if changes:
                tasks.append(SchemaTask(source, tuple(changes)))
        if until.snapshot is not None and until.snapshot != since.snapshot:
            tasks += self._tables.tasks(until.snapshot, until.databases, source)
        return tasks

    # --- beside the log ------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Run `heartbeat.action.query`. Raises ConnectionFailed if the session is gone."""
        query: str | None = self._config["heartbeat.action.query"]
        if not query:
            return
        try:
            next(iter(self._databases.values())).session.execute(query)
        except ConnectionFailed:
            raise
        except TailraceError as error:
            log.warning("heartbeat.action.query fails: %s The heartbeat goes on without it.", error.message)

    @property
    def captured_tables(self) -> int | None:
        found = self._log.captured
        return sum(found.values()) if found else None

    def status(self, log: Log | None) -> Offset | None:
        found: Offset = {}
        if self._log.newest:
            found["newest"] = {name: position.hex() for name, position in sorted(self._log.newest.items())}
        running = self._tables.status() or self._incremental.status()
        if running is not None:
            found["snapshot"] = running
        return found or None

    def close(self) -> None:
        self._lose()
        self._incremental.close()


def planner(config: Config, settings: EventSettings) -> ChangeTablesPlanner:
    """Return the planner for Spark's source. Raises ConfigError for options that contradict each other."""
    if settings.blocks and config["snapshot.isolation.mode"] == "read_uncommitted":
        raise ConfigError(
            "snapshot.isolation.mode = read_uncommitted shows rows that are not committed: tables would keep them.",
            "Set another mode for a sink of tables.",
        )
    return ChangeTablesPlanner(config, settings, loading.dialect(config), loading.form(config.connector))
