"""SQL Server's prerequisites for capture, checked one by one. Driver; only reads.

`check` opens its own sessions; `demand` raises the errors among the findings as one exception, at the start of a
pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from tailrace.columns import TableId
from tailrace.config import Config, TableFilter
from tailrace.config.files import checkpoint_directory
from tailrace.connectors import findings
from tailrace.connectors.changetables.captured_tables import newest
from tailrace.connectors.changetables.log import backlog
from tailrace.connectors.checkpoint import stored_offset
from tailrace.connectors.findings import Finding, Level, demanded, listed, unmatched, value_findings
from tailrace.connectors.sqlserver.dialect import SqlServerDialect, SqlServerSession
from tailrace.connectors.sqlserver.options import signal_tables
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.server.health import CaptureHealth
from tailrace.connectors.sqlserver.setup import advice
from tailrace.connectors.sqlserver.values.conversions import FORM
from tailrace.connectors.sqlserver.values.texts import quoted
from tailrace.errors import TailraceError
from tailrace.events import names
from tailrace.events.event_settings import EventSettings
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from typing import Any

OLDEST = 13
"""The oldest supported version, SQL Server 2016: the first whose Standard edition has change data capture."""

_EXPRESS, _AZURE = 4, (5, 8)

TEXTS = frozenset(("char", "varchar", "nchar", "nvarchar", "text", "ntext"))
_LENGTHS = {"id": 42, "type": 32, "data": 2048}


def check(config: Config) -> list[Finding]:
    """Return all findings, in the order of the checks, followed by advice.

    Raises ConnectionFailed or PrerequisiteError if there is no connection.
    """
    advised = list(advice.encryption(config))
    doubted: list[Finding] = []

    def then(one: _Inspection) -> None:
        doubted.extend(one.values())
        advised.extend(advice.rights(config, one.session, one.captured))

    return _inspected(config, then) + doubted + advised


def _inspected(config: Config, then: Callable[[_Inspection], None]) -> list[Finding]:
    """Return the findings of each database. `then` is called while its session is open, if tables are captured."""
    dialect = SqlServerDialect(config)
    found: list[Finding] = []
    captured: list[TableId] = []
    for database in dialect.databases:
        with closing(dialect.connect(database)) as session:
            inspection = _Inspection(config, session, several=len(dialect.databases) > 1)
            if not found:
                found += inspection.server()
            found += inspection.run()
            captured += inspection.captured
            if inspection.captured:
                then(inspection)
    return found + collisions(config, captured)


def demand(config: Config) -> list[Finding]:
    """Return the findings without the advice. Raises PrerequisiteError with all errors among them if there are any.

    Findings on the checkpoint are left to the planner, which raises PositionLost for lost changes.
    """
    found = _inspected(config, lambda _: None)
    return demanded([finding for finding in found if finding.subject != backlog.SUBJECT])


def collisions(config: Config, captured: Sequence[TableId]) -> list[Finding]:
    """Return warnings for tables that share a name in events, or whose names in events differ only by case."""
    settings = EventSettings.from_options(config)
    shared = findings.collisions(settings, captured)
    if shared:
        return shared
    seen: dict[str, list[TableId]] = {}
    for table in captured:
        seen.setdefault(names.own_topic(settings, table).lower(), []).append(table)
    clashing = [f"{' and '.join(map(str, found))} ({name})" for name, found in seen.items() if len(found) > 1]
    if not clashing:
        return []
    return [
        Finding(
            "warning",
            "names",
            f"Tables have topics and schema names that differ by case alone: {listed(clashing)}.",
            "Rename one of them, or leave one out: lists, sinks and registries that ignore case mix them.",
        )
    ]


class _Inspection:
    """The checks of one database, over one session."""

    def __init__(self, config: Config, session: SqlServerSession, *, several: bool) -> None:
        self.config = config
        self.session = session
        self.mode = snapshot_mode(config)
        self.captured: list[TableId] = []
        self.user = config["database.user"] or "of this process"
        # with several databases each finding names its database
        self.of = f" in {session.database}" if several else ""
        self.health = CaptureHealth(session, config, self.of)

    def server(self) -> Iterator[Finding]:
        version, edition, engine = self.session.all(statements.VERSION)[0]
        named = f"SQL Server {version}, {edition}"
        if engine == _EXPRESS:
            yield Finding(
                "error", "server", f"{named}, has no change data capture.", "Use Standard, Developer or Enterprise."
            )
        elif engine not in _AZURE and int(version.partition(".")[0]) < OLDEST:
            yield Finding("error", "server", f"{named}, is too old.", "Use SQL Server 2016 or newer.")
        else:
            yield Finding("ok", "server", f"{named}.")

    def run(self) -> Iterator[Finding]:
        enabled, snapshot = self.session.all(statements.STATES)[0]
        if not enabled:
            yield Finding(
                "error",
                "capture",
                f"Change data capture is not enabled in the database {self.session.database}.",
                "As a member of sysadmin: exec sys.sp_cdc_enable_db;",
            )
            return
        may = statements.permitted("SELECT")
        if not all(self.session.one(may, quoted("cdc", name)) for name in statements.CATALOG):
            yield Finding(
                "error",
                "rights",
                f"The login {self.user} may not read the schema cdc of {self.session.database}.",
                "grant select on schema::cdc to …;",
            )
            return
        yield Finding("ok", "capture", f"Change data capture is enabled{self.of}.")
        yield from self.health.agent()
        yield from self.health.newest()
        yield from self.isolation(bool(snapshot == 1))
        yield from self.tables()
        yield from self.cleanup()
        if self.config["signal.data.collection"] and self.mode.streams:
            yield from self.signals()

    def isolation(self, allowed: bool) -> Iterator[Finding]:
        if self.config["snapshot.isolation.mode"] == "snapshot" and self.mode.reads != "never":
            name = self.session.database
            if allowed:
                yield Finding("ok", "isolation", f"The database {name} allows snapshot isolation.")
            else:
                yield Finding(
                    "error",
                    "isolation",
                    f"The database {name} does not allow snapshot isolation.",
                    f"alter database {quoted(name)} set allow_snapshot_isolation on; or choose another "
                    "snapshot.isolation.mode.",
                )

    def tables(self) -> Iterator[Finding]:
        chosen = TableFilter(self.config)
        passes, there = chosen.includes, self.session.tables()
        wanted = [table for table in there if passes(table.schema, table.table)]
        captures = [one for one in self.session.captures() if passes(one.source.schema, one.source.table)]
        self.captured = sorted({one.source for one in captures})
        gated = self._gated(passes)
        without = [table for table in wanted if table not in set(self.captured) | set(gated)]
        if gated:
            roles = ", ".join(sorted({role for _, role in gated.items()}))
            yield Finding(
                "error",
                "rights",
                f"The login {self.user} may not read the changes of {listed(sorted(gated))}{self.of}: it is not a "
                f"member of {roles}.",
                f"alter role {roles} add member …;",
            )
        fault = None
        if not any(chosen.lists(table.schema, table.table) for table in there):
            # with several databases, some may have no table that the lists match
            level: Level = "error" if len(self.config["database.names"]) < 2 else "warning"
            is_fresh = stored_offset(checkpoint_directory(self.config)) is None
            names = [f"{table.schema}.{table.table}" for table in there]
            fault = unmatched(self.config, names, is_fresh=is_fresh, level=level)
        if fault is not None:
            yield fault
        elif not self.captured:
            yield Finding(
                "error" if wanted and not gated else "warning",
                "tables",
                f"No table{self.of} that the lists include is captured.",
                "exec sys.sp_cdc_enable_table @source_schema = …, @source_name = …, @role_name = null; or correct the "
                "include and exclude lists.",
            )
        else:
            count = "1 table is" if len(self.captured) == 1 else f"{len(self.captured)} tables are"
            yield Finding("ok", "tables", f"{count} captured{self.of}: {listed(self.captured)}.")
        if without and self.captured:
            yield Finding(
                "warning",
                "tables",
                f"Tables without capture instance{self.of}, whose changes are not seen: {listed(without)}.",
                "exec sys.sp_cdc_enable_table @source_schema = …, @source_name = …, @role_name = null; or leave them "
                "out: table.exclude.list.",
            )
        yield from self.health.altered(captures)
        yield from self.health.covered(captures)
        if self.mode.reads != "never":
            yield from self.readable()

    def values(self) -> list[Finding]:
        """Return the findings about columns whose values events leave out, or that a copy cannot show unchanged."""
        try:
            tables = [table for _, table in newest(self.session, TableFilter(self.config))]
        except TailraceError:
            # a capture instance is gone, which another finding reports
            return []
        return value_findings(EventSettings.from_options(self.config), FORM, tables)

    def _gated(self, passes: Callable[[str, str], bool]) -> dict[TableId, str]:
        """Return the captured tables whose instances are all closed to the login, with the role that opens them."""
        found: dict[TableId, str] = {}
        for *_, schema, table, _, _, role in self.session.all(statements.CAPTURES):
            if not self.session.is_member(role) and passes(schema, table):
                found[TableId(self.session.database, schema, table)] = role
        return {table: role for table, role in found.items() if table not in self.captured}

    def readable(self) -> Iterator[Finding]:
        may = statements.permitted("SELECT")
        closed = [table for table in self.captured if not self.session.one(may, quoted(table.schema, table.table))]
        if closed:
            level: Level = "error"
            yield Finding(
                level,
                "select",
                f"The login {self.user} may not read {listed(closed)}{self.of} for a snapshot.",
                "grant select on … to …; or set snapshot.mode=no_data.",
            )
        elif self.captured:
            yield Finding("ok", "select", f"The login {self.user} may read every captured table{self.of}.")

    def cleanup(self) -> Iterator[Finding]:
        """Yield the retention of changes, and a finding if changes after the checkpoint may be lost."""
        try:
            found = self.session.all(statements.CLEANUP)
        except TailraceError:
            found = []
        kept = int(found[0][0]) if found else None
        if kept is not None:
            shown = f"{kept // 1440} days" if kept % 1440 == 0 else f"{kept} minutes"
            yield Finding(
                "ok",
                "retention",
                f"Changes{self.of} are kept for {shown}: the pipeline must not be stopped for longer.",
            )
        read = backlog.reached(self.config, self.session.database)
        if read is not None:
            age = self.session.one(statements.AGE, read.position)
            longer = "raise the retention: exec sys.sp_cdc_change_job @job_type = N'cleanup', @retention = <minutes>."
            yield from backlog.held(self.session, read, age, kept, self.mode.mends, self.of, longer)

    def signals(self) -> Iterator[Finding]:
        tables = signal_tables(self.config["signal.data.collection"], tuple(self.config["database.names"]))
        by_name = {name.lower(): table for name, table in tables.items()}
        named = by_name.get(self.session.database.lower())
        if named is None:
            return
        table = TableId(self.session.database, *named)
        columns = self.session.all(statements.SIGNAL_COLUMNS, table.schema, table.table)
        if not columns:
            yield Finding(
                "error",
                "signals",
                f"There is no signal table {table}{self.of}.",
                f"create table {quoted(table.schema, table.table)} (id varchar(42) primary key, "
                "type varchar(32) not null, data varchar(2048) null);",
            )
            return
        faults = list(self._signal_faults(table, columns))
        yield from faults
        if not faults:
            yield Finding("ok", "signals", f"The signal table {table}{self.of} can be used.")

    def _signal_faults(self, table: TableId, columns: Sequence[tuple[Any, ...]]) -> Iterator[Finding]:
        shaped = [kind in TEXTS for _, kind, *_ in columns[:3]]
        if len(columns) != 3 or not all(shaped):
            yield Finding(
                "error",
                "signals",
                f"The signal table {table}{self.of} lacks the three columns of text that it needs: id, type, data.",
                "Create it with id varchar(42), type varchar(32), data varchar(2048).",
            )
            return
        for (name, kind, length, *_), (part, needed) in zip(columns, _LENGTHS.items(), strict=True):
            size = length // 2 if kind in ("nchar", "nvarchar") else length
            if 0 < size < needed and kind not in ("text", "ntext"):
                yield Finding(
                    "warning",
                    "signals",
                    f"The column {name} of the signal table {table}{self.of} holds {size} characters; the {part} of a "
                    f"watermark or signal may have {needed}.",
                    "Make it wider.",
                )
        strategy = self.config["incremental.snapshot.watermarking.strategy"]
        rights = ["INSERT", *(["DELETE"] if strategy == "insert_delete" else [])]
        name = quoted(table.schema, table.table)
        lacking = [right for right in rights if not self.session.one(statements.permitted(right), name)]
        if lacking and self.config["driver.applicationIntent"] != "ReadOnly":
            yield Finding(
                "error",
                "signals",
                f"The login {self.user} may not write watermarks to the signal table {table}{self.of}.",
                f"grant {', '.join(lacking).lower()} on {name} to …;",
            )
        if "source" in self.config["signal.enabled.channels"] and not any(
            one.source == table for one in self.session.captures()
        ):
            yield Finding(
                "warning",
                "signals",
                f"The signal table {table}{self.of} has no capture instance, so that its rows are not seen.",
                f"exec sys.sp_cdc_enable_table @source_schema = N'{table.schema}', @source_name = N'{table.table}', "
                "@role_name = null;",
            )
