"""Many small tables in one database: their snapshot beside Debezium's engine, and updates that are spread over them."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from bench.drain import frame
from bench.follow import delivered, ended, ended_at, newest, told_by
from bench.workload import Workload, wait
from tailrace.connectors.postgres.protocol.position import lsn_value
from tailrace.spark.startup import archive

TABLES = 1_000
ROWS = 10
RATE = 5_000
"""Updates a second."""

TOGETHER = 25
"""Updates of one transaction, each of another table."""

SECONDS = 30
DROPPED = 10
"""Seconds at the start that are not counted: the query has no steady rate yet."""

SLOT = "bench_many"
ENGINE = "3.6.1.Final"

COLUMNS = {
    "n int": "i",
    "name text": "'name ' || i",
    "price numeric(10,2)": "i / 7.0",
    "at timestamptz": "'2026-01-01'::timestamptz + i * interval '1 min'",
    "ok boolean": "i % 2 = 0",
    "big bigint": "i * 7",
    "day date": "date '2026-01-01' + i",
}


@dataclass(frozen=True, slots=True)
class Stream:
    """Latencies in ms from a commit to the end of its batch; `rows` and `batches` are the totals."""

    p50: float
    p99: float
    longest: float
    rows: int
    batches: int


def create(workload: Workload) -> None:
    """Create TABLES tables of ROWS rows, of three to nine columns; neighbours have different columns."""
    made = list(COLUMNS.items())
    for number in range(TABLES):
        chosen = [made[(number + step) % len(made)] for step in range(1 + number % len(made))]
        columns, values = (", ".join(column) for column in zip(*chosen, strict=True))
        workload.execute(f"create table many_{number} (id int primary key, {columns}, touched int default 0)")
        workload.execute(f"insert into many_{number} select i, {values} from generate_series(1, {ROWS}) i")
    workload.execute("create publication many for all tables")
    workload.execute("vacuum analyze")
    workload.execute("checkpoint")


def options(workload: Workload, more: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options for JSON events without schemas, of all the tables."""
    return {
        **workload.options(),
        "topic.prefix": "many",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "table.include.list": "public.many_.*",
        "publication.name": "many",
        "publication.autocreate.mode": "disabled",
        **more,
    }


def snapshot(workload: Workload) -> tuple[float, float]:
    """Return the seconds of `tailrace run` for all tables: from its start to its last row, and to its end.

    The sink is files, and the class archive of `tailrace warm` exists. Raises RuntimeError if the run fails or rows are
    missing.
    """
    archive.make()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        out, file = Path(folder) / "out", Path(folder) / "application.properties"
        source = options(workload, {"snapshot.mode": "initial_only", "connector.class": "postgres"})
        entries = {f"debezium.source.{name}": text for name, text in source.items()}
        entries |= {"debezium.sink.type": "file", "debezium.sink.file.path": str(out)}
        file.write_text("".join(f"{name}={text}\n" for name, text in entries.items()), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "tailrace.command.cli",
            "run",
            str(file),
            "--once",
            "--checkpoint",
            f"{folder}/state",
        ]
        began = time.monotonic()
        with (Path(folder) / "stderr").open("w+") as said:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
            last = _all_there(process, out, TABLES * ROWS)
            code = process.wait()
            ended = time.monotonic()
            said.seek(0)
            if code:
                raise RuntimeError(f"tailrace run failed: {said.read().strip()[-2000:]}")
    if last is None:
        raise RuntimeError(f"the snapshot has not {TABLES * ROWS} rows")
    return last - began, ended - began


def _all_there(process: subprocess.Popen[bytes], out: Path, count: int) -> float | None:
    """Return the time at which the files in `out` have `count` lines; None if the process ends before.

    A file appears only when it is complete.
    """
    lines: dict[str, int] = {}
    while True:
        is_over = process.poll() is not None
        for path in out.glob("*.jsonl"):
            if path.name not in lines:
                lines[path.name] = path.read_bytes().count(b"\n")
        if sum(lines.values()) == count:
            return time.monotonic()
        if is_over:
            return None
        time.sleep(0.02)


def engine_snapshot(workload: Workload) -> float | None:
    """Return the seconds of Debezium's engine for the same, from the start of its process to its last row.

    None where there is no Maven to fetch it with.
    """
    if shutil.which("mvn") is None:
        return None
    from tools.record.engine import Engine, build

    classpath = build("postgres", ENGINE)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        known = {
            "name": "many",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "slot.name": "bench_many_engine",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(Path(folder) / "offsets.dat"),
            "slot.drop.on.stop": "true",
            "converter.schemas.enable": "false",
            **options(workload, {"snapshot.mode": "initial"}),
        }
        engine = Engine(classpath, known, Path(folder), "UTC", "__heartbeat", 300)
        began = time.monotonic()
        engine.start()
        try:
            engine.wait(lambda: engine.count() >= TABLES * ROWS, "all rows were there")
            seconds = time.monotonic() - began
            engine.stop()
        finally:
            engine.kill()
    return seconds


def stream(spark: SparkSession, workload: Workload, rate: int = RATE, seconds: int = SECONDS) -> Stream:
    """Follow updates at `rate` for `seconds`.

    Raises TimeoutError when the query does not keep up, RuntimeError when the writer fails or is slower than that.
    """
    workload.create_slot(SLOT)
    settings = options(workload, {"slot.name": SLOT, "snapshot.mode": "never"})
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        writer = frame(spark, settings).writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            for lasts in (3, seconds):
                commits = _written(workload, rate, lasts)
                last = commits[-1][0]
                wait(lambda: ended(query) or delivered(newest(query)) >= last, "the query does not keep up", 120)  # noqa: B023
            told = told_by(query)
        finally:
            query.stop()
    workload.drop_slot(SLOT)
    lsns = list(accumulate((delivered(one) for one in told), max))
    first = commits[0][1] + DROPPED * 1_000_000_000
    waits = [(ended_at(told[bisect_left(lsns, lsn)]) - at) / 1e6 for lsn, at in commits if at >= first]
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    counts = [one["numInputRows"] for one in told if one["numInputRows"]]
    return Stream(cuts[49], cuts[98], max(waits), sum(counts), len(counts))


def _written(workload: Workload, rate: int, seconds: int) -> list[tuple[int, int]]:
    """Run the writer; return for each transaction an LSN at or before its commit, and its end in ns since 1970."""
    arguments = [workload.server.dsn(workload.database), str(rate), str(seconds)]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "bench.many", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the writer failed: {done.stderr.strip()}")
    if time.monotonic() - began > 1.2 * seconds + 2:
        raise RuntimeError(f"the writer does not make {rate} updates a second")
    return [(lsn_value(lsn), int(at)) for lsn, at in map(str.split, done.stdout.splitlines())]


def write(dsn: str, rate: int, seconds: int) -> None:
    """Write transactions of TOGETHER updates at a steady rate, late ones at once: the writer's own process."""
    commits: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "create or replace procedure touch(first int) language plpgsql as $$ begin for one in 0.."
            f"{TOGETHER - 1} loop execute format('update many_%s set touched = touched + 1 where id = %s',"
            f" (first + one * 7919) % {TABLES}, 1 + (first + one) % {ROWS}); end loop; end $$".encode()
        )
        started = time.monotonic()
        for place in range(rate * seconds // TOGETHER):
            time.sleep(max(0.0, started + place * TOGETHER / rate - time.monotonic()))
            row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            connection.execute("call touch(%s)", [place * 31])
            commits.append(f"{row[0]} {time.time_ns()}")
    print("\n".join(commits))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
