"""A stream without Spark, which passes rows to a OneWriter sink batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from tailrace.columns.row import row_schema
from tailrace.sinks.writer import OneWriter

Row = dict[str, Any]
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def row(topic: str, number: int, **changes: Any) -> Row:
    """Return the record of the key `number`."""
    return {
        "op": "c",
        "topic": topic,
        "key": b'{"id":%d}' % number,
        "value": b'{"after":{"id":%d}}' % number,
        "headers": None,
        "position": f"{number:016X}",
        "ordinal": 0,
    } | changes


class Batch:
    """A batch whose rows come one at a time. A function over them gets a few at a time, as Spark passes many."""

    def __init__(self, rows: Sequence[Row], schema: pa.Schema) -> None:
        self._batches = [pa.RecordBatch.from_pylist(rows[at : at + 3], schema) for at in range(0, len(rows), 3)]
        self.settings: dict[str, object] = {}

    @property
    def sparkSession(self) -> Any:
        return SimpleNamespace(conf=SimpleNamespace(set=self.settings.__setitem__))

    def mapInArrow(self, function: Function, schema: str) -> Batch:
        made = copy(self)
        made._batches = list(function(iter(self._batches)))
        return made

    def toLocalIterator(self, prefetchPartitions: bool = False) -> Iterator[Row]:  # noqa: N803 - Spark's name
        return (row for batch in self._batches for row in batch.to_pylist())


class Query:
    """A query that runs until `stop`."""

    def __init__(self) -> None:
        self.id = "c0ffee"
        self.isActive = True  # Spark's name.

    def stop(self) -> None:
        self.isActive = False


class Stream:
    """The parts of a frame and its writer that a sink calls."""

    sink: OneWriter

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.query = Query()
        self.number = -1
        self._write: Callable[[Any, int], None] | None = None

    def select(self, *columns: str) -> Stream:
        self.columns = columns
        return self

    @property
    def writeStream(self) -> Stream:
        return self

    def queryName(self, name: str) -> Stream:
        return self

    def trigger(self, **how: Any) -> Stream:
        return self

    def option(self, name: str, value: str) -> Stream:
        return self

    def foreachBatch(self, write: Callable[[Any, int], None]) -> Stream:
        self._write = write
        return self

    def start(self) -> Query:
        return self.query

    def batch(self, rows: Sequence[Row], number: int | None = None) -> None:
        """Give the sink a batch with only the columns that it reads: the next batch, or that of a number again."""
        assert self._write is not None
        number = self.number + 1 if number is None else number
        self.number = number
        self._write(Batch(rows, row_schema(self.columns)), number)


def started(sink: OneWriter, checkpoint: Path) -> Stream:
    """Return a started stream into `sink`."""
    stream = Stream()
    stream.sink = sink
    sink.start(cast(Any, stream), checkpoint, {"availableNow": True})
    return stream


def in_background(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Run work on a thread of its own, and re-raise its error."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised
