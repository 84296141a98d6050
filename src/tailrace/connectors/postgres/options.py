"""The PostgreSQL connector's options: Debezium 3.6's, the 1.x names that still work, and tailrace's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tailrace.config import connect, connector, credentials, processors, relational, signals
from tailrace.config.connector import NO_JVM, ConfigDraft, Options, formats
from tailrace.config.option import Kind, Option, at_least, between, matching
from tailrace.config.rows import is_typed, keeps_copies

_NO_HISTORY = "PostgreSQL's schemas come from its catalog and its log"


_ONE_DATABASE = "a slot belongs to one database, the one that database.dbname names"
_FOLLOWS = "the slot always follows what Spark has committed"
_COMPARED = "slot and checkpoint are always compared, and a gap is an error"
_ONE_SNAPSHOT = "all tasks read under one exported snapshot, which is stricter"
_NO_LOCKS = (
    "tasks read under one exported snapshot, and lock tables in the mode access share alone, as every SELECT does"
)

_OWN_PARAMETERS = ("proto_version", "publication_names", "messages", "streaming", "two_phase")


def stream_parameters(parts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs (name, value) of slot.stream.params."""
    return tuple((name.strip(), value.strip()) for name, _, value in (part.partition("=") for part in parts))


def _interval_fault(value: int) -> str:
    return "" if value == 0 or value >= 100 else f"must be 0, or at least 100, not {value}"


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
    *credentials.options("database."),
    *credentials.CLOUD,
    Option("database.dbname", Kind.TEXT, "Database whose changes are captured."),
    Option(
        "database.sslmode", Kind.TEXT, "Use of TLS, in libpq's words.", "prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"), aliases=("driver.sslmode",),
    ),
    Option("database.sslcert", Kind.TEXT, "Path of the client's certificate, PEM.", aliases=("driver.sslcert",)),
    Option("database.sslkey", Kind.TEXT, "Path of the client's private key, PEM.", aliases=("driver.sslkey",)),
    Option("database.sslpassword", Kind.SECRET, "Password of the client's private key.",
           aliases=("driver.sslpassword",)),
    Option("database.sslrootcert", Kind.TEXT, "Path of the certificate authorities that verify the server.",
           aliases=("driver.sslrootcert",)),
    Option("database.sslfactory", Kind.TEXT,
           "Java socket factory; NonValidatingFactory checks no certificate, as database.sslmode=require.",
           unsupported=NO_JVM, neutral=("org.postgresql.ssl.NonValidatingFactory",)),
    Option("database.tcpKeepAlive", Kind.BOOLEAN, "Send TCP keep-alive probes.", True,
           aliases=("driver.tcpKeepAlive",)),
    Option(
        "database.initial.statements", Kind.STATEMENTS,
        "SQL statements, separated by semicolons, that begin every session, under the user's search_path; "
        "`;;` is a semicolon within one. A role that they set needs REPLICATION.", [],
    ),
    relational.TIMEOUT,
    Option(
        "database.query.timeout.ms", Kind.INTEGER,
        "Longest time of a statement, in ms; 0: no limit. Neither the log nor the chunks of a snapshot are limited.",
        600_000, check=at_least(0),
    ),
    Option(
        "database.connection.factory.class", Kind.TEXT, "Java class that makes connections.", unsupported=NO_JVM
    ),
    Option(
        "database.include.list", Kind.EXPRESSIONS, "Databases to capture.", notice=_ONE_DATABASE,
        aliases=("database.whitelist",),
    ),
    Option(
        "database.exclude.list", Kind.EXPRESSIONS, "Databases to leave out.", notice=_ONE_DATABASE,
        aliases=("database.blacklist",),
    ),
)  # fmt: skip

IDENTITY = (
    *connector.NAMES,
    Option(
        "connector.class", Kind.TEXT, "Debezium's class of the connector, or its short name.",
        "io.debezium.connector.postgresql.PostgresConnector",
        choices=("io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "PostgreSQL", "postgres"),
    ),
    Option("sourceinfo.struct.maker", Kind.TEXT, "Java class that makes the source block.",
           "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker", unsupported=NO_JVM),
)  # fmt: skip

SLOT = (
    Option(
        "plugin.name", Kind.TEXT, "Output plug-in of logical decoding.", "pgoutput", choices=("pgoutput",),
        instead=tuple(
            (plugin, "pgoutput", "it comes with every server since version 10, and the events are the same; a slot "
             "that another plug-in made is to be dropped, or slot.name to be another")
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
        notice="the slot stays, for the checkpoint needs it, and keeps the log meanwhile: drop both by hand, with "
        "pg_drop_replication_slot, when the pipeline is given up",
    ),
    Option("slot.max.retries", Kind.INTEGER, "Tries of a busy slot after the first.", 6, check=at_least(0)),
    Option("slot.retry.delay.ms", Kind.INTEGER, "Time between two tries, in ms.", 10_000, check=at_least(0)),
    Option("slot.failover", Kind.BOOLEAN, "Keep the slot on standbys; from PostgreSQL 17 on.", False),
    Option("slot.stream.params", Kind.STATEMENTS,
           "Further parameters of pgoutput, as `name=value;name=value`: origin=none leaves out replicated changes.", [],
           check=_parameter_fault),
    Option("publication.name", Kind.TEXT, "Name of the publication.", "dbz_publication"),
    Option(
        "publication.autocreate.mode", Kind.TEXT,
        "Creation of a missing publication: for all tables, not at all, for the captured tables (filtered), or without "
        "tables.", "all_tables",
        choices=("all_tables", "disabled", "filtered", "no_tables"),
    ),
    Option("publish.via.partition.root", Kind.BOOLEAN,
           "Show changes of partitions as changes of their root; takes effect when the publication is made, or with "
           "publication.autocreate.mode=filtered.", False),
    Option(
        "replica.identity.autoset.values", Kind.LIST,
        "Replica identities to set at the start: `regex:FULL|DEFAULT|NOTHING|INDEX name`.", [],
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
           unsupported=_FOLLOWS),
    Option("lsn.flush.mode", Kind.TEXT, "Who advances the slot.", unsupported=_FOLLOWS,
           neutral=("connector", "connector_and_driver")),
    Option("lsn.flush.timeout.action", Kind.TEXT, "What follows when a flush takes too long.", "fail",
           choices=("fail", "warn", "ignore"), notice=_FOLLOWS),
    Option("lsn.flush.timeout.ms", Kind.INTEGER, "Longest time of a flush, in ms.", 30_000, notice=_FOLLOWS),
    Option("offset.mismatch.strategy", Kind.TEXT, "What follows when slot and offset differ.", "no_validation",
           choices=("no_validation", "trust_offset", "trust_slot", "trust_greater_lsn"), notice=_COMPARED),
    Option("xmin.fetch.interval.ms", Kind.INTEGER,
           "Interval at which the slot's xmin is read for source blocks, in ms; 0: never.", 0, check=at_least(0)),
    Option("internal.create.slot.command.timeout", Kind.INTEGER, "Longest time to make a slot, in s.", 90,
           notice="making a slot waits as long as the server needs"),
    Option("internal.log.position.check.enable", Kind.BOOLEAN, "Whether the position is checked at start.", True,
           notice=_COMPARED),
    Option("internal.slot.seek.to.known.offset.on.start", Kind.BOOLEAN, "Whether the slot is moved to the offset.",
           False, notice="a slot is never moved past what was delivered"),
)  # fmt: skip

RETENTION = (
    Option("slot.watch.interval.ms", Kind.INTEGER,
           "Interval of looks at the log that the slot keeps on the server, on a session of its own, in ms; 0: none.",
           15_000, check=_interval_fault),
    Option("slot.limit.bytes", Kind.INTEGER,
           "Log that the slot may keep, in bytes: what the server's disk can spare. A lower max_slot_wal_keep_size of "
           "the server counts; 0: that alone.", 0, check=at_least(0)),
    Option("slot.warn.percent", Kind.INTEGER,
           "Part of that limit from which on a warning says what holds the slot back; 0: none.", 50,
           check=between(0, 100)),
    Option("slot.warn.ahead.ms", Kind.INTEGER,
           "The same warning comes this long before the limit is reached at the rate of the last five minutes, in ms.",
           6 * 3_600_000, check=at_least(0)),
    Option("slot.pause.percent", Kind.INTEGER,
           "Part of the limit from which on incremental snapshots wait, until the slot is 5 percent below it; 0: they "
           "never do.", 80, check=between(0, 100)),
    Option("slot.stop.percent", Kind.INTEGER,
           "Part of the limit at which the pipeline ends with an error that names the next steps, unless the log "
           "shrinks; 0: it never does.", 0, check=between(0, 100)),
)  # fmt: skip

FILTERS = (
    *relational.LISTS,
    relational.COMMANDS,
    Option("table.discovery", Kind.TEXT,
           "Capture new tables that the lists name while the pipeline runs, within a minute: the publication gets them "
           "with `publication.autocreate.mode=filtered`, and the rows that they have are read beside the stream.",
           "off", choices=("off", "on")),
    Option("on.data.loss", Kind.TEXT,
           "Response if the log lacks changes, as the slot is lost or the publication was altered. warn: an error if "
           "the position is lost, else a warning that names the tables; stop: always an error; resnapshot: only the "
           "tables that lack changes are read again, all of them if the position is lost.", "warn",
           choices=("warn", "stop", "resnapshot")),
    Option("table.ignore.builtin", Kind.BOOLEAN, "Whether system tables are left out.", True,
           notice="system tables never reach the log"),
    Option("skip.messages.without.change", Kind.BOOLEAN,
           "Drop updates that change no column of the events; needs REPLICA IDENTITY FULL.", False),
    Option("message.prefix.include.list", Kind.EXPRESSIONS, "Prefixes of logical messages to capture.", []),
    Option("message.prefix.exclude.list", Kind.EXPRESSIONS, "Prefixes of logical messages to leave out.", []),
)  # fmt: skip

EVENTS = (
    Option("skipped.operations", Kind.LETTERS, "Operations without events: c, u, d, t; or none.",
           frozenset("t"), default_1x=frozenset()),
    Option("truncate.handling.mode", Kind.TEXT, "1.x: leave truncates out, or include them.", None,
           choices=("skip", "include")),
    Option("interval.handling.mode", Kind.TEXT, "Form of intervals.", "numeric",
           choices=("numeric", "string")),
    Option("hstore.handling.mode", Kind.TEXT, "Form of hstore values.", "json", choices=("json", "map")),
    Option("money.fraction.digits", Kind.INTEGER, "Digits of money after the decimal point.", 2, check=between(0, 18)),
    Option("include.unknown.datatypes", Kind.BOOLEAN, "Write columns of unknown types, as bytes.",
           False),
    Option("unavailable.value.placeholder", Kind.TEXT,
           "Placeholder for an unchanged TOAST value; `hex:` before hexadecimal digits gives bytes.",
           "__debezium_unavailable_value", deprecated_names=("toasted.value.placeholder",),
           check=relational.placeholder_fault),
    Option("include.schema.changes", Kind.BOOLEAN, "Whether schema changes give records.", True,
           notice="Debezium's PostgreSQL connector writes no schema changes either", neutral=(False,)),
    Option("schema.refresh.mode", Kind.TEXT, "When a table's schema is read again.", "columns_diff",
           choices=("columns_diff", "columns_diff_exclude_unchanged_toast"),
           notice="the schema changes exactly when the log says so"),
    *relational.VALUES,
    *connector.RECORDS,
    *processors.OPTIONS,
)  # fmt: skip


SNAPSHOT = (
    Option(
        "snapshot.mode", Kind.TEXT,
        "Snapshot before the log: initial (once), initial_only (once, then stop), always (at each start), no_data "
        "(none), when_needed (once, and again when the slot no longer reaches the checkpoint), configuration_based (as "
        "its switches say).",
        "initial",
        choices=(
            "initial", "always", "no_data", "never", "initial_only", "exported", "when_needed", "configuration_based",
        ),
        instead=tuple(
            (mode, "no_data", "PostgreSQL has no other schema than that of its catalog and its log")
            for mode in ("schema_only", "initial_schema_only")
        ),
        refused=(("custom", NO_JVM),),
    ),
    Option("snapshot.fetch.size", Kind.INTEGER, "Rows that a snapshot fetches at once.", 10_240, check=at_least(1),
           notice="a chunk comes in one COPY, and rows are converted as they arrive"),
    Option("snapshot.isolation.mode", Kind.TEXT,
           "Isolation of the snapshot; both words mean one exported snapshot for all tasks.",
           "serializable", choices=("serializable", "repeatable_read"),
           instead=tuple(
               (mode, "repeatable_read", _ONE_SNAPSHOT) for mode in ("read_committed", "read_uncommitted", "snapshot")
           )),
    Option("snapshot.locking.mode", Kind.TEXT, "Locks of the snapshot.", "none",
           choices=("none", "shared", "minimal", "minimal_percona", "extended", "exclusive"),
           refused=(("custom", NO_JVM),), notice=_NO_LOCKS),
    Option("snapshot.lock.timeout.ms", Kind.INTEGER, "Wait for locks, in ms.", 10_000, notice=_NO_LOCKS),
    Option("snapshot.mode.configuration.based.snapshot.schema", Kind.BOOLEAN,
           "configuration_based: whether schemas are read.", False, notice=_NO_HISTORY),
    Option("snapshot.mode.configuration.based.snapshot.on.data.error", Kind.BOOLEAN,
           "configuration_based: read rows again when the slot no longer reaches the checkpoint.", False),
    Option("snapshot.mode.configuration.based.snapshot.on.schema.error", Kind.BOOLEAN,
           "configuration_based: whether schemas are read again when their history is lost.", False,
           notice=_NO_HISTORY),
    Option("query.fetch.size", Kind.INTEGER, "Rows fetched at once by other queries.", 0,
           notice="other queries return few rows and are read whole"),
    *relational.SNAPSHOT,
)  # fmt: skip

FLOW = (
    *connector.SPOOLED,
    Option("max.queue.size.in.bytes", Kind.INTEGER,
           "Maximum number of bytes in the spool, the first 128 MB in memory and the rest on disk; and of transactions "
           "before their commit. 0: 640 MB and 512 MB.", 0, check=at_least(0)),
    Option("schema.history.internal.<option>", Kind.TEXT, "Schema history of other connectors.",
           pattern=r"(schema\.history\.internal|database\.history)(\..+)?", notice=_NO_HISTORY),
)  # fmt: skip

OWN = (
    formats("1.7", "3 with topic.prefix or rows=typed, else 1.7"),
    Option(
        "read.hold.ms",
        Kind.INTEGER,
        "Time for which the snapshot of spark.read is kept open while no task reads it, in ms.",
        600_000,
        check=at_least(1000),
    ),
    *connector.OWN,
)


def _settle(draft: ConfigDraft) -> None:
    _settle_truncates(draft)
    credentials.settle(draft)
    _settle_tls(draft)
    for name, value in (("table.discovery", "on"), ("on.data.loss", "resnapshot")):
        if is_typed(draft.values) and draft.values[name] == value:
            draft.faults.append(f"{name} = {value} is not supported with rows = typed: columns are fixed at the start, "
                                "and so are the tables")  # fmt: skip
    for name in ("message.prefix.include.list", "message.prefix.exclude.list"):
        if draft.event_format == "1.7" and name in draft.given:
            draft.faults.append(f"{name} is not supported in the 1.7 format, which has no records of messages")


def _settle_tls(draft: ConfigDraft) -> None:
    """Require TLS for a token: whoever reads the token can log in."""
    values, mode = draft.values, "database.sslmode"
    if not values["database.auth.provider"]:
        return
    if mode not in draft.given:
        values[mode] = draft.implied[mode] = "require"
    elif values[mode] in ("disable", "allow", "prefer"):
        draft.faults.append(f"{mode} = {values[mode]} would show the token of database.auth.provider to the network: "
                            "set verify-full, and the server's authority in database.sslrootcert")  # fmt: skip
    if values[mode] == "require":
        draft.notices.append(
            "database.auth.provider sends its token to whoever answers as the server: set database.sslmode=verify-full "
            "and database.sslrootcert."
        )


def _settle_truncates(draft: ConfigDraft) -> None:
    """Reconcile the two options about truncates: 1.x has both, 3 only skipped.operations."""
    mode = draft.values["truncate.handling.mode"]
    skipped: frozenset[str] = draft.values["skipped.operations"]
    if mode is None:
        is_left_out = draft.event_format == "1.7" and not keeps_copies(draft.values)
        mode = "skip" if "t" in skipped or is_left_out else "include"
    elif mode == "include" and "t" in skipped:
        if "skipped.operations" in draft.given:
            draft.faults.append("truncate.handling.mode = include contradicts skipped.operations, which names t")
        skipped = skipped - {"t"}
    if mode == "skip":
        skipped = skipped | {"t"}
    draft.values["truncate.handling.mode"] = mode
    draft.values["skipped.operations"] = skipped


OPTIONS = Options(
    areas=(
        ("Names and topics", IDENTITY),
        ("Connection", CONNECTION),
        ("Slot and publication", SLOT),
        ("Log that the slot keeps", RETENTION),
        ("What is captured", FILTERS),
        ("Events", EVENTS),
        ("Snapshot", SNAPSHOT),
        ("Signals, incremental snapshots, notifications", signals.SIGNALS),
        ("Batches and retries", FLOW),
        ("tailrace's own", OWN),
        ("Kafka Connect", connect.CONNECT),
    ),
    required=("database.hostname", "database.user", "database.dbname"),
    event_format="1.7",
    generations={"database.server.name": "1.7", "topic.prefix": "3"},
    modes={"never": "no_data", "exported": "initial"},
    settle=_settle,
)
