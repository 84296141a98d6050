"""Transactions that a snapshot shows, and that the log repeats if it begins before the snapshot. Planner."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailrace.columns.batch import Flags, Int64s


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """The transactions that a snapshot shows, by `pg_current_snapshot()`; `before_lsn` is the log's end just after it.

    If the slot is older than the snapshot, the log has these transactions, too, and the reader leaves them out. It
    selects them by transaction id: a transaction's commit record can be in the log before new snapshots show it.
    `tables` are the tables that the snapshot read, as `schema.table`; None: all captured tables. Changes of other
    tables are not left out.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]
    before_lsn: int
    tables: frozenset[str] | None = None

    def __call__(self, xid: int, commit_lsn: int) -> bool:
        """Return True if the snapshot shows the transaction with the 32-bit id `xid`, committed at `commit_lsn`."""
        if commit_lsn >= self.before_lsn:
            return False
        full = (self.xmax & ~0xFFFFFFFF) | xid
        if full > self.xmax + 0x7FFFFFFF:
            full -= 1 << 32
        elif full < self.xmax - 0x7FFFFFFF:
            full += 1 << 32
        return full < self.xmin or (full < self.xmax and full not in self.in_progress)

    def shows(self, xids: Int64s) -> Flags:
        """Return a mask of the transactions that the snapshot shows, by their 32-bit ids, regardless of their LSN."""
        full = (np.int64(self.xmax) & ~np.int64(0xFFFFFFFF)) | xids
        full = np.where(full > self.xmax + 0x7FFFFFFF, full - (1 << 32), full)
        full = np.where(full < self.xmax - 0x7FFFFFFF, full + (1 << 32), full)
        running = np.isin(full, np.array(sorted(self.in_progress), np.int64))
        shown: Flags = (full < self.xmin) | ((full < self.xmax) & ~running)
        return shown

    @classmethod
    def parse(cls, snapshot: str, before_lsn: int = 0) -> VisibleTransactions:
        """Parse the text of a `pg_current_snapshot()`: `xmin:xmax:xip,…`."""
        xmin, xmax, listed = snapshot.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(xid) for xid in listed.split(",") if xid), before_lsn)

    def to_json(self) -> str | dict[str, Any]:
        listed = ",".join(str(xid) for xid in sorted(self.in_progress))
        text = f"{self.xmin}:{self.xmax}:{listed}@{self.before_lsn}"
        return text if self.tables is None else {"tables": sorted(self.tables), "transactions": text}

    @classmethod
    def from_json(cls, fields: str | dict[str, Any]) -> VisibleTransactions:
        text = fields if isinstance(fields, str) else fields["transactions"]
        snapshot, _, before = text.partition("@")
        tables = None if isinstance(fields, str) else frozenset(fields["tables"])
        return replace(cls.parse(snapshot, int(before)), tables=tables)


class UnsettledTransactions:
    """Transactions that have been read from the log and may still be invisible to new snapshots.

    The reader's thread adds transactions, the planner's thread queries them.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._lock = threading.Lock()
        # the number of calls of `clear`
        self._cleared = 0

    def add(self, xids: Int64s, commit_lsn: Int64s) -> None:
        """Add transactions that were read, with their commit LSNs.

        The id 0, of a logical message outside of transactions, is skipped.
        """
        real = xids != 0
        if not real.all():
            xids, commit_lsn = xids[real], commit_lsn[real]
        with self._lock:
            self._parts.append((xids, commit_lsn))

    def hidden(self, visible: VisibleTransactions, upto_lsn: int | None = None) -> int:
        """Return how many transactions that committed up to `upto_lsn` the snapshot does not show.

        The transactions that it shows are forgotten.
        """
        with self._lock:
            parts, self._parts, cleared = self._parts, [], self._cleared
        if not parts:
            return 0
        xids, commits = (np.concatenate(column) for column in zip(*parts, strict=True))
        left = ~visible.shows(xids)
        xids, commits = xids[left], commits[left]
        with self._lock:
            if len(xids) and cleared == self._cleared:
                self._parts.append((xids, commits))
        return len(xids) if upto_lsn is None else int((commits <= upto_lsn).sum())

    def clear(self) -> None:
        """Forget all transactions. After a failover all transactions of the new primary are visible, and other ids are
        reused."""
        with self._lock:
            self._parts.clear()
            self._cleared += 1

    def __len__(self) -> int:
        with self._lock:
            return sum(len(xids) for xids, _ in self._parts)
