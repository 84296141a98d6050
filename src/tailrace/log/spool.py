"""Spool: runs that the reader has read and Spark has not committed yet, bounded in memory and on disk. Planner."""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Generic

import numpy as np

from tailrace.columns.batch import Bytes
from tailrace.errors import SpoolFailed
from tailrace.log.contracts import IndexedRun, P, Taken
from tailrace.process import disk
from tailrace.process.runtime import THREADS, Runtime

# --- temporary files --------------------------------------------------------------------------------------------------

# A file of this size gets no more pieces: it is freed only when all its pieces have been released.
FILE_BYTES = 32 << 20
# The most bytes of a spool in memory, also if max.queue.size.in.bytes is larger: the rest is in files.
MEMORY_BYTES = 128 << 20


def spool_failed(error: OSError, size: int = 0, what: str = "Changes that wait for Spark") -> SpoolFailed:
    """Return the error for a failure of a temporary file, to which `size` bytes were to be written."""
    directory = disk.temporary().directory
    room = disk.free(directory)
    counts = [f"{disk.megabytes(size)} were to be written"] if size else []
    counts += [] if room is None else [f"{disk.megabytes(room)} are free"]
    reason = "; ".join([error.strerror or str(error), *([", ".join(counts)] if counts else [])])
    return SpoolFailed(
        f"{what} cannot be kept in {directory}: {reason}.",
        "Make room there, or name another directory with TMPDIR. max.queue.size.in.bytes bounds what waits, and what "
        "is kept of transactions in progress. Nothing is lost: the next start reads again what was not delivered.",
    )


@dataclass(eq=False, slots=True)
class _File:
    """A file whose first `end` bytes are used, with `places` pieces still held."""

    file: IO[bytes]
    end: int = 0
    places: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class FilePlace:
    """The place of `size` bytes in a file."""

    file: _File
    start: int
    size: int


class Spill:
    """Keeps pieces of bytes in files of some `file_bytes`. One thread appends, others read and release."""

    def __init__(self, file_bytes: int = FILE_BYTES) -> None:
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._last: _File | None = None
        self._open: set[_File] = set()

    @property
    def files(self) -> int:
        """The number of open files, and so of descriptors."""
        return len(self._open)

    def append(self, data: Bytes) -> FilePlace:
        """Keep `data`. On SpoolFailed nothing of it is kept."""
        try:
            place = self._reserve(int(data.nbytes))
        except OSError as error:
            raise spool_failed(error, int(data.nbytes)) from error
        try:
            _write(place.file.file.fileno(), data, place.start)
        except OSError as error:
            # give back the room of the part that was written
            with suppress(OSError):
                os.ftruncate(place.file.file.fileno(), place.start)
            self.release(place)
            raise spool_failed(error, place.size) from error
        place.file.end += place.size
        return place

    def read(self, place: FilePlace, first: int, last: int) -> Bytes:
        """Return the bytes `[first, last)` of a piece. Raises SpoolFailed."""
        data = np.empty(last - first, np.uint8)
        try:
            _read(place.file.file.fileno(), data, place.start + first)
        except OSError as error:
            raise spool_failed(error) from error
        return data

    def release(self, place: FilePlace) -> None:
        """Release a piece. A file without pieces is closed, which frees its room."""
        with self._lock:
            place.file.places -= 1
            if not place.file.places:
                self._open.discard(place.file)
                if self._last is place.file:
                    self._last = None
                place.file.file.close()

    def _reserve(self, size: int) -> FilePlace:
        with self._lock:
            if self._last is None or self._last.end >= self._file_bytes:
                # `release` closes it
                file = tempfile.TemporaryFile(buffering=0, prefix="tailrace-spool-")  # noqa: SIM115
                self._last = _File(file)
                self._open.add(self._last)
            self._last.places += 1
            return FilePlace(self._last, self._last.end, size)


def _write(descriptor: int, data: Bytes, start: int) -> None:
    left = np.ascontiguousarray(data).data
    while left:
        written = os.pwrite(descriptor, left, start)
        left, start = left[written:], start + written


def _read(descriptor: int, data: Bytes, start: int) -> None:
    left = data.data
    while left:
        count = os.preadv(descriptor, [left], start)
        if not count:
            raise OSError(f"a temporary file ends {len(left)} bytes too early")
        left, start = left[count:], start + count


# --- the spool --------------------------------------------------------------------------------------------------------

# Consecutive runs that together stay below both limits are joined. A stream brings one run per commit, and every step
# of a batch runs once per run.
JOINED_BYTES = 256 << 10
JOINED_ROWS = 1024

# Of each row some 40 bytes of index stay in memory when its own bytes are on disk: small rows fill the spool before
# their bytes do.
MOST_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class _Held(Generic[P, Taken]):
    """A run, the size of its raw bytes, and the time, in s since 1970, at which the last of these bytes came.

    If the bytes are on disk, at `place`, the run itself has none.
    """

    run: IndexedRun[P, Taken]
    size: int
    read_s: float
    place: FilePlace | None

    def loaded(self, spill: Spill, first: int, last: int) -> IndexedRun[P, Taken]:
        """Return the run with the bytes of its rows `[first, last)` in memory."""
        if self.place is None:
            return self.run
        return self.run.with_data(first, last, partial(spill.read, self.place))


def limits(size: int) -> tuple[int, int]:
    """Return the limits in memory and on disk of a spool that holds up to `size` bytes in all."""
    memory = min(size, MEMORY_BYTES)
    return memory, size - memory


class Spool(Generic[P, Taken]):
    """Runs in log order, after `start`.

    Beyond `memory_limit` bytes, the raw bytes of further runs go to disk. From `memory_limit + disk_limit` bytes or
    MOST_ROWS rows on, `full` makes the reader wait, unless a batch being replayed has not been read to its end. One
    run, or such a batch, may exceed the limits. When the disk has refused a run, the spool is full until something is
    released.
    """

    def __init__(self, start: P, memory_limit: int, disk_limit: int, runtime: Runtime = THREADS) -> None:
        self._memory_limit = memory_limit
        self.limit = memory_limit + disk_limit
        self._held: deque[_Held[P, Taken]] = deque()
        self._spill = Spill()
        self._bytes = 0
        self._rows = 0
        self._in_memory = 0
        self._is_refused = False
        self._reached = start
        self._required: P | None = None
        self._runtime = runtime
        self._changed = runtime.condition()
        # bytes put here since the start
        self.put_bytes = 0
        # the transactions whose ends were put here since the start, and the bytes of the largest one; None: not known
        self.transactions: int | None = None
        self.transaction_bytes: int | None = None
        # bytes, up to now, of the transaction whose end has not come yet
        self._open_bytes = 0
        # when the last run of the batch that was planned last was put here, in s since 1970; None before the first
        self.planned_read_s: float | None = None
        # counts the changes, for callers that have looked and are going to wait
        self.version = 0

    @property
    def full(self) -> bool:
        """True if nothing more should be read for now."""
        is_full = self._is_refused or self._bytes >= self.limit or self._rows >= MOST_ROWS
        return is_full and not self.is_required

    @property
    def is_required(self) -> bool:
        """True if a batch that `require` has asked for has not been read to its end."""
        required = self._required
        return required is not None and not self.has_reached(required)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def __len__(self) -> int:
        """Return the number of runs held."""
        return len(self._held)

    def has_reached(self, position: P) -> bool:
        """Return True if every row up to `position` has been put here."""
        return not self._reached.is_before(position)

    def require(self, end: P) -> None:
        """Accept rows whatever the limits are, until every row up to `end` is here."""
        required = self._required
        if required is None or required.is_before(end):
            self._require(end)

    @contextmanager
    def requiring(self, end: P) -> Iterator[None]:
        """Call `require` for the duration of the context.

        `end` ends a batch that is planned already, perhaps under larger limits: nothing is delivered or released before
        all of it is here.
        """
        before = self._required
        self.require(end)
        try:
            yield
        finally:
            self._require(before)

    def _require(self, end: P | None) -> None:
        with self._changed:
            self._required = end
            self._notify()

    def put(self, run: IndexedRun[P, Taken], is_wanted: bool = True) -> None:
        """Keep a run, which follows the last one. On SpoolFailed the content is unchanged and the spool is full.

        If the run is not wanted, only note how far the log has been read.
        """
        size = int(run.data.nbytes) if is_wanted else 0
        place, whole = None, run
        reached = run.leads_to(self._reached)
        if size and self._in_memory and self._in_memory + size > self._memory_limit:
            try:
                place = self._spill.append(run.data)
            except SpoolFailed:
                with self._changed:
                    self._is_refused = True
                    self._notify()
                raise
            run = run.without_data()
        with self._changed:
            if reached != self._reached:
                self._count(whole)
            if is_wanted:
                self.put_bytes += size
                self._hold(_Held(run, size, self._runtime.time_ns() / 1e9, place))
            self._reached = reached
            self._notify()

    def _count(self, run: IndexedRun[P, Taken]) -> None:
        """Count the transactions that end in a run, and keep the size of the largest one."""
        sizes = run.sizes_between_ends()
        if sizes is None:
            return
        sizes[0] += self._open_bytes
        self._open_bytes = int(sizes[-1])
        self.transactions = (self.transactions or 0) + len(sizes) - 1
        self.transaction_bytes = max(self.transaction_bytes or 0, int(sizes.max()))

    def _hold(self, held: _Held[P, Taken]) -> None:
        if held.place is None and self._held and self._held[-1].place is None:
            last = self._held[-1]
            if last.size + held.size <= JOINED_BYTES and len(last.run) + len(held.run) <= JOINED_ROWS:
                joined = last.run.joined(held.run)
                if joined is not None:
                    self._held.pop()
                    self._bytes -= last.size
                    self._rows -= len(last.run)
                    self._in_memory -= last.size
                    held = _Held(joined, int(joined.data.nbytes), held.read_s, None)
        self._held.append(held)
        self._bytes += held.size
        self._rows += len(held.run)
        self._in_memory += 0 if held.place else held.size

    def wake(self) -> None:
        """Wake waiting callers: the reader has failed, or has passed a position without rows."""
        with self._changed:
            self._notify()

    def _notify(self) -> None:
        self.version += 1
        self._changed.notify_all()

    def wait(self, seconds: float, since: int | None = None) -> None:
        """Wait until something changes, at most `seconds`; return at once if `version` is no longer `since`."""
        with self._changed:
            if since is None or since == self.version:
                self._changed.wait(seconds)

    def release(self, position: P) -> None:
        """Drop the runs that have nothing to deliver after `position`."""
        with self._changed:
            while self._held and self._held[0].run.is_passed(position):
                held = self._held.popleft()
                self._bytes -= held.size
                self._rows -= len(held.run)
                if held.place:
                    self._spill.release(held.place)
                else:
                    self._in_memory -= held.size
                self._is_refused = False
            self._notify()

    def plan(
        self,
        start: P,
        max_rows: int,
        max_bytes: int,
        upto: P | None = None,
        *,
        cut: bool = False,
        whole: bool = False,
    ) -> P:
        """Return the end of the next batch after `start`, not past `upto`.

        The end is the last end of a transaction within the limits (`IndexedRun.end`). If no transaction ends within
        them and the rows exceed them, the end is a cut after the last row within the limits; with `whole` it is
        `start`. If the rows stay within the limits, it is `start`; with `cut` it is a cut after the last row. A batch
        has at least one row, whatever the limits, except a batch that only ends a transaction whose rows have all been
        delivered.
        """
        with self._changed:
            held = list(self._held)
        best = start
        # the run and the row after which the batch may be cut
        last: tuple[IndexedRun[P, Taken], int] | None = None
        rows = size = 0
        for entry in held:
            run = entry.run
            first = run.first_after(start)
            limit = len(run) if upto is None else max(first, run.first_after(upto))
            fitting = _fitting(run, first, limit, max_rows - rows, max_bytes - size)
            end = run.end(start, -1 if rows else first, fitting, upto)
            if end is not None:
                best, self.planned_read_s = end, entry.read_s
            if fitting < limit:
                if best is not start or whole:
                    return best
                self.planned_read_s = entry.read_s
                if fitting > first or last is None:
                    last = run, max(fitting - 1, first)
                return last[0].cut(last[1], start)
            if limit > first:
                last = run, limit - 1
                rows += limit - first
                size += run.size(first, limit)
            if limit < len(run):
                break
        if cut and last is not None and best is start:
            self.planned_read_s = held[-1].read_s
            return last[0].cut(last[1], start)
        return best

    def take(self, start: P, end: P) -> list[Taken]:
        """Return the rows after `start` up to and including `end`, in log order. Raises SpoolFailed."""
        with self._changed:
            held = list(self._held)
        found = []
        for entry in held:
            first, last = entry.run.first_after(start), entry.run.first_after(end)
            if first < last:
                found.append(entry.loaded(self._spill, first, last).taken(first, last))
        return found

    def holds_rows_after(self, position: P) -> bool:
        with self._changed:
            return any(held.run.first_after(position) < len(held.run) for held in self._held)


def _fitting(run: IndexedRun[P, Taken], first: int, limit: int, max_rows: int, max_bytes: int) -> int:
    """Return the end of the rows from `first` on, at most `limit`, that stay within `max_rows` and `max_bytes`."""
    last = min(limit, first + max(max_rows, 0))
    if last <= first or run.size(first, last) <= max_bytes:
        return max(last, first)
    return first + bisect_right(range(first + 1, last + 1), max_bytes, key=lambda end: run.size(first, end))
