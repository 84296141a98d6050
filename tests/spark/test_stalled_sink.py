"""A sink that stands still while the database is written: nothing overflows, nothing is lost, and the forecast comes
true.

`pytest --full -s` lets it stand for ten minutes, and prints what was measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

import tailrace
from tailrace.monitoring.observing import ObservedQuery
from tailrace.spark import options, register
from tests.extent import is_full, sized
from tests.fix_postgres import Database
from tests.spark.test_observe import planners
from tests.waiting import until

MB = 1 << 20
SPOOL = sized(4 * MB, 64 * MB)
STANDS_MB = sized(16, 600)
"""Megabytes of log that are written while the sink stands."""

ROWS = 200
"""Rows of a transaction, each of some 500 bytes."""

PAUSE_S = sized(0.05, 0.1)
"""In the full extent 2,000 changes a second for ten minutes."""

_goes_on = threading.Event()
_stands = threading.Event()
_counts: list[int] = []


def _write(frame: DataFrame, number: int) -> None:
    count = frame.filter("key is not null").count()
    if not _goes_on.is_set():
        _stands.set()
    _goes_on.wait()
    _counts.append(count)


@contextmanager
def load(database: Database) -> Iterator[list[int]]:
    """Write beside the test; the list's only number counts the rows."""
    ended, written = threading.Event(), [0]

    def write() -> None:
        with database.connect() as connection:
            while not ended.wait(PAUSE_S):
                first = written[0] + 1
                connection.execute(
                    "insert into t select g, repeat(md5(g::text), 14) from generate_series(%s::int, %s::int) g",
                    (first, first + ROWS - 1),
                )
                written[0] += ROWS

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        ended.set()
        thread.join()


def test_a_sink_stands_still_and_goes_on(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key, v text)")
    texts = database.options(topic_prefix="s", slot_name=database.name) | {
        "snapshot.mode": "no_data", "max.queue.size.in.bytes": str(SPOOL), "metrics.interval.ms": sized("200", "15000"),
        "slot.watch.interval.ms": sized("200", "15000"), "slot.limit.bytes": str(STANDS_MB * MB),
    }  # fmt: skip
    register(spark)
    _goes_on.set()
    _stands.clear()
    _counts.clear()
    others = set(planners())
    frame = spark.readStream.format("postgres-cdc").options(**options(texts)).load()
    query = frame.writeStream.foreachBatch(_write).option("checkpointLocation", str(tmp_path)).start()
    try:
        with tailrace.observe(query) as observed:
            # what was written before the query has its place is not read
            until(lambda: bool(_counts), "the place in the log", 120, pace=0.1)
            with load(database) as written:
                until(lambda: sum(_counts) > 0, "the first changes", 120, pace=0.1)
                (planner,) = set(planners()) - others
                _goes_on.clear()
                until(_stands.is_set, "a batch that stands", 60, pace=0.1)
                looks = Looks(observed, planner)
                until(lambda: looks.see() >= STANDS_MB * MB, "the limit", sized(300, 3000), pace=0.1)
                told = level(observed)
            _goes_on.set()
            until(lambda: sum(_counts) >= written[0], "everything", sized(120, 1200), pace=0.1)
        assert sum(_counts) == written[0]
        # the reader stops at the limit, but for what one read brings
        assert looks.held <= SPOOL + 16 * MB
        assert looks.memory - looks.first_memory <= 2 * SPOOL + 128 * MB
        assert told >= 1
        full_s = looks.seen[-1][0]
        forecasts = [(at, at + left) for at, _, left in looks.seen if left is not None and at < full_s]
        at, forecast_s = forecasts[len(forecasts) // 2]
        print(
            f"\n{written[0]:,} rows; {STANDS_MB} MB of log after {full_s:.0f} s, after {at:.0f} s forecast for "
            f"{forecast_s:.0f} s; spool {looks.held / MB:.1f} of {SPOOL / MB:.0f} MB; planner "
            f"{looks.first_memory / MB:.0f} MB before, {looks.memory / MB:.0f} MB at most; level {told}"
        )
        if is_full():
            assert abs(forecast_s / full_s - 1) < 0.2
    finally:
        _goes_on.set()
        query.stop()


class Looks:
    """The numbers of a query while its sink stands still.

    `seen` has the seconds since the beginning, the bytes of log that the slot keeps, and the seconds until its limit as
    they were forecast. `held` and `memory` are the most bytes in the spool and in the planner's process.
    """

    def __init__(self, observed: ObservedQuery, planner: psutil.Process) -> None:
        self._observed, self._planner = observed, planner
        self._began = time.monotonic()
        self.seen: list[tuple[float, int, float | None]] = []
        self.first_memory = self.memory = int(planner.memory_info().rss)
        self.held = 0

    def see(self) -> int:
        """Look, and return the bytes of log that the slot keeps."""
        state = self._observed.status()
        self.held = max(self.held, state["spool"]["bytes"])
        self.memory = max(self.memory, int(self._planner.memory_info().rss))
        for slot in state["slots"]:
            if slot["is_own"] and (not self.seen or self.seen[-1][1] != slot["retained_bytes"]):
                self.seen.append((time.monotonic() - self._began, slot["retained_bytes"] or 0, slot["limit_s"]))
        return self.seen[-1][1] if self.seen else 0


def level(observed: ObservedQuery) -> int:
    """Return what the pipeline does about its slot."""
    (level,) = (
        float(line.rpartition(" ")[2])
        for line in observed.metrics().splitlines()
        if line.startswith("tailrace_doctor_level")
    )
    return int(level)
