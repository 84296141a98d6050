"""The SQL Server connector's options: Debezium 3.6's, the 1.x names that still work, and tailrace's own."""

from __future__ import annotations

from tailrace.config import connect, connector, credentials, processors, relational, signals
from tailrace.config.connector import NO_JVM, ConfigDraft, Options, formats
from tailrace.config.expressions import compile_expression
from tailrace.config.filters import quoted_parts, table_name
from tailrace.config.option import Kind, Option, at_least, between
from tailrace.config.timezone import timezone
from tailrace.connectors.changetables import options as changetables
from tailrace.connectors.sqlserver.server.driver import DRIVER

_CLASS = "io.debezium.connector.sqlserver.SqlServerConnector"


def _zone_fault(text: str) -> str:
    try:
        timezone(text)
    except ValueError as fault:
        return str(fault)
    return ""


IDENTITY = (
    *connector.NAMES,
    Option("connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.", _CLASS,
           choices=(_CLASS, "SqlServerConnector", "SqlServer")),
    Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
           "io.debezium.connector.sqlserver.SqlServerSourceInfoStructMaker", unsupported=NO_JVM),
    Option("source.timestamp.mode", Kind.TEXT, "1.x: what `source.ts_ms` shows.", "commit",
           unsupported="it is the time of the commit, as it is from Debezium 2 on"),
)  # fmt: skip

CONNECTION = (
    Option("database.hostname", Kind.TEXT, "Host name or address of the server."),
    Option("database.port", Kind.INTEGER, "Port of the server.", 1433, check=between(1, 65535)),
    Option("database.instance", Kind.TEXT,
           "Named instance, whose port the server's Browser service names; without effect beside database.port."),
    Option("database.user", Kind.TEXT, "Login that reads the change tables."),
    Option("database.password", Kind.SECRET, "Password of the login; best given as ${env:NAME} or ${file:PATH:KEY}."),
    *credentials.options("database."),
    Option("database.names", Kind.LIST, "Databases whose changes are captured; the format 1.0 has room for one.", [],
           aliases=("database.dbname",)),
    Option("database.include.list", Kind.EXPRESSIONS, "Of the databases named, those to capture.", []),
    Option("database.exclude.list", Kind.EXPRESSIONS, "Of the databases named, those to leave out.", []),
    Option("database.server.timezone", Kind.TEXT,
           "Time zone of the server's commit times: a region, such as Europe/Berlin, or an offset, such as +02:00. "
           "Unset: the server's present offset.", check=_zone_fault),
    relational.TIMEOUT,
    Option("database.query.timeout.ms", Kind.INTEGER, "Longest time of a statement, in ms; 0: no limit.", 600_000,
           check=at_least(0)),
    *DRIVER,
)  # fmt: skip

FILTERS = (
    *relational.LISTS,
    Option("capture.instance.include.list", Kind.EXPRESSIONS, "Capture instances to read.", []),
    Option("capture.instance.exclude.list", Kind.EXPRESSIONS, "Capture instances to leave out.", []),
    changetables.BUILTIN,
)  # fmt: skip

PLACEHOLDER = Option(
    "unavailable.value.placeholder", Kind.TEXT,
    "Placeholder in updates for an unchanged text, ntext, image or xml column, which change tables leave out; hex: "
    "before hexadecimal digits gives bytes. In the 1.0 format it is null.",
    "__debezium_unavailable_value", check=relational.placeholder_fault,
)  # fmt: skip

EVENTS = (
    *changetables.replacing(changetables.replacing(relational.VALUES, changetables.EVENTS), (PLACEHOLDER,)),
    *connector.RECORDS,
    *processors.OPTIONS,
)

SNAPSHOT = (
    Option("snapshot.mode", Kind.TEXT,
           "Snapshot before the change tables: initial (once), initial_only (once, then stop), always (at each start), "
           "no_data (none), when_needed (once, and again when the change tables no longer reach the checkpoint), "
           "configuration_based (as its switches say).",
           "initial", choices=(*changetables.MODES, "initial_schema_only"), refused=changetables.REFUSED_MODES,
           instead=changetables.TAKEN_MODES),
    Option("snapshot.isolation.mode", Kind.TEXT,
           "Isolation level of a chunk: repeatable_read (locks last as long as the chunk), snapshot (no locks; the "
           "database must allow it), read_committed, read_uncommitted (may show changes that are rolled back later), "
           "exclusive (the table is locked for others while a chunk is read). Rows end the same under each level; "
           "only single READ events differ.",
           "repeatable_read",
           choices=("repeatable_read", "snapshot", "read_committed", "read_uncommitted", "exclusive")),
    Option("snapshot.lock.timeout.ms", Kind.INTEGER, "Longest wait of a chunk for locks, in ms.", 10_000,
           check=at_least(0)),
    Option("snapshot.fetch.size", Kind.INTEGER, "Rows that a chunk fetches at once; obeyed only when given.", 2000,
           check=at_least(1)),
    *changetables.replacing(relational.SNAPSHOT, changetables.SNAPSHOT),
)  # fmt: skip

CHANGES = (
    Option("data.query.mode", Kind.TEXT,
           "Way to read changes: direct (from the change tables), function (by cdc.fn_cdc_get_all_changes_…, "
           "without rights on the change tables).",
           "direct", default_1x="function", choices=("direct", "function")),
    Option("query.fetch.size", Kind.INTEGER, "Changes fetched at once.", 10_000, check=at_least(1)),
    Option("streaming.fetch.size", Kind.INTEGER, "Changes that one query of Debezium returns at most.", 0,
           notice="a query returns all of its range, and its rows are converted as they arrive"),
    Option("database.sqlserver.agent.status.query", Kind.TEXT,
           "Query that returns 1 if the capture agent runs, else 0, for servers without sys.dm_server_services; ${db} "
           "stands for the database, in brackets.",
           "SELECT CASE WHEN dss.[status]=4 THEN 1 ELSE 0 END AS isRunning FROM ${db}.sys.dm_server_services dss "
           "WHERE dss.[servicename] LIKE N'SQL Server Agent (%'"),
    Option("internal.streaming.lsn.optimization", Kind.BOOLEAN, "Whether polls without changes are left out.", True,
           notice="a batch is only made of positions with changes"),
    Option("internal.change.column.filter.override", Kind.BOOLEAN,
           "Whether columns that are not captured are read by snapshots.", False,
           unsupported="changes would lack the columns that the snapshot has shown"),
    changetables.POSITION_CHECK,
)  # fmt: skip

_TABLE = r'(?:"(?:[^"]|"")+"|[^".]+)'


def _signal_fault(names: list[str]) -> str:
    if len(names) > 1:
        return "names several tables, but a pipeline keeps the progress of one incremental snapshot: name one"
    for name in names:
        parts = quoted_parts(name) or tuple(name.split("."))
        if len(parts) not in (2, 3) or not all(parts):
            return f"must be database.schema.table, a part with dots in double quotes, not {name!r}"
    return ""


SIGNALS = (
    Option("signal.data.collection", Kind.LIST,
           "Signal table, as database.schema.table; a part with dots in double quotes. Signals are read from it, "
           "watermarks are written to it. Its three columns are id, type and data.", [],
           check=_signal_fault),
    *(option for option in signals.SIGNALS if option.name not in ("signal.data.collection", "read.only")),
    Option("read.only", Kind.BOOLEAN, "Whether incremental snapshots write no watermarks.", False,
           notice="use driver.applicationIntent=ReadOnly; without a signal table nothing is written anyway"),
    Option("incremental.snapshot.option.recompile", Kind.BOOLEAN,
           "Add OPTION (RECOMPILE) to the queries of chunks.", False),
)  # fmt: skip

FLOW = changetables.replacing(connector.FLOW, changetables.FLOW)

OWN = (
    formats("1.0", "3 with topic.prefix, else 1.0"),
    *changetables.replacing(connector.OWN, changetables.OWN),
)


def signal_tables(names: list[str], databases: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Return the schema and table of each database's signal table. A name of two parts belongs to the first database.

    Raises ValueError for a database that is not read or has two signal tables. Its text continues the option's name.
    """
    found: dict[str, tuple[str, str]] = {}
    known = {name.lower(): name for name in databases}
    for name in names:
        parts = quoted_parts(name) or tuple(name.split("."))
        database = known.get(parts[0].lower()) if len(parts) == 3 else databases[0]
        if database is None:
            raise ValueError(f"names a table of the database {parts[0]}, which database.names does not name")
        if database in found:
            raise ValueError(f"names two tables of the database {database}")
        found[database] = table_name(name)
    return found


def _settle(draft: ConfigDraft) -> None:
    values = draft.values
    _settle_databases(draft)
    credentials.settle(draft)
    names = values["database.names"]
    without_login = values["driver.authentication"] or values["driver.integratedSecurity"]
    if not values["database.user"] and not without_login:
        draft.faults.append("database.user is missing")
    if "database.server.name" in draft.used and "driver.encrypt" not in draft.given:
        # Microsoft's driver encrypts by default since the version in Debezium 1.9; older configurations must still
        # connect.
        values["driver.encrypt"] = draft.implied["driver.encrypt"] = "false"
        draft.notices.append(
            "As in Debezium 1.x, only the login is encrypted, unless the server demands more: set database.encrypt."
        )
    if values["driver.serverCertificate"] and values["driver.hostNameInCertificate"]:
        draft.faults.append(
            "driver.hostNameInCertificate is not supported beside driver.serverCertificate, which compares the whole "
            "certificate: leave one of them out"
        )
    if "database.port" not in draft.given and values["database.instance"]:
        values["database.port"] = None
    if draft.event_format == "1.0" and len(names) > 1:
        draft.faults.append(
            "database.names lists several databases, whose tables share topics in the 1.0 format: set event.format = 3"
        )
    if values["signal.data.collection"] and names:
        try:
            signal_tables(values["signal.data.collection"], tuple(names))
        except ValueError as fault:
            draft.faults.append(f"signal.data.collection {fault}")


def _settle_databases(draft: ConfigDraft) -> None:
    """Reduce the named databases to those that the lists include."""
    values = draft.values
    named = values["database.names"]
    folded = [name.lower() for name in named]
    if len(set(folded)) < len(folded):
        draft.faults.append("database.names lists a database twice")
    try:
        included = [compile_expression(text) for text in values["database.include.list"]]
        excluded = [compile_expression(text) for text in values["database.exclude.list"]]
    except ValueError:
        return  # the check of all lists reports it
    left = [
        name
        for name in named
        if (not included or any(one.fullmatch(name) for one in included))
        and not any(one.fullmatch(name) for one in excluded)
    ]
    if named and not left:
        draft.faults.append("database.include.list and database.exclude.list leave no database of database.names")
    values["database.names"] = left


OPTIONS = Options(
    areas=(
        ("Names and topics", IDENTITY),
        ("Connection", CONNECTION),
        ("What is captured", FILTERS),
        ("Events", EVENTS),
        ("Snapshot", SNAPSHOT),
        ("Change tables", CHANGES),
        ("Signals, incremental snapshots, notifications", SIGNALS),
        ("Batches and retries", FLOW),
        ("Log that the server keeps", connector.KEPT_LOG),
        ("tailrace's own", OWN),
        ("Kafka Connect", connect.CONNECT),
    ),
    required=("database.hostname", "database.names"),
    event_format="1.0",
    generations={"database.server.name": "1.0", "topic.prefix": "3"},
    modes=changetables.OLDER_MODES,
    settle=_settle,
)
