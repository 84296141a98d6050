"""IndexedRun: the captured changes in one answer of the server. Planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.log.position import ChangePosition, Read
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.kernels.buffers import readonly
from tailrace.log import contracts
from tailrace.log.rows.segment import Arrays

Int32s = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Namespace = tuple[str, str]
"""Database and collection."""


@dataclass(frozen=True, slots=True)
class ChangeArrays(Arrays):
    """Changes in the order of the log: `data[at[i]:]` is the document of change i.

    The document is an entry of the oplog, an operation of a transaction within an entry, or a change event. `time` and
    `number` are its position, `op` the ASCII codes of c, u and d, `namespace` an index into the feed's list of
    namespaces. In an oplog `hash` is the entry's `h`, valid if `hashed`; `order` is the place in the transaction, from
    1, or 0 outside of one; `term` is the term of the primary that wrote the entry, -1 if unknown.
    """

    WHOLE = frozenset({"data"})

    data: Bytes
    at: Int64s
    time: Int64s
    number: Int64s
    op: Bytes
    namespace: Int32s
    hash: Int64s | None = None
    hashed: Flags | None = None
    order: Int64s | None = None
    term: Int64s | None = None

    def __len__(self) -> int:
        return len(self.at)

    def compacted(self) -> ChangeArrays:
        """Return a copy over a buffer that holds nothing else."""
        data, offsets = fields.gathered(self.data, self.at)
        return replace(self, data=data, at=offsets[:-1])

    def first_after(self, position: ChangePosition) -> int:
        """Return the index of the first change after `position`."""
        low = int(self.time.searchsorted(position.time, side="left"))
        high = int(self.time.searchsorted(position.time, side="right"))
        return low + int(self.number[low:high].searchsorted(position.number, side="right"))


@dataclass(frozen=True, slots=True)
class IndexedRun(contracts.IndexedRun[ChangePosition, ChangeArrays]):
    """The captured `rows` of an answer, and `reached`, the position after everything in the answer.

    `tokens` are the places of the rows' resume tokens in `token_data`; None for an oplog. `token_data` is the rows'
    data unless the latter is on disk. `read_bytes` is the size of the answer. `bounds` are the cumulative sizes of the
    rows in bytes.
    """

    rows: ChangeArrays
    reached: Read
    tokens: Int64s | None
    read_bytes: int
    bounds: Int64s
    token_data: Bytes

    @classmethod
    def of(cls, rows: ChangeArrays, reached: Read, tokens: Int64s | None, read_bytes: int) -> IndexedRun:
        bounds = np.cumsum(fields.sizes_of(rows.data, rows.at))
        return cls(rows, reached, tokens, read_bytes, bounds, rows.data)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def data(self) -> Bytes:
        return self.rows.data

    def first_after(self, position: ChangePosition) -> int:
        return self.rows.first_after(position)

    def position(self, row: int) -> Read:
        """Return the position after the change `row`."""
        rows = self.rows
        if self.tokens is not None:
            token = encoded(self.token_data, int(self.tokens[row]))
            return Read(ChangePosition(int(rows.time[row]), int(rows.number[row]), token))
        known = rows.hash is not None and rows.hashed is not None and bool(rows.hashed[row])
        number = int(rows.hash[row]) if known and rows.hash is not None else None
        term = -1 if rows.term is None else int(rows.term[row])
        return Read(
            ChangePosition(int(rows.time[row]), int(rows.number[row]), hash=number, term=None if term < 0 else term)
        )

    def size(self, first: int, last: int) -> int:
        return int(self.bounds[last - 1] - self._before(first)) if first < last else 0

    def _before(self, row: int) -> int:
        return int(self.bounds[row - 1]) if row else 0

    def cut(self, row: int, start: ChangePosition) -> ChangePosition:
        return self.position(row)

    def leads_to(self, before: ChangePosition) -> ChangePosition:
        return self.reached if before.is_before(self.reached) else before

    def without_data(self) -> IndexedRun:
        """Return a copy without the documents. The copy keeps the resume tokens, which are part of positions."""
        nothing = readonly(np.empty(0, np.uint8))
        tokens, token_data = self.tokens, nothing
        if tokens is not None:
            token_data, offsets = fields.gathered(self.token_data, tokens)
            tokens = offsets[:-1]
        return replace(self, rows=replace(self.rows, data=nothing), tokens=tokens, token_data=token_data)

    def with_data(self, first: int, last: int, read: Callable[[int, int], Bytes]) -> IndexedRun:
        """Return a copy with the documents of the rows `[first, last)`."""
        at = self.rows.at[first:last]
        ends = at + self.bounds[first:last] - np.concatenate([[self._before(first)], self.bounds[first : last - 1]])
        low = int(at.min())
        data = read(low, int(ends.max()))
        return replace(self, rows=replace(self.rows, data=readonly(data), at=self.rows.at - low))

    def taken(self, first: int, last: int) -> ChangeArrays:
        return self.rows.part(slice(first, last))


def encoded(data: Bytes, at: int) -> str:
    """Return the resume token at `at` in base64."""
    import base64

    return base64.b64encode(data[at : at + int(fields.load(data, at))].tobytes()).decode()


def numbered(time: Int64s, last_time: int, last_number: int) -> Int64s:
    """Return the numbers of changes with the timestamps `time`, which follow the change `(last_time, last_number)`."""
    count = len(time)
    if not count:
        return np.empty(0, np.int64)
    places = np.arange(count, dtype=np.int64)
    begins = np.zeros(count, np.int64)
    begins[1:] = np.where(time[1:] != time[:-1], places[1:], 0)
    begins = np.maximum.accumulate(begins)
    number: Int64s = places - begins + 1
    if int(time[0]) == last_time:
        number[begins == 0] += last_number
    return number
