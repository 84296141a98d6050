"""Checks of a PostgreSQL server's prerequisites for capturing changes. Driver; only reads.

`check` opens its own connections; `demand`, for the start of a pipeline, raises the errors among the findings as one
exception. Nothing is created or changed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tailrace.columns.table import TableSchema
from tailrace.config import Config, TableFilter
from tailrace.config.files import checkpoint_directory
from tailrace.config.rows import is_typed, keeps_copies
from tailrace.connectors.checkpoint import stored_offset, table_filter
from tailrace.connectors.findings import Finding, Level, collisions, demanded, listed, unmatched, value_findings
from tailrace.connectors.postgres.log import invalidation
from tailrace.connectors.postgres.log.endings import TWO_PHASE, two_phase_refused
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.postgres.log.identity import NAME_PRIMARY
from tailrace.connectors.postgres.schema import coverage
from tailrace.connectors.postgres.schema.catalog import CapturedTable, Catalog, captured_tables
from tailrace.connectors.postgres.server.causes import more_locks
from tailrace.connectors.postgres.server.connection import connect, explained
from tailrace.connectors.postgres.setup.advice import advice
from tailrace.connectors.postgres.snapshot.rights import in_part, lacking, refusal
from tailrace.connectors.postgres.snapshot.session import quoted
from tailrace.connectors.postgres.snapshot.signal_table import SignalTable
from tailrace.errors import ConfigError, PrerequisiteError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    import psycopg

OLDEST = 130_000
"""The oldest supported server, as `server_version_num`."""


def check(config: Config) -> list[Finding]:
    """Return all findings in the order of the checks, and then advice.

    Raises ConnectionFailed or PrerequisiteError if no connection can be made.
    """
    return explained(_check)(config)


def _check(config: Config) -> list[Finding]:
    with closing(connect(config)) as connection:
        inspection = _Inspection(config, connection)
        found = list(inspection.run())
        if any(one.subject == "lists" for one in found):
            return found
        tables = captured_tables(Catalog(connection, config["database.dbname"]).tables(), table_filter(config))
        return found + inspection.values(tables) + list(advice(config, connection, tables, inspection.streams))


def demand(config: Config) -> list[Finding]:
    """Return the findings without the advice.

    Raises PrerequisiteError with all errors among them, if there are any, and ConfigError if the lists contradict the
    checkpoint.
    """
    table_filter(config)
    return demanded(explained(_findings)(config))


def _findings(config: Config) -> list[Finding]:
    with closing(connect(config)) as connection:
        return list(_Inspection(config, connection).run())


def unmatched_lists(config: Config, tables: Sequence[CapturedTable], *, is_fresh: bool) -> Finding | None:
    """Return the finding for include lists that match none of the database's tables; None if they match."""
    chosen = TableFilter(config)
    names = [(table.schema, table.table) for _, table, _ in tables]
    if any(chosen.lists(*name) for name in names):
        return None
    return unmatched(config, map(".".join, names), is_fresh=is_fresh)


class _Inspection:
    """The checks of one server, over one connection."""

    def __init__(self, config: Config, connection: psycopg.Connection[Any]) -> None:
        self.config = config
        self.connection = connection
        self.user = config["database.user"]
        self.database = config["database.dbname"]
        self.mode = snapshot_mode(config)
        self.streams = self.mode.streams

    def run(self) -> Iterator[Finding]:
        tables = Catalog(self.connection, self.database).tables()
        yield from self.server()
        try:
            captured = captured_tables(tables, table_filter(self.config))
        except ConfigError as error:
            yield Finding("error", "lists", error.message, error.remedy)
            return
        if self.streams:
            yield from self.role()
            yield from self.slot()
            yield from self.publication(captured)
        yield from self.tables(tables, captured)
        if self.config["signal.data.collection"] and self.streams:
            yield from self.signals()

    def row(self, query: str, *parameters: Any) -> tuple[Any, ...]:
        """Return the one row of `query`."""
        found = self.connection.execute(query.encode(), parameters or None).fetchone()
        assert found is not None
        return tuple(found)

    def server(self) -> Iterator[Finding]:
        version, number, level, standby = self.row(
            "select current_setting('server_version'), current_setting('server_version_num')::int, "
            "current_setting('wal_level'), pg_is_in_recovery()"
        )
        if number < OLDEST:
            yield Finding(
                "error",
                "server",
                f"PostgreSQL {version} lacks functions that the reader needs (copies of slots, pg_current_snapshot).",
                "Use version 13 or newer.",
            )
        elif standby:
            yield Finding("error", "server", "This server is a standby.", NAME_PRIMARY)
        else:
            yield Finding("ok", "server", f"PostgreSQL {version}.")
        if level == "logical" or not self.streams:
            yield Finding("ok", "wal_level", f"wal_level is {level}.")
        else:
            yield Finding(
                "error",
                "wal_level",
                f"wal_level is {level}, so the log does not hold row changes.",
                "alter system set wal_level = logical; then restart the server.",
            )

    def role(self) -> Iterator[Finding]:
        """Check the right to read the log, by opening a replication connection."""
        (allowed,) = self.row(
            "select rolsuper or rolreplication or exists (select from pg_roles m where m.rolname in "
            "('rds_replication', 'cloudsqlsuperuser') and pg_has_role(r.oid, m.oid, 'member')) "
            "from pg_roles r where r.rolname = current_user"
        )
        if not allowed:
            yield Finding(
                "error",
                "replication",
                f"The user {self.user} may not read the log.",
                f"alter role {quoted(self.user)} with replication;",
            )
            return
        try:
            with closing(connect(self.config, replication=True)) as replication:
                replication.execute("IDENTIFY_SYSTEM")
        except TailraceError as error:
            yield Finding("error", "replication", error.message, error.remedy)
        else:
            yield Finding("ok", "replication", f"The user {self.user} may read the log.")

    def slot(self) -> Iterator[Finding]:
        name = self.config["slot.name"]
        total, used, senders, sending = self.row(
            "select current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots), "
            "current_setting('max_wal_senders')::int, (select count(*) from pg_stat_get_wal_senders())"
        )
        found = self.connection.execute(
            f"select slot_type, plugin, database, active_pid, {invalidation.REASON}, {TWO_PHASE}, "
            "coalesce(wal_status = 'unreserved', false), pg_size_pretty("
            "case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end - restart_lsn) "
            "from pg_replication_slots s where slot_name = %s".encode(),
            (name,),
        ).fetchone()
        if found is None:
            if used >= total:
                yield Finding(
                    "error",
                    "slot",
                    f"There is no slot {name}, and all {total} slots are taken.",
                    "Drop an unused slot, or raise max_replication_slots and restart.",
                )
            else:
                yield Finding("ok", "slot", f"There is no slot {name} yet; it will be created.")
        else:
            yield self._existing_slot(name, found)
        busy = found is not None and found[3] is not None
        if sending >= senders and not busy:
            yield Finding(
                "error",
                "senders",
                f"All {senders} WAL senders are busy.",
                "Stop an idle replication client, or raise max_wal_senders and restart.",
            )
        else:
            yield Finding("ok", "senders", f"{sending} of {senders} WAL senders are busy.")

    def _existing_slot(self, name: str, found: tuple[Any, ...]) -> Finding:
        kind, plugin, database, pid, reason, has_two_phase, runs_out, held = found
        other = "Choose another slot.name, or drop that slot."
        if kind != "logical":
            return Finding("error", "slot", f"The slot {name} is a {kind} slot; a logical slot is needed.", other)
        if plugin != "pgoutput":
            return Finding("error", "slot", f"The slot {name} belongs to the plug-in {plugin}, not pgoutput.", other)
        if database != self.database:
            return Finding("error", "slot", f"The slot {name} belongs to the database {database}.", other)
        if has_two_phase:
            error = two_phase_refused(name)
            return Finding("error", "slot", error.message, error.remedy)
        if reason:
            text = f"The slot {name} cannot be read any more: {invalidation.why(reason)}."
            return Finding("error", "slot", text, invalidation.remedy(name, reason))
        if runs_out:
            return Finding(
                "warning",
                "slot",
                f"The slot {name} is beyond max_slot_wal_keep_size and will be lost.",
                "Start the pipeline now, and raise max_slot_wal_keep_size.",
            )
        if pid is not None:
            return Finding(
                "warning",
                "slot",
                f"The slot {name} is in use by the server process {pid}.",
                "Stop the other reader, unless it is this pipeline.",
            )
        kept = f" and keeps {held} of log" if held else ""
        return Finding("ok", "slot", f"The slot {name} exists{kept}.")

    def publication(self, captured: Sequence[CapturedTable]) -> Iterator[Finding]:
        name, mode = self.config["publication.name"], self.config["publication.autocreate.mode"]
        found = self.connection.execute(
            "select puballtables, pubinsert, pubupdate, pubdelete, coalesce((to_jsonb(p)->>'pubtruncate')::bool, false)"
            " from pg_publication p where pubname = %s",
            (name,),
        ).fetchone()
        if found is None:
            yield from self._missing_publication(name, mode, captured)
            return
        yield Finding("ok", "publication", f"The publication {name} exists.")
        skipped = self.config["skipped.operations"]
        words = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
        absent = [words[op] for op, on in zip("cudt", found[1:], strict=True) if not on and op not in skipped]
        if absent:
            yield Finding(
                "warning",
                "publication",
                f"The publication {name} does not publish {', '.join(absent)}.",
                "alter publication … set (publish = 'insert, update, delete, truncate');",
            )

    def _missing_publication(self, name: str, mode: str, captured: Sequence[CapturedTable]) -> Iterator[Finding]:
        superuser, may_create = self.row(
            "select rolsuper, has_database_privilege(current_database(), 'create') from pg_roles "
            "where rolname = current_user"
        )
        if mode == "disabled":
            yield Finding(
                "error",
                "publication",
                f"There is no publication {name}, and it may not be created.",
                f"create publication {quoted(name)} for table …;",
            )
        elif mode == "all_tables" and not superuser:
            yield Finding(
                "error",
                "publication",
                f"Only a superuser can create the publication {name} for all tables.",
                f"Run as a superuser: create publication {quoted(name)} for all tables; or set "
                "publication.autocreate.mode=filtered.",
            )
        elif not may_create:
            yield Finding(
                "error",
                "publication",
                f"The user {self.user} may not create the publication {name}.",
                f"grant create on database {quoted(self.database)} to {quoted(self.user)};",
            )
        elif mode == "filtered" and not captured:
            yield Finding(
                "error",
                "publication",
                f"The publication {name} would have no table.",
                "Correct the include and exclude lists.",
            )
        else:
            not_owned = self._matching(captured, "not pg_has_role(c.relowner, 'usage')") if mode == "filtered" else []
            if not_owned:
                yield Finding(
                    "error",
                    "publication",
                    f"The user {self.user} does not own {listed(not_owned)}.",
                    "Only a table's owner can add it to a publication; let the owner create it.",
                )
            else:
                yield Finding("ok", "publication", f"There is no publication {name} yet; it will be created.")

    def tables(self, tables: Sequence[CapturedTable], captured: Sequence[CapturedTable]) -> Iterator[Finding]:
        fault = unmatched_lists(self.config, tables, is_fresh=stored_offset(checkpoint_directory(self.config)) is None)
        if fault is not None:
            yield fault
            return
        if not captured:
            given = "None of the tables is captured" if tables else "The database has no tables"
            yield Finding(
                "warning", "tables", f"{given}.", "Check schema.include.list, table.include.list and the exclude lists."
            )
            return
        count = "1 table is" if len(captured) == 1 else f"{len(captured)} tables are"
        yield Finding("ok", "tables", f"{count} captured: {listed([table for _, table, _ in captured])}.")
        if self.mode.reads != "never":
            yield from self._readable(captured)
            yield from self._lockable(len(captured))
        yield from self._collisions(captured)
        yield from coverage.unfit(self.connection, self.config, captured)
        if self.streams:
            covered = coverage.read(self.connection, self.config, captured)
            lacking = coverage.unidentified(self.connection, self.config, covered)
            copies, typed = keeps_copies(self.config), is_typed(self.config)
            yield from coverage.findings(covered, copies=copies, lacking=lacking, typed=typed)

    def values(self, captured: Sequence[CapturedTable]) -> list[Finding]:
        """Return the findings about columns whose values events leave out, or that a copy cannot show unchanged."""
        settings = EventSettings.from_options(self.config)
        tables = Catalog(self.connection, self.database).schemas([oid for oid, _, _ in captured])
        return value_findings(settings, FORM, tables.values())

    def signals(self) -> Iterator[Finding]:
        table = SignalTable(self.config)
        faults = list(table.faults(self.connection))
        yield from (Finding(fault.level, "signals", fault.text, fault.remedy) for fault in faults)
        if not faults:
            yield Finding("ok", "signals", f"The signal table {table} can be used.")

    def _readable(self, captured: Sequence[CapturedTable]) -> Iterator[Finding]:
        hidden = set(self._matching(captured, "not has_schema_privilege(c.relnamespace, 'usage')"))
        parts = in_part(self.connection, [oid for oid, _, _ in captured])
        unreadable = [table for _, table, _ in captured if table in hidden]
        some: list[PrerequisiteError] = []
        for table in self._read([oid for oid, name, _ in captured if oid in parts and name not in hidden]):
            columns = lacking(self.connection, table)
            if len(columns) == len(table.columns):
                unreadable.append(table.id)
            elif columns:
                some.append(refusal(table, columns))
        if not unreadable and not some:
            yield Finding("ok", "select", f"The user {self.user} may read every captured table.")
            return
        (slot,) = self.row(
            "select exists (select from pg_replication_slots where slot_name = %s)", self.config["slot.name"]
        )
        # If there is a slot, the snapshot was taken, unless it was interrupted or every start takes one.
        level: Level = "warning" if slot and self.mode.reads == "once" and self.streams else "error"
        if unreadable:
            yield Finding(
                level,
                "select",
                f"The user {self.user} may not read {listed(sorted(unreadable))} for a snapshot.",
                f"grant usage on schema …, grant select on … to {quoted(self.user)};",
            )
        yield from (Finding(level, "select", error.message, error.remedy) for error in some)

    def _read(self, oids: Sequence[int]) -> list[TableSchema]:
        """Return the tables `oids` with the columns that a snapshot reads."""
        settings = EventSettings.from_options(self.config)
        found = Catalog(self.connection, self.database).schemas(oids)
        return [settings.shaping.read(settings.shaping.keyed(table)) for table in found.values()]

    def _lockable(self, count: int) -> Iterator[Finding]:
        (room,) = self.row(
            "select current_setting('max_locks_per_transaction')::int8 * (current_setting('max_connections')::int8 "
            "+ current_setting('max_prepared_transactions')::int8)"
        )
        if count > room:
            yield Finding(
                "warning",
                "locks",
                f"A snapshot locks its {count} tables at once, and the server has room for {room} locks.",
                more_locks(),
            )

    def _collisions(self, captured: Sequence[CapturedTable]) -> Iterator[Finding]:
        settings = EventSettings.from_options(self.config)
        yield from collisions(settings, [table for _, table, _ in captured])

    def _matching(self, captured: Sequence[CapturedTable], condition: str) -> list[Any]:
        """Return the captured tables whose row `c` of pg_class meets `condition`."""
        rows = self.connection.execute(
            f"select c.oid::int8 from pg_class c where c.oid = any(%s::oid[]) and ({condition})".encode(),
            ([oid for oid, _, _ in captured],),
        ).fetchall()
        wanted = {oid for (oid,) in rows}
        return [table for oid, table, _ in captured if oid in wanted]
