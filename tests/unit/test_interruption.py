"""Spark recognises a batch that a stop has interrupted by a short text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tailrace.sinks.interruption import Interrupted, briefly, shortened

TRACE = "".join(f"\n\tat org.apache.spark.Some.call(Some.scala:{line})" for line in range(500))
CALL = "An error occurred while calling o80.text.\n: "


class Failure(Py4JJavaError):  # type: ignore[misc]
    """The JVM's error with a given text, without a JVM."""

    def __init__(self, text: str) -> None:
        super().__init__("", SimpleNamespace(_target_id="o1"))
        self.text = text

    def __str__(self) -> str:
        return self.text


def written(text: str) -> Any:
    def write(batch: Any, number: int) -> None:
        raise Failure(text)

    return briefly(write)


@pytest.mark.parametrize(
    "cause",
    [
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
        "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group 1-2-3",
    ],
)
def test_what_a_stop_ends_is_told_in_few_words_that_spark_looks_for(cause: str) -> None:
    for text in (f"{CALL}{cause}{TRACE}", f"{CALL}java.lang.RuntimeException: x{TRACE}\nCaused by: {cause}{TRACE}"):
        with pytest.raises(Interrupted) as caught:
            written(text)(None, 1)
        told = str(caught.value)
        assert told.startswith("py4j.protocol.Py4JJavaError: An error occurred while calling")
        assert told.endswith(cause)
        assert len(told) < 300


def test_any_other_failure_stays_as_it_is() -> None:
    text = f"{CALL}java.io.IOException: No space left on device{TRACE}"
    assert shortened(text) is None
    with pytest.raises(Failure, match="No space left"):
        written(text)(None, 1)
