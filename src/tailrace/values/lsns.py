"""LSNs of change tables as text: lower-case hexadecimal digits, with colons after the fourth and the eighth byte.

`00000027:00000758:0003` has 10 bytes. An LSN may have 16 bytes, with a longer last part.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.kernels.buffers import Bytes, Offsets, binary_array
from tailrace.kernels.compiled import kernel
from tailrace.values.texts import VALUE, Texts, word

_DIGITS = word(b"0123456789abcdef")
_COLON = 58


def lsn_text(lsn: bytes) -> str:
    """Return one LSN as text."""
    return ":".join((lsn[:4].hex(), lsn[4:8].hex(), lsn[8:].hex()))


def lsn_texts(column: pa.Array) -> pa.Array:
    """Return LSNs, a `binary` array of eight bytes or more each, as an array of texts."""
    texts = Texts.of(column)
    out = np.empty(2 * texts.size + 2 * len(column) + 1, np.uint8)
    offsets = np.zeros(len(column) + 1, np.int32)
    lsns(texts.data, texts.bounds, texts.state, out, offsets)
    present = texts.state == VALUE if len(texts.state) else None
    return binary_array(out, offsets, present).view(pa.string())


@kernel
def lsns(data: Bytes, bounds: Offsets, state: Bytes, out: Bytes, offsets: Offsets) -> None:
    """Write LSNs of eight bytes or more as texts, one after another, with their bounds; none if `state` is not 0."""
    at = 0
    for row in range(len(bounds) - 1):
        if len(state) == 0 or state[row] == VALUE:
            begin = bounds[row]
            for position in range(begin, bounds[row + 1]):
                if position - begin == 4 or position - begin == 8:
                    out[at] = _COLON
                    at += 1
                out[at] = _DIGITS[data[position] >> 4]
                out[at + 1] = _DIGITS[data[position] & 15]
                at += 2
        offsets[row + 1] = at
