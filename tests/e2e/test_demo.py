"""`tailrace demo` shows every kind of change, delivers exactly what it shows, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from tailrace.config.files import RunConfig
from tailrace.demo import inventory, run
from tailrace.errors import ConfigError
from tailrace.pipeline import Pipeline
from tests.waiting import until

MARK = "TAILRACE_TEST_DEMO"
"""An environment variable that every process of one demo inherits, even if its parent ends."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of a demo: `temporary` is its TMPDIR. `mark` is in the environment of its processes."""

    temporary: Path
    mark: str

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a demo in a process group of its own, as a shell does."""
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(
            [sys.executable, "-m", "tailrace.command.cli", "demo", "--fast", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,
        )

    def processes(self) -> list[str]:
        """Return the processes with the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark:
                    found.append(" ".join(process.cmdline())[:200])
            except psutil.Error:
                continue
        return found

    def is_left_alone(self) -> bool:
        """Return True once no process is left. Orphaned workers may take a moment to end."""
        return until(lambda: not self.processes(), "the end of all processes", pace=0.1)


@pytest.fixture
def place() -> Iterator[Place]:
    # Short, because the path of PostgreSQL's socket is limited; readable, because PostgreSQL may run as another user.
    temporary = Path(tempfile.mkdtemp(prefix="demo-"))
    temporary.chmod(0o755)
    yield Place(temporary, secrets.token_hex(8))
    shutil.rmtree(temporary, ignore_errors=True)


def read(files: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(files) for line in path.read_text("utf-8").splitlines()]


def operations(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter("0" if record["value"] is None else record["value"]["op"] for record in records)


def check_of(output: str, directory: Path) -> None:
    """Assert that a demo has delivered into its directory what it has shown: every change of its workload."""
    records = read(list((directory / "events").glob("*.jsonl")))
    assert operations(records) == inventory.expected()
    moved = [record for record in records if record["key"] in ({"id": 1004}, {"id": 2004})]
    assert [(record["key"]["id"], record["value"] and record["value"]["op"]) for record in moved] == [
        (1004, "r"),
        (1004, "d"),
        (1004, None),
        (2004, "c"),
    ]
    shown = Counter(re.findall(r"^  (read|create|update|delete|truncate|tombstone) +demo\.", output, re.M))
    words = {"r": "read", "c": "create", "u": "update", "d": "delete", "t": "truncate", "0": "tombstone"}
    assert shown == {words[op]: count for op, count in inventory.expected().items()}
    assert "email: mina@sato.example → mina.sato@post.example" in output
    assert "header __debezium.newkey: id=2004" in output
    assert "header __debezium.oldkey: id=1004" in output
    assert f"── {len(records)} records in " in output
    assert str(directory / "checkpoint") in output
    assert (directory / "checkpoint" / "commits").is_dir()
    assert not re.search(r"[^\n -~←-⇿–-…─äöü]", output), "control characters without a terminal"


def test_a_demo_shows_and_delivers_every_change(
    spark: SparkSession,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The demo runs in this process, over the tests' session, with a PostgreSQL of its own."""

    def start(demo: run.Demo, configured: RunConfig, scratch: Path, stack: ExitStack) -> Pipeline:
        pipeline = Pipeline(configured, spark)
        stack.callback(pipeline.stop)
        return pipeline

    monkeypatch.setattr(run.Demo, "_start_spark", start)
    # The demo waits this long for records that must not come.
    monkeypatch.setattr(run, "PAUSE_S", 0.3)
    monkeypatch.setattr(tempfile, "tempdir", str(place.temporary))
    monkeypatch.setenv(MARK, place.mark)
    assert run.main(keep=str(tmp_path / "kept"), fast=True) == 0
    check_of(capsys.readouterr().out, tmp_path / "kept")
    assert place.is_left_alone()
    assert list(place.temporary.iterdir()) == []


@pytest.mark.full
def test_demos_at_once_show_and_deliver_every_change(place: Place, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    demos = [place.start("--keep", str(kept)), place.start()]
    outputs = [demo.communicate(timeout=400)[0] for demo in demos]
    assert {demo.returncode for demo in demos} == {0}, outputs
    for output, directory in zip(outputs, [kept, *place.temporary.iterdir()], strict=True):
        check_of(output, directory)
    assert place.is_left_alone()


@pytest.mark.parametrize(
    ("after", "number"),
    [
        pytest.param("Starting a private PostgreSQL", signal.SIGINT, marks=pytest.mark.full),
        ("Starting Spark", signal.SIGINT),
        pytest.param("Taking the snapshot", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("A customer registers", signal.SIGTERM, marks=pytest.mark.full),
    ],
)
def test_ctrl_c_leaves_neither_process_nor_file(place: Place, after: str, number: signal.Signals) -> None:
    demo = place.start()
    assert demo.stdout is not None
    for line in demo.stdout:
        if after in line:
            break
    pause = random.uniform(0, 3)
    time.sleep(pause)
    # As from a terminal, every process of the foreground's group gets the signal.
    os.killpg(demo.pid, number)
    rest = demo.communicate(timeout=120)[0]
    assert demo.returncode == 128 + number, f"{pause:.2f} s after {after!r}: {rest}"
    assert "Traceback" not in rest
    assert place.is_left_alone()
    assert list(place.temporary.iterdir()) == [], f"{pause:.2f} s after {after!r}"


def test_a_directory_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        run.main(keep=str(tmp_path))
