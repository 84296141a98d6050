"""LSNs of change tables as text: lower-case hexadecimal digits, with colons behind the fourth and the eighth byte.

`00000027:00000758:0003` has 10 bytes; there may be 16, and the last part is longer then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_COLON = 58


def lsn_text(lsn: bytes) -> str:
    """One LSN as text."""
    return ":".join((lsn[:4].hex(), lsn[4:8].hex(), lsn[8:].hex()))


@njit(cache=True, nogil=True)
def lsns(data: Any, bounds: Any, state: Any, out: Any, offsets: Any) -> None:
    """LSNs as texts, one after another, and their bounds; nothing where `state` is not 0. Each has eight bytes or
    more."""
    at = 0
    for row in range(len(bounds) - 1):
        if len(state) == 0 or state[row] == 0:
            begin = bounds[row]
            for position in range(begin, bounds[row + 1]):
                if position - begin == 4 or position - begin == 8:
                    out[at] = _COLON
                    at += 1
                out[at] = _DIGITS[data[position] >> 4]
                out[at + 1] = _DIGITS[data[position] & 15]
                at += 2
        offsets[row + 1] = at
