"""Buffers at the end of mapped memory, so that a read or a write beyond them always crashes."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_ROOM = 64 * _PAGE
_SLOTS = 24

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Guarded:
    """An allocator of buffers whose last byte stands before an inaccessible page.

    Buffers of up to 256 kB come from a few areas in turn, so that each is overwritten only long after it was given.
    """

    def __init__(self) -> None:
        self._areas = [_area(_ROOM) for _ in range(_SLOTS)]
        self._next = 0

    def writable(self, size: int) -> Bytes:
        """Return a buffer of `size` bytes with arbitrary content."""
        if size > _ROOM:
            area = _area(-(-size // _PAGE) * _PAGE)
        else:
            area = self._areas[self._next]
            self._next = (self._next + 1) % _SLOTS
        return area[len(area) - size :]

    def copy(self, content: bytes) -> Bytes:
        """Return a read-only buffer with `content`."""
        view = self.writable(len(content))
        view[:] = np.frombuffer(content, np.uint8)
        view.flags.writeable = False
        return view

    def numbers(self, values: Iterable[int], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[np.int64]:
        """Return a read-only array of numbers."""
        found = np.array(list(values), dtype)
        view = self.writable(found.nbytes).view(dtype)
        view[:] = found
        view.flags.writeable = False
        return view


def _area(size: int) -> Bytes:
    """Return `size` bytes, a whole number of pages, before an inaccessible page."""
    memory = mmap.mmap(-1, size + _PAGE)
    view = np.frombuffer(memory, np.uint8)
    if _libc.mprotect(view.ctypes.data + size, _PAGE, _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    return view[:size]
