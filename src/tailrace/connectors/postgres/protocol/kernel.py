"""Memory and reads of numbers for the kernels over pgoutput's messages. Planner and worker.

Kernels never raise: they return the row at which they stopped, and plain Python then raises the error for it.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


def pooled(size: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised bytes from Arrow's pool, which reuses pages: touching fresh ones takes long."""
    buffer: npt.NDArray[np.uint8] = np.frombuffer(pa.allocate_buffer(max(size, 1)), dtype=np.uint8)
    return buffer[:size]


# np.int64 below, because in numba a shifted int(byte) is unsigned, and its sum with a position a float.


@kernel(leaf=True, inlined=True)
def uint16(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the big-endian number in the two bytes at `at`; the caller checks that they exist."""
    return int((np.int64(data[at]) << 8) | np.int64(data[at + 1]))


@kernel(leaf=True, inlined=True)
def uint32(data: npt.NDArray[np.uint8], at: int) -> int:
    """Return the big-endian number in the four bytes at `at`; the caller checks that they exist."""
    high = (np.int64(data[at]) << 24) | (np.int64(data[at + 1]) << 16)
    return int(high | (np.int64(data[at + 2]) << 8) | np.int64(data[at + 3]))
