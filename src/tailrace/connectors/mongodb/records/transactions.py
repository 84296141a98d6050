"""Transaction metadata: the boundaries of transactions, and the numbers of their events. Planner.

The format 3 identifies a transaction by its session and number, and ends it before the next event that is not of the
same transaction. In the format 1.1 every entry of the oplog with a hash is a transaction, and only entries with several
operations have an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tailrace.columns.batch import Boundary, Counts
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Namespace
from tailrace.connectors.mongodb.records.segment import Numbers
from tailrace.connectors.mongodb.records.texts import session_text
from tailrace.connectors.mongodb.values import fields
from tailrace.events.control_records import in_java_order

_BEGINS, _ENDS = 1 << 40, 1 << 41


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction of the latest events, for transaction metadata: its name, and the number of its events in each
    collection."""

    name: str
    counts: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class NumberedChanges:
    """The numbers of changes, the boundaries among them, and the transaction that is still open after them."""

    numbers: list[Numbers] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    open: OpenTransaction | None = None


def numbered(
    rows: Sequence[ChangeArrays],
    names: Sequence[Namespace],
    since: OpenTransaction | None,
    skipped: frozenset[str],
    replica_set: str | None,
) -> NumberedChanges:
    """Number the changes in `rows`, which follow the transaction `since`.

    `skipped` are operations without events. `replica_set` is the replica set's name in the format 1.1, None in the
    format 3.
    """
    counting = _Counting(since)
    codes = {ord(letter) for letter in skipped}
    for part in rows:
        total, table = np.zeros(len(part), np.int64), np.zeros(len(part), np.int64)
        ids = _stream_names(part) if replica_set is None else _oplog_names(part)
        times = _moments(part) if replica_set is None else (part.time >> 32) * 1_000_000
        listed = [".".join(names[number]) for number in part.namespace.tolist()]
        for row, name in enumerate(ids):
            if int(part.op[row]) in codes:
                continue
            at = int(part.time[row]), int(part.number[row]), int(times[row])
            if replica_set is None:
                counting.ends_before(name, at)
            if name is not None:
                counting.begins(name, at)
                label = listed[row] if replica_set is None else f"{replica_set}.{listed[row]}"
                total[row], table[row] = counting.count(label)
            if replica_set is not None and _is_last(part, row):
                counting.end(at)
        counting.done.numbers.append(Numbers(total, table))
    counting.done.open = counting.open()
    return counting.done


class _Counting:
    def __init__(self, since: OpenTransaction | None) -> None:
        self.done = NumberedChanges()
        self._name = None if since is None else since.name
        self._counts = {} if since is None else dict(since.counts)

    def open(self) -> OpenTransaction | None:
        return None if self._name is None else OpenTransaction(self._name, tuple(self._counts.items()))

    def ends_before(self, name: str | None, at: tuple[int, int, int]) -> None:
        if self._name is not None and name != self._name:
            self.end(at, before=True)

    def begins(self, name: str, at: tuple[int, int, int]) -> None:
        if name != self._name:
            self._name, self._counts = name, {}
            self.done.boundaries.append(Boundary(name, 0, at[0], at[2], _BEGINS + at[1], None))

    def count(self, label: str) -> tuple[int, int]:
        self._counts[label] = self._counts.get(label, 0) + 1
        return sum(self._counts.values()), self._counts[label]

    def end(self, at: tuple[int, int, int], *, before: bool = False) -> None:
        if self._name is None:
            return
        counts = tuple((label, self._counts[label]) for label in in_java_order(self._counts))
        listed = Counts(sum(self._counts.values()), counts)
        ordinal = at[1] + (0 if before else _ENDS)
        self.done.boundaries.append(Boundary(self._name, 0, at[0], at[2], ordinal, listed))
        self._name, self._counts = None, {}


def _oplog_names(rows: ChangeArrays) -> list[str | None]:
    assert rows.hash is not None
    assert rows.hashed is not None
    known = zip(rows.hash.tolist(), rows.hashed.tolist(), strict=True)
    return [str(number) if hashed else None for number, hashed in known]


def _is_last(rows: ChangeArrays, row: int) -> bool:
    """Return True for the last captured change of a transaction's entry. Batches never split an entry."""
    assert rows.order is not None
    if not rows.order[row]:
        return False
    return row + 1 == len(rows) or int(rows.time[row + 1]) != int(rows.time[row])


def _stream_names(rows: ChangeArrays) -> list[str | None]:
    places, kinds = fields.locate(rows.data, rows.at, ("lsid", "txnNumber"))
    names: list[str | None] = [None] * len(rows)
    inside = np.flatnonzero((kinds[0] == fields.DOCUMENT) & (places[1] >= 0))
    if not len(inside):
        return names
    sessions = places[0][inside]
    codes, distinct = fields.distinct(rows.data, sessions, fields.sizes_of(rows.data, sessions))
    texts = [session_text(document) for document in distinct]
    numbers = fields.int64s(rows.data, places[1][inside], kinds[1][inside])
    for row, code, number in zip(inside.tolist(), codes.tolist(), numbers.tolist(), strict=True):
        names[row] = f"{texts[code]}:{number}"
    return names


def _moments(rows: ChangeArrays) -> fields.Int64s:
    """Return the times of the events in µs, as their source blocks show them."""
    places, kinds = fields.locate(rows.data, rows.at, ("wallTime",))
    wall = fields.int64s(rows.data, places[0], kinds[0])
    found: fields.Int64s = np.where(kinds[0] == fields.DATE, wall, (rows.time >> 32) * 1000) * 1000
    return found
