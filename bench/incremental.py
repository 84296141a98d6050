"""An incremental snapshot beside a stream of changes, and the cost of a crash in an initial snapshot."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import baseline
from bench.drain import frame, options
from bench.follow import delivered, ended, ended_at, newest, offset, told_by
from bench.workload import Workload, wait
from tailrace.connectors.postgres.protocol.pgoutput import Begin, Insert, parse
from tailrace.sinks.interruption import briefly

RATE = 500
"""Inserted rows a second."""

GATHERING = 500
"""poll.dispatch.interval.ms of the query that pauses between its batches."""

SECONDS = 15
"""Seconds of the stream without a snapshot, and its most seconds beside a snapshot."""

WARMING = 25
"""Seconds of the stream beside the first snapshot, which is not counted."""

DROPPED = 3

WARM_AFTER = 15
"""Second at which the first snapshot is signalled; the query has reached its steady rate by then."""

SLOT = "bench_incremental"
FIRST = 3_000_000_000
CHUNK = 10_000
SIGNAL = """insert into signals values ('{}', 'execute-snapshot', '{{"data-collections": ["public.bench"]}}')"""


@dataclass(frozen=True, slots=True)
class Incremental:
    """`seconds` from the signal's commit to the last row; the stream's p50 and p99 in ms, without and with a snapshot.

    `copy_seconds` is the time of COPY for the table beside the same stream and the same writer.
    """

    rows: int
    seconds: float
    copy_seconds: float
    p50_without: float
    p99_without: float
    p50: float
    p99: float


def measure(spark: SparkSession, workload: Workload, number: int, together: int, gathering: int) -> Incremental:
    """Stream inserts into `bench` at RATE, alone and while its other rows are read by a signal; the round `number`.

    A transaction has `together` of them; between two batches they gather for `gathering` ms.

    The query has read the table once before, beside inserts: in production a stream has run for a while when a signal
    comes, and the JVM needs a minute to compile the code of a snapshot.

    Raises TimeoutError when rows stay away, RuntimeError when the snapshot has other rows than the table.
    """
    first = FIRST + number * 1_000_000
    if not number:
        workload.execute("create table signals (id text primary key, type text, data text)")
        workload.execute("create publication bench_incremental for table bench, signals")
    workload.create_slot(SLOT)
    settings = options(workload, "bench", {"slot.name": SLOT, "snapshot.mode": "never"}) | {
        "publication.name": "bench_incremental",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.chunk.size": str(CHUNK),
        "poll.dispatch.interval.ms": str(gathering),
    }
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint, workload.copy_of(SLOT) as copy:
        writer = frame(spark, settings).writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            warming = _start(workload, first - RATE * WARMING, RATE * WARMING, together)
            time.sleep(WARM_AFTER)
            workload.execute(SIGNAL.format(f"warm-{number}"))
            _finish(warming)
            wait(lambda: _is_read(query) or ended(query), "the snapshot does not end", 120)
            _wait_for(query, _commits(workload, copy))
            rows = int(workload.execute("select count(*) from bench")[0][0])
            alone = _finish(_start(workload, first, RATE * SECONDS, together))
            beside = _start(workload, first + RATE * SECONDS, RATE * SECONDS, together)
            time.sleep(DROPPED)
            began = time.time_ns()
            workload.execute(SIGNAL.format(number))
            committed = _finish(beside)
            wait(lambda: _is_read(query) or ended(query), "the snapshot does not end", 120)
            commits = _commits(workload, copy)
            _wait_for(query, commits)
            busy = _start(workload, first + 2 * RATE * SECONDS, RATE * SECONDS // 2, together)
            time.sleep(1)
            copied = baseline.copy_out(workload, "bench")
            _finish(busy)
            told = told_by(query)
            ended = _end_of_snapshot(told)
        finally:
            query.stop()
    workload.drop_slot(SLOT)
    arrived = _arrivals(told, commits)
    # the batches of the snapshot, without the changes in them
    counts = [progress["numInputRows"] for progress in told if began < ended_at(progress) <= ended]
    read = sum(counts) - sum(began < moment <= ended for moment in arrived.values())
    # the snapshot reads rows that the stream inserted before the signal, too, and a few are delivered as both
    if not rows <= read <= rows + len(alone) + len(committed) + 1:
        raise RuntimeError(f"the incremental snapshot has {read} rows, the table {rows} and the stream's")
    start = min(alone.values()) + DROPPED * 1_000_000_000
    without = _percentiles({row: moment for row, moment in alone.items() if moment >= start}, arrived)
    during = _percentiles({row: moment for row, moment in committed.items() if began <= moment <= ended}, arrived)
    return Incremental(read, (ended - began) / 1e9, copied, *without, *during)


def repeated(spark: SparkSession, workload: Workload) -> float:
    """Return the share of an initial snapshot of `bench` that is read again after a query has crashed half-way."""
    rows = int(workload.execute("select count(*) from bench")[0][0])
    counts: list[int] = []
    settings = options(workload, "bench", {"snapshot.mode": "initial_only"})

    def run(checkpoint: str, stop_at: int) -> None:
        def note(batch: DataFrame, _: int) -> None:
            counts.append(batch.count())
            if stop_at <= sum(counts):
                # after the rows are read, before Spark takes them for delivered
                raise RuntimeError("the end of the query")

        writer = frame(spark, settings).writeStream.foreachBatch(briefly(note)).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception:
            if stop_at > rows:
                raise

    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        run(checkpoint, rows // 2)
        run(checkpoint, sys.maxsize)
    return (sum(counts) - rows) / rows


def _is_read(query: StreamingQuery) -> bool:
    """Return True if the newest batch ends without a running snapshot."""
    last = newest(query)
    return last is not None and not _is_running(last)


def _is_running(progress: Mapping[str, Any]) -> bool:
    return "state" in offset(progress).get("progress", {})


def _end_of_snapshot(told: Sequence[Mapping[str, Any]]) -> int:
    """Return the end of the batch with the last rows of the snapshot, in ns since 1970."""
    return ended_at(told[max(place for place, progress in enumerate(told) if _is_running(progress)) + 1])


def _commits(workload: Workload, slot: str) -> dict[str, int]:
    """Return the commit LSN of each row that the slot holds, by the text of its key."""
    found: dict[str, int] = {}
    commit_lsn = 0
    for (data,) in workload.execute(
        "select data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1',"
        " 'publication_names', 'bench_incremental')",
        slot,
    ):
        message = parse(data)
        if isinstance(message, Begin):
            commit_lsn = message.final_lsn
        elif isinstance(message, Insert):
            assert isinstance(message.new[0], bytes)
            found[message.new[0].decode()] = commit_lsn
    return found


def _wait_for(query: StreamingQuery, commits: Mapping[str, int]) -> None:
    """Wait until the query has delivered all keys; raises TimeoutError, or the error of the query."""
    last = max(commits.values())
    wait(lambda: delivered(newest(query)) >= last or ended(query), "not all rows arrive", 120)


def _arrivals(told: Sequence[Mapping[str, Any]], commits: Mapping[str, int]) -> dict[str, int]:
    """Return the time at which each row was delivered: the end of its committed batch, in ns since 1970."""
    lsns = list(accumulate(map(delivered, told), max))
    return {row: ended_at(told[bisect_left(lsns, lsn)]) for row, lsn in commits.items()}


def _start(workload: Workload, first: int, rows: int, together: int) -> subprocess.Popen[str]:
    arguments = [workload.server.dsn(workload.database), str(first), str(rows), str(RATE), str(together)]
    return subprocess.Popen([sys.executable, "-m", "bench.writer", *arguments], stdout=subprocess.PIPE, text=True)


def _finish(writer: subprocess.Popen[str]) -> dict[int, int]:
    """Return the time of each row's commit in ns."""
    lines, _ = writer.communicate()
    if writer.returncode != 0:
        raise RuntimeError("the writer failed")
    return {int(number): int(moment) for number, moment in map(str.split, lines.splitlines())}


def _percentiles(committed: Mapping[int, int], arrived: Mapping[str, int]) -> tuple[float, float]:
    cuts = statistics.quantiles(((arrived[str(row)] - moment) / 1e6 for row, moment in committed.items()), n=100)
    return cuts[49], cuts[98]
