"""The query of one golden case: started, watched, stopped and restarted, with its records collected in order.

`DirectStream` runs the product's reader, planner and tasks in the test's own process, step by step, as Spark calls
them. `SparkStream` runs the same source as a query of Spark.
"""

from __future__ import annotations

import json
import pickle
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tailrace.sinks.interruption import briefly
from tailrace.spark.options import options as packed
from tailrace.spark.options import unpacked
from tailrace.spark.source import new_run_id
from tailrace.spark.stream_reader import ChangeStreamReader
from tests import fix_invariant
from tests.golden import watch
from tests.golden.record import PLACES, Record, produced
from tests.golden.wire import Reader

PACE = 0.02
"""Seconds between two checks of a running query of Spark."""
POLL_MS = "20"
"""Time in ms for which a planner waits for changes before it reports none."""
ROUNDS = 5
"""Number of times that a query may add to its own log before it counts as never ending."""


class Failed(Exception):
    """The query, or its start, ended with an error; the text is the error's own."""


class Late(Failed):
    """The query runs, and has not delivered in time."""


class Stream(ABC):
    """The query of one case. `position` returns the end of the server's log, in the numbers of `watch.reads_to`.

    All methods that let the query run raise Failed if it ends with an error.
    """

    def __init__(self, options: Mapping[str, str], position: Callable[[], int], reader: Reader | None = None) -> None:
        self._options = {**options, "poll.interval.ms": POLL_MS}
        self._position = position
        self._reader = reader or Reader()

    def change(self, options: Mapping[str, str]) -> None:
        """Change options from the next start on; an empty value removes one."""
        changed = {**self._options, **options}
        self._options = {name: value for name, value in changed.items() if value != ""}

    @abstractmethod
    def start(self) -> None:
        """Start the query, from its last commit if it ran before."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the query at any point; do nothing if it does not run."""

    @abstractmethod
    def records(self) -> list[Record]:
        """Return the records delivered so far, batch by batch."""

    @abstractmethod
    def committed(self) -> dict[str, Any] | None:
        """Return the offset that the query has committed last, None before the first commit."""

    @abstractmethod
    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let the query run until `done()`, or until it has ended; return False after `seconds`."""

    @abstractmethod
    def delivers(self, target: int) -> Callable[[], bool]:
        """Return a function that returns True once the sink has the log up to `target`, for `wait`."""

    def pause(self, seconds: float) -> None:
        """Let the query run for some seconds, or let the time pass if it does not run."""
        deadline = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= deadline, seconds)
        time.sleep(max(0.0, deadline - time.monotonic()))

    def beat(self, heartbeats: str, expected: Iterable[Record], seconds: float = 60) -> None:
        """Let the query run until it has sent a heartbeat, if the expected records include one.

        Heartbeats are due by the clock, so a run that is faster than the recorded one must wait for the first.
        """
        if any(record.topic.startswith(heartbeats) for record in expected):
            self.wait(lambda: any(found.topic.startswith(heartbeats) for found in self.records()), seconds)

    def catch_up(self, seconds: float = 240) -> None:
        """Let the query run until the sink has all of the server's present log, and all that follows from it.

        Raises Late if the query does not run, or takes longer than `seconds`.
        """
        # The query's own writes to the log, such as the marks of a window, are a part of its output.
        for _ in range(ROUNDS):
            target = self._position()
            if not self.wait(self.delivers(target), seconds):
                raise Late(f"the query has not delivered the log up to {target} within {seconds:g} s")
            if "signal.data.collection" not in self._options or self._position() == target:
                return

    def _produced(self, rows: Iterable[Mapping[str, Any]]) -> list[Record]:
        return [
            produced(
                row["topic"],
                row["key"],
                row["value"],
                [(header["key"], header["value"]) for header in row["headers"] or ()],
                self._reader,
                (row.get("partition"), row.get("timestamp")),
            )
            for row in rows
        ]


class DirectStream(Stream):
    """The query in this process: `wait` calls what Spark would call, in the test's thread.

    Offsets pass through JSON and partitions through pickle, as on their way through Spark.
    """

    def __init__(
        self, connector: str, options: Mapping[str, str], position: Callable[[], int], reader: Reader | None = None
    ) -> None:
        super().__init__(options, position, reader)
        self._connector = connector
        self._source: ChangeStreamReader | None = None
        self._committed: dict[str, Any] | None = None
        self._records: list[Record] = []
        self._target: int | None = None
        self._delivered = False

    def start(self) -> None:
        try:
            config = registry.parse(self._connector, unpacked(packed(self._options)))
        except TailraceError as error:
            raise Failed(reason(error)) from error
        self._source = ChangeStreamReader(config, new_run_id())

    def stop(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.stop()

    def records(self) -> list[Record]:
        return list(self._records)

    def committed(self) -> dict[str, Any] | None:
        return self._committed

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if self._source is None:
                return done()
            if time.monotonic() > deadline:
                return False
            try:
                self._step(self._source)
            except Exception as error:
                self.stop()
                raise Failed(reason(error)) from error
        return True

    def delivers(self, target: int) -> Callable[[], bool]:
        self._target, self._delivered = target, False
        return lambda: self._delivered

    def _step(self, source: ChangeStreamReader) -> None:
        """Run one trigger: plan a batch, read it and commit it, or find nothing new."""
        planner = source._plan()
        start = self._committed if self._committed is not None else _sent(source.initialOffset())
        # In this order, because changes read while the batch is planned may be too late for it.
        has_read = self._target is not None and watch.reads_to(planner, self._target)
        end = _sent(source.latestOffset(start, source.getDefaultReadLimit()))
        source.reportLatestOffset()
        if end == start:
            self._delivered = has_read and watch.is_idle(planner)
            return
        worker = pickle.loads(pickle.dumps(source))
        for partition in source.partitions(start, end):
            for batch in worker.read(pickle.loads(pickle.dumps(partition))):
                self._records += self._produced(batch.to_pylist())
        self._committed = end


class SparkStream(Stream):
    """The query as Spark runs it. Batches count by id: a replayed batch replaces its earlier records."""

    def __init__(
        self,
        spark: SparkSession,
        connector: str,
        options: Mapping[str, str],
        checkpoint: Path,
        position: Callable[[], int],
        reader: Reader | None = None,
    ) -> None:
        super().__init__(options, position, reader)
        self._spark = spark
        self._form = registry.find(connector).format
        self._checkpoint = checkpoint
        self._question = checkpoint.with_name(f"{checkpoint.name}.question")
        self._answer = checkpoint.with_name(f"{checkpoint.name}.answer")
        self._asked = 0
        self._batches: dict[int, list[Record]] = {}
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        try:
            frame = watch.load(self._spark, self._form, self._options, self._question, self._answer)
            places = [name for name in PLACES if name in frame.columns]
            writer = frame.select("topic", "key", "value", "headers", *places).writeStream.foreachBatch(
                briefly(self._collect)
            )
            options = {"checkpointLocation": str(self._checkpoint)}
            self._query = writer.options(**options).trigger(processingTime="0 seconds").start()
        except Exception as error:
            raise Failed(reason(error)) from error

    def stop(self) -> None:
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def records(self) -> list[Record]:
        with self._lock:
            return [record for batch in sorted(self._batches) for record in self._batches[batch]]

    def committed(self) -> dict[str, Any] | None:
        return fix_invariant.committed_in(self._checkpoint)()

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if not self._runs():
                return done()
            if time.monotonic() > deadline:
                return False
            time.sleep(PACE)
        self._runs()
        return True

    def delivers(self, target: int) -> Callable[[], bool]:
        """Ask the planner, which answers once the sink has the log up to `target`."""
        self._asked += 1
        serial = str(self._asked)
        watch.write(self._question, f"{serial} {target}")
        return lambda: self._answer.exists() and self._answer.read_text() == serial

    def _runs(self) -> bool:
        """Return True while the query runs. Raises Failed if it ended with an error."""
        query = self._query
        if query is None:
            return False
        if query.isActive:
            return True
        error = query.exception()
        if error is not None:
            raise Failed(reason(error))
        return False

    def _collect(self, frame: DataFrame, batch: int) -> None:
        table: Any = frame.toArrow()
        rows = self._produced(table.to_pylist())
        with self._lock:
            self._batches[batch] = rows


def opened(
    spark: SparkSession | None,
    connector: str,
    options: Mapping[str, str],
    checkpoint: Path,
    position: Callable[[], int],
    reader: Reader | None = None,
) -> Stream:
    """Return the query of a case, not yet started: of `spark`, or in this process if that is None."""
    if spark is None:
        return DirectStream(connector, options, position, reader)
    return SparkStream(spark, connector, options, checkpoint, position, reader)


def _sent(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset as it comes back from Spark's log."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def reason(error: BaseException) -> str:
    """Return the message of an error; if it crossed Spark, of the Python error behind it."""
    text = str(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
    found = re.findall(r"^(?:[\w.]+\.)?(\w*(?:Error|Failed|Lost|Exception): .+(?:\n  - .+)*)", text, re.M)
    own = [line for line in found if not line.startswith(("Py4J", "PySparkRuntimeError", "StreamingQueryException"))]
    return str((own or found or [text])[-1]).strip()[:1500]
