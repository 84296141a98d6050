"""One streaming query of a case: started, watched, stopped, started again; its records collected in order."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.sinks.interruption import briefly
from tests.golden.record import Record, produced
from tests.golden.wire import Reader

Frame = Callable[[SparkSession, Mapping[str, str]], DataFrame]
PACE = 0.02
"""Seconds between two looks at a running query."""


class Failed(Exception):
    """The query, or its start, ended with an error; the text is the error's own."""


def source(spark: SparkSession, options: Mapping[str, str], form: str = "postgres-cdc") -> DataFrame:
    """The rows of the connector `form`, as any user gets them."""
    from tailrace import spark as sources

    sources.register(spark)
    return spark.readStream.format(form).options(**sources.options(options)).load()


class Stream:
    """The query of one case. Every batch counts once, by its id: a replayed batch replaces what it repeats.

    With `heartbeats`, the prefix of their topics, such records disturb no silence: there is no end to them.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        checkpoint: Path,
        frame: Frame = source,
        heartbeats: str = "",
    ) -> None:
        self._heartbeats = heartbeats
        self._spark = spark
        self._options = options
        self._checkpoint = checkpoint
        self._frame = frame
        self._batches: dict[int, list[Record]] = {}
        self._reader = Reader()
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None
        self._last = time.monotonic()

    def start(self) -> None:
        """Start the query, from its checkpoint if there is one; raises Failed."""
        try:
            frame = self._frame(self._spark, self._options)
            writer = frame.select("topic", "key", "value", "headers").writeStream.foreachBatch(briefly(self._collect))
            options = {"checkpointLocation": str(self._checkpoint)}
            self._query = writer.options(**options).trigger(processingTime="0 seconds").start()
        except Exception as error:
            raise Failed(reason(error)) from error
        self._last = time.monotonic()

    def stop(self) -> None:
        """Stop the query, wherever it is; nothing when it does not run."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def records(self) -> list[Record]:
        """What was collected so far, batch by batch."""
        with self._lock:
            return [record for batch in sorted(self._batches) for record in self._batches[batch]]

    def committed(self) -> bool:
        """Whether a batch has been written, so that the checkpoint holds a position."""
        return (self._checkpoint / "commits" / "0").exists()

    def count(self) -> int:
        """The number of records collected so far."""
        with self._lock:
            return sum(map(len, self._batches.values()))

    def counts(self) -> dict[str, int]:
        """The number of records collected so far, by topic."""
        counts: dict[str, int] = {}
        for record in self.records():
            counts[record.topic] = counts.get(record.topic, 0) + 1
        return counts

    def check(self) -> bool:
        """Whether the query runs; raises Failed when it ended with an error."""
        query = self._query
        if query is None:
            return False
        if query.isActive:
            return True
        error = query.exception()
        if error is not None:
            raise Failed(reason(error))
        return False

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until `done()`, or until the query ends; False after `seconds`. Raises Failed."""
        deadline = time.monotonic() + seconds
        while not done():
            if not self.check():
                return done()
            if time.monotonic() > deadline:
                return False
            time.sleep(PACE)
        self.check()
        return True

    def quiet(self, seconds: float) -> bool:
        """Whether no record came for `seconds` and none is on its way through a batch."""
        query = self._query
        if not self._heartbeats and query is not None and query.isActive and query.status["isDataAvailable"]:
            self._last = time.monotonic()
        return time.monotonic() - self._last >= seconds

    def settle(self, seconds: float, limit: float = 60) -> None:
        """Wait until no record came for `seconds`; gives up after `limit` more seconds."""
        self._last = time.monotonic()
        self.wait(lambda: self.quiet(seconds), seconds + limit)

    def _collect(self, frame: DataFrame, batch: int) -> None:
        table: Any = frame.toArrow()
        rows = [
            produced(
                row["topic"],
                row["key"],
                row["value"],
                [(header["key"], header["value"]) for header in row["headers"] or ()],
                self._reader,
            )
            for row in table.to_pylist()
        ]
        with self._lock:
            self._batches[batch] = rows
            if any(not self._heartbeats or not row.topic.startswith(self._heartbeats) for row in rows):
                self._last = time.monotonic()


def reason(error: BaseException) -> str:
    """The sentence of an error that crossed Spark: the Python error at its bottom where there is one."""
    text = str(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
    found = re.findall(r"^(?:[\w.]+\.)?(\w*(?:Error|Failed|Lost|Exception): .+(?:\n  - .+)*)", text, re.M)
    own = [line for line in found if not line.startswith(("Py4J", "PySparkRuntimeError", "StreamingQueryException"))]
    return str((own or found or [text])[-1]).strip()[:1500]
