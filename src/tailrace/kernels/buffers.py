"""Compiled memory copies, and Arrow's buffers as arrays for the kernels.

Kernels get only arrays of one kind (one-dimensional, contiguous, inputs read-only), so that each is compiled once.
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

from tailrace.errors import ConversionError
from tailrace.kernels.compiled import kernel

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]


class ExceedsArrow(ConversionError):
    """The texts of a block's column, or its records, have more bytes than an array's 32-bit offsets can address."""


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
    """Return the int32 at an address."""
    signature = types.int64(types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(pointer), ir.IntType(64))

    return signature, generate


def _fixed_move(size: int) -> Any:
    """Return an intrinsic that copies `size` bytes between addresses of any alignment."""

    @intrinsic
    def fixed(typing_context: Any, target: Any, source: Any) -> Any:
        signature = types.void(types.int64, types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = ir.IntType(8 * size).as_pointer()
            loaded = builder.load(builder.inttoptr(arguments[1], pointer), align=1)
            builder.store(loaded, builder.inttoptr(arguments[0], pointer), align=1)
            return context.get_dummy_value()

        return signature, generate

    return fixed


# The signature of an intrinsic begins with the typing context, which its callers do not pass.
load_int32: Any = _load_int32
_move_long: Any = _move
_move1, _move2, _move4, _move8, _move16 = (_fixed_move(size) for size in (1, 2, 4, 8, 16))


@kernel(inlined=True)
def move(target: Any, source: Any, count: Any) -> None:
    """Copy `count` bytes from the address `source` to the address `target`.

    Most copies are short: two overlapping copies, one from the start and one up to the end, cost less than a call.
    """
    if count > 32:
        _move_long(target, source, count)
    elif count >= 16:
        _move16(target, source)
        _move16(target + count - 16, source + count - 16)
    elif count >= 8:
        _move8(target, source)
        _move8(target + count - 8, source + count - 8)
    elif count >= 4:
        _move4(target, source)
        _move4(target + count - 4, source + count - 4)
    elif count >= 2:
        _move2(target, source)
        _move2(target + count - 2, source + count - 2)
    elif count == 1:
        _move1(target, source)


def readonly(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def text_buffers(column: pa.Array) -> tuple[Bytes, Offsets]:
    """Return the bytes and the offsets of a `binary` or `string` array; of a slice, the offsets of its own values."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    return readonly(content), readonly(bounds)


def valid_flags(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the values that are not null; None if there are no nulls."""
    if column.null_count == 0:
        return None
    bitmap = np.frombuffer(column.buffers()[0], np.uint8)
    skipped = column.offset % 8
    bits = np.unpackbits(bitmap[column.offset // 8 :], count=skipped + len(column), bitorder="little")
    return bits[skipped:].view(np.bool_)


def binary_array(data: Bytes, offsets: Offsets, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a `binary` array over the given memory."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
