"""Compiled parts of the JSON reader: signatures of texts, which hold structure and types without values. Worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.kernels.buffers import Bytes, Offsets, readonly, text_buffers
from tailrace.kernels.compiled import kernel

_DEEPEST = 64
# Signatures of a text that is its own signature, and of a text that is neither an object nor an array.
_ITSELF, _OTHER = 1, 2
_QUOTE, _BACKSLASH, _COLON, _COMMA = 34, 92, 58, 44
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = 123, 125, 91, 93
_MINUS, _PLUS, _POINT, _ZERO, _NINE = 45, 43, 46, 48, 57
_SMALL_D, _SMALL_E, _LARGE_E, _SMALL_U, _SEVEN = 100, 101, 69, 117, 55
_STRING, _BOOLEAN, _SHORT, _LONG, _DOUBLE, _NULL = 115, 98, 105, 108, 100, 110
_TRUE = np.frombuffer(b"true", np.uint8).copy()
_FALSE = np.frombuffer(b"false", np.uint8).copy()
_NULLS = np.frombuffer(b"null", np.uint8).copy()
# The letters after a backslash, except u.
_ESCAPES = np.zeros(256, np.bool_)
_ESCAPES[list(b'"\\/bfnrt')] = True
_BLANKS = np.zeros(256, np.bool_)
_BLANKS[list(b" \t\n\r")] = True
_HEX = np.zeros(256, np.bool_)
_HEX[list(b"0123456789abcdefABCDEF")] = True
_INT32 = 1 << 31


def signatures(texts: pa.Array) -> pa.Array:
    """Return the signature of each text, as bytes: field names and types of values, in order; empty for null.

    Texts with equal signatures have the same schema. A text that is no JSON, or has rare parts, is its own signature;
    texts that begin neither an object nor an array share one.
    """
    data, bounds = text_buffers(texts if not texts.null_count else pc.fill_null(texts, ""))
    out = np.empty(int(bounds[-1]) - int(bounds[0]) + len(texts) + 1, np.uint8)
    offsets = np.zeros(len(texts) + 1, np.int32)
    kinds, befores, firsts = (np.zeros(_DEEPEST, np.int64) for _ in range(3))
    write_signatures(data, bounds, kinds, befores, firsts, out, offsets)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(readonly(out))]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


@kernel(leaf=True, inlined=True)
def _is_word(data: Any, at: Any, end: Any, word: Any) -> Any:
    if end - at < len(word):
        return False
    for place in range(len(word)):  # noqa: SIM110 - numba has no generators in all()
        if data[at + place] != word[place]:
            return False
    return True


@kernel(leaf=True)
def _string_end(data: Any, at: Any, end: Any) -> Any:
    """Return the place after the string whose text begins at `at`; -1 if the string is invalid or has rare parts."""
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return at + 1
        if byte < 32:
            return -1
        at += 1
        if byte == _BACKSLASH:
            if at >= end:
                return -1
            if _ESCAPES[data[at]]:
                at += 1
            elif data[at] == _SMALL_U and at + 4 < end:
                for place in range(at + 1, at + 5):
                    if not _HEX[data[place]]:
                        return -1
                # half of a surrogate pair
                if (data[at + 1] | 32) == _SMALL_D and data[at + 2] > _SEVEN:
                    return -1
                at += 5
            else:
                return -1
    return -1


@kernel(leaf=True)
def _digits_end(data: Any, at: Any, end: Any) -> Any:
    while at < end and data[at] >= _ZERO and data[at] <= _NINE:
        at += 1
    return at


@kernel(leaf=True)
def _number(data: Any, at: Any, end: Any) -> Any:
    """Return the letter of a number's type, and the place after it; -1 if it is invalid or too large to classify."""
    negative = data[at] == _MINUS
    if negative:
        at += 1
    first = at
    at = _digits_end(data, first, end)
    size = at - first
    if size == 0 or (size > 1 and data[first] == _ZERO) or size > 100:
        return _DOUBLE, -1
    is_whole = True
    if at < end and data[at] == _POINT:
        is_whole = False
        behind = _digits_end(data, at + 1, end)
        if behind == at + 1:
            return _DOUBLE, -1
        at = behind
    if at < end and (data[at] == _SMALL_E or data[at] == _LARGE_E):
        is_whole = False
        at += 1
        if at < end and (data[at] == _PLUS or data[at] == _MINUS):
            at += 1
        behind = _digits_end(data, at, end)
        if behind == at or behind - at > 2:
            return _DOUBLE, -1
        at = behind
    if not is_whole:
        return _DOUBLE, at
    if size > 18:
        return _LONG, -1
    number: Any = 0
    for place in range(first, first + size):
        number = number * 10 + (np.int64(data[place]) - _ZERO)
    if number < _INT32 or (negative and number == _INT32):
        return _SHORT, at
    return _LONG, at


@kernel(leaf=True)
def _same(out: Any, one: Any, other: Any, end: Any) -> Any:
    """Return True if out[one:other] and out[other:end] are equal."""
    if other - one != end - other:
        return False
    for place in range(end - other):  # noqa: SIM110 - numba has no generators in all()
        if out[one + place] != out[other + place]:
            return False
    return True


@kernel(leaf=True)
def _blanks_end(data: Any, at: Any, end: Any) -> Any:
    while at < end and _BLANKS[data[at]]:
        at += 1
    return at


@kernel(leaf=True)
def _scalar(data: Any, at: Any, end: Any) -> Any:
    """Return the letter of the type of a value that is no object or array, and the place after it; -1 if it is invalid
    or has rare parts."""
    byte = data[at]
    if byte == _QUOTE:
        return _STRING, _string_end(data, at + 1, end)
    if byte == _MINUS or (byte >= _ZERO and byte <= _NINE):
        return _number(data, at, end)
    if _is_word(data, at, end, _TRUE):
        return _BOOLEAN, at + 4
    if _is_word(data, at, end, _FALSE):
        return _BOOLEAN, at + 5
    if _is_word(data, at, end, _NULLS):
        return _NULL, at + 4
    return _NULL, -1


@kernel(leaf=True)
def _name(data: Any, at: Any, end: Any, out: Any, to: Any) -> Any:
    """Write the name that begins at `at`, with its quotes. Return the place after its colon, -1 if the name is invalid
    or has rare parts, and the end of the output."""
    behind = _string_end(data, at + 1, end)
    for place in range(at, behind):
        if data[place] == _BACKSLASH:
            return -1, to
        out[to] = data[place]
        to += 1
    if behind < 0:
        return -1, to
    behind = _blanks_end(data, behind, end)
    if behind >= end or data[behind] != _COLON:
        return -1, to
    return behind + 1, to


@kernel(leaf=True)
def _closed(data: Any, at: Any, end: Any, depth: Any, kinds: Any, befores: Any, firsts: Any, out: Any, to: Any) -> Any:
    """Close the objects and arrays that end after a value.

    Return the place after the next comma, or the end of the text if nothing is open any more, -1 for other characters;
    the depth; and the end of the output.
    """
    while True:
        at = _blanks_end(data, at, end)
        if depth == 0:
            return (at if at == end else -1), depth, to
        in_list = kinds[depth - 1] == _OPEN_LIST
        if in_list:
            if _same(out, befores[depth - 1], firsts[depth - 1], to):
                to = firsts[depth - 1]
            else:
                befores[depth - 1] = firsts[depth - 1]
                firsts[depth - 1] = to
        if at < end and data[at] == _COMMA:
            return at + 1, depth, to
        if at >= end or data[at] != (_CLOSE_LIST if in_list else _CLOSE_OBJECT):
            return -1, depth, to
        at += 1
        depth -= 1
        out[to] = kinds[depth] + 2
        to += 1


@kernel(leaf=True)
def _signature(data: Any, at: Any, end: Any, kinds: Any, befores: Any, firsts: Any, out: Any, to: Any) -> Any:
    """Write the signature of an object or an array; return its end, -1 if the text is its own signature.

    `kinds` has the opening character of each open level. For an array, `befores` and `firsts` have the beginnings of
    its last two elements in the signature: an element with the signature of the element before it is not written again.
    """
    depth = 0
    # true while the object or array just opened may end
    is_new = False
    while True:
        at = _blanks_end(data, at, end)
        if at >= end:
            return -1
        byte = data[at]
        if is_new and byte == kinds[depth - 1] + 2:
            at += 1
            depth -= 1
            out[to] = byte
            to += 1
        else:
            if depth > 0 and kinds[depth - 1] == _OPEN_OBJECT:
                if byte != _QUOTE:
                    return -1
                at, to = _name(data, at, end, out, to)
                if at < 0:
                    return -1
                at = _blanks_end(data, at, end)
                if at >= end:
                    return -1
                byte = data[at]
            if byte in (_OPEN_OBJECT, _OPEN_LIST):
                if depth == len(kinds):
                    return -1
                kinds[depth] = byte
                out[to] = byte
                to += 1
                befores[depth] = to
                firsts[depth] = to
                depth += 1
                at += 1
                is_new = True
                continue
            out[to], at = _scalar(data, at, end)
            to += 1
            if at < 0:
                return -1
        is_new = False
        at, depth, to = _closed(data, at, end, depth, kinds, befores, firsts, out, to)
        if at < 0:
            return -1
        if depth == 0:
            return to


@kernel(leaf=True)
def write_signatures(
    data: Bytes, bounds: Offsets, kinds: Any, befores: Any, firsts: Any, out: Bytes, offsets: Offsets
) -> None:
    """Write the signatures of `signatures`; `out` has room for one byte more than each text."""
    to = 0
    for row in range(len(bounds) - 1):
        at, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
        if at < end:
            if data[at] != _OPEN_OBJECT and data[at] != _OPEN_LIST:
                out[to] = _OTHER
                to += 1
            else:
                found = _signature(data, at, end, kinds, befores, firsts, out, to)
                if found < 0:
                    out[to] = _ITSELF
                    to += 1
                    for place in range(at, end):
                        out[to] = data[place]
                        to += 1
                else:
                    to = found
        offsets[row + 1] = to
