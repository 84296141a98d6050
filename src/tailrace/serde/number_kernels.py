"""Compiled conversions of decimal and floating-point text to JSON; their form is that of `serde.kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.compiled import kernel
from tailrace.serde import scalar
from tailrace.serde.kernels import is_word, put_base64, put_integer, put_literal

_ZERO, _NINE, _MINUS, _POINT, _QUOTE = 48, 57, 45, 46, 34
_SCALE = np.frombuffer(b'{"scale":', np.uint8).copy()
_VALUE = np.frombuffer(b',"value":', np.uint8).copy()
_NAN = np.frombuffer(b'"NaN"', np.uint8).copy()
_INFINITY = np.frombuffer(b'"Infinity"', np.uint8).copy()
_NEGATIVE_INFINITY = np.frombuffer(b'"-Infinity"', np.uint8).copy()
_NAN_TEXT = np.frombuffer(b'"NAN"', np.uint8).copy()
_INFINITY_TEXT = np.frombuffer(b'"POSITIVE_INFINITY"', np.uint8).copy()
_NEGATIVE_INFINITY_TEXT = np.frombuffer(b'"NEGATIVE_INFINITY"', np.uint8).copy()
_NAN_WORD = np.frombuffer(b"NaN", np.uint8).copy()
_INFINITY_WORD = np.frombuffer(b"Infinity", np.uint8).copy()
_LOWER_NAN, _LOWER_INF = np.frombuffer(b"nan", np.uint8).copy(), np.frombuffer(b"inf", np.uint8).copy()
_LOWER_INFINITY = np.frombuffer(b"infinity", np.uint8).copy()
_LONGEST_FLOAT = scalar.LONGEST_FLOAT
_BILLION = np.uint64(1_000_000_000)


@kernel(leaf=True)
def put_bytes(text: Any, out: Any, at: Any) -> Any:
    for position in range(len(text)):
        out[at] = text[position]
        at += 1
    return at


@kernel(leaf=True)
def small_unscaled(value: Any, scratch: Any) -> Any:
    """Two's complement of an int64, big-endian and minimal, into `scratch`; its length."""
    length, rest = 1, value
    while rest < -128 or rest > 127:
        rest >>= 8
        length += 1
    for position in range(length - 1, -1, -1):
        scratch[position] = value & 255
        value >>= 8
    return length


@kernel
def large_unscaled(digits: Any, count: Any, negative: Any, scratch: Any) -> Any:
    """As small_unscaled, of `count` decimal digits; by repeated multiplication of 32-bit limbs, for nine at a time."""
    limbs = np.zeros(count // 9 + 2, np.uint64)
    used = 1
    done = 0
    while done < count:
        # the first of them are fewer, where the count is no multiple of nine
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


@kernel
def decimals(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Decimal text as the base64 of its unscaled value at scale `argument`, halves away from zero; NaN as literal 0.

    Arguments from 10000 up stand for a variable scale: trailing zeros of the fraction are cut, and the value is a
    struct of its scale and unscaled value.
    """
    variable = argument >= 10000
    longest = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    digits = np.empty(longest + (0 if variable else max(argument, 0)) + 2, np.uint8)
    scratch = np.empty(len(digits) + 16, np.uint8)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        negative = end > begin and data[begin] == _MINUS
        if negative:
            begin += 1
        count, fraction, seen, wrong = 0, 0, False, end <= begin
        for position in range(begin, end):
            byte = data[position]
            if byte == _POINT and not seen:
                seen = True
            elif _ZERO <= byte <= _NINE:
                digits[count] = byte - _ZERO
                count += 1
                fraction += seen
            else:
                wrong = True
                break
        if wrong or count == 0:
            # NaN and the infinities are values without a form, everything else is no number.
            formless = not negative and is_word(data, begin, end, _NAN_WORD)
            formless = formless or is_word(data, begin, end, _INFINITY_WORD)
            lost += not formless
            at = put_literal(literals, ends, 0 if formless else 2, out, at)
            offsets[row + 1] = at
            continue
        scale = argument
        if variable:
            while fraction > 0 and digits[count - 1] == 0:
                fraction -= 1
                count -= 1
            scale = fraction
        up = False
        while fraction < scale:
            digits[count] = 0
            count += 1
            fraction += 1
        if fraction > scale:
            cut = fraction - scale
            up = cut <= count and digits[count - cut] >= 5
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
        if count <= 18:
            value = np.int64(0)
            for position in range(count):
                value = value * 10 + digits[position]
            length = small_unscaled(-value if negative else value, scratch)
        else:
            length = large_unscaled(digits, count, negative, scratch)
        if variable:
            at = put_bytes(_SCALE, out, at)
            at = put_integer(np.int64(scale), out, at)
            at = put_bytes(_VALUE, out, at)
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
def decimal_texts(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Decimal text as a string, NaN and the infinities by the names that decimal.handling.mode=string gives them."""
    at, lost = 0, 0
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


@kernel(leaf=True)
def is_lower_word(data: Any, begin: Any, end: Any, word: Any) -> Any:
    """Whether the bytes are those of `word`, whatever their case."""
    if end - begin != len(word):
        return False
    for position in range(len(word)):  # noqa: SIM110  (numba has no generators in all())
        if data[begin + position] | 32 != word[position]:
            return False
    return True


@kernel(leaf=True)
def smallest(digit: Any, first: Any, single: Any) -> Any:
    """Two digits, and the exponent as 1000 times its negative, for the numbers whose one shortest digit Java refuses.

    Java shows at least two digits, the nearest to the exact value; 0 where that is the digit and a zero.
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


@kernel
def floats(data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any) -> Any:
    """The shortest text of a double (argument 1: float) as Java prints it; NaN and the infinities as strings."""
    digits = np.empty(_LONGEST_FLOAT, np.uint8)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        position, end = bounds[row], bounds[row + 1]
        negative = end > position and data[position] == _MINUS
        if negative:
            position += 1
        letter = np.int64(data[position]) | 32 if end > position else np.int64(0)
        if letter == 110 and not negative and is_lower_word(data, position, end, _LOWER_NAN):
            at = put_bytes(_NAN, out, at)
            offsets[row + 1] = at
            continue
        if letter == 105 and (
            is_lower_word(data, position, end, _LOWER_INF) or is_lower_word(data, position, end, _LOWER_INFINITY)
        ):
            at = put_bytes(_NEGATIVE_INFINITY if negative else _INFINITY, out, at)
            offsets[row + 1] = at
            continue
        count, whole, leading, seen, wrong = 0, 0, 0, False, end <= position or end - position > _LONGEST_FLOAT
        exponent, down, digit = 0, False, False
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
            elif byte | 32 == 101:
                position += 1
                if position < end and (data[position] == _MINUS or data[position] == 43):
                    down = data[position] == _MINUS
                    position += 1
                wrong = end - position < 1 or end - position > 4
                while position < end and not wrong:
                    wrong = not _ZERO <= data[position] <= _NINE
                    exponent = exponent * 10 + data[position] - _ZERO
                    position += 1
            else:
                wrong = True
            position += 1
        if wrong or not digit:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
            offsets[row + 1] = at
            continue
        first = (whole - 1 if whole > 0 else -leading - 1) + (-exponent if down else exponent)
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
        else:
            plain = 0 <= first < 7
            point = first + 1 if plain else 1
            for position in range(max(count, point + 1)):
                if position == point:
                    out[at] = _POINT
                    at += 1
                out[at] = digits[position] if position < count else _ZERO
                at += 1
            if not plain:
                out[at] = 69
                at = put_integer(np.int64(first), out, at + 1)
        offsets[row + 1] = at
    return lost
