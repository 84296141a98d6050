"""Python processes of a local session are forked from a process that has loaded what they need."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tailrace.process import temporary
from tailrace.spark.startup import fork_server
from tailrace.spark.startup.python import worker_python
from tests.waiting import until

pytestmark = pytest.mark.skipif(not fork_server.is_possible(), reason="only Linux has what a fork server needs")

# A module of Python's own, which nothing else here imports.
_LOADED = "colorsys"
_PATIENCE_S = 60

TELLS = """\
import os, sys
print(__name__, sys.argv[1:], os.getcwd() == sys.path[0], os.environ.get("GIVEN"), os.environ.get("OF_EXECUTORS"))
print("colorsys" in sys.modules, sys.stdin.read(), os.getppid())
print("an error", file=sys.stderr)
sys.exit(7)
"""
WAITS = """\
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@dataclass
class Session:
    """A fork server, and the part of Spark's JVM that uses it."""

    folder: Path
    process: psutil.Process
    held: int
    environment: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, text: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a process like Spark, with a module of this text."""
        (self.folder / "started.py").write_text(text)
        process = subprocess.Popen(
            [worker_python(), "-m", "started", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def waiting(self) -> tuple[subprocess.Popen[str], psutil.Process]:
        """Return a process that ends with its input, as Spark knows it, and the process that runs the module."""
        asking = self.start(WAITS)
        assert asking.stdout is not None
        forked = psutil.Process(int(asking.stdout.readline()))
        assert forked.ppid() == self.process.pid
        return asking, forked


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    before = {child.pid for child in psutil.Process().children()}
    settings = {"spark.executorEnv.OF_EXECUTORS": "1", "spark.executor.memory": "1g"}
    with fork_server.serving(temporary.folder("tailrace-test-"), settings, [_LOADED]) as held:
        environment = {**os.environ, "GIVEN": "by Spark"}
        kept = os.dup(held)
    assert fork_server.SERVER not in os.environ
    (process,) = (child for child in psutil.Process().children() if child.pid not in before)
    running = Session(tmp_path, process, kept, environment)
    yield running
    for one in running.started:
        one.kill()
        with one:
            pass
    if running.held >= 0:
        os.close(running.held)
    process.wait(_PATIENCE_S)


def test_a_forked_process_is_as_one_that_spark_has_started(session: Session) -> None:
    asking = session.start(TELLS, "one", "two")
    said, errors = asking.communicate("its input", timeout=_PATIENCE_S)
    assert said.splitlines() == [
        "__main__ ['one', 'two'] True by Spark None",
        f"True its input {session.process.pid}",
    ]
    assert errors == "an error\n"
    assert asking.returncode == 7


def test_the_server_has_the_environment_of_executors_and_no_thread_of_pythons(session: Session) -> None:
    session.start("").communicate(timeout=_PATIENCE_S)
    assert session.process.environ()["OF_EXECUTORS"] == "1"
    # NumPy's threads would be more; one is of Arrow's memory, which is created anew in a forked process.
    assert session.process.num_threads() <= 2


def test_files_that_spark_adds_to_the_path_are_found(session: Session, tmp_path: Path) -> None:
    added = tmp_path / "added"
    added.mkdir()
    (added / "of_a_user.py").write_text("print('found')")
    session.environment["PYTHONPATH"] = f"{added}:/x/pyspark/python/lib/pyspark.zip"
    said, _ = session.start("import of_a_user, sys; print(sys.path[1:3])").communicate(timeout=_PATIENCE_S)
    first, path = said.splitlines()
    assert first == "found"
    assert path.startswith(f"['{added}', ")
    assert "pyspark.zip" not in path


def test_a_forked_process_is_called_by_its_module(session: Session) -> None:
    asking = session.start(f"{WAITS}", "pyspark.sql.streaming.python_streaming_source_runner")
    assert asking.stdout is not None
    assert psutil.Process(int(asking.stdout.readline())).name() == "python_streamin"


@pytest.mark.parametrize("end", [psutil.Process.terminate, psutil.Process.kill])
def test_it_ends_with_the_process_that_spark_has_started(
    session: Session, end: Callable[[psutil.Process], None]
) -> None:
    asking, forked = session.waiting()
    other, beside = session.waiting()
    end(psutil.Process(asking.pid))
    forked.wait(_PATIENCE_S)
    assert beside.is_running()
    assert other.poll() is None


def test_its_end_is_the_end_of_the_process_that_spark_has_started(session: Session) -> None:
    asking, forked = session.waiting()
    _, beside = session.waiting()
    forked.kill()
    assert asking.wait(_PATIENCE_S) == 128 + signal.SIGKILL
    assert beside.is_running()


def test_both_may_end_at_once(session: Session) -> None:
    several = [session.waiting() for _ in range(3)]
    _, beside = session.waiting()
    session.process.suspend()
    for asking, forked in several:
        forked.kill()
        until(lambda one=forked: one.status() == psutil.STATUS_ZOMBIE, "the end of the forked one")  # type: ignore[misc]
        # The server gets both ends, that of the forked process first.
        asking.kill()
    last = session.start(TELLS, "one")
    session.process.resume()
    said, _ = last.communicate("its input", timeout=_PATIENCE_S)
    assert said.endswith(f"True its input {session.process.pid}\n")
    assert session.waiting()[1].is_running()
    assert beside.is_running()


def test_a_process_goes_on_where_the_server_has_ended(session: Session) -> None:
    asking, forked = session.waiting()
    session.process.kill()
    session.process.wait(_PATIENCE_S)
    # Its end would never come, because there is no process to wait for.
    with pytest.raises(subprocess.TimeoutExpired):
        asking.wait(0.5)
    assert asking.stdin is not None
    asking.stdin.close()
    assert asking.wait(_PATIENCE_S) == 1
    assert not forked.is_running()


def test_without_a_server_the_module_is_run_all_the_same(session: Session) -> None:
    session.process.kill()
    session.process.wait(_PATIENCE_S)
    asking = session.start(TELLS, "one")
    said, _ = asking.communicate("its input", timeout=_PATIENCE_S)
    assert said.startswith("__main__ ['one'] True by Spark None")
    assert asking.returncode == 7


def test_what_fails_is_told(session: Session) -> None:
    asking = session.start("raise ValueError('told')")
    _, errors = asking.communicate(timeout=_PATIENCE_S)
    assert errors.strip().endswith("ValueError: told")
    assert asking.returncode == 1


def test_all_end_with_the_last_process_that_holds_the_servers_file(session: Session) -> None:
    both = [session.waiting(), session.waiting()]
    os.close(session.held)
    session.held = -1
    session.process.wait(_PATIENCE_S)
    for asking, forked in both:
        forked.wait(_PATIENCE_S)
        assert asking.wait(_PATIENCE_S) == 1


def test_who_asks_for_nothing_hinders_nobody(session: Session) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left, socket.socket(socket.AF_UNIX) as short:
        left.connect(session.environment[fork_server.SERVER])
        short.connect(session.environment[fork_server.SERVER])
        left.close()
        socket.send_fds(short, [(5).to_bytes(8, "big")], [0, 1, 2])
        short.close()
        assert session.waiting()[1].is_running()


def test_a_socket_needs_a_path_that_the_system_takes() -> None:
    assert fork_server.is_possible("/" + "d" * 90)
    assert not fork_server.is_possible("/" + "d" * 100)
