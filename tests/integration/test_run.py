"""The command `run` works from a file, in a process of its own as for users, and over the tests' session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tailrace import pipeline
from tailrace.command import cli
from tailrace.errors import CheckpointInUse, DiskFailed
from tailrace.pipeline import Pipeline
from tailrace.spark import session
from tests import fix_invariant
from tests.chaos.process import PARTS, runs
from tests.extent import turn
from tests.fix_postgres import Database
from tests.waiting import until

PATIENCE_S = 240
"""Seconds after which a run counts as never ending."""


def write(folder: Path, database: Database, **more: str) -> Path:
    entries = {f"debezium.source.{name}": text for name, text in database.options(topic_prefix="shop", **more).items()}
    entries["debezium.source.slot.name"] = database.name.lower()
    entries["debezium.source.database.password"] = "${env:DB_PASSWORD}"
    entries["debezium.format.schemas.enable"] = "false"
    entries["debezium.sink.type"] = "file"
    entries["debezium.sink.file.path"] = str(folder / "out")
    committed = fix_invariant.committed_in(folder / ".tailrace" / "shop")
    fix_invariant.watch(database.server.dsn(), database.name.lower(), committed)
    path = folder / "application.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    return path


def command(folder: Path, database: Database, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace.command.cli", "run", *arguments],
        cwd=folder,
        env=os.environ | {"DB_PASSWORD": database.server.password},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database) -> Path:
    """Return the directory in which a command of this process runs, with the password in its environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DB_PASSWORD", database.server.password)
    return tmp_path


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory for a command's temporary files: a short path, as sockets need one."""
    folder = Path(tempfile.mkdtemp(prefix="tr-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def records(folder: Path) -> list[dict[str, object]]:
    files = sorted((folder / "out").glob("batch-*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def ops(folder: Path) -> list[object]:
    return [record["value"] and record["value"]["op"] for record in records(folder)]  # type: ignore[index]


def until_written(number: int, folder: Path, running: subprocess.Popen[str]) -> None:
    """Wait until a run has written a number of records."""

    def is_written() -> bool:
        assert running.poll() is None, running.communicate()[1]
        return len(records(folder)) >= number

    until(is_written, f"{number} records", PATIENCE_S, pace=0.05)


def is_left_alone(group: int) -> bool:
    """Return True once no process of a session runs any more."""

    def has_ended() -> bool:
        listed = subprocess.run(["ps", "-s", str(group), "-o", "stat="], capture_output=True, text=True, check=False)
        return all(line.startswith("Z") for line in listed.stdout.splitlines())

    return until(has_ended, f"the end of the session {group}", pace=0.1)


def jvm(parent: int) -> int:
    """Return the process id of the JVM that a command has started."""
    (found,) = (one.pid for one in psutil.Process(parent).children() if one.name() == "java")
    return found


def lines_of(said: str) -> list[str]:
    """Return the errors and warnings of a command, without times."""
    lines = [line for line in said.splitlines() if " INFO " not in line and not line.startswith("  snapshot of ")]
    return [line.partition(" ERROR ")[2] or line for line in lines]


@turn(1, 6)
def test_a_run_whose_jvm_is_killed_says_so_and_is_taken_up_again(
    spark: SparkSession,
    database: Database,
    here: Path,
    temporary: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a process that continues and is ended by a signal see below."""
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    path = write(here, database)
    running = command(here, database, str(path), "--conf", "spark.driver.memory=777m")
    until_written(2, here, running)

    # The checkpoint has one run at a time.
    assert cli.main(["run", str(path), "--once"]) == CheckpointInUse.exit_code
    said = capsys.readouterr().err
    assert f"The checkpoint .tailrace/shop is in use by another run, process {running.pid}." in said
    assert running.poll() is None

    java = jvm(running.pid)
    # A JVM keeps its initial heap settings.
    assert "-Xmx777m" in psutil.Process(java).cmdline()
    assert list(temporary.glob("tailrace-sockets-*"))
    os.kill(java, signal.SIGKILL)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 9, said
    assert lines_of(said) == [
        "The JVM of Spark has ended: it was killed by the signal SIGKILL.",
        "  Start again: the pipeline goes on from its checkpoint. If the system ran out of memory, as its log says, "
        "give it or the machine more, or make batches smaller (max.batch.size).",
    ]
    # Planner, workers and their parent are in the session of the JVM.
    assert is_left_alone(java)
    assert is_left_alone(running.pid)
    assert not list(temporary.iterdir())

    database.execute("update t set v = 'c' where id = 1", "delete from t where id = 2")
    monkeypatch.setattr(pipeline, "Pipeline", lambda run, **_: Pipeline(run, spark))
    assert cli.main(["run", str(path), "--once"]) == 0
    assert ops(here) == ["r", "r", "u", "d", None]


@pytest.mark.full
def test_a_run_is_ended_by_a_signal_and_leaves_no_process(database: Database, here: Path, temporary: Path) -> None:
    """For the end of a process by a signal see test_secrets, too."""
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    running = command(here, database, str(write(here, database)))
    until_written(2, here, running)
    os.kill(running.pid, signal.SIGTERM)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert "Traceback" not in said
    assert ops(here) == ["r", "r"], said
    # The group was the command's own, and must be empty.
    assert is_left_alone(running.pid)
    assert not list(temporary.iterdir())


def test_once_delivers_what_there_is_and_goes_on_from_there(
    spark: SparkSession,
    database: Database,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "Pipeline", lambda run, **_: Pipeline(run, spark))
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    path = write(here, database)
    assert cli.main(["run", str(path), "--once"]) == 0
    assert ops(here) == ["r", "r"]
    assert "2 in all" in capsys.readouterr().err
    assert (here / ".tailrace" / "shop").is_dir()
    database.execute("update t set v = 'c' where id = 1", "delete from t where id = 2")
    assert cli.main(["run", str(path), "--once"]) == 0
    assert ops(here) == ["r", "r", "u", "d", None]
    assert "3 in all" in capsys.readouterr().err


@contextmanager
def limited(spark: SparkSession, name: str, most: int) -> Iterator[None]:
    """Let the processes of Spark with that name write no file of more than `most` bytes, nor those that they start."""
    assert spark._jvm is not None
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())

    def limit(size: int) -> int:
        count = 0
        for one in psutil.Process().children(recursive=True):
            # a process may end meanwhile
            with suppress(psutil.Error):
                program = Path(one.exe()).name
                # other programs in Java are servers of tests: a Kafka broker ends if it cannot write
                if program.startswith(name) and (program != "java" or one.pid == java):
                    one.rlimit(psutil.RLIMIT_FSIZE, (size, one.rlimit(psutil.RLIMIT_FSIZE)[1]))
                    count += 1
        return count

    assert limit(most)
    try:
        yield
    finally:
        limit(psutil.RLIM_INFINITY)


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        # smaller than a file of the offset log
        ("java", 64, "A limit on the size of files is reached on a disk that is written to: the checkpoint "),
        # smaller than a task in a file
        ("python", 1 << 19, "File too large; "),
    ],
    ids=["checkpoint", "tasks"],
)
def test_a_disk_that_refuses_files_ends_the_run_and_the_next_one_goes_on(
    spark: SparkSession,
    database: Database,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    most: int,
    said: str,
) -> None:
    monkeypatch.setattr(pipeline, "Pipeline", lambda run, **_: Pipeline(run, spark))
    database.execute("create table t (id int primary key, v text)", "insert into t values (0, 'a')")
    path = write(here, database)
    assert cli.main(["run", str(path), "--once"]) == 0
    database.execute("insert into t select i, repeat('x', 300) from generate_series(1, 5000) i")
    with limited(spark, name, most):
        assert cli.main(["run", str(path), "--once"]) == DiskFailed.exit_code
    error = capsys.readouterr().err
    assert said in error
    assert " free" in error
    assert "othing is lost" in error
    assert ops(here) == ["r"]
    assert cli.main(["run", str(path), "--once"]) == 0
    assert [record["key"]["id"] for record in records(here)] == list(range(5001))  # type: ignore[index]


def test_what_the_server_lacks_is_said_before_spark_has_started(
    database: Database, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = []

    class Launched:
        """A stand-in for a JVM that is starting."""

        def abandon(self) -> None:
            abandoned.append(self)

    monkeypatch.setattr(session, "launch", lambda *_, **__: Launched())
    path = write(here, database, publication_autocreate_mode="disabled")
    assert cli.main(["run", str(path)]) == 4
    said = capsys.readouterr().err
    assert "There is no publication dbz_publication" in said
    assert "Traceback" not in said
    assert len(abandoned) == 1


def planner(parent: int) -> psutil.Process:
    """Return the process in which a command's query plans its batches."""
    found = []
    for one in psutil.Process(parent).children(recursive=True):
        # Processes that have just ended have no command line any more.
        with suppress(psutil.Error):
            if runs(one, PARTS["planner"]):
                found.append(one)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.full
def test_a_planner_that_is_killed_is_one_sentence(database: Database, here: Path, temporary: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1), (2)")
    path = write(here, database)
    running = command(here, database, str(path))
    until_written(2, here, running)

    planner(running.pid).kill()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 10, said
    lines = lines_of(said)
    assert lines[0] == "The process that reads the log has ended: it was killed or has crashed."
    assert lines[1].startswith("  Start again: the pipeline goes on from its checkpoint.")
    assert len(lines) == 2
    assert is_left_alone(running.pid)

    database.execute("insert into t values (3)")
    last = command(here, database, str(path), "--once")
    _, said = last.communicate(timeout=PATIENCE_S)
    assert last.returncode == 0, said
    assert ops(here) == ["r", "r", "c"]
