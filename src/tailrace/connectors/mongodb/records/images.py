"""Images: the values in the log that an event shows, located without decoding. Worker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.connectors.mongodb.records.segment import OPLOG, READ, Segment
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s


@dataclass(frozen=True, slots=True)
class Values:
    """Values in a buffer: places and BSON types. A place of -1 stands for no value."""

    places: Int64s
    kinds: Bytes

    @classmethod
    def none(cls, count: int) -> Values:
        return cls(np.full(count, -1, np.int64), np.zeros(count, np.uint8))

    def where(self, flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Values:
        """Return the values that `flags` marks, and no value elsewhere."""
        return Values(np.where(flags, self.places, -1), np.where(flags, self.kinds, 0).astype(np.uint8))

    def documents(self) -> Values:
        """Return the values that are documents. A null, the result of looking up a deleted document, counts as no
        value."""
        return self.where(self.kinds == fields.DOCUMENT)

    def part(self, low: int, high: int) -> Values:
        return Values(self.places[low:high], self.kinds[low:high])


@dataclass(frozen=True, slots=True)
class Images:
    """The values that events of a segment show. Only an oplog has `filter` and `patch`, only a stream `before` and the
    fields after it."""

    key: Values
    after: Values
    patch: Values
    filter: Values
    before: Values
    updated: Values
    removed: Values
    truncated: Values
    session: Values
    transaction: Int64s
    has_transaction: np.ndarray[tuple[int], np.dtype[np.bool_]]
    wall_ms: Int64s
    has_wall: np.ndarray[tuple[int], np.dtype[np.bool_]]


_STREAM = (
    "fullDocument", "fullDocumentBeforeChange", "updateDescription", "documentKey", "lsid", "txnNumber", "wallTime",
)  # fmt: skip
_UPDATE = ("updatedFields", "removedFields", "truncatedArrays")


def images(segment: Segment) -> Images:
    """Return the values that the events of a segment show. Raises DecodeError for a malformed document."""
    data, starts, count = segment.data, segment.starts, len(segment)
    none, zeros, never = Values.none(count), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    if segment.kind == READ:
        after = Values(starts, np.full(count, fields.DOCUMENT, np.uint8))
        return Images(
            _ids(data, after), after, none, none, none, none, none, none, none, zeros, never, zeros, never
        )  # fmt: skip
    if segment.kind == OPLOG:
        places, kinds = fields.locate(data, starts, ("o", "o2"))
        first, second = Values(places[0], kinds[0]).documents(), Values(places[1], kinds[1]).documents()
        creates, updates = segment.op == ord("c"), segment.op == ord("u")
        has_second = second.places >= 0
        criteria = Values(
            np.where(has_second, second.places, first.places), np.where(has_second, second.kinds, first.kinds)
        ).where(~creates)
        identity = Values(
            np.where(creates, first.places, criteria.places), np.where(creates, first.kinds, criteria.kinds)
        )
        return Images(
            _ids(data, identity), first.where(creates), first.where(updates), criteria, none, none, none, none, none,
            zeros, never, zeros, never,
        )  # fmt: skip
    places, kinds = fields.locate(data, starts, _STREAM)
    found = [Values(places[row], kinds[row]) for row in range(len(_STREAM))]
    update = found[2].documents()
    inside, inner = fields.locate(data, update.places, _UPDATE)
    return Images(
        key=_ids(data, found[3].documents()),
        after=found[0].documents(),
        patch=none,
        filter=none,
        before=found[1].documents(),
        updated=Values(inside[0], inner[0]),
        removed=Values(inside[1], inner[1]),
        truncated=Values(inside[2], inner[2]),
        session=found[4].documents(),
        transaction=fields.int64s(data, places[5], kinds[5]),
        has_transaction=places[5] >= 0,
        wall_ms=fields.int64s(data, places[6], kinds[6]),
        has_wall=kinds[6] == fields.DATE,
    )


def _ids(data: Bytes, documents: Values) -> Values:
    places, kinds = fields.locate(data, documents.places, ("_id",))
    return Values(places[0], kinds[0])
