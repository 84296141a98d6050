"""JSON with every element on a separate line, indented as by MongoDB's Java driver. Worker."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values.fields import Bytes, Int64s
from tailrace.errors import ConversionError
from tailrace.kernels.buffers import readonly
from tailrace.kernels.compiled import kernel

_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _SPACE = 34, 92, 44, 10, 32
_COPIED, _QUOTED, _OPENS, _CLOSES, _PARTS = range(5)
_ACTIONS = np.zeros(256, np.uint8)
for _byte, _action in ((_QUOTE, _QUOTED), (_COMMA, _PARTS), (123, _OPENS), (91, _OPENS), (125, _CLOSES), (93, _CLOSES)):
    _ACTIONS[_byte] = _action
_MOST = 2**31 - 1


@kernel(leaf=True, inlined=True)
def _behind_text(data: Bytes, position: int) -> int:
    """Return the position after the text that begins with the quote at `position`."""
    position += 1
    while data[np.uintp(position)] != _QUOTE:
        position += 2 if data[np.uintp(position)] == _BACKSLASH else 1
    return position + 1


@kernel(leaf=True, inlined=True)
def _break(depth: int, out: Bytes, at: int) -> int:
    out[np.uintp(at)] = _NEWLINE
    for column in range(2 * depth):
        out[np.uintp(at + 1 + column)] = _SPACE
    return at + 1 + 2 * depth


@kernel
def _indent(data: Bytes, offsets: npt.NDArray[np.int32], bounds: Int64s, out: Bytes) -> bool:
    """Write the texts into `out`. Return False if it may not have room for all."""
    at, room = 0, len(out)
    for row in range(len(offsets) - 1):
        depth, position, end = 0, int(offsets[row]), int(offsets[row + 1])
        while position < end:
            if at + 4 + 2 * depth > room:
                return False
            byte = data[np.uintp(position)]
            action = _ACTIONS[byte]
            if action == _COPIED:
                out[np.uintp(at)] = byte
                at += 1
                position += 1
                continue
            if action == _QUOTED:
                behind = _behind_text(data, position)
                if at + behind - position > room:
                    return False
                while position < behind:
                    out[np.uintp(at)] = data[np.uintp(position)]
                    at += 1
                    position += 1
                continue
            if action == _CLOSES and _ACTIONS[data[np.uintp(position - 1)]] != _OPENS:
                depth -= 1
                at = _break(depth, out, at)
            out[np.uintp(at)] = byte
            at += 1
            if action == _OPENS and _ACTIONS[data[np.uintp(position + 1)]] != _CLOSES:
                depth += 1
                at = _break(depth, out, at)
            elif action == _PARTS:
                at = _break(depth, out, at)
            position += 1
        bounds[row + 1] = at
    return True


def indented(data: Bytes, offsets: npt.NDArray[np.int32]) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """Return the indented texts, one after another, and their bounds. Raises ConversionError if they exceed 2 GiB."""
    bounds = np.zeros(len(offsets), np.int64)
    out = np.empty(3 * len(data) + 1024, np.uint8)
    while not _indent(data, offsets, bounds, out):
        if len(out) > _MOST:
            raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
        out = np.empty(2 * len(out), np.uint8)
    if int(bounds[-1]) > _MOST:
        raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
    return readonly(out), readonly(bounds.astype(np.int32))
