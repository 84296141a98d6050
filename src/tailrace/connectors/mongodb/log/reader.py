"""LogReader: the thread that reads the oplog or a change stream into a bounded spool. Planner."""

from __future__ import annotations

import logging
from collections import deque
from typing import Protocol

from tailrace.connectors.mongodb.log.chunk import Chunk, Rows
from tailrace.connectors.mongodb.log.position import Position, Read, Releasable
from tailrace.connectors.mongodb.server.faults import explained_error, is_passing
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import TailraceError
from tailrace.runtime import THREADS, Runtime, Thread

log = logging.getLogger("tailrace")

_BACKLOG_ANSWER = 1 << 20


class Feed(Protocol):
    """Where captured changes come from, used by one thread. Raises the driver's errors and TailraceError."""

    caught_up_at: int
    """A BSON timestamp in 64 bits up to which the server has sent every change, as its answers prove it."""

    answered_at: int
    """The server's operation time in its latest answer, which may be ahead of what it has sent."""

    def open(self, position: Position) -> None:
        """Begin behind `position`, with the next `read`; also after an error."""
        ...

    def read(self) -> Chunk | None:
        """The next chunk; None when there is nothing new for a while."""
        ...

    def close(self) -> None: ...


class LogReader:
    """Reads on from `start` and keeps what Spark has not committed.

    The spool holds up to `memory_limit` bytes; when it is full the thread waits, unless the batch that is asked for
    again is not all there yet. A lost connection is tried again `max_retries` times in a row (-1: for ever) with pauses
    that double from `first_delay` to `retry_delay` seconds. Any other error ends the thread; it is raised by the calls
    that need what was not read, when all that was read has been planned: the server may not have that any more.
    """

    def __init__(
        self,
        feed: Feed,
        start: Position,
        *,
        memory_limit: int = 128 << 20,
        max_retries: int = -1,
        retry_delay: float = 10.0,
        first_delay: float = 0.1,
        runtime: Runtime = THREADS,
    ) -> None:
        self._runtime = runtime
        self._feed = feed
        self._limit = memory_limit
        self._max_retries = max_retries
        self._retry_delay = retry_delay
        self._first_delay = first_delay
        self._chunks: deque[Chunk] = deque()
        self._held = 0
        self._read_bytes = 0
        # so it is taken to be until an answer tells otherwise
        self._caught_up = True
        self.reached = Read(start)
        # where a batch ends that is wanted whatever the spool holds
        self._needed = start
        # the feed's caught_up_at, as far as its chunks are here
        self._read_to = 0
        self._error: BaseException | None = None
        self._closed = False
        self._change = runtime.condition()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = self._runtime.start(self._run, "tailrace-mongodb-reader")

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read_on()
        except BaseException as error:
            # whatever it is, the planner must not wait for a thread that is gone
            self._fail(error)
        finally:
            self._feed.close()

    def _read_on(self) -> None:
        failures = 0
        opened = False
        while not self._closed:
            try:
                if not opened:
                    self._feed.open(self.reached)
                    opened = True
                chunk = self._feed.read()
                failures = 0
            except Exception as error:
                opened = False
                failures += 1
                if not is_passing(error) or (self._max_retries >= 0 and failures > self._max_retries):
                    raise
                log.warning("reading the log is interrupted (%s): it is tried again", type(error).__name__)
                self._pause(min(self._first_delay * 2 ** min(failures - 1, 20), self._retry_delay))
                continue
            self._keep(chunk)

    def _fail(self, error: BaseException) -> None:
        with self._change:
            self._error = error if isinstance(error, TailraceError) else explained_error(error)
            self._change.notify_all()

    def _pause(self, seconds: float) -> None:
        until = self._runtime.monotonic() + seconds
        while not self._closed and self._runtime.monotonic() < until:
            self._runtime.sleep(0.05)

    def _keep(self, chunk: Chunk | None) -> None:
        with self._change:
            # an answer of some size is followed by more
            self._caught_up = chunk is None or chunk.read_bytes < _BACKLOG_ANSWER
            if chunk is not None:
                if len(chunk.rows):
                    self._chunks.append(chunk)
                    self._held += len(chunk.rows.data)
                # not before the chunk is there
                self.reached = chunk.reached
                self._read_bytes += chunk.read_bytes
            self._read_to = self._feed.caught_up_at
            self._change.notify_all()
            while self._held > self._limit and not self.reached.is_before(self._needed) and not self._closed:
                self._change.wait(1.0)

    # --- the planner's calls -------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Until something is read, at most so long. Raises what the thread met."""
        with self._change:
            self._raise()
            self._change.wait(seconds)
            self._raise()

    def check(self) -> None:
        """Raise what the thread met, when nothing that it has read is left."""
        with self._change:
            if not self._chunks:
                self._raise()

    @property
    def has_failed(self) -> bool:
        """Whether nothing more is read."""
        return self._error is not None

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def has_changes(self) -> bool:
        with self._change:
            return bool(self._chunks)

    @property
    def is_behind(self) -> bool:
        """Whether a backlog is being read."""
        with self._change:
            return not self._caught_up

    def is_filling(self, max_bytes: int) -> bool:
        """Whether a backlog is being read that has not given half of `max_bytes` yet."""
        with self._change:
            if self._caught_up or self._error is not None:
                return False
            return bool(self._chunks) and self._held < min(max_bytes, self._limit) // 2

    @property
    def read_bytes(self) -> int:
        """How many bytes of the log have been read so far."""
        return self._read_bytes

    def newest(self, planned: Position) -> Position:
        """What is known to be there: `planned` when no captured change waits behind it."""
        with self._change:
            last = _last(self._chunks[-1]) if self._chunks else planned
            head = 0 if self._caught_up else self._feed.answered_at
        return max(planned, last, Position(head), key=lambda one: one.key)

    def has_read(self, target: int) -> bool:
        """Whether the log has been read to the timestamp `target`."""
        return self._read_to >= target or self.reached.time > target

    def release(self, position: Releasable) -> None:
        """Forget everything up to `position`."""
        with self._change:
            while self._chunks and not position.is_before(_last(self._chunks[0])):
                self._held -= len(self._chunks.popleft().rows.data)
            self._change.notify_all()

    def plan(self, start: Position, max_rows: int, max_bytes: int, upto: Position | None = None) -> Read:
        """The end of a batch behind `start`: at least one change if there is any, at most the limits, not past `upto`.

        Returns `start` when there is none; raises what the thread met when there will be none.
        """
        with self._change:
            chunks = list(self._chunks)
            reached = self.reached
            if self.has_failed and not any(chunk.rows.first_after(start) < len(chunk.rows) for chunk in chunks):
                self._raise()
        # what a batch begins with was read
        end, whole = Read(start), True
        for chunk in chunks:
            first = chunk.rows.first_after(start)
            last = len(chunk.rows) if upto is None else chunk.rows.first_after(upto)
            if first >= last:
                continue
            sizes = fields.sizes_of(chunk.rows.data, chunk.rows.at[first:last]).cumsum()
            count = min(last - first, max_rows, int(sizes.searchsorted(max_bytes, side="right")))
            if count < last - first or last < len(chunk.rows):
                whole = False
            if end == start:
                count = max(count, 1)
            if count <= 0:
                return end
            end = chunk.position(first + count - 1)
            max_rows -= count
            max_bytes -= int(sizes[count - 1])
            if not whole:
                return end
        # all that is there: the batch may end behind what no captured change follows
        if upto is None and end != start and whole and end.is_before(reached):
            return reached
        return end

    def take(self, start: Position, end: Position) -> list[Rows]:
        """The changes in `(start, end]`, which have been read."""
        with self._change:
            chunks = list(self._chunks)
        found = []
        for chunk in chunks:
            first, last = chunk.rows.first_after(start), chunk.rows.first_after(end)
            if first < last:
                found.append(chunk.rows.part(slice(first, last)))
        return found

    def demand(self, end: Position) -> None:
        """Read on to `end` though the spool is full: one batch has to hold all of it."""
        with self._change:
            if self._needed.is_before(end):
                self._needed = end
                self._change.notify_all()

    def read_through(self, end: Position, seconds: float) -> bool:
        """Wait until everything up to `end` has been read; False when that takes longer than `seconds`.

        Until then the spool may hold more than its limit. Raises what the thread met before it came there.
        """
        self.demand(end)
        until = self._runtime.monotonic() + seconds
        while self.reached.is_before(end) and self._read_to <= end.time:
            left = until - self._runtime.monotonic()
            if left <= 0:
                return False
            self.wait(min(left, 0.5))
        return True

    def close(self) -> None:
        """End the thread. May come twice."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(5.0)


def _last(chunk: Chunk) -> Position:
    return Position(int(chunk.rows.time[-1]), int(chunk.rows.number[-1]))
