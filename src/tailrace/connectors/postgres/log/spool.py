"""Spool: what the reader has read and Spark has not committed yet, bounded in memory and on disk.

Used by two threads of the planner: the reader puts, the query's calls plan, take and release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tailrace.connectors.postgres.log.indexing import Chunk
from tailrace.connectors.postgres.log.spill import Place, Spill
from tailrace.connectors.postgres.protocol.position import NOWHERE, START, LogPosition
from tailrace.errors import SpoolFailed
from tailrace.runtime import THREADS, Runtime

# A chunk that is smaller, in bytes and rows, takes the next small one in: a stream brings one for each commit, and
# everything that is done with a batch is done for each of its chunks.
JOINED_BYTES = 256 << 10
JOINED_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `[first, last)` of a chunk."""

    chunk: Chunk
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Held:
    """A chunk and the bytes of its messages. Where they are on disk, at `place`, the chunk itself has none."""

    chunk: Chunk
    size: int
    place: Place | None


class Spool:
    """Chunks in log order.

    Beyond `memory_limit` bytes the messages of further chunks go to disk; beyond `memory_limit + disk_limit` bytes
    `full` tells the reader to wait, unless a batch is being replayed that has not been read yet. Both bounds are
    exceeded by one chunk at most, and by such a batch. When the disk has refused a chunk, the spool is full as it is,
    until something has been released.
    """

    def __init__(self, memory_limit: int, disk_limit: int, runtime: Runtime = THREADS) -> None:
        self._memory_limit = memory_limit
        self._limit = memory_limit + disk_limit
        self._held: deque[_Held] = deque()
        self._spill = Spill()
        self._bytes = 0
        self._in_memory = 0
        self._is_refused = False
        self._reached = START
        self._required: LogPosition | None = None
        self._changed = runtime.condition()
        # counts the changes, for who has looked and is going to wait
        self.version = 0

    @property
    def full(self) -> bool:
        """Whether nothing more should be read for now."""
        return (self._is_refused or self._bytes >= self._limit) and not self.is_required

    @property
    def is_required(self) -> bool:
        """Whether a batch is being replayed that has not been read to its end."""
        required = self._required
        return required is not None and not self.has_reached(required)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def has_reached(self, position: LogPosition) -> bool:
        """Whether every row up to `position` has been put here."""
        return not self._reached.is_before(position)

    @contextmanager
    def requiring(self, end: LogPosition) -> Iterator[None]:
        """Be not full, whatever the limits are, before every row up to `end` is here.

        That is the end of a batch that is planned already, perhaps under larger limits: nothing is delivered, and so
        nothing released, before it is there as a whole.
        """
        self._require(end)
        try:
            yield
        finally:
            self._require(None)

    def _require(self, end: LogPosition | None) -> None:
        with self._changed:
            self._required = end
            self._tell()

    def put(self, chunk: Chunk) -> None:
        """Keep a chunk, which follows the last one. Raises SpoolFailed; then it holds what it did, and is full."""
        size = int(chunk.data.nbytes)
        place = None
        reached = chunk.reached(self._reached)
        if size and self._in_memory and self._in_memory + size > self._memory_limit:
            try:
                place = self._spill.append(chunk.data)
            except SpoolFailed:
                with self._changed:
                    self._is_refused = True
                    self._tell()
                raise
            chunk = replace(chunk, data=np.empty(0, np.uint8))
        with self._changed:
            if place is None and self._is_joined(chunk):
                chunk = self._held[-1].chunk.joined(chunk)
                last = self._held.pop()
                self._bytes -= last.size
                self._in_memory -= last.size
                size = int(chunk.data.nbytes)
            self._held.append(_Held(chunk, size, place))
            self._bytes += size
            self._in_memory += 0 if place else size
            self._reached = reached
            self._tell()

    def _is_joined(self, chunk: Chunk) -> bool:
        """Whether the chunk and the last one are small, and both in memory."""
        if not self._held or self._held[-1].place:
            return False
        last = self._held[-1]
        return last.size + chunk.data.nbytes <= JOINED_BYTES and len(last.chunk) + len(chunk) <= JOINED_ROWS

    def wake(self) -> None:
        """Let waiting callers look again: the reader has failed, or has passed a position without rows."""
        with self._changed:
            self._tell()

    def _tell(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def wait(self, seconds: float, since: int | None = None) -> None:
        """Wait until something changes, at most `seconds`; with `since` no longer than `version` is that."""
        with self._changed:
            if since is None or since == self.version:
                self._changed.wait(seconds)

    def release(self, position: LogPosition) -> None:
        """Drop the chunks that have nothing to deliver after `position`."""
        with self._changed:
            while self._held and self._is_passed(self._held[0].chunk, position):
                held = self._held.popleft()
                self._bytes -= held.size
                if held.place:
                    self._spill.release(held.place)
                else:
                    self._in_memory -= held.size
                self._is_refused = False
            self._tell()

    @staticmethod
    def _is_passed(chunk: Chunk, position: LogPosition) -> bool:
        """Whether the chunk has no row after `position`, nor the end of the transaction that it is in."""
        if chunk.first_after(position) < len(chunk):
            return False
        ends = chunk.end_commit
        if position.consumed is not None:
            return not len(ends) or int(ends[-1]) < position.commit_lsn
        return len(chunk) > 0 or not len(ends) or int(ends[-1]) <= position.commit_lsn

    def plan(
        self, start: LogPosition, max_rows: int, max_bytes: int, upto: int | None = None, *, cut: bool = False
    ) -> LogPosition:
        """The end of the next batch after `start`: the last commit within the limits, or a cut in a larger one.

        `upto` is a commit LSN that the batch must not pass. Returns `start` when there is no whole transaction with
        a row to deliver and what there is stays within the limits; with `cut` a cut after the last row that is there.
        A batch has at least one row whatever the limits are, but for one that brings a transaction to its end of
        which every row has been delivered.
        """
        with self._changed:
            chunks = [held.chunk for held in self._held]
        best = start
        last: LogPosition | None = None
        rows = size = 0
        for chunk in chunks:
            first = chunk.first_after(start)
            limit = len(chunk)
            if upto is not None:
                limit = max(first, int(np.searchsorted(chunk.row_commits(), upto, "right")))
            fitting = min(limit, first + self._fitting(chunk, first, max_rows - rows, max_bytes - size))
            ends = int(np.searchsorted(chunk.end_rows, fitting, "right"))
            if upto is not None:
                ends = min(ends, int(np.searchsorted(chunk.end_commit, upto, "right")))
            if ends and (rows + int(chunk.end_rows[ends - 1]) > first or _ends(chunk, ends, start)):
                best = chunk.end(ends - 1)
            if fitting < limit:
                if best is not start:
                    return best
                if fitting > first:
                    return self._cut(chunk, fitting - 1, start)
                return last or self._cut(chunk, first, start)
            if limit > first:
                last = self._cut(chunk, limit - 1, start)
                rows += limit - first
                size += chunk.size(first, limit)
            if limit < len(chunk):
                break
        return last if cut and last is not None and best is start else best

    @staticmethod
    def _fitting(chunk: Chunk, first: int, max_rows: int, max_bytes: int) -> int:
        """How many rows of the chunk, from `first`, stay within the limits."""
        count = min(len(chunk) - first, max(max_rows, 0))
        if count <= 0 or chunk.size(first, first + count) <= max_bytes:
            return max(count, 0)
        ends = chunk.offsets[chunk.rows[first : first + count] + 1] - chunk.offsets[chunk.rows[first]]
        return int(np.searchsorted(ends, max_bytes, "right"))

    @staticmethod
    def _cut(chunk: Chunk, row: int, start: LogPosition) -> LogPosition:
        """The position after `row`, inside its transaction: the slot may only forget what is before that.

        A row that is a whole transaction (a message outside of one) has nothing to be inside of.
        """
        ended = int(np.searchsorted(chunk.end_rows, row + 1))
        if chunk.is_message_alone(row) and ended < len(chunk.end_rows):
            return chunk.end(ended)
        of = int(chunk.transaction[row])
        previous, safe = int(chunk.transactions.previous_end[of]), start.safe_lsn
        end = previous if previous > 0 else start.end_lsn
        return LogPosition(
            int(chunk.transactions.commit_lsn[of]),
            end,
            int(chunk.ordinal[row]) + 1,
            # What the log has been read to may be further than the last commit that was not left out.
            idle_lsn=safe if safe > end else NOWHERE,
            at_us=start.at_us,
        )

    def take(self, start: LogPosition, end: LogPosition) -> list[Rows]:
        """The rows after `start` up to and including `end`, in log order. Raises SpoolFailed."""
        with self._changed:
            held = list(self._held)
        found = []
        for one in held:
            first, last = one.chunk.first_after(start), one.chunk.first_after(end)
            if first < last:
                found.append(Rows(self._loaded(one, first, last), first, last))
        return found

    def _loaded(self, held: _Held, first: int, last: int) -> Chunk:
        """The chunk with the messages of rows `[first, last)` in memory; of the others only where they all are."""
        chunk, place = held.chunk, held.place
        if place is None:
            return chunk
        low, high = int(chunk.offsets[chunk.rows[first]]), int(chunk.offsets[chunk.rows[last - 1] + 1])
        # messages before and after these become empty
        offsets = np.clip(chunk.offsets, low, high) - low
        return replace(chunk, data=self._spill.read(place, low, high), offsets=offsets)

    def holds_rows_after(self, position: LogPosition) -> bool:
        with self._changed:
            return any(held.chunk.first_after(position) < len(held.chunk) for held in self._held)


def _ends(chunk: Chunk, ends: int, start: LogPosition) -> bool:
    """Whether the first `ends` commits of the chunk end the transaction that `start` is inside of."""
    return start.consumed is not None and int(chunk.end_commit[ends - 1]) >= start.commit_lsn
