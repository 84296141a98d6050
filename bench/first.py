"""`python -m bench.first`: the first row of a fresh process, beside plain PySpark's first Python job, in turn.

Both sides are a new Python process of its own, measured from its start by the same clock. Plain PySpark makes a session
and runs a Python function over ten rows. tailrace runs `tailrace run --once` on a pipeline that has a checkpoint, until
the file of the row that was inserted before it is there. The runs before have made the class archive by themselves:
`tailrace warm` is not called. A third process gets Ctrl-C in each phase of its start.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.workload import Workload, server
from tailrace.spark.startup import archive

PLAIN = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10
print("done", flush=True)
"""
"""Plain PySpark's session and first Python job."""

PHASES = ("describes", "The run may need", "The server is checked", "Spark is ready", "The query is started",
          "The first batch is delivered")  # fmt: skip
"""The lines after which Ctrl-C comes: the first one, and the end of each phase."""

_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process to its first line and to its first row."""

    line: float
    row: float


class Pipeline:
    """A pipeline of one table into files in `folder`. `insert` commits one more row."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        self.workload = workload
        self.out = folder / "out"
        self.folder = folder
        self._count = 0
        workload.execute("create table first (id int primary key, name text)")
        source = workload.options() | {
            **{"connector.class": "postgres", "topic.prefix": "first", "slot.name": "bench_first"},
            **{"publication.name": "first", "publication.autocreate.mode": "filtered"},
            **{"table.include.list": "public.first", "checkpoint.location": str(folder / "state")},
        }
        entries = {f"debezium.source.{name}": text for name, text in source.items()}
        entries |= {"debezium.sink.type": "file", "debezium.sink.file.path": str(self.out)}
        self.file = folder / "application.properties"
        self.file.write_text("".join(f"{name}={text}\n" for name, text in entries.items()), encoding="utf-8")

    def insert(self) -> None:
        self._count += 1
        self.workload.execute("insert into first values (%s, 'a row')", self._count)

    def process(self, *words: str) -> subprocess.Popen[str]:
        """Start `tailrace run`; its log is the process's stderr."""
        command = [sys.executable, "-m", "tailrace.command.cli", "run", str(self.file), *words]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def start(self) -> Start:
        """Run up to the present. Raises RuntimeError if the run fails or delivers nothing."""
        self.insert()
        before = set(self.out.glob("*.jsonl"))
        began = time.monotonic()
        process = self.process("--once")
        assert process.stderr is not None
        said = [process.stderr.readline()]
        line = row = time.monotonic() - began
        os.set_blocking(process.stderr.fileno(), False)
        while process.poll() is None and not set(self.out.glob("*.jsonl")) - before:
            time.sleep(0.01)
            row = time.monotonic() - began
        os.set_blocking(process.stderr.fileno(), True)
        said += process.stderr.readlines()
        if process.wait(_SECONDS) or not set(self.out.glob("*.jsonl")) - before:
            raise RuntimeError(f"tailrace run has delivered nothing: {''.join(said)[-2000:]}")
        return Start(line, row)

    def stopped(self, text: str) -> float:
        """Return the seconds from Ctrl-C, sent after the line with `text`, to the next line or to the end."""
        self.insert()
        process = self.process()
        assert process.stderr is not None
        for line in process.stderr:
            if text in line:
                break
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "Stopping" in line:
                break
        answered = time.monotonic() - asked
        process.stderr.read()
        process.wait(_SECONDS)
        return answered


def plain() -> float:
    """Return the seconds of plain PySpark, from the start of its process to the end of its first Python job."""
    began = time.monotonic()
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        [sys.executable, "-c", PLAIN], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "done":
            raise RuntimeError("plain PySpark has ended without its job")
        return time.monotonic() - began


def _archived(say: Callable[[str], None]) -> None:
    """Wait for the archive that the first run makes in the background."""
    until = time.monotonic() + _SECONDS
    while not any(archive.directory().glob("*.jsa")):
        if time.monotonic() > until:
            say("no class archive was made: starts are measured without one")
            return
        time.sleep(0.5)


def main(words: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; end with 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m bench.first", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of starts")
    parser.add_argument("--server", choices=("system", "embedded"), default="system", help="whose PostgreSQL")
    asked = parser.parse_args(words)
    # a shell lets processes in the background ignore Ctrl-C, and with them the processes that they start
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as name, server(asked.server) as postgres:
        workload = Workload(postgres)
        try:
            pipeline = Pipeline(workload, Path(name))
            # the first start makes slot, checkpoint and kernels, and then the archive
            pipeline.start()
            _archived(print)
            plain()
            pairs = []
            for number in range(asked.rounds):
                first = plain() if number % 2 else None
                start = pipeline.start()
                pairs.append((first or plain(), start))
            waits = {text: pipeline.stopped(text) for text in PHASES}
        finally:
            workload.close()
    return _report(pairs, waits)


def _report(pairs: Sequence[tuple[float, Start]], waits: dict[str, float]) -> int:
    print(f"{'PySpark, s':>10} {'first row':>10} {'ratio':>6} {'first line':>10}   load {os.getloadavg()[0]:.1f}")
    for seconds, start in pairs:
        print(f"{seconds:10.2f} {start.row:10.2f} {start.row / seconds:6.2f} {start.line:10.2f}")
    ratio = statistics.median(start.row / seconds for seconds, start in pairs)
    line = statistics.median(start.line for _, start in pairs)
    print(f"median: ratio {ratio:.2f} (at most 0.8), first line {line:.2f} s (at most 1)")
    for text, wait in waits.items():
        print(f"Ctrl-C after {text!r}: answered in {wait:.2f} s (at most 1)")
    return int(ratio > 0.8 or line > 1 or max(waits.values()) > 1)


if __name__ == "__main__":
    sys.exit(main())
