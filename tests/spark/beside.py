"""Actions of others on a table between the read and the commit of a merge, in tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

Passing = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def merge_beside(
    place: Path, number: int, prepared: Callable[[Passing], Callable[[], None]], beside: Callable[[], object]
) -> None:
    """Run a merge, and call `beside` between the start of its read and its commit.

    `prepared` returns the merge, whose rows must pass through the function that it gets. `number` distinguishes the
    merges of a test, whose files are in the directory `place`.
    """
    fifo, passed = f"{place}/fifo{number}", f"{place}/passed{number}"

    def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not os.path.exists(passed):
                with open(fifo) as pipe:
                    pipe.read()
            yield batch

    os.mkfifo(fifo)
    merge = prepared(waiting)
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(merge)
        end = _opened(fifo, merging)
        try:
            beside()
        finally:
            Path(passed).touch()
            os.close(end)
        merging.result()


def _opened(fifo: str, reading: Future[None]) -> int:
    """Open a pipe for writing once another process reads it or has given up."""
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            if reading.done():
                reading.result()
