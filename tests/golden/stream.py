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
from tests.golden import watch
from tests.golden.record import PLACES, Record, produced
from tests.golden.wire import Reader

PACE = 0.02
"""Seconds between two looks at a running query."""
POLL_MS = "20"
"""How long a planner waits for changes before it says that there are none."""
ROUNDS = 5
"""How often a query may add to its own log before that counts as never ending."""


class Failed(Exception):
    """The query, or its start, ended with an error; the text is the error's own."""


class Late(Failed):
    """The query runs, and has not delivered in time what it should."""


class Stream:
    """The query of one case. Every batch counts once, by its id: a replayed batch replaces what it repeats.

    `form` names the connector's source; `position` gives the end of the server's log, in the numbers that
    `watch.reads_to` knows.
    """

    def __init__(
        self,
        spark: SparkSession,
        form: str,
        options: Mapping[str, str],
        checkpoint: Path,
        position: Callable[[], int],
        reader: Reader | None = None,
    ) -> None:
        self._spark = spark
        self._form = form
        self._options = {**options, "poll.interval.ms": POLL_MS}
        self._checkpoint = checkpoint
        self._position = position
        self._question = checkpoint.with_name(f"{checkpoint.name}.question")
        self._answer = checkpoint.with_name(f"{checkpoint.name}.answer")
        self._asked = 0
        self._batches: dict[int, list[Record]] = {}
        self._reader = reader or Reader()
        self._lock = threading.Lock()
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Start the query, from its checkpoint if there is one; raises Failed."""
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
        """Stop the query, wherever it is; nothing when it does not run."""
        query, self._query = self._query, None
        if query is not None:
            query.stop()

    def records(self) -> list[Record]:
        """What was collected so far, batch by batch."""
        with self._lock:
            return [record for batch in sorted(self._batches) for record in self._batches[batch]]

    def count(self) -> int:
        """The number of records collected so far."""
        with self._lock:
            return sum(map(len, self._batches.values()))

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

    def catch_up(self, seconds: float = 240) -> None:
        """Wait until the sink has all that the server's log holds now, and all that follows from it.

        Nothing to wait for when the query does not run. Raises Failed when it takes longer than `seconds`.
        """
        # What the query itself writes into the log, such as the marks of a window, is a part of what it delivers.
        for _ in range(ROUNDS):
            target = self._position()
            has_delivered = self.asked(target)
            if not self.wait(has_delivered, seconds):
                raise Late(f"the query has not delivered the log up to {target} within {seconds:g} s")
            if "signal.data.collection" not in self._options or self._position() == target:
                return

    def asked(self, target: int) -> Callable[[], bool]:
        """Ask the planner for the log up to `target`; whether the sink has that, from now on."""
        self._asked += 1
        serial = str(self._asked)
        watch.write(self._question, f"{serial} {target}")
        return lambda: self._answer.exists() and self._answer.read_text() == serial

    def _collect(self, frame: DataFrame, batch: int) -> None:
        table: Any = frame.toArrow()
        rows = [
            produced(
                row["topic"],
                row["key"],
                row["value"],
                [(header["key"], header["value"]) for header in row["headers"] or ()],
                self._reader,
                (row.get("partition"), row.get("timestamp")),
            )
            for row in table.to_pylist()
        ]
        with self._lock:
            self._batches[batch] = rows


def reason(error: BaseException) -> str:
    """The sentence of an error that crossed Spark: the Python error at its bottom where there is one."""
    text = str(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
    found = re.findall(r"^(?:[\w.]+\.)?(\w*(?:Error|Failed|Lost|Exception): .+(?:\n  - .+)*)", text, re.M)
    own = [line for line in found if not line.startswith(("Py4J", "PySparkRuntimeError", "StreamingQueryException"))]
    return str((own or found or [text])[-1]).strip()[:1500]
