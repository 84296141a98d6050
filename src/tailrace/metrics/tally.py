"""Tally: the numbers of tasks, by table. Worker; the planner adds up the tallies of committed batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailrace.columns.batch import ChangeBatch, Image

OPS = ("c", "u", "d", "r", "t", "superseded")
"""Kinds of changes, in the order of a table's counts. `superseded`: changes that were left out because only the last
change of each key was wanted."""

OTHER = "other"
"""The name that stands for all tables beyond MOST_TABLES."""

MOST_TABLES = 10_000
"""The largest number of tables with numbers of their own. It bounds the memory."""

_KINDS = len(OPS)
_PLACES = np.zeros(256, np.int64)
_PLACES[[ord(op) for op in OPS[:-1]]] = range(_KINDS - 1)

_SUMS = ("reselected", "unavailable", "sizes")
_BY_TABLE = ("quarantined", *_SUMS)


class Tally:
    """Counts since the last `clear`.

    By table: `events` has the number of changes of each kind, in the order of OPS; `quarantined` the number of
    quarantined changes by reason; `reselected` the number of values read again; `unavailable` the number of values that
    the log did not carry; `sizes` the bytes of the values that it carried.

    `bytes` counts bytes of records. `oldest_us` and `newest_us` are times of commits, in µs since 1970; 0 without
    changes.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Set every number to 0."""
        self.events: dict[str, list[int]] = {}
        self.quarantined: dict[str, dict[str, int]] = {}
        self.reselected: dict[str, int] = {}
        self.unavailable: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.bytes = 0
        self.oldest_us = 0
        self.newest_us = 0

    def count(self, table: str, op: npt.NDArray[np.uint8], superseded: int = 0) -> None:
        """Count the changes of one table; `op` has their ASCII codes."""
        found = np.bincount(_PLACES[op], minlength=_KINDS).tolist()
        found[-1] += superseded
        self._add(self.events, table, found)

    def count_tables(
        self,
        tables: Sequence[str],
        of: npt.NDArray[np.int32],
        op: npt.NDArray[np.uint8],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        """Count changes of several tables: change i is of `tables[of[i]]`, and its values have `sizes[i]` bytes."""
        sums = np.bincount(of, weights=sizes, minlength=len(tables))
        for table, size in zip(tables, sums.tolist(), strict=True):
            self.count_bytes(table, int(size))
        found = np.bincount(of.astype(np.int64) * _KINDS + _PLACES[op], minlength=len(tables) * _KINDS)
        for table, counts in zip(tables, found.reshape(-1, _KINDS).tolist(), strict=True):
            self._add(self.events, table, counts)

    def count_bytes(self, table: str, size: int) -> None:
        """Count bytes of values of a table."""
        self._one(self.sizes, table, size)

    def count_batch(self, batch: ChangeBatch) -> None:
        """Count the changes of a batch of one table, its reselected and unavailable values; note its times."""
        table = str(batch.table.id)
        self.count(table, batch.op, batch.superseded)
        self.count_times(batch)
        unavailable = sum(map(_unavailable, filter(None, (batch.before, batch.after))))
        if unavailable:
            self._one(self.unavailable, table, unavailable)
        if batch.reselected is not None:
            self._one(self.reselected, table, int(batch.reselected[batch.reselected > 0].sum()))

    def count_times(self, batch: ChangeBatch) -> None:
        """Note the times of the first and the last change of the log; rows of a snapshot have none."""
        if len(batch) and batch.op[0] != ord("r"):
            commit_us, transaction = batch.transactions.commit_us, batch.transaction
            self.note_times(int(commit_us[transaction[0]]), int(commit_us[transaction[-1]]))

    def note_times(self, oldest_us: int, newest_us: int) -> None:
        """Note times of commits, in µs since 1970; 0 is unknown."""
        if oldest_us > 0:
            self.oldest_us = min(self.oldest_us or oldest_us, oldest_us)
        self.newest_us = max(self.newest_us, newest_us)

    def quarantine(self, table: str, reason: str) -> None:
        """Count one quarantined change."""
        kinds = self.quarantined.setdefault(self._known(self.quarantined, table), {})
        kinds[reason] = kinds.get(reason, 0) + 1

    def merge(self, found: Mapping[str, Any]) -> None:
        """Add the numbers of another tally, as its `to_json` returned them."""
        for table, counts in found["events"].items():
            self._add(self.events, table, counts)
        for table, kinds in found["quarantined"].items():
            total = self.quarantined.setdefault(self._known(self.quarantined, table), {})
            for kind, count in kinds.items():
                total[kind] = total.get(kind, 0) + count
        for name in _SUMS:
            for table, count in found[name].items():
                self._one(getattr(self, name), table, count)
        self.bytes += found["bytes"]
        self.note_times(found["oldest_us"], found["newest_us"])

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as an object for `merge`."""
        return {
            "events": self.events,
            **{name: getattr(self, name) for name in _BY_TABLE},
            "bytes": self.bytes,
            "oldest_us": self.oldest_us,
            "newest_us": self.newest_us,
        }

    def _add(self, into: dict[str, list[int]], table: str, counts: list[int]) -> None:
        known = self._known(into, table)
        before = into.get(known)
        into[known] = counts if before is None else [a + b for a, b in zip(before, counts, strict=True)]

    def _one(self, into: dict[str, int], table: str, count: int) -> None:
        known = self._known(into, table)
        into[known] = into.get(known, 0) + count

    @staticmethod
    def _known(into: Mapping[str, Any], table: str) -> str:
        return table if table in into or len(into) < MOST_TABLES else OTHER


def _unavailable(image: Image) -> int:
    return sum(int(np.count_nonzero(flags)) for flags in image.unavailable if flags is not None)


@dataclass(slots=True)
class SinkCounts:
    """Counts of a sink with a single writer since the start: `retries` are waits before another try, `refused` are
    records that the destination refuses. `is_waiting` is True from a failed try until records are delivered again.
    Driver."""

    sink: str
    retries: int = 0
    refused: int = 0
    is_waiting: bool = False


TALLY = Tally()
"""The tally of this process. A worker runs one task at a time, and clears the tally before each."""
