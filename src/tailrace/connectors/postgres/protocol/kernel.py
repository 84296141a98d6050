"""The memory and the reads that the kernels over pgoutput's messages share.

Kernels never raise: they return the row at which they stopped, and plain Python says what is wrong there.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.kernels.compiled import kernel

_Scalar = TypeVar("_Scalar", bound=np.generic)


def frozen(array: npt.NDArray[Any], dtype: type[_Scalar]) -> npt.NDArray[_Scalar]:
    """A read-only contiguous view (a copy only where dtype or layout demand one).

    Read-only arrays are another type to numba than writable ones: passing every input read-only keeps each kernel to
    one compiled version.
    """
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view


def pooled(size: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes from Arrow's pool, which keeps its pages: touching fresh ones costs more than filling."""
    buffer: npt.NDArray[np.uint8] = np.frombuffer(pa.allocate_buffer(max(size, 1)), dtype=np.uint8)
    return buffer[:size]


# np.int64 below: shifting int(byte) would give numba an unsigned number, and adding that to a position a float.


@kernel(leaf=True, inlined=True)
def uint16(data: npt.NDArray[np.uint8], at: int) -> int:
    """The big-endian number in the two bytes at `at`, which the caller has checked to be there."""
    return int((np.int64(data[at]) << 8) | np.int64(data[at + 1]))


@kernel(leaf=True, inlined=True)
def uint32(data: npt.NDArray[np.uint8], at: int) -> int:
    """The big-endian number in the four bytes at `at`, which the caller has checked to be there."""
    high = (np.int64(data[at]) << 24) | (np.int64(data[at + 1]) << 16)
    return int(high | (np.int64(data[at + 2]) << 8) | np.int64(data[at + 3]))
