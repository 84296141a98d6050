"""Kernels that write texts and bytes of BSON values as columns of Arrow: a pass for the sizes, then one for the bytes.
Worker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s, load
from tailrace.connectors.mongodb.values.value_kernels import put_decimal, put_hex
from tailrace.kernels.buffers import move
from tailrace.kernels.compiled import kernel
from tailrace.values.texts import Int

_STRING, _CODE, _SCOPED, _OBJECT_ID, _DECIMAL = (
    fields.STRING, fields.CODE, fields.SCOPED_CODE, fields.OBJECT_ID, fields.DECIMAL,
)  # fmt: skip
_BINARY, _REGEX = fields.BINARY, fields.REGEX
WHOLE, PATTERN, OPTIONS = 0, 1, 2
"""Parts of a value: the whole, or a regular expression's pattern or options."""
_MOST_DECIMAL = 48
_UUID = 16


@kernel(leaf=True)
def _text_bounds(data: Bytes, kind: int, place: int, part: int) -> tuple[int, int]:
    """Return the bounds of the part of a value; of binary data without length and subtype."""
    if kind == _SCOPED:
        return place + 8, place + 7 + load(data, place + 4)
    if kind == _BINARY:
        skipped = 9 if data[np.uintp(place + 4)] == 2 else 5
        return place + skipped, place + 5 + load(data, place)
    if kind == _REGEX:
        middle = place
        while data[np.uintp(middle)] != 0:
            middle += 1
        if part == PATTERN:
            return place, middle
        end = middle + 1
        while data[np.uintp(end)] != 0:
            end += 1
        return middle + 1, end
    return place + 4, place + 3 + load(data, place)


@kernel
def text_sizes(data: Bytes, places: Int64s, kinds: Bytes, part: int, offsets: npt.NDArray[np.int32]) -> int:
    """Fill `offsets` with sufficient room for each text. Return the total size in bytes."""
    total = 0
    for row in range(len(places)):
        if places[row] >= 0:
            kind = kinds[row]
            if kind == _OBJECT_ID:
                total += 24
            elif kind == _DECIMAL:
                total += _MOST_DECIMAL
            else:
                begin, end = _text_bounds(data, kind, places[row], part)
                total += end - begin
        offsets[row + 1] = min(total, 2**31 - 1)
    return total


@kernel
def put_texts(
    data: Bytes, places: Int64s, kinds: Bytes, part: int, turned: bool, offsets: npt.NDArray[np.int32], out: Bytes
) -> None:
    """Write the texts, and their true offsets. With `turned` UUIDs have Java's old byte order."""
    scratch = np.empty(64, np.uint8)
    target, source = out.ctypes.data, data.ctypes.data
    at: Int = 0
    for row in range(len(places)):
        place = places[row]
        if place >= 0:
            kind = kinds[row]
            if kind == _OBJECT_ID:
                at = put_hex(data, place, 12, out, at)
            elif kind == _DECIMAL:
                at = put_decimal(data, place, scratch, out, at)
            else:
                begin, end = _text_bounds(data, kind, place, part)
                move(target + at, source + begin, end - begin)
                if turned and kind == _BINARY and end - begin == _UUID and data[place + 4] == 4:
                    for byte in range(_UUID):
                        out[at + byte] = data[begin + ((byte & 8) + 7 - (byte & 7))]
                if part == OPTIONS:
                    _sort(out, at, at + end - begin)
                at += end - begin
        offsets[row + 1] = at


@kernel(leaf=True)
def _sort(out: Bytes, begin: Int, end: Int) -> None:
    """Sort the characters of a text; leave it unchanged unless all are ASCII."""
    for position in range(begin, end):
        if out[position] >= 128:
            return
    for position in range(begin + 1, end):
        byte, place = out[position], position
        while place > begin and out[place - 1] > byte:
            out[place] = out[place - 1]
            place -= 1
        out[place] = byte


@kernel
def put_numbers(data: Bytes, places: Int64s, kinds: Bytes, out: Int64s) -> None:
    """Write the whole numbers at `places`: int32, int64, dates in ms, and timestamps as ms of their signed seconds."""
    for row in range(len(places)):
        place = places[row]
        value = 0
        if place >= 0:
            if kinds[row] == fields.INT32:
                value = load(data, place)
            elif kinds[row] == fields.TIMESTAMP:
                value = load(data, place + 4) * 1000
            else:
                value = (load(data, place) & 0xFFFFFFFF) | (load(data, place + 4) << 32)
        out[row] = value


@kernel
def put_doubles(data: Bytes, places: Int64s, out: Bytes) -> None:
    """Write the bytes of the doubles at `places`."""
    for row in range(len(places)):
        for byte in range(8):
            out[8 * row + byte] = data[places[row] + byte] if places[row] >= 0 else 0


@kernel
def put_flags(data: Bytes, places: Int64s, out: Bytes) -> None:
    """Write the truth values at `places`."""
    for row in range(len(places)):
        out[row] = data[places[row]] if places[row] >= 0 else 0
