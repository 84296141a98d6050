"""Merge the changes of several tables that share a topic, in the order of the log. Worker.

Tables share a topic if options route them together. Each table has separate batches. They are cut where another table
has a change in between: this is correct for any interleaving, and fast unless tables alternate row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import CapturedTransactions, ChangeBatch
from tailrace.connectors.changetables.log.rows import fixed


class _Stream:
    """The batches of a table that are not delivered yet, and the index of the first undelivered change."""

    def __init__(self, batches: Iterator[ChangeBatch], whole: bool) -> None:
        self._batches, self._whole = batches, whole
        self.batch: ChangeBatch | None = None
        self.order: npt.NDArray[np.bytes_] = np.zeros(0, "S1")
        self.given = 0
        self.advance()

    def advance(self) -> None:
        self.batch = next(self._batches, None)
        self.given = 0
        if self.batch is not None:
            changes, commits = order_of(self.batch)
            self.order = commits if self._whole else changes


def merged(streams: Sequence[Iterator[ChangeBatch]], *, whole: bool = False) -> Iterator[ChangeBatch]:
    """Yield the batches of all streams, cut into the order of (commit position, command, change position).

    Of equal positions, earlier streams come first. With `whole` the order is that of commits, and no transaction is
    cut: for blocks, whose rows may hand on keys and have their own positions.
    """
    left = [_Stream(stream, whole) for stream in streams]
    while True:
        left = [stream for stream in left if stream.batch is not None]
        if not left:
            return
        first = min(range(len(left)), key=lambda place: (left[place].order[left[place].given], place))
        stream = left[first]
        high = len(stream.order)
        for place, other in enumerate(left):
            if place != first:
                side = "left" if place < first else "right"
                low = stream.given
                bound = other.order[other.given]
                high = min(high, low + int(np.searchsorted(stream.order[low:], bound, side=side)))  # type: ignore[call-overload]
        high = max(high, stream.given + 1)
        assert stream.batch is not None
        yield stream.batch.part(stream.given, high)
        stream.given = high
        if high == len(stream.order):
            stream.advance()


def order_of(batch: ChangeBatch) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.bytes_]]:
    """Return the commit, command and change position of each change, as one value; and the commit position alone."""
    transactions = batch.transactions
    assert isinstance(transactions, CapturedTransactions)
    assert isinstance(batch.lsn, pa.Array)
    commits = fixed(transactions.commit_lsn)[batch.transaction]
    changes = fixed(batch.lsn)
    width = commits.dtype.itemsize
    joined = np.zeros(len(commits), f"S{width + 4 + changes.dtype.itemsize}")
    both = joined.view(np.uint8).reshape(len(commits), -1)
    both[:, :width] = np.ascontiguousarray(commits).view(np.uint8).reshape(len(commits), -1)
    if batch.command is not None:
        both[:, width : width + 4] = batch.command.astype(">u4").view(np.uint8).reshape(len(commits), 4)
    both[:, width + 4 :] = np.ascontiguousarray(changes).view(np.uint8).reshape(len(commits), -1)
    return joined, commits


def filtered(batch: ChangeBatch, kept: npt.NDArray[np.bool_]) -> ChangeBatch | None:
    """Return the changes of `batch` that are `kept`; None if there are none."""
    if not kept.any():
        return None
    mask = pa.array(kept)
    return batch.some(lambda values: values[kept], lambda values: values.filter(mask))
