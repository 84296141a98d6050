"""Which transactions a snapshot shows: a log that begins before it holds them too. Planner."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tailrace.columns.batch import Flags, Int64s


@dataclass(frozen=True, slots=True)
class Visible:
    """The transactions that a snapshot shows, by `pg_current_snapshot()`; `before_lsn`: the log's end just after.

    The log holds them too when the slot is older than the snapshot: they are left out there, by id, because a
    transaction's commit record can be in the log before new snapshots show it. `tables` are those that were read, as
    `schema.table`, None for all that are captured: changes of the others are not left out.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]
    before_lsn: int
    tables: frozenset[str] | None = None

    def __call__(self, xid: int, commit_lsn: int) -> bool:
        """Whether the transaction with the 32-bit id `xid` that committed at `commit_lsn` is shown."""
        if commit_lsn >= self.before_lsn:
            return False
        full = (self.xmax & ~0xFFFFFFFF) | xid
        if full > self.xmax + 0x7FFFFFFF:
            full -= 1 << 32
        elif full < self.xmax - 0x7FFFFFFF:
            full += 1 << 32
        return full < self.xmin or (full < self.xmax and full not in self.in_progress)

    def shows(self, xids: Int64s) -> Flags:
        """Which of the 32-bit ids `xids` belong to transactions that are shown, whatever their place in the log."""
        full = (np.int64(self.xmax) & ~np.int64(0xFFFFFFFF)) | xids
        full = np.where(full > self.xmax + 0x7FFFFFFF, full - (1 << 32), full)
        full = np.where(full < self.xmax - 0x7FFFFFFF, full + (1 << 32), full)
        running = np.isin(full, np.array(sorted(self.in_progress), np.int64))
        shown: Flags = (full < self.xmin) | ((full < self.xmax) & ~running)
        return shown

    @classmethod
    def parse(cls, snapshot: str, before_lsn: int = 0) -> Visible:
        """What `pg_current_snapshot()` says: `xmin:xmax:xip,…`."""
        xmin, xmax, listed = snapshot.split(":")
        return cls(int(xmin), int(xmax), frozenset(int(xid) for xid in listed.split(",") if xid), before_lsn)

    def to_json(self) -> str | dict[str, Any]:
        listed = ",".join(str(xid) for xid in sorted(self.in_progress))
        text = f"{self.xmin}:{self.xmax}:{listed}@{self.before_lsn}"
        return text if self.tables is None else {"tables": sorted(self.tables), "transactions": text}

    @classmethod
    def from_json(cls, fields: str | dict[str, Any]) -> Visible:
        text = fields if isinstance(fields, str) else fields["transactions"]
        snapshot, _, before = text.partition("@")
        tables = None if isinstance(fields, str) else frozenset(fields["tables"])
        return replace(cls.parse(snapshot, int(before)), tables=tables)


class Streamed:
    """The transactions that have been read from the log and may be invisible to new snapshots still.

    The reader's thread adds, the planner asks.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._lock = threading.Lock()
        # how often all of them were forgotten
        self._cleared = 0

    def add(self, xids: Int64s, commit_lsn: Int64s) -> None:
        """Transactions that were read, and where they committed; 0 stands for none, as a message alone has."""
        real = xids != 0
        if not real.all():
            xids, commit_lsn = xids[real], commit_lsn[real]
        with self._lock:
            self._parts.append((xids, commit_lsn))

    def hidden(self, visible: Visible, upto_lsn: int | None = None) -> int:
        """How many of those that committed up to `upto_lsn` the snapshot does not show; the others are forgotten."""
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
        """Forget all of them: a standby that has taken over shows what it has, and gives the ids of the others anew."""
        with self._lock:
            self._parts.clear()
            self._cleared += 1

    def __len__(self) -> int:
        with self._lock:
            return sum(len(xids) for xids, _ in self._parts)
