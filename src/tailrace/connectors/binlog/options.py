"""The options of the connectors for MySQL and MariaDB: Debezium 3.6's, the 1.x names that still work, and tailrace's
own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.config import connect, connector, processors, relational, signals
from tailrace.config.connector import NO_JVM, Draft, Options
from tailrace.config.option import Kind, Option, at_least, between
from tailrace.connectors.binlog.dialect import MARIADB, MYSQL, Dialect
from tailrace.connectors.binlog.values.converters import converter_faults
from tailrace.connectors.binlog.values.rules import rules_of_options

_NO_HISTORY = "the history of tables is in Spark's checkpoint, and no topic keeps it"
_NO_LOCKS = (
    "a snapshot locks as little as the server allows: not at all if the server tells a consistent position, else for "
    "the moment in which its sessions begin"
)
_ONE_SNAPSHOT = "all tasks read under one consistent snapshot"
_NO_BUFFER = "rows are delivered when their transaction has been committed, so nothing has to look ahead"
_RETRIES = "a lost session is opened again: errors.max.retries, retriable.restart.connector.wait.ms"
_DRIVER = "the driver is PyMySQL"
_ONE_PARSER = "statements are parsed in one way"


def _replacing(shared: Iterable[Option], own: Sequence[Option], *without: str) -> tuple[Option, ...]:
    """Return the options of `shared` with those of `own` in their place or behind them, and none called `without`."""
    names = {option.name for option in own} | set(without)
    return (*(option for option in shared if option.name not in names), *own)


def _identity(dialect: Dialect) -> tuple[Option, ...]:
    short = dialect.class_name.rpartition(".")[2]
    return (
        *_replacing(
            connector.NAMES,
            (
                Option(
                    "topic.naming.strategy", Kind.TEXT,
                    "Naming of topics: by database and table, or by an expression (…Regex…).",
                    "io.debezium.schema.DefaultTopicNamingStrategy",
                    choices=("io.debezium.schema.DefaultTopicNamingStrategy",
                             "io.debezium.schema.DefaultRegexTopicNamingStrategy",
                             "io.debezium.schema.SchemaTopicNamingStrategy",
                             "io.debezium.schema.SchemaRegexTopicNamingStrategy"),
                ),
            ),
        ),
        Option("connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.",
               dialect.class_name, choices=(dialect.class_name, short, dialect.title, dialect.name)),
        Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
               f"{dialect.package}.{short.removesuffix('Connector')}SourceInfoStructMaker", unsupported=NO_JVM),
    )  # fmt: skip


def _connection(dialect: Dialect) -> tuple[Option, ...]:
    store = "a key store of the type PKCS12"
    words = tuple(dialect.tls_modes)
    return (
        Option("database.hostname", Kind.TEXT, "Host name or address of the server."),
        Option("database.port", Kind.INTEGER, "Port of the server.", 3306, check=between(1, 65535)),
        Option("database.user", Kind.TEXT, "User that reads the log; needs REPLICATION SLAVE and "
               f"{dialect.log_right}."),
        Option("database.password", Kind.SECRET,
               "Password of the user; best given as ${env:NAME} or ${file:PATH:KEY}."),
        Option(
            "database.server.id", Kind.INTEGER,
            "Number of this replica, which no other replica of the server may have; unset: a random number.",
            check=between(1, 2**32 - 1),
        ),
        Option("database.server.id.offset", Kind.INTEGER, "Distance of the numbers of several tasks.", 10_000,
               check=at_least(1), notice="the log has one reader, and so one number"),
        Option(
            "database.ssl.mode", Kind.TEXT, "Use of TLS.", dialect.tls_default,
            choices=words,
        ),
        Option("snapshot.locking.mode", Kind.TEXT, "Locks of the snapshot.", "minimal", choices=locking,
               refused=(("custom", NO_JVM),), notice=_NO_LOCKS),
        Option("snapshot.lock.timeout.ms", Kind.INTEGER,
               "Longest wait for the lock under which sessions of the snapshot begin, in ms.", 10_000,
               check=at_least(0)),
        Option("snapshot.fetch.size", Kind.INTEGER, "Rows fetched at once.", check=at_least(1),
               notice="rows are converted as they arrive"),
        Option("min.row.count.to.stream.results", Kind.INTEGER, "Rows from which results are streamed.", 1000,
               notice="rows are converted as they arrive"),
        Option("snapshot.isolation.mode", Kind.TEXT, "Isolation of the snapshot.", "repeatable_read",
               choices=("repeatable_read", "serializable"),
               instead=tuple((mode, "repeatable_read", _ONE_SNAPSHOT)
                             for mode in ("read_committed", "read_uncommitted"))),
        Option("snapshot.mode.configuration.based.snapshot.schema", Kind.BOOLEAN,
               "configuration_based: whether schemas are read.", False, notice=_NO_HISTORY),
        Option("snapshot.mode.configuration.based.snapshot.on.data.error", Kind.BOOLEAN,
               "configuration_based: read rows again when the log no longer reaches back to the checkpoint.", False),
        Option("snapshot.mode.configuration.based.snapshot.on.schema.error", Kind.BOOLEAN,
               "configuration_based: whether schemas are read again when their history is lost.", False,
               notice=_NO_HISTORY),
        Option("snapshot.new.tables", Kind.TEXT, "1.x: snapshot of tables that are new in the lists.", "off",
               unsupported="send a signal execute-snapshot for them", neutral=("off",)),
        Option("query.fetch.size", Kind.INTEGER, "Rows fetched at once by other queries.", 0,
               notice="other queries return few rows and are read whole"),
        *_replacing(relational.SNAPSHOT, own),
    )  # fmt: skip


SIGNALS = tuple(
    Option(
        option.name, option.kind,
        "Signal table, as database.table; a part with dots in double quotes. Its rows are signals, and incremental "
        "snapshots write their watermarks into it. Its first three columns are id, type and data.",
        check=option.check,
    )
    if option.name == "signal.data.collection" else option
    for option in signals.SIGNALS
)  # fmt: skip

HISTORY = (
    Option("schema.history.internal.store.only.captured.tables.ddl", Kind.BOOLEAN,
           "Leave out the records of schema changes of tables that are not captured.", False,
           aliases=("database.history.store.only.captured.tables.ddl",)),
    Option("schema.history.internal.store.only.captured.databases.ddl", Kind.BOOLEAN,
           "Leave out the records of schema changes in databases that are not captured.", False,
           aliases=("database.history.store.only.captured.databases.ddl",)),
    Option("schema.history.internal.skip.unparseable.ddl", Kind.BOOLEAN,
           "Whether statements that cannot be parsed are passed over.", False,
           aliases=("database.history.skip.unparseable.ddl",),
           notice="a statement that cannot be followed stops the pipeline only if it concerns a captured table whose "
           "columns the log does not name: on.unknown.ddl"),
    Option("schema.history.internal", Kind.TEXT, "Java class of the history.",
           "io.debezium.storage.kafka.history.KafkaSchemaHistory", aliases=("database.history",), notice=_NO_HISTORY),
    Option("schema.history.internal.<option>", Kind.SECRET, "Options of the history of tables.",
           pattern=r"(schema\.history\.internal|database\.history)\..+", notice=_NO_HISTORY),
)  # fmt: skip

FLOW = (
    *connector.SPOOLED,
    Option("max.queue.size.in.bytes", Kind.INTEGER,
           "Maximum number of bytes in the spool, and of transactions before their commit; 0: the reader's own limits, "
           "640 MB and 512 MB.", 0, check=at_least(0)),
)  # fmt: skip

OWN = (
    Option("event.format", Kind.TEXT, "Debezium whose events are written.", choices=("3",)),
    *connector.OWN,
)  # fmt: skip


def _settle(draft: Draft) -> None:
    values = draft.values
    # the lists of databases are those that name the first part of a table
    for end in ("include.list", "exclude.list"):
        values[f"schema.{end}"] = values[f"database.{end}"]
    # a table's topic has its database in either spelling of the strategy
    strategy = values["topic.naming.strategy"]
    values["topic.naming.strategy"] = strategy.replace(".Default", ".Schema")
    faults = list(converter_faults(values))
    draft.faults += faults
    if not faults:
        values["binlog.values"] = rules_of_options(values)


def _table(dialect: Dialect) -> Options:
    return Options(
        areas=(
            ("Names and topics", _identity(dialect)),
            ("Connection", _connection(dialect)),
            ("The log", _log(dialect)),
            ("What is captured", _filters()),
            ("Events", EVENTS),
            ("Snapshot", _snapshot(dialect)),
            ("Schema changes", HISTORY),
            ("Signals, incremental snapshots, notifications", SIGNALS),
            ("Batches and retries", FLOW),
            ("tailrace's own", OWN),
            ("Kafka Connect", connect.CONNECT),
        ),
        required=("database.hostname", "database.user"),
        event_format="3",
        generations={},
        modes={"schema_only": "no_data", "never": "no_data", "schema_only_recovery": "recovery"},
        settle=_settle,
    )


MYSQL_OPTIONS = _table(MYSQL)
MARIADB_OPTIONS = _table(MARIADB)
