"""Sink: where the records of a pipeline go, and what it needs. Everything here runs in the driver.

A pipeline knows no sink by its name: it goes by what the class of the sink says of itself.
"""

from __future__ import annotations

import difflib
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
from tailrace.config.config import Config
from tailrace.config.jar import Jar
from tailrace.config.option import split_list
from tailrace.connectors.findings import Finding
from tailrace.errors import SinkError, TailraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TOPICS = "topic.creation."
"""The beginning of the options that say how topics are made."""

_log = logging.getLogger("tailrace")

Order = Literal["topic", "key"]
Delivery = Literal["exactly once", "at least once"]


class Sink(ABC):
    """A place for records. Its class is called with the options that follow `debezium.sink.<name>.`.

    What it needs to know of the connector's own options it reads in `adopt`, which is called before anything else.

    `name` is the word of `debezium.sink.type`.

    `columns` are those of the row (`tailrace.columns.row`) that `start` reads. The source makes and sends these, and
    the few that the pipeline reads itself: the JVM copies every column of every row twice.

    `places` are those of `tailrace.columns.row.PLACES` that it reads besides, where a transform fills them.

    `order` is what the sink needs of the order of records. `topic`: the records of a topic come as `event.order` says,
    in the order of the log unless the configuration names another. `key`: the order of each key is enough, since the
    sink goes by `(position, ordinal)`; a table is then split over several tasks, unless the configuration names
    `event.order`.

    `delivery` is what a batch leaves behind that is replayed after a crash: `exactly once`, nothing that was not there
    before; `at least once`, its records a second time.

    `jars` are the libraries that Spark's JVM needs for it and PySpark does not bring, `settings` those of Spark that go
    with them, which a user's own come before.

    `changes` is, where a row is no record but several changes, how many it is, in words of Spark's SQL.

    `prints` says that records go to the terminal, where the status line would stand in their way.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = COLUMNS
    places: ClassVar[tuple[str, ...]] = ()
    order: ClassVar[Order] = "topic"
    delivery: ClassVar[Delivery]
    jars: tuple[Jar, ...] = ()
    settings: Mapping[str, str] = MappingProxyType({})
    changes: ClassVar[str] = ""
    prints: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options. Connects to nothing; raises SinkError for an option that is unknown or wrong."""

    def adopt(self, source: Config) -> None:
        """Read what the connector's options say of the records. Connects to nothing.

        Raises ConfigError or SinkError for what the sink cannot follow.
        """
        if any(name.startswith(TOPICS) for name in source.given):
            _log.warning("%s* has no effect: the sink %s makes no topics", TOPICS, self.name)

    def source_options(self) -> dict[str, str]:
        """Options of the source that the sink sets, whatever the configuration says."""
        return {}

    def source_defaults(self) -> dict[str, str]:
        """Options of the source that have another value with this sink where the configuration does not name them."""
        return {}

    @property
    def folder(self) -> str | None:
        """The directory that tasks write to and the driver completes; None where there is none.

        On a cluster the pipeline makes sure that executors see it, where it is a local path.
        """
        return None

    def missing(self) -> list[Finding]:
        """Warnings of options that a start needs and that are not there yet. Looks nothing up."""
        return []

    def advice(self) -> list[Finding]:
        """What `tailrace check` warns of, though records can be written. Connects to nothing."""
        return []

    def asked(self) -> list[Finding]:
        """What `tailrace check` finds by asking the place where records go, within seconds."""
        return []

    def failure(self, text: str) -> TailraceError | None:
        """The error that the text of a failed query describes, when it is of the place where records go; else None.

        The text is that of exceptions of the JVM and of Python, with their stack traces. A batch that fails ends the
        query, and the next start replays it: what may pass, as a short loss of the connection, the sink tries again
        itself before that. The kind of the error says whether another start may succeed: ConnectionFailed when the
        place was not reached, SinkError when somebody has to act first. Neither holds data or secrets.
        """
        return None

    @abstractmethod
    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        """Start writing `frame`, which has the columns `columns` and may have more.

        `trigger` holds the one argument of Spark's `DataStreamWriter.trigger`, `query` is the query's name. The
        records of a topic, or, where `order` is `key`, of a key, arrive in the order of the frame's partitions.
        """


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one sink, under the names that follow `debezium.sink.<sink>.`."""

    sink: str
    given: Mapping[str, str]

    def only(self, known: Iterable[str]) -> None:
        """Raise SinkError when an option is given that is not in `known`."""
        names = list(known)
        for name in self.given:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                nearest = f" The nearest is debezium.sink.{self.sink}.{close[0]}." if close else ""
                allowed = ", ".join(names) or "none"
                raise SinkError(f"The sink {self.sink} has no option {name}.{nearest}", f"It has: {allowed}.")

    def required(self, name: str) -> str:
        """The value of an option; raises SinkError when it is absent or empty."""
        value = self.given.get(name, "").strip()
        if not value:
            raise SinkError(f"The sink {self.sink} needs debezium.sink.{self.sink}.{name}.", "Set it.")
        return value

    def text(self, name: str, default: str = "") -> str:
        """The value of an option; `default` when it is absent or empty."""
        return self.given.get(name, "").strip() or default

    def located(self, name: str, *variables: str) -> str:
        """The value of an option that says where the place is, or of an environment variable; empty without both.

        The variables are the one that Debezium Server reads for the option, and `variables`.
        """
        own = re.sub(r"[^A-Za-z0-9]", "_", f"debezium.sink.{self.sink}.{name}").upper()
        found = (os.environ.get(variable, "").strip() for variable in (own, *variables))
        return self.text(name) or next(filter(None, found), "")

    def number(self, name: str, default: int, least: int = 0, most: int = (1 << 31) - 1) -> int:
        """A whole number within limits; raises SinkError for anything else."""
        text = self.text(name)
        if not text:
            return default
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise self.wrong(name, f"must be a whole number between {least} and {most}")
        return int(text)

    def seconds(self, name: str, default_ms: int, least: int = 0) -> float:
        """An option in milliseconds, as seconds."""
        return self.number(name, default_ms, least) / 1000

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; raises SinkError for anything else."""
        return self.choice(name, "true" if default else "false", ("true", "false")) == "true"

    def choice(self, name: str, default: str, words: Sequence[str]) -> str:
        """One of `words`, whatever its case; raises SinkError for anything else."""
        word = self.text(name, default).lower()
        if word not in words:
            raise self.wrong(name, f"must be one of {', '.join(words)}")
        return word

    def listed(self, name: str) -> tuple[str, ...]:
        """The parts of a comma-separated list."""
        return tuple(split_list(self.text(name)))

    def wrong(self, name: str, why: str) -> SinkError:
        """The error of an option; `why` goes on after its name. The value is not shown: it may hold a secret."""
        return SinkError(f"debezium.sink.{self.sink}.{name} {why}.", "Correct it.")

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise SinkError for an option that is given and not supported: `reasons` by name, or by prefix with a `*`."""
        for name in self.given:
            for pattern, reason in reasons.items():
                if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                    raise SinkError(f"debezium.sink.{self.sink}.{name} is not supported: {reason}.", "Leave it out.")


def unreadable(error: OSError | ValueError) -> str:
    """Why a PEM file cannot be read, in words; OpenSSL's own say nothing."""
    said = None if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
    return said or "it is no PEM file, or its password is another one"
