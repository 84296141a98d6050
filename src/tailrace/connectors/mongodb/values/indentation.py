"""JSON with every element on a line of its own, as Java's driver indents it. Worker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.buffers import readonly
from tailrace.compiled import kernel
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import ConversionError

_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _SPACE = 34, 92, 44, 10, 32
_OPEN, _CLOSE, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_MOST = 2**31 - 1


@kernel
def _indent(data: Bytes, offsets: npt.NDArray[np.int32], bounds: Int64s, out: Bytes) -> int:
    """Write the texts into `out`, which only has to have room for one byte where they are to be measured; the size."""
    at = 0
    writes = len(out) > 1
    for row in range(len(offsets) - 1):
        depth, inside, position, end = 0, False, offsets[row], offsets[row + 1]
        while position < end:
            byte = data[position]
            lines = 0
            if inside:
                if byte == _BACKSLASH:
                    if writes:
                        out[at] = byte
                    at += 1
                    position += 1
                    byte = data[position]
                elif byte == _QUOTE:
                    inside = False
            elif byte == _QUOTE:
                inside = True
            elif byte in (_OPEN, _OPEN_ARRAY):
                following = data[position + 1]
                if following not in (_CLOSE, _CLOSE_ARRAY):
                    depth += 1
                    lines = 1
            elif byte in (_CLOSE, _CLOSE_ARRAY):
                if data[position - 1] not in (_OPEN, _OPEN_ARRAY):
                    depth -= 1
                    lines = -1
            elif byte == _COMMA:
                lines = 1
            if lines >= 0:
                if writes:
                    out[at] = byte
                at += 1
            if lines != 0:
                if writes:
                    out[at] = _NEWLINE
                    for column in range(2 * depth):
                        out[at + 1 + column] = _SPACE
                at += 1 + 2 * depth
            if lines < 0:
                if writes:
                    out[at] = byte
                at += 1
            position += 1
        bounds[row + 1] = at
    return at


def indented(data: Bytes, offsets: npt.NDArray[np.int32]) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The texts, one after another, and their bounds. Raises ConversionError where they exceed 2 GiB."""
    bounds = np.zeros(len(offsets), np.int64)
    total = int(_indent(data, offsets, bounds, np.empty(1, np.uint8)))
    if total > _MOST:
        raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
    out = np.empty(total + 2, np.uint8)
    _indent(data, offsets, bounds, out)
    return readonly(out), readonly(bounds.astype(np.int32))
