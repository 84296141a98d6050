"""The options of the connectors for MySQL and MariaDB: Debezium 3.6's, the 1.x names that still work, and tailrace's
own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.config import connect, connector, credentials, processors, relational, signals
from tailrace.config.connector import NO_JVM, ConfigDraft, Options
from tailrace.config.option import Kind, Option, at_least, between
from tailrace.connectors.binlog.debezium_offset import offset_fault
from tailrace.connectors.binlog.dialect import MARIADB, MYSQL, Dialect
from tailrace.connectors.binlog.values.converters import converter_faults
from tailrace.connectors.binlog.values.rules import rules_of_options

_NO_HISTORY = "the history of tables is in Spark's checkpoint, and no topic keeps it"
_ONE_SNAPSHOT = "all tasks read under one consistent snapshot"
_NO_BUFFER = "rows are delivered when their transaction has been committed, so nothing has to look ahead"
_RETRIES = "a lost session is opened again: errors.max.retries, retriable.restart.connector.wait.ms"
_DRIVER = "the driver is PyMySQL"
# Names that demand encryption or set variables of sessions match neither pattern: as unknown names they are refused.
_BY_ITS_PREFIX = r"driver\.(?!(?i:ssl.*|require.*|verify.*|.*certificate.*|tls.*|sessionVariables)$).+"
_OF_THE_DRIVER = (
    r"(?i:database\.(useSSL|allowPublicKeyRetrieval|connectionTimeZone|serverTimezone|forceConnectionTimeZoneToSession"
    r"|characterEncoding|useUnicode|zeroDateTimeBehavior|tinyInt1isBit|autoReconnect|useLegacyDatetimeCode"
    r"|useCursorFetch|defaultFetchSize))"
)
_ONE_PARSER = "statements are parsed in one way"


def _replacing(shared: Iterable[Option], own: Sequence[Option], *without: str) -> tuple[Option, ...]:
    """Return the options of `shared` and then `own`, without shared options that are in `own` or `without`."""
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
                    "Naming of topics: by database and table, by table alone (Schema…), with _uXXXX for characters "
                    "that topics cannot have (…Unicode…), or by an expression (…Regex…).",
                    "io.debezium.schema.DefaultTopicNamingStrategy",
                    choices=("io.debezium.schema.DefaultTopicNamingStrategy",
                             "io.debezium.schema.DefaultRegexTopicNamingStrategy",
                             "io.debezium.schema.DefaultUnicodeTopicNamingStrategy",
                             "io.debezium.schema.SchemaTopicNamingStrategy",
                             "io.debezium.schema.SchemaRegexTopicNamingStrategy",
                             "io.debezium.schema.SchemaUnicodeTopicNamingStrategy"),
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
        *credentials.options("database."),
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
            instead=tuple((word.translate(_OTHER), word, "both spellings are known") for word in words
                          if word.translate(_OTHER) != word),
        ),
        Option("database.ssl.keystore", Kind.TEXT, f"Path of the client's certificate and key: PEM, or {store}."),
        Option("database.ssl.keystore.password", Kind.SECRET, "Password of the key store, or of the key in PEM."),
        Option("database.ssl.truststore", Kind.TEXT,
               f"Path of the certificate authorities that verify the server: PEM, or {store}."),
        Option("database.ssl.truststore.password", Kind.SECRET, "Password of the trust store."),
        Option(
            "database.initial.statements", Kind.STATEMENTS,
            "SQL statements, separated by semicolons, run at the beginning of every session but the one that reads the "
            "log; `;;` is a semicolon within a statement.", [],
        ),
        Option("database.query.timeout.ms", Kind.INTEGER,
               "Longest time of a statement, in ms; 0: no limit. Neither the log nor the chunks of a snapshot are "
               "limited.", 600_000, check=at_least(0)),
        relational.TIMEOUT,
        Option("connect.keep.alive", Kind.BOOLEAN, "Whether a thread connects again.", True, notice=_RETRIES,
               neutral=(False,)),
        Option("connect.keep.alive.interval.ms", Kind.INTEGER,
               "Longest silence of the session that reads the log, in ms, after which it is opened again. The server "
               "is asked for a heartbeat at 0.8 of it.", 60_000, check=at_least(100)),
        Option("use.nongraceful.disconnect", Kind.BOOLEAN, "Whether connections are closed without a farewell.", False,
               notice="the session that reads the log is always closed at once", neutral=(True,)),
        Option("binlog.net.write.timeout", Kind.INTEGER,
               "Longest time in which the server waits to send the log, in s; 0: that of the server.", 0,
               check=at_least(0)),
        Option("binlog.net.read.timeout", Kind.INTEGER,
               "Longest time in which the server waits for an answer of this replica, in s; 0: that of the server.", 0,
               check=at_least(0)),
        Option("database.jdbc.driver", Kind.TEXT, "Java class of the driver.", "com.mysql.cj.jdbc.Driver",
               notice=_DRIVER),
        Option("database.protocol", Kind.TEXT, "Protocol of the driver.", f"jdbc:{dialect.name}", notice=_DRIVER,
               aliases=("database.jdbc.protocol",)),
        Option("database.connection.factory.class", Kind.TEXT, "Java class that makes connections.",
               unsupported=NO_JVM),
        Option("driver.<option>", Kind.TEXT, "Options of the Java driver.", pattern=_BY_ITS_PREFIX, notice=_DRIVER),
        Option("database.<property>", Kind.TEXT,
               "Options of the Java driver by their older prefix, such as `database.useSSL` and "
               "`database.connectionTimeZone`. `database.ssl.mode` says how connections are encrypted, and times do "
               "not depend on a session's zone.", pattern=_OF_THE_DRIVER, notice=_DRIVER),
    )  # fmt: skip


_OTHER = str.maketrans("-_", "_-")


def _log(dialect: Dialect) -> tuple[Option, ...]:
    source = "UUIDs" if dialect is MYSQL else "domain-server pairs"
    return (
        Option("include.query", Kind.BOOLEAN,
               "Show the statement of a change in source.query; the server must write it into the log: "
               + ("binlog_rows_query_log_events." if dialect is MYSQL else "binlog_annotate_row_events."), False),
        Option("capture.start.offset", Kind.TEXT,
               "Offset that Debezium has stored, as its JSON; a query without a checkpoint begins behind it, with "
               "`snapshot.mode=no_data`.", check=offset_fault),
        Option("gtid.source.includes", Kind.EXPRESSIONS,
               f"{source} of the servers whose transactions count when positions are compared.", []),
        Option("gtid.source.excludes", Kind.EXPRESSIONS,
               f"{source} of the servers whose transactions do not count when positions are compared.", []),
        Option("gtid.source.filter.dml.events", Kind.BOOLEAN,
               "Leave out the changes of servers that gtid.source.includes and gtid.source.excludes leave out.", True),
        Option("gtid.ignore.on.recovery", Kind.BOOLEAN,
               "Go on by file and position, without regard to the ids of transactions.", False),
        Option("binlog.buffer.size", Kind.INTEGER, "Events to look ahead for a rollback.", 0, notice=_NO_BUFFER),
        Option("inconsistent.schema.handling.mode", Kind.TEXT,
               "Response to rows of a captured table whose columns are not known: stop the pipeline, or leave the "
               "rows out, with a warning or without.", "fail", choices=("fail", "warn", "skip")),
        Option("on.unknown.ddl", Kind.TEXT,
               "Response to a statement on a captured table that cannot be followed, if the log does not name columns: "
               "stop the pipeline, or read the definition from the catalog if it fits the log (reread).",
               "fail", choices=("fail", "reread")),
        Option("on.zero.date", Kind.TEXT,
               "Value for dates without a month or a day, such as `0000-00-00`: null, the epoch, or an error that "
               "`event.converting.failure.handling.mode` handles. Unset, events have null, or the epoch where null "
               "is not allowed; typed rows have null; in tables null is an error unless that mode is `warn`.",
               choices=("null", "epoch", "error")),
        Option("ddl.parser.type", Kind.TEXT, "Parser of statements.", "default", notice=_ONE_PARSER,
               aliases=("ddl.parser.mode",)),
        Option("internal.log.position.check.enable", Kind.BOOLEAN, "Whether the position is checked at start.", True,
               notice="log and checkpoint are always compared, and a gap is an error"),
    )  # fmt: skip


_TABLES = {
    "table.include.list": "Tables to capture, as database.table.",
    "table.exclude.list": "Tables to leave out, as database.table.",
    "column.include.list": "Columns to show in values, as database.table.column; keys always have all of theirs.",
    "column.exclude.list": "Columns to leave out of values, as database.table.column; keys always have all of theirs.",
}
_OLDER = {"include.list": "whitelist", "exclude.list": "blacklist"}


def _listed(name: str, doc: str) -> Option:
    what, _, list_name = name.partition(".")
    return Option(name, Kind.EXPRESSIONS, doc, [], deprecated_names=(f"{what}.{_OLDER[list_name]}",))


def _filters() -> tuple[Option, ...]:
    lists = (
        _listed("database.include.list", "Databases to capture."),
        _listed("database.exclude.list", "Databases to leave out."),
        *(_listed(name, doc) for name, doc in _TABLES.items()),
        Option("datatype.propagate.source.type", Kind.EXPRESSIONS,
               "Types, as database.table.type, whose columns' schemas show type, length and scale in the database.",
               []),
        Option("message.key.columns", Kind.TEXT,
               "Columns of the keys, as `table:column,column;…`, tables as expressions over database.table.",
               check=next(option.check for option in relational.LISTS if option.name == "message.key.columns")),
    )  # fmt: skip
    return (
        *_replacing(relational.LISTS, lists, "schema.include.list", "schema.exclude.list"),
        relational.COMMANDS,
        Option("table.ignore.builtin", Kind.BOOLEAN, "Whether system tables are left out.", True,
               unsupported="the server's own databases are never captured"),
        Option("skip.messages.without.change", Kind.BOOLEAN,
               "Drop updates that change no column of the events.", False),
    )  # fmt: skip


CONVERTER_OPTION = (
    r"[\w\-]+\.(type|selector(\.(boolean|real|string))?|length\.checker|treat\.real\.as\.double|target\.types"
    r"|fallback\.(date|datetime|timestamp)|column\..+\.fallback)"
)
EVENTS = (
    Option("skipped.operations", Kind.LETTERS, "Operations without events: c, u, d, t; or none.", frozenset("t")),
    Option("include.schema.changes", Kind.BOOLEAN,
           "Send a record of each statement that changes a table or a database, on the topic topic.prefix.", True),
    Option("unavailable.value.placeholder", Kind.TEXT,
           "Placeholder for a value that the log does not carry (binlog_row_image other than FULL); `hex:` before "
           "hexadecimal digits gives bytes.",
           "__debezium_unavailable_value", check=relational.placeholder_fault),
    *_replacing(
        relational.VALUES,
        (
            Option("time.precision.mode", Kind.TEXT, "Form of dates and times.", "adaptive_time_microseconds",
                   choices=("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
                   refused=(("adaptive", "Debezium's connector no longer has it; adaptive_time_microseconds shows "
                             "times in microseconds"),)),
            Option("bigint.unsigned.handling.mode", Kind.TEXT,
                   "Form of BIGINT UNSIGNED: as int64, in which values above 9223372036854775807 become negative "
                   "(long), or as decimals (precise).", "long", choices=("long", "precise")),
            Option("enable.time.adjuster", Kind.BOOLEAN, "Read years below 100 in dates as 1970 to 2069.", True),
            Option("include.schema.comments", Kind.BOOLEAN,
                   "Show comments of tables and columns in records of schema changes, and in schemas that show a "
                   "column's type in the database.", False),
            Option("converters", Kind.LIST,
                   "Names of converters, of Debezium's classes TinyIntOneToBooleanConverter, "
                   "JdbcSinkDataTypesConverter and ZeroDateFallbackConverter.", []),
            Option("<converter name>.<option>", Kind.TEXT,
                   "Options of a converter that `converters` names; `type` is its class.", pattern=CONVERTER_OPTION),
        ),
        "sanitize.field.names",
    ),
    *connector.RECORDS,
    *processors.OPTIONS,
)  # fmt: skip

SNAPSHOT_MODES = (
    "initial", "always", "initial_only", "no_data", "schema_only", "never", "when_needed", "recovery",
    "schema_only_recovery", "configuration_based",
)  # fmt: skip


def _snapshot(dialect: Dialect) -> tuple[Option, ...]:
    locking: tuple[str, ...] = ("minimal", "minimal_at_least_once", "extended", "none")
    if dialect is MYSQL:
        locking += ("minimal_percona", "minimal_percona_no_table_locks")
    own = (
        Option("snapshot.include.collection.list", Kind.EXPRESSIONS,
               "Captured tables that the snapshot reads, as database.table; unset: all.", []),
        Option("snapshot.select.statement.overrides", Kind.LIST,
               "Tables, as database.table, with a snapshot statement of their own.", []),
    )  # fmt: skip
    return (
        Option(
            "snapshot.mode", Kind.TEXT,
            "Snapshot before the log: initial (once), initial_only (once, then stop), always (at each start), no_data "
            "(none), when_needed (once, and again when the log no longer reaches back to the checkpoint), recovery "
            "(none; definitions of tables are read from the catalog anew), configuration_based (as its switches say).",
            "initial", choices=SNAPSHOT_MODES, refused=(("custom", NO_JVM),),
        ),
        Option("snapshot.locking.mode", Kind.TEXT,
               "Lock of a snapshot: minimal (none if the server tells the position of a session, else for the moment "
               "in which sessions begin), extended (until all rows are read: nobody can write meanwhile), none (rows "
               "may show changes that the log brings again). The other words mean minimal.",
               "minimal", choices=locking, refused=(("custom", NO_JVM),)),
        Option("snapshot.lock.timeout.ms", Kind.INTEGER,
               "Longest wait for the lock under which sessions of the snapshot begin, in ms.", 10_000,
               check=at_least(0)),
        Option("snapshot.fetch.size", Kind.INTEGER, "Rows fetched at once.", check=at_least(1),
               notice="rows are converted as they arrive"),
        Option("min.row.count.to.stream.results", Kind.INTEGER, "Rows from which results are streamed.", 1000,
               notice="rows are converted as they arrive"),
        Option("snapshot.isolation.mode", Kind.TEXT, "Isolation of the snapshot.", "repeatable_read",
               choices=("repeatable_read",),
               instead=(("serializable", "repeatable_read", "it shows the same rows, and locks none of them"),
                        *((mode, "repeatable_read", _ONE_SNAPSHOT)
                          for mode in ("read_committed", "read_uncommitted")))),
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
    Option("schema.history.internal.<option>", Kind.TEXT, "Options of the history of tables.",
           pattern=r"(schema\.history\.internal|database\.history)\..+", notice=_NO_HISTORY),
)  # fmt: skip

FLOW = (
    *connector.SPOOLED,
    Option("max.queue.size.in.bytes", Kind.INTEGER,
           "Maximum number of bytes in the spool, the first 128 MB in memory and the rest on disk; 0: 640 MB.", 0,
           check=at_least(0)),
)  # fmt: skip

OWN = (
    Option("event.format", Kind.TEXT, "Debezium whose events are written.", choices=("3",)),
    *connector.OWN,
)  # fmt: skip


def _settle(draft: ConfigDraft) -> None:
    values = draft.values
    credentials.settle(draft)
    # the lists of databases select by the first part of a table's name
    for end in ("include.list", "exclude.list"):
        values[f"schema.{end}"] = values[f"database.{end}"]
    # a database takes the place of a schema: Debezium's Default… has it in the topic's name, Schema… has not
    package, _, strategy = values["topic.naming.strategy"].rpartition(".")
    kind, other = ("Default", "Schema") if strategy.startswith("Default") else ("Schema", "Default")
    values["topic.naming.strategy"] = f"{package}.{other}{strategy.removeprefix(kind)}"
    if values["capture.start.offset"] and values["snapshot.mode"] != "no_data":
        draft.faults.append("capture.start.offset needs snapshot.mode=no_data, since a snapshot has a place of its own")
    faults = list(converter_faults(values))
    draft.faults += faults
    if not faults:
        values["binlog.values"] = rules_of_options(values, draft.given)


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
            ("Log that the server keeps", connector.KEPT_LOG),
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
