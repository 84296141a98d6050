"""The entries of the oplog, and the operations in entries of transactions. Planner, the reader's thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.connectors.mongodb.log.indexed_run import Flags
from tailrace.connectors.mongodb.server.raw import CursorBatch
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import DecodeError
from tailrace.kernels.buffers import readonly

_ENTRY = ("ts", "op", "ns", "o", "h", "fromMigrate", "t", "prevOpTime", "multiOpType")
_COMMAND = ("applyOps", "partialTxn", "prepare", "commitTransaction")
_OPS = np.zeros(256, np.uint8)
for _letter, _code in (("i", "c"), ("u", "u"), ("d", "d")):
    _OPS[ord(_letter)] = ord(_code)
_COMMAND_OP = ord("c")
# The multiOpType of a statement of retryable writes: it has a prevOpTime, but is not part of a transaction.
_BY_ITSELF = 1
_MOST_NESTED = 16


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of an answer, and the places of their fields in `data`."""

    data: Bytes
    starts: Int64s
    time: Int64s
    op: Bytes
    is_change: Flags
    is_command: Flags
    hashes: Int64s
    hashed: Flags
    terms: Int64s
    object: Int64s
    object_kind: Bytes
    previous: Int64s
    previous_kind: Bytes


def located(answer: CursorBatch) -> Entries:
    """Return the entries of an answer. Raises DecodeError."""
    data, starts = answer.data, answer.starts
    places, kinds = fields.locate(data, starts, _ENTRY)
    if (kinds[0] != fields.TIMESTAMP).any() or (kinds[1] != fields.STRING).any():
        raise DecodeError("An entry of the oplog has no ts or no op.", int(starts[0]))
    # the first letter of an empty text is its zero byte
    letters = data[places[1] + 4]
    op = _OPS[letters]
    # documents that a chunk migration moves between shards are not changed
    own = places[5] < 0
    return Entries(
        data=data,
        starts=starts,
        time=fields.int64s(data, places[0], kinds[0]),
        op=op,
        is_change=(op != 0) & own & (kinds[2] == fields.STRING),
        is_command=(letters == _COMMAND_OP) & own,
        hashes=fields.int64s(data, places[4], kinds[4]),
        hashed=places[4] >= 0,
        terms=np.where(places[6] >= 0, fields.int64s(data, places[6], kinds[6]), -1),
        object=places[3],
        object_kind=kinds[3],
        previous=places[7],
        previous_kind=np.where(fields.int64s(data, places[8], kinds[8]) == _BY_ITSELF, fields.ABSENT, kinds[7]),
    )


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations in the `applyOps` array at the place `array` of a buffer; none if `array` is None."""

    data: Bytes
    array: int | None

    def add_to(self, rows: Parts, entry: int, order: int) -> int:
        """Add the operations, numbered from `order` in their transaction. Return the number after the last."""
        if self.array is None:
            return order
        at, op, count = _operations(self.data, self.array, 0)
        rows.add(self.data, entry, at, op, order)
        return order + count


def command_of(entries: Entries, command: int) -> Operations | None:
    """Return the operations in the command itself if it makes a transaction visible; None if it does not."""
    if entries.object_kind[command] != fields.DOCUMENT:
        return None
    data = entries.data
    inside, inner = fields.locate(data, entries.object[command : command + 1], _COMMAND)
    applies = inner[0, 0] == fields.ARRAY
    if not (applies or inside[3, 0] >= 0) or any(flags(data, inside[1:3], inner[1:3])):
        return None
    return Operations(data, int(inside[0, 0]) if applies else None)


def flags(data: Bytes, places: Int64s, kinds: Bytes) -> list[bool]:
    """Return a flag for each field: True if the field is present and true."""
    return [
        place >= 0 and _is_true(data, int(place), int(kind)) for (place,), (kind,) in zip(places, kinds, strict=True)
    ]


class Parts:
    """Changes collected entry by entry: first the changes in the answer itself, then the operations of transactions."""

    def __init__(self, data: Bytes, entry: Int64s, at: Int64s, op: Bytes, order: Int64s) -> None:
        self.data, self.entry, self.at, self.op, self.order = data, entry, at, op, order
        self._more: list[tuple[Bytes, Int64s, Int64s, Bytes, Int64s]] = []

    @classmethod
    def empty(cls, data: Bytes) -> Parts:
        """Return an object with no changes yet."""
        none = np.empty(0, np.int64)
        return cls(data[:0], none, none, np.empty(0, np.uint8), none)

    def add(self, data: Bytes, entry: int, at: Int64s, op: Bytes, order: int) -> None:
        """Add operations of a transaction. A place of -1 stands for an operation that is not a change, but counts in
        the order."""
        orders = np.arange(order, order + len(at), dtype=np.int64)
        kept = at >= 0
        self._more.append((data, np.full(int(kept.sum()), entry), at[kept], op[kept], orders[kept]))

    def joined(self, below: int) -> Parts:
        """Return the changes of entries before `below`, in the order of entries, over one buffer."""
        if not self._more:
            kept = slice(0, int(np.searchsorted(self.entry, below)))
            return Parts(self.data, self.entry[kept], self.at[kept], self.op[kept], self.order[kept])
        buffers: list[Bytes] = [self.data]
        places: dict[int, int] = {id(self.data): 0}
        size = len(self.data)
        for data, *_ in self._more:
            if id(data) not in places:
                places[id(data)] = size
                buffers.append(data)
                size += len(data)
        parts = [(self.data, self.entry, self.at, self.op, self.order), *self._more]
        entry = np.concatenate([part[1] for part in parts])
        at = np.concatenate([part[2] + places[id(part[0])] for part in parts])
        op, order = (np.concatenate([part[which] for part in parts]) for which in (3, 4))
        sorting = np.argsort(entry, kind="stable")
        sorting = sorting[: int(np.searchsorted(entry[sorting], below))]
        data = buffers[0] if len(buffers) == 1 else readonly(np.concatenate(buffers))
        return Parts(data, entry[sorting], at[sorting], op[sorting], order[sorting])


def _operations(data: Bytes, array: int, depth: int) -> tuple[Int64s, Bytes, int]:
    """Return the changes in an `applyOps` array: places (-1: not a change), codes, and the number of operations."""
    at, types = fields.elements(data, array)
    at = at[types == fields.DOCUMENT]
    places, kinds = fields.locate(data, at, ("op", "o", "ns"))
    letters = np.where(kinds[0] == fields.STRING, data[np.minimum(places[0] + 4, len(data) - 1)], 0)
    op = np.where(kinds[2] == fields.STRING, _OPS[letters], 0).astype(np.uint8)
    nested = np.flatnonzero((letters == _COMMAND_OP) & (kinds[1] == fields.DOCUMENT))
    found = np.where(op != 0, at, -1)
    if not len(nested) or depth > _MOST_NESTED:
        return found, op, len(at)
    pieces, codes, last = [], [], 0
    for place in nested.tolist():
        inside, inner = fields.locate(data, places[1, place : place + 1], ("applyOps",))
        if inner[0, 0] != fields.ARRAY:
            continue
        below, ops, _ = _operations(data, int(inside[0, 0]), depth + 1)
        pieces += [found[last:place], below]
        codes += [op[last:place], ops]
        last = place + 1
    joined = np.concatenate([*pieces, found[last:]])
    return joined, np.concatenate([*codes, op[last:]]), len(joined)


def _is_true(data: Bytes, place: int, kind: int) -> bool:
    return bool(data[place]) if kind == fields.BOOLEAN else True
