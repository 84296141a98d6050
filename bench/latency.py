"""The time from a row's commit to the sink: single rows at a steady rate, a query without pause between batches."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.drain import frame, options
from bench.follow import ended
from bench.workload import Workload, wait
from tailrace.sinks.interruption import briefly

RATE = 100
SECONDS = 30
DROPPED = 5
"""Seconds at the start that are not counted: the query has no steady rate yet."""

SLOT = "bench_latency"
FIRST = 2_000_000_000
"""The number of the first row, above all rows of the other measurements."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies in ms from the return of the commit to the delivery; `trigger_ms` are the times of the batches."""

    p50: float
    p95: float
    p99: float
    longest: float
    rows: int
    trigger_ms: list[int]


def measure(spark: SparkSession, workload: Workload) -> Latency:
    """Insert at RATE for SECONDS into the table `bench` and follow it with a query.

    Raises TimeoutError if rows are missing, and the query's own errors.
    """
    arrived: dict[int, int] = {}

    def note(batch: DataFrame, _: int) -> None:
        keys = [row[0] for row in batch.selectExpr("cast(key as string)").collect()]
        now = time.time_ns()
        for key in keys:
            arrived.setdefault(json.loads(key)["id"], now)

    rows = RATE * SECONDS
    workload.create_slot(SLOT)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        events = frame(spark, options(workload, "bench", {"slot.name": SLOT, "snapshot.mode": "never"}))
        writer = events.writeStream.foreachBatch(briefly(note)).option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            # One row ahead: the query runs once it has delivered this row.
            _insert(workload, FIRST - 1, 1)
            wait(lambda: bool(arrived) or ended(query), "no row arrives", 120)
            committed = _insert(workload, FIRST, rows)
            wait(lambda: len(arrived) > rows or ended(query), "not all rows arrive", 60)
            trigger_ms = [_trigger_ms(progress.json) for progress in query.recentProgress]
        finally:
            query.stop()
    workload.drop_slot(SLOT)
    return summary(committed, arrived, trigger_ms)


def _insert(workload: Workload, first: int, rows: int) -> dict[int, int]:
    """Run the writer; return the time of each row's commit in ns."""
    arguments = [workload.server.dsn(workload.database), str(first), str(rows), str(RATE), "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.writer", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the writer failed: {done.stderr.strip()}")
    return {int(number): int(moment) for number, moment in map(str.split, done.stdout.splitlines())}


def _trigger_ms(progress: str) -> int:
    parsed: dict[str, Any] = json.loads(progress)
    return int(parsed["durationMs"]["triggerExecution"])


def summary(committed: Mapping[int, int], arrived: Mapping[int, int], trigger_ms: Sequence[int]) -> Latency:
    """Return percentiles of the rows that were committed at least DROPPED seconds after the first.

    Times are ns. Raises KeyError for a row that never arrived.
    """
    start = min(committed.values()) + DROPPED * 1_000_000_000
    waits = [(arrived[row] - moment) / 1e6 for row, moment in committed.items() if moment >= start]
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return Latency(cuts[49], cuts[94], cuts[98], max(waits), len(waits), list(trigger_ms))
