"""Kernels of the JSON encoding. Worker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.buffers import Bytes, Offsets, move
from tailrace.compiled import kernel
from tailrace.values.binaries import put_base64
from tailrace.values.doubles import put_double
from tailrace.values.texts import Int

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA = 34, 92, 91, 93, 44
_NULL = np.frombuffer(b"null", np.uint8).copy()
_NAN = np.frombuffer(b'"NaN"', np.uint8).copy()
_MORE = np.frombuffer(b'"Infinity"', np.uint8).copy()
_LESS = np.frombuffer(b'"-Infinity"', np.uint8).copy()
Flags = npt.NDArray[np.bool_]


@kernel
def escape(data: Bytes, bounds: Offsets, out: Bytes, offsets: Offsets) -> None:
    """Write texts without control characters as within a JSON string; `out` has room for twice their bytes."""
    at = 0
    for row in range(len(bounds) - 1):
        for position in range(bounds[row], bounds[row + 1]):
            byte = data[position]
            if byte in (_QUOTE, _BACKSLASH):
                out[at] = _BACKSLASH
                at += 1
            out[at] = byte
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def _put_null(out: Bytes, at: Int) -> Int:
    for byte in range(4):
        out[at + byte] = _NULL[byte]
    return at + 4


@kernel
def doubles(values: npt.NDArray[np.float64], valid: Flags, out: Bytes, offsets: Offsets) -> None:
    """Write doubles as Java does, NaN and infinities as texts. Each takes at most 32 bytes."""
    at: Int = 0
    for row in range(len(values)):
        value = values[row]
        if not valid[row]:
            at = _put_null(out, at)
        elif np.isfinite(value):
            at = put_double(value, out, at)
        else:
            word = _NAN if np.isnan(value) else _LESS if value < 0 else _MORE
            for byte in range(len(word)):
                out[at + byte] = word[byte]
            at += len(word)
        offsets[row + 1] = at


@kernel
def binaries(data: Bytes, bounds: Offsets, valid: Flags, out: Bytes, offsets: Offsets) -> None:
    """Write bytes as base64 in quotes."""
    at: Int = 0
    for row in range(len(bounds) - 1):
        if valid[row]:
            begin, end = bounds[row], bounds[row + 1]
            out[at] = _QUOTE
            at = put_base64(data[begin:end], end - begin, 0, out, at + 1)
            out[at] = _QUOTE
            at += 1
        else:
            at = _put_null(out, at)
        offsets[row + 1] = at


@kernel
def lists(
    data: Bytes, items: Offsets, bounds: Offsets, quoted: bool, valid: Flags, out: Bytes, offsets: Offsets
) -> None:
    """Write lists of values that are JSON: list r has the items bounds[r] to bounds[r + 1].

    With `quoted`, each item still needs its quotes.
    """
    at: Int = 0
    target, source = out.ctypes.data, data.ctypes.data
    for row in range(len(bounds) - 1):
        if not valid[row]:
            at = _put_null(out, at)
        else:
            out[at] = _OPEN
            at += 1
            for item in range(bounds[row], bounds[row + 1]):
                if item > bounds[row]:
                    out[at] = _COMMA
                    at += 1
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                begin, end = items[item], items[item + 1]
                move(target + at, source + begin, end - begin)
                at += end - begin
                if quoted:
                    out[at] = _QUOTE
                    at += 1
            out[at] = _CLOSE
            at += 1
        offsets[row + 1] = at
