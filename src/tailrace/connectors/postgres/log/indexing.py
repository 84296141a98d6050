"""The planner's view of raw pgoutput: which message belongs to which transaction, table version and position.

No tuple is decoded here. What is found is what batches are cut by and segments are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Counts, Int32s, Int64s, Transactions
from tailrace.connectors.postgres.log.numbering import Numbering, Numbers
from tailrace.connectors.postgres.protocol import pgoutput, scan
from tailrace.connectors.postgres.protocol.position import NOWHERE, LogPosition, sent
from tailrace.connectors.postgres.schema.relations import UNCAPTURED
from tailrace.connectors.postgres.schema.versions import Run, Tables, Versions
from tailrace.errors import DecodeError

# PostgreSQL counts from 2000-01-01, in µs.
EPOCH_US = 946_684_800_000_000

_BEGIN, _COMMIT = ord("B"), ord("C")
_TRUNCATE, _MESSAGE = ord("T"), ord("M")
_IS_CHANGE = np.zeros(256, np.bool_)
_IS_CHANGE[[ord(kind) for kind in "IUDTM"]] = True

SEVERAL, BOUNDARY, MESSAGE = -2, -3, -4


@dataclass(slots=True)
class Chunk:
    """A run of messages as they were read, with the captured changes among them (its rows) indexed.

    Row i is message `rows[i]`, that is `data[offsets[rows[i]]:offsets[rows[i] + 1]]`; `version[i]` is the id of its
    table version, `SEVERAL` for a truncate, whose versions `truncated` holds by message, `MESSAGE` for a logical
    message, and `BOUNDARY` for the Begin and Commit messages, which are rows where transaction metadata is wanted.
    Then `numbers` has the events' numbers, and `counts` the transactions that end in the chunk, by their place in
    `transactions`. The `end_*` arrays describe the commits in the chunk: the number of rows up to each, its LSN, its
    end LSN, the end LSN of the last one up to it that was not left out (-1: none was), and its time in µs since 1970.
    A logical message outside of transactions is a transaction and a commit of its own (see `LogPosition`), with the
    transaction id 0.
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
    end_seen: Int64s
    end_us: Int64s
    truncated: dict[int, tuple[int, ...]] = field(default_factory=dict)
    numbers: Numbers | None = None
    counts: dict[int, Counts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def row_commits(self) -> Int64s:
        """The commit LSN of each row, ascending."""
        return self.transactions.commit_lsn[self.transaction]

    def end(self, place: int) -> LogPosition:
        """The position after the commit at `place` of the `end_*` arrays."""
        end, seen = int(self.end_end[place]), max(int(self.end_seen[place]), 0)
        return LogPosition(
            int(self.end_commit[place]),
            seen,
            idle_lsn=sent(end) if end > seen else NOWHERE,
            at_us=int(self.end_us[place]),
        )

    def reached(self, before: LogPosition) -> LogPosition:
        """How far the log has been read with the chunk, when it had been read to `before`.

        A session that begins anew sends what was read before: that leads nowhere.
        """
        found = before
        if len(self):
            seen = int(self.end_seen[-1]) if len(self.end_seen) else before.end_lsn
            commit_lsn = int(self.transactions.commit_lsn[self.transaction[-1]])
            found = LogPosition(commit_lsn, max(seen, 0), int(self.ordinal[-1]) + 1)
        if len(self.end_commit) and int(self.end_commit[-1]) >= found.commit_lsn:
            found = self.end(len(self.end_commit) - 1)
        return found if before.is_before(found) else before

    def is_message_alone(self, row: int) -> bool:
        """Whether the row is a logical message outside of transactions."""
        return bool(self.version[row] == MESSAGE and self.transactions.xid[self.transaction[row]] == 0)

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

    def joined(self, other: Chunk) -> Chunk:
        """This chunk and the one that follows it as one."""
        messages, transactions = len(self.offsets) - 1, len(self.transactions)
        parts = [chunk.data[chunk.offsets[0] : chunk.offsets[-1]] for chunk in (self, other)]
        starts = self.offsets - self.offsets[0], other.offsets[1:] - other.offsets[0] + parts[0].nbytes
        numbers = None
        if self.numbers is not None and other.numbers is not None:
            truncates = {messages + message: found for message, found in other.numbers.truncates.items()}
            numbers = Numbers(
                np.concatenate([self.numbers.total, other.numbers.total]),
                np.concatenate([self.numbers.table, other.numbers.table]),
                self.numbers.truncates | truncates,
            )
        of = [chunk.transactions for chunk in (self, other)]
        return Chunk(
            data=np.concatenate(parts),
            offsets=np.concatenate(starts),
            rows=np.concatenate([self.rows, other.rows + messages]),
            kinds=np.concatenate([self.kinds, other.kinds]),
            version=np.concatenate([self.version, other.version]),
            lsn=np.concatenate([self.lsn, other.lsn]),
            transaction=np.concatenate([self.transaction, other.transaction + np.int32(transactions)]),
            ordinal=np.concatenate([self.ordinal, other.ordinal]),
            transactions=Transactions(
                xid=np.concatenate([one.xid for one in of]),
                commit_lsn=np.concatenate([one.commit_lsn for one in of]),
                commit_us=np.concatenate([one.commit_us for one in of]),
                previous_end=np.concatenate([one.previous_end for one in of]),
            ),
            end_rows=np.concatenate([self.end_rows, other.end_rows + len(self)]),
            end_commit=np.concatenate([self.end_commit, other.end_commit]),
            end_end=np.concatenate([self.end_end, other.end_end]),
            end_seen=np.concatenate([self.end_seen, other.end_seen]),
            end_us=np.concatenate([self.end_us, other.end_us]),
            truncated=self.truncated | {messages + message: found for message, found in other.truncated.items()},
            numbers=numbers,
            counts=self.counts | {transactions + place: found for place, found in other.counts.items()},
        )

    def first_after(self, position: LogPosition) -> int:
        """The index of the first row that stands after `position`."""
        commits = self.row_commits()
        if position.consumed is None:
            return int(np.searchsorted(commits, position.commit_lsn, "right"))
        low = int(np.searchsorted(commits, position.commit_lsn, "left"))
        high = int(np.searchsorted(commits, position.commit_lsn, "right"))
        return low + int(np.searchsorted(self.ordinal[low:high], position.consumed, "left"))


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an indexer has come: whatever the chunk of the next run depends on, and nothing that is not kept.

    Rows up to and including `position` are dropped. `last_end` is the end LSN of the last commit that was not left
    out, -1 when there was none, `last_us` the time of the last commit. The transaction that is open has its id, commit
    LSN, time and the `last_end` before it in `open`, the number of its changes so far in `next_ordinal`, and the
    counts of its events by table in `counts`. `versions` are the table versions in effect, by oid. `unchanged` counts
    the updates that were left out because they changed nothing that is shown.
    """

    position: LogPosition
    last_end: int
    last_us: int
    open: tuple[int, int, int, int] | None = None
    next_ordinal: int = 0
    versions: Mapping[int, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The chunk of a run, and how far the indexer has come once that is kept.

    `is_wanted` is false of a chunk that nothing is lost with: it has no row, and no commit that others wait for.
    """

    chunk: Chunk
    after: Reached
    is_wanted: bool


class Indexer:
    """Turns runs of protocol 1 messages into chunks.

    `index` only computes, from `reached` and a run; `keep` takes over how far that leads, when the chunk has been kept.
    So a run that fails anywhere between the two is as if it had not been read, and a new session reads it again.

    `tables` gives the ids of table versions. `skip(xid, commit_lsn)` tells whether a transaction is left out
    as a whole (a snapshot has shown it already), but for its logical messages, which no snapshot shows; with
    `covers(version)` only its changes of the tables for which that holds are left out. Rows up to and including
    `position` are dropped. With `numbering` Begin and Commit messages are rows too, and the events are
    numbered. `takes(prefix)` tells which logical messages are rows; None: none is. `compared(version)` gives the
    places of the columns that an update must change to be a row, and the number of columns; None: every update is
    one.
    """

    def __init__(
        self,
        position: LogPosition,
        tables: Tables,
        skip: Callable[[int, int], bool] | None = None,
        numbering: Numbering | None = None,
        takes: Callable[[str], bool] | None = None,
        compared: Callable[[int], tuple[Int32s, int]] | None = None,
        covers: Callable[[int], bool] | None = None,
    ) -> None:
        self._compared = compared
        self._covers = covers
        self._numbering = numbering
        self._takes = takes
        self._skip = skip
        self._tables = tables
        self.reached = Reached(position, position.end_lsn or -1, position.at_us)

    def reset(self) -> None:
        """Forget the open transaction and the relations: a new decoding session sends both again."""
        forgotten = Reached(self.reached.position, self.reached.last_end, self.reached.last_us)
        self.reached = replace(forgotten, unchanged=self.reached.unchanged)

    @property
    def is_open(self) -> bool:
        """Whether the last run that was kept ended inside a transaction."""
        return self.reached.open is not None

    @property
    def position(self) -> LogPosition:
        """How far the log has been read and kept."""
        return self.reached.position

    @property
    def unchanged(self) -> int:
        """How many updates were left out because they changed nothing that is shown."""
        return self.reached.unchanged

    def keep(self, step: Step) -> None:
        """The step's chunk has been kept. Fails never."""
        self._tables.keep()
        self.reached = step.after

    def index(self, data: Bytes, offsets: Int64s, lsn: Int64s) -> Step:
        """Index the messages `data[offsets[i]:offsets[i + 1]]` sent at `lsn[i]`, which follow what was kept last.

        Raises DecodeError when they do not follow the protocol, and what `tables` raises.
        """
        before = self.reached
        self._tables.begin()
        kinds, relations = scan.scan(data, offsets)
        begins = np.flatnonzero(kinds == _BEGIN)
        commits = np.flatnonzero(kinds == _COMMIT)
        messages = self._messages(data, offsets, kinds)
        alone = np.array([row for row, found in messages.items() if not found.flags & 1], np.int64)
        if len(alone):
            self._check_alone(offsets, kinds, alone)
        ends = _ends(data, offsets, commits, alone, messages, before.last_us)
        openers = np.sort(np.concatenate([begins, alone])) if len(alone) else begins
        transactions, seen = self._transactions(data, offsets, begins, openers, ends)
        carried = before.open is not None
        is_change: npt.NDArray[np.bool_] = _IS_CHANGE[kinds]
        opens = kinds == _BEGIN
        opens[alone] = True
        transaction = np.cumsum(opens) - (0 if carried else 1)
        if len(transaction) and is_change.any() and transaction[np.argmax(is_change)] < 0:
            raise DecodeError("a change outside of a transaction", int(offsets[int(np.argmax(is_change))]))
        counted: Int64s = np.cumsum(is_change)
        _check_order(offsets, counted, begins, commits, alone, carried)
        base = np.empty(len(transactions), np.int64)
        if carried:
            base[0] = -before.next_ordinal
        # a message outside of transactions opens one and is its first change
        base[len(base) - len(openers) :] = counted[openers] - is_change[openers]
        versions = Versions(self._tables, dict(before.versions))
        version = versions.assign(
            Run(
                data, offsets, kinds, relations, transaction, transactions,
                counted - is_change - base[transaction] if len(base) else counted,
                dict(zip(ends.commit_lsn.tolist(), ends.end_lsn.tolist(), strict=True)),
            )
        )  # fmt: skip
        truncated = {}
        for message in np.flatnonzero(kinds == _TRUNCATE):
            captured = _truncated(data, offsets, int(message), versions)
            if captured:
                truncated[int(message)] = captured
                version[message] = SEVERAL
        skipped = self._skipped(transactions)
        if skipped is not None and self._covers is not None:
            self._leave_out(np.flatnonzero(is_change & skipped[transaction]), version, truncated)
        for row, found in messages.items():
            if self._takes is not None and self._takes(found.prefix):
                version[row] = MESSAGE
        unchanged = before.unchanged
        if self._compared is not None:
            idle = self._unchanged(data, offsets, kinds, version)
            # what was read before is not counted again
            ordinal = counted[idle] - base[transaction[idle]] - 1
            unchanged += int(self._beyond(transactions, transaction[idle], ordinal).sum())
            version[idle] = UNCAPTURED
        rows = np.flatnonzero(is_change & (version != UNCAPTURED))
        numbers: Numbers | None = None
        counts: dict[int, Counts] = {}
        going_on: Mapping[str, int] = before.counts
        if self._numbering is not None:
            changes = np.setdiff1d(rows, alone, assume_unique=True)
            numbers, counts, going_on = self._numbering.number(
                data, offsets, changes, kinds[changes], version[changes], transaction[changes], truncated,
                len(transactions), [int(place) for place in transaction[commits]], before.counts,
            )  # fmt: skip
            version[begins] = version[commits] = BOUNDARY
            rows = np.flatnonzero(version != UNCAPTURED)
            numbers = numbers.among(changes, rows)
        row_transaction = transaction[rows]
        ordinal = counted[rows] - base[row_transaction]
        # a commit counts as one after the last change of its transaction, a begin as one before the first
        ordinal[kinds[rows] != _COMMIT] -= 1
        keep = self._beyond(transactions, row_transaction, ordinal)
        if skipped is not None and self._covers is None:
            keep &= (version[rows] == MESSAGE) | ~skipped[row_transaction]
        rows, row_transaction, ordinal = rows[keep], row_transaction[keep], ordinal[keep]

        end_rows = np.searchsorted(rows, ends.messages, "right")
        chunk = Chunk(
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
            end_commit=ends.commit_lsn,
            end_end=ends.end_lsn,
            end_seen=seen[1:],
            end_us=ends.at_us,
            truncated=truncated,
            numbers=None if numbers is None else numbers.kept(keep),
            counts=counts,
        )
        opened, next_ordinal = _still_open(before, transactions, counted, base, begins, commits)
        after = Reached(
            position=chunk.reached(before.position),
            last_end=int(seen[-1]),
            last_us=int(ends.at_us[-1]) if len(ends.at_us) else before.last_us,
            open=opened,
            next_ordinal=next_ordinal,
            versions=versions.current,
            counts=going_on,
            unchanged=unchanged,
        )
        # a run may end between a transaction's last row and its commit, and so may what was read before a restart
        waits = carried or before.position.consumed is not None
        return Step(chunk, after, bool(len(chunk) or (waits and len(chunk.end_commit))))

    @staticmethod
    def _messages(data: Bytes, offsets: Int64s, kinds: Bytes) -> dict[int, pgoutput.Message]:
        """The logical messages of the run, by message number."""
        found: dict[int, pgoutput.Message] = {}
        for row in np.flatnonzero(kinds == _MESSAGE):
            message = pgoutput.parse(bytes(data[offsets[row] : offsets[row + 1]]))
            assert isinstance(message, pgoutput.Message)
            found[int(row)] = message
        return found

    def _unchanged(self, data: Bytes, offsets: Int64s, kinds: Bytes, version: Int32s) -> Int64s:
        """The updates that change no column that matters."""
        assert self._compared is not None
        updates = np.flatnonzero((kinds == ord("U")) & (version != UNCAPTURED))
        found = [np.empty(0, np.int64)]
        for number in np.unique(version[updates]):
            rows = updates[version[updates] == number]
            found.append(rows[scan.unchanged(data, offsets, rows, *self._compared(int(number)))])
        return np.concatenate(found)

    def _check_alone(self, offsets: Int64s, kinds: Bytes, alone: Int64s) -> None:
        """Raises DecodeError when a message that is not transactional stands inside a transaction."""
        depth = np.cumsum(kinds == _BEGIN) - np.cumsum(kinds == _COMMIT) + int(self.is_open)
        inside = alone[depth[alone] != 0]
        if len(inside):
            raise DecodeError("a message that belongs to no transaction stands inside one", int(offsets[inside[0]]))

    def _transactions(
        self, data: Bytes, offsets: Int64s, begins: Int64s, openers: Int64s, ends: _Ends
    ) -> tuple[Transactions, Int64s]:
        """The transactions of the run: the one that was open before it, if any, then one for each of `openers`.

        Those are the Begin messages, and the messages outside of transactions. Beside them, the end of the last commit
        that was not left out, as of before the run and after each of its ends.
        """
        before = self.reached
        # Begin: Int64 final LSN, Int64 time, Int32 xid.
        fields = _fields(data, offsets, begins, 1, 20)
        commit_lsn, commit_us, xid = np.zeros((3, len(openers)), np.int64)
        begun = np.searchsorted(openers, begins)
        commit_lsn[begun] = _int64(fields, 0)
        commit_us[begun] = _int64(fields, 8) + EPOCH_US
        xid[begun] = fields[:, 16:20].copy().view(">u4").reshape(-1).astype(np.int64)
        if len(begins) < len(openers):
            # those that are closed by themselves
            _, opened, closed = np.intersect1d(openers, ends.messages, assume_unique=True, return_indices=True)
            commit_lsn[opened], commit_us[opened] = ends.commit_lsn[closed], ends.at_us[closed]
        known = [before.last_end]
        if self._skip is None or self._covers is not None:
            known.extend(ends.end_lsn.tolist())
        else:
            # to a source block, a transaction that is left out is none that was seen
            ended = [(before.open or (0,))[0], *xid.tolist()]
            places = np.searchsorted(openers, ends.messages, "right")
            for place, commit, end in zip(places, ends.commit_lsn.tolist(), ends.end_lsn.tolist(), strict=True):
                left_out = ended[place] and self._skip(ended[place], commit)
                known.append(known[-1] if left_out else end)
        seen = np.array(known, np.int64)
        # The last commit up to a Begin is the one before it in the run; that of a message alone is itself.
        previous = seen[np.searchsorted(ends.messages, openers, "right")]
        if before.open is not None:
            first = [np.array([value], np.int64) for value in before.open]
            xid, commit_lsn, commit_us, previous = (
                np.concatenate(pair) for pair in zip(first, (xid, commit_lsn, commit_us, previous), strict=True)
            )
        return Transactions(xid=xid, commit_lsn=commit_lsn, commit_us=commit_us, previous_end=previous), seen

    def _skipped(self, transactions: Transactions) -> npt.NDArray[np.bool_] | None:
        """Which transactions are left out; None where none ever is."""
        if self._skip is None:
            return None
        pairs = zip(transactions.xid.tolist(), transactions.commit_lsn.tolist(), strict=True)
        return np.array([self._skip(xid, lsn) for xid, lsn in pairs], np.bool_)

    def _leave_out(self, changes: Int64s, version: Int32s, truncated: dict[int, tuple[int, ...]]) -> None:
        """Take the tables that are covered out of `changes`, all of transactions that are left out."""
        assert self._covers is not None
        covered = {int(found) for found in np.unique(version[changes]) if found >= 0 and self._covers(int(found))}
        version[changes[np.isin(version[changes], list(covered))]] = UNCAPTURED
        for message in changes[version[changes] == SEVERAL].tolist():
            left = tuple(found for found in truncated[message] if not self._covers(found))
            truncated[message] = left
            if not left:
                version[message] = UNCAPTURED

    def _beyond(self, transactions: Transactions, transaction: Int64s, ordinal: Int64s) -> npt.NDArray[np.bool_]:
        """Which rows stand after the position reached."""
        position = self.reached.position
        commit = transactions.commit_lsn[transaction]
        keep: npt.NDArray[np.bool_] = commit > position.commit_lsn
        if position.consumed is not None:
            keep |= (commit == position.commit_lsn) & (ordinal >= position.consumed)
        return keep


def _check_order(
    offsets: Int64s, counted: Int64s, begins: Int64s, commits: Int64s, alone: Int64s, carried: bool
) -> None:
    """Raises DecodeError unless Begin and Commit messages alternate, with all changes but those alone inside them."""
    first, then = (commits, begins) if carried else (begins, commits)
    alternate = 0 <= len(first) - len(then) <= 1 and bool((first[: len(then)] < then).all())
    if not (alternate and (then[: len(first) - 1] < first[1:]).all()):
        raise DecodeError("the transactions of a run of messages do not begin and end in turns", int(offsets[0]))
    # between transactions, from each place to the one that it is exclusive of
    low = commits + 1 if carried else np.concatenate([np.zeros(1, np.int64), commits + 1])
    high = begins if len(begins) == len(low) else np.concatenate([begins, [len(counted)]])
    upto = [np.where(places > 0, counted[places - 1], 0) if len(counted) else places for places in (low, high)]
    outside = upto[1] - upto[0] - np.searchsorted(alone, high) + np.searchsorted(alone, low)
    if outside.any():
        raise DecodeError("a change outside of a transaction", int(offsets[low[int(np.argmax(outside != 0))]]))


def _still_open(
    before: Reached, transactions: Transactions, counted: Int64s, base: Int64s, begins: Int64s, commits: Int64s
) -> tuple[tuple[int, int, int, int] | None, int]:
    """The transaction that is open at the end of the run, as `Reached.open`, and the number of its changes so far."""
    last_begin = int(begins[-1]) if len(begins) else -1
    last_commit = int(commits[-1]) if len(commits) else -1
    if last_begin < 0 and last_commit < 0 and before.open is None:
        return None, before.next_ordinal
    if last_commit > last_begin:
        return None, 0
    opened = (
        int(transactions.xid[-1]),
        int(transactions.commit_lsn[-1]),
        int(transactions.commit_us[-1]),
        int(transactions.previous_end[-1]),
    )
    return opened, int(counted[-1] - base[-1]) if len(counted) else before.next_ordinal


def _truncated(data: Bytes, offsets: Int64s, message: int, versions: Versions) -> tuple[int, ...]:
    """The versions of the captured tables that a Truncate names, in its order."""
    truncate = pgoutput.parse(bytes(data[offsets[message] : offsets[message + 1]]))
    assert isinstance(truncate, pgoutput.Truncate)
    found = (versions.at(oid, message) for oid in truncate.relation_ids)
    return tuple(version for version in found if version != UNCAPTURED)


@dataclass(slots=True)
class _Ends:
    """The commits of a run in order, those of messages alone among them: their message numbers and what they tell."""

    messages: Int64s
    commit_lsn: Int64s
    end_lsn: Int64s
    at_us: Int64s


def _ends(
    data: Bytes, offsets: Int64s, commits: Int64s, alone: Int64s, found: dict[int, pgoutput.Message], last_us: int
) -> _Ends:
    """The ends of the run's transactions; the time of a message alone is that of the commit before it, or `last_us`."""
    # Commit: Int8 flags, Int64 commit LSN, Int64 end LSN, Int64 time.
    fields = _fields(data, offsets, commits, 1, 25)
    ends = _Ends(commits, _int64(fields, 1), _int64(fields, 9), _int64(fields, 17) + EPOCH_US)
    if not len(alone):
        return ends
    lsn = np.array([found[int(row)].lsn for row in alone], np.int64)
    places = np.concatenate([commits, alone])
    order = np.argsort(places)
    # 0 stands for the time before the run, then come the commits: each end has that of the last commit up to it
    latest = np.concatenate([np.arange(1, len(commits) + 1), np.zeros(len(alone), np.int64)])[order]
    return _Ends(
        places[order],
        np.concatenate([ends.commit_lsn, lsn - 1])[order],
        np.concatenate([ends.end_lsn, lsn])[order],
        np.concatenate([[last_us], ends.at_us])[np.maximum.accumulate(latest)],
    )


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
