"""Segment: changes or documents of one collection, the input of a task. Picklable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Flags, Namespace
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.log.rows.segment import Arrays

OPLOG, STREAM, READ = "oplog", "stream", "read"


@dataclass(frozen=True, slots=True)
class Segment(Arrays):
    """Changes of `namespace` in the order of the log; `starts[i]` is the place of document i in `data`.

    `kind` is OPLOG for entries or operations within them, STREAM for change events, READ for documents of a snapshot.
    `time`, `number`, `op`, `hash`, `hashed` and `order` are as in `ChangeArrays`. For READ `time` is the position of
    the snapshot, and `markers` are codes of `Marker`. `read_ns` is the time at which the documents were read, in ns
    since 1970 (0: the source block shows `time`). With transaction metadata `total_order` and `table_order` are the
    numbers of events in their transactions, 0 outside of one.
    """

    WHOLE = frozenset({"namespace", "kind", "data", "read_ns", "warnings"})

    namespace: Namespace
    kind: str
    data: Bytes
    starts: Int64s
    time: Int64s
    number: Int64s
    op: Bytes
    hash: Int64s | None = None
    hashed: Flags | None = None
    order: Int64s | None = None
    markers: Bytes | None = None
    read_ns: int = 0
    total_order: Int64s | None = None
    table_order: Int64s | None = None
    warnings: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def sizes(self) -> Int64s:
        """Return the sizes of the documents in bytes."""
        found: Int64s = fields.sizes_of(self.data, self.starts)
        return found


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of changes in their transactions, in total and by collection; 0 outside of transactions."""

    total: Int64s
    table: Int64s


def segments(
    rows: Sequence[ChangeArrays],
    names: Sequence[Namespace],
    kind: str,
    numbers: Sequence[Numbers] | None = None,
) -> dict[Namespace, list[Segment]]:
    """Return the changes by collection, in the order of the log, each segment with a separate buffer."""
    found: dict[Namespace, list[Segment]] = {}
    for place, part in enumerate(rows):
        for number in np.unique(part.namespace).tolist():
            which = np.flatnonzero(part.namespace == number)
            own = part.part(which)
            data, offsets = fields.gathered(own.data, own.at)
            found.setdefault(names[number], []).append(
                Segment(
                    names[number],
                    kind,
                    data,
                    offsets[:-1],
                    own.time,
                    own.number,
                    own.op,
                    own.hash,
                    own.hashed,
                    own.order,
                    total_order=None if numbers is None else numbers[place].total[which],
                    table_order=None if numbers is None else numbers[place].table[which],
                )
            )
    return found


def selected(segment: Segment, which: Int64s) -> Segment:
    """Return the changes `which` of a segment, with a new buffer."""
    data, offsets = fields.gathered(segment.data, segment.starts[which])
    return replace(segment.part(which), data=data, starts=offsets[:-1], warnings=[])


def cut(segment: Segment, low: int, high: int) -> Segment:
    """Return the changes `[low, high)`, over the same buffer."""
    whole = low == 0 and high == len(segment)
    return segment if whole else replace(segment.part(slice(low, high)), warnings=[])


def read_documents(
    namespace: Namespace,
    data: Bytes,
    starts: Int64s,
    time: int,
    first: int,
    *,
    hash_: int | None = None,
    read_ns: int = 0,
    marker: Marker = Marker.TRUE,
) -> Segment:
    """Return documents of a snapshot at the position `time`; `first` is the number of the first document."""
    count = len(starts)
    return Segment(
        namespace,
        READ,
        data,
        starts,
        np.full(count, time, np.int64),
        np.arange(first, first + count, dtype=np.int64),
        np.full(count, ord("r"), np.uint8),
        np.full(count, hash_ or 0, np.int64),
        np.full(count, hash_ is not None, np.bool_),
        np.zeros(count, np.int64),
        np.full(count, int(marker), np.uint8),
        read_ns,
    )
