"""Decimal numbers: with a fixed scale, with a scale per value, and as text or doubles under decimal.handling.mode."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import BYTES, DOUBLE, INT32, STRING, Field, LogicalType, semantic, struct
from tailrace.kernels.buffers import Bytes, Offsets, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import stored, strings_of
from tailrace.values.binaries import base64_text, put_base64
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.floats import DOUBLES
from tailrace.values.integers import is_integer, put_integer
from tailrace.values.preparation import PreparedFamily
from tailrace.values.texts import (
    LOST,
    VALUE,
    Bool,
    Ends,
    Int,
    ShownValues,
    Texts,
    is_word,
    put_bytes,
    put_literal,
    word,
    written,
)

# --- kernels ----------------------------------------------------------------------------------------------------------

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

    Returns its new number of digits.
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


# --- the family -------------------------------------------------------------------------------------------------------


MOST_DIGITS = 147_455
"""The most digits of a number: 131,072 before the point and 16,383 after it; no database has more."""
VARIABLE_DECIMAL = struct(
    Field("scale", INT32),
    Field("value", BYTES),
    name="io.debezium.data.VariableScaleDecimal",
    version=1,
    doc="Variable scaled decimal",
)

_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
# decimal floating-point numbers, whose exponents end at 6,144
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
# Decimals that Arrow casts to doubles. A number that is too large is infinite, however it is written.
_DOUBLE = re.compile(
    r"([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf(?:inity)?)))(?:(?<=[nN])\([0-9A-Za-z_]*\))?"
)
_NOT_FINITE = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
# Python's own conversion is quadratic, and refuses more than 4,300 digits; below this limit it is faster.
_DIGITS_AT_ONCE = 1_000
# The kernel's time is quadratic in a text's length, so columns with a longer text are converted plainly.
_LONG = 2_000
# The most digits of Arrow's decimals of 128 and of 256 bits.
_MOST_128, _MOST_256 = 38, 76
_CANONICAL, _NEGATIVE_ZERO = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$", r"^-0(\.0+)?$"
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def decimal_type(scale: int, precision: int | None) -> LogicalType:
    """Return a fixed-point number as the big-endian two's complement of its unscaled value."""
    name = "org.apache.kafka.connect.data.Decimal"
    if precision is None:
        return semantic(BYTES, name, scale=str(scale))
    return semantic(BYTES, name, scale=str(scale), connect__decimal__precision=str(precision))


def fixed(scale: int, precision: int | None) -> Conversion:
    """Return the conversion of numbers with a fixed scale."""
    return Conversion(decimal_type(scale, precision), fixed_decimal(scale), FixedDecimals(scale), zero="AA==")


def variable() -> Conversion:
    """Return the conversion of numbers with a scale per value."""
    return Conversion(VARIABLE_DECIMAL, variable_decimal, VariableDecimals(), zero=variable_decimal("0"))


def as_text(scale: int | None, unavailable: str) -> Conversion:
    """Return the conversion of numbers as text in plain digits; `scale` is None if each value has its own."""
    zero, missing = ("0.0", "0") if scale is None else (zero_text(scale), None)
    return Conversion(STRING, decimal_text, DecimalTexts(), zero=zero, missing=missing, unavailable=unavailable)


def zero_text(scale: int) -> str:
    """Return zero with `scale` digits after the point."""
    return "0." + "0" * scale if scale > 0 else "0"


def as_scientific_text() -> Conversion:
    """Return the conversion of numbers as text, with an exponent if Java's BigDecimal.toString has one."""
    return Conversion(STRING, decimal_scientific, zero="")


def as_double() -> Conversion:
    return Conversion(DOUBLE, decimal_double, PreparedFamily(shortest_texts, DOUBLES), zero=0.0)


def floating_as_text() -> Conversion:
    """Return the conversion of decimal floating-point numbers as text in plain digits."""
    return Conversion(STRING, decimal_float, zero="")


def floating_as_double() -> Conversion:
    return Conversion(DOUBLE, decimal_double, zero=0.0)


def floating_variable() -> Conversion:
    """Return the conversion of decimal floating-point numbers with a scale per value."""
    return Conversion(VARIABLE_DECIMAL, variable_decimal_float, zero=variable_decimal("0"))


# --- plain conversions ----------------------------------------------------------------------------------------------


def whole_number(digits: str) -> int:
    """Return the number of decimal digits, in less than quadratic time. Raises ValueError for more than MOST_DIGITS."""
    if len(digits) > MOST_DIGITS:
        raise ValueError("more digits than any number has")
    powers = {0: 1}

    def power(exponent: int) -> int:
        if exponent not in powers:
            powers[exponent] = 10**exponent
        return powers[exponent]

    def halves(part: str) -> int:
        if len(part) <= _DIGITS_AT_ONCE:
            return int(part or "0")
        low = len(part) // 2
        return halves(part[:-low]) * power(low) + halves(part[-low:])

    return halves(digits)


def unscaled_bytes(unscaled: int) -> bytes:
    """Return the two's complement, big-endian, in as few bytes as hold the sign: Java's BigInteger.toByteArray."""
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    """Return `value` times 10 to the `scale`, halves away from zero."""
    sign, digits, exponent = value.as_tuple()
    return _unscaled(bool(sign), "".join(map(str, digits)), int(exponent) + scale)


def _unscaled(negative: bool, digits: str, shift: int) -> int:
    """Return the number of the digits, times 10 to the `shift`, halves away from zero."""
    if shift > MOST_DIGITS:
        raise ValueError("more digits than any number has")
    up = shift < 0 and digits[shift : len(digits) + shift + 1] >= "5" if -shift <= len(digits) else False
    kept = digits + "0" * shift if shift >= 0 else digits[:shift]
    whole = whole_number(kept) + up
    return -whole if negative else whole


def _is_number(text: str) -> bool:
    """Return True for a finite number in plain digits, False for NaN or infinity. Raises ValueError for other texts."""
    if text in _NOT_FINITE:
        return False
    if not _DECIMAL.fullmatch(text):
        raise ValueError("not a number")
    return True


def _demand_number(text: str) -> None:
    """Raise ValueError unless the text is a finite number in plain digits: others have no bytes."""
    if not _is_number(text):
        raise ValueError("not a finite number")


def fixed_decimal(scale: int) -> Callable[[str], str]:
    def convert(text: str) -> str:
        _demand_number(text)
        whole, _, fraction = text.removeprefix("-").partition(".")
        shown = _unscaled(text[0] == "-", whole + fraction, scale - len(fraction))
        return base64_text(unscaled_bytes(shown))

    return convert


def variable_decimal(text: str) -> dict[str, Any]:
    _demand_number(text)
    return _variable(text)


def _variable(text: str) -> dict[str, Any]:
    """Return a number in plain digits as its scale, without trailing zeros, and its unscaled value."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    fraction = fraction.rstrip("0")
    value = _unscaled(text[0] == "-", whole + fraction, 0)
    return {"scale": len(fraction), "value": base64_text(unscaled_bytes(value))}


def decimal_text(text: str) -> str:
    return text if _is_number(text) else _NOT_FINITE[text]


def decimal_scientific(text: str) -> str:
    """Return a decimal text with an exponent if Java's BigDecimal.toString has one; Python's rule is the same."""
    return str(Decimal(text)) if _is_number(text) else _NOT_FINITE[text]


def decimal_double(text: str) -> float:
    number = _DOUBLE.fullmatch(text)
    if number is None:
        raise ValueError("not a number")
    return float(number[1])


def decimal_float(text: str) -> str:
    """Return a decimal floating-point number in plain digits, or the name of NaN or an infinity.

    A negative zero loses its sign, as in Java.
    """
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if not _DECIMAL_FLOAT.fullmatch(text):
        raise ValueError("not a number")
    value = Decimal(text)
    return f"{value or value.copy_abs():f}"


def plain_number(literal: str) -> str:
    """Return a number from a statement in the form of texts: without a plus sign, an exponent or leading zeros."""
    return literal if is_integer(literal) or _DECIMAL.fullmatch(literal) else decimal_float(literal)


def variable_decimal_float(text: str) -> dict[str, Any]:
    if text in _NOT_FINITE:
        raise ValueError("not a finite number")
    return _variable(decimal_float(text))


# --- columns --------------------------------------------------------------------------------------------------------


def shortest_texts(column: pa.Array) -> pa.Array:
    """Return the shortest texts of the doubles nearest to the numbers. Raises pa.ArrowInvalid for another text."""
    return column.cast(pa.string()).cast(pa.float64()).cast(pa.string())


@dataclass(frozen=True, slots=True)
class FixedDecimals(Family):
    """Numbers of a fixed scale."""

    scale: int

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        if texts.exceed(_LONG):
            return None
        return written(decimals, texts, shown, self.scale, each=48 + max(self.scale, 0))

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        if not pa.types.is_decimal(of) or texts.exceed(_LONG):
            return None
        width = of.byte_width
        out, outcome = np.zeros((len(texts), width), np.uint8), np.zeros(len(texts), np.uint8)
        decimal_values(texts.data, texts.bounds, texts.state, self.scale, of.precision, out, outcome)
        return TypedColumn(pa.Array.from_buffers(of, len(texts), [None, pa.py_buffer(out)]), readonly(outcome))


@dataclass(frozen=True, slots=True)
class VariableDecimals(Family):
    """Numbers with a scale per value."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int] | None:
        return None if texts.exceed(_LONG) else written(decimals, texts, shown, VARIABLE_SCALE)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        numbers = texts.column.cast(pa.string())
        usual = pc.all(pc.match_substring_regex(numbers, _CANONICAL)).as_py()
        signed = pc.any(pc.match_substring_regex(numbers, _NEGATIVE_ZERO)).as_py()
        if not usual or signed or texts.exceed(MOST_DIGITS):
            return None
        shorter = pc.replace_substring_regex(numbers, r"(\.[0-9]*?)0+$", r"\1")
        return TypedColumn(pc.utf8_rtrim(shorter, "."), texts.state)


@dataclass(frozen=True, slots=True)
class DecimalTexts(Family):
    """Numbers as text in plain digits."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(decimal_texts, texts, shown, 0)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        return strings_of(self, texts)


def _arrow_decimal(logical: LogicalType) -> pa.DataType:
    """Return a decimal of 128 or 256 bits, or text for more digits. Without a precision it has 38 digits.

    A scale above the precision, as of numeric(3, 5), gives it more digits, which Arrow demands.
    """
    precision, scale = int(dict(logical.parameters).get("connect.decimal.precision", _MOST_128)), _scale(logical)
    precision = max(precision, scale)
    if precision - min(scale, 0) > _MOST_256:
        return pa.string()
    of = pa.decimal128 if precision <= _MOST_128 else pa.decimal256
    return of(precision, scale)


def spark_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the type in which Spark holds a decimal of Arrow: its scale is not negative, and it has up to 38 digits.

    More digits are a text.
    """
    precision, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
    return pa.string() if precision > _MOST_128 else pa.decimal128(precision, scale)


def spark_decimals(values: pa.Array) -> pa.Array:
    """Return decimals in the type of `spark_decimal`."""
    kind = values.type
    if kind.scale < 0:
        # as a text it would have an exponent
        values = values.cast(pa.decimal256(kind.precision - kind.scale, 0))
    return values.cast(spark_decimal(kind))


def _scale(logical: LogicalType) -> int:
    return int(dict(logical.parameters)["scale"])


def _arrow_number(value: str, logical: LogicalType) -> Decimal | str:
    of = _arrow_decimal(logical)
    whole = int.from_bytes(base64.b64decode(value), "big", signed=True)
    number = _scaled(whole, _scale(logical))
    if not pa.types.is_decimal(of):
        return f"{number:f}"
    if abs(whole) >= 10**of.precision:
        raise ValueError("more digits than the type has")
    return number


def _scaled(whole: int, scale: int) -> Decimal:
    return Decimal(whole).scaleb(-scale, _EXACT)


def _arrow_variable(value: dict[str, Any], logical: LogicalType) -> str:
    whole = int.from_bytes(base64.b64decode(value["value"]), "big", signed=True)
    return f"{_scaled(whole, value['scale']):f}"


def variable_part(name: str, texts: pa.Array) -> pa.Array:
    """Return a field of numbers of VARIABLE_DECIMAL, whose Arrow form is texts; nulls stay null."""
    numbers = [None if text is None else Decimal(text) for text in texts.to_pylist()]
    scales = [None if number is None else -int(number.as_tuple().exponent) for number in numbers]
    if name == "scale":
        return pa.array(scales, pa.int32())
    values = (
        None if number is None or scale is None else unscaled_bytes(unscaled(number, scale))
        for number, scale in zip(numbers, scales, strict=True)
    )
    return pa.array(values, pa.binary())


stored("org.apache.kafka.connect.data.Decimal", _arrow_decimal, _arrow_number)
stored("io.debezium.data.VariableScaleDecimal", pa.string(), _arrow_variable)
