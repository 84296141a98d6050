"""Sink: where the records of a pipeline go, and what it needs. Everything here runs in the driver.

A pipeline knows no sink by its name: it goes by what the class of the sink says of itself.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tailrace.columns.row import COLUMNS
from tailrace.connectors.findings import Finding
from tailrace.errors import SinkError, TailraceError
from tailrace.jar import Jar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Order = Literal["topic", "key"]
Delivery = Literal["exactly once", "at least once"]


class Sink(ABC):
    """A place for records. Its class is called with the options that follow `debezium.sink.<name>.`.

    `name` is the word of `debezium.sink.type`.

    `columns` are those of the row (`tailrace.columns.row`) that `start` reads. The source makes and sends these, and
    the few that the pipeline reads itself: the JVM copies every column of every row twice.

    `order` is what the sink needs of the order of records. `topic`: the records of a topic come as `event.order` says,
    in the order of the log unless the configuration names another. `key`: the order of each key is enough, since the
    sink goes by `(position, ordinal)`; a table is then split over several tasks, unless the configuration names
    `event.order`.

    `delivery` is what a batch leaves behind that is replayed after a crash: `exactly once`, nothing that was not there
    before; `at least once`, its records a second time.

    `jars` are the libraries that Spark's JVM needs for it and PySpark does not bring.

    `prints` says that records go to the terminal, where the status line would stand in their way.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = COLUMNS
    order: ClassVar[Order] = "topic"
    delivery: ClassVar[Delivery]
    jars: ClassVar[tuple[Jar, ...]] = ()
    prints: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options. Connects to nothing; raises SinkError for an option that is unknown or wrong."""

    @property
    def folder(self) -> str | None:
        """The directory that tasks write to and the driver completes; None where there is none.

        On a cluster the pipeline makes sure that executors see it, where it is a local path.
        """
        return None

    def missing(self) -> list[str]:
        """What has to be given before a start and is not: sentences, for `tailrace check --offline`."""
        return []

    def advice(self) -> list[Finding]:
        """What `tailrace check` warns of, though records can be written. Connects to nothing."""
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
