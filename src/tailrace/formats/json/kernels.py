"""Compiled parts of the encoding JSON. Worker."""

from __future__ import annotations

from tailrace.buffers import Bytes, Offsets
from tailrace.compiled import kernel

_QUOTE, _BACKSLASH = 34, 92


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
