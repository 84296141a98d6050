"""The processes that a run has lost: the errors for an ended JVM, planner or worker. Driver."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.errors import JvmLost, ProcessLost

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_OUT_OF_MEMORY = 52
"""Exit code of Spark's JVM when its heap is used up."""

_GRACE_S = 10.0
"""Seconds within which a JVM answers, or must end to count as lost."""

_AGAIN = "Start again: the pipeline goes on from its checkpoint"
_MEMORY = "give it or the machine more, or make batches smaller (max.batch.size)"
_HEAP = (
    "It holds each value of a row several times: give it more with --conf spark.driver.memory=8g, the default is 2g, "
    "make batches smaller (max.batch.size), or let no change be so large (event.max.change.bytes, with "
    "event.processing.failure.handling.mode=warn to quarantine such a change)"
)
# Spark's message for a worker that was killed or has crashed.
_CRASHED = re.compile(r"Python worker exited unexpectedly \(crashed\)")
_RUNNER = ".PythonStreamingSourceRunner"
"""Spark's class that talks to the planner."""


def process_lost(query: StreamingQuery) -> ProcessLost | None:
    """Return the error of a query that failed because its planner or a worker has ended; None for other failures.

    When the planner has ended, Spark reports only the closed connection. Errors that a planner raises look different.
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
    """Return True if a Java exception is of the class `name` or of a subclass."""
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
    """Return the error for a JVM that has ended; None if it runs, or if this process did not start it.

    If `error` is a failed call or connection, this waits up to 10 s for the JVM's end.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    # The JVM closes its connections a moment before it ends.
    silent = isinstance(error, Py4JError | ConnectionError)
    try:
        code = process.wait(_GRACE_S if silent else 0)
    except subprocess.TimeoutExpired:
        return None
    return lost(code)


def release(gateway: Any) -> None:
    """End the thread of py4j that reports dropped objects to the JVM of `gateway`; call this before the JVM ends.

    The thread reports each Java object that Python no longer uses. If the JVM ended meanwhile, py4j would log the
    failed call on stderr. Returns when the thread has ended.
    """
    pending = getattr(gateway._gateway_client, "finalizer_deque", None)
    if pending is None:
        return
    pending.append(SHUTDOWN_FINALIZER_WORKER)
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker) and thread.deque is pending:
            thread.join(_GRACE_S)


def lost(code: int) -> JvmLost:
    """Return the error for a JVM that ended with the exit code `code`; a negative code is the number of a signal."""
    if code == _OUT_OF_MEMORY:
        return JvmLost("The JVM of Spark has ended: its heap was used up.", f"{_AGAIN}. {_HEAP}.")
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return JvmLost(
            f"The JVM of Spark has ended: it was killed by the signal {name}.",
            f"{_AGAIN}. If the system ran out of memory, as its log says, {_MEMORY}.",
        )
    return JvmLost(f"The JVM of Spark has ended, with the exit code {code}.", f"{_AGAIN}; --debug shows its log.")
