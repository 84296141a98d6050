"""Compiled moves between addresses, and Arrow's buffers as the arrays that the kernels take.

Kernels see only arrays of one kind (one-dimensional, contiguous, read-only where they are input), so that each is
compiled once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


@intrinsic
def _move(typing_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes from the address `source` to the address `target`."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        copy: Any = cgutils.raw_memcpy
        copy(
            builder,
            builder.inttoptr(arguments[0], pointer),
            builder.inttoptr(arguments[1], pointer),
            arguments[2],
            1,
        )
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _load_int32(typing_context: Any, address: Any) -> Any:
    """The int32 at an address."""
    signature = types.int64(types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(pointer), ir.IntType(64))

    return signature, generate


# An intrinsic's own signature begins with the typing context, which its callers do not pass.
move: Any = _move
load_int32: Any = _load_int32


def readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def text_buffers(column: pa.Array) -> tuple[Bytes, Offsets]:
    """The bytes and the offsets of a `binary` or `string` array; offsets begin at the array's own start."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return readonly(content), readonly(bounds)


def valid_flags(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None when all are not."""
    if column.null_count == 0:
        return None
    bitmap = np.frombuffer(column.buffers()[0], np.uint8)
    skipped = column.offset % 8
    bits = np.unpackbits(bitmap[column.offset // 8 :], count=skipped + len(column), bitorder="little")
    return bits[skipped:].view(np.bool_)


def binary_array(data: Bytes, offsets: Offsets, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """A `binary` array over the given memory."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
