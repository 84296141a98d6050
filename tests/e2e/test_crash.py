"""`kill -9` at any moment, then the same command again, loses nothing, and files hold every change exactly once.

In the short extent, `tests/integration/test_run.py` kills and resumes a run, and `tests/chaos` kills a few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import fix_invariant
from tests.fix_kafka import Kafka
from tests.fix_postgres import Database
from tests.waiting import until

ROWS = 60_000
"""Rows before the first start: several chunks of the snapshot."""
KILLS = 3
PATIENCE_S = 240
"""Seconds after which a run counts as never ending."""


def configure(folder: Path, database: Database, sink: dict[str, str]) -> Path:
    entries = {f"debezium.source.{name}": text for name, text in database.options(topic_prefix="crash").items()}
    entries |= {
        "debezium.source.slot.name": database.name.lower(),
        "debezium.format.schemas.enable": "false",
        **{f"debezium.sink.{name}": text for name, text in sink.items()},
    }
    committed = fix_invariant.committed_in(folder / ".tailrace" / "crash")
    fix_invariant.watch(database.server.dsn(), database.name.lower(), committed)
    path = folder / "application.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    return path


def run(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace.command.cli", "run", str(folder / "application.properties"), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def commits(folder: Path) -> int:
    """Return the number of batches that Spark has committed."""
    return len(list((folder / ".tailrace" / "crash" / "commits").glob("[0-9]*")))


def until_committed(folder: Path, before: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has committed a batch or has ended."""
    until(lambda: commits(folder) > before or process.poll() is not None, "a commit", PATIENCE_S)


@contextmanager
def writing(database: Database) -> Iterator[dict[str, int]]:
    """Run endless transactions within the block: an insert of the next id, and an increment of one of ten counters."""
    done = {"inserts": 0}
    stop = threading.Event()

    def write() -> None:
        with database.connect() as connection:
            while not stop.wait(0.003):
                number = done["inserts"]
                with connection.transaction():
                    connection.execute("insert into t values (%s, 'live')", (ROWS + number,))
                    connection.execute("update counters set n = n + 1 where id = %s", (number % 10,))
                done["inserts"] += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def finish(folder: Path) -> None:
    """Deliver the rest."""
    last = run(folder, "--once")
    _, said = last.communicate(timeout=PATIENCE_S)
    assert last.returncode == 0, said


def crash_and_finish(folder: Path, database: Database) -> int:
    """Start, kill and restart while changes go on, then let a last run finish. Return the number of inserts."""
    database.execute(
        "create table t (id int primary key, v text)",
        "create table counters (id int primary key, n int not null)",
        f"insert into t select i, repeat('x', 300) from generate_series(0, {ROWS - 1}) i",
        "insert into counters select i, 0 from generate_series(0, 9) i",
    )
    with writing(database) as done:
        for _ in range(KILLS):
            before = commits(folder)
            process = run(folder)
            until_committed(folder, before, process)
            time.sleep(random.uniform(0, 3))
            assert process.poll() is None, process.stderr and process.stderr.read()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finish(folder)
    return done["inserts"]


def check(records: list[dict[str, Any]], inserts: int, exactly_once: bool) -> None:
    """Assert that a consumer finds every row and every step of every counter, never a step before its predecessor.

    A snapshot that was resumed after a crash also reads rows that are inserted meanwhile; the log then has them, too.
    """
    ids: dict[tuple[str, int], int] = {}
    counters: dict[int, list[int]] = {number: [] for number in range(10)}
    read: dict[int, int] = {}
    for record in records:
        row, op = record["value"]["after"], record["value"]["op"]
        if record["topic"] == "crash.public.t":
            ids[op, row["id"]] = ids.get((op, row["id"]), 0) + 1
        elif op == "u":
            counters[row["id"]].append(row["n"])
        else:
            assert op == "r"
            read[row["id"]] = max(row["n"], read.get(row["id"], 0))
    assert {number for _, number in ids} == set(range(ROWS + inserts))
    assert {number for op, number in ids if op == "r"} >= set(range(ROWS))
    if exactly_once:
        assert {event for event, times in ids.items() if times > 1} == set()
    for number, values in counters.items():
        last = None
        for value in values:
            if last is None:
                assert value <= read[number] + 1
            elif value <= last:
                assert not exactly_once
                continue
            else:
                assert value == last + 1
            last = value
        assert max(last or 0, read[number]) == len(range(number, inserts, 10))


@pytest.mark.full
def test_files_hold_every_change_exactly_once_after_crashes(database: Database, tmp_path: Path) -> None:
    configure(tmp_path, database, {"type": "file", "file.path": str(tmp_path / "out")})
    inserts = crash_and_finish(tmp_path, database)
    files = sorted((tmp_path / "out").glob("batch-*.jsonl"))
    check([json.loads(line) for path in files for line in path.read_text().splitlines()], inserts, exactly_once=True)


@pytest.mark.full
def test_kafka_holds_every_change_at_least_once_and_in_order_after_crashes(
    database: Database, tmp_path: Path, kafka: Kafka, spark: SparkSession
) -> None:
    configure(tmp_path, database, {"type": "kafka", "kafka.producer.bootstrap.servers": kafka.servers})
    inserts = crash_and_finish(tmp_path, database)
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.servers)
        .option("subscribe", "crash.public.t,crash.public.counters")
        .load()
        .orderBy("topic", "partition", "offset")
        .selectExpr("topic", "cast(value as string) as value")
    )
    rows = frame.collect()
    check([{"topic": row["topic"], "value": json.loads(row["value"])} for row in rows], inserts, exactly_once=False)
