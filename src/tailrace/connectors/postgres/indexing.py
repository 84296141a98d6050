"""The planner's view of raw pgoutput: which message belongs to which transaction, table version and position.

No tuple is decoded here. What is found is what batches are cut by and segments are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Counts, Int32s, Int64s, Transactions
from tailrace.connectors.postgres import pgoutput, scan
from tailrace.connectors.postgres.numbering import Numbering, Numbers
from tailrace.connectors.postgres.position import LogPosition
from tailrace.errors import DecodeError

# PostgreSQL counts from 2000-01-01, in µs.
EPOCH_US = 946_684_800_000_000

_BEGIN, _COMMIT, _RELATION = ord("B"), ord("C"), ord("R")
_INSERT, _UPDATE, _DELETE, _TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")
_IS_CHANGE = np.zeros(256, np.bool_)
_IS_CHANGE[[_INSERT, _UPDATE, _DELETE, _TRUNCATE]] = True

UNCAPTURED, SEVERAL, BOUNDARY = -1, -2, -3


@dataclass(slots=True)
class Chunk:
    """A run of messages as they were read, with the captured changes among them (its rows) indexed.

    Row i is message `rows[i]`, that is `data[offsets[rows[i]]:offsets[rows[i] + 1]]`; `version[i]` is the id of its
    table version, `SEVERAL` for a truncate, whose versions `truncated` holds by message, and `BOUNDARY` for the Begin
    and Commit messages, which are rows where transaction metadata is wanted. Then `numbers` has the events' numbers,
    and `counts` the transactions that end in the chunk, by their place in `transactions`. The `end_*` arrays describe
    the commits in the chunk: the number of rows up to each, its LSN and its end LSN.
    """

    data: Bytes
    offsets: Int64s
    rows: Int64s
    kinds: Bytes
    version: Int32s
    lsn: Int64s
    transaction: Int32s
    ordinal: Int64s
    transactions: Transactions
    end_rows: Int64s
    end_commit: Int64s
    end_end: Int64s
    truncated: dict[int, tuple[int, ...]] = field(default_factory=dict)
    numbers: Numbers | None = None
    counts: dict[int, Counts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def row_commits(self) -> Int64s:
        """The commit LSN of each row, ascending."""
        return self.transactions.commit_lsn[self.transaction]

    def size(self, first: int = 0, last: int | None = None) -> int:
        """Bytes from the first message of rows `[first, last)` to the end of their last one."""
        last = len(self.rows) if last is None else last
        if first >= last:
            return 0
        return int(self.offsets[self.rows[last - 1] + 1] - self.offsets[self.rows[first]])

    def compacted(self) -> Chunk:
        """The same rows with the other messages left out, where those are most of the bytes."""
        kept = int((self.offsets[self.rows + 1] - self.offsets[self.rows]).sum()) if len(self.rows) else 0
        if 2 * kept >= self.data.nbytes:
            return self
        data, offsets = scan.gather(self.data, self.offsets, self.rows)
        places = {int(message): place for place, message in enumerate(self.rows)} if self.truncated else {}
        return replace(
            self,
            data=data,
            offsets=offsets,
            rows=np.arange(len(self.rows), dtype=np.int64),
            truncated={places[message]: found for message, found in self.truncated.items() if message in places},
            numbers=None if self.numbers is None else self.numbers.moved(places),
        )

    def first_after(self, position: LogPosition) -> int:
        """The index of the first row that stands after `position`."""
        commits = self.row_commits()
        if position.consumed is None:
            return int(np.searchsorted(commits, position.commit_lsn, "right"))
        low = int(np.searchsorted(commits, position.commit_lsn, "left"))
        high = int(np.searchsorted(commits, position.commit_lsn, "right"))
        return low + int(np.searchsorted(self.ordinal[low:high], position.consumed, "left"))


class Indexer:
    """Turns runs of protocol 1 messages into chunks; keeps the open transaction from one run to the next.

    `resolve(relation)` gives the id of the table version that a Relation message announces, or `UNCAPTURED`; it is
    called for every Relation message, in log order. `skip(xid, commit_lsn)` tells whether a transaction is left out
    as a whole (a snapshot has shown it already). Rows up to and including `position` are dropped. With `numbering`
    Begin and Commit messages are rows too, and the events are numbered.
    """

    def __init__(
        self,
        position: LogPosition,
        resolve: Callable[[pgoutput.Relation], int],
        skip: Callable[[int, int], bool] | None = None,
        numbering: Numbering | None = None,
    ) -> None:
        self._numbering = numbering
        self.position = position
        self.last_end = position.end_lsn or -1
        self._resolve = resolve
        self._skip = skip
        self._current: dict[int, int] = {}
        self._open: tuple[int, int, int, int] | None = None
        self._next_ordinal = 0

    def reset(self) -> None:
        """Forget the open transaction and the relations: a new decoding session sends both again."""
        self._current.clear()
        self._open = None
        self._next_ordinal = 0
        if self._numbering is not None:
            self._numbering.reset()

    @property
    def is_open(self) -> bool:
        """Whether the run before ended inside a transaction."""
        return self._open is not None

    def advance(self, chunk: Chunk) -> None:
        """The chunk has been kept: a decoding session that sends its rows again has them dropped."""
        last = int(chunk.row_commits()[-1]) if len(chunk) else 0
        end_lsn = int(chunk.end_end[-1]) if len(chunk.end_end) else self.position.end_lsn
        if len(chunk.end_commit) and int(chunk.end_commit[-1]) >= last:
            self.position = LogPosition(int(chunk.end_commit[-1]), end_lsn)
        elif len(chunk):
            self.position = LogPosition(last, end_lsn, int(chunk.ordinal[-1]) + 1)

    def index(self, data: Bytes, offsets: Int64s, lsn: Int64s) -> Chunk:
        """Index the messages `data[offsets[i]:offsets[i + 1]]` sent at `lsn[i]`.

        Raises DecodeError when they do not follow the protocol.
        """
        kinds, relations = scan.scan(data, offsets)
        begins = np.flatnonzero(kinds == _BEGIN)
        commits = np.flatnonzero(kinds == _COMMIT)
        transactions, carried = self._transactions(data, offsets, begins, commits)
        is_change: npt.NDArray[np.bool_] = _IS_CHANGE[kinds]
        transaction = np.cumsum(kinds == _BEGIN) - (0 if carried else 1)
        if len(transaction) and is_change.any() and transaction[np.argmax(is_change)] < 0:
            raise DecodeError("a change outside of a transaction", int(offsets[int(np.argmax(is_change))]))
        counted: Int64s = np.cumsum(is_change)
        base = np.empty(len(transactions), np.int64)
        if carried:
            base[0] = -self._next_ordinal
        base[len(base) - len(begins) :] = counted[begins]
        version = self._versions(data, offsets, kinds, relations)
        truncated = {}
        for message in np.flatnonzero(kinds == _TRUNCATE):
            captured = self._truncated(data, offsets, int(message))
            if captured:
                truncated[int(message)] = captured
                version[message] = SEVERAL
        rows = np.flatnonzero(is_change & (version != UNCAPTURED))
        numbers: Numbers | None = None
        counts: dict[int, Counts] = {}
        if self._numbering is not None:
            numbers, counts = self._numbering.number(
                data, offsets, rows, kinds[rows], version[rows], transaction[rows], truncated,
                len(transactions), [int(place) for place in transaction[commits]],
            )  # fmt: skip
            version[begins] = version[commits] = BOUNDARY
            changes, rows = rows, np.flatnonzero(version != UNCAPTURED)
            numbers = numbers.among(changes, rows)
        row_transaction = transaction[rows]
        ordinal = counted[rows] - base[row_transaction]
        # a commit counts as one after the last change of its transaction, a begin as one before the first
        ordinal[kinds[rows] != _COMMIT] -= 1
        keep = self._beyond(transactions, row_transaction, ordinal)
        rows, row_transaction, ordinal = rows[keep], row_transaction[keep], ordinal[keep]

        ends = self._commit_fields(data, offsets, commits)
        end_rows = np.searchsorted(rows, commits, "right")
        self._carry(transactions, counted, base, begins, commits)
        return Chunk(
            data=data,
            offsets=offsets,
            rows=rows,
            kinds=kinds[rows],
            version=version[rows],
            lsn=lsn[rows],
            transaction=row_transaction.astype(np.int32),
            ordinal=ordinal,
            transactions=transactions,
            end_rows=end_rows.astype(np.int64),
            end_commit=ends[:, 0].copy(),
            end_end=ends[:, 1].copy(),
            truncated=truncated,
            numbers=None if numbers is None else numbers.kept(keep),
            counts=counts,
        )

    def _transactions(self, data: Bytes, offsets: Int64s, begins: Int64s, commits: Int64s) -> tuple[Transactions, bool]:
        """The transactions of the run: the one that was open before it, if any, then one for each Begin."""
        # Begin: Int64 final LSN, Int64 time, Int32 xid.
        fields = _fields(data, offsets, begins, 1, 20)
        commit_lsn = _int64(fields, 0)
        commit_us = _int64(fields, 8) + EPOCH_US
        xid = fields[:, 16:20].copy().view(">u4").reshape(-1).astype(np.int64)
        ends = self._commit_fields(data, offsets, commits)
        known = [self.last_end]
        if self._skip is None:
            known.extend(ends[:, 1].tolist())
        else:
            # to a source block, a transaction that is left out is none that was seen
            ended = [(self._open or (0,))[0], *xid.tolist()]
            places = np.searchsorted(begins, commits, "left")
            for place, (commit, end) in zip(places, ends.tolist(), strict=True):
                known.append(known[-1] if self._skip(ended[place], commit) else end)
        # the commit before a Begin is the last one that stands before it in the run
        previous = np.array(known, np.int64)[np.searchsorted(commits, begins, "left")]
        carried = self._open is not None
        if self._open is not None:
            first = [np.array([value], np.int64) for value in self._open]
            xid, commit_lsn, commit_us, previous = (
                np.concatenate(pair) for pair in zip(first, (xid, commit_lsn, commit_us, previous), strict=True)
            )
        self.last_end = known[-1]
        return Transactions(xid=xid, commit_lsn=commit_lsn, commit_us=commit_us, previous_end=previous), carried

    @staticmethod
    def _commit_fields(data: Bytes, offsets: Int64s, commits: Int64s) -> Int64s:
        # Commit: Int8 flags, Int64 commit LSN, Int64 end LSN, Int64 time.
        fields = _fields(data, offsets, commits, 1, 25)
        return np.stack([_int64(fields, 1), _int64(fields, 9)], axis=1)

    def _versions(self, data: Bytes, offsets: Int64s, kinds: Bytes, relations: npt.NDArray[np.uint32]) -> Int32s:
        """The table version of each message: the one that the last Relation message before it announced."""
        version = np.full(len(kinds), UNCAPTURED, np.int32)
        announced = np.flatnonzero(kinds == _RELATION)
        is_row = (kinds == _INSERT) | (kinds == _UPDATE) | (kinds == _DELETE)
        for oid in np.unique(relations[is_row]):
            known = self._current.get(int(oid))
            if known is None:
                first = int(np.flatnonzero(is_row & (relations == oid))[0])
                if not (relations[announced[announced < first]] == oid).any():
                    raise DecodeError(
                        f"a change of relation {oid}, which no Relation message announced", int(offsets[first])
                    )
            else:
                version[is_row & (relations == oid)] = known
        for place in announced:
            relation = pgoutput.parse(bytes(data[offsets[place] : offsets[place + 1]]))
            assert isinstance(relation, pgoutput.Relation)
            resolved = self._resolve(relation)
            later = is_row & (relations == relation.relation_id)
            later[:place] = False
            version[later] = resolved
            self._current[relation.relation_id] = resolved
        return version

    def _truncated(self, data: Bytes, offsets: Int64s, message: int) -> tuple[int, ...]:
        """The versions of the captured tables that a Truncate names, in its order."""
        truncate = pgoutput.parse(bytes(data[offsets[message] : offsets[message + 1]]))
        assert isinstance(truncate, pgoutput.Truncate)
        found = (self._current.get(oid, UNCAPTURED) for oid in truncate.relation_ids)
        return tuple(version for version in found if version != UNCAPTURED)

    def _beyond(self, transactions: Transactions, transaction: Int64s, ordinal: Int64s) -> npt.NDArray[np.bool_]:
        """Which rows stand after the position reached, in transactions that are not left out."""
        commit = transactions.commit_lsn[transaction]
        keep: npt.NDArray[np.bool_] = commit > self.position.commit_lsn
        if self.position.consumed is not None:
            keep |= (commit == self.position.commit_lsn) & (ordinal >= self.position.consumed)
        if self._skip is not None:
            skipped = np.array(
                [
                    self._skip(int(xid), int(lsn))
                    for xid, lsn in zip(transactions.xid, transactions.commit_lsn, strict=True)
                ],
                np.bool_,
            )
            keep &= ~skipped[transaction] if len(skipped) else True
        return keep

    def _carry(
        self, transactions: Transactions, counted: Int64s, base: Int64s, begins: Int64s, commits: Int64s
    ) -> None:
        last_begin = int(begins[-1]) if len(begins) else -1
        last_commit = int(commits[-1]) if len(commits) else -1
        if last_begin < 0 and last_commit < 0 and self._open is None:
            return
        if last_commit > last_begin or (last_commit >= 0 and last_begin < 0):
            self._open, self._next_ordinal = None, 0
        else:
            self._open = (
                int(transactions.xid[-1]),
                int(transactions.commit_lsn[-1]),
                int(transactions.commit_us[-1]),
                int(transactions.previous_end[-1]),
            )
            self._next_ordinal = int(counted[-1] - base[-1]) if len(counted) else self._next_ordinal


def _fields(data: Bytes, offsets: Int64s, messages: Int64s, start: int, length: int) -> Bytes:
    """The `length` bytes at `start` of each message, one row a message; each must have exactly that size."""
    if not len(messages):
        return np.empty((0, length), np.uint8)
    wrong = offsets[messages + 1] - offsets[messages] != start + length
    if wrong.any():
        at = messages[int(np.argmax(wrong))]
        raise DecodeError(f"a message {chr(data[offsets[at]])} of the wrong length", int(offsets[at]))
    found: Bytes = data[offsets[messages][:, None] + np.arange(start, start + length)]
    return found


def _int64(fields: Bytes, at: int) -> Int64s:
    return fields[:, at : at + 8].copy().view(">i8").reshape(-1).astype(np.int64)
