"""The log engine over PostgreSQL: checks and preparations at the start, the slot, and the log. Planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.blocks import LAST
from tailrace.columns.table import TableSchema
from tailrace.config import Config, PrefixFilter, TableFilter
from tailrace.connectors.findings import demanded
from tailrace.connectors.guardrail import guard_number
from tailrace.connectors.postgres.chunking import PostgresSnapshots
from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.log.feed import PostgresFeed
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.log.identity import CatalogXmin, present, refuse_standby, way_back
from tailrace.connectors.postgres.log.reading import (
    OUTSIDE,
    Connections,
    Environment,
    LogSelection,
    ReaderSettings,
    StartPosition,
)
from tailrace.connectors.postgres.log.retention import log_end
from tailrace.connectors.postgres.log.slot_watch import SlotWatch
from tailrace.connectors.postgres.log.visibility import UnsettledTransactions
from tailrace.connectors.postgres.log_session import PostgresLogSession, parallelism
from tailrace.connectors.postgres.offset import PostgresOffset
from tailrace.connectors.postgres.protocol.position import LogPosition, TargetLsn
from tailrace.connectors.postgres.schema import coverage
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog, captured_tables
from tailrace.connectors.postgres.schema.coverage import CarriedTables, carried
from tailrace.connectors.postgres.schema.history import SchemaHistory, StoredHistory
from tailrace.connectors.postgres.schema.hypertables import HypertableCatalog
from tailrace.connectors.postgres.schema.inventory import UNKNOWN
from tailrace.connectors.postgres.schema.relations import Relations
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup import publications, slots
from tailrace.connectors.postgres.setup.coverage_watch import CoverageWatch
from tailrace.connectors.postgres.setup.prerequisites import unmatched_lists
from tailrace.connectors.postgres.snapshot import rights
from tailrace.connectors.postgres.snapshot.windows import Incremental, PostgresWindows
from tailrace.errors import ConnectionFailed, PositionLost, TailraceError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.log import contracts
from tailrace.log.contracts import Offset, Task
from tailrace.log.engine import LogEngine
from tailrace.log.retention import LogRetention
from tailrace.log.retrying import Retrying
from tailrace.snapshot.mode import snapshot_mode
from tailrace.snapshot.progress import Progress
from tailrace.snapshot.signal_handler import LiveTables
from tailrace.snapshot.table_commands import NO_COMMANDS, settled

if TYPE_CHECKING:
    import psycopg

    from tailrace.connectors.postgres.protocol import pgoutput

log = logging.getLogger("tailrace")


class PostgresPlanner(LogEngine[PostgresOffset, LogPosition, LogPosition]):
    """Implements `tailrace.log.contracts.Planner` for PostgreSQL."""

    def __init__(self, config: Config, settings: EventSettings, outside: Environment = OUTSIDE) -> None:
        source = PostgresSource(config, settings, outside)
        load = _import_reducing_reader if settings.blocks == LAST else _import_reader
        super().__init__(config, settings, outside.runtime, source, PostgresOffset, load)


class RetryingPlanner(Retrying[PostgresOffset, LogPosition, LogPosition], PostgresPlanner):
    """The planner that Spark gets: it goes on by itself after its server was unreachable for a while."""


Log = contracts.OpenLog[PostgresOffset, LogPosition, LogPosition]


class PostgresSource(contracts.Source[PostgresOffset, LogPosition, LogPosition]):
    """A server, its publication and its slot. A call that fails gives up work in progress and closes its sessions."""

    snapshots: PostgresSnapshots

    def __init__(self, config: Config, settings: EventSettings, outside: Environment) -> None:
        self._config = config
        self._settings = settings
        self._outside = outside
        self._tables = TableFilter(config)
        prefixes = PrefixFilter(config)
        self._takes = None if settings.legacy or prefixes.excludes_all else prefixes.includes
        self._names = Admission(settings, FORM)
        self._streams = snapshot_mode(config).streams
        self._control: psycopg.Connection[Any] | None = None
        self._xmin = CatalogXmin(config, self._connect)
        self._prepared = False
        self._commands = NO_COMMANDS
        # new tables that could not be captured, each with the reason that was logged
        self._refused: set[tuple[tuple[str, str], str]] = set()
        # the tables that commands have added since the last call of `prepare`
        self._accepted: dict[int, CapturedTable] = {}
        self._stock = CoverageWatch(config, self._tables, settings.copies, settings.typed is not None)
        self._hypertables = HypertableCatalog(config, settings, outside.connect, outside.runtime)
        self.incremental = self._incremental()
        self.snapshots = PostgresSnapshots(
            config,
            settings,
            self._tables,
            outside,
            self._connect,
            self._names.admit,
            self._streamed,
            self._hypertables,
            self._stock,
        )
        tell = self.snapshots.notifications.direct.tell
        self._watch = SlotWatch(config, lambda: outside.connect(config), outside.runtime, tell)

    def _incremental(self) -> Incremental | None:
        config, shaping = self._config, self._settings.shaping
        has_signals = config["signal.data.collection"] or set(config["signal.enabled.channels"]) - {"source"}
        if not has_signals and config["table.discovery"] == "off" and config["on.data.loss"] != "resnapshot":
            return None
        source = PostgresWindows(
            config,
            legacy=self._settings.legacy,
            parallelism=parallelism(config),
            connect=lambda: self._outside.connect(config),
            list_captured=self._captured_names,
            is_captured=self._tables.includes,
            admit=lambda table: shaping.read(self._names.admit(table)),
            cover=self._carried,
            comments=shaping.comments,
            runtime=self._outside.runtime,
        )
        source.is_held = lambda: self._watch.holds_back
        source.late = lambda: self._stock.late
        if self._streams and self._settings.typed is None:
            source.live = LiveTables(config, self._every, self._made_ready, source.signal_table, self._stock.unread)
        return Incremental(config, source, self._outside.runtime)

    def called(self, work: Callable[[], contracts.Result]) -> contracts.Result:
        self._watch.demand()
        return connections.explained(work)()

    def recover(self) -> bool:
        self.snapshots.begin_anew()
        if self.incremental is not None:
            self.incremental.close()
        self.incremental = self._incremental()
        self._hypertables.close()
        self._prepared = False
        return False

    def _connect(self) -> psycopg.Connection[Any]:
        if self._control is None or connections.is_lost(self._control, self._outside.runtime):
            self._control = self._outside.connect(self._config)
        return self._control

    def _address(self) -> connections.Address:
        return connections.Address.of(self._config, self._connect())

    def _streamed(self) -> UnsettledTransactions | None:
        return None if self.incremental is None else self.incremental.streamed

    def _catalog(self) -> Catalog:
        return Catalog(self._connect(), self._config["database.dbname"], self._settings.shaping.comments)

    def _captured_names(self) -> list[tuple[str, str]]:
        """Return the tables that are captured now, also those created since the query began."""
        catalog = Catalog(self._connect(), self._config["database.dbname"])
        return [(table.schema, table.table) for _, table, _ in captured_tables(catalog.tables(), self._tables)]

    def _every(self) -> list[tuple[str, str]]:
        """Return the tables of the database that may be captured."""
        system = self._config.traits.system_tables
        tables = Catalog(self._connect(), self._config["database.dbname"]).tables()
        names = ((table.schema, table.table) for _, table, _ in tables)
        return [name for name in names if system is None or not system.fullmatch(".".join(name))]

    def _made_ready(self, added: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Publish further tables; return those that cannot be captured or copied, each with the reason.

        A table with a fault is refused here: otherwise it would end the query each time the log is opened.
        """
        control, catalog = self._connect(), self._catalog()
        tables = catalog.tables()
        named = set(added)
        wanted = [one for one in tables if (one[1].schema, one[1].table) in named]
        captured = self._accepted | {one[0]: one for one in captured_tables(tables, self._tables)}
        refused: dict[tuple[str, str], str] = {}
        for oid, table, kind in wanted:
            why = self._unfit(catalog, (oid, table, kind), captured)
            if why:
                refused[table.schema, table.table] = why
            else:
                captured[oid] = oid, table, kind
        wanted = [one for one in wanted if (one[1].schema, one[1].table) not in refused]
        is_filtered = self._config["publication.autocreate.mode"] == "filtered"
        covered = coverage.read(control, self._config, wanted, as_it_is=not is_filtered)
        lacking = coverage.unidentified(control, self._config, covered)
        copies, typed = self._settings.copies, self._settings.typed is not None
        for oid, table, kind in wanted:
            of = {oid: covered[oid]} if oid in covered else {}
            found = coverage.findings(of, copies=copies, lacking=lacking, typed=typed)
            why = " ".join(f"{one.text} {one.remedy}" for one in found if one.level == "error")
            if not why and not is_filtered and oid in covered and not covered[oid].arrives:
                why = (
                    f"it is not in the publication {self._config['publication.name']}: alter publication "
                    f"{self._config['publication.name']} add table {table}."
                )
            if not why and is_filtered:
                why = publications.add_table(control, self._config, table)
            if why:
                refused[table.schema, table.table] = why
            else:
                self._accepted[oid] = oid, table, kind
        return refused

    def _unfit(self, catalog: Catalog, wanted: CapturedTable, captured: Mapping[int, CapturedTable]) -> str:
        """Return why a start would fail with a further table beside the `captured` ones, or its rows cannot be read;
        "" if there is no reason. Sets the table's replica identity, as a start does."""
        control, config, (oid, _, _) = self._connect(), self._config, wanted
        together = {**captured, oid: wanted}
        try:
            demanded([one for one in coverage.unfit(control, config, list(together.values())) if one.level == "error"])
            guard_number(config, len(together))
            publications.set_replica_identity(control, config["replica.identity.autoset.values"], wanted)
            for schema in catalog.schemas([oid]).values():
                # a new Admission, so that refused tables are not remembered
                table = Admission(self._settings, FORM).admit(schema)
                shown = self._settings.shaping.read(table)
                if rights.in_part(control, [oid]) and (columns := rights.lacking(control, shown)):
                    raise rights.refusal(shown, columns)
                if self._settings.copies and not table.key:
                    return (
                        "a copy tells rows apart by their keys, and it has none: give it a primary key, or name "
                        "columns in message.key.columns."
                    )
        except ConnectionFailed:
            raise
        except TailraceError as error:
            return str(error)
        return ""

    def _carried(self, connection: psycopg.Connection[Any], table: CapturedTable) -> CarriedTables:
        """Return the rows and columns of a captured table that a snapshot reads, by the present catalog."""
        return carried(connection, self._config, self._settings, [table], as_it_is=True)

    # --- the start -----------------------------------------------------------------------------------------------

    def prepare(self, since: PostgresOffset) -> None:
        """Check the server, and prepare publication and replica identities. Repeated calls return at once."""
        commands = settled(since.progress.commands, self._config)
        if self._prepared and commands == self._commands:
            return
        self._prepared = False
        control = self._connect()
        refuse_standby(control)
        # safe here: no log is open, whose reader would use the same lists
        self._commands = commands
        self._accepted = {}
        self._tables.overrule(commands.added, commands.removed)
        catalog = self._catalog()
        there = catalog.tables()
        captured = captured_tables(there, self._tables)
        fault = unmatched_lists(self._config, there, is_fresh=since.is_initial)
        unfit = coverage.unfit(control, self._config, captured)
        for one in demanded([*([] if fault is None else [fault]), *unfit]):
            log.warning("%s %s", one.text, one.remedy)
        guard_number(self._config, len(captured))
        if self._streams:
            self._await_slot(control, since)
            if self._stock.is_republished(control, since.inventory) and not snapshot_mode(self._config).mends:
                raise self._stock.republished()
            self._stock.warn_of_publication(control, captured, since.inventory)
            publications.prepare_publication(control, self._config, self._publishable(control, captured))
            if self._config["slot.failover"]:
                slots.warn_of_failover(control, self._config["slot.name"])
        publications.set_replica_identities(control, self._config["replica.identity.autoset.values"], captured)
        if self._streams:
            self._stock.take(control, catalog, captured, since.inventory, _expected(since.progress))
        with connections.one_moment(control):
            schemas = catalog.schemas([oid for oid, _, _ in captured])
        for schema in schemas.values():
            self._names.admit(schema)
        prefixes = self._config["message.prefix.include.list"] or self._config["message.prefix.exclude.list"]
        if prefixes and control.info.server_version < 140000:
            log.warning("servers before PostgreSQL 14 send no logical messages: message.prefix lists have no effect")
        self._prepared = True

    def _await_slot(self, control: psycopg.Connection[Any], since: PostgresOffset) -> None:
        """Wait for a slot that another client still reads, before a snapshot starts or the slot is dropped.

        Without a snapshot or a drop return at once: the reader of the log waits for the slot. Raises SlotInUse, and
        PositionLost for a slot that the server has invalidated.
        """
        mends, name = snapshot_mode(self._config).mends, self._config["slot.name"]
        if not (mends or since.is_initial or since.snapshot is not None):
            return
        reason = slots.await_free(control, self._config, self._outside.runtime)
        if reason and not mends:
            raise invalidation.invalidated(name, reason)
        if reason and since.is_initial:
            log.warning("the replication slot %s is created again: %s", name, invalidation.why(reason))
            slots.drop(control, name)

    def _publishable(self, control: psycopg.Connection[Any], captured: Sequence[CapturedTable]) -> list[CapturedTable]:
        """Return the captured tables that a publication may list: the server refuses unlogged tables there."""
        if self._config["publication.autocreate.mode"] != "filtered":
            return list(captured)
        covered = coverage.read(control, self._config, captured, as_it_is=True)
        return [entry for entry in captured if entry[0] in covered and not covered[entry[0]].is_unlogged]

    def clear_lost(self, since: PostgresOffset) -> str:
        """Drop the slot if it can no longer be read. Return why the log cannot be read from `since`, as a sentence; ""
        if it can."""
        if self._stock.is_republished(self._connect(), since.inventory):
            slots.drop(self._connect(), self._config["slot.name"])
            return f"the publication {self._config['publication.name']} was dropped and made again."
        reached, connect = since.reached_lsn, self._outside.connect
        reason = slots.clear_lost_position(self._connect(), self._config, since.log, since.server, reached, connect)
        return f"{reason}." if reason else ""

    def first(self) -> PostgresOffset:
        """Return the offset of a new query: the slot's position, and the tables at the slot's creation."""
        with closing(slots.slot_start(self._connect(), self._config, self._outside.connect)) as slot:
            schemas = StoredHistory() if slot.snapshot is None else self.snapshots.history_at(slot.snapshot)
            found = self._stock.inventory or UNKNOWN
            return PostgresOffset(slot.position, schemas=schemas, server=slot.server, inventory=found)

    def look_again(self) -> None:
        if self._streams and self._prepared:
            if self._config["table.discovery"] == "on":
                self._discover()
            self._stock.look_again(self._connect())
        for notification in self._watch.news():
            self.snapshots.notifications.add_told(notification)

    def _discover(self) -> None:
        """Add new tables that the lists name to the publication, if publication.autocreate.mode is `filtered`."""
        if self._config["publication.autocreate.mode"] != "filtered":
            return
        control = self._connect()
        captured = captured_tables(Catalog(control, self._config["database.dbname"]).tables(), self._tables)
        known = set() if self._stock.inventory is None else {oid for oid, _, _ in self._stock.inventory.tables}
        fresh = [(table.schema, table.table) for oid, table, _ in captured if oid not in known]
        for name, reason in self._made_ready(fresh).items() if fresh else ():
            if (name, reason) not in self._refused:
                self._refused.add((name, reason))
                log.warning("the new table %s is not captured: %s", ".".join(name), reason)

    def present(self) -> LogPosition:
        refuse_standby(self._connect())
        return LogPosition(present(self._connect()))

    # --- the log -------------------------------------------------------------------------------------------------

    def open(
        self, since: PostgresOffset, until: PostgresOffset | None, target: LogPosition | None
    ) -> PostgresLogSession:
        self.prepare(since)
        config = self._config
        if slots.find_slot(self._connect(), config) is None:
            raise PositionLost(
                f"The replication slot {config['slot.name']} is gone.",
                way_back(self._connect(), config["slot.name"], since.log.safe_lsn),
            )
        replayed = None if until is None else (until.schemas, until.log)
        history = SchemaHistory(since.schemas, since.log, replayed)
        feed = PostgresFeed(
            ReaderSettings.of(config),
            Connections.of(config, self._connect(), self._outside),
            database=config["database.dbname"],
            relations=Relations(
                history,
                self._is_captured,
                self._names.admit,
                self._outside.runtime,
                by_name=self._settings.copy,
                note=lambda table: self._stock.seen(table.oid, str(table.id)),
            ),
            since=StartPosition(
                since.log,
                since.server if until is None else until.server or since.server,
                (until or since).reached_lsn,
            ),
            wanted=self._wanted(since, target),
            comments=self._settings.shaping.comments,
            streamed=self._streamed(),
            runtime=self._outside.runtime,
        )
        if self.incremental is not None:
            self.incremental.follow(self._connect())
        session = PostgresLogSession(
            feed,
            config,
            self._settings,
            self.incremental,
            self._xmin,
            self._address,
            self._hypertables,
            self._stock,
            self._commands,
        )
        session.start()
        if self._outside.watches:
            self._watch.start()
        return session

    def _wanted(self, since: PostgresOffset, target: LogPosition | None) -> LogSelection:
        settings = self._settings
        return LogSelection(
            visible=since.visible,
            target_lsn=None if target is None else TargetLsn(target.commit_lsn),
            numbered_without=settings.skipped_operations if settings.provide_transaction_metadata else None,
            takes=self._takes,
            shows=self._shown if self._config["skip.messages.without.change"] else None,
        )

    def _shown(self, table: TableSchema) -> list[str]:
        """Return the columns whose change makes an update an event: those shown in events, and the key."""
        shaping = self._settings.shaping
        return [column.name for column in table.columns if shaping.shows(table.id, column.name)] + list(table.key)

    def _is_captured(self, relation: pgoutput.Relation) -> bool:
        is_captured = self._tables.includes(relation.namespace, relation.name)
        if not is_captured:
            self._stock.demand_name(relation.relation_id, f"{relation.namespace}.{relation.name}")
        return is_captured

    def tasks(self, since: PostgresOffset, until: PostgresOffset) -> list[Task]:
        return self.snapshots.tasks(since, until)

    # --- beside the log ------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Run `heartbeat.action.query`."""
        import psycopg

        query: str | None = self._config["heartbeat.action.query"]
        if not query:
            return
        try:
            connection = self._connect()
            with connections.own_path(connection), connections.own_policies(connection, self._config):
                connection.execute(query.encode())
        except psycopg.Error as error:
            reason = error.diag.message_primary or type(error).__name__
            log.warning("heartbeat.action.query fails: %s; the heartbeat goes on without it", reason)

    @property
    def captured_tables(self) -> int | None:
        return self._stock.count

    def status(self, log: Log | None) -> Offset | None:
        if not isinstance(log, PostgresLogSession) or not log.feed.head_lsn:
            return None
        newest = PostgresOffset().to_json() | (log_end(log.feed.head_lsn) or {})
        if self._config["skip.messages.without.change"]:
            newest["unchanged"] = log.feed.indexer.unchanged
        running = None if self.incremental is None else self.incremental.status()
        if running is not None:
            newest["snapshot"] = running
        return newest

    def retention(self) -> LogRetention | None:
        return self._watch.seen

    def close(self) -> None:
        self._watch.close()
        self.snapshots.close()
        if self.incremental is not None:
            self.incremental.close()
        self._hypertables.close()
        if self._control is not None:
            self._control.close()
            self._control = None


def _expected(progress: Progress) -> set[str]:
    """Return the names of tables that commands have added or removed, whose absence from the log needs no warning."""
    commands = progress.commands
    waiting = () if progress.state is None else progress.state.collections
    read = {(one.schema, one.table) for one in (*waiting, *(held.collection for held in progress.held))}
    return {".".join(table) for table in (*commands.removed, *(one for one in commands.added if one in read))}


def _import_reader() -> None:
    """Load the driver and the compiled kernels of the planner."""
    import adbc_driver_postgresql  # noqa: F401

    from tailrace.connectors.postgres.protocol import scan

    scan.load()


def _import_reducing_reader() -> None:
    """Load the reader, and the kernels that reduce the log to the last change of each key."""
    from tailrace.connectors.postgres.protocol import last_changes

    _import_reader()
    last_changes.load()
