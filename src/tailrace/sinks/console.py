"""The sinks `console`, which prints a line for each record, and `noop`, which drops all records. Driver."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.interruption import briefly
from tailrace.sinks.packed import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_WORDS = {
    "c": ("create", "32"),
    "r": ("read", "36"),
    "u": ("update", "33"),
    "d": ("delete", "31"),
    "t": ("truncate", "35"),
    "m": ("message", "34"),
    "tombstone": ("tombstone", "90"),
}
"""Word and colour (SGR code) of each operation."""

_LONGEST_VALUE = 60


class ConsoleSink(Sink):
    """A sink that prints records to stdout, in colour on a terminal. The replay of a batch prints it again."""

    name = "console"
    columns = ("op", "topic", "key", "value")
    delivery = "at least once"
    prints = True

    def __init__(self, options: Mapping[str, str], out: TextIO | None = None) -> None:
        Settings(self.name, options).only([])
        self._out = out

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        writer = frame.select(*self.columns).writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(self._print)).start()

    def _print(self, batch: DataFrame, number: int) -> None:
        """Print a batch, partition by partition. Driver."""
        out = self._out or sys.stdout
        colour = out.isatty() and "NO_COLOR" not in os.environ
        width = shutil.get_terminal_size().columns if out.isatty() else 0
        for row in local_rows(batch):
            out.write(render(row["op"], row["topic"], row["key"], row["value"], colour=colour, width=width) + "\n")
        out.flush()


def render(op: str, topic: str, key: bytes | None, value: bytes | None, *, colour: bool, width: int = 0) -> str:
    """Return a record as one line: operation, topic, key, and the columns that it sets or changes.

    `width` is the most characters of the line; 0 for no limit.
    """
    word, code = _WORDS.get(op, (op, "0"))
    shown_key = ", ".join(_pairs(_payload(key))) if key else "no key"
    parts = [f"{word:<9}", topic, f"[{shown_key}]"]
    changes = "  ".join(_changes(op, _payload(value)))
    plain = "  ".join([*parts, changes] if changes else parts)
    if width and len(plain) > width:
        plain = plain[: width - 1] + "…"
    if not colour:
        return plain
    head, rest = plain[: len(word)], plain[len(word) :]
    return f"\x1b[{code}m{head}\x1b[0m{rest}" if op != "tombstone" else f"\x1b[{code}m{plain}\x1b[0m"


def _payload(text: bytes | None) -> Any:
    """Return the JSON value without its schema, or the text if it is not JSON."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_float=str)
    except ValueError:
        return text.decode("utf-8", "replace")
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def _changes(op: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    before, after = value.get("before"), value.get("after")
    if op == "u" and isinstance(before, dict) and isinstance(after, dict):
        for name, new in after.items():
            if before.get(name) != new:
                yield f"{name}: {_short(before.get(name))} → {_short(new)}"
    elif isinstance(after, dict):
        yield from _pairs(after)
    elif op == "m":
        yield from _pairs(value.get("message"))


def _pairs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield f"{name}={_short(item)}"
    elif value is not None:
        yield _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # Control characters would move the cursor of the terminal.
    text = "".join(char if char.isprintable() else "·" for char in text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


class NoopSink(Sink):
    """A sink that computes records in full, as for Kafka, and drops them; for measurements."""

    name = "noop"
    columns = ("topic", "key", "value", "headers")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        Settings(self.name, options).only([])

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        writer = frame.select(*self.columns).writeStream.format("noop").queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start()
