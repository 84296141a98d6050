"""The kernel that writes binary JSON as text. Worker.

It leaves some documents to `json_documents`: those with doubles of many digits, with values for which JSON has no type,
with deep nesting, and malformed ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Flags, Int32s, Int64s
from tailrace.connectors.binlog.log.row_kernels import little
from tailrace.kernels.compiled import kernel
from tailrace.values.doubles import put_double
from tailrace.values.integers import put_integer, put_unsigned
from tailrace.values.texts import Int, word

LONGEST = 6
"""The most bytes of text for a byte of a document: the length of an escape."""

_DEEPEST = 64
_QUOTE, _BACKSLASH, _COMMA, _POINTS = 34, 92, 44, 58
_OPEN, _CLOSE = word(b"{["), word(b"}]")
_DIGITS = word(b"0123456789abcdef")
_WORDS = word(b"nulltruefalse")
_WORD_BOUNDS = np.array([0, 4, 8, 13], np.int64)
# the letter of a short escape, 0 for characters without one
_SHORT = np.zeros(128, np.uint8)
for _code, _letter in ((34, b'"'), (92, b"\\"), (8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r")):
    _SHORT[_code] = _letter[0]
_SHORT.flags.writeable = False


@kernel(leaf=True, inlined=True)
def put_text(data: Bytes, begin: Int, end: Int, out: Bytes, at: Int) -> Int:
    """Write a text in quotes, with escapes; return the end."""
    out[at] = _QUOTE
    at += 1
    for place in range(begin, end):
        byte = data[place]
        if byte >= 32 and byte not in (_QUOTE, _BACKSLASH):
            out[at] = byte
            at += 1
            continue
        out[at] = _BACKSLASH
        short = _SHORT[byte]
        if short != 0:
            out[at + 1] = short
            at += 2
        else:
            out[at + 1] = 117
            out[at + 2] = 48
            out[at + 3] = 48
            out[at + 4] = _DIGITS[byte >> 4]
            out[at + 5] = _DIGITS[byte & 15]
            at += 6
    out[at] = _QUOTE
    return at + 1


@kernel(leaf=True, inlined=True)
def put_scalar(data: Bytes, kind: Int, at: Int, end: Int, bits: npt.NDArray[np.uint64], out: Bytes, to: Int) -> Int:
    """Write a value that is not a container. Return the end, or -1 if the document is left to `json_documents`."""
    if kind == 4:
        if at >= end or data[at] > 2:
            return -1
        for place in range(_WORD_BOUNDS[data[at]], _WORD_BOUNDS[data[at] + 1]):
            out[to] = _WORDS[place]
            to += 1
        return to
    if kind in (5, 6, 7, 8):
        size = 2 if kind < 7 else 4
        if end - at < size:
            return -1
        value: Int = np.int64(little(data, at, size))
        if kind in (5, 7) and value >> (8 * size - 1):
            value -= np.int64(1) << (8 * size)
        return put_integer(value, out, to)
    if kind in (9, 10, 11):
        if end - at < 8:
            return -1
        low, high = np.uint64(little(data, at, 4)), np.uint64(little(data, at + 4, 4))
        whole = low | (high << np.uint64(32))
        if kind == 9:
            return put_integer(np.int64(whole), out, to)
        if kind == 10:
            return put_unsigned(whole, out, to)
        bits[0] = whole
        number = bits.view(np.float64)[0]
        size_of = abs(number)
        # Java writes smaller and larger numbers with an exponent
        if number != 0 and not 1e-3 <= size_of < 1e7:
            return -1
        return put_double(number, out, to)
    if kind == 12:
        length: Int = np.int64(0)
        step: Int = 0
        while True:
            if at >= end or step > 4:
                return -1
            byte = np.int64(data[at])
            at += 1
            length |= (byte & 127) << (7 * step)
            step += 1
            if byte < 128:
                break
        if length > end - at:
            return -1
        return put_text(data, at, at + length, out, to)
    return -1


@kernel
def put_document(
    data: Bytes, begin: Int, end: Int, stack: Int64s, bits: npt.NDArray[np.uint64], out: Bytes, to: Int
) -> Int:
    """Write a document. Return the end, or -1 if the document is left to `json_documents`.

    For each open container, `stack` has five numbers: its place, the width of its sizes in bytes, the number of its
    members, the index of the current member, and 1 if it is an array.
    """
    kind, at, depth, is_due = np.int64(data[begin]), begin + 1, 0, True
    while True:
        if is_due:
            is_due = False
            if kind > 3:
                to = put_scalar(data, kind, at, end, bits, out, to)
                if to < 0:
                    return -1
                continue
            size = 4 if kind & 1 else 2
            if depth == _DEEPEST or end - at < 2 * size:
                return -1
            count, length = np.int64(little(data, at, size)), np.int64(little(data, at + size, size))
            is_array = 1 if kind > 1 else 0
            entries = count * (1 + size) + (0 if is_array else count * (size + 2))
            if length > end - at or 2 * size + entries > end - at:
                return -1
            out[to] = _OPEN[is_array]
            to += 1
            top = 5 * depth
            stack[top], stack[top + 1], stack[top + 2], stack[top + 3], stack[top + 4] = at, size, count, -1, is_array
            depth += 1
            continue
        if depth == 0:
            return to
        top = 5 * (depth - 1)
        base, size, count, is_array = stack[top], stack[top + 1], stack[top + 2], stack[top + 4]
        index = stack[top + 3] + 1
        if index == count:
            out[to] = _CLOSE[is_array]
            to += 1
            depth -= 1
            continue
        stack[top + 3] = index
        if index > 0:
            out[to] = _COMMA
            to += 1
        entry = base + 2 * size
        if is_array == 0:
            key = entry + index * (size + 2)
            name, long = base + little(data, key, size), little(data, key + size, 2)
            if name > end or long > end - name:
                return -1
            to = put_text(data, name, name + long, out, to)
            out[to] = _POINTS
            to += 1
            entry += count * (size + 2)
        entry += index * (1 + size)
        kind = np.int64(data[entry])
        if kind in (4, 5, 6) or (size == 4 and kind in (7, 8)):
            at = entry + 1
        else:
            at = base + little(data, entry + 1, size)
            if at >= end:
                return -1
        is_due = True


@kernel
def documents(data: Bytes, starts: Int32s, lengths: Int32s, out: Bytes, offsets: Int32s, left: Flags) -> None:
    """Write documents, and set `left` for those that are left to `json_documents`."""
    stack = np.empty(5 * _DEEPEST, np.int64)
    bits = np.empty(1, np.uint64)
    to: Int = 0
    for row in range(len(lengths)):
        if lengths[row] > 0:
            begin = np.int64(starts[row])
            behind = put_document(data, begin, begin + lengths[row], stack, bits, out, to)
            if behind < 0:
                left[row] = True
            else:
                to = behind
        elif lengths[row] == 0:
            # the server's default for a column that may not be null is an empty value
            out[to] = _OPEN[0]
            out[to + 1] = _CLOSE[0]
            to += 2
        offsets[row + 1] = to
