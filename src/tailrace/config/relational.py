"""Groups of options that the connectors of relational databases share. No I/O."""

from __future__ import annotations

from tailrace.config.columns import key_columns
from tailrace.config.connector import NO_JVM
from tailrace.config.option import Kind, Option, at_least


def _keys_fault(text: str) -> str:
    try:
        key_columns(text)
    except ValueError as fault:
        return str(fault)
    return ""


def placeholder_fault(text: str) -> str:
    """Return the fault of unavailable.value.placeholder; "" if none."""
    try:
        if not text.startswith("hex:") or bytes.fromhex(text[4:]):
            return ""
    except ValueError:
        pass
    return "must have pairs of hexadecimal digits after hex:"


TIMEOUT = Option("connection.validation.timeout.ms", Kind.INTEGER,
                 "Longest time to connect, in ms; unset: connect.timeout.ms.", check=at_least(1000))  # fmt: skip

COMMANDS = Option("table.commands", Kind.TEXT,
                  "Response at the start if the lists were edited since tailrace tables has added or removed tables, "
                  "and contradict that: an error, or take the lists, or the commands.", "fail",
                  choices=("fail", "lists", "commands"))  # fmt: skip

LISTS = (
    Option("schema.include.list", Kind.EXPRESSIONS, "Schemas to capture.", [],
           deprecated_names=("schema.whitelist",)),
    Option("schema.exclude.list", Kind.EXPRESSIONS, "Schemas to leave out.", [],
           deprecated_names=("schema.blacklist",)),
    Option("table.include.list", Kind.EXPRESSIONS, "Tables to capture, as schema.table.", [],
           deprecated_names=("table.whitelist",)),
    Option("table.exclude.list", Kind.EXPRESSIONS, "Tables to leave out, as schema.table.", [],
           deprecated_names=("table.blacklist",)),
    Option("column.include.list", Kind.EXPRESSIONS,
           "Columns to show in values, as schema.table.column; keys always have all of theirs.", [],
           deprecated_names=("column.whitelist",)),
    Option("column.exclude.list", Kind.EXPRESSIONS,
           "Columns to leave out of values, as schema.table.column; keys always have all of theirs.", [],
           deprecated_names=("column.blacklist",)),
    Option("column.truncate.to.<n>.chars", Kind.EXPRESSIONS,
           "Columns whose text is cut to n UTF-16 units.", [],
           pattern=r"column\.truncate\.to\.\d+\.chars"),
    Option("column.mask.with.<n>.chars", Kind.EXPRESSIONS, "Columns whose text is replaced by n asterisks.", [],
           pattern=r"column\.mask\.with\.\d+\.chars"),
    Option("column.mask.hash.<algorithm>.with.salt.<salt>", Kind.EXPRESSIONS,
           "Columns whose text is replaced by a salted digest, named as in Java, cut to the column's length. "
           "`hash.v2` digests the text, `hash` Java's form of it.", [],
           pattern=r"column\.mask\.hash\.(v2\.)?[^.]+\.with\.salt\..+"),
    Option("column.propagate.source.type", Kind.EXPRESSIONS,
           "Columns whose schemas show their type, length and scale in the database.", []),
    Option("datatype.propagate.source.type", Kind.EXPRESSIONS,
           "Types, as schema.table.type, whose columns' schemas show type, length and scale in the database.", []),
    Option("message.key.columns", Kind.TEXT,
           "Columns of the keys, as `table:column,column;…`, tables as expressions over schema.table.",
           check=_keys_fault),
    Option("guardrail.collections.max", Kind.INTEGER, "Maximum number of captured tables; 0: no limit.", 0,
           check=at_least(0)),
    Option("guardrail.collections.limit.action", Kind.TEXT,
           "Response at the start if more tables are captured than guardrail.collections.max.", "warn",
           choices=("warn", "fail")),
)  # fmt: skip

VALUES = (
    Option("decimal.handling.mode", Kind.TEXT, "Form of numeric and money values.", "precise",
           choices=("precise", "double", "string")),
    Option("time.precision.mode", Kind.TEXT, "Form of dates and times.", "adaptive",
           choices=("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds",
                    "structured")),
    Option("binary.handling.mode", Kind.TEXT, "Form of binary values.", "bytes",
           choices=("bytes", "base64", "base64-url-safe", "hex")),
    Option("schema.name.adjustment.mode", Kind.TEXT, "Adjustment of schema names.", "none", default_1x="avro",
           choices=("none", "avro", "avro_unicode")),
    Option("field.name.adjustment.mode", Kind.TEXT, "Adjustment of field names.", "none",
           choices=("none", "avro", "avro_unicode")),
    Option("sanitize.field.names", Kind.BOOLEAN,
           "1.x: make field names fit for Avro, as field.name.adjustment.mode=avro does.", False),
    Option("include.schema.comments", Kind.BOOLEAN,
           "In schemas that show a column's type in the database, show its comment too.", False),
    Option("converters", Kind.LIST, "Custom converters.", [], unsupported=NO_JVM),
)  # fmt: skip

SNAPSHOT = (
    Option("snapshot.max.threads", Kind.INTEGER, "Tables or chunks that are read at the same time.", 1,
           check=at_least(1), notice="chunks are tasks, as many at a time as Spark has cores"),
    Option("snapshot.max.threads.multiplier", Kind.INTEGER, "Chunks for each thread.", 1,
           notice="chunks have a size of their own"),
    Option("legacy.snapshot.max.threads", Kind.BOOLEAN, "The older parallel snapshot.", False,
           deprecated_names=("internal.legacy.snapshot.max.threads",),
           notice="there is one way to read a snapshot"),
    Option("snapshot.include.collection.list", Kind.EXPRESSIONS,
           "Captured tables that the snapshot reads, as schema.table; unset: all.", []),
    Option("snapshot.select.statement.overrides", Kind.LIST,
           "Tables, as schema.table, with a snapshot statement of their own.", []),
    Option("snapshot.select.statement.overrides.<table>", Kind.TEXT,
           "Snapshot statement for a table: its rows, with every captured column by its name.",
           pattern=r"snapshot\.select\.statement\.overrides\..+"),
    Option("snapshot.locking.mode.custom.name", Kind.TEXT, "Java class of locks.", unsupported=NO_JVM),
    Option("snapshot.query.mode", Kind.TEXT, "How rows are selected.", "select_all", unsupported=NO_JVM),
    Option("snapshot.query.mode.custom.name", Kind.TEXT, "Java class of queries.", unsupported=NO_JVM),
    Option("snapshot.mode.custom.name", Kind.TEXT, "Java class of the mode.",
           deprecated_names=("snapshot.custom.class",), unsupported=NO_JVM),
    Option("snapshot.mode.configuration.based.snapshot.data", Kind.BOOLEAN,
           "configuration_based: read rows at each start.", False),
    Option("snapshot.mode.configuration.based.start.stream", Kind.BOOLEAN,
           "configuration_based: read the log.", False),
    Option("snapshot.delay.ms", Kind.INTEGER, "Time to wait before a snapshot, in ms.", 0, check=at_least(0)),
    Option("streaming.delay.ms", Kind.INTEGER, "Time to wait between the snapshot and the log, in ms.", 0,
           check=at_least(0)),
    Option("snapshot.tables.order.by.row.count", Kind.TEXT,
           "Order of the snapshot's tables by their estimated number of rows.", "disabled",
           choices=("disabled", "ascending", "descending")),
    Option("internal.snapshot.scan.all.columns.force", Kind.BOOLEAN, "Whether all columns are scanned.", False,
           notice="the snapshot reads the captured columns"),
)  # fmt: skip
