"""Short exception texts for batches that a stop has interrupted, and whether a batch is being written. Driver.

Spark recognises such a batch by a regular expression over the exception's text (`PROXY_ERROR` of its StreamExecution).
The expression recurses for every character of the JVM's stack trace. A text of some thousand characters ends the
query's thread in a StackOverflowError.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Write = Callable[["DataFrame", int], None]

# Traces of a stop in a stack trace: an interrupted call, or a cancelled job group with its id.
_STOPPED = re.compile(
    r"\bjava\.[\w.]*(?:InterruptedException|InterruptedIOException|ClosedByInterruptException)\b"
    r"|\borg\.apache\.spark\.SparkException: [^\n]*\bcancelled\b[^\n]*"
)


STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling a sink.\n: java.lang.InterruptedException"
"""The text of Interrupted for a sink that has itself noticed the stop of its query."""


class _Writing:
    """The number of batches that functions of foreachBatch are writing in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.count -= 1


_writing = _Writing()


def is_writing() -> bool:
    """Return True while a batch is being written by a function of `briefly`, even if Spark has no job for it."""
    return _writing.count > 0


class Interrupted(Exception):
    """A stop has interrupted a batch. Spark recognises the exception by its text."""


def briefly(write: Write) -> Write:
    """Wrap `write` for foreachBatch so that it raises Interrupted if a stop has interrupted it."""

    @functools.wraps(write)
    def written(batch: DataFrame, number: int) -> None:
        try:
            with _writing:
                write(batch, number)
        except Py4JJavaError as error:
            brief = shortened(str(error))
            if brief is None:
                raise
            raise Interrupted(brief) from None

    return written


def shortened(text: str) -> str | None:
    """Return a short text by which Spark recognises a stop; None if `text`, of an exception, shows no stop."""
    found = _STOPPED.search(text)
    return f"py4j.protocol.Py4JJavaError: An error occurred while calling a sink.\n: {found[0]}" if found else None
