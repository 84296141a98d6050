"""The end of a JVM, a planner or a worker is reported as an error."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.clientserver import FinalizerWorker  # type: ignore[import-untyped]
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext

from tailrace.monitoring.processes import jvm_lost, lost, process_lost, release
from tests.waiting import until


@pytest.mark.parametrize(
    ("code", "said"),
    [(-9, "killed by the signal SIGKILL"), (52, "heap was used up"), (1, "exit code 1"), (-99, "the signal 99")],
)
def test_the_exit_code_says_what_has_ended_the_jvm(code: int, said: str) -> None:
    error = lost(code)
    assert said in error.message
    assert error.remedy
    assert error.exit_code == 9


def test_only_the_end_of_the_jvm_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def gateway(process: Any) -> None:
        monkeypatch.setattr(SparkContext, "_gateway", process and SimpleNamespace(proc=process))

    gateway(None)
    assert jvm_lost(Py4JNetworkError("x")) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        gateway(process)
        assert jvm_lost(ValueError("x")) is None
        process.kill()
        # It has closed its connections, and ends.
        found = jvm_lost(ConnectionRefusedError())
    assert found is not None
    assert "SIGKILL" in found.message


class Raised:
    """A Java exception as py4j shows it."""

    def __init__(self, text: str, classes: tuple[str, ...], frames: tuple[str, ...] = (), cause: Any = None) -> None:
        self._text, self._classes, self._frames, self._cause = text, classes, frames, cause

    def toString(self) -> str:
        return self._text

    def getCause(self) -> Any:
        return self._cause

    def getClass(self) -> Any:
        found = None
        for name in reversed(self._classes):
            found = SimpleNamespace(getName=lambda name=name: name, getSuperclass=lambda above=found: above)
        return found

    def getStackTrace(self) -> Any:
        return [SimpleNamespace(getClassName=lambda name=name: name) for name in self._frames]


def failed(raised: Raised | None) -> Any:
    """Return a query that has ended with `raised`."""
    option = SimpleNamespace(isDefined=lambda: raised is not None, get=lambda: raised)
    return SimpleNamespace(_jsq=SimpleNamespace(exception=lambda: option))


SOCKET = ("java.net.SocketException", "java.io.IOException", "java.lang.Exception")
FRAMES = ("java.io.DataOutputStream", "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner")


def test_a_planner_is_known_by_who_has_lost_its_connection() -> None:
    lost_planner = process_lost(failed(Raised("Query: Broken pipe", (), cause=Raised("Broken pipe", SOCKET, FRAMES))))
    assert lost_planner is not None
    assert lost_planner.message.startswith("The process that reads the log has ended")
    # A foreign connection, an error of the planner itself, and no failure at all.
    assert process_lost(failed(Raised("Query", (), cause=Raised("Broken pipe", SOCKET, FRAMES[:1])))) is None
    assert (
        process_lost(failed(Raised("Query", (), cause=Raised("x", ("org.apache.spark.SparkException",), FRAMES))))
        is None
    )
    assert process_lost(failed(Raised("Query", ()))) is None
    assert process_lost(failed(None)) is None


def test_a_worker_is_known_by_what_spark_says() -> None:
    crashed = process_lost(failed(Raised("Job aborted: Python worker exited unexpectedly (crashed)", ())))
    assert crashed is not None
    assert crashed.message.startswith("A Python worker of Spark has ended")
    assert crashed.exit_code == 10


def test_a_jvm_that_is_about_to_end_is_told_of_no_dropped_object() -> None:
    told: list[str] = []
    client = SimpleNamespace(finalizer_deque=deque(), garbage_collect_object=lambda name, _: told.append(name))
    worker = FinalizerWorker(client.finalizer_deque)
    worker.daemon = True
    worker.start()
    client.finalizer_deque.appendleft((client, "before"))
    until(lambda: told, "the thread of py4j")
    release(SimpleNamespace(_gateway_client=client))
    assert not worker.is_alive()
    client.finalizer_deque.appendleft((client, "after"))
    assert told == ["before"]
    # A gateway without such a thread, of PySpark's older threading.
    release(SimpleNamespace(_gateway_client=SimpleNamespace()))
