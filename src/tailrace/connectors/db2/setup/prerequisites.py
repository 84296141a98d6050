"""Db2's prerequisites for capture, checked one by one. Driver; only reads.

`check` and `demand` open a connection of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from tailrace.columns.table import TableId
from tailrace.config import Config, TableFilter
from tailrace.config.files import checkpoint_directory
from tailrace.connectors.changetables.captured_tables import newest
from tailrace.connectors.changetables.log import backlog
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.db2.dialect import Db2Session, dialect
from tailrace.connectors.db2.server import health
from tailrace.connectors.db2.server.catalog import Catalog, Table, literal, quoted
from tailrace.connectors.db2.server.register import Registered
from tailrace.connectors.db2.setup import advice
from tailrace.connectors.db2.values.conversions import FORM
from tailrace.connectors.findings import Finding, collisions, demanded, listed, unmatched, value_findings
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

SHORT_MIN = 24 * 60
"""A retention limit of fewer minutes causes a warning: a pipeline may be stopped for a night."""

CONTROL = ("IBMSNAP_REGISTER", "IBMSNAP_UOW")
"""The control tables without which nothing is captured."""

_Found = TypeVar("_Found")

_REINIT = "values ASNCDC.ASNCDCSERVICES('reinit', 'asncdc')"
_ADD = f"call ASNCDC.ADDTABLE('SCHEMA', 'TABLE'), then {_REINIT}"


def check(config: Config) -> list[Finding]:
    """Return all findings, in the order of the checks, followed by advice.

    Raises ConnectionFailed or PrerequisiteError if there is no connection.
    """
    with closing(dialect(config).connect(config["database.dbname"])) as session:
        inspection = _Inspection(config, session)
        found = [*inspection.run(), *inspection.values(), *advice.encryption(config)]
        return found + list(advice.rights(config, session, inspection.registered))


def demand(config: Config) -> list[Finding]:
    """Return the findings without the advice. Raises PrerequisiteError with all errors among them if there are any.

    Findings on the checkpoint are left to the planner, which reports them itself.
    """
    with closing(dialect(config).connect(config["database.dbname"])) as session:
        found = list(_Inspection(config, session).run())
    return demanded([finding for finding in found if finding.subject != backlog.SUBJECT])


def adding(tables: Sequence[TableId]) -> list[str]:
    """Return the statements that put tables into capture mode."""
    calls = [f"call ASNCDC.ADDTABLE({literal(table.schema)}, {literal(table.table)});" for table in tables]
    return [*calls, f"{_REINIT};"] if calls else []


def unreadable(session: Db2Session, schema: str, table: str) -> str:
    """Return why a table cannot be read: "absent", or a sentence; "" if it can be read. Raises ConnectionFailed."""
    try:
        session.probe(schema, table)
    except ConnectionFailed:
        raise
    except TailraceError as error:
        there = session.catalog().columns([(schema, table)])
        return str(error.message) if there else "absent"
    return ""


def grant(config: Config, schema: str, table: str) -> str:
    """Return the statement that allows the user to read a table."""
    return f"grant select on {quoted(schema, table)} to user {config['database.user']}"


class _Inspection:
    """The checks of one database, over one session."""

    def __init__(self, config: Config, session: Db2Session) -> None:
        self.config = config
        self.session = session
        self.catalog: Catalog = session.catalog()
        self.mode = snapshot_mode(config)
        self.kept_min: int | None = None
        self.registered: list[Registered] = []

    def run(self) -> Iterator[Finding]:
        name, version = self.session.connection.server
        yield Finding("ok", "server", f"{name or 'A server without a name'}, version {version}.")
        control = list(self.control())
        yield from control
        if any(finding.level == "error" for finding in control):
            return
        yield from health.program(self.session.age_s())
        yield from self.retention()
        yield from self.left_out()
        yield from self.checkpoint()
        yield from self.tables()

    def values(self) -> list[Finding]:
        """Return the findings about columns whose values events leave out, or that a copy cannot show unchanged."""
        try:
            tables = [table for _, table in newest(self.session, TableFilter(self.config))] if self.registered else []
        except TailraceError:
            # a change table is gone, which another finding reports
            return []
        return value_findings(EventSettings.from_options(self.config), FORM, tables)

    def control(self) -> Iterator[Finding]:
        """Check the control tables: they exist, are readable, and their positions have the configured width."""
        schema = self.config["cdc.control.schema"]
        for table in CONTROL:
            fault = unreadable(self.session, schema, table)
            if fault == "absent":
                yield Finding(
                    "error",
                    "control",
                    f"There is no table {schema}.{table}: the control tables of SQL replication are not there.",
                    "Create them (asnclp: create control tables for capture server), or set cdc.control.schema.",
                )
                return
            if fault:
                remedy = f"{grant(self.config, schema, table)}."
                yield Finding("error", "control", f"{schema}.{table} cannot be read: {fault}", remedy)
                return
        try:
            newest = self.session.newest()
        except PrerequisiteError as error:
            yield Finding("error", "control", error.message, error.remedy)
            return
        if newest is None:
            yield Finding(
                "error",
                "control",
                "The register has no synch point: the capture program has never run.",
                f"Start it: asncap capture_server=… capture_schema={schema}.",
            )
        else:
            yield Finding("ok", "control", f"The register is in {schema}, and the log is read up to {newest.hex()}.")

    def retention(self) -> Iterator[Finding]:
        """Yield the retention of changes, by the capture program's parameters, the one row of IBMSNAP_CAPPARMS."""
        try:
            found = self.session.retention()
        except ConnectionFailed:
            raise
        except TailraceError:
            yield Finding(
                "warning",
                "retention",
                "IBMSNAP_CAPPARMS cannot be read, so it is unknown how long changes are kept.",
                f"{grant(self.config, self.config['cdc.control.schema'], 'IBMSNAP_CAPPARMS')}.",
            )
            return
        limit, prunes = found or (None, None)
        # the program's defaults: 10080 minutes, and pruning
        minutes = 10080 if limit is None else int(limit)
        if (prunes or "Y") != "Y":
            minutes = 0
            yield Finding("ok", "retention", "Changes are kept until they are pruned by hand (AUTOPRUNE is off).")
        elif minutes < SHORT_MIN:
            yield Finding(
                "warning",
                "retention",
                f"Changes are pruned after {minutes} minutes; a pipeline that is stopped for longer loses some.",
                "Raise RETENTION_LIMIT in IBMSNAP_CAPPARMS.",
            )
        else:
            yield Finding("ok", "retention", f"Changes are kept for {minutes / 60:.0f} hours.")
        self.kept_min = minutes or None

    def left_out(self) -> Iterator[Finding]:
        """Yield warnings about changes that the capture program leaves out; none where the user may not read about
        them, or an old program has no such table."""
        remedy = (
            "then read the tables by a snapshot (signal execute-snapshot), or repair copies: tailrace verify --repair."
        )
        applied, refused = _readable(self.session.left_out, (0, 0))
        if applied:
            yield Finding(
                "warning",
                "left_out",
                f"The capture program leaves out changes of an Apply program (RECAPTURE = N): {applied} so far.",
                f"Set RECAPTURE to Y in IBMSNAP_REGISTER, reinitialize the capture program, {remedy}",
            )
        if refused:
            yield Finding(
                "warning",
                "left_out",
                f"The capture program leaves out changes that triggers on CD tables refuse: {refused} so far.",
                f"Drop the triggers, {remedy}",
            )
        if rules := _readable(self.session.ignored, 0):
            yield Finding(
                "warning",
                "left_out",
                "The capture program ignores transactions that match a row of IBMSNAP_IGNTRAN "
                f"({rules} {'rule' if rules == 1 else 'rules'}).",
                f"Delete those whose changes you need, restart the capture program, {remedy}",
            )

    def checkpoint(self) -> Iterator[Finding]:
        """Check that the changes after the checkpoint still exist.

        IBMSNAP_PRUNCNTL has the positions of the Apply program's subscriptions, and a pipeline has none: only
        CD_OLD_SYNCHPOINT shows how far a change table was pruned.
        """
        read = backlog.reached(self.config, self.config["database.dbname"])
        if read is not None:
            age = self.session.unread_min(read.position)
            yield from backlog.held(
                self.session,
                read,
                age,
                self.kept_min,
                self.mode.mends,
                "",
                "raise RETENTION_LIMIT in IBMSNAP_CAPPARMS.",
            )

    def tables(self) -> Iterator[Finding]:
        chosen = TableFilter(self.config)
        registered = [row for row in self.session.register() if chosen.includes(row.schema, row.table)]
        self.registered = registered
        there = self.session.tables()
        existing = [table for table in there if chosen.includes(table.schema, table.table)]
        known = {(row.schema, row.table) for row in registered}
        missing = [table for table in existing if (table.schema, table.table) not in known]
        ids = [TableId(self.config["database.dbname"], row.schema, row.table) for row in registered]
        fault = None
        names = [(one.schema, one.table) for one in there] + [(one.schema, one.table) for one in registered]
        if not any(chosen.lists(*name) for name in names):
            is_fresh = stored_offset(checkpoint_directory(self.config)) is None
            fault = unmatched(self.config, map(".".join, names), is_fresh=is_fresh)
        if fault is not None:
            yield fault
        elif not registered:
            yield Finding("warning", "tables", "No table that the lists include is in capture mode.", f"{_ADD}.")
        else:
            count = "1 table is" if len(ids) == 1 else f"{len(ids)} tables are"
            yield Finding("ok", "tables", f"{count} captured: {listed(ids)}.")
        if missing and not chosen.is_open:
            yield Finding("warning", "tables", f"Not in capture mode: {listed(missing)}.", f"{_ADD}.")
        yield from health.states(registered)
        yield from health.columns(registered, self.catalog)
        yield from health.hidden(registered, self.catalog)
        yield from self.rights(registered)
        yield from self.keys(registered)
        yield from collisions(EventSettings.from_options(self.config), ids)
        yield from _cases(ids)
        yield from self.signals(registered)

    def rights(self, registered: Sequence[Registered]) -> Iterator[Finding]:
        """Check that change tables and, for snapshots, source tables can be read."""
        wanted = [(row.change_schema, row.change_table) for row in registered]
        if self.mode.reads != "never":
            # no snapshot reads the signal table
            signals = self.session.signal_table()
            own = None if signals is None else (signals.schema, signals.table)
            wanted += [(row.schema, row.table) for row in registered if (row.schema, row.table) != own]
        faults = {table: unreadable(self.session, *table) for table in wanted}
        gone = [".".join(table) for table, fault in faults.items() if fault == "absent"]
        closed = [table for table, fault in faults.items() if fault not in ("", "absent")]
        if gone:
            yield Finding(
                "error",
                "tables",
                f"Registered, but gone: {listed(gone)}.",
                f"Take the table out of capture mode (ASNCDC.REMOVETABLE) and put it back: {_ADD}.",
            )
        if closed:
            names = listed([".".join(table) for table in closed])
            user = self.config["database.user"]
            remedy = f"{grant(self.config, *closed[0])}."
            yield Finding("error", "rights", f"The user {user} may not read {names}.", remedy)
        elif registered and not gone:
            yield Finding(
                "ok", "rights", f"The user {self.config['database.user']} may read every table that is needed."
            )

    def keys(self, registered: Sequence[Registered]) -> Iterator[Finding]:
        bare = [f"{row.schema}.{row.table}" for row in registered if not self.catalog.key(row.schema, row.table)]
        if bare:
            yield Finding(
                "warning",
                "keys",
                f"Without primary key or unique index over NOT NULL columns, so keys are null: {listed(bare)}.",
                "Give them a key, or name columns in message.key.columns.",
            )

    def signals(self, registered: Sequence[Registered]) -> Iterator[Finding]:
        """Check the signal table: it exists, has three columns, and is in capture mode if signals are read from it."""
        table = self.session.signal_table()
        if table is None:
            return
        columns = self.catalog.columns([(table.schema, table.table)]).get((table.schema, table.table))
        if not columns:
            yield Finding(
                "error",
                "signals",
                f"There is no signal table {table}.",
                f"create table {quoted(table.schema, table.table)} (id varchar(42) not null primary key, type "
                "varchar(32) not null, data varchar(2048)).",
            )
            return
        if len(columns) != 3:
            yield Finding(
                "error",
                "signals",
                f"The signal table {table} has {len(columns)} columns, not the three for id, type and data.",
                "Create it with these three columns.",
            )
            return
        captured = any((row.schema, row.table) == (table.schema, table.table) for row in registered)
        if not captured and "source" in self.config["signal.enabled.channels"]:
            yield Finding(
                "error",
                "signals",
                f"The signal table {table} is not in capture mode, so no signal arrives.",
                f"{_ADD}.",
            )
            return
        yield Finding("ok", "signals", f"The signal table {table} can be used.")


def _readable(read: Callable[[], _Found], otherwise: _Found) -> _Found:
    """Return what `read` returns; `otherwise` if the table is absent or not readable. Raises ConnectionFailed."""
    try:
        return read()
    except ConnectionFailed:
        raise
    except TailraceError:
        return otherwise


def _cases(tables: Sequence[TableId]) -> Iterator[Finding]:
    """Yield a warning for tables whose names differ only by case."""
    seen: dict[Table, list[TableId]] = {}
    for table in tables:
        seen.setdefault((table.schema.upper(), table.table.upper()), []).append(table)
    alike = [" and ".join(map(str, found)) for found in seen.values() if len(found) > 1]
    if alike:
        yield Finding(
            "warning",
            "names",
            f"Names that differ only by case, so that one entry of a list matches all of them: {listed(alike)}.",
            "Leave one out by its exact name with table.exclude.list = (?-i:…), or rename it.",
        )
