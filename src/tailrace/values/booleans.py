"""Booleans and strings of bits; a single bit is a boolean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import BOOLEAN, BYTES, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.binaries import base64_text, put_base64
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.texts import LOST, Ends, Int, ShownValues, Texts, is_word, put_literal, word, written

_ZERO, _QUOTE, _T = 48, 34, 116
_TRUE, _FALSE = word(b"true"), word(b"false")
_BOOLEANS = {"t": True, "f": False, "true": True, "false": False}
_BITS = {"1": True, "0": False}
_LETTERS, _DIGITS = word(b"tf"), word(b"10")


def bits_type(length: int) -> LogicalType:
    """Return a bit string as little-endian bytes; `length` in bits."""
    return semantic(BYTES, "io.debezium.data.Bits", length=str(length))


def boolean_type() -> Conversion:
    return Conversion(BOOLEAN, boolean, Booleans(), zero=False)


def single_bit() -> Conversion:
    """Return the conversion of one bit, as a boolean."""
    return Conversion(BOOLEAN, bit, Bits(True), zero=False)


def bits(length: int) -> Conversion:
    """Return the conversion of a string of up to `length` bits."""
    return Conversion(bits_type(length), bit_string, Bits(False), zero="")


def boolean(text: str) -> bool:
    return _BOOLEANS[text]


def bit(text: str) -> bool:
    return _BITS[text]


def bit_string(text: str) -> str:
    """Return bits as little-endian bytes without trailing zero bytes."""
    if text.strip("01"):
        raise ValueError("not bits")
    value = int(text or "0", 2)
    return base64_text(value.to_bytes((value.bit_length() + 7) // 8, "little"))


@dataclass(frozen=True, slots=True)
class Booleans(Family):
    """Booleans, written as `t` and `f`, or as `true` and `false`."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(booleans, texts, shown, 0)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        return _typed_words(texts, _LETTERS)


@dataclass(frozen=True, slots=True)
class Bits(Family):
    """Bit strings, written as zeros and ones; with `single`, a single bit as a boolean."""

    single: bool

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(bit_strings, texts, shown, int(self.single))

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        return _typed_words(texts, _DIGITS) if self.single else None


def _typed_words(texts: Texts, letters: Bytes) -> TypedColumn:
    """Return the booleans of texts; see `truths` for `letters`."""
    out, outcome = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.uint8)
    truths(texts.data, texts.bounds, texts.state, letters, out, outcome)
    return TypedColumn(pa.array(out), readonly(outcome))


@kernel(leaf=True)
def truths(data: Bytes, bounds: Offsets, state: Bytes, letters: Bytes, out: Any, outcome: Bytes) -> None:
    """Read booleans. `letters` has the characters for true and false; with t and f, the whole words are valid too."""
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif end - begin == 1 and (data[begin] == letters[0] or data[begin] == letters[1]):
            out[row] = data[begin] == letters[0]
        elif letters[0] == _T and (is_word(data, begin, end, _TRUE) or is_word(data, begin, end, _FALSE)):
            out[row] = data[begin] == _T
        else:
            outcome[row] = LOST


@kernel(leaf=True)
def put_boolean(value: bool, out: Bytes, at: Int) -> Int:
    """Write true or false; return the end."""
    if value:
        out[at] = 116
        out[at + 1] = 114
        out[at + 2] = 117
        out[at + 3] = 101
        return at + 4
    out[at] = 102
    out[at + 1] = 97
    out[at + 2] = 108
    out[at + 3] = 115
    out[at + 4] = 101
    return at + 5


@kernel
def booleans(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write `t` and `f`, or `true` and `false`, as true and false."""
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif (end - begin == 1 and data[begin] == 116) or is_word(data, begin, end, _TRUE):
            at = put_boolean(True, out, at)
        elif (end - begin == 1 and data[begin] == 102) or is_word(data, begin, end, _FALSE):
            at = put_boolean(False, out, at)
        else:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def bit_strings(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write bits as base64 of little-endian bytes without trailing zero bytes (argument 0), or one bit as a boolean
    (1)."""
    longest = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    scratch = np.zeros(longest // 8 + 1, np.uint8)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        count, wrong = 0, argument == 1 and end - begin != 1
        # The last digit is the lowest bit.
        for place in range(end - begin):
            digit = np.int64(data[end - 1 - place]) - _ZERO
            wrong = wrong or digit < 0 or digit > 1
            if digit == 1:
                scratch[place >> 3] |= np.uint8(1 << (place & 7))
                count = (place >> 3) + 1
        if wrong:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == 1:
            at = put_boolean(count > 0, out, at)
        else:
            out[at] = _QUOTE
            at = put_base64(scratch, count, 0, out, at + 1)
            out[at] = _QUOTE
            at += 1
        scratch[:count] = 0
        offsets[row + 1] = at
    return lost
