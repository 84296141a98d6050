"""Bytes of the log on disk: a few unlinked temporary files, appended to and freed as a whole. Planner.

The files are in Python's directory for temporary files (TMPDIR). They have no name there, so nothing is left of them
whatever ends the process.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

import numpy as np

from tailrace.columns.batch import Bytes
from tailrace.errors import SpoolFailed

# A file of this size gets no more: it is freed only when all its pieces have been released.
FILE_BYTES = 32 << 20


def spool_failed(error: OSError) -> SpoolFailed:
    """Return the error for a failure of a temporary file."""
    try:
        directory = tempfile.gettempdir()
    except OSError:
        directory = "the directory for temporary files"
    return SpoolFailed(
        f"Changes that wait for Spark cannot be kept in {directory}: {error.strerror or error}.",
        "Make room there, or name another directory with TMPDIR. max.queue.size.in.bytes bounds what waits, and what "
        "is kept of transactions in progress.",
    )


@dataclass(eq=False, slots=True)
class _File:
    """A file whose first `end` bytes are used, with `places` pieces still held."""

    file: IO[bytes]
    end: int = 0
    places: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Place:
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

    def append(self, data: Bytes) -> Place:
        """Keep `data`. On SpoolFailed nothing of it is kept."""
        try:
            place = self._reserve(int(data.nbytes))
        except OSError as error:
            raise spool_failed(error) from error
        try:
            _write(place.file.file.fileno(), data, place.start)
        except OSError as error:
            # give back the room of the part that was written
            with suppress(OSError):
                os.ftruncate(place.file.file.fileno(), place.start)
            self.release(place)
            raise spool_failed(error) from error
        place.file.end += place.size
        return place

    def read(self, place: Place, first: int, last: int) -> Bytes:
        """Return the bytes `[first, last)` of a piece. Raises SpoolFailed."""
        data = np.empty(last - first, np.uint8)
        try:
            _read(place.file.file.fileno(), data, place.start + first)
        except OSError as error:
            raise spool_failed(error) from error
        return data

    def release(self, place: Place) -> None:
        """Release a piece. A file without pieces is closed, which frees its room."""
        with self._lock:
            place.file.places -= 1
            if not place.file.places:
                self._open.discard(place.file)
                if self._last is place.file:
                    self._last = None
                place.file.file.close()

    def _reserve(self, size: int) -> Place:
        with self._lock:
            if self._last is None or self._last.end >= self._file_bytes:
                # `release` closes it
                file = tempfile.TemporaryFile(buffering=0, prefix="tailrace-spool-")  # noqa: SIM115
                self._last = _File(file)
                self._open.add(self._last)
            self._last.places += 1
            return Place(self._last, self._last.end, size)


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
