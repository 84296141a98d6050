"""Spool: what the reader has read and Spark has not committed yet, bounded in memory and on disk.

Used by two threads of the planner: the reader puts, the query's calls plan, take and release.
"""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from tailrace.connectors.postgres.indexing import Chunk
from tailrace.connectors.postgres.position import LogPosition

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


class Spool:
    """Chunks in log order.

    Beyond `memory_limit` bytes the messages of further chunks go to unlinked temporary files; beyond `memory_limit
    + disk_limit` bytes `full` tells the reader to wait. Both bounds are exceeded by one chunk at most.
    """

    def __init__(self, memory_limit: int, disk_limit: int) -> None:
        self._memory_limit = memory_limit
        self._limit = memory_limit + disk_limit
        self._chunks: deque[Chunk] = deque()
        self._sizes: deque[tuple[int, bool]] = deque()
        self._bytes = 0
        self._in_memory = 0
        self._changed = threading.Condition()
        # counts the changes, for who has looked and is going to wait
        self.version = 0

    @property
    def full(self) -> bool:
        return self._bytes >= self._limit

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def put(self, chunk: Chunk) -> None:
        size = int(chunk.data.nbytes)
        spilled = self._in_memory + size > self._memory_limit and self._in_memory > 0
        if spilled:
            with tempfile.TemporaryFile(prefix="tailrace-spool-") as file:
                chunk.data.tofile(file)
                file.flush()
                chunk.data = np.memmap(file, np.uint8, "r", shape=(size,)) if size else chunk.data
        with self._changed:
            if not spilled and self._is_joined(chunk):
                last, _ = self._sizes.pop()
                chunk = self._chunks.pop().joined(chunk)
                self._bytes -= last
                self._in_memory -= last
                size = int(chunk.data.nbytes)
            self._chunks.append(chunk)
            self._sizes.append((size, spilled))
            self._bytes += size
            self._in_memory += 0 if spilled else size
            self._tell()

    def _is_joined(self, chunk: Chunk) -> bool:
        """Whether the chunk and the last one are small, and both in memory."""
        if not self._chunks or self._sizes[-1][1]:
            return False
        last = self._chunks[-1]
        size, rows = self._sizes[-1][0] + chunk.data.nbytes, len(last) + len(chunk)
        return bool(size <= JOINED_BYTES) and rows <= JOINED_ROWS

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
        """Drop the chunks whose rows are all at or before `position`."""
        with self._changed:
            while self._chunks and self._is_passed(self._chunks[0], position):
                self._chunks.popleft()
                size, spilled = self._sizes.popleft()
                self._bytes -= size
                self._in_memory -= 0 if spilled else size
            self._tell()

    @staticmethod
    def _is_passed(chunk: Chunk, position: LogPosition) -> bool:
        if len(chunk):
            return chunk.first_after(position) == len(chunk)
        return not len(chunk.end_commit) or int(chunk.end_commit[-1]) <= position.commit_lsn

    def plan(self, start: LogPosition, max_rows: int, max_bytes: int, upto: int | None = None) -> LogPosition:
        """The end of the next batch after `start`: the last commit within the limits, or a cut in a larger one.

        `upto` is a commit LSN that the batch must not pass. Returns `start` when there is no whole transaction with
        a row to deliver and what there is stays within the limits. A batch has at least one row whatever they are.
        """
        with self._changed:
            chunks = list(self._chunks)
        best = start
        last: LogPosition | None = None
        rows = size = 0
        for chunk in chunks:
            first = chunk.first_after(start)
            fitting = first + self._fitting(chunk, first, max_rows - rows, max_bytes - size)
            ends = int(np.searchsorted(chunk.end_rows, fitting, "right"))
            if upto is not None:
                ends = min(ends, int(np.searchsorted(chunk.end_commit, upto, "right")))
            if ends and rows + int(chunk.end_rows[ends - 1]) - first > 0:
                best = chunk.end(ends - 1)
            if fitting < len(chunk):
                if best is not start:
                    return best
                if fitting > first:
                    return self._cut(chunk, fitting - 1, start)
                return last or self._cut(chunk, first, start)
            if len(chunk) > first:
                last = self._cut(chunk, len(chunk) - 1, start)
                rows += len(chunk) - first
                size += chunk.size(first)
        return best

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
        end = int(chunk.transactions.previous_end[of])
        return LogPosition(
            int(chunk.transactions.commit_lsn[of]),
            end if end > 0 else start.end_lsn,
            int(chunk.ordinal[row]) + 1,
            at_us=start.at_us,
        )

    def take(self, start: LogPosition, end: LogPosition) -> list[Rows]:
        """The rows after `start` up to and including `end`, in log order."""
        with self._changed:
            chunks = list(self._chunks)
        found = []
        for chunk in chunks:
            first, last = chunk.first_after(start), chunk.first_after(end)
            if first < last:
                found.append(Rows(chunk, first, last))
        return found

    def holds_rows_after(self, position: LogPosition) -> bool:
        with self._changed:
            return any(chunk.first_after(position) < len(chunk) for chunk in self._chunks)
