"""Batches that are made ahead arrive in order, with an error at its place, and leave no thread behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tailrace.spark.prefetch import ahead


def batches(count: int, error: Exception | None = None) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        yield pa.record_batch({"n": [number]})
    if error is not None:
        raise error


def threads() -> int:
    return sum(thread.name == "tailrace-ahead" for thread in threading.enumerate())


def test_batches_keep_their_order() -> None:
    assert [batch["n"][0].as_py() for batch in ahead(batches(20))] == list(range(20))
    assert threads() == 0


def test_an_error_comes_after_the_batches_before_it() -> None:
    taking = ahead(batches(3, ValueError("broken")))
    assert [next(taking)["n"][0].as_py() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="broken"):
        next(taking)


def test_no_more_is_made_than_the_depth_allows() -> None:
    made: list[int] = []

    def counting() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(50)):
            made.append(number)
            yield batch

    taking = ahead(counting(), depth=2)
    next(taking)
    time.sleep(0.1)
    assert len(made) <= 5
    taking.close()
    assert threads() == 0
