"""Index of raw pgoutput messages: the transaction, table version and position of each. Planner.

No tuple is decoded here. The planner cuts batches and makes segments from the index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Int32s, Int64s, Transactions
from tailrace.connectors.postgres.log.indexed_run import BOUNDARY, MESSAGE, IndexedRun, Rows
from tailrace.connectors.postgres.log.row_log import key_changes
from tailrace.connectors.postgres.protocol import pgoutput, scan
from tailrace.connectors.postgres.protocol.position import LogPosition, RowPositions
from tailrace.connectors.postgres.schema.relations import UNCAPTURED
from tailrace.connectors.postgres.schema.versions import MessageRun, VersionedTables, Versions
from tailrace.errors import DecodeError
from tailrace.log import contracts
from tailrace.log.rows.numbering import NumberedRows, Numbering

# PostgreSQL counts from 2000-01-01, in µs.
EPOCH_US = 946_684_800_000_000

_BEGIN, _COMMIT = ord("B"), ord("C")
_TRUNCATE, _MESSAGE = ord("T"), ord("M")
_IS_CHANGE = np.zeros(256, np.bool_)
_IS_CHANGE[[ord(kind) for kind in "IUDTM"]] = True
MESSAGE_NAME = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId"
_OPS = np.arange(256, dtype=np.uint8)
_OPS[[ord(kind) for kind in "IUDT"]] = [ord(op) for op in "cudt"]
# The table version of a truncate before it becomes a row for each of its tables.
_SEVERAL = -2


@dataclass(frozen=True, slots=True)
class IndexerState:
    """State of an indexer after the last run that was kept. The index of the next run depends on nothing else.

    Rows up to and including `position` are dropped. `last_end` is the end LSN of the last commit that was not left out,
    -1 if there was none; `last_us` is the time of the last commit. `open` describes the open transaction: its id,
    commit LSN, time, and the `last_end` before it. `next_ordinal` is the number of its changes so far, `counts` the
    number of its events by table. `versions` are the table versions in effect, by oid. `unchanged` is the number of
    updates left out because they changed no column that is delivered.
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
class IndexedStep(contracts.Step[LogPosition, Rows]):
    """An indexed run, and the indexer's state after it.

    The step is not wanted if its run has neither a row nor the commit of a transaction that began earlier.
    """

    run: IndexedRun
    after: IndexerState


@dataclass(slots=True)
class _Ends:
    """The commits of a run in order, by message number. A logical message outside of transactions counts as a
    commit."""

    messages: Int64s
    commit_lsn: Int64s
    end_lsn: Int64s
    at_us: Int64s


@dataclass(slots=True)
class _Marked:
    """A run of messages and its transactions.

    `alone` are the logical messages outside of transactions: each is a transaction and its end. `transaction` is the
    place of each message's transaction in `transactions`. `counted` is the number of changes up to each message, `base`
    the number before each transaction: their difference counts within the transaction. `carried` is True if the first
    transaction was open before the run. `seen` is the end LSN of the last commit that was not left out, before the run
    and after each of its `ends`.
    """

    data: Bytes
    offsets: Int64s
    kinds: Bytes
    relations: npt.NDArray[np.uint32]
    begins: Int64s
    commits: Int64s
    messages: Mapping[int, pgoutput.Message]
    alone: Int64s
    ends: _Ends
    transactions: Transactions
    seen: Int64s
    carried: bool
    is_change: npt.NDArray[np.bool_]
    transaction: Int64s
    counted: Int64s
    base: Int64s

    def ordinals(self, rows: Int64s) -> Int64s:
        """Return the places of messages in their transactions."""
        found = self.counted[rows] - self.base[self.transaction[rows]]
        # a commit's ordinal is after the last change of its transaction, a begin's ordinal before the first
        found[self.kinds[rows] != _COMMIT] -= 1
        return found


class Indexer:
    """Indexes runs of protocol 1 messages.

    `index` computes a step from `reached` and a run, without side effects; `keep` sets the state after the step, once
    the indexed run has been stored. A run that fails between the two counts as not read: a new session reads it again.

    `tables` gives the ids of table versions. `skip(xid, commit_lsn)` returns True for a transaction to leave out
    because a snapshot has shown it. Its logical messages stay, as no snapshot shows them. With `covers`, only changes
    of table versions for which `covers(version)` is True are left out. Rows up to and including `position` are dropped.
    With `numbering` Begin and Commit messages are rows too, and the events are numbered. `takes(prefix)` returns True
    for logical messages that are rows; None: no logical message is a row. `compared(version)` returns the places of the
    columns whose change makes an update a row, and the number of columns; None: every update is a row.
    """

    def __init__(
        self,
        position: LogPosition,
        tables: VersionedTables,
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
        self.reached = IndexerState(position, position.end_lsn or -1, position.at_us)

    def reset(self) -> None:
        """Forget the open transaction and the table versions: a new decoding session sends both again."""
        forgotten = IndexerState(self.reached.position, self.reached.last_end, self.reached.last_us)
        self.reached = replace(forgotten, unchanged=self.reached.unchanged)

    @property
    def is_open(self) -> bool:
        """True if the last run that was kept ended inside a transaction."""
        return self.reached.open is not None

    @property
    def position(self) -> LogPosition:
        """The position up to which the log has been read and kept."""
        return self.reached.position

    @property
    def unchanged(self) -> int:
        """The number of updates left out because they changed no column that is delivered."""
        return self.reached.unchanged

    def keep(self, step: IndexedStep) -> None:
        """Set the state to `step.after`, once the step's run has been stored. Never fails."""
        self._tables.keep()
        self.reached = step.after

    def index(self, data: Bytes, offsets: Int64s, lsn: Int64s) -> IndexedStep:
        """Index the messages `data[offsets[i]:offsets[i + 1]]` sent at `lsn[i]`, which follow the last run that was
        kept.

        Raises DecodeError if they violate the protocol, and the errors of `tables`.
        """
        before = self.reached
        self._tables.begin()
        run = self._marked(data, offsets)
        versions = Versions(self._tables, dict(before.versions))
        version, truncated = self._versions(run, versions)
        skipped = self._skipped(run.transactions)
        if skipped is not None and self._covers is not None:
            self._leave_out(np.flatnonzero(run.is_change & skipped[run.transaction]), version, truncated)
        for row, found in run.messages.items():
            if self._takes is not None and self._takes(found.prefix):
                version[row] = MESSAGE
        unchanged = before.unchanged
        if self._compared is not None:
            idle = self._unchanged(data, offsets, run.kinds, version)
            # updates that were read before are not counted again
            unchanged += int(self._beyond(run.transactions, run.transaction[idle], run.ordinals(idle)).sum())
            version[idle] = UNCAPTURED
        rows, of, numbered = self._rows(run, version, truncated)
        ordinal, transaction = run.ordinals(rows), run.transaction[rows]
        keep = self._beyond(run.transactions, transaction, ordinal)
        if skipped is not None and self._covers is None:
            keep &= (of == MESSAGE) | ~skipped[transaction]
        kept = rows[keep]
        indexed = IndexedRun(
            data=data,
            offsets=offsets,
            rows=kept,
            op=_OPS[run.kinds[kept]],
            version=of[keep],
            by_row=RowPositions(
                transaction=transaction[keep].astype(np.int32),
                ordinal=ordinal[keep],
                total_order=None if numbered is None else numbered.total[keep],
                table_order=None if numbered is None else numbered.table[keep],
                lsn=lsn[kept],
            ),
            transactions=run.transactions,
            counts={} if numbered is None else numbered.counts,
            end_rows=np.searchsorted(kept, run.ends.messages, "right").astype(np.int64),
            end_commit=run.ends.commit_lsn,
            end_end=run.ends.end_lsn,
            end_seen=run.seen[1:],
            end_us=run.ends.at_us,
        )
        return self._step(run, indexed, versions, unchanged, before.counts if numbered is None else numbered.still_open)

    def _step(
        self, run: _Marked, indexed: IndexedRun, versions: Versions, unchanged: int, counts: Mapping[str, int]
    ) -> IndexedStep:
        """Return the step of an indexed run: the run and the state after it."""
        before = self.reached
        opened, next_ordinal = _still_open(before, run)
        after = IndexerState(
            position=indexed.leads_to(before.position),
            last_end=int(run.seen[-1]),
            last_us=int(run.ends.at_us[-1]) if len(run.ends.at_us) else before.last_us,
            open=opened,
            next_ordinal=next_ordinal,
            versions=versions.current,
            counts=counts,
            unchanged=unchanged,
        )
        # a run, or what was read before a restart, may end between a transaction's last row and its commit
        waits = run.carried or before.position.consumed is not None
        return IndexedStep(indexed, bool(len(indexed) or (waits and len(indexed.end_commit))), after)

    def _marked(self, data: Bytes, offsets: Int64s) -> _Marked:
        """Return the run with its transactions. Raises DecodeError if the messages violate the protocol."""
        before = self.reached
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
        return _Marked(
            data, offsets, kinds, relations, begins, commits, messages, alone, ends, transactions, seen, carried,
            is_change, transaction, counted, base,
        )  # fmt: skip

    @staticmethod
    def _versions(run: _Marked, versions: Versions) -> tuple[Int32s, dict[int, tuple[int, ...]]]:
        """Return the table version of each message, and for each captured truncate the versions of its tables."""
        version = versions.assign(
            MessageRun(
                run.data, run.offsets, run.kinds, run.relations, run.transaction, run.transactions,
                run.counted - run.is_change - run.base[run.transaction] if len(run.base) else run.counted,
                dict(zip(run.ends.commit_lsn.tolist(), run.ends.end_lsn.tolist(), strict=True)),
            )
        )  # fmt: skip
        truncated = {}
        for message in np.flatnonzero(run.kinds == _TRUNCATE):
            captured = _truncated(run.data, run.offsets, int(message), versions)
            if captured:
                truncated[int(message)] = captured
                version[message] = _SEVERAL
        return version, truncated

    def _rows(
        self, run: _Marked, version: Int32s, truncated: dict[int, tuple[int, ...]]
    ) -> tuple[Int64s, Int32s, NumberedRows | None]:
        """Return the messages that are rows, and, if wanted, the numbers of their events in their transactions."""
        if self._numbering is None:
            return *_by_table(np.flatnonzero(version != UNCAPTURED), version, truncated), None
        version[run.begins] = version[run.commits] = BOUNDARY
        rows, of = _by_table(np.flatnonzero(version != UNCAPTURED), version, truncated)
        is_numbered = run.is_change.copy()
        is_numbered[run.alone] = False
        places = np.flatnonzero(is_numbered[rows])
        changes = rows[places]
        op, version = _OPS[run.kinds[changes]], of[places]
        found = self._numbering.number(
            op, version, key_changes(run.data, run.offsets, changes, op, version, self._numbering.versions),
            run.transaction[changes], len(run.transactions), [int(place) for place in run.transaction[run.commits]],
            self.reached.counts,
        )  # fmt: skip
        total, table = np.zeros((2, len(rows)), np.int64)
        total[places], table[places] = found.total, found.table
        return rows, of, replace(found, total=total, table=table)

    @staticmethod
    def _messages(data: Bytes, offsets: Int64s, kinds: Bytes) -> dict[int, pgoutput.Message]:
        """Return the logical messages of the run, by message number."""
        found: dict[int, pgoutput.Message] = {}
        for row in np.flatnonzero(kinds == _MESSAGE):
            message = pgoutput.parse(bytes(data[offsets[row] : offsets[row + 1]]))
            assert isinstance(message, pgoutput.Message)
            found[int(row)] = message
        return found

    def _unchanged(self, data: Bytes, offsets: Int64s, kinds: Bytes, version: Int32s) -> Int64s:
        """Return the updates that change none of the columns of `compared`."""
        assert self._compared is not None
        updates = np.flatnonzero((kinds == ord("U")) & (version != UNCAPTURED))
        found = [np.empty(0, np.int64)]
        for number in np.unique(version[updates]):
            rows = updates[version[updates] == number]
            found.append(rows[scan.unchanged(data, offsets, rows, *self._compared(int(number)))])
        return np.concatenate(found)

    def _check_alone(self, offsets: Int64s, kinds: Bytes, alone: Int64s) -> None:
        """Raise DecodeError if a message that is not transactional stands inside a transaction."""
        depth = np.cumsum(kinds == _BEGIN) - np.cumsum(kinds == _COMMIT) + int(self.is_open)
        inside = alone[depth[alone] != 0]
        if len(inside):
            raise DecodeError("a message that belongs to no transaction stands inside one", int(offsets[inside[0]]))

    def _transactions(
        self, data: Bytes, offsets: Int64s, begins: Int64s, openers: Int64s, ends: _Ends
    ) -> tuple[Transactions, Int64s]:
        """Return the transactions of the run, and `seen` (see `_Marked`).

        The transaction that was open before the run comes first, if there is one; then one for each of `openers`, the
        Begin messages and the messages outside of transactions.
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
            # messages alone, which close themselves
            _, opened, closed = np.intersect1d(openers, ends.messages, assume_unique=True, return_indices=True)
            commit_lsn[opened], commit_us[opened] = ends.commit_lsn[closed], ends.at_us[closed]
        known = [before.last_end]
        if self._skip is None or self._covers is not None:
            known.extend(ends.end_lsn.tolist())
        else:
            # source blocks do not count a transaction that is left out as seen
            ended = [(before.open or (0,))[0], *xid.tolist()]
            places = np.searchsorted(openers, ends.messages, "right")
            for place, commit, end in zip(places, ends.commit_lsn.tolist(), ends.end_lsn.tolist(), strict=True):
                left_out = ended[place] and self._skip(ended[place], commit)
                known.append(known[-1] if left_out else end)
        seen = np.array(known, np.int64)
        # The last commit up to a Begin is the one before it; the last commit up to a message alone is the message
        # itself.
        previous = seen[np.searchsorted(ends.messages, openers, "right")]
        if before.open is not None:
            first = [np.array([value], np.int64) for value in before.open]
            xid, commit_lsn, commit_us, previous = (
                np.concatenate(pair) for pair in zip(first, (xid, commit_lsn, commit_us, previous), strict=True)
            )
        return Transactions(xid=xid, commit_lsn=commit_lsn, commit_us=commit_us, previous_end=previous), seen

    def _skipped(self, transactions: Transactions) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the transactions to leave out; None if no snapshot has shown any."""
        if self._skip is None:
            return None
        pairs = zip(transactions.xid.tolist(), transactions.commit_lsn.tolist(), strict=True)
        return np.array([self._skip(xid, lsn) for xid, lsn in pairs], np.bool_)

    def _leave_out(self, changes: Int64s, version: Int32s, truncated: dict[int, tuple[int, ...]]) -> None:
        """Mark changes of covered tables as not captured. `changes` are the changes of transactions to leave out."""
        assert self._covers is not None
        covered = {int(found) for found in np.unique(version[changes]) if found >= 0 and self._covers(int(found))}
        version[changes[np.isin(version[changes], list(covered))]] = UNCAPTURED
        for message in changes[version[changes] == _SEVERAL].tolist():
            left = tuple(found for found in truncated[message] if not self._covers(found))
            truncated[message] = left
            if not left:
                version[message] = UNCAPTURED

    def _beyond(self, transactions: Transactions, transaction: Int64s, ordinal: Int64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows after the position reached."""
        position = self.reached.position
        commit = transactions.commit_lsn[transaction]
        keep: npt.NDArray[np.bool_] = commit > position.commit_lsn
        if position.consumed is not None:
            keep |= (commit == position.commit_lsn) & (ordinal >= position.consumed)
        return keep


def _check_order(
    offsets: Int64s, counted: Int64s, begins: Int64s, commits: Int64s, alone: Int64s, carried: bool
) -> None:
    """Raise DecodeError unless Begin and Commit messages alternate and enclose all changes except messages alone."""
    first, then = (commits, begins) if carried else (begins, commits)
    alternate = 0 <= len(first) - len(then) <= 1 and bool((first[: len(then)] < then).all())
    if not (alternate and (then[: len(first) - 1] < first[1:]).all()):
        raise DecodeError("the transactions of a run of messages do not begin and end in turns", int(offsets[0]))
    # the ranges `[low, high)` of messages between transactions
    low = commits + 1 if carried else np.concatenate([np.zeros(1, np.int64), commits + 1])
    high = begins if len(begins) == len(low) else np.concatenate([begins, [len(counted)]])
    upto = [np.where(places > 0, counted[places - 1], 0) if len(counted) else places for places in (low, high)]
    outside = upto[1] - upto[0] - np.searchsorted(alone, high) + np.searchsorted(alone, low)
    if outside.any():
        raise DecodeError("a change outside of a transaction", int(offsets[low[int(np.argmax(outside != 0))]]))


def _still_open(before: IndexerState, run: _Marked) -> tuple[tuple[int, int, int, int] | None, int]:
    """Return the transaction that is open at the end of the run, as `IndexerState.open`, and its changes so far."""
    last_begin = int(run.begins[-1]) if len(run.begins) else -1
    last_commit = int(run.commits[-1]) if len(run.commits) else -1
    if last_begin < 0 and last_commit < 0 and before.open is None:
        return None, before.next_ordinal
    if last_commit > last_begin:
        return None, 0
    of = run.transactions
    opened = int(of.xid[-1]), int(of.commit_lsn[-1]), int(of.commit_us[-1]), int(of.previous_end[-1])
    return opened, int(run.counted[-1] - run.base[-1]) if len(run.counted) else before.next_ordinal


def _truncated(data: Bytes, offsets: Int64s, message: int, versions: Versions) -> tuple[int, ...]:
    """Return the versions of the captured tables that a Truncate names, in its order."""
    truncate = pgoutput.parse(bytes(data[offsets[message] : offsets[message + 1]]))
    assert isinstance(truncate, pgoutput.Truncate)
    found = (versions.at(oid, message) for oid in truncate.relation_ids)
    return tuple(version for version in found if version != UNCAPTURED)


def _by_table(messages: Int64s, version: Int32s, truncated: Mapping[int, tuple[int, ...]]) -> tuple[Int64s, Int32s]:
    """Return the rows of the messages, a truncate once for each of its tables, and the table version of each row."""
    if not truncated:
        return messages, version[messages]
    several = np.flatnonzero(version[messages] == _SEVERAL)
    tables = [truncated[int(message)] for message in messages[several]]
    times = np.ones(len(messages), np.int64)
    times[several] = [len(found) for found in tables]
    rows = np.repeat(messages, times)
    of = version[rows]
    of[of == _SEVERAL] = [number for found in tables for number in found]
    return rows, of


def _ends(
    data: Bytes, offsets: Int64s, commits: Int64s, alone: Int64s, found: dict[int, pgoutput.Message], last_us: int
) -> _Ends:
    """Return the ends of the run's transactions.

    A message alone has the time of the last commit before it in the run; without one it has `last_us`.
    """
    # Commit: Int8 flags, Int64 commit LSN, Int64 end LSN, Int64 time.
    fields = _fields(data, offsets, commits, 1, 25)
    ends = _Ends(commits, _int64(fields, 1), _int64(fields, 9), _int64(fields, 17) + EPOCH_US)
    if not len(alone):
        return ends
    lsn = np.array([found[int(row)].lsn for row in alone], np.int64)
    places = np.concatenate([commits, alone])
    order = np.argsort(places)
    # 0 is the time before the run, i the time of commit i: each end has the time of the last commit up to it
    latest = np.concatenate([np.arange(1, len(commits) + 1), np.zeros(len(alone), np.int64)])[order]
    return _Ends(
        places[order],
        np.concatenate([ends.commit_lsn, lsn - 1])[order],
        np.concatenate([ends.end_lsn, lsn])[order],
        np.concatenate([[last_us], ends.at_us])[np.maximum.accumulate(latest)],
    )


def _fields(data: Bytes, offsets: Int64s, messages: Int64s, start: int, length: int) -> Bytes:
    """Return the `length` bytes from `start` of each message, one row per message.

    Raises DecodeError if a message does not end there.
    """
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
