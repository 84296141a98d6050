"""Sinks: where records go. `open` finds one by the word of `debezium.sink.type`. Driver."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from tailrace.config.files import SERVER_SINKS
from tailrace.errors import SinkError
from tailrace.sinks.base import Sink
from tailrace.sinks.console import ConsoleSink, NoopSink
from tailrace.sinks.files import JsonLinesSink, ParquetSink
from tailrace.sinks.kafka import KafkaSink

__all__ = ["KNOWN", "Sink", "open"]

KNOWN: dict[str, Callable[[Mapping[str, str]], Sink]] = {
    "kafka": KafkaSink,
    "file": JsonLinesSink,
    "parquet": ParquetSink,
    "console": ConsoleSink,
    "noop": NoopSink,
}


def open(name: str, options: Mapping[str, str]) -> Sink:  # noqa: A001 - `sinks.open` reads as what it does
    """The sink called `name` with its options, those after `debezium.sink.<name>.`. Nothing is connected yet.

    Raises SinkError for a sink or an option that is unknown or not supported.
    """
    if name in KNOWN:
        return KNOWN[name](options)
    known = f"Known: {', '.join(KNOWN)}."
    if name in SERVER_SINKS:
        raise SinkError(f"debezium.sink.type = {name} is not supported.", known)
    close = difflib.get_close_matches(name, KNOWN, n=1)
    nearest = f"; the nearest is {close[0]}" if close else ""
    raise SinkError(f"There is no sink {name!r}{nearest}.", known)
