"""Options and Traits: the parts of a connector's configuration, and the options that all connectors share. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.naming import STRATEGIES
from tailrace.config.option import Kind, Option, at_least, between, matching
from tailrace.process.log_lines import FORMS

NO_JVM = "it names a Java class, and no Java plug-ins are loaded"
"""The reason why classes are refused."""

NO_QUEUE = "there is no queue to tune between reader and converter"

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*=.*")


def _are_labels(values: list[str]) -> str:
    wrong = next((value for value in values if not _LABEL.fullmatch(value)), None)
    return "" if wrong is None else f"has entries of the form name=value, not {wrong!r}"


def _are_owned(values: list[str]) -> str:
    wrong = next((value for value in values if not re.fullmatch(r"[^=]+=.*", value)), None)
    return "" if wrong is None else f"has entries of the form name=kind, not {wrong!r}"


@dataclass(slots=True)
class ConfigDraft:
    """A configuration being settled: the typed `values` with their defaults, to be completed in place.

    `given` has the given options by their names in the table, `used` by their names as written, in lower case.
    `event_format` is the format of the events. `faults` and `notices` are sentences; faults have no full stop.
    `implied` are texts of options that count as given from then on. `idle` has the options, by their names in the
    table, that have no effect because of others.
    """

    values: dict[str, Any]
    given: frozenset[str]
    event_format: str
    faults: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    used: frozenset[str] = frozenset()
    implied: dict[str, str] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)


def _settled(draft: ConfigDraft) -> None:
    """Apply no rules between options."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of a connector that configurations and events use instead of its name. Picklable.

    - `connector`: its name; `event_name`: its name in events.
    - `versions`: the version of Debezium in source blocks, by event format.
    - `system_tables`: matches the server's own tables, as schema.table, which are never captured.
    - `several_databases`: one query may read several databases, so topics (since Debezium 2), transaction metadata and
      notifications name the database too; `schema_changes_name_database`: so do records of schema changes.
    - `has_schemas`: tables are in schemas of a database; without, the database takes the schema's place in names, and
      source blocks have no `schema`.
    - `skips_changes`: skipped.operations names operations of the log: a change of a key counts as an update only.
    - `value_rules`: the entry of a configuration, made by `Options.settle`, that its conversions of values read as
      `EventSettings.own`; it is hashable.
    - `transforms`: its own transforms as `module:attribute`, by the text of `transforms.<name>.type`. They take
      precedence over those of `tailrace.config.transforms`.
    - `gives_blocks`: its changes are available as blocks of typed rows (`tailrace.columns.blocks`).
    - `bean`: its name in Debezium's beans, and so in metrics, if that is another than `connector`; `bean_has_task`: the
      beans have the number of the task; `bean_disconnects`: the contexts of the beans that count lost sessions.
    - `address`: its option with a connection string, if it has no `database.hostname`.
    - `numbers_tables`: its tables have numbers, so that another one under a table's name is recognised.
    - `splits_tables`: several tasks may read a batch's changes of one table (`event.order=key`).
    """

    connector: str
    event_name: str
    versions: Mapping[str, str]
    system_tables: re.Pattern[str] | None = None
    several_databases: bool = False
    schema_changes_name_database: bool = True
    has_schemas: bool = True
    value_rules: str = ""
    skips_changes: bool = False
    transforms: Mapping[str, str] = field(default_factory=dict)
    gives_blocks: bool = False
    numbers_tables: bool = False
    splits_tables: bool = True
    bean: str = ""
    bean_has_task: bool = False
    bean_disconnects: tuple[str, ...] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one connector.

    `areas` are the options under their headings, in the order of the reference page; `required` are the names of
    mandatory options. `event_format` is the connector's default format; today's is `3`. `generations` maps names of
    options to the format that their use implies, unless event.format is given; earlier entries take precedence.
    `modes` maps older words for snapshot modes to today's. `settle` applies rules between options, after the rules that
    all connectors share.
    """

    areas: tuple[tuple[str, tuple[Option, ...]], ...]
    required: tuple[str, ...]
    event_format: str
    generations: Mapping[str, str]
    modes: Mapping[str, str] = field(default_factory=dict)
    settle: Callable[[ConfigDraft], None] = _settled

    @property
    def table(self) -> tuple[Option, ...]:
        """Every option."""
        return tuple(option for _, options in self.areas for option in options)


NAMES = (
    Option("name", Kind.TEXT, "Name of the connector; names the checkpoint as well."),
    Option(
        "tasks.max", Kind.INTEGER, "Number of Kafka Connect tasks.", 1, check=at_least(1),
        notice="the log has one reader, and the parallelism of the rest is Spark's",
    ),
    Option(
        "topic.prefix", Kind.TEXT, "Logical name of the server: first part of topics and schema names.",
        aliases=("database.server.name",),
        check=matching(r"[\w.\-]+", "letters, digits, hyphens, dots and underscores only"),
    ),
    Option("topic.delimiter", Kind.TEXT, "Separator between the parts of a topic's name.", "."),
    Option(
        "topic.naming.strategy", Kind.TEXT,
        "Naming of topics: by schema and table, by table alone (Default…), with _uXXXX for characters that topics "
        "cannot have (…Unicode…), or by an expression (…Regex…).",
        "io.debezium.schema.SchemaTopicNamingStrategy", choices=tuple(STRATEGIES),
    ),
    Option("topic.regex", Kind.TEXT, "Java expression over a topic's whole name, for the strategies by expression."),
    Option("topic.replacement", Kind.TEXT, "New name of the topic; $1 or ${name} is a group of topic.regex."),
    Option("topic.key.enforce.uniqueness", Kind.BOOLEAN,
           "Under a strategy by expression, add a field to each key that names the table.", True),
    Option("topic.key.field.name", Kind.TEXT,
           "Name of the field that topic.key.enforce.uniqueness adds.", "__dbz__physicalTableIdentifier"),
    Option("topic.key.field.regex", Kind.TEXT,
           "Java expression over the value of that field, the topic's former name."),
    Option("topic.key.field.replacement", Kind.TEXT,
           "New value of that field; $1 or ${name} is a group of topic.key.field.regex."),
    Option("topic.cache.size", Kind.INTEGER, "Size of the cache of topic names.", 10_000,
           notice="names are made once for a table"),
    Option(
        "topic.heartbeat.prefix", Kind.TEXT, "Prefix of heartbeat topics.", "__debezium-heartbeat",
        deprecated_names=("heartbeat.topics.prefix",),
    ),
    Option("topic.heartbeat.name", Kind.TEXT, "Name of the heartbeat topic; unset: prefix and logical name."),
    Option(
        "topic.transaction", Kind.TEXT, "Last part of the transaction topic's name.", "transaction",
        deprecated_names=("transaction.topic",),
    ),
    Option("unknown.properties.ignored", Kind.BOOLEAN, "Whether unknown options pass.", False,
           notice="tailrace.unknown.options decides about unknown names"),
    Option("source.struct.version", Kind.TEXT, "Version of the source block.", "v2",
           unsupported="the source block follows event.format"),
    Option("transaction.metadata.factory", Kind.TEXT, "Java class that makes transaction metadata.",
           "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory", unsupported=NO_JVM),
)  # fmt: skip

RECORDS = (
    Option("tombstones.on.delete", Kind.BOOLEAN, "Send a tombstone after each delete.", True),
    Option("extended.headers.enabled", Kind.BOOLEAN, "Add __debezium.context headers to records.", True),
    Option("provide.transaction.metadata", Kind.BOOLEAN,
           "Send BEGIN and END records of transactions, and number events within them.", False),
    Option("heartbeat.interval.ms", Kind.INTEGER, "Interval of heartbeat records, in ms; 0: none.", 0,
           check=at_least(0)),
    Option("heartbeat.action.query", Kind.TEXT, "SQL run at each heartbeat; a failure is a warning."),
    Option("event.processing.failure.handling.mode", Kind.TEXT,
           "Response to a change that cannot become an event: stop the pipeline, or send the change to the quarantine "
           "topic, with a warning or without.",
           "fail", choices=("fail", "warn", "skip", "ignore"),
           deprecated_names=("event.deserialization.failure.handling.mode",)),
    Option("event.converting.failure.handling.mode", Kind.TEXT,
           "Response to a value that cannot be converted: fail, or write null. Unset, it is fail with the sinks "
           "tables and jdbc.",
           "warn", choices=("fail", "warn", "skip")),
    Option("transforms", Kind.LIST, "Names of transforms, in their order.", []),
    Option("transforms.<name>.<option>", Kind.TEXT, "Options of a transform; `type` is its class.",
           pattern=r"transforms\..+"),
    Option("predicates", Kind.LIST, "Names of predicates, which select the records for a transform.", []),
    Option("predicates.<name>.<option>", Kind.TEXT, "Options of a predicate; `type` is its class.",
           pattern=r"predicates\..+"),
)  # fmt: skip

FLOW = (
    Option("max.batch.size", Kind.INTEGER,
           "Maximum number of rows in a batch; obeyed only when given, else bytes decide.", 2048,
           check=at_least(1)),
    Option("queue.provider.type", Kind.TEXT, "Kind of queue.", "memory", notice=NO_QUEUE),
    Option("poll.interval.ms", Kind.INTEGER, "Time to wait for new changes when there are none, in ms.", 500,
           check=at_least(1)),
    Option("poll.dispatch.interval.ms", Kind.INTEGER,
           "Time between two batches of the log, in ms, in which changes gather; 0: none.", 0,
           check=at_least(0)),
    Option("errors.max.retries", Kind.INTEGER, "Tries after a lost connection; -1: no limit.", -1,
           check=at_least(-1)),
    Option("retriable.restart.connector.wait.ms", Kind.INTEGER, "Time to wait before such a try, in ms.",
           10_000, check=at_least(0)),
    Option("internal.custom.retriable.exception", Kind.TEXT, "Expression of errors to retry.",
           unsupported="errors of the connection are retried, others never", neutral=("false",)),
    Option("executor.shutdown.timeout.ms", Kind.INTEGER, "Wait for threads at the stop, in ms.", 4000,
           notice="the stop waits for the batch that is being written"),
    Option("memory.management.<part>.class", Kind.TEXT, "Java class that holds schemas.",
           "io.debezium.relational.ConcurrentMapTableMappingStorage",
           pattern=r"memory\.management\.(schemas|tables)\.class", notice=NO_JVM),
    Option("custom.metric.tags", Kind.LIST, "Further labels of all metrics, as name=value.", [],
           check=_are_labels),
    Option("custom.sanitize.pattern", Kind.TEXT, "Options hidden in logs.",
           r".*secret$|.*password$|.*sasl\.jaas\.config$|.*basic\.auth\.user\.info|.*registry\.auth\.client-secret"
           r"|.*credentials\.json$|.*connectionstring$|.*connection\.string$",
           notice="options are not logged with their values"),
    Option("statistics.metrics.enabled", Kind.BOOLEAN,
           "Show least, greatest and mean value and quantiles of MilliSecondsBehindSource.", True),
    Option("internal.advanced.metrics.enable", Kind.BOOLEAN, "Counts by table.", False,
           notice="counts by table are always shown", neutral=(True,)),
    Option("openlineage.integration.enabled", Kind.BOOLEAN,
           "Report each run of `tailrace run` to OpenLineage. Needs tailrace[openlineage].", False),
    Option("openlineage.integration.config.file.path", Kind.TEXT,
           "File `openlineage.yml` with the transport of OpenLineage's client; unset: as the client finds it."),
    Option("openlineage.integration.job.namespace", Kind.TEXT, "Namespace of the job; unset: topic.prefix."),
    Option("openlineage.integration.job.description", Kind.TEXT, "Description of the job."),
    Option("openlineage.integration.job.tags", Kind.LIST, "Tags of the job, as name=value.", [], check=_are_labels),
    Option("openlineage.integration.job.owners", Kind.LIST, "Owners of the job, as name=kind.", [], check=_are_owned),
    Option("openlineage.integration.dataset.kafka.bootstrap.servers", Kind.TEXT,
           "Brokers in the names of topics; unset: those of the sink kafka."),
)  # fmt: skip


SPOOLED = (
    *FLOW,
    Option("max.batch.size.in.bytes", Kind.INTEGER, "Maximum number of bytes of the log in a batch.", 48 * 1024 * 1024,
           check=at_least(1024)),
    Option("max.queue.size", Kind.INTEGER, "Maximum number of changes that wait.", 8192, check=at_least(1),
           notice="the spool is bounded in bytes: max.queue.size.in.bytes"),
)  # fmt: skip
"""FLOW for connectors with a spool."""

KEPT_LOG = (
    Option("log.warn.percent", Kind.INTEGER,
           "Part of the time for which the server keeps its log: from this lag on a warning says how much is left; 0: "
           "none. The server is asked every metrics.interval.ms.", 50, check=between(0, 100)),
    Option("log.pause.percent", Kind.INTEGER,
           "Part of that time from which on incremental snapshots wait, until the lag is 5 percent below it; 0: they "
           "never do.", 80, check=between(0, 100)),
    Option("log.stop.percent", Kind.INTEGER,
           "Part of that time at which the pipeline ends with an error that names the next steps, unless it catches "
           "up; 0: it never does.", 0, check=between(0, 100)),
)  # fmt: skip
"""Options of connectors whose server keeps its log for a time, whether or not it was read."""

OWN = (
    Option("tailrace.unknown.options", Kind.TEXT,
           "Response to an unknown option: an error, or a warning, for the time of a migration.", "error",
           choices=("error", "warn")),
    Option("event.version.string", Kind.TEXT, "Version shown in the source block; unset: that of the format."),
    Option("event.quarantine.topic", Kind.TEXT,
           "Topic of changes that cannot become events; unset: topic.prefix followed by `quarantine`."),
    Option("event.max.change.bytes", Kind.INTEGER,
           "Maximum size of a change or a snapshot's row, in bytes; event.processing.failure.handling.mode "
           "decides about a larger one. 0: no limit; unset: a share of the memory of Spark's JVM.", check=at_least(0)),
    Option("event.order", Kind.TEXT, "Order that records keep: that of a topic, or only that of each key.", "topic",
           choices=("topic", "key")),
    Option("event.order.segments", Kind.INTEGER,
           "Parts of a table under event.order=key; unset: Spark's parallelism.", check=at_least(1)),
    Option("row.columns", Kind.LIST,
           "Columns of the rows of spark.readStream, in this order; the others are neither made nor sent. Unset: all. "
           "Refused by `tailrace run`, where the sink decides."),
    Option("rows", Kind.TEXT,
           "Content of the rows of spark.readStream: keys and values as bytes, or the table's columns in Spark's "
           "types. Refused by `tailrace run`, where the sink decides.", "bytes", choices=("bytes", "typed")),
    Option("row.blocks", Kind.TEXT,
           "Set by the sink tables: combine the changes of a table, the last one of each key, without or with deleted "
           "rows' values, or all. Refused in a file.",
           choices=("last", "every", "kept")),
    Option("row.copy", Kind.BOOLEAN,
           "Set by sinks that keep copies: a snapshot reads of each table only what its changes carry. Refused in a "
           "file.", False),
    Option("row.route", Kind.TEXT,
           "Set by the sink tables: tables that are put into one. Refused in a file."),
    Option("tasks.in.files", Kind.BOOLEAN,
           "Keep batches of more than 1 MB in a temporary file instead of Spark's plan; workers must run on the "
           "planner's host as the same user. Unset: true if Spark's master is local, on Linux.", False),
    Option("http.port", Kind.INTEGER,
           "Port of the HTTP server with page, status, metrics and health of the pipeline; 0: there is none.", 0,
           check=between(0, 65_535)),
    Option("http.host", Kind.TEXT, "Address that the HTTP server listens at.", "127.0.0.1"),
    Option("http.auth", Kind.TEXT,
           "Demand a token for everything but health and the empty page, in the header `Authorization: Bearer TOKEN`, "
           "or demand none.", "token", choices=("token", "none")),
    Option("http.token", Kind.SECRET,
           "Token of the HTTP server; unset: a random one in the file `http.token` of the checkpoint.",
           check=matching(r"[!-~]{8,}", "at least 8 printable characters without blanks")),
    Option("health.live.timeout.ms", Kind.INTEGER,
           "Time after which the pipeline counts as stuck if it has neither begun nor ended a batch and has looked for "
           "no changes, in ms.", 60_000, check=at_least(1000)),
    Option("metrics.opentelemetry", Kind.BOOLEAN,
           "Send metrics by OpenTelemetry, as the environment variables OTEL_* say. Needs tailrace[opentelemetry].",
           False),
    Option("metrics.interval.ms", Kind.INTEGER,
           "Interval at which the server is asked what it keeps of its log, in ms, by a short connection; 0: never.",
           15_000, check=at_least(0)),
    Option("metrics.tables.max", Kind.INTEGER,
           "Maximum number of tables with metrics of their own: those with the most changes. The others share the "
           "label `other`.", 1000, check=between(0, 10_000)),
    Option("checkpoint.location", Kind.TEXT,
           "Directory of Spark's checkpoint, or a location with a scheme, such as s3a://…; unset: .tailrace/<name>."),
    Option("connect.timeout.ms", Kind.INTEGER,
           "Longest time to reach a database, broker, registry or store, in ms. A part's own option of that kind takes "
           "precedence.", 10_000, check=at_least(1000)),
    Option("no.table.handling.mode", Kind.TEXT,
           "Response of a pipeline without a checkpoint to lists that match no table: an error with the nearest names, "
           "or a warning, for tables that are made later.", "fail", choices=("fail", "warn")),
    Option("log.format", Kind.TEXT, "Form of the lines of `tailrace run` on stderr.", "text", choices=FORMS),
    Option("log.traceback", Kind.BOOLEAN, "Show Python's stack trace in the errors of a query.", False),
)  # fmt: skip


def formats(event_format: str, chosen: str) -> Option:
    """Return the option `event.format` of a connector with `event_format` or 3; `chosen` describes the default."""
    doc = f"Debezium whose events are written: {event_format} or 3. Unset: {chosen}."
    return Option("event.format", Kind.TEXT, doc, choices=(event_format, "3"))
