"""Segments: raw pgoutput messages, as the planner hands them to a task. Planner and worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, ChangeBatch, Int32s, Int64s, Transactions
from tailrace.columns.table import TableSchema

PIECE = 512 << 20
"""The most bytes of messages that are decoded at a time: a column of them stays below Arrow's 2 GiB."""


@dataclass(slots=True)
class Segment:
    """Messages of one table at one schema version, in log order.

    `data[offsets[i]:offsets[i + 1]]` is message i: an Insert, Update, Delete or Truncate in the form of protocol
    version 1 (no transaction id after the kind byte), whatever version it was read with. A Truncate of several tables
    is in the segment of each of them. `offsets` has one element more than there are messages. `transaction[i]` is an
    index into `transactions`. `total_order` and `table_order` are those of ChangeBatch. `place[i]` ascends in log order
    over all segments of the topic in a batch; None for the only segment of a topic. `left_out[i]` is the size of a
    message whose bytes are not in `data` because it is too large, 0 for other messages; None if there is no such
    message. `superseded` is the number of messages left out because later ones make them superfluous.
    """

    table: TableSchema
    data: npt.NDArray[np.uint8]
    offsets: Int64s
    lsn: Int64s
    transaction: Int32s
    ordinal: Int64s
    transactions: Transactions
    total_order: Int64s | None = None
    table_order: Int64s | None = None
    place: Int64s | None = None
    left_out: Int64s | None = None
    superseded: int = 0

    def __len__(self) -> int:
        return len(self.lsn)

    def pieces(self, most: int) -> Iterator[tuple[int, Segment]]:
        """Yield segments of at most `most` bytes, or of one message, each with the number of its first message."""
        low = 0
        while low < len(self):
            high = int(np.searchsorted(self.offsets, self.offsets[low] + most, side="right")) - 1
            high = min(max(high, low + 1), len(self))
            yield low, self.cut(low, high)
            low = high

    def without_large(self, most: int) -> Segment:
        """Return the segment without the bytes of messages that have more than `most` bytes."""
        found = _without_large(self.data, self.offsets, most)
        return self if found is None else replace(self, data=found[0], offsets=found[1], left_out=found[2])

    def cut(self, low: int, high: int) -> Segment:
        """Return the messages `[low, high)` as a segment over the same bytes; its `offsets` may not begin at 0."""
        if low == 0 and high == len(self):
            return self
        of = self.transaction[low:high]
        # transactions are in log order, so neighbouring messages have neighbouring transactions
        first, last = (int(of.min()), int(of.max()) + 1) if high > low else (0, 0)

        def part(numbers: Int64s | None) -> Int64s | None:
            return None if numbers is None else numbers[low:high]

        return Segment(
            self.table,
            self.data,
            np.ascontiguousarray(self.offsets[low : high + 1]),
            self.lsn[low:high],
            of - np.int32(first),
            self.ordinal[low:high],
            self.transactions.part(slice(first, last)),
            part(self.total_order),
            part(self.table_order),
            part(self.place),
            part(self.left_out),
            0 if low else self.superseded,
        )


@dataclass(slots=True)
class MixedSegment:
    """Messages of many tables, in log order: message i is of the table `tables[table[i]]`.

    It has no Truncate, and no message that is too large. It has all of the batch's messages of its topics. The other
    fields are those of Segment.
    """

    tables: tuple[TableSchema, ...]
    table: Int32s
    data: npt.NDArray[np.uint8]
    offsets: Int64s
    lsn: Int64s
    transaction: Int32s
    ordinal: Int64s
    transactions: Transactions
    total_order: Int64s | None = None
    table_order: Int64s | None = None

    def __len__(self) -> int:
        return len(self.lsn)


@dataclass(slots=True)
class MessageSegment:
    """Logical messages in log order: `data[offsets[i]:offsets[i + 1]]` is a Message of protocol version 1.

    The other fields are those of Segment. For a message outside of transactions, whose transaction id is 0,
    `total_order[i]` has no meaning.
    """

    data: npt.NDArray[np.uint8]
    offsets: Int64s
    transaction: Int32s
    ordinal: Int64s
    transactions: Transactions
    total_order: Int64s | None = None
    left_out: Int64s | None = None

    def __len__(self) -> int:
        return len(self.ordinal)

    def without_large(self, most: int) -> MessageSegment:
        """See Segment."""
        found = _without_large(self.data, self.offsets, most)
        return self if found is None else replace(self, data=found[0], offsets=found[1], left_out=found[2])


def _without_large(data: Bytes, offsets: Int64s, most: int) -> tuple[Bytes, Int64s, Int64s] | None:
    """Return the messages without the bytes of large ones, their offsets, and the sizes of the bytes left out.

    Large messages have more than `most` bytes; return None if there is none.
    """
    sizes = np.diff(offsets)
    large = np.flatnonzero(sizes > most)
    if not len(large):
        return None
    starts, ends = np.r_[offsets[0], offsets[large + 1]], np.r_[offsets[large], offsets[-1]]
    kept = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    left_out = np.zeros(len(sizes), np.int64)
    left_out[large] = sizes[large]
    bounds = np.zeros(len(offsets), np.int64)
    np.cumsum(sizes - left_out, out=bounds[1:])
    return np.concatenate(kept), bounds, left_out


def transactions_of(batch: ChangeBatch) -> Transactions:
    """Return the batch's transactions, with PostgreSQL's type."""
    return cast(Transactions, batch.transactions)
