"""`python -m bench.pairs OTHER`: this checkout and another one beside each other, case by case in turn.

Each checkout has a process with a server, a Spark session and the same rows. Both processes are warmed up and then
drain the same backlog in turn, so that other load of the machine affects both. A ratio above 1 means that this
checkout is slower or, in the last column, that its driver, planner and workers together hold more memory at their peak.
The other checkout needs an environment of its own (`make env`), or may share these packages.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.workload import Workload

HERE = Path(__file__).resolve().parent.parent
CASES = (
    "stream_noop", "stream_noop_topic", "stream_noop_format3", "stream_kafka",
    "update_noop", "snapshot_noop", "wide_noop", "types_noop_format3",
)  # fmt: skip
WARM = 3
"""Unmeasured runs of each case: the JVM compiles meanwhile."""


class Side:
    """The process of one checkout. `run` lets it drain a case and returns its seconds and CPU seconds."""

    def __init__(self, checkout: Path, rows: int, servers: str, jars: str) -> None:
        path = os.pathsep.join([str(checkout / "src"), str(checkout)])
        command = [sys.executable, str(HERE / "bench" / "pairs.py"), "--worker", str(rows), servers, jars]
        self._process = subprocess.Popen(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, case: str) -> dict[str, float]:
        """Drain a case. Raises RuntimeError if the process has ended; it has printed the reason."""
        assert self._process.stdin is not None
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        raise RuntimeError(f"a benchmark ended with {self._process.wait()}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for and print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rows", type=int, default=400_000, help="inserted rows; half of them are updated")
    parser.add_argument("--rounds", type=int, default=8, help="pairs of each case")
    parser.add_argument("--only", choices=CASES, action="append", help="one case; may be given several times")
    asked = parser.parse_args(words)
    from tailrace.sinks.kafka import KafkaSink
    from tailrace.spark.startup.jars import files_of
    from tests.servers.kafka import Broker, fetch

    cases = asked.only or CASES
    with ExitStack() as stack:
        servers = stack.enter_context(Broker(fetch(), ("-Xms1g", "-Xmx1g"))).servers
        # Jars are given by path: the checkouts may name them differently.
        jars = ",".join(map(str, files_of(KafkaSink.jars)))
        sides = [Side(checkout, asked.rows, servers, jars) for checkout in (HERE, asked.other.resolve())]
        for side in sides:
            stack.callback(side.close)
        for side in sides:
            side.answer()
        heads = "".join(f" {name:>6}" for name in ("ratio", "low", "high", "CPU", "memory"))
        print(f"{'case':<22} {'s here':>7} {'s there':>7}{heads}", flush=True)
        for case in cases:
            pairs = [_pair(sides, case, number) for number in range(-WARM, asked.rounds)][WARM:]
            seconds = sorted(one["seconds"] / two["seconds"] for one, two in pairs)
            cpu, memory = (statistics.median(one[what] / two[what] for one, two in pairs) for what in ("cpu", "memory"))
            here, there = (statistics.median(pair[which]["seconds"] for pair in pairs) for which in (0, 1))
            quarter = len(seconds) // 4
            print(
                f"{case:<22} {here:7.2f} {there:7.2f} {statistics.median(seconds):6.3f} {seconds[quarter]:6.3f} "
                f"{seconds[-1 - quarter]:6.3f} {cpu:6.3f} {memory:6.3f}",
                flush=True,
            )


def _pair(sides: Sequence[Side], case: str, number: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measurements of a case on both sides, which begin a round by turns."""
    if number % 2:
        there = sides[1].run(case)
        return sides[0].run(case), there
    here = sides[0].run(case)
    return here, sides[1].run(case)


def worker(rows: int, servers: str, jars: str) -> None:
    """Run the process of a checkout: prepare, then answer each line of stdin, which is the name of a case.

    `jars` are the paths of the Kafka sink's jars.
    """
    out = os.fdopen(os.dup(1), "w")
    # Spark's own output must not be taken for an answer
    os.dup2(2, 1)
    from bench import drain, tables
    from bench.suite import BENCH, Suite
    from bench.usage import Meter
    from bench.workload import Workload, server
    from tailrace.spark import register
    from tailrace.spark.session import session

    with ExitStack() as stack:
        postgres = stack.enter_context(server("system"))
        workload = Workload(postgres)
        stack.callback(workload.close)
        _let_in(workload)
        spark = session(
            {"spark.sql.streaming.numRecentProgressUpdates": "10000", "spark.jars": jars}, app_name="tailrace pairs"
        )
        stack.callback(spark.stop)
        register(spark)
        suite = Suite(spark, workload, servers, rows, 1, lambda text: None)
        known = tables.extensions(workload.extensions())
        for statement in (*(f"create extension {name}" for name in known), *tables.MADE):
            workload.execute(statement)
        for table, slot, count in (
            (BENCH, "bench_insert", rows), (tables.wide("wide"), "bench_wide", rows // 20),
            (tables.types("types", known), "bench_types", rows // 10),
        ):  # fmt: skip
            workload.create(table)
            workload.create_slot(slot)
            workload.insert(table, count)
            workload.settle(table.name)
        cases: dict[str, Callable[[], drain.Drained]] = {
            "stream_noop": suite._noop("bench_insert", ""),
            "stream_noop_topic": suite._noop("bench_insert", "_topic"),
            "stream_noop_format3": suite._noop("bench_insert", "_format3"),
            "stream_kafka": suite._kafka("bench_insert", "", {}),
            "wide_noop": suite._noop("bench_wide", "", rows // 20, "wide"),
            "types_noop_format3": suite._noop("bench_types", "_format3", rows // 10, "types"),
            "snapshot_noop": lambda: suite._expect(drain.to_noop(spark, suite._snapshot_options("bench")), rows),
        }
        _answer(out, {"rows": rows})
        for line in sys.stdin:
            name = line.strip()
            if name == "update_noop" and name not in cases:
                # last, since its updates would be in the backlog of the other cases of the table
                workload.drop_slot("bench_insert")
                workload.create_slot("bench_update")
                workload.update("bench", rows // 2)
                workload.settle("bench")
                cases[name] = suite._noop("bench_update", "", rows // 2)
            began = time.monotonic()
            with Meter(postgres.pid) as meter:
                drained = cases[name]()
            usage = meter.usage
            found = {"seconds": drained.seconds, "cpu": usage.total_cpu, "memory": float(usage.python_bytes)}
            _answer(out, found | {"all": time.monotonic() - began})


def _let_in(workload: Workload) -> None:
    """Allow logins without passwords: the checkouts' test servers may check passwords in different ways."""
    Path(workload.execute("show hba_file")[0][0]).write_text(
        "".join(f"{kind} {what} all {where} trust\n" for what in ("all", "replication") for kind, where in
                (("local", ""), ("host", "127.0.0.1/32"), ("host", "::1/128")))
    )  # fmt: skip
    workload.execute("select pg_reload_conf()")


def _answer(out: IO[str], found: dict[str, Any]) -> None:
    out.write(json.dumps(found) + "\n")
    out.flush()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        main()
