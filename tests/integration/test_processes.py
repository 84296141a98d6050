"""A run whose JVM or planner is killed, and a second run beside one that lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.process import PARTS, runs
from tests.fix_postgres import Database
from tests.integration.test_run import command, left, ops, records, write


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the command puts what is temporary: a short path, as sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="tr-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def jvm(parent: int) -> int:
    """The process id of the JVM that a command has started."""
    listed = subprocess.run(
        ["ps", "--ppid", str(parent), "-o", "pid=,comm="], capture_output=True, text=True, check=True
    ).stdout
    found = [int(line.split()[0]) for line in listed.splitlines() if line.split()[1] == "java"]
    assert len(found) == 1, listed
    return found[0]


def until(number: int, folder: Path, running: subprocess.Popen[str]) -> None:
    """Wait for so many records."""
    deadline = time.monotonic() + 240
    while len(records(folder)) < number:
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_jvm_that_is_killed_is_one_sentence_and_leaves_nothing(
    database: Database, tmp_path: Path, temporary: Path
) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    path = write(tmp_path, database)
    running = command(tmp_path, database, str(path))
    until(2, tmp_path, running)

    # The checkpoint is that of one run.
    second = command(tmp_path, database, str(path), "--once")
    _, said = second.communicate(timeout=240)
    assert second.returncode == 1, said
    assert f"The checkpoint .tailrace/shop is in use by another run, process {running.pid}." in said
    assert running.poll() is None

    java = jvm(running.pid)
    sockets = list(temporary.glob("tailrace-sockets-*"))
    assert sockets
    os.kill(java, signal.SIGKILL)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 9, said
    lines = [line for line in said.splitlines() if "events/s" not in line]
    assert lines == [
        "tailrace: The JVM of Spark has ended: it was killed by the signal SIGKILL.",
        "  Start again: the pipeline goes on from its checkpoint. If the system ran out of memory, as its log says, "
        "give it or the machine more, or make batches smaller (max.batch.size).",
    ]
    # Planner, workers and their parent are in the session of the JVM.
    assert not left(java)
    assert not left(running.pid)
    assert not list(temporary.iterdir())

    database.execute("update t set v = 'c' where id = 1")
    last = command(tmp_path, database, str(path), "--once")
    _, said = last.communicate(timeout=240)
    assert last.returncode == 0, said
    assert ops(tmp_path) == ["r", "r", "u"]


def planner(parent: int) -> psutil.Process:
    """The process in which a command's query plans its batches."""
    found = []
    for one in psutil.Process(parent).children(recursive=True):
        # those that have just ended have no command line any more
        with suppress(psutil.Error):
            if runs(one, PARTS["planner"]):
                found.append(one)
    assert len(found) == 1, found
    return found[0]


def test_a_planner_that_is_killed_is_one_sentence(database: Database, tmp_path: Path, temporary: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1), (2)")
    path = write(tmp_path, database)
    running = command(tmp_path, database, str(path), "--conf", "spark.driver.memory=777m")
    until(2, tmp_path, running)
    # a JVM keeps the heap that it was started with
    assert "-Xmx777m" in psutil.Process(jvm(running.pid)).cmdline()

    planner(running.pid).kill()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 10, said
    lines = [line for line in said.splitlines() if "events/s" not in line]
    assert lines[0] == "tailrace: The process that reads the log has ended: it was killed or has crashed."
    assert lines[1].startswith("  Start again: the pipeline goes on from its checkpoint.")
    assert len(lines) == 2
    assert not left(running.pid)

    database.execute("insert into t values (3)")
    last = command(tmp_path, database, str(path), "--once")
    _, said = last.communicate(timeout=240)
    assert last.returncode == 0, said
    assert ops(tmp_path) == ["r", "r", "c"]
