"""A pipeline in the test's process: its planner, its tasks, and the tables that it writes."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tailrace import sinks
from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tailrace.sinks.base import Sink
from tailrace.spark.source import new_run_id
from tailrace.spark.stream_reader import ChangeStreamReader
from tests.simulation.schema.copies import Copies, MemoryCopies, Row


@dataclass
class Outcome:
    """The result of a history.

    `equal`: no stop. `mended`: equal after the remedies that errors and warnings had named. `silent`: a copy differed
    without a warning. `unmended`: a copy still differed after the remedy. `unlisted`: an error for which this test
    knows no remedy. `compared` and `refused` count the copies whose rows were compared, and those that were refused by
    an error.
    """

    seed: int
    verdict: str = "equal"
    stops: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    compared: int = 0
    refused: int = 0

    def text(self) -> str:
        """Return a readable report of the history."""
        return "\n".join([f"seed {self.seed}: {self.verdict}", *self.stops, *self.found, *self.statements])


class Unlisted(Exception):
    """An error for which no remedy is known to the test."""


_MOST_STOPS = 12


class _Warnings(logging.Handler):
    """Collects the texts of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def heard() -> Iterator[list[str]]:
    """Yield a list that gets the texts of warnings."""
    handler, log = _Warnings(), logging.getLogger("tailrace")
    was, level = log.propagate, log.level
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.WARNING)
    try:
        yield handler.texts
    finally:
        log.removeHandler(handler)
        log.propagate = was
        log.setLevel(level)


TABLES = {"type": "tables", "tables.path": "/lake"}
"""Options of a sink of tables, after `debezium.sink.`."""


class Pipeline:
    """A pipeline with one checkpoint; `dice` decide where it does things twice, `statements` note its runs.

    `copies` makes the copies, each time that the pipeline begins anew. `options` are those of its sink, after
    `debezium.sink.`.
    """

    copies: Copies

    def __init__(
        self,
        dice: random.Random,
        statements: list[str],
        copies: Callable[[Sink], Copies] = MemoryCopies,
        options: Mapping[str, str] = TABLES,
    ) -> None:
        self._dice, self._statements, self._made = dice, statements, copies
        self._sink = {f"debezium.sink.{name}": text for name, text in options.items()}
        self._source: Mapping[str, str] = {}
        self.committed: dict[str, Any] | None = None

    def configure(self, source: Mapping[str, str]) -> None:
        """Use these options of the source from the next run on."""
        self._source = source
        entries = {f"debezium.source.{name}": text for name, text in source.items()} | self._sink
        run = registry.from_entries(entries, {})
        sink = sinks.open(run.sink.name, run.sink.options, run.source)
        defaults = {"event.order": sink.order, **sink.source_defaults()}
        texts = run.source.texts | {name: text for name, text in defaults.items() if not run.source.is_set(name)}
        texts |= sink.source_options() | {"row.columns": ",".join(sink.columns)}
        self._config, self._opened = registry.parse(run.source.connector, texts), sink

    def set(self, option: str, text: str) -> None:
        """Set an option of the tables from now on."""
        self._sink[f"debezium.sink.tables.{option}"] = text
        self.configure(self._source)
        self.copies.follow(self._opened)

    def begin(self) -> None:
        """Start with a new checkpoint and new copies."""
        self._run_id = new_run_id()
        self.committed = None
        self._batch = 0
        self.copies = self._made(self._opened)

    def go_on(self, stops: list[str], mend: Callable[[str], None]) -> None:
        """Write up to the present. `mend` applies the remedy of each error, and `stops` gets the errors.

        Raises Unlisted if it stops again and again; `mend` raises it for an error without a known remedy.
        """
        for _ in range(_MOST_STOPS):
            try:
                self.drain()
                return
            except TailraceError as error:
                text = f"{type(error).__name__}: {error}"
                stops.append(text)
                mend(text)
        raise Unlisted(f"it stops again and again: {stops[-1]}")

    def make_reader(self) -> ChangeStreamReader:
        """Return the reader of a new run."""
        return ChangeStreamReader(self._config, self._run_id)

    def write(self, rows: list[Row]) -> None:
        """Write the rows of the current batch."""
        self.copies.write(self._batch, rows)

    def drain(self) -> None:
        """Write up to the present, like a run with --once."""
        self._statements.append("▸")
        reader = self.make_reader()
        try:
            start = self.committed
            if start is None:
                start = _sent(reader.initialOffset())
            reader.prepareForTriggerAvailableNow()
            while True:
                end = _sent(reader.latestOffset(start, reader.getDefaultReadLimit()))
                if end == start:
                    return
                parts = reader.partitions(start, end)
                rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
                self.write(rows)
                if self._dice.random() < 0.1:
                    # as if Spark's commit were missing: the batch is written again
                    parts = reader.partitions(start, end)
                    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
                    self.write(rows)
                self.committed = start = end
                self._batch += 1
        finally:
            reader.stop()


def counted(rows: list[Row]) -> Counter[Any]:
    """Count the rows, as comparable values; long texts are shortened."""
    return Counter(tuple(sorted((name, plain(value)) for name, value in row.items())) for row in rows)


def plain(value: Any) -> str:
    """Return a value as a text that is the same on both sides of a comparison; long texts are shortened."""
    if isinstance(value, str) and len(value) > 40:
        return f"{value[:3]}…{len(value)}"
    if hasattr(value, "normalize"):
        # Without an exponent, as the other side may show an integer.
        return f"{value.normalize():f}"
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return str(value.timestamp())
    return str(value)


def _sent(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found
