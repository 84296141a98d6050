"""The interface between a pipeline and a sink, and the options of a sink. Driver.

A pipeline never tests a sink's name; it reads the attributes of the sink's class.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tailrace.columns.row import COLUMNS
from tailrace.columns.table import TableId
from tailrace.config.config import Config
from tailrace.config.jar import Jar
from tailrace.config.named_options import NamedOptions, nearest
from tailrace.config.option import split_list
from tailrace.connectors.findings import Finding
from tailrace.errors import SinkError, TailraceError
from tailrace.process import reachability
from tailrace.snapshot.mode import snapshot_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.metrics.tally import SinkCounts

TOPICS = "topic.creation."
"""Prefix of the options for creating topics."""

_log = logging.getLogger("tailrace")

Order = Literal["topic", "key"]
Delivery = Literal["exactly once", "at least once"]


class Sink(ABC):
    """A destination for records. The class is called with the options that follow `debezium.sink.<name>.`.

    The connector's options are read in `adopt`, which is called before any other method.

    `name`: the value of `debezium.sink.type`.

    `columns`: the columns of a row (`tailrace.columns.row`) that `start` reads. The source produces only these and the
    few that the pipeline reads itself, because the JVM copies every column of every row twice.

    `places`: names from `tailrace.columns.row.PLACES` that the sink reads as well if a transform fills them.

    `order`: the order of records that the sink needs. With `topic` the records of a topic arrive in the order that
    `event.order` sets, by default the order of the log. With `key` the order within each key suffices, because the sink
    compares `(position, ordinal)`; a table is then split over several tasks unless `event.order` is configured.

    `delivery`: the result of a batch that is replayed after a crash. With `exactly once` the replay adds nothing; with
    `at least once` it delivers the records a second time.

    `jars`: libraries that Spark's JVM needs for the sink and PySpark does not contain. `settings`: Spark settings that
    these libraries need; settings of the user take precedence. `further_jars`: libraries that only some options need; a
    sink with such options has them among its `jars`. `counts`: the counts of retries and refused records; None if the
    sink does not count them.

    `changes`: for a sink whose rows hold several changes each, the Spark SQL expression that counts them; else "".

    `prints`: True if records are printed to the terminal, so that no status line is shown there.

    `connect_s`: seconds within which a destination must be reached: the source's connect.timeout.ms, unless the sink
    has an option of its own.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = COLUMNS
    places: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[Order] = "topic"
    delivery: ClassVar[Delivery]
    jars: tuple[Jar, ...] = ()
    further_jars: ClassVar[tuple[Jar, ...]] = ()
    counts: SinkCounts | None = None
    settings: Mapping[str, str] = MappingProxyType({})
    changes: ClassVar[str] = ""
    prints: ClassVar[bool] = False
    connect_s: float = 10.0

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options without connecting. Raises SinkError for an option that is unknown or wrong."""

    def adopt(self, source: Config) -> None:
        """Read the connector's options that affect the records, without connecting.

        Raises ConfigError or SinkError for an option that the sink cannot follow.
        """
        if any(name.startswith(TOPICS) for name in source.given):
            _log.warning("%s* has no effect: the sink %s makes no topics", TOPICS, self.name)

    def source_options(self) -> dict[str, str]:
        """Return source options that the sink sets regardless of the configuration."""
        return {}

    def source_defaults(self) -> dict[str, str]:
        """Return other defaults of source options, which apply if the configuration does not set the options."""
        return {}

    @property
    def folder(self) -> str | None:
        """The directory that tasks write to and the driver completes; None if there is none.

        If it is a local path, the pipeline checks on a cluster that the executors see it.
        """
        return None

    def dataset(self, topic: str, table: TableId) -> tuple[str, str, str] | None:
        """Return namespace, name and type of the OpenLineage dataset to which a table's records of a topic are written.

        Returns None if OpenLineage defines no name for it.
        """
        return None

    def missing(self) -> list[Finding]:
        """Return warnings for missing options that a start needs, without I/O."""
        return []

    def advice(self) -> list[Finding]:
        """Return warnings of `tailrace check` that do not prevent a start, without connecting."""
        return []

    def servers(self) -> Sequence[reachability.Place]:
        """Return the servers that the sink writes to, one of which must accept connections; () if none is known."""
        return ()

    def asked(self) -> list[Finding]:
        """Connect to the destination, for `tailrace check` and at a start, and return the findings.

        Takes up to `connect_s` seconds. A finding of the level `error` means that the destination is not reached. By
        default one of `servers` must accept a connection.
        """
        servers = self.servers()
        if not servers:
            return []
        reason = reachability.fault(servers, self.connect_s)
        if reason:
            text = f"The destination of the sink {self.name} is not reached: {reason}."
            return [Finding("error", "sink", text, f"Check debezium.sink.{self.name}.* and the network.")]
        return [Finding("ok", "sink", f"The sink {self.name} reaches {', '.join(map(reachability.shown, servers))}.")]

    def failure(self, text: str) -> TailraceError | None:
        """Return the error that a failed query's text describes; None if the destination is not the cause.

        `text` holds exceptions of the JVM and of Python with their stack traces. A failed batch ends the query, and the
        next start replays it; the sink itself retries transient failures, such as a lost connection, before it fails.
        Returns ConnectionFailed if the destination was not reached and another start may succeed, and SinkError if
        somebody must act first. The error holds no data and no secrets.
        """
        return None

    @abstractmethod
    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        """Start writing `frame`, which has at least the columns `columns`.

        `trigger` holds the one argument of Spark's `DataStreamWriter.trigger`; `query` is the query's name. The records
        of a topic (of a key if `order` is `key`) arrive in the order of the frame's partitions.
        """


_PARTIAL = (
    "snapshot.include.collection.list",
    "snapshot.select.statement.overrides",
    "snapshot.collection.filter.overrides",
)


def warn_of_partial_snapshots(source: Config) -> None:
    """Log a warning for options with which the initial snapshot leaves out rows, which copies then lack."""
    found = [name for name in _PARTIAL if source.get(name)]
    # recovery continues an earlier checkpoint
    if snapshot_mode(source).reads == "never" and source["snapshot.mode"] != "recovery":
        found.insert(0, f"snapshot.mode={source['snapshot.mode']}")
    if found:
        _log.warning(
            "with %s copies lack rows that exist before the first start and are not written after it; remedy: leave it "
            "out, or read the tables by a snapshot (signal execute-snapshot)",
            ", ".join(found),
        )


@dataclass(frozen=True, slots=True)
class Settings(NamedOptions):
    """The options of a sink, by the part of their names after `debezium.sink.<sink>.`."""

    sink: str
    given: Mapping[str, str]

    def only(self, known: Iterable[str]) -> None:
        """Raise SinkError for a given option that is not in `known`."""
        names = list(known)
        for name in self.given:
            if name not in names:
                close = nearest(name, names)
                hint = f" The nearest is debezium.sink.{self.sink}.{close}." if close else ""
                allowed = ", ".join(names) or "none"
                raise SinkError(f"The sink {self.sink} has no option {name}.{hint}", f"It has: {allowed}.")

    def required(self, name: str) -> str:
        """Return an option's value. Raises SinkError if it is absent or empty."""
        value = self.given.get(name, "").strip()
        if not value:
            raise SinkError(f"The sink {self.sink} needs debezium.sink.{self.sink}.{name}.", "Set it.")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return an option's value; `default` if it is absent or empty."""
        return self.given.get(name, "").strip() or default

    def located(self, name: str, *variables: str) -> str:
        """Return an address from the option, else from an environment variable; "" if neither is set.

        The variable that Debezium Server reads for the option comes first, then `variables` in their order.
        """
        own = re.sub(r"[^A-Za-z0-9]", "_", f"debezium.sink.{self.sink}.{name}").upper()
        found = (os.environ.get(variable, "").strip() for variable in (own, *variables))
        return self.text(name) or next(filter(None, found), "")

    def number(self, name: str, default: int, least: int = 0, most: int = (1 << 31) - 1) -> int:
        """Return a whole number between `least` and `most`. Raises SinkError for any other value."""
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise self.wrong(name, f"must be a whole number between {least} and {most}")
        return int(text)

    def seconds(self, name: str, default_ms: int, least: int = 0) -> float:
        """Return an option that is in milliseconds, in seconds."""
        return self.number(name, default_ms, least) / 1000

    def listed(self, name: str) -> tuple[str, ...]:
        """Return the items of a comma-separated list."""
        return tuple(split_list(self.text(name)))

    def wrong(self, name: str, why: str) -> SinkError:
        """Return the error for a wrong option, without its value, which may be a secret. `why` continues a sentence
        after the option's name."""
        return SinkError(f"debezium.sink.{self.sink}.{name} {why}.", "Correct it.")

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise SinkError if an unsupported option is given. `reasons` maps a name, or a prefix with `*`, to the
        reason."""
        for name in self.given:
            for pattern, reason in reasons.items():
                if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                    raise SinkError(f"debezium.sink.{self.sink}.{name} is not supported: {reason}.", "Leave it out.")


def unreadable(error: OSError | ValueError) -> str:
    """Return the reason why a PEM file cannot be read, which OpenSSL's messages do not contain."""
    said = None if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return said or "it is not a PEM file, or its password is wrong"
