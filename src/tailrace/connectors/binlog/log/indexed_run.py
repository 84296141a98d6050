"""Indexed runs of the log, which the spool keeps, and positions in them. Planner."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from tailrace.columns.batch import Boundary, Int64s
from tailrace.connectors.binlog.log.gtids import MariadbGtids, MysqlGtids
from tailrace.connectors.binlog.log.position import (
    BinlogPosition,
    BinlogTransactions,
    ChangeContext,
    ReadingStart,
    RowPlaces,
)
from tailrace.log.rows import segment
from tailrace.log.rows.segment import RowRun

BOUNDARY, SCHEMA_CHANGE = -3, -4
BEGIN, END = ord("B"), ord("E")


MOST_JOINTS = 16
"""The most joints of a run: each holds a set of transactions."""


class Joint(NamedTuple):
    """A joint of two runs, between which lay runs without captured rows.

    `ends` is the number of transaction ends before the joint, and `executed` are the transactions executed up to it.
    `held` is the first transaction that is prepared there.
    """

    ends: int
    executed: MysqlGtids | MariadbGtids
    held: ReadingStart | None


@dataclass(slots=True)
class IndexedRun(RowRun[RowPlaces, BinlogTransactions]):
    """A run of messages, whose rows are the captured changes, and the ends of its transactions.

    - `version[i]` is `SCHEMA_CHANGE` for the record of a statement, and `BOUNDARY` for begins and ends of transactions.
      These are rows if transaction metadata is wanted; their `op` is BEGIN or END.
    - `marks` has an element for each transaction. `ends` are the places of the transactions that end in the run.
    - `end_at` are the positions of the ends in their files, `end_held` the first transaction that is prepared at each.
    - `executed` and `held` are the executed and the first prepared transactions before the run.
    - `server` is the UUID of the log's server.
    - `is_apart` is True if transactions without captured rows may lie between the previous run and this one.
    - `joints` are the places of such transactions within a joined run.
    """

    marks: Int64s
    ends: Int64s
    end_at: Int64s
    end_held: tuple[ReadingStart | None, ...]
    executed: MysqlGtids | MariadbGtids
    held: ReadingStart | None
    server: str
    is_apart: bool = True
    joints: tuple[Joint, ...] = ()

    def _of(self, key: tuple[int, int, int]) -> int:
        """Return the number of transactions before `key`."""
        return bisect_left(range(len(self.transactions)), key, key=self.transactions.key)

    def _rows_before(self, transaction: int) -> int:
        return int(np.searchsorted(self.by_row.transaction, transaction, "left"))

    def _executed(self, count: int, since: Joint) -> str:
        """Return the transactions executed up to the first `count` ends, computed from the joint `since`."""
        found, transactions = since.executed.copy(), self.transactions
        for place in self.ends[since.ends : count].tolist():
            source = int(transactions.source[place])
            if source >= 0:
                found.add(transactions.names[source], int(transactions.number[place]))
        return str(found)

    def _joint(self, most: int) -> Joint:
        """Return the last joint with at most `most` ends before it; the beginning of the run counts as a joint."""
        return next((one for one in reversed(self.joints) if one.ends <= most), Joint(0, self.executed, self.held))

    def _commit(self, place: int) -> BinlogPosition:
        """Return the position after the end at `place` of the `end_*` arrays."""
        of, transactions = int(self.ends[place]), self.transactions
        return BinlogPosition(
            file=transactions.names[transactions.file[of]],
            start=int(transactions.start[of]),
            end=int(self.end_at[place]),
            epoch=int(transactions.epoch[of]),
            gtids=self._executed(place + 1, self._joint(place)),
            server=self.server,
            mark=int(self.marks[of]),
            held=self.end_held[place],
            at_us=int(transactions.commit_us[of]),
        )

    def _inside(self, row: int, at_us: int) -> BinlogPosition:
        of, transactions = int(self.by_row.transaction[row]), self.transactions
        ended = int(np.searchsorted(self.ends, of, "left"))
        since = self._joint(ended)
        return BinlogPosition(
            file=transactions.names[transactions.file[of]],
            start=int(transactions.start[of]),
            consumed=int(self.by_row.ordinal[row]) + 1,
            epoch=int(transactions.epoch[of]),
            gtids=self._executed(ended, since),
            gtid=transactions.gtid(of),
            server=self.server,
            mark=int(self.marks[of]),
            held=self.end_held[ended - 1] if ended > since.ends else since.held,
            at_us=at_us,
        )

    def leads_to(self, before: BinlogPosition) -> BinlogPosition:
        """Return the position at the end of the run, but not less than `before`, to which the log had been read."""
        found = before
        if len(self):
            found = self._inside(len(self) - 1, before.at_us)
        if len(self.ends) and self.transactions.key(int(self.ends[-1])) >= found.key[:3]:
            found = self._commit(len(self.ends) - 1)
        return found if before.is_before(found) else before

    def joined(self, other: IndexedRun) -> IndexedRun | None:
        """Return this run and the following run `other` as one run; None if a transaction is in both, or there would be
        too many joints."""
        if self.server != other.server or len(self.ends) < len(self.transactions):
            return None
        transactions, ends = len(self.transactions), len(self.ends)
        joints = (*((Joint(0, other.executed, other.held),) if other.is_apart else ()), *other.joints)
        if len(self.joints) + len(joints) > MOST_JOINTS:
            return None
        return replace(
            self.followed(other),
            joints=(*self.joints, *(one._replace(ends=one.ends + ends) for one in joints)),
            marks=np.concatenate([self.marks, other.marks]),
            ends=np.concatenate([self.ends, other.ends + transactions]),
            end_at=np.concatenate([self.end_at, other.end_at]),
            end_held=(*self.end_held, *other.end_held),
        )

    def first_after(self, position: BinlogPosition) -> int:
        """Return the index of the first row after `position`."""
        key = position.key[:3]
        of = self._of(key)
        if of == len(self.transactions) or self.transactions.key(of) != key:
            return self._rows_before(of)
        if position.consumed is None:
            return self._rows_before(of + 1)
        low, high = self._rows_before(of), self._rows_before(of + 1)
        return low + int(np.searchsorted(self.by_row.ordinal[low:high], position.consumed, "left"))

    # --- ends of batches, and the bytes that batches need ---------------------------------------------------------

    def _ended(self, upto: BinlogPosition) -> int:
        """Return the number of ends up to the position `upto`."""
        key = upto.key[:3]
        find = bisect_right if upto.consumed is None else bisect_left
        return find(range(len(self.ends)), key, key=lambda place: self.transactions.key(int(self.ends[place])))

    def end(self, start: BinlogPosition, first: int, last: int, upto: BinlogPosition | None) -> BinlogPosition | None:
        """Return the position of the last transaction end within the first `last` rows and up to the position `upto`.

        Returns None if this end belongs neither to a row from `first` on nor to the transaction that `start` is in.
        """
        ends = int(np.searchsorted(self.end_rows, last, "right"))
        if upto is not None:
            ends = min(ends, self._ended(upto))
        if not ends:
            return None
        key = self.transactions.key(int(self.ends[ends - 1]))
        is_inside = start.consumed is not None and key >= start.key[:3]
        return self._commit(ends - 1) if is_inside or int(self.end_rows[ends - 1]) > first else None

    def cut(self, row: int, start: BinlogPosition) -> BinlogPosition:
        """Return the position after `row`, within its transaction."""
        return self._inside(row, start.at_us)

    def is_passed(self, position: BinlogPosition) -> bool:
        """Return True if the run has neither a row after `position` nor the end of the transaction that it is in."""
        if self.first_after(position) < len(self):
            return False
        last = self.transactions.key(int(self.ends[-1])) if len(self.ends) else (-1, -1, -1)
        if position.consumed is not None:
            return last < position.key[:3]
        return len(self) > 0 or last <= position.key[:3]


Rows: TypeAlias = segment.Rows[IndexedRun]


def boundaries(rows: Sequence[Rows]) -> list[Boundary]:
    """Return the begins and ends of transactions among the rows, in log order."""
    found = []
    for part in rows:
        run, transactions = part.run, part.run.transactions
        for row in part.first + np.flatnonzero(run.version[part.first : part.last] == BOUNDARY):
            place = int(run.by_row.transaction[row])
            found.append(
                Boundary(
                    xid=transactions.id(place),
                    lsn=0,
                    commit_lsn=transactions.position(place),
                    commit_us=int(transactions.commit_us[place]),
                    ordinal=int(run.by_row.ordinal[row]),
                    counts=None if run.op[row] == BEGIN else run.counts[place],
                )
            )
    return found


def schema_changes(rows: Sequence[Rows]) -> list[tuple[bytes, ChangeContext]]:
    """Return the records of schema changes among the rows, in log order."""
    found = []
    for part in rows:
        run, transactions = part.run, part.run.transactions
        for row in part.first + np.flatnonzero(run.version[part.first : part.last] == SCHEMA_CHANGE):
            place, message = int(run.by_row.transaction[row]), int(run.rows[row])
            context = ChangeContext(
                file=transactions.names[transactions.file[place]],
                pos=int(run.by_row.pos[row]),
                gtid=transactions.gtid(place),
                server_id=int(transactions.server_id[place]),
                commit_us=int(transactions.commit_us[place]),
                position=transactions.position(place),
                ordinal=int(run.by_row.ordinal[row]),
            )
            found.append((run.data[run.offsets[message] : run.offsets[message + 1]].tobytes(), context))
    return found
