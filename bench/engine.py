"""`python -m bench.engine`: whole runs beside Debezium's engine, from the start of a process to the last row, in turn.

Both are new processes that are measured from their start, over the same rows of one table. tailrace runs
`tailrace run --once` into its sink `noop`, after the class archive was made; Spark has then committed the batch of the
last row. Debezium's engine makes JSON of its records and drops it, up to its last record. It is fetched with Maven. A
ratio below 1 means that tailrace is sooner.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench import tables
from bench.workload import Workload, server
from tailrace.spark.startup import archive
from tools.record.engine import Engine, build

VERSION = "3.6.1.Final"
CASES = ("stream", "update", "snapshot")
SLOT = "bench_engine"
TABLE = tables.plain("engine")
_SECONDS = 1800


class Case:
    """A backlog of `rows` changes behind a slot, or as many rows for a snapshot."""

    def __init__(self, workload: Workload, name: str, rows: int, classpath: str) -> None:
        self.name = name
        self._workload, self._rows, self._classpath = workload, rows, classpath
        workload.create(TABLE)
        if name == "stream":
            workload.create_slot(SLOT)
            workload.insert(TABLE, rows)
        else:
            workload.insert(TABLE, rows)
            workload.create_slot(SLOT)
        if name == "update":
            workload.update(TABLE.name, rows)
        workload.settle(TABLE.name)

    def close(self) -> None:
        self._workload.drop_slot(SLOT)
        self._workload.execute(f"drop publication {TABLE.name}")
        self._workload.execute(f"drop table {TABLE.name}")

    def _options(self, slot: str) -> dict[str, str]:
        return {
            **self._workload.options(),
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "topic.prefix": "bench",
            "table.include.list": f"public.{TABLE.name}",
            "slot.name": slot,
            "publication.name": TABLE.name,
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "initial_only" if self.name == "snapshot" else "no_data",
        }

    def tailrace(self) -> tuple[float, float]:
        """Return the seconds of `tailrace run` to the commit of its last batch and to the end of its process.

        Raises RuntimeError if it fails or delivers another number of rows.
        """
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, self._slot() as slot:
            file = Path(folder) / "application.properties"
            entries = {f"debezium.source.{name}": text for name, text in self._options(slot).items()}
            entries |= {"debezium.sink.type": "noop", "debezium.format.schemas.enable": "false"}
            entries["debezium.source.checkpoint.location"] = f"{folder}/state"
            file.write_text("".join(f"{name}={text}\n" for name, text in entries.items()), encoding="utf-8")
            command = [sys.executable, "-m", "tailrace.command.cli", "run", str(file), "--once"]
            # the clock of files
            began = time.time()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            ended = time.time()
            committed = [path.stat().st_mtime for path in Path(folder, "state").rglob("commits/[0-9]*")]
            asked = [sys.executable, "-m", "tailrace.command.cli", "status", str(file)]
            told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        if done.returncode:
            raise RuntimeError(f"tailrace run failed: {done.stderr.strip()[-2000:]}")
        if f"{self._rows:,}" not in told + done.stderr + done.stdout:
            raise RuntimeError(f"tailrace has not delivered {self._rows:,} rows:\n{told}\n{done.stderr[-2000:]}")
        return max(committed) - began, ended - began

    def engine(self) -> float:
        """Return the seconds of Debezium's engine to its last row."""
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, self._slot() as slot:
            options = self._options(slot) | {
                "name": "bench",
                "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "offset.storage.file.filename": str(Path(folder) / "offsets.dat"),
                "converter.schemas.enable": "false",
                "recorder.counts": "true",
            }
            engine = Engine(self._classpath, options, Path(folder), "UTC", "__heartbeat", _SECONDS)
            engine.java = ("-Xmx1g",)
            began = time.monotonic()
            engine.start()
            try:
                engine.wait(lambda: engine.count() >= self._rows, "all rows were there")
                seconds = time.monotonic() - began
                engine.stop()
            finally:
                engine.kill()
        return seconds

    def _slot(self) -> AbstractContextManager[str]:
        return self._workload.copy_of(SLOT)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for and print a line for each pair."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each case")
    parser.add_argument("--only", choices=CASES, action="append", help="a case; several times for several")
    parser.add_argument("--server", choices=("system", "embedded"), default="system", help="whose PostgreSQL")
    asked = parser.parse_args(words)
    classpath = build("postgres", VERSION)
    archive.make()
    print(f"{'case':>10} {'tailrace, s':>12} {'its end':>8} {'engine, s':>10} {'ratio':>6}")
    with server(asked.server) as postgres:
        workload = Workload(postgres)
        try:
            for name in asked.only or CASES:
                rows = asked.rows // 2 if name == "update" else asked.rows
                case = Case(workload, name, rows, classpath)
                try:
                    _pairs(case, asked.rounds)
                finally:
                    case.close()
        finally:
            workload.close()


def _pairs(case: Case, rounds: int) -> None:
    ratios = []
    for number in range(rounds):
        engine = case.engine() if number % 2 else None
        last, end = case.tailrace()
        engine = engine or case.engine()
        ratios.append(last / engine)
        load = os.getloadavg()[0]
        print(f"{case.name:>10} {last:12.2f} {end:8.2f} {engine:10.2f} {ratios[-1]:6.2f}   load {load:.1f}", flush=True)
    print(f"{case.name:>10} median ratio {statistics.median(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
