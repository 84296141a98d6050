"""Kernels of the Avro encoding: they write columns as pieces, each after the byte of its union branch. Worker.

In all of them, `mark` is the byte before a value and `null` the byte of a null, both -1 without a union. `valid` is
empty if all values are present. `offsets[i]` begins piece i; the last offset is the end of `out`. Kernels for columns
that may have nulls return the number of nulls that the schema does not allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.buffers import Bytes, Offsets, move
from tailrace.compiled import kernel

_MINUS, _QUOTE, _NULL, _PAD = 45, 34, 110, 61
_MORE = 0x80


@kernel(leaf=True, inlined=True)
def _varint(out: Any, at: Any, number: Any) -> Any:
    """Write a 64-bit integer in zig-zag encoding; return its end."""
    rest = (number << 1) ^ (number >> 63)
    while (rest & ~0x7F) != 0:
        out[at] = (rest & 0x7F) | _MORE
        at += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    out[at] = rest
    return at + 1


@kernel(leaf=True)
def integers(values: Any, valid: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write integers; `out` has room for 11 bytes each."""
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(values)):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            at = _varint(out, at, values[row])
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel
def texts(
    data: Bytes, bounds: Offsets, valid: Any, cut: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write texts or bytes after their length, less `cut` bytes at both ends; `out` has room for 6 bytes more each."""
    source, target = data.ctypes.data, out.ctypes.data
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            first, last = np.int64(bounds[row] + cut), np.int64(bounds[row + 1] - cut)
            at = _varint(out, at, last - first)
            move(target + at, source + first, last - first)
            at += last - first
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def fixed(values: Bytes, width: Any, valid: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write values of `width` bytes unchanged; `out` has room for one byte more each."""
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(values) // width):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            for place in range(row * width, row * width + width):
                out[at] = values[place]
                at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def json_integers(data: Bytes, bounds: Offsets, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write integers that are given as JSON; `out` has room for 11 bytes each."""
    at, wrong = 0, 0
    for row in range(len(bounds) - 1):
        place, last = bounds[row], bounds[row + 1]
        if data[place] == _NULL:
            if null >= 0:
                out[at] = null
                at += 1
            else:
                wrong += 1
        else:
            if mark >= 0:
                out[at] = mark
                at += 1
            negative = data[place] == _MINUS
            if negative:
                place += 1
            # negative, since the range below 0 has room for the least number
            number = 0
            while place < last:
                number = number * 10 - (data[place] - 48)
                place += 1
            at = _varint(out, at, number if negative else -number)
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def json_base64(
    data: Bytes, bounds: Offsets, quotes: Any, table: Bytes, mark: Any, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write bytes that are given as JSON: base64 within `quotes` quotes at each end.

    `table` has the six bits of each letter. `out` has room for 6 bytes more than the text each.
    """
    at, wrong = 0, 0
    for row in range(len(bounds) - 1):
        first, last = bounds[row] + quotes, bounds[row + 1] - quotes
        if quotes and data[bounds[row]] != _QUOTE:
            if null >= 0:
                out[at] = null
                at += 1
            else:
                wrong += 1
        else:
            if mark >= 0:
                out[at] = mark
                at += 1
            while last > first and data[last - 1] == _PAD:
                last -= 1
            size = (last - first) * 3 // 4
            at = _varint(out, at, size)
            held, bits = 0, 0
            for place in range(first, last):
                held = (held << 6) | table[data[place]]
                bits += 6
                if bits >= 8:
                    bits -= 8
                    out[at] = (held >> bits) & 0xFF
                    at += 1
                    held &= (1 << bits) - 1
        offsets[row + 1] = at
    return wrong
