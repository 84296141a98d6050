"""The processes of a run that others can end: the JVM, the planner and the workers. Driver."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.errors import JvmLost, ProcessLost

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OUT_OF_MEMORY = 52
"""Exit code of Spark's JVM when its heap is used up."""

_GRACE_S = 10.0
"""How long a JVM that does not answer any more may take to end, in seconds."""

_AGAIN = "Start again: the pipeline goes on from its checkpoint"
_MEMORY = "give it or the machine more, or make batches smaller (max.batch.size)"
_HEAP = (
    "It holds each value of a row several times: give it more with --conf spark.driver.memory=8g, the default is 2g, "
    "make batches smaller (max.batch.size), or let no change be so large (event.max.change.bytes, with "
    "event.processing.failure.handling.mode=warn to have such a change put aside)"
)
# What Spark says of a worker that has not ended by itself.
_CRASHED = re.compile(r"Python worker exited unexpectedly \(crashed\)")
_RUNNER = ".PythonStreamingSourceRunner"
"""The class of Spark's that talks to the planner."""


def process_lost(query: StreamingQuery) -> ProcessLost | None:
    """What is wrong when a query has failed because its planner or a worker has ended; None for other failures.

    Spark only notices that the planner's connection is closed. What the planner itself raises comes another way.
    """
    failure = query._jsq.exception()
    if not failure.isDefined():
        return None
    raised: Any = failure.get()
    if _CRASHED.search(str(raised.toString())):
        return _ended("A Python worker of Spark")
    cause = raised.getCause()
    if cause is None or not _is(cause, "java.io.IOException"):
        return None
    frames = [str(frame.getClassName()) for frame in cause.getStackTrace()]
    return _ended("The process that reads the log") if any(name.endswith(_RUNNER) for name in frames) else None


def _is(raised: Any, name: str) -> bool:
    """Whether a Java exception is of the class `name`, or of one below it."""
    at = raised.getClass()
    while at is not None and at.getName() != name:
        at = at.getSuperclass()
    return at is not None


def _ended(what: str) -> ProcessLost:
    return ProcessLost(
        f"{what} has ended: it was killed or has crashed.",
        f"{_AGAIN}. If the system ran out of memory, as its log says, {_MEMORY}.",
    )


def jvm_lost(error: BaseException) -> JvmLost | None:
    """What is wrong when `error` comes of the end of the JVM; None when it is there, or was not started from here."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    # Its connections are closed a moment before it has ended.
    silent = isinstance(error, Py4JError | ConnectionError)
    try:
        code = process.wait(_GRACE_S if silent else 0)
    except subprocess.TimeoutExpired:
        return None
    return lost(code)


def lost(code: int) -> JvmLost:
    """A JVM that ended with an exit code, or by the signal that a negative one stands for."""
    if code == _OUT_OF_MEMORY:
        return JvmLost("The JVM of Spark has ended: its heap was used up.", f"{_AGAIN}. {_HEAP}.")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return JvmLost(
            f"The JVM of Spark has ended: it was killed by the signal {name}.",
            f"{_AGAIN}. If the system ran out of memory, as its log says, {_MEMORY}.",
        )
    return JvmLost(f"The JVM of Spark has ended, with the exit code {code}.", f"{_AGAIN}; --debug shows its log.")
