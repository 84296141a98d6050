"""The PostgreSQL connector's options: Debezium 3.6's, the 1.x names that still work, and tailrace's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config.columns import key_columns
from tailrace.config.naming import STRATEGIES
from tailrace.config.option import Kind, Option, at_least, between, matching

_NO_JVM = "it names a Java class, and no Java plug-ins are loaded"
_NO_HISTORY = "PostgreSQL's schemas come from its catalog and its log"
_NO_QUEUE = "there is no queue between reader and converter that it could tune"


def _keys_fault(text: str) -> str:
    try:
        key_columns(text)
    except ValueError as fault:
        return str(fault)
    return ""


_OWN_PARAMETERS = ("proto_version", "publication_names", "messages", "streaming", "two_phase")


def stream_parameters(parts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of slot.stream.params, as the server gets them."""
    return tuple((name.strip(), value.strip()) for name, _, value in (part.partition("=") for part in parts))


def _parameter_fault(parts: Sequence[str]) -> str:
    for name, value in stream_parameters(parts):
        if not re.fullmatch(r"[a-z_]+", name) or not value:
            return "must list name=value, separated by semicolons"
        if name in _OWN_PARAMETERS:
            return f"cannot set {name}, which the reader of the log sets itself"
        if name == "binary":
            return "cannot set binary: values are read as text"
    return ""


CONNECTION = (
    Option("database.hostname", Kind.TEXT, "Host name or address of the server, or a directory of its Unix socket."),
    Option("database.port", Kind.INTEGER, "Port of the server.", 5432, check=between(1, 65535)),
    Option("database.user", Kind.TEXT, "User that reads the log; needs LOGIN and REPLICATION."),
    Option("database.password", Kind.SECRET, "Password of the user; best given as ${env:NAME} or ${file:PATH:KEY}."),
    Option("database.dbname", Kind.TEXT, "Database whose changes are captured."),
    Option(
        "database.sslmode", Kind.TEXT, "How TLS is used, as libpq understands it.", "prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Option("database.sslcert", Kind.TEXT, "Path of the client's certificate, PEM."),
    Option("database.sslkey", Kind.TEXT, "Path of the client's private key, PEM."),
    Option("database.sslpassword", Kind.SECRET, "Password of the client's private key."),
    Option("database.sslrootcert", Kind.TEXT, "Path of the certificate authorities that the server is checked with."),
    Option("database.sslfactory", Kind.TEXT, "Java socket factory.", unsupported=_NO_JVM),
    Option("database.tcpKeepAlive", Kind.BOOLEAN, "Whether TCP keep-alive probes are sent.", True),
    Option(
        "database.initial.statements", Kind.STATEMENTS,
        "SQL run on each new connection except that of the log; `;;` is a semicolon within a statement.", [],
    ),
    Option(
        "connection.validation.timeout.ms", Kind.INTEGER, "How long a connection may take to come up, in ms.", 60_000,
        check=at_least(1000),
    ),
    Option(
        "database.query.timeout.ms", Kind.INTEGER,
        "Longest time of a statement, in ms; 0: no limit. Neither the log nor the chunks of a snapshot are limited.",
        600_000, check=at_least(0),
    ),
    Option(
        "database.connection.factory.class", Kind.TEXT, "Java class that makes connections.", unsupported=_NO_JVM
    ),
    Option(
        "database.include.list", Kind.EXPRESSIONS, "Databases to capture.",
        unsupported="a slot belongs to one database: name it in database.dbname",
    ),
    Option(
        "database.exclude.list", Kind.EXPRESSIONS, "Databases to leave out.",
        unsupported="a slot belongs to one database: name it in database.dbname",
    ),
)  # fmt: skip

IDENTITY = (
    Option("name", Kind.TEXT, "Name of the connector; names the checkpoint as well."),
    Option(
        "connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.",
        "io.debezium.connector.postgresql.PostgresConnector",
        choices=("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "PostgreSQL", "postgres"),
    ),
    Option(
        "tasks.max", Kind.INTEGER, "Number of Kafka Connect tasks.", 1, check=at_least(1),
        notice="the log has one reader, and the parallelism of the rest is Spark's",
    ),
    Option(
        "topic.prefix", Kind.TEXT, "Logical name of the server: first part of topics and schema names.",
        aliases=("database.server.name",),
        check=matching(r"[\w.\-]+", "letters, digits, hyphens, dots and underscores only"),
    ),
    Option("topic.delimiter", Kind.TEXT, "What stands between the parts of a topic's name.", "."),
    Option(
        "topic.naming.strategy", Kind.TEXT,
        "How topics are named: by schema and table, by table alone (Default…), or by an expression (…Regex…).",
        "io.debezium.schema.SchemaTopicNamingStrategy", choices=tuple(STRATEGIES),
    ),
    Option("topic.regex", Kind.TEXT, "Java expression over a topic's whole name, for the strategies by expression."),
    Option("topic.replacement", Kind.TEXT, "What the name becomes; $1 or ${name} is a group of topic.regex."),
    Option("topic.key.enforce.uniqueness", Kind.BOOLEAN,
           "Whether a strategy by expression gives each key a field that tells the table.", True),
    Option("topic.key.field.name", Kind.TEXT, "Name of that field.", "__dbz__physicalTableIdentifier"),
    Option("topic.key.field.regex", Kind.TEXT, "Java expression over that field's value, the topic's former name."),
    Option("topic.key.field.replacement", Kind.TEXT, "What the value becomes."),
    Option("topic.cache.size", Kind.INTEGER, "Size of the cache of topic names.", 10_000, unsupported=_NO_QUEUE),
    Option(
        "topic.heartbeat.prefix", Kind.TEXT, "Prefix of heartbeat topics.", "__debezium-heartbeat",
        deprecated_names=("heartbeat.topics.prefix",),
    ),
    Option("topic.heartbeat.name", Kind.TEXT, "Name of the heartbeat topic; unset: prefix and logical name."),
    Option(
        "topic.transaction", Kind.TEXT, "Last part of the name of the transaction topic.", "transaction",
        deprecated_names=("transaction.topic",),
    ),
    Option("unknown.properties.ignored", Kind.BOOLEAN, "Whether unknown options pass.", False,
           unsupported="an unknown option is always an error, since it is nearly always a misspelt one"),
    Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
           "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker", unsupported=_NO_JVM),
    Option("source.struct.version", Kind.TEXT, "Version of the source block.", "v2",
           unsupported="the source block follows event.format"),
    Option("transaction.metadata.factory", Kind.TEXT, "Java class that makes transaction metadata.",
           "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory", unsupported=_NO_JVM),
)  # fmt: skip

SLOT = (
    Option(
        "plugin.name", Kind.TEXT, "Output plug-in of logical decoding.", "pgoutput", choices=("pgoutput",),
        refused=tuple(
            (plugin, "only pgoutput is read; it comes with every server since version 10")
            for plugin in (
                "decoderbufs", "wal2json", "wal2json_rds", "wal2json_streaming", "wal2json_rds_streaming",
            )
        ),
    ),
    Option(
        "slot.name", Kind.TEXT, "Name of the replication slot.", "debezium",
        check=matching(r"[a-z0-9_]{1,63}", "1 to 63 lower-case letters, digits and underscores"),
    ),
    Option(
        "slot.drop.on.stop", Kind.BOOLEAN, "Whether the slot is dropped at a regular stop.", False,
        deprecated_names=("slot.drop_on_stop",),
        unsupported="a query ends without a last word to the planner, and its checkpoint needs the slot; drop both by "
        "hand, with pg_drop_replication_slot",
    ),
    Option("slot.max.retries", Kind.INTEGER, "How often a busy slot is tried again.", 6, check=at_least(0)),
    Option("slot.retry.delay.ms", Kind.INTEGER, "Wait between two tries, in ms.", 10_000, check=at_least(0)),
    Option("slot.failover", Kind.BOOLEAN, "Whether the slot is kept on standbys; from PostgreSQL 17 on.", False),
    Option("slot.stream.params", Kind.STATEMENTS,
           "Further parameters of pgoutput, as `name=value;name=value`: origin=none leaves out replicated changes.", [],
           check=_parameter_fault),
    Option("publication.name", Kind.TEXT, "Name of the publication.", "dbz_publication"),
    Option(
        "publication.autocreate.mode", Kind.TEXT, "What is done when the publication is missing.", "all_tables",
        choices=("all_tables", "disabled", "filtered", "no_tables"),
    ),
    Option("publish.via.partition.root", Kind.BOOLEAN,
           "Whether changes of partitions appear as those of their root; takes effect when the publication is made, or "
           "with publication.autocreate.mode=filtered.", False),
    Option(
        "replica.identity.autoset.values", Kind.LIST,
        "Replica identities to set at the start: `regex:FULL|DEFAULT|NOTHING|INDEX name`, comma-separated.", [],
        check=lambda parts: next(
            (f"must list expression:identity, not {part!r}" for part in parts
             if part.rpartition(":")[2].strip().upper().split(" ")[0] not in ("FULL", "DEFAULT", "NOTHING", "INDEX")
             or ":" not in part),
            "",
        ),
    ),
    Option("status.update.interval.ms", Kind.INTEGER, "Interval of the replies to the server, in ms.", 10_000,
           check=at_least(100)),
    Option("flush.lsn.source", Kind.BOOLEAN, "Whether the slot is advanced.", True,
           unsupported="the slot always follows what Spark has committed"),
    Option("lsn.flush.mode", Kind.TEXT, "Who advances the slot.",
           unsupported="the slot always follows what Spark has committed", neutral=("connector",)),
    Option("lsn.flush.timeout.action", Kind.TEXT, "What follows when a flush takes too long.", "fail",
           unsupported="the slot always follows what Spark has committed"),
    Option("lsn.flush.timeout.ms", Kind.INTEGER, "Longest time of a flush, in ms.", 30_000,
           unsupported="the slot always follows what Spark has committed"),
    Option("offset.mismatch.strategy", Kind.TEXT, "What follows when slot and offset differ.", "no_validation",
           unsupported="slot and checkpoint are always compared, and a gap is an error"),
    Option("xmin.fetch.interval.ms", Kind.INTEGER,
           "Interval at which the slot's xmin is read for source blocks, in ms; 0: never.", 0, check=at_least(0)),
    Option("internal.create.slot.command.timeout", Kind.INTEGER, "Longest time to make a slot, in s.", 90,
           unsupported="making a slot waits as long as the server needs"),
    Option("internal.log.position.check.enable", Kind.BOOLEAN, "Whether the position is checked at start.", True,
           unsupported="slot and checkpoint are always compared"),
    Option("internal.slot.seek.to.known.offset.on.start", Kind.BOOLEAN, "Whether the slot is moved to the offset.",
           False, unsupported="a slot is never moved past what was delivered"),
)  # fmt: skip

FILTERS = (
    Option("schema.include.list", Kind.EXPRESSIONS, "Schemas to capture.", [],
           deprecated_names=("schema.whitelist",)),
    Option("schema.exclude.list", Kind.EXPRESSIONS, "Schemas to leave out.", [],
           deprecated_names=("schema.blacklist",)),
    Option("table.include.list", Kind.EXPRESSIONS, "Tables to capture, as schema.table.", [],
           deprecated_names=("table.whitelist",)),
    Option("table.exclude.list", Kind.EXPRESSIONS, "Tables to leave out, as schema.table.", [],
           deprecated_names=("table.blacklist",)),
    Option("table.ignore.builtin", Kind.BOOLEAN, "Whether system tables are left out.", True,
           unsupported="system tables never reach the log"),
    Option("column.include.list", Kind.EXPRESSIONS,
           "Columns that values show, as schema.table.column; keys always have all of theirs.", [],
           deprecated_names=("column.whitelist",)),
    Option("column.exclude.list", Kind.EXPRESSIONS,
           "Columns that values leave out, as schema.table.column; keys always have all of theirs.", [],
           deprecated_names=("column.blacklist",)),
    Option("column.truncate.to.<n>.chars", Kind.EXPRESSIONS,
           "Columns whose text is cut to n characters, in UTF-16 units.", [],
           pattern=r"column\.truncate\.to\.\d+\.chars"),
    Option("column.mask.with.<n>.chars", Kind.EXPRESSIONS, "Columns whose text is replaced by n asterisks.", [],
           pattern=r"column\.mask\.with\.\d+\.chars"),
    Option("column.mask.hash.<algorithm>.with.salt.<salt>", Kind.EXPRESSIONS,
           "Columns whose text is replaced by a salted digest, named as in Java, cut to the column's length. With "
           "`hash.v2` the digest is that of salt and text, without it that of salt and Java's form of the text.", [],
           pattern=r"column\.mask\.hash\.(v2\.)?[^.]+\.with\.salt\..+"),
    Option("column.propagate.source.type", Kind.EXPRESSIONS,
           "Columns whose schemas tell their type, length and scale in the database.", []),
    Option("datatype.propagate.source.type", Kind.EXPRESSIONS,
           "Types, as schema.table.type, whose columns' schemas tell the same.", []),
    Option("message.key.columns", Kind.TEXT,
           "Columns of the keys, as `table:column,column;…`, tables as expressions over schema.table.",
           check=_keys_fault),
    Option("skip.messages.without.change", Kind.BOOLEAN,
           "Whether updates that change no column of the events are dropped; they need REPLICA IDENTITY FULL.", False),
    Option("message.prefix.include.list", Kind.EXPRESSIONS, "Prefixes of logical messages to capture.", []),
    Option("message.prefix.exclude.list", Kind.EXPRESSIONS, "Prefixes of logical messages to leave out.", []),
    Option("guardrail.collections.max", Kind.INTEGER, "Most tables that may be captured; 0: any number.", 0,
           check=at_least(0)),
    Option("guardrail.collections.limit.action", Kind.TEXT,
           "What follows at the start when more tables are captured than guardrail.collections.max.", "warn",
           choices=("warn", "fail")),
)  # fmt: skip

EVENTS = (
    Option("tombstones.on.delete", Kind.BOOLEAN, "Whether a tombstone follows each delete.", True),
    Option("skipped.operations", Kind.LETTERS, "Operations that give no events: c, u, d, t; or none.",
           frozenset("t"), default_1x=frozenset()),
    Option("truncate.handling.mode", Kind.TEXT, "1.x: whether truncates give events.", None,
           choices=("skip", "include")),
    Option("decimal.handling.mode", Kind.TEXT, "How numeric and money values are written.", "precise",
           choices=("precise", "double", "string")),
    Option("time.precision.mode", Kind.TEXT, "How dates and times are written.", "adaptive",
           choices=("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
                    "structured")),
    Option("binary.handling.mode", Kind.TEXT, "How bytea values are written.", "bytes",
           choices=("bytes", "base64", "base64-url-safe", "hex")),
    Option("interval.handling.mode", Kind.TEXT, "How intervals are written.", "numeric",
           choices=("numeric", "string")),
    Option("hstore.handling.mode", Kind.TEXT, "How hstore values are written.", "json", choices=("json", "map")),
    Option("money.fraction.digits", Kind.INTEGER, "Digits of money after the point.", 2, check=between(0, 18)),
    Option("include.unknown.datatypes", Kind.BOOLEAN, "Whether columns of unknown types are written, as bytes.",
           False),
    Option("unavailable.value.placeholder", Kind.TEXT,
           "What stands for an unchanged TOAST value; `hex:` before hexadecimal digits gives bytes.",
           "__debezium_unavailable_value", deprecated_names=("toasted.value.placeholder",),
           check=lambda text: "" if not text.startswith("hex:") or _is_hex(text[4:])
           else "must have pairs of hexadecimal digits after hex:"),
    Option("schema.name.adjustment.mode", Kind.TEXT, "How schema names are adjusted.", "none", default_1x="avro",
           choices=("none", "avro", "avro_unicode")),
    Option("field.name.adjustment.mode", Kind.TEXT, "How field names are adjusted.", "none",
           choices=("none", "avro", "avro_unicode")),
    Option("sanitize.field.names", Kind.BOOLEAN,
           "1.x: whether field names are made fit for Avro, as field.name.adjustment.mode=avro does.", False),
    Option("extended.headers.enabled", Kind.BOOLEAN, "Whether records carry __debezium.context headers.", True),
    Option("provide.transaction.metadata", Kind.BOOLEAN,
           "Whether transactions give BEGIN and END records, and events their number in them.", False),
    Option("heartbeat.interval.ms", Kind.INTEGER, "Interval of heartbeat records, in ms; 0: none.", 0,
           check=at_least(0)),
    Option("heartbeat.action.query", Kind.TEXT, "SQL run at each heartbeat; its failure is a warning."),
    Option("include.schema.changes", Kind.BOOLEAN, "Whether schema changes give records.", True,
           notice="Debezium's PostgreSQL connector writes no schema changes either", neutral=(False,)),
    Option("include.schema.comments", Kind.BOOLEAN,
           "Whether schemas that tell a column's type in the database tell its comment too.", False),
    Option("schema.refresh.mode", Kind.TEXT, "When a table's schema is read again.", "columns_diff",
           choices=("columns_diff", "columns_diff_exclude_unchanged_toast"),
           notice="the schema changes exactly when the log says so"),
    Option("converters", Kind.LIST, "Custom converters.", [], unsupported=_NO_JVM),
    Option("post.processors", Kind.LIST, "Post-processors.", [], unsupported="there are no post-processors yet"),
    Option("event.processing.failure.handling.mode", Kind.TEXT,
           "What follows a change that cannot become an event: the pipeline stops, or the change is put aside on the "
           "quarantine topic, with a warning or without.",
           "fail", choices=("fail", "warn", "skip", "ignore"),
           deprecated_names=("event.deserialization.failure.handling.mode",)),
    Option("event.converting.failure.handling.mode", Kind.TEXT, "What follows a value that cannot be converted.",
           "warn", choices=("fail", "warn", "skip")),
    Option("transforms", Kind.LIST, "Transforms, in order.", [], unsupported="transforms are not available yet"),
    Option("transforms.<name>.<option>", Kind.TEXT, "Options of a transform.", pattern=r"transforms\..+",
           unsupported="transforms are not available yet"),
    Option("predicates", Kind.LIST, "Predicates of transforms.", [], unsupported="transforms are not available yet"),
    Option("predicates.<name>.<option>", Kind.TEXT, "Options of a predicate.", pattern=r"predicates\..+",
           unsupported="transforms are not available yet"),
)  # fmt: skip


def _is_hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False


SNAPSHOT = (
    Option(
        "snapshot.mode", Kind.TEXT,
        "What is read before the log: initial (once), initial_only (once, then stop), always (at each start), no_data "
        "(nothing), when_needed (once, and again when the slot no longer reaches the checkpoint), configuration_based "
        "(as its switches say).",
        "initial",
        choices=(
            "initial", "always", "no_data", "never", "initial_only", "exported", "when_needed", "configuration_based",
        ),
        refused=(("custom", _NO_JVM),),
    ),
    Option("snapshot.fetch.size", Kind.INTEGER, "Rows that a snapshot fetches at once.", 10_240, check=at_least(1),
           notice="a chunk comes in one COPY, and rows are converted as they arrive"),
    Option("snapshot.max.threads", Kind.INTEGER, "Tables or chunks that are read at the same time.", 1,
           check=at_least(1), notice="chunks are tasks, as many at a time as Spark has cores"),
    Option("snapshot.max.threads.multiplier", Kind.INTEGER, "Chunks for each thread.", 1,
           unsupported="chunks have a size of their own"),
    Option("legacy.snapshot.max.threads", Kind.BOOLEAN, "The older parallel snapshot.", False,
           unsupported="there is one way to read a snapshot"),
    Option("snapshot.include.collection.list", Kind.EXPRESSIONS,
           "Captured tables that the snapshot reads, as schema.table; unset: all of them.", []),
    Option("snapshot.select.statement.overrides", Kind.LIST,
           "Tables, as schema.table, that the snapshot reads by statements of their own.", []),
    Option("snapshot.select.statement.overrides.<table>", Kind.TEXT,
           "The statement for a table: its rows, with every captured column by its name.",
           pattern=r"snapshot\.select\.statement\.overrides\..+"),
    Option("snapshot.isolation.mode", Kind.TEXT,
           "Isolation of the snapshot: both words mean that all tasks read under one exported snapshot.",
           "serializable", choices=("serializable", "repeatable_read"),
           refused=tuple(
               (mode, "its tables would be read at different moments, and the log could not be joined to them")
               for mode in ("read_committed", "read_uncommitted")
           )),
    Option("snapshot.locking.mode", Kind.TEXT, "Locks of the snapshot.", "none",
           unsupported="the snapshot takes no locks"),
    Option("snapshot.locking.mode.custom.name", Kind.TEXT, "Java class of locks.", unsupported=_NO_JVM),
    Option("snapshot.lock.timeout.ms", Kind.INTEGER, "Wait for locks, in ms.", 10_000,
           unsupported="the snapshot takes no locks"),
    Option("snapshot.query.mode", Kind.TEXT, "How rows are selected.", "select_all", unsupported=_NO_JVM),
    Option("snapshot.query.mode.custom.name", Kind.TEXT, "Java class of queries.", unsupported=_NO_JVM),
    Option("snapshot.mode.custom.name", Kind.TEXT, "Java class of the mode.",
           deprecated_names=("snapshot.custom.class",), unsupported=_NO_JVM),
    Option("snapshot.mode.configuration.based.snapshot.data", Kind.BOOLEAN,
           "configuration_based: whether rows are read at each start.", False),
    Option("snapshot.mode.configuration.based.snapshot.schema", Kind.BOOLEAN,
           "configuration_based: whether schemas are read.", False, notice=_NO_HISTORY),
    Option("snapshot.mode.configuration.based.start.stream", Kind.BOOLEAN,
           "configuration_based: whether the log is read.", False),
    Option("snapshot.mode.configuration.based.snapshot.on.data.error", Kind.BOOLEAN,
           "configuration_based: whether rows are read again when the slot no longer reaches the checkpoint.", False),
    Option("snapshot.mode.configuration.based.snapshot.on.schema.error", Kind.BOOLEAN,
           "configuration_based: whether schemas are read again when their history is lost.", False,
           notice=_NO_HISTORY),
    Option("snapshot.delay.ms", Kind.INTEGER, "Wait before a snapshot, in ms.", 0, check=at_least(0)),
    Option("streaming.delay.ms", Kind.INTEGER, "Wait between the snapshot and the log, in ms.", 0,
           check=at_least(0)),
    Option("snapshot.tables.order.by.row.count", Kind.TEXT,
           "Whether the snapshot takes the tables by their number of rows, as the server estimates it.", "disabled",
           choices=("disabled", "ascending", "descending")),
    Option("internal.snapshot.scan.all.columns.force", Kind.BOOLEAN, "Whether all columns are scanned.", False,
           unsupported="the snapshot reads the captured columns"),
    Option("query.fetch.size", Kind.INTEGER, "Rows fetched at once by other queries.", 0,
           unsupported="other queries return few rows and are read whole"),
)  # fmt: skip

FLOW = (
    Option("max.batch.size", Kind.INTEGER, "Most rows of a batch; obeyed only when given, else bytes decide.", 2048,
           check=at_least(1)),
    Option("max.batch.size.in.bytes", Kind.INTEGER, "Most bytes of the log in a batch.", 48 * 1024 * 1024,
           check=at_least(1024)),
    Option("max.queue.size", Kind.INTEGER, "Most changes that wait.", 8192, check=at_least(1),
           notice="the spool is bounded in bytes: max.queue.size.in.bytes"),
    Option("max.queue.size.in.bytes", Kind.INTEGER, "Most bytes that wait in the spool; 0: the reader's own limit.",
           0, check=at_least(0)),
    Option("queue.provider.type", Kind.TEXT, "Kind of queue.", "memory", unsupported=_NO_QUEUE),
    Option("poll.interval.ms", Kind.INTEGER, "Wait for new changes when there are none, in ms.", 500,
           check=at_least(1)),
    Option("poll.dispatch.interval.ms", Kind.INTEGER, "Time to gather changes, in ms.", 0,
           unsupported="the trigger of the query sets the pace"),
    Option("errors.max.retries", Kind.INTEGER, "How often a lost connection is tried again; -1: for ever.", -1,
           check=at_least(-1)),
    Option("retriable.restart.connector.wait.ms", Kind.INTEGER, "Wait before a lost connection is tried again, in ms.",
           10_000, check=at_least(0)),
    Option("internal.custom.retriable.exception", Kind.TEXT, "Expression of errors to retry.",
           unsupported="errors of the connection are retried, others never", neutral=("false",)),
    Option("executor.shutdown.timeout.ms", Kind.INTEGER, "Wait for threads at the stop, in ms.", 4000,
           unsupported="the stop waits for the batch that is being written"),
    Option("memory.management.<part>.class", Kind.TEXT, "Java class that holds schemas.",
           "io.debezium.relational.ConcurrentMapTableMappingStorage",
           pattern=r"memory\.management\.(schemas|tables)\.class", unsupported=_NO_JVM),
    Option("custom.metric.tags", Kind.TEXT, "Tags of Java metrics.", unsupported="there are no Java metrics"),
    Option("custom.sanitize.pattern", Kind.TEXT, "Options hidden in logs.",
           r".*secret$|.*password$|.*sasl\.jaas\.config$|.*basic\.auth\.user\.info|.*registry\.auth\.client-secret"
           r"|.*credentials\.json$|.*connectionstring$|.*connection\.string$",
           unsupported="options are not logged with their values"),
    Option("statistics.metrics.enabled", Kind.BOOLEAN, "Statistics of Java metrics.", True,
           unsupported="there are no Java metrics", neutral=(False,)),
    Option("internal.advanced.metrics.enable", Kind.BOOLEAN, "More Java metrics.", False,
           unsupported="there are no Java metrics"),
    Option("openlineage.integration.enabled", Kind.BOOLEAN, "Whether lineage is reported.", False,
           unsupported="lineage is not reported"),
    Option("openlineage.integration.<option>", Kind.TEXT, "Options of lineage.",
           pattern=r"openlineage\.integration\.(config\.file\.path|dataset\.kafka\.bootstrap\.servers"
           r"|job\.(description|namespace|owners|tags))", unsupported="lineage is not reported"),
    Option("schema.history.internal.<option>", Kind.TEXT, "Schema history of other connectors.",
           pattern=r"(schema\.history\.internal|database\.history)(\..+)?", unsupported=_NO_HISTORY),
)  # fmt: skip

OWN = (
    Option("event.format", Kind.TEXT,
           "Whose wire format is written: 1.7 or 3. Unset: 3 where topic.prefix is given, else 1.7.",
           choices=("1.7", "3")),
    Option("event.version.string", Kind.TEXT, "Version told in the source block; unset: that of the format."),
    Option("event.quarantine.topic", Kind.TEXT,
           "Topic of changes that cannot become events; unset: `quarantine` behind topic.prefix."),
    Option("event.order", Kind.TEXT, "Order that is kept: of a topic, or only of each key.", "topic",
           choices=("topic", "key")),
    Option("event.order.segments", Kind.INTEGER,
           "Parts of a table under event.order=key; unset: Spark's parallelism.", check=at_least(1)),
    Option("checkpoint.location", Kind.TEXT, "Directory of Spark's checkpoint; unset: .tailrace/<name>."),
)  # fmt: skip
