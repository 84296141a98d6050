"""Sink: where the records of a pipeline go. Everything here runs in the driver unless a docstring says otherwise."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.connectors.findings import Finding
from tailrace.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class Sink(Protocol):
    """A place for records.

    `name` is the word of `debezium.sink.type`; `needs_kafka` tells whether the Spark session needs the Kafka jars.
    """

    name: str
    needs_kafka: bool

    def advice(self) -> list[Finding]:
        """What `tailrace check` warns of, though records can be written. Connects to nothing."""
        return []

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        """Start writing `frame`, whose columns are those of `tailrace.columns.ROW_SCHEMA`.

        `trigger` holds the one argument of Spark's `DataStreamWriter.trigger`, `query` is the query's name. The
        records of a topic arrive in the order of the frame's partitions. A batch that is replayed after a crash
        leaves no second copy unless the sink's own docstring says that it may.
        """
        ...


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
