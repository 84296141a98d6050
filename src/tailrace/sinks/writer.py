"""A single writer in the driver, for destinations without a Spark sink. Driver.

The rows of a batch come to the driver task by task, and one writer delivers them in that order. This keeps the order of
each topic, the secrets in this process and all retries in one place. Records that a batch delivered before a crash are
delivered again by its replay.
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
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.metrics.tally import SinkCounts
from tailrace.process import disk
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.interruption import STOPPED, Interrupted, briefly
from tailrace.sinks.packed import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("tailrace")

Record = Mapping[str, Any]
"""A row as values by column name; the columns are those of the sink."""

DEAD_LETTERS = "dead.letter.file"
"""The option of every OneWriter that names the file for records that the destination refuses permanently."""

_LOOK_S = 0.2


class OneWriter(Sink):
    """A sink whose records a single writer in the driver delivers, in groups of `size`.

    A subclass implements `begin`, which connects before the query starts, and `deliver`, which returns once a group is
    delivered. It passes a record that the destination will never accept to `refuse`.
    """

    delivery = "at least once"

    counts: SinkCounts

    def __init__(self, settings: Settings, size: int) -> None:
        self._size = size
        self._letters = DeadLetters(settings)
        self.counts = SinkCounts(self.name)
        self._query: StreamingQuery | None = None
        self._running = threading.Event()
        self._number = 0

    def begin(self) -> None:
        """Connect to the destination if that is possible without writing. Raises ConnectionFailed or SinkError."""

    @abstractmethod
    def deliver(self, records: Sequence[Record], first: int) -> None:
        """Deliver records in their order. `first` is the index of the first record within its batch.

        Raises ConnectionFailed if the destination is not reached, and SinkError if it refuses the records.
        """

    def close(self) -> None:
        """Close the connection. Called after a batch has failed and before a query starts."""

    def wanted(self, record: Record) -> bool:
        """Return False for a record that is to be skipped."""
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
        """Return an id of the current batch that is unique among all pipelines and the same in a replay."""
        self._running.wait()
        return f"{self._query.id if self._query is not None else ''}-{self._number}"

    def query_name(self) -> str:
        """Return the query's id, which is unique among all pipelines and the same after a restart."""
        self._running.wait()
        return str(self._query.id) if self._query is not None else ""

    def wait(self, seconds: float) -> None:
        """Sleep before the next try. Raises Interrupted as soon as the query is being stopped."""
        self.counts.retries += 1
        self.counts.is_waiting = True
        end = time.monotonic() + seconds
        while True:
            if self._query is not None and not self._query.isActive:
                raise Interrupted(STOPPED)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _LOOK_S))

    def refuse(self, record: Record, reason: str, remedy: str = "") -> None:
        """Add a refused record to the dead letters. Raises SinkError with the record's position if there is no file.

        `remedy` is put before the remedies that hold for every record.
        """
        self.counts.refused += 1
        if not self._letters:
            raise SinkError(
                f"The sink {self.name} refuses a record of the topic {record['topic']} at position "
                f"{record['position']}, ordinal {record['ordinal']}: {reason}.",
                f"{remedy} Correct the row at the source, or name a file in debezium.sink.{self.name}.{DEAD_LETTERS} "
                "for refused records.".lstrip(),
            )
        self._letters.put(record, reason, self._number)

    def write(self, batch: DataFrame, number: int) -> None:
        """Deliver one batch."""
        self._number = number
        try:
            first = 0
            for group in _groups(filter(self.wanted, local_rows(batch)), self._size):
                self.deliver(group, first)
                self.counts.is_waiting = False
                first += len(group)
        except BaseException:
            self.close()
            raise
        finally:
            self._letters.settle(number)


def identity(record: Record) -> tuple[object, ...]:
    """Return values that a record shares with its repeat in a replay, and with no record in its place that is another.

    A replay reads snapshot rows anew, and others may stand in their places: the key tells them, else the value.
    """
    place = (record["position"], record["ordinal"], record["op"], record["topic"])
    if record["op"] != "r":
        return place
    row = record["value"] if record["key"] is None else record["key"]
    return (*place, None if row is None else bytes(row))


class DeadLetters:
    """The file of refused records: one line of JSON per record, appended, in a file that only its owner may read.

    The replay of a batch appends its refused records again.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the option. Raises SinkError if the path is a URL."""
        self.path = settings.text(DEAD_LETTERS)
        self._option = f"debezium.sink.{settings.sink}.{DEAD_LETTERS}"
        if "://" in self.path:
            raise settings.wrong(DEAD_LETTERS, "must be the path of a file on the driver's host")
        self._lines: list[str] = []
        self._stored = 0

    def __bool__(self) -> bool:
        return bool(self.path)

    def open(self) -> None:
        """Create the file if it does not exist. Raises SinkError if it cannot be written."""
        if self.path:
            self._append("")

    def put(self, record: Record, reason: str, batch: int) -> None:
        """Add a record and the reason for its refusal; `store` or `settle` writes it to disk."""
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

    def store(self) -> None:
        """Write the records that were put to disk. A sink whose replay leaves out records calls it before it commits
        that it is past them."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._append("".join(lines))
            self._stored += len(lines)

    def settle(self, batch: int) -> None:
        """Write the records that were put to disk, and log the number of those since the last call."""
        try:
            self.store()
        finally:
            count, self._stored = self._stored, 0
        if count:
            log.warning("batch %d: %d records were refused and are in %s", batch, count, self.path)

    def _append(self, text: str) -> None:
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                before = os.fstat(file).st_size
                _write(file, text.encode(errors="surrogateescape"), before)
            finally:
                os.close(file)
        except OSError as error:
            full = disk.failed(error, [disk.Directory("the dead letters", self.path, self._option)])
            if full is not None:
                raise full from None
            raise SinkError(
                f"{self.path} cannot be written: {error.strerror}.", f"Check {self._option} and the rights there."
            ) from None


def _write(file: int, data: bytes, before: int) -> None:
    """Append `data` to a file of `before` bytes, and wait for the disk. A failure leaves none of it."""
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)
        raise


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text if they are UTF-8, else as `{"base64": ...}`."""
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
