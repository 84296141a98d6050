"""Buffers of consecutive messages: the arrays that kernels take, and copies of selected messages. Planner and tasks.

Message i is `data[offsets[i]:offsets[i + 1]]`. Kernels never raise: they return the row at which they stopped, and
plain Python says what is wrong there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.batch import Bytes, Int32s, Int64s
from tailrace.errors import DecodeError
from tailrace.kernels.compiled import kernel

_Scalar = TypeVar("_Scalar", bound=np.generic)


def frozen(array: npt.NDArray[Any], dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return a read-only contiguous view; a copy only if dtype or layout demand it.

    numba distinguishes the types of read-only and writable arrays. With read-only inputs throughout, each kernel has
    one compiled version.
    """
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


def pooled(size: int) -> Bytes:
    """Return uninitialised bytes from Arrow's pool, which reuses pages: touching fresh ones takes long."""
    buffer: Bytes = np.frombuffer(pa.allocate_buffer(max(size, 1)), dtype=np.uint8)
    return buffer[:size]


def check_offsets(data: Bytes, offsets: Int64s, messages: int) -> None:
    """Raise DecodeError unless `offsets` cut `data` into that many messages, none of negative length."""
    if messages < 0 or len(offsets) != messages + 1:
        raise DecodeError(f"{messages} messages need {messages + 1} offsets; there are {len(offsets)}.")
    if offsets[0] < 0 or offsets[-1] > len(data) or bool((offsets[1:] < offsets[:-1]).any()):
        raise DecodeError("The offsets of the messages do not rise within the buffer.")


def check_indexes(indexes: Int64s | Int32s, count: int, what: str) -> None:
    """Raise IndexError unless all indexes are below `count`."""
    if len(indexes) and not 0 <= indexes.min() <= indexes.max() < count:
        raise IndexError(f"There are {count} {what}s; the indexes reach from {indexes.min()} to {indexes.max()}.")


def gather(data: Bytes, offsets: Int64s, rows: Int64s) -> tuple[Bytes, Int64s]:
    """Copy the messages at the indexes `rows` together, in that order; return their bytes and offsets.

    Raises DecodeError for offsets that do not fit the data, IndexError for rows that do not exist.
    """
    return gather_all([(data, offsets, rows)])


def gather_all(parts: Sequence[tuple[Bytes, Int64s, Int64s]]) -> tuple[Bytes, Int64s]:
    """Copy the messages of several parts (data, offsets, rows) together, one part after another; see `gather`."""
    known = []
    gathered = np.zeros(sum(len(rows) for _, _, rows in parts) + 1, dtype=np.int64)
    low = 1
    for given in parts:
        data, offsets, rows = frozen(given[0], np.uint8), frozen(given[1], np.int64), frozen(given[2], np.int64)
        check_offsets(data, offsets, len(offsets) - 1)
        check_indexes(rows, len(offsets) - 1, "message")
        np.subtract(offsets[rows + 1], offsets[rows], out=gathered[low : low + len(rows)])
        low += len(rows)
        known.append((data, offsets, rows))
    np.cumsum(gathered, out=gathered)
    # one buffer for all parts, because touching fresh memory takes longer than filling it
    copy = pooled(int(gathered[-1]))
    low = 0
    for data, offsets, rows in known:
        high = low + len(rows)
        _gather(data, offsets, rows, copy[int(gathered[low]) : int(gathered[high])])
        low = high
    return copy, gathered


@kernel
def _gather(data: Bytes, offsets: Int64s, rows: Int64s, copy: Bytes) -> None:
    to = 0
    first = 0
    while first < len(rows):
        # Neighbours in the log are copied together: most transactions change one table.
        last = first
        while last + 1 < len(rows) and rows[last + 1] == rows[last] + 1:
            last += 1
        start, end = offsets[rows[first]], offsets[rows[last] + 1]
        for index in range(end - start):
            # Unsigned, because otherwise numba checks for negative indexes, which makes this loop four times slower.
            copy[np.uintp(to + index)] = data[np.uintp(start + index)]
        to += end - start
        first = last + 1
