"""Kernels over rows of the text protocol: places of packets and cells, and the texts of a column. Any process.

A packet is its length in 3 bytes, little-endian, its number in 1 byte, and the payload. The payload of a row is a
sequence of cells: 251 for null, or a length of 1, 3, 4 or 9 bytes and the bytes of the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.kernels.buffers import Bytes, move
from tailrace.kernels.compiled import kernel

Int64s = npt.NDArray[np.int64]

MORE, FULL, LARGE, END, FAILED, OUT_OF_ORDER, MALFORMED = range(7)
"""Reasons why `scan` stopped: it needs more bytes; it needs room for more rows; a row spans packets; the result has
ended; the server has sent an error; a packet has a wrong number; a row does not follow the protocol."""

_NULL, _TWO, _THREE, _EIGHT, _END, _ERROR = 251, 252, 253, 254, 254, 255
_HEADER, _LARGEST, _SHORT = 4, (1 << 24) - 1, 9
PLAIN, DIGITS, TRIMMED = range(3)
r"""Forms of a column's texts: as sent by the server; bytes as `\x` and hexadecimal digits; fractions without trailing
zeros."""
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BACKSLASH, _X, _ZERO, _POINT = 92, 120, 48, 46


@kernel(leaf=True)
def cells(data: Bytes, at: int, end: int, starts: Int64s, lengths: Int64s, row: int, width: int) -> bool:
    """Write the start and the length (-1: null) of each cell of a row. Return False if the row does not end at `end`.

    The cells of a row are `width` entries from `row * width` on.
    """
    for place in range(width):
        if at >= end:
            return False
        first = data[at]
        at += 1
        length: Any = np.int64(first)
        if first == _NULL:
            length = np.int64(-1)
        elif first > _NULL:
            size = 2 if first == _TWO else 3 if first == _THREE else 8
            if first > _EIGHT or at + size > end:
                return False
            length = np.int64(0)
            for byte in range(size):
                length |= np.int64(data[at + byte]) << (8 * byte)
            at += size
            if length < 0:
                return False
        starts[row * width + place] = at
        lengths[row * width + place] = length
        if length > 0:
            at += length
    return bool(at == end)


@kernel(leaf=True)
def scan(data: Bytes, filled: int, state: Int64s, starts: Int64s, lengths: Int64s, width: int, most: int) -> int:
    """Locate the cells of the rows in `data`. Return the reason why it stopped.

    `state` is the place of the next packet, its number and the number of rows. It is advanced to the packet at which
    the kernel stops.
    """
    at, number, row = state[0], state[1], state[2]
    reason = MORE
    while at + _HEADER <= filled:
        length = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
        if data[at + 3] != number:
            reason = OUT_OF_ORDER
            break
        if length == _LARGEST:
            reason = LARGE
            break
        begin = at + _HEADER
        end = begin + length
        if end > filled:
            break
        if length == 0:
            reason = MALFORMED
            break
        if data[begin] == _ERROR:
            reason = FAILED
            break
        if data[begin] == _END and length < _SHORT:
            reason = END
            break
        if row == most:
            reason = FULL
            break
        if not cells(data, begin, end, starts, lengths, row, width):
            reason = MALFORMED
            break
        row += 1
        at = end
        number = (number + 1) & 255
    state[0], state[1], state[2] = at, number, row
    return reason


@kernel
def sizes(starts: Int64s, lengths: Int64s, column: int, width: int, rows: int, form: int, valid: Bytes) -> int:
    """Return enough room for the column's texts in bytes, and set the bits of `valid` for texts that are not null."""
    total = np.int64(0)
    for row in range(rows):
        length = lengths[row * width + column]
        if length >= 0:
            valid[row >> 3] |= np.uint8(1 << (row & 7))
            total += 2 + 2 * length if form == DIGITS else length
    return int(total)


@kernel
def put(
    data: Bytes,
    starts: Int64s,
    lengths: Int64s,
    column: int,
    width: int,
    rows: int,
    form: int,
    offsets: npt.NDArray[np.int32],
    out: Bytes,
) -> None:
    """Write the column's texts and their offsets."""
    at = np.int64(0)
    source, target = data.ctypes.data, out.ctypes.data
    offsets[0] = 0
    for row in range(rows):
        length = lengths[row * width + column]
        begin = starts[row * width + column]
        if length >= 0:
            if form == DIGITS:
                out[at] = _BACKSLASH
                out[at + 1] = _X
                at += 2
                for place in range(begin, begin + length):
                    value = data[place]
                    out[at] = _HEX[value >> 4]
                    out[at + 1] = _HEX[value & 15]
                    at += 2
            else:
                if form == TRIMMED:
                    length = _trimmed(data, begin, length)
                move(target + at, source + begin, length)
                at += length
        offsets[row + 1] = at


@kernel(leaf=True)
def _trimmed(data: Bytes, begin: int, length: int) -> int:
    """Return the length of a time without the trailing zeros of its fraction."""
    point = length - 1
    while point >= 0 and data[begin + point] != _POINT:
        point -= 1
    if point < 0:
        return length
    while data[begin + length - 1] == _ZERO:
        length -= 1
    return length - 1 if length - 1 == point else length


@kernel(leaf=True)
def passed_on(data: Bytes, filled: int, state: Int64s) -> int:
    """Return the number of bytes of `data` to pass on, and update `state`.

    The elements of `state` are the number of missing bytes of the last packet; 1 if the next packet continues a row;
    END or FAILED after the last packet of the result, else MORE; and the number of the next packet.
    """
    at = min(state[0], filled)
    state[0] -= at
    while state[0] == 0 and state[2] == MORE and at + _HEADER < filled:
        length = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
        first = data[at + _HEADER]
        if state[1] == 0 and (first == _ERROR or (first == _END and length < _SHORT)):
            if at + _HEADER + length > filled:
                break
            state[2] = FAILED if first == _ERROR else END
        state[1] = 1 if length == _LARGEST else 0
        state[3] = (np.int64(data[at + 3]) + 1) & 255
        end = at + _HEADER + length
        at = min(end, filled)
        state[0] = end - at
    return int(at)
