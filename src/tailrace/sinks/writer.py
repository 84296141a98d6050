"""One writer: records one after another, from the driver, to a place that is no sink of Spark's. Driver.

The rows of a batch come to the driver task by task, and one writer delivers them in that order. So the order of each
topic is kept, secrets stay in this process, and one place decides what is tried again. What a batch has delivered
before a crash is delivered once more by its replay.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.interruption import STOPPED, Interrupted, briefly
from tailrace.sinks.packed import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("tailrace")

Record = Mapping[str, Any]
"""A row by the columns of the sink."""

DEAD_LETTERS = "dead.letter.file"
"""The option that every sink of one writer has: the file of the records that the place refuses for good."""

_LOOK_S = 0.2


class OneWriter(Sink):
    """A sink whose records one writer in the driver delivers, in groups of `size`.

    A subclass gives `begin`, which reaches the place before the query starts, and `deliver`, which returns when a
    group is there. A record that the place will never take it hands to `refuse`.
    """

    delivery = "at least once"

    def __init__(self, settings: Settings, size: int) -> None:
        self._size = size
        self._letters = DeadLetters(settings)
        self._query: StreamingQuery | None = None
        self._running = threading.Event()
        self._number = 0

    def begin(self) -> None:
        """Reach the place, where that can be done without writing. Raises ConnectionFailed or SinkError."""

    @abstractmethod
    def deliver(self, records: Sequence[Record], first: int) -> None:
        """Deliver records in their order; `first` is the number of the first one in its batch.

        Raises ConnectionFailed where the place was not reached and SinkError where it refuses what it is given.
        """

    def close(self) -> None:
        """Give back what was opened; called when a batch has failed, and before a query starts."""

    def wanted(self, record: Record) -> bool:
        """Whether a record is delivered at all."""
        return True

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        self._running.clear()
        self.close()
        self._letters.open()
        self.begin()
        writer = frame.select(*self.columns).writeStream.queryName(query).trigger(**trigger)
        writer = writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(self.write))
        try:
            self._query = writer.start()
        finally:
            self._running.set()
        return self._query

    def batch_name(self) -> str:
        """What distinguishes the batch that is written from all others of all pipelines; the same in a replay."""
        self._running.wait()
        return f"{self._query.id if self._query is not None else ''}-{self._number}"

    def query_name(self) -> str:
        """Return what distinguishes the query from all others; the same after a restart."""
        self._running.wait()
        return str(self._query.id) if self._query is not None else ""

    def wait(self, seconds: float) -> None:
        """Let time pass before the next try; raises Interrupted as soon as the query is being stopped."""
        end = time.monotonic() + seconds
        while True:
            if self._query is not None and not self._query.isActive:
                raise Interrupted(STOPPED)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LOOK_S))

    def refuse(self, record: Record, reason: str) -> None:
        """Put a record aside that the place will never take; raises SinkError, which says where the record is of."""
        if not self._letters:
            raise SinkError(
                f"The sink {self.name} refuses a record of the topic {record['topic']} at position "
                f"{record['position']}, ordinal {record['ordinal']}: {reason}.",
                f"Correct it at its place, or name a file in debezium.sink.{self.name}.{DEAD_LETTERS} to put such "
                "records aside.",
            )
        self._letters.put(record, reason, self._number)

    def write(self, batch: DataFrame, number: int) -> None:
        """Deliver one batch."""
        self._number = number
        try:
            first = 0
            for group in _groups(filter(self.wanted, local_rows(batch)), self._size):
                self.deliver(group, first)
                first += len(group)
        except BaseException:
            self.close()
            raise
        finally:
            self._letters.settle(number)


class DeadLetters:
    """The file of records that were refused: a line of JSON each, appended, read and written by its owner alone.

    A batch that is replayed appends its records once more.
    """

    def __init__(self, settings: Settings) -> None:
        """Raises SinkError for a path that is not of this machine."""
        self.path = settings.text(DEAD_LETTERS)
        self._option = f"debezium.sink.{settings.sink}.{DEAD_LETTERS}"
        if "://" in self.path:
            raise settings.wrong(DEAD_LETTERS, "must be the path of a file on the driver's host")
        self._lines: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.path)

    def open(self) -> None:
        """Make the file where there is none; raises SinkError where it cannot be written."""
        if self.path:
            self._append("")

    def put(self, record: Record, reason: str, batch: int) -> None:
        """Note a record with the reason why it is not where it belongs."""
        line = {
            "reason": reason,
            "batch": batch,
            "position": record["position"],
            "ordinal": record["ordinal"],
            "topic": record["topic"],
            "key": _text(record["key"]),
            "value": _text(record["value"]),
        }
        if "headers" in record:
            line["headers"] = [{"key": one["key"], "value": _text(one["value"])} for one in record["headers"] or ()]
        self._lines.append(json.dumps(line, ensure_ascii=False) + "\n")

    def settle(self, batch: int) -> None:
        """Write to disk what was put since the last time, and say how many they were."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        self._append("".join(lines))
        log.warning("batch %d: %d records were refused and are in %s", batch, len(lines), self.path)

    def _append(self, text: str) -> None:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(file, "w", encoding="utf-8", errors="surrogateescape") as out:
                out.write(text)
                out.flush()
                os.fsync(file)
        except OSError as error:
            raise SinkError(
                f"{self.path} cannot be written: {error.strerror}.", f"Check {self._option} and the rights there."
            ) from None


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as they are read best: as text, else in base64 under that name."""
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _groups(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
