"""Compiled parts of the encoding JSON. Worker."""

from __future__ import annotations

from typing import Any

from tailrace.buffers import Bytes, Offsets
from tailrace.compiled import kernel
from tailrace.values.texts import word

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COMMA = 34, 92, 91, 93, 44
_NULL = word(b"null")


@kernel
def escape(data: Bytes, bounds: Offsets, out: Bytes, offsets: Offsets) -> None:
    """Texts without control characters as they stand within a JSON string; `out` has room for twice their bytes."""
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
def lists(data: Bytes, bounds: Offsets, quoted: Any, sizes: Any, valid: Any, out: Bytes, offsets: Offsets) -> None:
    """Lists of the next `sizes[i]` items each, which are JSON, or within quotes that are still to be put around them.

    `valid` is empty where no list is null. `out` has room for the items, 3 bytes more each, and 4 more for each list.
    """
    at, item = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(sizes)):
        if all_valid or valid[row]:
            out[at] = _OPEN
            at += 1
            for place in range(sizes[row]):
                if place > 0:
                    out[at] = _COMMA
                    at += 1
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                for position in range(bounds[item], bounds[item + 1]):
                    out[at] = data[position]
                    at += 1
                if quoted:
                    out[at] = _QUOTE
                    at += 1
                item += 1
            out[at] = _CLOSE
            at += 1
        else:
            for position in range(4):
                out[at] = _NULL[position]
                at += 1
        offsets[row + 1] = at
