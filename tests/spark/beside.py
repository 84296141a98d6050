"""What somebody does to a table between the reading and the commit of a merge, in tests."""

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
    """Run a merge; it has begun to read its rows when `beside` is called, and goes on when that is done.

    `prepared` gives the merge, whose rows are to pass through the function that it is given. `number` tells the merges
    of a test apart, whose files are in the directory `place`.
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
    """The end of a pipe to write to, once somebody reads at the other one, or has given up."""
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            if reading.done():
                reading.result()
