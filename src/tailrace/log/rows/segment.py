"""RowRun: a run of the log, which the planner keeps. Segment: rows of runs, which tasks get. Planner and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from tailrace.columns.batch import Bytes, Commits, Counts, Flags, Int32s, Int64s
from tailrace.columns.table import TableSchema
from tailrace.log.rows import frames

PIECE = 512 << 20
"""The most bytes of messages that are decoded at a time: a column of them stays below Arrow's 2 GiB."""

TRUNCATE = ord("t")


class RowTransactions(Commits, Protocol):
    """The transactions of a log, in its order. A row refers to its transaction by index."""

    def part(self, which: slice | Int32s | Int64s) -> Self:
        """Return some of the transactions."""
        ...

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the transactions of the parts, one after another."""
        ...


class Arrays:
    """Base of dataclasses whose fields are arrays with one element per row; None for an array that is not needed.

    Each field named in `WHOLE` is one value for all rows.
    """

    __slots__ = ()
    WHOLE: ClassVar[frozenset[str]] = frozenset()

    def part(self, which: slice | Int64s | Flags) -> Self:
        """Return some of the rows."""
        values: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            values[field.name] = value if value is None or field.name in self.WHOLE else value[which]
        return type(self)(**values)


@dataclass(slots=True, kw_only=True)
class ByRow(Arrays):
    """Arrays with one element per row of a log. A database adds its own: positions, and facts that the bytes lack.

    `transaction` is an index into the transactions and ascends; `ordinal` is the row's place in its transaction.
    `total_order` and `table_order` are as in ChangeBatch.
    """

    transaction: Int32s
    ordinal: Int64s
    total_order: Int64s | None = None
    table_order: Int64s | None = None

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of the parts, one after another. An array that a part lacks is None in the result."""
        if len(parts) == 1:
            return parts[0]
        values: dict[str, Any] = {}
        for field in fields(cls):
            arrays = [getattr(part, field.name) for part in parts]
            values[field.name] = None if any(array is None for array in arrays) else np.concatenate(arrays)
        return cls(**values)


Own = TypeVar("Own", bound=ByRow)
Trans = TypeVar("Trans", bound=RowTransactions)


@dataclass(slots=True)
class RowRun(Generic[Own, Trans]):
    """A run of messages as they were read, with an index of the captured changes among them (its rows).

    Row i is message `rows[i]`, that is `data[offsets[rows[i]]:offsets[rows[i] + 1]]`; `rows` ascends. A message that
    concerns several tables is a row for each of them. `op[i]` is the operation (c, u, d or t), `version[i]` the number
    of its table version. A negative version marks a connector's own kind of row, which belongs to no table; then `op`
    has the connector's meaning. With transaction metadata, `counts` has the number of events of each transaction that
    ends in the run, by its place in `transactions`. `end_rows` is the number of rows up to each end of a transaction. A
    connector adds the positions of these ends, and the comparison of positions.
    """

    data: Bytes
    offsets: Int64s
    rows: Int64s
    op: Bytes
    version: Int32s
    by_row: Own
    transactions: Trans
    counts: dict[int, Counts]
    end_rows: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    def size(self, first: int, last: int) -> int:
        """Return the bytes from the first message of rows `[first, last)` to the end of their last message."""
        if first >= last:
            return 0
        return int(self.offsets[self.rows[last - 1] + 1] - self.offsets[self.rows[first]])

    def sizes_between_ends(self) -> Int64s:
        """Return the bytes of the rows before the first of `end_rows`, between each two of them, and after the last."""
        if not len(self):
            return np.zeros(len(self.end_rows) + 1, np.int64)
        first = np.concatenate([[0], self.end_rows])
        last = np.concatenate([self.end_rows, [len(self)]])
        begin = self.offsets[self.rows[np.minimum(first, len(self) - 1)]]
        end = self.offsets[self.rows[last - 1] + 1]
        sizes: Int64s = np.where(last > first, end - begin, 0)
        return sizes

    def without_data(self) -> Self:
        return replace(self, data=np.empty(0, np.uint8))

    def with_data(self, first: int, last: int, read: Callable[[int, int], Bytes]) -> Self:
        """Return the run with the messages of the rows `[first, last)`; messages outside become empty."""
        low, high = int(self.offsets[self.rows[first]]), int(self.offsets[self.rows[last - 1] + 1])
        return replace(self, data=read(low, high), offsets=np.clip(self.offsets, low, high) - low)

    def compacted(self) -> Self:
        """Return the run without the messages that are no rows, if these are most of its bytes."""
        kept = int((self.offsets[self.rows + 1] - self.offsets[self.rows]).sum()) if len(self.rows) else 0
        if 2 * kept >= self.data.nbytes:
            return self
        data, offsets = frames.gather(self.data, self.offsets, self.rows)
        return replace(self, data=data, offsets=offsets, rows=np.arange(len(self.rows), dtype=np.int64))

    def followed(self, other: Self) -> Self:
        """Return this run followed by the messages and rows of `other`. A connector's own fields stay as they are."""
        messages, transactions = len(self.offsets) - 1, len(self.transactions)
        parts = [run.data[run.offsets[0] : run.offsets[-1]] for run in (self, other)]
        starts = self.offsets - self.offsets[0], other.offsets[1:] - other.offsets[0] + parts[0].nbytes
        later = replace(other.by_row, transaction=other.by_row.transaction + np.int32(transactions))
        return replace(
            self,
            data=np.concatenate(parts),
            offsets=np.concatenate(starts),
            rows=np.concatenate([self.rows, other.rows + messages]),
            op=np.concatenate([self.op, other.op]),
            version=np.concatenate([self.version, other.version]),
            by_row=self.by_row.joined([self.by_row, later]),
            transactions=self.transactions.joined([self.transactions, other.transactions]),
            counts=self.counts | {transactions + place: found for place, found in other.counts.items()},
            end_rows=np.concatenate([self.end_rows, other.end_rows + len(self)]),
        )

    def taken(self, first: int, last: int) -> Rows[Self]:
        return Rows(self, first, last)


Run_co = TypeVar("Run_co", bound=RowRun[Any, Any], covariant=True)


@dataclass(slots=True)
class Rows(Generic[Run_co]):
    """Rows `[first, last)` of a run."""

    run: Run_co
    first: int
    last: int


def versions_of(rows: Iterable[Rows[RowRun[Any, Any]]]) -> list[int]:
    """Return the table versions of the rows, in order."""
    found: set[int] = set()
    for part in rows:
        found.update(np.unique(part.run.version[part.first : part.last]).tolist())
    return sorted(number for number in found if number >= 0)


@dataclass(slots=True)
class Segment(Generic[Own, Trans]):
    """Messages of one table at one schema version, in log order.

    `data[offsets[i]:offsets[i + 1]]` is message i, which carries one row, or has the operation t; `offsets` has one
    element more than there are messages. A message that concerns several tables stands in the segment of each of them.
    `place[i]` ascends in log order over all segments of the topic in a batch; None for the only segment of a topic.
    `left_out[i]` is the size of a message whose bytes are not in `data` because it is too large, 0 for other messages;
    None if there is no such message. `superseded` is the number of messages left out because later ones make them
    superfluous.
    """

    table: TableSchema
    data: Bytes
    offsets: Int64s
    by_row: Own
    transactions: Trans
    place: Int64s | None = None
    left_out: Int64s | None = None
    superseded: int = 0

    def __len__(self) -> int:
        return len(self.by_row.ordinal)

    def pieces(self, most: int) -> Iterator[tuple[int, Segment[Own, Trans]]]:
        """Yield segments of at most `most` bytes, or of one message, each with the number of its first message."""
        low = 0
        while low < len(self):
            high = int(np.searchsorted(self.offsets, self.offsets[low] + most, side="right")) - 1
            high = min(max(high, low + 1), len(self))
            yield low, self.cut(low, high)
            low = high

    def without_large(self, most: int) -> Segment[Own, Trans]:
        """Return the segment without the bytes of messages that have more than `most` bytes."""
        offsets = self.offsets
        sizes = np.diff(offsets)
        large = np.flatnonzero(sizes > most)
        if not len(large):
            return self
        starts, ends = np.r_[offsets[0], offsets[large + 1]], np.r_[offsets[large], offsets[-1]]
        kept = [self.data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        left_out = np.zeros(len(sizes), np.int64)
        left_out[large] = sizes[large]
        bounds = np.zeros(len(offsets), np.int64)
        np.cumsum(sizes - left_out, out=bounds[1:])
        return replace(self, data=np.concatenate(kept), offsets=bounds, left_out=left_out)

    def cut(self, low: int, high: int) -> Segment[Own, Trans]:
        """Return the messages `[low, high)` as a segment over the same bytes; its `offsets` may not begin at 0."""
        if low == 0 and high == len(self):
            return self
        by_row = self.by_row.part(slice(low, high))
        of = by_row.transaction
        # transactions are in log order, so neighbouring messages have neighbouring transactions
        first, last = (int(of.min()), int(of.max()) + 1) if high > low else (0, 0)
        by_row.transaction = of - np.int32(first)
        return Segment(
            self.table,
            self.data,
            np.ascontiguousarray(self.offsets[low : high + 1]),
            by_row,
            self.transactions.part(slice(first, last)),
            None if self.place is None else self.place[low:high],
            None if self.left_out is None else self.left_out[low:high],
            0 if low else self.superseded,
        )


@dataclass(slots=True)
class MixedSegment(Generic[Own, Trans]):
    """Messages of many tables, in log order: message i is of the table `tables[table[i]]`.

    It has no truncate, and no message that is too large. It has all of the batch's messages of its topics. The other
    fields have the same meaning as in Segment.
    """

    tables: tuple[TableSchema, ...]
    table: Int32s
    data: Bytes
    offsets: Int64s
    by_row: Own
    transactions: Trans

    def __len__(self) -> int:
        return len(self.by_row.ordinal)


def gathered(parts: Sequence[tuple[RowRun[Own, Trans], Int64s]]) -> tuple[Bytes, Int64s, Own, Trans]:
    """Copy the messages of the given rows together; return their bytes, offsets, arrays by row, and transactions."""
    data, offsets = frames.gather_all([(run.data, run.offsets, run.rows[rows]) for run, rows in parts])
    arrays, pieces, base = [], [], 0
    for run, rows in parts:
        by_row = run.by_row.part(rows)
        # rows are in log order, so the rows of a transaction follow one another
        begins = np.diff(by_row.transaction, prepend=-1) != 0
        used = by_row.transaction[begins]
        by_row.transaction = (np.cumsum(begins) + (base - 1)).astype(np.int32)
        arrays.append(by_row)
        pieces.append(run.transactions.part(used))
        base += len(used)
    transactions = pieces[0] if len(pieces) == 1 else pieces[0].joined(pieces)
    return data, offsets, arrays[0].joined(arrays), transactions
