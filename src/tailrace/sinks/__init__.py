"""Sinks: destinations of records. `open` makes the sink that `debezium.sink.type` names. Driver.

Each sink is a class that declares what it needs (`tailrace.sinks.base`). Other packages add sinks by entry points of
the group `tailrace.sinks`.
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
"""All sinks by name."""


def names() -> tuple[str, ...]:
    """Return the names of all sinks, including sinks of other packages."""
    return KNOWN.names()


def open(  # noqa: A001 - `sinks.open` reads as what it does
    name: str, options: Mapping[str, str], source: Config | None = None
) -> Sink:
    """Make the sink `name` without connecting. Option names come without the prefix `debezium.sink.<name>.`.

    `source` holds the connector's options, some of which affect the sink. Raises SinkError for a sink or an option
    that is unknown or not supported, and ConfigError for a connector option that the sink cannot follow.
    """
    known = names()
    if name in SERVER_SINKS and name not in known:
        raise SinkError(f"debezium.sink.type = {name} is not supported.", f"Known: {', '.join(known)}.")
    kind = KNOWN.load(name)
    if not (isinstance(kind, type) and issubclass(kind, Sink)):
        raise SinkError(
            f"The sink {name} is not a subclass of tailrace.sinks.base.Sink.", "Correct the package that provides it."
        )
    made: Sink = kind(options)
    if source is not None:
        if "connect_s" not in vars(made):
            made.connect_s = source["connect.timeout.ms"] / 1000
        made.adopt(source)
    return made
