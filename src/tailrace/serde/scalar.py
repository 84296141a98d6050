"""One value at a time: text to the JSON form of its logical type, in plain Python, as every connector means it.

These functions say what a value means; a connector's own types are with the connector. Each takes the text of a value
that is not NULL; None as a result means that it is shown as null (a NaN); ValueError that the text is not one of the
type's, or that the logical type cannot hold the value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.serde.json_text import Verbatim, java_number

LONGEST_FLOAT = 400
"""The most characters of a floating-point number's text, but for its sign; servers send 24 at most."""
MOST_DIGITS = 147_455
"""The most digits of a number: 131,072 before the point and 16,383 behind it, more than which no database has."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DECIMAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
# of decimal floating-point numbers, whose exponents end at 6,144
_DECIMAL_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|(?i:nan|-?inf(?:inity)?)")
# of decimals that are told as doubles: what Arrow casts to one; too large a number is infinite, however it is written
_DOUBLE = re.compile(
    r"([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf(?:inity)?)))(?:(?<=[nN])\([0-9A-Za-z_]*\))?"
)
_HEXADECIMAL = re.compile(r"\\x(?:[0-9a-f]{2})*")
_NOT_FINITE = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
# Python's own conversion is quadratic, and refuses more than 4,300 digits; of fewer than these it is the faster one.
_DIGITS_AT_ONCE = 1_000


def number(text: str) -> Verbatim:
    """An integer of 64 bits, as it stands."""
    if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("not an integer")
    return Verbatim(text)


def whole_number(digits: str) -> int:
    """The number of decimal digits, in less than quadratic time. ValueError for more than MOST_DIGITS."""
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


def boolean(text: str) -> bool:
    return {"t": True, "f": False, "true": True, "false": False}[text]


def string(text: str) -> str:
    return text


def floating(single: bool) -> Callable[[str], Verbatim]:
    def convert(text: str) -> Verbatim:
        return Verbatim(java_number(_float_text(text), single))

    return convert


def _float_text(text: str) -> str:
    if len(text.removeprefix("-")) > LONGEST_FLOAT or not _FLOAT.fullmatch(text):
        raise ValueError("not a number")
    return text


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled_bytes(unscaled: int) -> bytes:
    """Two's complement, big-endian, as few bytes as hold the sign: Java's BigInteger.toByteArray."""
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    """`value` times 10 to the `scale`, halves away from zero."""
    sign, digits, exponent = value.as_tuple()
    return _unscaled(bool(sign), "".join(map(str, digits)), int(exponent) + scale)


def _unscaled(negative: bool, digits: str, shift: int) -> int:
    """The number of the digits, times 10 to the `shift`, halves away from zero."""
    if shift > MOST_DIGITS:
        raise ValueError("more digits than any number has")
    up = shift < 0 and digits[shift : len(digits) + shift + 1] >= "5" if -shift <= len(digits) else False
    kept = digits + "0" * shift if shift >= 0 else digits[:shift]
    whole = whole_number(kept) + up
    return -whole if negative else whole


def _is_number(text: str) -> bool:
    """Whether the text is a finite number in plain digits; ValueError where it is none at all."""
    if text in _NOT_FINITE:
        return False
    if not _DECIMAL.fullmatch(text):
        raise ValueError("not a number")
    return True


def fixed_decimal(scale: int) -> Callable[[str], str | None]:
    def convert(text: str) -> str | None:
        if not _is_number(text):
            return None
        whole, _, fraction = text.removeprefix("-").partition(".")
        shown = _unscaled(text[0] == "-", whole + fraction, scale - len(fraction))
        return base64_text(unscaled_bytes(shown))

    return convert


def variable_decimal(text: str) -> dict[str, Any] | None:
    return _variable(text) if _is_number(text) else None


def _variable(text: str) -> dict[str, Any]:
    """A number in plain digits as its scale, without zeros at its end, and its unscaled value."""
    whole, _, fraction = text.removeprefix("-").partition(".")
    fraction = fraction.rstrip("0")
    value = _unscaled(text[0] == "-", whole + fraction, 0)
    return {"scale": len(fraction), "value": base64_text(unscaled_bytes(value))}


def decimal_text(text: str) -> str:
    return text if _is_number(text) else _NOT_FINITE[text]


def decimal_scientific(text: str) -> str:
    """A decimal text with an exponent where Java's BigDecimal.toString has one; Python's rule is the same."""
    return str(Decimal(text)) if _is_number(text) else _NOT_FINITE[text]


def decimal_double(text: str) -> float:
    number = _DOUBLE.fullmatch(text)
    if number is None:
        raise ValueError("not a number")
    return float(number[1])


def decimal_float(text: str) -> str:
    """A decimal floating-point number in plain digits, or the name of one that is not finite.

    Without the sign of a negative zero, as Java has none.
    """
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if not _DECIMAL_FLOAT.fullmatch(text):
        raise ValueError("not a number")
    value = Decimal(text)
    return f"{value or value.copy_abs():f}"


def plain_number(literal: str) -> str:
    """A number as a statement has it, in the form of texts: without a plus sign, an exponent or zeros before it."""
    return literal if _INTEGER.fullmatch(literal) or _DECIMAL.fullmatch(literal) else decimal_float(literal)


def variable_decimal_float(text: str) -> dict[str, Any] | None:
    return None if text in _NOT_FINITE else _variable(decimal_float(text))


def days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date of the proleptic Gregorian calendar, years counted astronomically."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil(day: int) -> tuple[int, int, int]:
    """The year, month and day of `day` days since 1970."""
    day += 719_468
    era, of_era = divmod(day, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    month_of_year = month + (3 if month < 10 else -9)
    return year + era * 400 + (month_of_year <= 2), month_of_year, of_year - (153 * month + 2) // 5 + 1


def year_text(year: int) -> str:
    """A year as ISO 8601 and Java write it: four digits, a sign beyond 9999 and below 0."""
    if year > 9999:
        return f"+{year}"
    return f"-{-year:04d}" if year < 0 else f"{year:04d}"


def binary_text(mode: str) -> Callable[[bytes], str]:
    """Bytes as JSON writes them under a binary.handling.mode."""
    if mode == "hex":
        return bytes.hex
    if mode == "base64-url-safe":
        return lambda data: base64.urlsafe_b64encode(data).decode()
    return base64_text


def hexadecimal(text: str) -> bytes:
    r"""The bytes that hexadecimal digits behind `\x` stand for."""
    if not _HEXADECIMAL.fullmatch(text):
        raise ValueError("bytes are not in hex form")
    return bytes.fromhex(text[2:])
