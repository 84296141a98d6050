"""LSNs of change tables as text: lower-case hexadecimal digits, with colons behind the fourth and the eighth byte.

`00000027:00000758:0003` has 10 bytes; there may be 16, and the last part is longer then.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.compiled import kernel
from tailrace.serde.assemble import Fragment
from tailrace.serde.memory import Bytes, Offsets, readonly
from tailrace.values.texts import Ends, Int, Shown, Texts, literals_of, put_literal, word

_DIGITS = word(b"0123456789abcdef")
_QUOTE, _COLON = 34, 58


def lsn_text(lsn: bytes) -> str:
    """One LSN as text."""
    return ":".join((lsn[:4].hex(), lsn[4:8].hex(), lsn[8:].hex()))


def lsns_fragment(column: pa.Array) -> Fragment:
    """A fragment of LSNs, a `binary` array of eight bytes or more each; a null is JSON's."""
    texts = Texts.of(column)
    literals, ends = literals_of(Shown("", b"null", b"null", b"null"))
    out = np.empty(2 * texts.size + 4 * len(column) + 1, np.uint8)
    offsets = np.zeros(len(column) + 1, np.int32)
    lsns(texts.data, texts.bounds, texts.state, literals, ends, 0, out, offsets)
    return Fragment(readonly(out), readonly(offsets))


@kernel
def lsns(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """LSNs as JSON strings; the form is that of `values.texts`. Each has eight bytes or more."""
    at: Int = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        else:
            out[at] = _QUOTE
            at += 1
            begin = bounds[row]
            for position in range(begin, bounds[row + 1]):
                if position - begin == 4 or position - begin == 8:
                    out[at] = _COLON
                    at += 1
                out[at] = _DIGITS[data[position] >> 4]
                out[at + 1] = _DIGITS[data[position] & 15]
                at += 2
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return 0
