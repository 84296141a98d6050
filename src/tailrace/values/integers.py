"""Integers: their text is their JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import INT16, INT32, INT64, LogicalType
from tailrace.kernels.buffers import Bytes, Offsets, move, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.json_text import Verbatim
from tailrace.values.texts import Ends, Int, ShownValues, Texts, put_literal, word, written

_BITS = {16: INT16, 32: INT32, 64: INT64}
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_ZERO, _MINUS = 48, 45
_MOST = word(b"9223372036854775807")
_PAIRS = word(b"".join(b"%02d" % pair for pair in range(100)))
# The divisors have the types of their dividends: numba would convert a uint64 and an int64 to doubles.
_HUNDRED, _TEN_THOUSAND, _HUNDRED_MILLIONS = np.uint32(100), np.uint32(10_000), np.uint64(100_000_000)


def integer(bits: int) -> Conversion:
    """Return the conversion of integers of 16, 32 or 64 bits."""
    return Conversion(_BITS[bits], number, INTEGERS, zero=0)


def is_integer(text: str) -> bool:
    """Return True if a text is an integer in plain digits."""
    return _INTEGER.fullmatch(text) is not None


def number(text: str) -> Verbatim:
    """Return a 64-bit integer unchanged."""
    if not is_integer(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("not an integer")
    return Verbatim(text)


@dataclass(frozen=True, slots=True)
class Integers(Family):
    """Integers of up to 64 bits, without plus sign or leading zeros. With any other text, the column is converted
    plainly."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        if not are_integers(texts.data, texts.bounds, texts.state):
            return None
        if len(texts.state) == 0:
            return Fragment(texts.data, texts.bounds), 0
        return written(verbatim, texts, shown, 0)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        if not are_integers(texts.data, texts.bounds, texts.state):
            return None
        out = np.empty(len(texts), np.int64)
        integer_values(texts.data, texts.bounds, texts.state, out)
        numbers = pa.array(out)
        try:
            return TypedColumn(numbers if of == numbers.type else numbers.cast(of), texts.state)
        except pa.ArrowInvalid:
            # One of them exceeds the type's bits; Arrow does not say which.
            return None


INTEGERS = Integers()


def integers_fragment(values: npt.NDArray[np.int64]) -> Fragment:
    """Return a fragment of int64 values."""
    out = np.empty(len(values) * 20 + 1, np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    integers(readonly(np.ascontiguousarray(values, np.int64)), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


@kernel(leaf=True)
def put_pair(value: Int, out: Bytes, at: Int) -> Int:
    """Write two digits of a uint32 below 100; return the end."""
    out[np.uintp(at)] = _PAIRS[np.uintp(value * np.uint32(2))]
    out[np.uintp(at + 1)] = _PAIRS[np.uintp(value * np.uint32(2) + np.uint32(1))]
    return at + 2


@kernel(leaf=True)
def put_eight(value: Int, out: Bytes, at: Int) -> Int:
    """Write eight digits of a uint32; return the end."""
    high, low = value // _TEN_THOUSAND, value % _TEN_THOUSAND
    at = put_pair(high // _HUNDRED, out, at)
    at = put_pair(high % _HUNDRED, out, at)
    at = put_pair(low // _HUNDRED, out, at)
    return put_pair(low % _HUNDRED, out, at)


@kernel(leaf=True)
def put_short(value: Int, out: Bytes, at: Int) -> Int:
    """Write a uint32 below 100,000,000 in as few digits as possible; return the end."""
    size, bound = 1, np.uint32(10)
    while value >= bound and size < 8:
        size += 1
        bound *= np.uint32(10)
    position = at + size
    while position - at >= 2:
        position -= 2
        put_pair(value % _HUNDRED, out, position)
        value //= _HUNDRED
    if position > at:
        out[at] = np.uint32(_ZERO) + value
    return at + size


@kernel(leaf=True)
def put_unsigned(rest: Int, out: Bytes, at: Int) -> Int:
    """Write a uint64 in decimal; return the end."""
    if rest < _HUNDRED_MILLIONS:
        return put_short(np.uint32(rest), out, at)
    above = rest // _HUNDRED_MILLIONS
    if above < _HUNDRED_MILLIONS:
        at = put_short(np.uint32(above), out, at)
    else:
        at = put_short(np.uint32(above // _HUNDRED_MILLIONS), out, at)
        at = put_eight(np.uint32(above % _HUNDRED_MILLIONS), out, at)
    return put_eight(np.uint32(rest % _HUNDRED_MILLIONS), out, at)


@kernel(leaf=True)
def put_integer(value: Int, out: Bytes, at: Int) -> Int:
    """Write an int64 in decimal; return the end."""
    # The magnitude is unsigned: the smallest int64 has no negative.
    rest = np.uint64(value)
    if value < 0:
        out[at] = _MINUS
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)
    return put_unsigned(rest, out, at)


@kernel
def integers(values: npt.NDArray[np.int64], out: Bytes, offsets: Offsets) -> None:
    """Write an int64 array as decimal text."""
    at: Int = 0
    for row in range(len(values)):
        at = put_integer(values[row], out, at)
        offsets[row + 1] = at


@kernel
def are_integers(data: Bytes, bounds: Offsets, state: Bytes) -> bool:
    """Return True if every text is a 64-bit integer in JSON's form: no plus sign, no leading zero."""
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            continue
        at, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
        negative = at < end and data[np.uintp(at)] == _MINUS
        if negative:
            at += 1
        count = end - at
        if count < 1 or count > 19 or (data[np.uintp(at)] == _ZERO and (count > 1 or negative)):
            return False
        wrong = np.uint8(0)
        for position in range(at, end):
            wrong |= np.uint8(np.uint8(data[np.uintp(position)] - np.uint8(_ZERO)) > np.uint8(9))
        if wrong != 0:
            return False
        if count == 19:
            for place in range(19):
                digit, most = data[np.uintp(at + place)], _MOST[place]
                if place == 18 and negative:
                    most += 1
                if digit != most:
                    if digit > most:
                        return False
                    break
    return True


@kernel(leaf=True)
def integer_values(data: Bytes, bounds: Offsets, state: Bytes, out: Any) -> None:
    """Read texts that are all integers; 0 for rows without a text."""
    for row in range(len(bounds) - 1):
        # negative, since the range below 0 has room for the least number
        number: Int = np.int64(0)
        if len(state) == 0 or state[row] == 0:
            at, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
            negative = data[np.uintp(at)] == _MINUS
            if negative:
                at += 1
            for position in range(at, end):
                number = number * 10 - (np.int64(data[np.uintp(position)]) - _ZERO)
            if not negative:
                number = -number
        out[row] = number


@kernel
def verbatim(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write text that is JSON already."""
    source, target = data.ctypes.data, out.ctypes.data
    at: Int = np.int64(0)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        else:
            size = bounds[row + 1] - bounds[row]
            move(target + at, source + bounds[row], size)
            at += size
        offsets[row + 1] = at
    return 0
