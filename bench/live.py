"""`python -m bench.live`: what adding, pausing, reading again and removing tables costs the other tables of a pipeline.

Fifty tables get 2,000 changes a second. After a while alone, commands go to the pipeline's HTTP server one after the
other, and the latencies of the tables that no command names are compared: from the writer's clock in a row to the
function of a `foreachBatch` sink that holds the row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from pyspark.sql import DataFrame

import tailrace
from bench.drain import frame
from bench.workload import Workload, server, wait
from tailrace.config.files import RunConfig, SinkConfig
from tailrace.connectors import signalling
from tailrace.connectors.registry import parse
from tailrace.monitoring.health import Health
from tailrace.monitoring.server import HttpServer
from tailrace.snapshot.signals import Signal
from tailrace.spark import register
from tailrace.spark.session import session

TABLES = 50
TOGETHER = 50
"""Changes of a transaction, each of another table."""

RATE = 2_000
ROWS = 2_000
"""Rows of each table at the start."""

ADDED, AGAIN, REMOVED = "public.t49", "public.t3", "public.t7"
COMMANDS = (
    ("add-tables", ADDED), ("pause-tables", ADDED), ("execute-snapshot", AGAIN), ("resume-tables", ADDED),
    ("remove-tables", REMOVED), ("add-tables", REMOVED), ("remove-tables", ADDED),
)  # fmt: skip

_arrived: list[tuple[float, float, str]] = []


def _write(batch: DataFrame, number: int) -> None:
    """Note arrival, the writer's time and the table of each change of the log."""
    rows = batch.selectExpr(
        "get_json_object(cast(value as string), '$.op') op",
        "get_json_object(cast(value as string), '$.source.table') t",
        "get_json_object(cast(value as string), '$.after.at') at",
    ).collect()
    now = time.time()
    _arrived.extend((now, float(row.at), row.t) for row in rows if row.op == "u" and row.at)


@contextmanager
def load(workload: Workload) -> Iterator[None]:
    """Update rows of all tables beside the caller, at RATE."""
    ended = threading.Event()
    statement = "".join(f"update t{number} set at = %(at)s where id = %(id)s + {number};" for number in range(TABLES))

    def write() -> None:
        import psycopg

        with psycopg.connect(workload.server.dsn(workload.database), cursor_factory=psycopg.ClientCursor) as connection:
            due, step = time.monotonic(), 0
            while not ended.is_set():
                step += 1
                connection.execute(statement, {"at": time.time(), "id": 1 + step * 37 % (ROWS - TABLES)})
                connection.commit()
                due += TOGETHER / RATE
                time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def latencies(since: float, until: float) -> tuple[float, float]:
    """Return p50 and p99 in ms of changes of the undisturbed tables that were written in a span."""
    named = {name.rpartition(".")[2] for name in (ADDED, AGAIN, REMOVED)}
    found = sorted((now - at) * 1000 for now, at, table in _arrived if since <= at < until and table not in named)
    cuts = statistics.quantiles(found, n=100)
    return cuts[49], cuts[98]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    parser.add_argument("--seconds", type=int, default=40, help="seconds without commands, after as many to warm up")
    parser.add_argument("--between", type=float, default=4.0, help="seconds between two commands")
    parser.add_argument("--rounds", type=int, default=2, help="times that all commands are sent")
    asked = parser.parse_args(words)
    with server("system") as postgres, closing(Workload(postgres)) as workload:
        for number in range(TABLES):
            workload.execute(f"create table t{number} (id int primary key, at float8, v text)")
            workload.execute(f"insert into t{number} select g, 0, 'v' from generate_series(1, {ROWS}) g")
        workload.execute("create table debezium_signal (id text primary key, type text, data text)")
        listed = ",".join(f"public.t{number}" for number in range(TABLES - 1))
        settings = workload.options() | {
            "topic.prefix": "live", "slot.name": "bench_live", "publication.autocreate.mode": "filtered",
            "table.include.list": f"{listed},public.debezium_signal", "snapshot.mode": "no_data",
            "signal.data.collection": "public.debezium_signal", "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        }  # fmt: skip
        source = parse("postgres", settings)
        run = RunConfig(source, SinkConfig("noop"))
        spark = session({}, app_name="tailrace live")
        register(spark)
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
            writer = frame(spark, settings).writeStream.foreachBatch(_write).option("checkpointLocation", checkpoint)
            query = writer.trigger(processingTime="0 seconds").start()
            with tailrace.observe(query) as observed:
                listener = HttpServer(
                    observed._observation, Health(observed._observation, 60), host="127.0.0.1", port=0, token=None,
                    send=lambda identity, kind, data: signalling.send(run.source, Signal(identity, kind, data)),
                    has_tables=True,
                )  # fmt: skip
                listener.start()
                with closing(listener), load(workload):
                    wait(lambda: bool(_arrived), "no change arrives", 300)
                    time.sleep(asked.seconds)
                    began = time.time()
                    time.sleep(asked.seconds)
                    commanded = time.time()
                    for number in range(asked.rounds):
                        for place, (kind, table) in enumerate(COMMANDS):
                            data = {"data-collections": [table]}
                            body = {"id": f"{number}-{place}", "type": kind, "data": json.dumps(data)}
                            request = urllib.request.Request(
                                f"{listener.address}api/signals", json.dumps(body).encode(),
                                {"Content-Type": "application/json"},
                            )  # fmt: skip
                            urllib.request.urlopen(request, timeout=10).close()
                            time.sleep(asked.between)
                    ended = time.time()
                    time.sleep(3)
            query.stop()
        spark.stop()
    before, during = latencies(began, commanded), latencies(commanded, ended)
    print(
        f"{len(_arrived):,} changes; p50, p99 without commands {before[0]:.0f}, {before[1]:.0f} ms, beside them "
        f"{during[0]:.0f}, {during[1]:.0f} ms: {during[1] / before[1]:.2f} times"
    )


if __name__ == "__main__":
    main()
