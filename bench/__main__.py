"""`python -m bench`: run the measurements, print the table, write every figure to build/bench.json."""

from __future__ import annotations

import argparse
import os
import platform
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench import report
from bench.suite import PHASES, Suite
from bench.workload import Server, Workload, server
from tailrace.connectors.registry import find
from tailrace.sinks.base import Sink
from tailrace.sinks.kafka import KafkaSink
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.sinks.tables.sink import TablesSink
from tailrace.spark import register
from tailrace.spark.session import session
from tests.servers.kafka import VERSION as KAFKA
from tests.servers.kafka import Broker, fetch

OUTPUT = Path("build") / "bench.json"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return the checked command line; `words` replaces the arguments of the process."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="inserted rows; half of them are updated")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the median of each figure counts")
    parser.add_argument("--only", choices=PHASES, action="append", help="one phase; may be given several times")
    parser.add_argument("--server", choices=("system", "embedded"), default="system", help="whose PostgreSQL")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="file for the figures")
    found = parser.parse_args(words)
    if found.rows < 2 or found.repeat < 1:
        parser.error("--rows is at least 2, --repeat at least 1")
    return found


def context(asked: argparse.Namespace, postgres: Server) -> dict[str, Any]:
    """Return the facts that a reader needs to compare the figures with another run."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": asked.rows,
        "repeat": asked.repeat,
        "cores": os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total // report.MIB,
        # The load of the last minute: near 0 on the quiet machine that figures for the record need.
        "load": os.getloadavg()[0],
        "postgresql": postgres.version,
        "kafka": KAFKA,
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "tailrace": version("tailrace"),
    }


BROKER_OPTIONS = ("-Xms1g", "-Xmx1g")
"""Kafka's own start script gives a broker a heap of 1 GiB."""


def main(words: list[str] | None = None) -> None:
    """Run what the command line asks for."""
    asked = arguments(words)
    phases = tuple(asked.only or PHASES)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    with ExitStack() as stack:
        postgres = stack.enter_context(server(asked.server))
        known = context(asked, postgres)
        say(f"PostgreSQL {postgres.version}, {known['cores']} cores, load {known['load']:.1f}")
        servers = ""
        if "stream" in phases:
            servers = stack.enter_context(Broker(fetch(), BROKER_OPTIONS)).servers
            say(f"Kafka {KAFKA}")
        workload = Workload(postgres)
        stack.callback(workload.close)
        # Spark forgets the progress of older batches, but rows and times are read from it: keep all.
        kept = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
        sinks: list[type[Sink]] = [
            *([KafkaSink] if "stream" in phases else []),
            *([TablesSink] if {"tables", "verify"} & set(phases) else []),
        ]
        jars = tuple(jar for sink in sinks for jar in sink.jars)
        if "tables" in phases:
            jars += FORMATS["iceberg"].jars
        for sink in sinks:
            kept |= sink.settings
        spark = session(kept, jars=jars, app_name="tailrace bench", loaded=find("postgres").forked)
        stack.callback(spark.stop)
        register(spark)
        suite = Suite(spark, workload, servers, asked.rows, asked.repeat, say)
        suite.run(phases)
    found = report.figures(suite.measurements) | suite.extra
    if suite.latency is not None:
        measured = suite.latency
        found |= {f"latency_p{share}_ms": getattr(measured, f"p{share}") for share in (50, 95, 99)}
        found["latency_max_ms"] = measured.longest
        known["latency_rows"], known["latency_trigger_ms"] = measured.rows, measured.trigger_ms
    report.write(asked.output, found, known, suite.measurements)
    print(f"\n{report.table(suite.measurements, found)}\n\nEvery figure is in {asked.output}.")


if __name__ == "__main__":
    main()
