"""A stream without Spark: what a sink of one writer is given, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from tailrace.sinks.writer import OneWriter

Row = dict[str, Any]


def row(topic: str, number: int, **changes: Any) -> Row:
    """The record of the key `number`."""
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
    """A batch whose rows come one after another."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def toLocalIterator(self, prefetchPartitions: bool = False) -> Iterator[Row]:  # noqa: N803 - Spark's name
        return iter(self._rows)


class Query:
    """A query that runs until `stop`."""

    def __init__(self) -> None:
        self.id = "c0ffee"
        self.isActive = True  # Spark's name

    def stop(self) -> None:
        self.isActive = False


class Stream:
    """Both the frame and its writer, as far as a sink calls them."""

    def __init__(self) -> None:
        self.columns: tuple[str, ...] = ()
        self.query = Query()
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

    def batch(self, rows: Sequence[Row], number: int = 0) -> None:
        """Give the sink a batch, with the columns that it reads alone."""
        assert self._write is not None
        self._write(Batch([{name: one[name] for name in self.columns} for one in rows]), number)


def started(sink: OneWriter, checkpoint: Path) -> Stream:
    """A stream into `sink`, which has begun."""
    stream = Stream()
    sink.start(cast(Any, stream), checkpoint, {"availableNow": True})
    return stream


def in_background(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Work on a thread of its own, and what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised
