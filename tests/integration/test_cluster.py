"""A pipeline on a stand-alone cluster runs tasks on executors, and a lost executor loses and repeats nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fix_postgres import Database
from tests.servers.spark_cluster import SparkCluster
from tests.waiting import until

SECONDS = 240
"""Seconds after which a run counts as never ending."""


def until_done(done: Callable[[], object], run: subprocess.Popen[str], what: str) -> None:
    """Wait for a condition, as long as the run goes on."""

    def is_done() -> bool:
        assert run.poll() is None, run.stderr and run.stderr.read()
        return bool(done())

    until(is_done, what, SECONDS, pace=0.1)


def delivered(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "out").glob("batch-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.full
def test_a_pipeline_on_a_cluster_outlives_its_executors(database: Database, tmp_path: Path) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, repeat('x', 100) from generate_series(0, 9999) i",
    )
    entries = {f"debezium.source.{name}": text for name, text in database.options(topic_prefix="far").items()}
    entries |= {
        "debezium.source.slot.name": database.name.lower(),
        "debezium.format.schemas.enable": "false",
        "debezium.sink.type": "file",
        "debezium.sink.file.path": str(tmp_path / "out"),
    }
    path = tmp_path / "application.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    with SparkCluster() as cluster:
        command = [sys.executable, "-m", "tailrace.command.cli", "run", str(path), "--master", cluster.master]
        run = subprocess.Popen(
            [*command, "--conf", "spark.executor.memory=512m", "--conf", "spark.app.name=far"],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            until_done(lambda: len(delivered(tmp_path)) >= 10_000, run, "the snapshot")
            # Its tasks ran there, not in the driver.
            assert cluster.processes("python")
            for number in range(3):
                for executor in cluster.processes("executor")[: 1 if number else 2]:
                    executor.kill()
                first = 10_000 + number * 100
                database.execute(f"insert into t select i, 'y' from generate_series({first}, {first + 99}) i")
                until_done(lambda last=first + 99: len(delivered(tmp_path)) > last, run, "the changes")  # type: ignore[misc]
            run.terminate()
            assert run.wait(SECONDS) == 0, run.stderr and run.stderr.read()
        finally:
            run.kill()
            run.communicate()
    records = delivered(tmp_path)
    assert [record["key"]["id"] for record in records[10_000:]] == list(range(10_000, 10_300))
    assert sorted(record["key"]["id"] for record in records) == list(range(10_300))
