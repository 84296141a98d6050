"""Options that SQL Server's and Db2's connectors share. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.config.connector import NO_JVM
from tailrace.config.option import Kind, Option, at_least

NO_HISTORY = "the history of schemas is in Spark's checkpoint"
_NO_BUFFER = "nothing waits in a queue: tasks read their range of a change table when its batch is due"


def replacing(shared: Iterable[Option], own: Sequence[Option]) -> tuple[Option, ...]:
    """Return the options of `own`, preceded by the options of `shared` with other names."""
    names = {option.name for option in own}
    return (*(option for option in shared if option.name not in names), *own)


POSITION_CHECK = Option(
    "internal.log.position.check.enable", Kind.BOOLEAN, "Whether the position is checked at start.", True,
    notice="the change tables are always compared with the checkpoint",
)  # fmt: skip
BUILTIN = Option("table.ignore.builtin", Kind.BOOLEAN, "Whether system tables are left out.", True,
                 notice="system tables have no change tables")  # fmt: skip

EVENTS = (
    Option("skipped.operations", Kind.LETTERS, "Operations without events: c, u, d, t; or none.", frozenset("t")),
    Option("include.schema.changes", Kind.BOOLEAN,
           "Send records of new and altered tables on the topic named topic.prefix.", True),
    Option("include.schema.comments", Kind.BOOLEAN, "Whether schemas hold the comments of columns.", False,
           notice="Debezium's connector learns no comments from its driver, so no schema has any"),
    Option("skip.messages.without.change", Kind.BOOLEAN,
           "Drop updates that change no column of the events.", False),
    Option("unavailable.value.placeholder", Kind.TEXT, "What stands for a value that the log does not carry.",
           "__debezium_unavailable_value",
           notice="a change table has whole rows; a large object that it has no column for is in no event"),
)  # fmt: skip

SNAPSHOT = (
    Option("snapshot.mode.configuration.based.snapshot.schema", Kind.BOOLEAN,
           "configuration_based: whether schemas are read.", False, notice=NO_HISTORY),
    Option("snapshot.mode.configuration.based.snapshot.on.data.error", Kind.BOOLEAN,
           "configuration_based: read rows again when the change tables no longer reach the checkpoint.",
           False),
    Option("snapshot.mode.configuration.based.snapshot.on.schema.error", Kind.BOOLEAN,
           "configuration_based: whether schemas are read again when their history is lost.", False,
           notice=NO_HISTORY),
    Option("snapshot.locking.mode", Kind.TEXT, "Locks while schemas are read.", "exclusive",
           choices=("exclusive", "none"), refused=(("custom", NO_JVM),),
           notice="columns are those of the change table, which never change, so no table is locked to read them; "
           "snapshot.isolation.mode sets the locks of rows"),
)  # fmt: skip

TAKEN_MODES = (("never", "no_data", "the change tables hold the schemas"),)
"""Values of `snapshot.mode` of other connectors, with their replacements here; see `Option.instead`."""

MODES = ("initial", "always", "initial_only", "no_data", "schema_only", "when_needed", "configuration_based")
"""Values of `snapshot.mode`. OLDER_MODES has the replacements of older values."""

OLDER_MODES = {"schema_only": "no_data", "initial_schema_only": "no_data", "never": "no_data"}

REFUSED_MODES = (
    ("recovery", f"{NO_HISTORY}, which cannot be lost apart from the position"),
    ("custom", NO_JVM),
)

FLOW = (
    Option("max.batch.size", Kind.INTEGER, "Maximum number of changes in a batch; obeyed only when given.", 2048,
           check=at_least(1)),
    Option("max.iteration.transactions", Kind.INTEGER,
           "Maximum number of transactions in a batch, for each database; obeyed only when given; 0: no limit.", 500,
           check=at_least(0)),
    Option("max.queue.size", Kind.INTEGER, "Maximum number of changes that wait.", 8192, check=at_least(1),
           notice=_NO_BUFFER),
    Option("max.queue.size.in.bytes", Kind.INTEGER, "Maximum number of bytes that wait.", 0, check=at_least(0),
           notice=_NO_BUFFER),
    Option("schema.history.internal.store.only.captured.tables.ddl", Kind.BOOLEAN,
           "Leave tables that are not captured out of the schema changes at the start.",
           False),
    Option("schema.history.internal.<option>", Kind.TEXT, "Where Debezium keeps the history of schemas.",
           pattern=r"(schema\.history\.internal|database\.history)(\..+)?", notice=NO_HISTORY),
)  # fmt: skip

OWN = (
    Option("event.order", Kind.TEXT, "Order that records keep: that of a topic.", "topic", choices=("topic",),
           refused=(("key", "a range of a change table is read by one query, in its order"),)),
    Option("event.order.segments", Kind.INTEGER, "Parts of a table under event.order=key.",
           unsupported="a range of a change table is read by one query, in its order"),
    Option("read.signal.data.collection", Kind.TEXT,
           "Captured table to which spark.read writes a row to find its position; form and "
           "columns as in signal.data.collection, its default. It is not read itself."),
)  # fmt: skip
