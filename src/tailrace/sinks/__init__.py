"""Sinks: where records go. `open` finds one by the word of `debezium.sink.type`. Driver.

Each is a class of its own, which says what it needs (`tailrace.sinks.base`). Other packages bring more, by entry points
of the group `tailrace.sinks`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.config.config import Config
from tailrace.config.extensions import Extensions
from tailrace.config.files import SERVER_SINKS
from tailrace.errors import SinkError
from tailrace.sinks.base import Sink

__all__ = ["KNOWN", "Sink", "names", "open"]

KNOWN = Extensions(
    "tailrace.sinks",
    "sink",
    {
        "kafka": "tailrace.sinks.kafka:KafkaSink",
        "file": "tailrace.sinks.files:JsonLinesSink",
        "parquet": "tailrace.sinks.files:ParquetSink",
        "console": "tailrace.sinks.console:ConsoleSink",
        "noop": "tailrace.sinks.console:NoopSink",
        "http": "tailrace.sinks.http:HttpSink",
        "redis": "tailrace.sinks.redis:RedisSink",
        "nats-jetstream": "tailrace.sinks.jetstream:JetStreamSink",
        "jdbc": "tailrace.sinks.jdbc.sink:JdbcSink",
        "tables": "tailrace.sinks.tables.sink:TablesSink",
    },
    SinkError,
)
"""Every sink by its word."""


def names() -> tuple[str, ...]:
    """The words of all sinks, those of other packages among them."""
    return KNOWN.names()


def open(  # noqa: A001 - `sinks.open` reads as what it does
    name: str, options: Mapping[str, str], source: Config | None = None
) -> Sink:
    """The sink called `name` with its options, those after `debezium.sink.<name>.`. Nothing is connected yet.

    `source` are the connector's options, for a sink that goes by some of them. Raises SinkError for a sink or an
    option that is unknown or not supported, ConfigError for one of the connector's that the sink cannot follow.
    """
    known = names()
    if name in SERVER_SINKS and name not in known:
        raise SinkError(f"debezium.sink.type = {name} is not supported.", f"Known: {', '.join(known)}.")
    kind = KNOWN.load(name)
    if not (isinstance(kind, type) and issubclass(kind, Sink)):
        raise SinkError(f"The sink {name} is no subclass of tailrace.sinks.base.Sink.", "Mend the package it is of.")
    made: Sink = kind(options)
    if source is not None:
        made.adopt(source)
    return made
