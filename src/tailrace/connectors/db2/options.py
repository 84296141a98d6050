"""The Db2 connector's options: Debezium 3.6's, the older names that still work, and tailrace's own."""

from __future__ import annotations

from tailrace.config import connect, connector, credentials, processors, relational, signals
from tailrace.config.connector import NO_JVM, ConfigDraft, Options, formats
from tailrace.config.option import Kind, Option, at_least, between, matching
from tailrace.connectors.changetables import options as changetables
from tailrace.connectors.db2.server.driver import PREFIX, idle_notice, property_fault

_CLASS = "io.debezium.connector.db2.Db2Connector"
_ONE = "a connection belongs to one database, the one that database.dbname names"
_NAME = r"[^\s.\"'][^.\"']*"
_BOUNDED = "a batch is bounded in transactions and rows, and its rows are converted as they arrive"

IDENTITY = (
    *connector.NAMES,
    Option("connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.", _CLASS,
           choices=(_CLASS, "Db2Connector", "Db2")),
    Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
           "io.debezium.connector.db2.Db2SourceInfoStructMaker", unsupported=NO_JVM),
)  # fmt: skip

CONNECTION = (
    Option("database.hostname", Kind.TEXT, "Host name or address of the server."),
    Option("database.port", Kind.INTEGER, "Port of the server.", 50000, check=between(1, 65535)),
    Option("database.user", Kind.TEXT, "User that reads the change tables and the source tables."),
    Option("database.password", Kind.SECRET, "Password of the user; best given as ${env:NAME} or ${file:PATH:KEY}."),
    *credentials.options("database."),
    Option("database.dbname", Kind.TEXT, "Database whose changes are captured; on z/OS the location."),
    relational.TIMEOUT,
    Option("database.query.timeout.ms", Kind.INTEGER,
           "Longest time of a statement, in ms; 0: no limit. Neither changes nor the chunks of a snapshot are limited.",
           600_000, check=at_least(0)),
    Option("database.include.list", Kind.EXPRESSIONS, "Databases to capture.", notice=_ONE),
    Option("database.exclude.list", Kind.EXPRESSIONS, "Databases to leave out.", notice=_ONE),
    Option("driver.<keyword>", Kind.SECRET,
           "Keywords of IBM's CLI driver, such as driver.Security=SSL, driver.SSLServerCertificate=PATH or "
           "driver.Authentication=SERVER_ENCRYPT, and Java properties with an equivalent: sslConnection, "
           "sslCertLocation, securityMechanism, currentSchema, loginTimeout, the client's names.",
           pattern=r"driver\..+"),
)  # fmt: skip

CAPTURE = (
    Option("db2.platform", Kind.TEXT,
           "Kind of Db2: LUW (Linux, UNIX, Windows) or Z (z/OS; Debezium's documentation calls it ZOS). It decides the "
           "width of positions, unless db2.position.bytes does.",
           "LUW", choices=("LUW", "Z", "ZOS")),
    Option("db2.position.bytes", Kind.INTEGER,
           "Bytes of IBMSNAP_COMMITSEQ: 16, or 10 where the control tables are older than version 10. Unset: 16 for "
           "LUW, 10 for Z.", check=lambda value: "" if value in (10, 16) else f"must be 10 or 16, not {value}"),
    Option("cdc.control.schema", Kind.TEXT, "Schema of the capture program's control tables.", "ASNCDC",
           check=matching(_NAME, "a schema's name")),
    Option("cdc.change.tables.schema", Kind.TEXT,
           "Schema of the change-data tables; obeyed only when given, else the register names it for each table.",
           "ASNCDC", check=matching(_NAME, "a schema's name")),
    Option("streaming.query.timespan.seconds", Kind.INTEGER, "Longest time that one query of changes spans, in s.", 0,
           check=at_least(0), notice=_BOUNDED),
    Option("z.stop.lsn.ignore", Kind.BOOLEAN, "Whether a stop position in the register is passed over.", False,
           notice="the register's synch points never end a table's changes here"),
    Option("query.fetch.size", Kind.INTEGER, "Rows fetched at once.", 10_000, check=at_least(0),
           notice="rows come in blocks of the driver; driver.FET_BUF_SIZE sets their size"),
    changetables.POSITION_CHECK,
)  # fmt: skip

FILTERS = (
    *relational.LISTS,
    changetables.BUILTIN,
)  # fmt: skip

EVENTS = (
    *changetables.replacing(relational.VALUES, changetables.EVENTS),
    *connector.RECORDS,
    *processors.OPTIONS,
)

SNAPSHOT = (
    Option("snapshot.mode", Kind.TEXT,
           "Snapshot before the change tables: initial (once), initial_only (once, then stop), always (at each start), "
           "no_data (none), when_needed (once, and again when the change tables no longer reach the checkpoint), "
           "configuration_based (as its switches say).",
           "initial", choices=changetables.MODES, refused=changetables.REFUSED_MODES,
           instead=changetables.TAKEN_MODES),
    Option("snapshot.isolation.mode", Kind.TEXT,
           "Isolation level of a chunk: repeatable_read (WITH RS: locks last as long as the chunk), read_committed "
           "(WITH CS), read_uncommitted (WITH UR: may show changes that are rolled back later), exclusive (the table "
           "is locked for others while a chunk is read). Rows end the same under each level; only single READ events "
           "differ.",
           "repeatable_read", choices=("repeatable_read", "read_committed", "read_uncommitted", "exclusive")),
    Option("snapshot.lock.timeout.ms", Kind.INTEGER, "Longest wait of a chunk for locks, in ms.", 10_000,
           notice="the database's LOCKTIMEOUT or driver.LockTimeout sets it"),
    Option("snapshot.fetch.size", Kind.INTEGER, "Rows that a chunk fetches at once.", 2000, check=at_least(1),
           notice="rows come in blocks of the driver; driver.FET_BUF_SIZE sets their size"),
    *changetables.replacing(relational.SNAPSHOT, changetables.SNAPSHOT),
)  # fmt: skip

SIGNALS = (
    *(option for option in signals.SIGNALS if option.name != "read.only"),
    Option("read.only", Kind.BOOLEAN, "Whether incremental snapshots write no watermarks.", False,
           notice="without a signal table nothing is written anyway"),
)  # fmt: skip

FLOW = changetables.replacing(
    changetables.replacing(connector.FLOW, changetables.FLOW),
    (
        Option("schema.history.internal.store.only.captured.tables.ddl", Kind.BOOLEAN,
               "Whether schema changes leave out tables that are not captured.", False,
               notice="schema changes are of captured tables alone"),
    ),
)  # fmt: skip

OWN = (
    formats("2.3", "2.3, whatever the names of the other options"),
    *changetables.replacing(connector.OWN, changetables.OWN),
)


def _settle(draft: ConfigDraft) -> None:
    values = draft.values
    credentials.settle(draft)
    for name in draft.given:
        if name.lower().startswith(PREFIX):
            fault, notice = property_fault(name, str(values[name])), idle_notice(name)
            if fault:
                draft.faults.append(fault)
            elif notice:
                draft.notices.append(notice)
    for name in ("database.hostname", "database.user", "database.dbname", "database.password"):
        if values[name] and any(sign in values[name] for sign in ";{}"):
            draft.faults.append(
                f"{name} holds a semicolon or a brace, which the driver's connection string cannot carry"
            )
    if values["db2.platform"] == "ZOS":
        values["db2.platform"] = "Z"
    if values["db2.position.bytes"] is None:
        values["db2.position.bytes"] = 10 if values["db2.platform"] == "Z" else 16
    if values["cdc.change.tables.schema"] == CHANGES_SCHEMA and "cdc.change.tables.schema" not in draft.given:
        values["cdc.change.tables.schema"] = None


CHANGES_SCHEMA = "ASNCDC"

OPTIONS = Options(
    areas=(
        ("Names and topics", IDENTITY),
        ("Connection", CONNECTION),
        ("Capture program", CAPTURE),
        ("What is captured", FILTERS),
        ("Events", EVENTS),
        ("Snapshot", SNAPSHOT),
        ("Signals, incremental snapshots, notifications", SIGNALS),
        ("Batches and retries", FLOW),
        ("Log that the server keeps", connector.KEPT_LOG),
        ("tailrace's own", OWN),
        ("Kafka Connect", connect.CONNECT),
    ),
    required=("database.hostname", "database.user", "database.dbname"),
    event_format="2.3",
    generations={},
    modes=changetables.OLDER_MODES,
    settle=_settle,
)
