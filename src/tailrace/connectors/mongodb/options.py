"""The MongoDB connector's options: Debezium 3.6's, those of 1.1 that still work, and tailrace's own."""

from __future__ import annotations

from dataclasses import replace

from tailrace.config import connect, connector, credentials, processors, relational, signals
from tailrace.config.connector import NO_JVM, Options, formats
from tailrace.config.option import Kind, Option, at_least, between, matching
from tailrace.connectors.mongodb import rules

_TOPOLOGY = "the driver watches which servers there are, without a pause"
_JSON_MODES = "events hold the JSON of Debezium 3.6, which has no other"
_ONE_LOG = "the log has one reader, and the parallelism of the rest is Spark's"
_ONE_TEXT = "a document is one JSON text, and its fields are none of the schema's"
_WHOLE = "no value is converted on its own; event.processing.failure.handling.mode decides about a bad document"
_BOUNDED = "answers of the server are bounded in bytes"
_STORES = tuple(
    (kind, "Java alone reads such stores: convert it, with keytool -importkeystore -deststoretype PKCS12")
    for kind in ("jks", "jceks")
)


def _without(options: tuple[Option, ...], *names: str) -> tuple[Option, ...]:
    assert {option.name for option in options} >= set(names)
    return tuple(option for option in options if option.name not in names)


def _named(options: tuple[Option, ...], *names: str) -> tuple[Option, ...]:
    found = {option.name: option for option in options}
    return tuple(found[name] for name in names)


IDENTITY = (
    *(
        replace(option, aliases=("mongodb.name",)) if option.name == "topic.prefix" else option
        for option in _without(connector.NAMES, "tasks.max", "topic.naming.strategy", "source.struct.version")
    ),
    Option(
        "topic.naming.strategy", Kind.TEXT,
        "Naming of topics: by database and collection, with _uXXXX for characters that topics cannot have (…Unicode…), "
        "or by an expression over that name (…Regex…).",
        "io.debezium.schema.DefaultTopicNamingStrategy",
        choices=tuple(
            f"io.debezium.schema.{name}TopicNamingStrategy" for name in ("Default", "DefaultRegex", "DefaultUnicode")
        ),
        refused=tuple(
            (f"io.debezium.schema.{name}topicnamingstrategy", "all collections would share one topic")
            for name in ("schema", "schemaregex", "schemaunicode")
        ),
    ),
    Option("tasks.max", Kind.INTEGER, "Number of Kafka Connect tasks.", 1, check=at_least(1), notice=_ONE_LOG),
    Option("mongodb.task.id", Kind.INTEGER, "Number of a Kafka Connect task.", 0,
           notice="it is Kafka Connect's own"),
    Option(
        "connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.",
        "io.debezium.connector.mongodb.MongoDbConnector",
        choices=("io.debezium.connector.mongodb.MongoDbConnector", "MongoDbConnector", "MongoDB", "mongodb"),
    ),
    Option("source.struct.version", Kind.TEXT,
           "Version of the source block; v1 is that of Debezium 0.9 and needs the format 1.1.", "v2",
           choices=("v1", "v2")),
    Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
           "io.debezium.connector.mongodb.MongoDbSourceInfoStructMaker", unsupported=NO_JVM),
)  # fmt: skip

CONNECTION = (
    Option("mongodb.connection.string", Kind.SECRET,
           "Connection string, such as mongodb://host:port/?replicaSet=name or mongodb+srv://…, with PyMongo's "
           "options. The options below take precedence over those of the string."),
    Option("mongodb.hosts", Kind.TEXT, "1.x: servers of the replica set, as name/host:port,host:port.",
           check=rules.hosts_fault),
    Option("mongodb.members.auto.discover", Kind.BOOLEAN,
           "1.x: find further servers of the replica set through mongodb.hosts; else use only the named one.", True),
    Option("mongodb.user", Kind.TEXT, "User that reads; unset: no login."),
    Option("mongodb.password", Kind.SECRET, "Password of the user; best given as ${env:NAME} or ${file:PATH:KEY}."),
    *credentials.options("mongodb."),
    Option("mongodb.authsource", Kind.TEXT, "Database that authenticates the user.", "admin"),
    Option("mongodb.authentication.class", Kind.TEXT, "Java class that logs in.",
           "io.debezium.connector.mongodb.connection.DefaultMongoDbAuthProvider", unsupported=NO_JVM),
    Option("mongodb.ssl.enabled", Kind.BOOLEAN, "Use TLS.", False),
    Option("mongodb.ssl.invalid.hostname.allowed", Kind.BOOLEAN,
           "Accept a server's certificate with another name.", False),
    Option("mongodb.ssl.keystore", Kind.TEXT, "Path of the file with the client's certificate and private key."),
    Option("mongodb.ssl.keystore.password", Kind.SECRET, "Password of that file, or of the private key in it."),
    Option("mongodb.ssl.keystore.type", Kind.TEXT, "Kind of that file.", "PKCS12", choices=("PKCS12", "PEM"),
           refused=_STORES),
    Option("mongodb.ssl.truststore", Kind.TEXT,
           "Path of the file with the certificate authorities that verify servers; unset: the system's."),
    Option("mongodb.ssl.truststore.password", Kind.SECRET, "Password of that file."),
    Option("mongodb.ssl.truststore.type", Kind.TEXT, "Kind of that file.", "PKCS12", choices=("PKCS12", "PEM"),
           refused=_STORES),
    Option("mongodb.connect.timeout.ms", Kind.INTEGER, "Longest time to connect, in ms; 0: no limit.",
           10_000, check=at_least(0)),
    Option("mongodb.socket.timeout.ms", Kind.INTEGER, "Longest time of an answer, in ms; 0: no limit.", 0,
           check=at_least(0)),
    Option("mongodb.server.selection.timeout.ms", Kind.INTEGER, "Longest wait for a primary, in ms.", 30_000,
           check=at_least(1)),
    Option("mongodb.heartbeat.frequency.ms", Kind.INTEGER, "Interval at which servers are monitored, in ms.",
           10_000, check=at_least(500)),
    Option("connect.max.attempts", Kind.INTEGER,
           "Tries of a connection before the pipeline gives up; unset: errors.max.retries decides.",
           check=at_least(1)),
    Option("connect.backoff.initial.delay.ms", Kind.INTEGER,
           "With connect.max.attempts: time before the second try, in ms; it doubles with each further one.", 1000,
           check=at_least(0)),
    Option("connect.backoff.max.delay.ms", Kind.INTEGER,
           "With connect.max.attempts: longest time between two tries, in ms.", 120_000,
           check=at_least(0)),
    Option("connection.validation.timeout.ms", Kind.INTEGER, "Wait of Debezium's validation, in ms.", 60_000,
           check=at_least(1), notice="mongodb.server.selection.timeout.ms sets the wait for a server"),
    Option("mongodb.poll.interval.ms", Kind.INTEGER, "Interval at which new replica sets are looked for, in ms.",
           30_000, check=at_least(1), notice=_TOPOLOGY),
    Option("mongodb.poll.interval.sec", Kind.INTEGER, "1.x: the same in s.", 30, check=at_least(1), notice=_TOPOLOGY),
    Option("mongodb.connection.mode", Kind.TEXT, "2.x: how a sharded cluster is connected to.",
           choices=("sharded", "replica_set"), notice="what the connection string names is connected to"),
    Option("mongodb.connection.string.shard.params", Kind.TEXT, "2.x: parameters for connections to shards.",
           unsupported="a sharded cluster is read through mongos"),
    Option("internal.mongodb.allow.offset.invalidation", Kind.BOOLEAN, "Whether offsets of shards may be dropped.",
           False, aliases=("mongodb.allow.offset.invalidation",),
           notice="a sharded cluster has one position, that of mongos"),
)  # fmt: skip

FILTERS = (
    Option("database.include.list", Kind.EXPRESSIONS, "Databases to capture.", [],
           deprecated_names=("database.whitelist",)),
    Option("database.exclude.list", Kind.EXPRESSIONS, "Databases to leave out.", [],
           deprecated_names=("database.blacklist",)),
    Option("collection.include.list", Kind.EXPRESSIONS, "Collections to capture, as database.collection.", [],
           deprecated_names=("collection.whitelist",)),
    Option("collection.exclude.list", Kind.EXPRESSIONS, "Collections to leave out, as database.collection.", [],
           deprecated_names=("collection.blacklist",)),
    Option("filters.match.mode", Kind.TEXT, "Content of the four lists: expressions, or literal names.", "regex",
           choices=("regex", "literal")),
    Option("field.exclude.list", Kind.LIST,
           "Fields to leave out of events, as database.collection.field.field; * stands for any characters of "
           "database and collection.", [],
           deprecated_names=("field.blacklist",), check=rules.fields_fault),
    Option("field.renames", Kind.LIST,
           "Fields that get other names in events, as database.collection.field.field:name.", [],
           check=rules.renames_fault),
    *_named(relational.LISTS, "guardrail.collections.max", "guardrail.collections.limit.action"),
    Option("skip.messages.without.change", Kind.BOOLEAN, "Whether updates that change no captured field are dropped.",
           False, notice="Debezium's MongoDB connector drops none either", neutral=(False,)),
)  # fmt: skip

CAPTURE = (
    Option(
        "capture.mode", Kind.TEXT,
        "Source of changes: oplog (with the format 1.1), or change streams, whose updates have the whole document "
        "(…update_full…) and the one before (…with_pre_image). Unset: oplog with the format 1.1, "
        "change_streams_update_full with the format 3.",
        choices=(
            "oplog", "change_streams", "change_streams_update_full", "change_streams_with_pre_image",
            "change_streams_update_full_with_pre_image",
        ),
    ),
    Option("capture.mode.full.update.type", Kind.TEXT,
           "Origin of an update's whole document: lookup (as it is when the event is read) or post_image (as it was "
           "after the update, in collections with changeStreamPreAndPostImages).", "lookup",
           choices=("lookup", "post_image")),
    Option("capture.scope", Kind.TEXT, "Scope of the change stream.", "deployment",
           choices=("deployment", "database", "collection")),
    Option("capture.target", Kind.TEXT, "The database, or database.collection, of capture.scope."),
    Option("capture.start.op.time", Kind.INTEGER,
           "Position in the log at which a query without a checkpoint begins, as a BSON timestamp in 64 bits; -1: "
           "now.", -1,
           check=at_least(-1)),
    Option("cursor.max.await.time.ms", Kind.INTEGER,
           "Longest wait of the server for new changes before it answers, in ms; 0: its own 1 s.", 0,
           check=at_least(0)),
    Option("cursor.pipeline", Kind.TEXT, "Further stages of the change stream, a JSON array of objects; the shell's "
           "notation, as {_id: ObjectId('…')}, is understood.",
           check=rules.pipeline_fault),
    Option("cursor.pipeline.order", Kind.TEXT, "Place of those stages: after tailrace's own, before them, or alone.",
           "internal_first", choices=("internal_first", "user_first", "user_only")),
    Option("cursor.oversize.handling.mode", Kind.TEXT,
           "Response to an event of more than 16 MB: stop the pipeline, leave out updates of documents above "
           "cursor.oversize.skip.threshold, or have the server split the event (MongoDB 6.0.9 and later).",
           "fail", choices=("fail", "skip", "split")),
    Option("cursor.oversize.skip.threshold", Kind.INTEGER, "With skip: largest document whose changes are read.", 0,
           check=at_least(0)),
)  # fmt: skip

EVENTS = (
    Option("skipped.operations", Kind.LETTERS, "Operations without events: c, u, d; or none.", frozenset("t"),
           default_1x=frozenset()),
    Option("json.serialization.mode", Kind.TEXT, "Form of documents in JSON.", "legacy", choices=("legacy",),
           refused=tuple((mode, _JSON_MODES) for mode in ("strict", "extended", "relaxed"))),
    Option("binary.handling.mode", Kind.TEXT, "Form of binary values.", "bytes",
           choices=("bytes", "base64", "base64-url-safe", "hex"),
           notice="a document is one JSON text, its binary values in it"),
    *_named(relational.VALUES, "schema.name.adjustment.mode", "converters"),
    *(replace(option, notice=_ONE_TEXT)
      for option in _named(relational.VALUES, "field.name.adjustment.mode", "sanitize.field.names")),
    *_without(connector.RECORDS, "heartbeat.action.query", "event.converting.failure.handling.mode"),
    *(replace(option, notice=_WHOLE)
      for option in _named(connector.RECORDS, "event.converting.failure.handling.mode")),
    *processors.refused("Debezium has post-processors for tables alone"),
)  # fmt: skip

KAFKA_CONNECT = (
    *_without(connect.CONNECT, "errors.tolerance"),
    *(replace(option, notice="a document that cannot be made an event stops the pipeline, or is quarantined, as "
              "event.processing.failure.handling.mode says")
      for option in _named(connect.CONNECT, "errors.tolerance")),
)  # fmt: skip

SNAPSHOT = (
    Option(
        "snapshot.mode", Kind.TEXT,
        "Snapshot before the log: initial (once), initial_only (once, then stop), always (at each start), no_data "
        "(none), when_needed (once, and again when the log no longer reaches the checkpoint), configuration_based (as "
        "its switches say).",
        "initial",
        choices=("initial", "always", "no_data", "never", "initial_only", "when_needed", "configuration_based"),
        refused=(("custom", NO_JVM),),
    ),
    Option("snapshot.fetch.size", Kind.INTEGER,
           "Documents that a snapshot fetches at once; 0: the server's default.", 0,
           check=at_least(0)),
    Option("snapshot.max.threads", Kind.INTEGER, "Collections that are read at the same time.", 1, check=at_least(1),
           deprecated_names=("initial.sync.max.threads",),
           notice="chunks are tasks, as many at a time as Spark has cores"),
    *_named(relational.SNAPSHOT, "snapshot.max.threads.multiplier", "legacy.snapshot.max.threads"),
    Option("internal.legacy.snapshot.max.threads", Kind.BOOLEAN, "The older parallel snapshot.", False,
           notice="there is one way to read a snapshot"),
    Option("snapshot.include.collection.list", Kind.EXPRESSIONS,
           "Captured collections that the snapshot reads, as database.collection; unset: all.", []),
    Option("snapshot.collection.filter.overrides", Kind.LIST,
           "Collections, as database.collection, of which the snapshot reads only some documents.", []),
    Option("snapshot.collection.filter.overrides.<collection>", Kind.TEXT,
           "The condition for a collection: a query of MongoDB, as a JSON object.",
           pattern=r"snapshot\.collection\.filter\.overrides\..+", check=rules.condition_fault),
    *_named(relational.SNAPSHOT, "snapshot.locking.mode.custom.name", "snapshot.query.mode",
            "snapshot.query.mode.custom.name", "snapshot.mode.custom.name",
            "snapshot.mode.configuration.based.snapshot.data", "snapshot.mode.configuration.based.start.stream"),
    Option("snapshot.mode.configuration.based.snapshot.on.data.error", Kind.BOOLEAN,
           "configuration_based: read documents again when the log no longer reaches the checkpoint.",
           False),
    Option("snapshot.mode.configuration.based.snapshot.schema", Kind.BOOLEAN,
           "configuration_based: whether schemas are read.", False, notice="collections have no schemas"),
    Option("snapshot.mode.configuration.based.snapshot.on.schema.error", Kind.BOOLEAN,
           "configuration_based: whether schemas are read again when their history is lost.", False,
           notice="collections have no schemas"),
    *_named(relational.SNAPSHOT, "snapshot.delay.ms", "streaming.delay.ms"),
    Option("query.fetch.size", Kind.INTEGER, "Rows that other queries fetch at once.", 0, notice=_BOUNDED),
)  # fmt: skip

SIGNALS = (
    Option("signal.data.collection", Kind.TEXT,
           "Signal collection, as database.collection. Signals (type, data) are read from it, watermarks are "
           "written to it. Needs the format 3.",
           check=matching(r"[^.]+\..+", "database.collection")),
    *_without(signals.SIGNALS, "signal.data.collection"),
)  # fmt: skip

FLOW = (
    *connector.SPOOLED,
    Option("max.queue.size.in.bytes", Kind.INTEGER,
           "Maximum number of bytes in the spool, the first 128 MB in memory and the rest on disk; 0: 640 MB.", 0,
           check=between(0, 1 << 40)),
    Option("internal.log.position.check.enable", Kind.BOOLEAN, "Whether the position is checked at start.", True,
           notice="the log and the checkpoint are always compared"),
    Option("schema.history.internal.<option>", Kind.TEXT, "Schema history of other connectors.",
           pattern=r"(schema\.history\.internal|database\.history)(\..+)?", notice="collections have no schemas"),
)  # fmt: skip

OWN = (
    formats("1.1", "3 with topic.prefix, else 1.1"),
    *connector.OWN,
)

OPTIONS = Options(
    areas=(
        ("Names and topics", IDENTITY),
        ("Connection", CONNECTION),
        ("What is captured", FILTERS),
        ("Oplog and change streams", CAPTURE),
        ("Events", EVENTS),
        ("Snapshot", SNAPSHOT),
        ("Signals, incremental snapshots, notifications", SIGNALS),
        ("Batches and retries", FLOW),
        ("Log that the server keeps", connector.KEPT_LOG),
        ("tailrace's own", OWN),
        ("Kafka Connect", KAFKA_CONNECT),
    ),
    required=(),
    event_format="1.1",
    generations={"mongodb.name": "1.1", "topic.prefix": "3"},
    modes={"never": "no_data"},
    settle=rules.settle,
)
