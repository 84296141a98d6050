"""Floating-point numbers: the shortest digits, which servers send, as Java prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import DOUBLE, FLOAT, LogicalType
from tailrace.kernels.buffers import Bytes, Offsets, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.integers import put_integer
from tailrace.values.json_text import Verbatim, java_number
from tailrace.values.texts import LOST, VALUE, Ends, Int, ShownValues, Texts, put_bytes, put_literal, word, written

LONGEST_FLOAT = 400
"""The most characters of a floating-point number's text without its sign; servers send at most 24."""

_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|(?i:nan|-?inf(?:inity)?)")
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _SMALL_E, _E = 48, 57, 45, 43, 46, 101, 69
_NAN, _INFINITY, _NEGATIVE_INFINITY = word(b'"NaN"'), word(b'"Infinity"'), word(b'"-Infinity"')
_LOWER_NAN, _LOWER_INF, _LOWER_INFINITY = word(b"nan"), word(b"inf"), word(b"infinity")
_IS_NAN, _IS_INFINITE, _IS_NEGATIVE_INFINITE = 1, 2, 3


def floating(single: bool) -> Conversion:
    """Return the conversion of doubles, or, with `single`, of floats."""
    return Conversion(FLOAT if single else DOUBLE, shortest(single), SINGLES if single else DOUBLES, zero=0.0)


def shortest(single: bool) -> Callable[[str], Verbatim]:
    """Return the plain conversion: the text as Java prints the number."""

    def convert(text: str) -> Verbatim:
        if len(text.removeprefix("-")) > LONGEST_FLOAT or not _FLOAT.fullmatch(text):
            raise ValueError("not a number")
        return Verbatim(java_number(text, single))

    return convert


@dataclass(frozen=True, slots=True)
class Floats(Family):
    """The shortest text of a double, or, with `single`, of a float."""

    single: bool

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(floats, texts, shown, int(self.single))

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        outcome = np.zeros(len(texts), np.uint8)
        are_floats(texts.data, texts.bounds, texts.state, outcome)
        numbers = texts.column if (outcome == VALUE).all() else texts.column.filter(pa.array(outcome == VALUE))
        numbers = numbers.cast(pa.string()).cast(of)
        if len(numbers) < len(texts):
            rows = np.cumsum(outcome == VALUE) - 1
            numbers = numbers.take(pa.array(rows, mask=outcome != VALUE))
        return TypedColumn(numbers, readonly(outcome))


SINGLES, DOUBLES = Floats(True), Floats(False)


@kernel(leaf=True)
def is_lower_word(data: Bytes, begin: Int, end: Int, word: Bytes) -> bool:
    """Return True if the bytes are those of the lower-case `word`, in any case."""
    if end - begin != len(word):
        return False
    for position in range(len(word)):  # noqa: SIM110  (numba has no generators in all())
        if data[begin + position] | 32 != word[position]:
            return False
    return True


@kernel(leaf=True)
def smallest(digit: Int, first: Int, single: bool) -> int:
    """Return two digits plus 1000 times the negated exponent, for numbers whose single shortest digit Java refuses.

    Java shows at least two digits, the nearest to the exact value; 0 if these are the digit and a zero.
    """
    if single:
        if first == -44:
            return 45_098 if digit == 1 else 0
        if first == -45:
            if digit == 1:
                return 45_014
            if digit == 3:
                return 45_028
            if digit == 4:
                return 45_042
            if digit == 6:
                return 45_056
            if digit == 8:
                return 45_084
        return 0
    if first == -324:
        return 324_049 if digit == 5 else 0
    return 324_099 if first == -323 and digit == 1 else 0


@kernel(leaf=True, inlined=True)
def read_not_finite(data: Bytes, position: Int, end: Int, negative: bool) -> int:
    """Return the code of NaN or an infinity that the text after its sign names; 0 for any other text."""
    letter = np.int64(data[position]) | 32 if end > position else np.int64(0)
    if letter == 110 and not negative and is_lower_word(data, position, end, _LOWER_NAN):
        return _IS_NAN
    if letter == 105 and (
        is_lower_word(data, position, end, _LOWER_INF) or is_lower_word(data, position, end, _LOWER_INFINITY)
    ):
        return _IS_NEGATIVE_INFINITE if negative else _IS_INFINITE
    return 0


@kernel(leaf=True, inlined=True)
def read_float(data: Bytes, position: Int, end: Int, digits: Bytes, found: npt.NDArray[np.int64]) -> bool:
    """Read a finite number without its sign; return True if there was one.

    Its digits without leading zeros go to `digits`, their number to found[0], the power of ten of the first one to
    found[1].
    """
    count, whole, leading, seen, wrong = 0, 0, 0, False, end <= position or end - position > LONGEST_FLOAT
    down, digit = False, False
    exponent: Int = 0
    while position < end and not wrong:
        byte = data[position]
        if byte == _POINT:
            wrong = seen
            seen = True
        elif _ZERO <= byte <= _NINE:
            digit = True
            if count == 0 and byte == _ZERO:
                leading += seen
            else:
                digits[count] = byte
                count += 1
                whole += not seen
        elif byte | 32 == _SMALL_E:
            position += 1
            if position < end and (data[position] == _MINUS or data[position] == _PLUS):
                down = data[position] == _MINUS
                position += 1
            wrong = end - position < 1 or end - position > 4
            while position < end and not wrong:
                wrong = not _ZERO <= data[position] <= _NINE
                exponent = exponent * 10 + np.int64(data[position]) - _ZERO
                position += 1
        else:
            wrong = True
        position += 1
    found[0] = count
    found[1] = (whole - 1 if whole > 0 else -leading - 1) + (-exponent if down else exponent)
    return digit and not wrong


@kernel(leaf=True, inlined=True)
def put_float(digits: Bytes, count: Int, first: Int, out: Bytes, at: Int) -> Int:
    """Write a number of `count` digits, the first of which stands for 10 to the `first`; return the end."""
    if -3 <= first < 0:
        out[at] = _ZERO
        out[at + 1] = _POINT
        at += 2
        for _ in range(-first - 1):
            out[at] = _ZERO
            at += 1
        for position in range(count):
            out[at] = digits[position]
            at += 1
        return at
    plain = 0 <= first < 7
    point = first + 1 if plain else 1
    for position in range(max(count, point + 1)):
        if position == point:
            out[at] = _POINT
            at += 1
        out[at] = digits[position] if position < count else _ZERO
        at += 1
    if not plain:
        out[at] = _E
        at = put_integer(np.int64(first), out, at + 1)
    return at


@kernel
def floats(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write the shortest text of a double (argument 1: float) as Java prints it; NaN and the infinities as strings."""
    digits, found = np.empty(LONGEST_FLOAT, np.uint8), np.zeros(2, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        position, end = bounds[row], bounds[row + 1]
        negative = end > position and data[position] == _MINUS
        if negative:
            position += 1
        special = read_not_finite(data, position, end, negative)
        if special == _IS_NAN:
            at = put_bytes(_NAN, out, at)
        elif special != 0:
            at = put_bytes(_NEGATIVE_INFINITY if special == _IS_NEGATIVE_INFINITE else _INFINITY, out, at)
        elif read_float(data, position, end, digits, found):
            count, first = found[0], found[1]
            while count > 0 and digits[count - 1] == _ZERO:
                count -= 1
            if negative:
                out[at] = _MINUS
                at += 1
            if count == 0:
                digits[0] = _ZERO
                count, first = 1, 0
            if count == 1:
                other = smallest(digits[0] - _ZERO, first, argument == 1)
                if other != 0:
                    first = -(other // 1000)
                    digits[0] = _ZERO + other % 100 // 10
                    digits[1] = _ZERO + other % 10
                    count = 2
            at = put_float(digits, count, first, out, at)
        else:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def are_floats(data: Bytes, bounds: Offsets, state: Bytes, outcome: Bytes) -> None:
    """Set the outcome of each text: VALUE if it is a floating-point number, else LOST."""
    digits, found = np.empty(LONGEST_FLOAT, np.uint8), np.zeros(2, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
            continue
        position, end = bounds[row], bounds[row + 1]
        negative = end > position and data[position] == _MINUS
        if negative:
            position += 1
        good = read_not_finite(data, position, end, negative) != 0
        outcome[row] = VALUE if good or read_float(data, position, end, digits, found) else LOST
