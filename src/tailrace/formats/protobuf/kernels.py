"""Kernels of the Protobuf encoding: they write columns as pieces, each a whole field of a message. Worker.

In all of them, `head` precedes a value. `inner` precedes it within its own message, -1 if it has none. `keeps`: the
type's default is written too. `null` is the byte of a null, -1 if a null has no byte. `valid` is empty if all values
are present. `offsets[i]` begins piece i; the last offset is the end of `out`.
"""

from __future__ import annotations

from typing import Any

from tailrace.buffers import Bytes, Offsets
from tailrace.compiled import kernel

_MINUS, _QUOTE, _NULL, _PAD = 45, 34, 110, 61
_MORE = 0x80


@kernel(leaf=True, inlined=True)
def _varint(out: Any, at: Any, number: Any) -> Any:
    """Write a 64-bit integer; return its end."""
    rest = number
    while (rest & ~0x7F) != 0:
        out[at] = (rest & 0x7F) | _MORE
        at += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    out[at] = rest
    return at + 1


@kernel(leaf=True, inlined=True)
def _size(number: Any) -> Any:
    """Return the number of bytes of a 64-bit integer."""
    size = 1
    rest = number
    while (rest & ~0x7F) != 0:
        size += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    return size


@kernel(leaf=True, inlined=True)
def _begun(out: Any, at: Any, head: Any, inner: Any, size: Any) -> Any:
    """Write the bytes before a value of `size` bytes (0: the default); return their end."""
    for place in range(len(head)):
        out[at] = head[place]
        at += 1
    if inner >= 0:
        at = _varint(out, at, size + 1 if size > 0 else 0)
        if size > 0:
            out[at] = inner
            at += 1
    return at


@kernel(leaf=True)
def integers(
    values: Any, valid: Any, head: Bytes, inner: Any, keeps: Any, null: Any, out: Bytes, offsets: Offsets
) -> None:
    """Write integers; `out` has room for the head and 12 bytes each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(values)):
        if all_valid or valid[row]:
            number = values[row]
            if inner >= 0:
                at = _begun(out, at, head, inner, _size(number) if number != 0 else 0)
                if number != 0:
                    at = _varint(out, at, number)
            elif number != 0 or keeps:
                at = _begun(out, at, head, inner, 0)
                at = _varint(out, at, number)
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def texts(
    data: Bytes,
    bounds: Offsets,
    valid: Any,
    cut: Any,
    head: Bytes,
    inner: Any,
    keeps: Any,
    null: Any,
    out: Bytes,
    offsets: Offsets,
) -> None:
    """Write texts or bytes, without `cut` bytes at both ends; `out` has room for the head and 12 bytes more each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            first, last = bounds[row] + cut, bounds[row + 1] - cut
            size = last - first
            if inner >= 0 or size > 0 or keeps:
                at = _begun(out, at, head, inner, _size(size) + size if size > 0 else 0)
                if inner < 0 or size > 0:
                    at = _varint(out, at, size)
                for place in range(first, last):
                    out[at] = data[place]
                    at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def fixed(
    values: Bytes, width: Any, valid: Any, head: Bytes, inner: Any, keeps: Any, null: Any, out: Bytes, offsets: Offsets
) -> None:
    """Write values of `width` bytes unchanged; `out` has room for the head and 2 bytes more each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(values) // width):
        if all_valid or valid[row]:
            first, last = row * width, row * width + width
            is_default = True
            for place in range(first, last):
                if values[place] != 0:
                    is_default = False
            if inner >= 0 or keeps or not is_default:
                at = _begun(out, at, head, inner, 0 if is_default else width)
                if inner < 0 or not is_default:
                    for place in range(first, last):
                        out[at] = values[place]
                        at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def heads(sizes: Any, present: Any, head: Bytes, out: Bytes, offsets: Offsets) -> None:
    """Write the bytes before messages of these sizes; `out` has room for the head and 5 bytes each."""
    at = 0
    for row in range(len(sizes)):
        if present[row]:
            at = _begun(out, at, head, -1, 0)
            at = _varint(out, at, sizes[row])
        offsets[row + 1] = at


@kernel(leaf=True)
def read_integers(data: Bytes, bounds: Offsets, values: Any, valid: Any) -> None:
    """Read integers that are given as JSON."""
    for row in range(len(bounds) - 1):
        place, last = bounds[row], bounds[row + 1]
        valid[row] = data[place] != _NULL
        if valid[row]:
            negative = data[place] == _MINUS
            if negative:
                place += 1
            # negative, since the range below 0 has room for the least number
            number = 0
            while place < last:
                number = number * 10 - (data[place] - 48)
                place += 1
            values[row] = number if negative else -number


@kernel(leaf=True)
def read_base64(
    data: Bytes, bounds: Offsets, quotes: Any, table: Bytes, valid: Any, out: Bytes, offsets: Offsets
) -> None:
    """Read bytes given as JSON: base64 within `quotes` quotes at each end; `table` has each letter's six bits."""
    at = 0
    for row in range(len(bounds) - 1):
        first, last = bounds[row] + quotes, bounds[row + 1] - quotes
        valid[row] = not quotes or data[bounds[row]] == _QUOTE
        if valid[row]:
            while last > first and data[last - 1] == _PAD:
                last -= 1
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


@kernel(leaf=True)
def decimals(
    data: Bytes, bounds: Offsets, valid: Any, scale: Any, head: Bytes, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write decimals from their unscaled numbers in as few bytes as possible, big-endian.

    `out` has room for the head and 32 bytes more each. Numbers of more than 8 bytes are not written; returns how many.
    """
    at, wide = 0, 0
    all_valid = len(valid) == 0
    of_scale = 0 if scale == 0 else 1 + _size(scale)
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            first, last = bounds[row], bounds[row + 1]
            if last - first > 8:
                wide += 1
            else:
                number = 0
                if data[first] >= 128:
                    number = -1
                for place in range(first, last):
                    number = (number << 8) | data[place]
                # negative, since the range below 0 has room for the least number
                rest = number if number < 0 else -number
                digits = 0
                while digits == 0 or rest != 0:
                    # towards zero
                    rest = (rest + 9) // 10
                    digits += 1
                at = _begun(out, at, head, -1, 0)
                at = _varint(out, at, 4 + last - first + of_scale)
                out[at] = 10
                out[at + 1] = last - first
                at += 2
                for place in range(first, last):
                    out[at] = data[place]
                    at += 1
                out[at] = 16
                out[at + 1] = digits
                at += 2
                if scale != 0:
                    out[at] = 24
                    at = _varint(out, at + 1, scale)
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at
    return wide
