"""Batches that a stop interrupts: what Spark gets of them is short.

Spark knows a batch that a stop has interrupted by an expression over the exception's text that recurses for every
character of the JVM's stack trace (`PROXY_ERROR` of its StreamExecution): from some thousand characters on the query's
thread ends in a StackOverflowError instead. Driver.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Write = Callable[["DataFrame", int], None]

# What a stop leaves in a stack trace: an interrupted call, or the group of jobs that was cancelled with its id.
_STOPPED = re.compile(
    r"\bjava\.[\w.]*(?:InterruptedException|InterruptedIOException|ClosedByInterruptException)\b"
    r"|\borg\.apache\.spark\.SparkException: [^\n]*\bcancelled\b[^\n]*"
)


STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling a sink.\n: java.lang.InterruptedException"
"""The text of Interrupted where a sink itself has noticed that its query is being stopped."""


class Interrupted(Exception):
    """A batch was interrupted by a stop; its text is what Spark looks for."""


def briefly(write: Write) -> Write:
    """`write` as the function of foreachBatch; raises Interrupted where a stop has interrupted it."""

    @functools.wraps(write)
    def written(batch: DataFrame, number: int) -> None:
        try:
            write(batch, number)
        except Py4JJavaError as error:
            brief = shortened(str(error))
            if brief is None:
                raise
            raise Interrupted(brief) from None

    return written


def shortened(text: str) -> str | None:
    """The text by which Spark knows what a stop has ended, in place of `text`; None where `text` is about no stop."""
    found = _STOPPED.search(text)
    return f"py4j.protocol.Py4JJavaError: An error occurred while calling a sink.\n: {found[0]}" if found else None
