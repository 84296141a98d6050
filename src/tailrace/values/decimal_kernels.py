"""Kernels for decimal text; their form is that of `values.texts`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.kernels.buffers import Bytes, Offsets
from tailrace.kernels.compiled import kernel
from tailrace.values.binaries import put_base64
from tailrace.values.integers import put_integer
from tailrace.values.texts import LOST, VALUE, Bool, Ends, Int, is_word, put_bytes, put_literal, word

VARIABLE_SCALE = 10_000
"""The argument of `decimals` for numbers with a scale per value."""

_ZERO, _NINE, _MINUS, _POINT, _QUOTE = 48, 57, 45, 46, 34
_SCALE, _VALUE = word(b'{"scale":'), word(b',"value":')
_NAN_TEXT, _INFINITY_TEXT = word(b'"NAN"'), word(b'"POSITIVE_INFINITY"')
_NEGATIVE_INFINITY_TEXT = word(b'"NEGATIVE_INFINITY"')
_NAN_WORD, _INFINITY_WORD = word(b"NaN"), word(b"Infinity")
_BILLION = np.uint64(1_000_000_000)
_SMALL = 18


@kernel(leaf=True, inlined=True)
def small_unscaled(value: Int, scratch: Bytes) -> int:
    """Write the two's complement of an int64, big-endian and minimal, to `scratch`; return its length."""
    length, rest = 1, value
    while rest < -128 or rest > 127:
        rest >>= 8
        length += 1
    for position in range(length - 1, -1, -1):
        scratch[position] = value & 255
        value >>= 8
    return length


@kernel
def large_unscaled(digits: Bytes, count: Int, negative: bool, scratch: Bytes) -> Int:
    """Write `count` decimal digits like small_unscaled, by multiplying 32-bit limbs, nine digits at a time."""
    limbs = np.zeros(count // 9 + 2, np.uint64)
    used = 1
    done = 0
    while done < count:
        # the first group is shorter if the count is not a multiple of nine
        upto = done + ((count - done - 1) % 9 + 1)
        carry = np.uint64(0)
        while done < upto:
            carry = carry * np.uint64(10) + np.uint64(digits[done])
            done += 1
        for limb in range(used):
            carry += limbs[limb] * _BILLION
            limbs[limb] = carry & np.uint64(0xFFFFFFFF)
            carry >>= np.uint64(32)
        if carry != np.uint64(0):
            limbs[used] = carry
            used += 1
    length = used * 4 + 1
    carry = np.uint64(1)
    for position in range(length):
        byte = np.uint64(0)
        if position // 4 < used:
            byte = (limbs[position // 4] >> np.uint64(8 * (position % 4))) & np.uint64(255)
        if negative:
            carry += byte ^ np.uint64(255)
            byte = carry & np.uint64(255)
            carry >>= np.uint64(8)
        scratch[length - 1 - position] = byte
    first = 0
    while first < length - 1:
        fill = scratch[first] == 0 and scratch[first + 1] < 128
        if not fill and not (scratch[first] == 255 and scratch[first + 1] > 127):
            break
        first += 1
    for position in range(length - first):
        scratch[position] = scratch[first + position]
    return length - first


@kernel(leaf=True, inlined=True)
def read_digits(data: Bytes, begin: Int, end: Int, digits: Bytes, found: npt.NDArray[np.int64]) -> bool:
    """Read a number in plain digits, without its sign; return True if there was one.

    Its digits go to `digits`, their number to found[0], the number of fraction digits to found[1].
    """
    count, fraction, seen = 0, 0, False
    for position in range(begin, end):
        byte = data[position]
        if byte == _POINT and not seen:
            seen = True
        elif _ZERO <= byte <= _NINE:
            digits[count] = byte - _ZERO
            count += 1
            fraction += seen
        else:
            return False
    found[0], found[1] = count, fraction
    return count > 0


@kernel(leaf=True, inlined=True)
def rescaled(digits: Bytes, count: Int, fraction: Int, scale: Int) -> Int:
    """Round a number of `count` digits, `fraction` of them after the point, to `scale`, halves away from zero.

    Returns its number of digits then.
    """
    up: Bool = False
    while fraction < scale:
        digits[count] = 0
        count += 1
        fraction += 1
    if fraction > scale:
        cut = fraction - scale
        up = cut <= count and np.int64(digits[count - cut]) >= 5
        count = max(count - cut, 0)
    if up:
        place = count - 1
        while place >= 0 and digits[place] == 9:
            digits[place] = 0
            place -= 1
        if place >= 0:
            digits[place] += 1
        else:
            for place in range(count, 0, -1):
                digits[place] = digits[place - 1]
            digits[0] = 1
            count += 1
    return count


@kernel(leaf=True, inlined=True)
def small_value(digits: Bytes, count: Int, negative: bool) -> Int:
    """Return the number of up to 18 digits."""
    value = np.int64(0)
    for position in range(count):
        value = value * 10 + digits[position]
    return -value if negative else value


@kernel(leaf=True)
def longest_text(bounds: Offsets) -> Int:
    """Return the bytes of the longest text."""
    longest: Int = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    return longest


@kernel
def decimals(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write decimal text as the base64 of its unscaled value at scale `argument`, halves away from zero.

    VARIABLE_SCALE stands for a scale per value: trailing zeros of the fraction are cut, and the value is a struct of
    its scale and unscaled value.
    """
    variable = argument == VARIABLE_SCALE
    digits = np.empty(longest_text(bounds) + (0 if variable else max(argument, 0)) + 2, np.uint8)
    scratch, found = np.empty(len(digits) + 16, np.uint8), np.zeros(2, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        negative = end > begin and data[begin] == _MINUS
        if negative:
            begin += 1
        if not read_digits(data, begin, end, digits, found):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
            offsets[row + 1] = at
            continue
        count, fraction, scale = found[0], found[1], np.int64(argument)
        if variable:
            while fraction > 0 and digits[count - 1] == 0:
                fraction -= 1
                count -= 1
            scale = fraction
            at = put_bytes(_SCALE, out, at)
            at = put_integer(scale, out, at)
            at = put_bytes(_VALUE, out, at)
        count = rescaled(digits, count, fraction, scale)
        if count <= _SMALL:
            length: Int = small_unscaled(small_value(digits, count, negative), scratch)
        else:
            length = large_unscaled(digits, count, negative, scratch)
        out[at] = _QUOTE
        at = put_base64(scratch, length, 0, out, at + 1)
        out[at] = _QUOTE
        at += 1
        if variable:
            out[at] = 125
            at += 1
        offsets[row + 1] = at
    return lost


@kernel
def decimal_values(
    data: Bytes, bounds: Offsets, state: Bytes, scale: int, precision: int, out: Bytes, outcome: Bytes
) -> None:
    """Read decimal text as the two's complement of its unscaled value at `scale`, little-endian, with the row width of
    `out`.

    Numbers of more digits than `precision`, NaN and the infinities cannot be converted.
    """
    digits = np.empty(longest_text(bounds) + max(scale, 0) + 2, np.uint8)
    scratch, found = np.empty(len(digits) + 16, np.uint8), np.zeros(2, np.int64)
    width = out.shape[1]
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
            continue
        begin, end = bounds[row], bounds[row + 1]
        negative = end > begin and data[begin] == _MINUS
        if negative:
            begin += 1
        if not read_digits(data, begin, end, digits, found):
            outcome[row] = LOST
            continue
        count = rescaled(digits, found[0], found[1], np.int64(scale))
        zeros = 0
        while zeros < count and digits[zeros] == 0:
            zeros += 1
        if count - zeros > precision:
            outcome[row] = LOST
            continue
        outcome[row] = VALUE
        length = large_unscaled(digits, count, negative, scratch)
        fill = 255 if scratch[0] > 127 else 0
        for place in range(width):
            out[row, place] = scratch[length - 1 - place] if place < length else fill


@kernel
def decimal_texts(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write decimal text as a string; NaN and the infinities have the names of decimal.handling.mode=string."""
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        start = at
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif end > begin and data[begin] == 78 and is_word(data, begin, end, _NAN_WORD):
            at = put_bytes(_NAN_TEXT, out, at)
        elif end > begin and data[begin] == 73 and is_word(data, begin, end, _INFINITY_WORD):
            at = put_bytes(_INFINITY_TEXT, out, at)
        elif end > begin + 1 and data[begin + 1] == 73 and is_word(data, begin + 1, end, _INFINITY_WORD):
            wrong = data[begin] != _MINUS
            lost += wrong
            at = put_literal(literals, ends, 2, out, at) if wrong else put_bytes(_NEGATIVE_INFINITY_TEXT, out, at)
        else:
            out[at] = _QUOTE
            at += 1
            digits, points = 0, 0
            for position in range(begin, end):
                byte = data[position]
                digits += _ZERO <= byte <= _NINE
                points += byte == _POINT
                out[at] = byte
                at += 1
            out[at] = _QUOTE
            at += 1
            signs = 1 if end > begin and data[begin] == _MINUS else 0
            if digits == 0 or points > 1 or digits + points + signs != end - begin:
                lost += 1
                at = put_literal(literals, ends, 2, out, start)
        offsets[row + 1] = at
    return lost
