"""The connectors: tailrace's own, and those that other packages bring. No I/O except to find and load them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tailrace import config
from tailrace.config import Config, files
from tailrace.config.config import ConfigExamination
from tailrace.config.extensions import Extensions
from tailrace.config.files import Examination, RunConfig
from tailrace.config.option import Option
from tailrace.connectors.descriptor import Descriptor, Documents
from tailrace.errors import ConfigError, PrerequisiteError
from tailrace.process.installation import pip_install

# --- names of other programs ------------------------------------------------------------------------------------------

_WORKER = "it belongs to a Kafka Connect worker, and there is none"
_BROKERS = "it belongs to a Kafka Connect worker; the brokers are named in debezium.sink.kafka.producer.<option>"
_CLIENT = "it belongs to a Kafka client of a worker's; the producer's options are debezium.sink.kafka.producer.<option>"
_CONFLUENT = "it belongs to Confluent's platform"
_STREAMS = "it is a parameter of change streams in other programs; capture.mode selects the documents of events"
_MYSQL = "it is an option of Debezium's connectors for MySQL and MariaDB"
_ORACLE = "it is an option of Debezium's connector for Oracle"
_ENGINE = "it belongs to Debezium's engine; the parallelism is Spark's"
_DRIVER = "it tunes a Java driver"
_TIMEOUT = "connection.validation.timeout.ms limits the time of a connection"
_COMMENT = "it is a comment"

_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"[_#/].*|comment|description", _COMMENT),
    (r"bootstrap\.servers", _BROKERS),
    (
        r"group\.id|plugin\.path|plugin\.discovery|rest\..+|listeners|listeners\..+|config\.storage\..+"
        r"|status\.storage\..+|config\.providers(\..+)?|internal\.(key|value)\.converter(\..+)?"
        r"|access\.control\..+|admin\.listeners(\..+)?|connector\.client\.config\.override\.policy"
        r"|exactly\.once\.source\.support|inter\.worker\..+|scheduled\.rebalance\.max\.delay\.ms"
        r"|task\.shutdown\.graceful\.timeout\.ms|topic\.tracking\..+|worker\..+|response\.http\.headers\.config"
        r"|connect\.protocol|rebalance\.timeout\.ms|session\.timeout\.ms|metadata\.max\.age\.ms|metric\.reporters"
        r"|metrics\..+|key\.converter\.class|value\.converter\.class",
        _WORKER,
    ),
    (
        r"(producer|consumer|admin)\..+|security\.protocol|sasl\..+|ssl\..+|client\.id|request\.timeout\.ms"
        r"|retry\.backoff\.ms|retries|acks|linger\.ms|batch\.size|buffer\.memory|compression\.type|max\.request\.size"
        r"|delivery\.timeout\.ms|enable\.idempotence|max\.in\.flight\.requests\.per\.connection|max\.poll\.\w+(\.ms)?"
        r"|fetch\.(min|max)\..+|auto\.offset\.reset|enable\.auto\.commit|key\.serializer|value\.serializer",
        _CLIENT,
    ),
    (r"confluent\..+|reporter\..+|value\.subject\.name\.strategy|key\.subject\.name\.strategy", _CONFLUENT),
    (r"(.+\.)?full\.document(\..+)?|change\.stream\..+", _STREAMS),
    (
        r"database\.server\.id(\.offset)?|gtid\..+|binlog\..+|include\.query|bigint\.unsigned\.handling\.mode"
        r"|connect\.keep\.alive(\.interval\.ms)?|enable\.time\.adjuster|inconsistent\.schema\.handling\.mode"
        r"|min\.row\.count\.to\.stream\.results|snapshot\.new\.tables|snapshot\.events\.as\.inserts|ddl\.parser\.mode"
        r"|internal\.implementation|use\.nongraceful\.disconnect|database\.ssl\.mode"
        r"|database\.(jdbc\.driver|jdbc\.protocol|protocol|use\.?ssl|allow\.?public\.?key\.?retrieval"
        r"|(connection|server)\.?time\.?zone|characterencoding|zerodatetimebehavior|tinyint1isbit)",
        _MYSQL,
    ),
    (
        r"log\.mining\..+|rac\.nodes|lob\.enabled|database\.(pdb\.name|connection\.adapter|out\.server\.name"
        r"|oracle\.version|tablename\.case\.insensitive)|openlogreplicator\..+|object\.id\.cache\.size"
        r"|legacy\.decimal\.handling\.strategy|archive\.(log|destination)\..+|event\.convert\.record\.rowid",
        _ORACLE,
    ),
    (r"vitess\..+|gcp\.spanner\..+|cassandra\..+", "it is an option of a connector for another database"),
    (r"rows\.fetch\.size", "it is an option of Debezium 0.x; rows are converted as they arrive"),
    (r"record\.processing\..+|task\.management\.timeout\.ms|engine\..+", _ENGINE),
    (r"(database\.)?(connection|connect)\.timeout(\.ms)?", _TIMEOUT),
    (
        r"(database|driver)\.(autoreconnect|connecttimeout|sockettimeout|logintimeout|tcpkeepalive|applicationname"
        r"|autosave|preparethreshold|preferquerymode|binarytransfer(enable|disable)?|rewritebatchedinserts"
        r"|defaultrowfetchsize|logunclosedconnections|loggerlevel|assumeminserverversion|useserverprepstmts"
        r"|cacheprepstmts|prepstmtcache\w+|maxreconnects|initialtimeout)",
        _DRIVER,
    ),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in _FAMILIES)


def reason_of_name(name: str) -> str:
    """Return why the option `name`, which the connector does not have, has no effect; "" for an unknown name."""
    return next((reason for pattern, reason in _COMPILED if pattern.fullmatch(name)), "")


# --- connectors -------------------------------------------------------------------------------------------------------

GROUP = "tailrace.connectors"
"""The group of the entry points."""

_PLACES = {
    "postgres": "postgres.descriptor:CONNECTOR",
    "mongodb": "mongodb.descriptor:CONNECTOR",
    "sqlserver": "sqlserver.descriptor:CONNECTOR",
    "db2": "db2.descriptor:CONNECTOR",
    "mysql": "binlog.descriptor:MYSQL_CONNECTOR",
    "mariadb": "binlog.descriptor:MARIADB_CONNECTOR",
}
OWN = tuple(_PLACES)
"""The connectors here. The first is the default of files without connector.class."""

# Debezium's other connectors: the error for them says that they are not supported, not that they are unknown.
_ELSEWHERE = ("oracle", "cassandra", "vitess", "spanner", "informix")

_PARTS = Extensions(
    GROUP, "connector", {name: f"tailrace.connectors.{place}" for name, place in _PLACES.items()}, ConfigError
)

_log = logging.getLogger("tailrace")


def find(name: str) -> Descriptor:
    """Return the connector called `name`. Raises ConfigError if it does not exist or cannot be loaded."""
    if name in OWN:
        return _own(name)
    found = _PARTS.load(name)
    if not isinstance(found, Descriptor) or found.name != name:
        raise ConfigError(
            f"What the entry point {name!r} of {GROUP} names is not a Descriptor of that name.",
            "Install a version of its package that fits, or uninstall it.",
        )
    return found


def known() -> list[Descriptor]:
    """Return every connector that can be loaded, tailrace's own first. A warning names the others."""
    return list(_each())


def of_class(text: str) -> Descriptor:
    """Return the connector that `connector.class` names; for an empty text the first of tailrace's own. Raises
    ConfigError."""
    short = text.strip().rpartition(".")[2].lower()
    if not short:
        return _own(OWN[0])
    for descriptor in _each():
        if short in descriptor.names:
            return descriptor
    titles = ", ".join(one.title for one in sorted(known(), key=lambda one: one.name))
    if any(short.startswith(other) for other in _ELSEWHERE):
        raise ConfigError(f"connector.class = {text} is not supported, for now.", f"Known are: {titles}.")
    raise ConfigError(
        f"connector.class = {text} is not a known connector.",
        f"Name one as Debezium does, as {_own(OWN[0]).class_name}; known are: {titles}.",
    )


def parse(name: str, options: Mapping[str, str]) -> Config:
    """Return the configuration of the connector called `name` from `options`; see `tailrace.config.parse`."""
    descriptor = find(name)
    return config.parse(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor))


def table(name: str) -> tuple[Option, ...]:
    """Return every option of the connector called `name`. Raises ConfigError."""
    return find(name).load_options().table


def examine(options: Mapping[str, str], unknown: Collection[str] = ()) -> ConfigExamination:
    """Examine `options` for the connector that their `connector.class` names; see `tailrace.config.config.examine`.

    Raises ConfigError for an unknown class.
    """
    descriptor = of_class(options.get("connector.class", ""))
    return config.examine(descriptor.traits, descriptor.load_options(), options, _foreign(descriptor), unknown)


def _foreign(descriptor: Descriptor) -> config.Foreign:
    """Return a function that explains names that the connector does not have: those of other programs and
    connectors."""

    def reason(name: str) -> str:
        known = reason_of_name(name)
        if known:
            return known
        for other in map(_own, OWN):
            if other.name != descriptor.name and any(_has(option, name) for option in other.load_options().table):
                return f"it is an option of the connector for {other.title}; Debezium's connector here has none such"
        return ""

    return reason


def _has(option: Option, name: str) -> bool:
    """Return True if another connector's option has the name. Options of drivers, and families that begin with any
    name, are too general to identify a connector."""
    names = (option.name, *option.aliases, *option.deprecated_names)
    return name in map(str.lower, names) or (not option.name.startswith(("driver.", "<")) and option.matches(name))


def read(
    path: str | Path,
    overrides: Mapping[str, str] | None = None,
    *,
    checkpoint: str | None = None,
    sinks: Collection[str] = (),
) -> RunConfig:
    """Read the pipeline of a file; see `tailrace.config.files.read`."""
    return files.read(path, examine, overrides, checkpoint=checkpoint, sinks=sinks)


def from_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> RunConfig:
    """Return the pipeline of a file's entries; see `tailrace.config.files.from_entries`."""
    return files.from_entries(entries, examine, environment, sinks=sinks)


def examine_entries(
    entries: Mapping[str, str], environment: Mapping[str, str] | None = None, *, sinks: Collection[str] = ()
) -> Examination:
    """Examine each of a file's entries; see `tailrace.config.files.examine_entries`."""
    return files.examine_entries(entries, examine, environment, sinks=sinks)


def lacking_driver(error: BaseException) -> PrerequisiteError | None:
    """Return an error that says what to install if `error` is a missing driver of a connector; None for any other
    error."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    for descriptor in _each():
        if error.name.partition(".")[0] in descriptor.drivers:
            return PrerequisiteError(
                f"The driver of {descriptor.title} is not installed: there is no module {error.name}.",
                f"Install it: {pip_install(descriptor.requirement)}.",
            )
    return None


def documents() -> Documents:
    """Return the part that makes documents from events, of the first connector that has one. Raises ConfigError."""
    for descriptor in _each():
        found = descriptor.load_documents()
        if found is not None:
            return found
    raise ConfigError("No connector makes documents of its events.", "Install one that does.")


def _own(name: str) -> Descriptor:
    found: Descriptor = _PARTS.own(name)
    return found


def _each() -> Iterator[Descriptor]:
    """Yield every connector, as `known` does. Entry points are searched only after tailrace's own connectors."""
    for name in OWN:
        yield _own(name)
    for name in _PARTS.names()[len(OWN) :]:
        try:
            yield find(name)
        except ConfigError as error:
            _log.warning("%s %s", error.message, error.remedy)
