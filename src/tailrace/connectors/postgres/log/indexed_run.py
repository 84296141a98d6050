"""Indexed runs of messages, as the spool keeps them, and positions in them. Planner."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tailrace.columns.batch import Boundary, Int64s, Transactions
from tailrace.connectors.postgres.protocol.position import NOWHERE, LogPosition, RowPositions, sent
from tailrace.log.rows import segment
from tailrace.log.rows.segment import RowRun

BOUNDARY, MESSAGE = -3, -4


@dataclass(slots=True)
class IndexedRun(RowRun[RowPositions, Transactions]):
    """A run of messages, whose rows are the captured changes, and the ends of its transactions.

    A truncate is a row for each of its tables. `version[i]` is `MESSAGE` for a logical message, and `BOUNDARY` for
    Begin and Commit messages, whose `op` is their kind byte. These are rows only with transaction metadata. The `end_*`
    arrays have an item for each commit in the run: the commit's LSN, its end LSN, the end LSN of the last commit up to
    it that was not left out (-1 if there is none), and its time in µs since 1970. A logical message outside of
    transactions counts as a transaction with a commit (see `LogPosition`); its transaction id is 0.
    """

    end_commit: Int64s
    end_end: Int64s
    end_seen: Int64s
    end_us: Int64s

    def _rows_before(self, commit_lsn: int) -> int:
        """Return the number of rows whose commit is before this LSN, by binary search."""
        return bisect_left(self.by_row.transaction, commit_lsn, key=self.transactions.commit_lsn.__getitem__)

    def _commit(self, place: int) -> LogPosition:
        """Return the position after the commit at `place` of the `end_*` arrays."""
        end, seen = int(self.end_end[place]), max(int(self.end_seen[place]), 0)
        return LogPosition(
            int(self.end_commit[place]),
            seen,
            idle_lsn=sent(end) if end > seen else NOWHERE,
            at_us=int(self.end_us[place]),
        )

    def leads_to(self, before: LogPosition) -> LogPosition:
        """Return the position at the end of the run, for a log that had been read to `before`.

        The position is `before` if the run has only messages that were read before, which a new session sends again.
        """
        found = before
        if len(self):
            seen = int(self.end_seen[-1]) if len(self.end_seen) else before.end_lsn
            commit_lsn = int(self.transactions.commit_lsn[self.by_row.transaction[-1]])
            found = LogPosition(commit_lsn, max(seen, 0), int(self.by_row.ordinal[-1]) + 1)
        if len(self.end_commit) and int(self.end_commit[-1]) >= found.commit_lsn:
            found = self._commit(len(self.end_commit) - 1)
        return found if before.is_before(found) else before

    def joined(self, other: IndexedRun) -> IndexedRun:
        """Return this run and `other`, which follows it, as one run."""
        return replace(
            self.followed(other),
            end_commit=np.concatenate([self.end_commit, other.end_commit]),
            end_end=np.concatenate([self.end_end, other.end_end]),
            end_seen=np.concatenate([self.end_seen, other.end_seen]),
            end_us=np.concatenate([self.end_us, other.end_us]),
        )

    def first_after(self, position: LogPosition) -> int:
        """Return the index of the first row after `position`."""
        high = self._rows_before(position.commit_lsn + 1)
        if position.consumed is None:
            return high
        low = self._rows_before(position.commit_lsn)
        return low + int(np.searchsorted(self.by_row.ordinal[low:high], position.consumed, "left"))

    # --- ends of batches, and the bytes that batches need ---------------------------------------------------------

    def end(self, start: LogPosition, first: int, last: int, upto: LogPosition | None) -> LogPosition | None:
        """Return the position of the last commit within the first `last` rows and not after the position `upto`.

        Return None if that commit ends neither a row from `first` on nor the transaction in which `start` lies.
        """
        ends = int(np.searchsorted(self.end_rows, last, "right"))
        if upto is not None:
            ends = min(ends, int(np.searchsorted(self.end_commit, upto.commit_lsn, "right")))
        if not ends:
            return None
        is_inside = start.consumed is not None and int(self.end_commit[ends - 1]) >= start.commit_lsn
        return self._commit(ends - 1) if is_inside or int(self.end_rows[ends - 1]) > first else None

    def cut(self, row: int, start: LogPosition) -> LogPosition:
        """Return the position after `row`, inside its transaction. The slot may only forget what is before the
        transaction.

        The position is after all rows of the same message. For a logical message outside of transactions it is the
        position after its commit.
        """
        of = int(self.by_row.transaction[row])
        ended = int(np.searchsorted(self.end_rows, row + 1))
        is_alone = self.version[row] == MESSAGE and self.transactions.xid[of] == 0
        if is_alone and ended < len(self.end_rows):
            return self._commit(ended)
        previous, safe = int(self.transactions.previous_end[of]), start.safe_lsn
        end = previous if previous > 0 else start.end_lsn
        return LogPosition(
            int(self.transactions.commit_lsn[of]),
            end,
            int(self.by_row.ordinal[row]) + 1,
            # The log may have been read further than the last commit that was not left out.
            idle_lsn=safe if safe > end else NOWHERE,
            at_us=start.at_us,
        )

    def is_passed(self, position: LogPosition) -> bool:
        """Return True if the run has neither a row after `position` nor the end of the transaction in which `position`
        lies."""
        if self.first_after(position) < len(self):
            return False
        ends = self.end_commit
        if position.consumed is not None:
            return not len(ends) or int(ends[-1]) < position.commit_lsn
        return len(self) > 0 or not len(ends) or int(ends[-1]) <= position.commit_lsn


Rows: TypeAlias = segment.Rows[IndexedRun]


def boundaries(rows: Sequence[Rows]) -> list[Boundary]:
    """Return the begins and ends of transactions among the rows, in log order."""
    found = []
    for part in rows:
        run, transactions = part.run, part.run.transactions
        ends = dict(zip(run.end_commit.tolist(), run.end_end.tolist(), strict=True))
        for row in part.first + np.flatnonzero(run.version[part.first : part.last] == BOUNDARY):
            place = int(run.by_row.transaction[row])
            commit_lsn = int(transactions.commit_lsn[place])
            begins = run.op[row] == ord("B")
            found.append(
                Boundary(
                    xid=int(transactions.xid[place]),
                    lsn=int(run.by_row.lsn[row]) if begins else ends[commit_lsn],
                    commit_lsn=commit_lsn,
                    commit_us=int(transactions.commit_us[place]),
                    ordinal=int(run.by_row.ordinal[row]),
                    counts=None if begins else run.counts[place],
                )
            )
    return found
