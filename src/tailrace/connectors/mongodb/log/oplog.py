"""OplogFeed: the oplog of a replica set, read to its end and then by a tailable cursor. Planner, the reader's thread.

An entry is `{ts, op, ns, o, o2, …}` (MongoDB Manual, "Replica Set Oplog"): op is i, u, d, c for a command or n for a
no-op. A transaction is a command `applyOps` with its operations. A large transaction has several such entries, linked
backwards by `prevOpTime`, all but the last with `partialTxn`. A prepared transaction takes effect with
`commitTransaction`. The changes of a transaction have the position of the entry that makes them visible. A transaction
of several entries may be larger than memory: each entry becomes a separate run, unless the end of the transaction must
be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailrace.connectors.mongodb.log.commands import Commands
from tailrace.connectors.mongodb.log.entries import Entries, Operations, Parts, command_of, flags, located
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Flags, IndexedRun, numbered
from tailrace.connectors.mongodb.log.namespaces import Namespaces, split
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition, Read
from tailrace.connectors.mongodb.server.faults import NotYetCommitted
from tailrace.connectors.mongodb.server.raw import BATCH, CursorBatch, RawCursor
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import DecodeError, PositionLost, PrerequisiteError

if TYPE_CHECKING:
    from pymongo import MongoClient

# A true value of one of these fields means that another entry of the transaction follows.
_CONTINUED = ("partialTxn", "prepare")
REMEDY = "The changes in between are lost: delete the checkpoint to start again with a snapshot."


class OplogFeed:
    """Captured changes after a position, run by run. Methods raise PyMongo's errors, DecodeError and PositionLost.

    With `whole` a transaction of several entries is one run, of any size: its events can be counted only at its end.
    `commands` logs warnings for commands on whole collections.
    """

    def __init__(
        self,
        client: MongoClient[Any],
        namespaces: Namespaces,
        *,
        batch_size: int = BATCH,
        await_ms: int | None = None,
        majority: bool = True,
        whole: bool = False,
        commands: Commands | None = None,
        renewed: Callable[[], MongoClient[Any]] | None = None,
    ) -> None:
        """`open` replaces the client by the result of `renewed`, unless this is None."""
        self._commands = commands
        self._client = client
        self._renewed = renewed
        self._namespaces = namespaces
        self._batch_size = batch_size
        self._await_ms = await_ms
        self._majority = majority
        self._whole = whole
        self._cursor: RawCursor | None = None
        # the remaining runs of the latest answer
        self._runs: Iterator[IndexedRun] | None = None
        self._reached = ChangePosition()
        # the timestamp of this cursor's latest change, and its number among the changes of this timestamp
        self._counted = (0, 0)
        self._unchecked = False
        # the ordinary cursor has reached the end of the log; the cursor is tailable; it has just been opened
        self._ended = self._tails = self._begins = False
        self.caught_up_at = 0
        """The timestamp of the last entry that the server has sent; 0 before.

        The server's operation time would be wrong here: it may be ahead of the majority, and so of this cursor.
        """
        self.answered_at = 0
        """The server's operation time in its latest answer, which may be ahead of what it has sent; 0 before."""

    def open(self, position: ChangePosition) -> None:
        """Prepare to read the changes after `position`."""
        self.close()
        if self._renewed is not None:
            self._client = self._renewed()
        self._reached = position
        self._counted = (0, 0)
        self._ended = self._tails = self._begins = False
        self._cursor = self._find("$gte", position.time)
        # the last entry that was read must still exist
        self._unchecked = position.time > 0

    def _find(self, operator: str, time: int, **more: Any) -> RawCursor:
        """Return a cursor over the entries from the timestamp `time` on."""
        from bson.timestamp import Timestamp

        command: dict[str, Any] = {
            "find": "oplog.rs",
            "filter": {"ts": {operator: Timestamp(time >> 32, time & 0xFFFFFFFF)}},
            "noCursorTimeout": True,
            **more,
        }
        if self._batch_size:
            command["batchSize"] = self._batch_size
        if self._majority:
            # an election may roll back entries that no majority has
            command["readConcern"] = {"level": "majority"}
        return RawCursor(self._client, "local", command, await_ms=self._await_ms if more else None)

    def _tail(self) -> None:
        """Open a tailable cursor that begins at the last entry that was read."""
        self.close()
        self._ended, self._tails, self._begins = False, True, True
        self._cursor = self._find("$gte", self._reached.time, tailable=True, awaitData=True)
        self._unchecked = self._reached.time > 0

    def close(self) -> None:
        self._runs = None
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def read(self) -> IndexedRun | None:
        """Return the next run, which may hold no captured change; None if there is nothing new for a while."""
        found = self._rest()
        if found is None:
            if self._ended:
                self._tail()
            answer = self._next()
            self.answered_at = answer.at
            if len(answer.starts):
                self._runs = self._read(answer)
                found = self._rest()
        return found

    def _rest(self) -> IndexedRun | None:
        """Return the next run of the latest answer; None if there is none."""
        if self._runs is None:
            return None
        found = next(self._runs, None)
        if found is None:
            self._runs = None
        return found

    def _next(self) -> CursorBatch:
        """Return the next answer, without entries that have already been read."""
        assert self._cursor is not None
        if self._begins and not self._unchecked:
            # A server may fix the start of a tail after it has searched the log for the first answer. Entries written
            # in between are in the answer to this query, even if the tail misses them. The reader may have paused
            # since: the last entry that was read proves that no later entry has been removed from the log.
            cursor = self._find("$gte", self._reached.time)
            try:
                answer = cursor.next()
                if self._reached.time:
                    self._check(answer)
                self._begins = cursor.alive
            finally:
                cursor.close()
            return self._fresh(answer)
        answer = self._cursor.next()
        if self._unchecked:
            self._check(answer)
        if not self._cursor.alive:
            # an ordinary cursor at its end, or a tailable cursor that found no entry: the server closes it at once
            self._ended = True
        return self._fresh(answer) if self._tails else answer

    def _fresh(self, answer: CursorBatch) -> CursorBatch:
        """Return the answer without entries that have already been read."""
        if not len(answer.starts):
            return answer
        places, kinds = fields.locate(answer.data, answer.starts, ("ts",))
        fresh = fields.int64s(answer.data, places[0], kinds[0]) > self._reached.time
        return answer if fresh.all() else replace(answer, starts=answer.starts[fresh])

    # --- positions -----------------------------------------------------------------------------------------------

    def _check(self, answer: CursorBatch) -> None:
        """Check that the answer begins with the last entry that was read, unchanged.

        Raises PositionLost or NotYetCommitted.
        """
        if not len(answer.starts):
            self._is_lost(None)
        entry = answer.starts[:1]
        places, kinds = fields.locate(answer.data, entry, ("ts", "h", "t"))
        first = int(fields.int64s(answer.data, places[0], kinds[0])[0])
        if first != self._reached.time:
            self._is_lost(first)
        for row, was in ((1, self._reached.hash), (2, self._reached.term)):
            found = int(fields.int64s(answer.data, places[row], kinds[row])[0])
            if was is not None and places[row, 0] >= 0 and found != was:
                raise _rolled_back(self._reached)
        self._unchecked = False

    def _is_lost(self, first: int | None) -> None:
        """Raise the error for an oplog without the last entry that was read: PositionLost or NotYetCommitted."""
        oldest = oldest_time(self._client)
        if oldest is not None and oldest > self._reached.time:
            raise PositionLost(
                f"The oplog no longer reaches back to {self._reached}, where reading stopped.",
                f"{REMEDY} A larger oplog, or storage.oplogMinRetentionHours, keeps more.",
            )
        if first is None and self._majority and newest(self._client).time >= self._reached.time:
            # A new primary shows majority data only once a majority has the first entry of its term.
            raise NotYetCommitted
        raise _rolled_back(self._reached)

    # --- entries -------------------------------------------------------------------------------------------------

    def _read(self, answer: CursorBatch) -> Iterator[IndexedRun]:
        """Yield the answer in runs. A transaction of several entries begins a new run."""
        entries = located(answer)
        low = 0
        rows = self._singles(entries)
        for command in np.flatnonzero(entries.is_command).tolist():
            own = command_of(entries, command)
            if own is None:
                self._tell(entries, command)
                continue
            earlier = self._before(entries, command)
            if not earlier or self._whole:
                order = 1
                for at in earlier:
                    order = self._fetched(at).add_to(rows, command, order)
                own.add_to(rows, command, order)
                continue
            if low < command:
                yield self._run(entries, rows, low, command, True)
            yield from self._transaction(entries, command, earlier, own)
            low, rows = command + 1, self._singles(entries, command + 1)
        if low < len(entries.time):
            yield self._run(entries, rows, low, len(entries.time), True)

    def _tell(self, entries: Entries, command: int) -> None:
        if self._commands is not None and int(entries.time[command]) > self._reached.time:
            start = int(entries.starts[command])
            self._commands.entry(entries.data[start : start + int(fields.load(entries.data, start))].tobytes())

    def _singles(self, entries: Entries, low: int = 0) -> Parts:
        """Return the entries from the index `low` on that are single changes."""
        entry = low + np.flatnonzero(entries.is_change[low:])
        return Parts(entries.data, entry, entries.starts[entry], entries.op[entry], np.zeros(len(entry), np.int64))

    def _transaction(self, entries: Entries, command: int, earlier: list[int], own: Operations) -> Iterator[IndexedRun]:
        """Yield a run for each entry of the transaction that ends with the entry `command`."""
        order = 1
        for at in earlier:
            rows = Parts.empty(entries.data)
            order = self._fetched(at).add_to(rows, command, order)
            yield self._run(entries, rows, command, command + 1, False)
        rows = Parts.empty(entries.data)
        own.add_to(rows, command, order)
        yield self._run(entries, rows, command, command + 1, True)

    def _run(self, entries: Entries, rows: Parts, low: int, high: int, is_whole: bool) -> IndexedRun:
        """Return the run of `rows`, changes of the entries `[low, high)`. `is_whole` is False if further runs of these
        entries follow."""
        found = rows.joined(high)
        time = entries.time
        number = numbered(time[found.entry], *self._counted)
        counted = (int(time[found.entry[-1]]), int(number[-1])) if len(number) else self._counted
        namespace, _ = self._numbers(found.data, found.at)
        whole = ChangeArrays(
            found.data, found.at, time[found.entry], number, found.op, namespace, entries.hashes[found.entry],
            entries.hashed[found.entry], found.order, entries.terms[found.entry],
        )  # fmt: skip
        part = slice(low, high)
        reached = _position_behind(time[part], counted, entries.hashes[part], entries.hashed[part], entries.terms[part])
        fresh = whole.part(slice(whole.first_after(self._reached), None))
        captured = fresh.part(fresh.namespace >= 0)
        kept = _kept(captured, len(entries.data))
        # the assignments from here on cannot fail, so that the state stays consistent
        self._counted = counted
        if self._reached.is_before(reached):
            self._reached = reached
        if is_whole:
            self.caught_up_at = max(self.caught_up_at, self._reached.time)
        return IndexedRun.of(kept, Read(self._reached), None, len(found.data))

    def _numbers(self, data: Bytes, at: Int64s) -> tuple[Any, Any]:
        """Return the number of each change's collection, and the collections' names."""
        places, kinds = fields.locate(data, at, ("ns",))
        if (kinds[0] != fields.STRING).any():
            raise DecodeError("An operation of the oplog has no namespace.")
        sizes = fields.sizes_of(data, places[0])
        codes, texts = fields.distinct(data, places[0] + 4, sizes - 1)
        names = [split(text.decode("utf-8", "replace")) for text in texts]
        number = np.array([self._namespaces.number(name) for name in names] or [-1], np.int32)
        return number[codes], names

    def _before(self, entries: Entries, command: int) -> list[int]:
        """Return the timestamps of a transaction's earlier entries, the oldest first, by following `prevOpTime`."""
        found: list[int] = []
        data, latest = entries.data, int(entries.time[command])
        place, kind = int(entries.previous[command]), int(entries.previous_kind[command])
        while kind == fields.DOCUMENT:
            inside, inner = fields.locate(data, np.array([place], np.int64), ("ts",))
            at = int(fields.int64s(data, inside[0], inner[0])[0])
            if at <= 0:
                break
            if at >= latest:
                raise DecodeError(f"The entry of the oplog at {_stamp(latest)} says that it follows a later one.")
            # the operations are read later, one entry at a time
            links = {"ts": 1, "prevOpTime": 1, **{f"o.{name}": 1 for name in _CONTINUED}}
            data, places, kinds = self._entry(at, projection=links)
            inside, inner = fields.locate(data, places[1], _CONTINUED)
            if kinds[1, 0] != fields.DOCUMENT or not any(flags(data, inside, inner)):
                # the previous statement of a session's retryable writes, which took effect by itself
                break
            found.append(at)
            latest, place, kind = at, int(places[2, 0]), int(kinds[2, 0])
        return found[::-1]

    def _fetched(self, at: int) -> Operations:
        """Fetch the operations of an earlier entry of a transaction."""
        data, places, kinds = self._entry(at)
        inside, inner = fields.locate(data, places[1], ("applyOps",))
        array = int(inside[0, 0]) if kinds[1, 0] == fields.DOCUMENT and inner[0, 0] == fields.ARRAY else None
        return Operations(data, array)

    def _entry(self, at: int, **more: Any) -> tuple[Bytes, Int64s, Bytes]:
        """Fetch the entry with a timestamp. Return its data, and the places and types of `ts`, `o` and `prevOpTime`.

        Raises PositionLost if the oplog no longer has the entry.
        """
        from bson.timestamp import Timestamp

        # no majority read is needed: a majority has a later entry, and therefore this one
        stamp = {"ts": {"$gte": Timestamp(at >> 32, at & 0xFFFFFFFF)}}
        command = {"find": "oplog.rs", "filter": stamp, "limit": 1, "singleBatch": True, **more}
        answer = RawCursor(self._client, "local", command).next()
        places, kinds = fields.locate(answer.data, answer.starts, ("ts", "o", "prevOpTime"))
        if not len(answer.starts) or int(fields.int64s(answer.data, places[0], kinds[0])[0]) != at:
            raise PositionLost(f"The oplog no longer holds the beginning of the transaction at {_stamp(at)}.", REMEDY)
        return answer.data, places, kinds


def _stamp(at: int) -> str:
    return f"{at >> 32}:{at & 0xFFFFFFFF}"


def _position_behind(
    time: Int64s, counted: tuple[int, int], hashes: Int64s, hashed: Flags, terms: Int64s
) -> ChangePosition:
    """Return the position after the last entry. `counted` holds the time and the number of the last change."""
    last, term = int(time[-1]), int(terms[-1])
    count = counted[1] if counted[0] == last else 0
    return ChangePosition(last, count, hash=int(hashes[-1]) if hashed[-1] else None, term=None if term < 0 else term)


def _kept(rows: ChangeArrays, size: int) -> ChangeArrays:
    """Return the rows, copied to a smaller buffer if they fill less than half of theirs or it is larger than `size`
    bytes."""
    used = int(fields.sizes_of(rows.data, rows.at).sum())
    return rows.compacted() if 2 * used < len(rows.data) or len(rows.data) > size else rows


def _rolled_back(position: ChangePosition) -> PositionLost:
    return PositionLost(
        f"The oplog has no entry at {position}, where reading stopped, though it holds older ones: it was rolled back "
        "after an election, or this is another replica set.",
        REMEDY,
    )


def oldest_time(client: MongoClient[Any]) -> int | None:
    """Return the timestamp of the oldest entry of the oplog; None if it is empty."""
    return _end(client, {"$natural": 1})[0]


def newest(client: MongoClient[Any], *, majority: bool = False) -> ChangePosition:
    """Return the position after the newest entry of the oplog; if the oplog is empty, a position before any entry.

    With `majority` it is the newest entry that a majority has: an election may roll back later entries.
    """
    time, number, term = _end(client, {"$natural": -1}, {"readConcern": {"level": "majority"}} if majority else {})
    return ChangePosition(0, WHOLE) if time is None else ChangePosition(time, WHOLE, hash=number, term=term)


def _end(
    client: MongoClient[Any], sort: Mapping[str, int], more: Mapping[str, Any] | None = None
) -> tuple[int | None, int | None, int | None]:
    command = {"find": "oplog.rs", "filter": {}, "sort": dict(sort), "limit": 1, "singleBatch": True, **(more or {})}
    answer = RawCursor(client, "local", command).next()
    if not len(answer.starts):
        return None, None, None
    places, kinds = fields.locate(answer.data, answer.starts, ("ts", "h", "t"))
    found = [int(fields.int64s(answer.data, places[row], kinds[row])[0]) for row in range(3)]
    known = [found[row] if places[row, 0] >= 0 else None for row in (1, 2)]
    return found[0], known[0], known[1]


def operation_time(client: MongoClient[Any]) -> int:
    """Return the timestamp of the server's newest operation, in 64 bits."""
    answer: Mapping[str, Any] = client.admin.command("ping")
    at = answer.get("operationTime")
    if at is None:
        raise PrerequisiteError(
            "The server reports no operation time.",
            "It must be a member of a replica set, or a mongos, of version 3.6 or later.",
        )
    return int(at.time) << 32 | int(at.inc)
