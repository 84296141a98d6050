"""Indexed runs of messages, as the spool keeps them, and the rows of a batch in them. Planner."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tailrace.columns.batch import Bytes, Counts, Int32s, Int64s, Transactions
from tailrace.connectors.postgres.log.numbering import Numbers
from tailrace.connectors.postgres.protocol import scan
from tailrace.connectors.postgres.protocol.position import NOWHERE, LogPosition, sent

BOUNDARY, MESSAGE = -3, -4
TRUNCATE = ord("t")


@dataclass(slots=True)
class IndexedRun:
    """A run of messages as they were read, with an index of the captured changes among them (its rows).

    Row i is message `rows[i]`, that is `data[offsets[rows[i]]:offsets[rows[i] + 1]]`; a truncate is a row for each of
    its tables. `op[i]` is the operation (c, u, d or t), `version[i]` the id of its table version: `MESSAGE` for a
    logical message, and `BOUNDARY` for the Begin and Commit messages, which are rows where transaction metadata is
    wanted; `op` has their kind byte. Then `numbers` has the events' numbers, and `counts` the transactions that end in
    the stretch, by their place in `transactions`. The `end_*` arrays describe the commits in the stretch: the number
    of rows up to each, its LSN, its end LSN, the end LSN of the last one up to it that was not left out (-1: none
    was), and its time in µs since 1970. A logical message outside of transactions is a transaction and a commit of its
    own (see `LogPosition`), with the transaction id 0.
    """

    data: Bytes
    offsets: Int64s
    rows: Int64s
    op: Bytes
    version: Int32s
    lsn: Int64s
    transaction: Int32s
    ordinal: Int64s
    transactions: Transactions
    end_rows: Int64s
    end_commit: Int64s
    end_end: Int64s
    end_seen: Int64s
    end_us: Int64s
    numbers: Numbers | None = None
    counts: dict[int, Counts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def _rows_before(self, commit_lsn: int) -> int:
        """Return the number of rows whose commit is before this LSN; a search, since a run may have many rows."""
        return bisect_left(self.transaction, commit_lsn, key=self.transactions.commit_lsn.__getitem__)

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

        It is `before` if the run has only what was read before, as a new session sends it again.
        """
        found = before
        if len(self):
            seen = int(self.end_seen[-1]) if len(self.end_seen) else before.end_lsn
            commit_lsn = int(self.transactions.commit_lsn[self.transaction[-1]])
            found = LogPosition(commit_lsn, max(seen, 0), int(self.ordinal[-1]) + 1)
        if len(self.end_commit) and int(self.end_commit[-1]) >= found.commit_lsn:
            found = self._commit(len(self.end_commit) - 1)
        return found if before.is_before(found) else before

    def size(self, first: int, last: int) -> int:
        """Return the bytes from the first message of rows `[first, last)` to the end of their last message."""
        if first >= last:
            return 0
        return int(self.offsets[self.rows[last - 1] + 1] - self.offsets[self.rows[first]])

    def compacted(self) -> IndexedRun:
        """Return the run without the messages that are no rows, if these are most of its bytes."""
        kept = int((self.offsets[self.rows + 1] - self.offsets[self.rows]).sum()) if len(self.rows) else 0
        if 2 * kept >= self.data.nbytes:
            return self
        data, offsets = scan.gather(self.data, self.offsets, self.rows)
        return replace(
            self,
            data=data,
            offsets=offsets,
            rows=np.arange(len(self.rows), dtype=np.int64),
        )

    def joined(self, other: IndexedRun) -> IndexedRun:
        """Return this run and `other`, which follows it, as one run."""
        messages, transactions = len(self.offsets) - 1, len(self.transactions)
        parts = [stretch.data[stretch.offsets[0] : stretch.offsets[-1]] for stretch in (self, other)]
        starts = self.offsets - self.offsets[0], other.offsets[1:] - other.offsets[0] + parts[0].nbytes
        numbers = None
        if self.numbers is not None and other.numbers is not None:
            numbers = Numbers(
                np.concatenate([self.numbers.total, other.numbers.total]),
                np.concatenate([self.numbers.table, other.numbers.table]),
            )
        return IndexedRun(
            data=np.concatenate(parts),
            offsets=np.concatenate(starts),
            rows=np.concatenate([self.rows, other.rows + messages]),
            op=np.concatenate([self.op, other.op]),
            version=np.concatenate([self.version, other.version]),
            lsn=np.concatenate([self.lsn, other.lsn]),
            transaction=np.concatenate([self.transaction, other.transaction + np.int32(transactions)]),
            ordinal=np.concatenate([self.ordinal, other.ordinal]),
            transactions=Transactions.joined([self.transactions, other.transactions]),
            end_rows=np.concatenate([self.end_rows, other.end_rows + len(self)]),
            end_commit=np.concatenate([self.end_commit, other.end_commit]),
            end_end=np.concatenate([self.end_end, other.end_end]),
            end_seen=np.concatenate([self.end_seen, other.end_seen]),
            end_us=np.concatenate([self.end_us, other.end_us]),
            numbers=numbers,
            counts=self.counts | {transactions + place: found for place, found in other.counts.items()},
        )

    def first_after(self, position: LogPosition) -> int:
        """Return the index of the first row after `position`."""
        high = self.rows_upto(position.commit_lsn)
        if position.consumed is None:
            return high
        low = self._rows_before(position.commit_lsn)
        return low + int(np.searchsorted(self.ordinal[low:high], position.consumed, "left"))

    # --- ends of batches, and the bytes that batches need ---------------------------------------------------------

    def rows_upto(self, upto: int) -> int:
        """Return the number of rows of transactions that commit up to the LSN `upto`."""
        return self._rows_before(upto + 1)

    def sizes(self, first: int, last: int) -> Int64s:
        """Return for each of the rows `[first, last)` the bytes from row `first`'s message to its own message's end."""
        found: Int64s = self.offsets[self.rows[first:last] + 1] - self.offsets[self.rows[first]]
        return found

    def end(self, start: LogPosition, first: int, last: int, upto: int | None) -> LogPosition | None:
        """Return the position of the last commit within the first `last` rows, and up to the LSN `upto`.

        None if that commit ends neither a row from `first` on nor the transaction that `start` is inside of.
        """
        ends = int(np.searchsorted(self.end_rows, last, "right"))
        if upto is not None:
            ends = min(ends, int(np.searchsorted(self.end_commit, upto, "right")))
        if not ends:
            return None
        is_inside = start.consumed is not None and int(self.end_commit[ends - 1]) >= start.commit_lsn
        return self._commit(ends - 1) if is_inside or int(self.end_rows[ends - 1]) > first else None

    def cut(self, row: int, start: LogPosition) -> LogPosition:
        """Return the position after `row`, inside its transaction: the slot may only forget what is before that.

        All rows of a message stand before it. A row that is a whole transaction (a message outside of one) has nothing
        to be inside of.
        """
        of = int(self.transaction[row])
        ended = int(np.searchsorted(self.end_rows, row + 1))
        is_alone = self.version[row] == MESSAGE and self.transactions.xid[of] == 0
        if is_alone and ended < len(self.end_rows):
            return self._commit(ended)
        previous, safe = int(self.transactions.previous_end[of]), start.safe_lsn
        end = previous if previous > 0 else start.end_lsn
        return LogPosition(
            int(self.transactions.commit_lsn[of]),
            end,
            int(self.ordinal[row]) + 1,
            # The log may have been read further than the last commit that was not left out.
            idle_lsn=safe if safe > end else NOWHERE,
            at_us=start.at_us,
        )

    def is_passed(self, position: LogPosition) -> bool:
        """Return True if the run has no row after `position`, nor the end of the transaction that it is inside of."""
        if self.first_after(position) < len(self):
            return False
        ends = self.end_commit
        if position.consumed is not None:
            return not len(ends) or int(ends[-1]) < position.commit_lsn
        return len(self) > 0 or not len(ends) or int(ends[-1]) <= position.commit_lsn

    def extent(self, first: int, last: int) -> tuple[int, int]:
        """Return where in `data` the messages of the rows `[first, last)` begin and end."""
        return int(self.offsets[self.rows[first]]), int(self.offsets[self.rows[last - 1] + 1])

    def without_data(self) -> IndexedRun:
        return replace(self, data=np.empty(0, np.uint8))

    def with_data(self, data: Bytes, low: int, high: int) -> IndexedRun:
        """Return the run with `data`, the bytes `[low, high)` of its messages; messages outside become empty."""
        return replace(self, data=data, offsets=np.clip(self.offsets, low, high) - low)

    def taken(self, first: int, last: int) -> Rows:
        return Rows(self, first, last)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `[first, last)` of an indexed run."""

    stretch: IndexedRun
    first: int
    last: int


def versions_of(rows: Iterable[Rows]) -> list[int]:
    """Return the table versions of the rows, in order."""
    found: set[int] = set()
    for part in rows:
        found.update(np.unique(part.stretch.version[part.first : part.last]).tolist())
    return sorted(number for number in found if number >= 0)
