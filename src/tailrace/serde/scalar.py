"""One value at a time: text to the JSON form of its logical type, in plain Python, as every connector means it.

These functions say what a value means; a connector's own types are with the connector. Each takes the text of a value
that is not NULL; None as a result means that it is shown as null (a NaN); ValueError that the text is not one of the
type's, or that the logical type cannot hold the value.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.serde.json_text import Verbatim, java_number


def number(text: str) -> Verbatim:
    """An integer, as it stands."""
    return Verbatim(int(text))


def boolean(text: str) -> bool:
    return {"t": True, "f": False, "true": True, "false": False}[text]


def string(text: str) -> str:
    return text


def floating(single: bool) -> Callable[[str], Verbatim]:
    def convert(text: str) -> Verbatim:
        float(text)
        return Verbatim(java_number(text, single))

    return convert


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled_bytes(unscaled: int) -> bytes:
    """Two's complement, big-endian, as few bytes as hold the sign: Java's BigInteger.toByteArray."""
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def unscaled(value: Decimal, scale: int) -> int:
    """`value` times 10 to the `scale`, halves away from zero."""
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits)) or "0")
    power: int
    shift = int(exponent) + scale
    if shift >= 0:
        power = 10**shift
        whole *= power
    else:
        power = 10**-shift
        whole = (whole + power // 2) // power
    return -whole if sign else whole


def fixed_decimal(scale: int) -> Callable[[str], str | None]:
    def convert(text: str) -> str | None:
        value = Decimal(text)
        return base64_text(unscaled_bytes(unscaled(value, scale))) if value.is_finite() else None

    return convert


def variable_decimal(text: str) -> dict[str, Any] | None:
    value = Decimal(text)
    if not value.is_finite():
        return None
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    while scale and not int(digits[-1]):
        scale, digits = scale - 1, digits[:-1] or (0,)
    return {"scale": scale, "value": base64_text(unscaled_bytes(unscaled(value, scale)))}


def decimal_text(text: str) -> str:
    special = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
    return special.get(text, text)


def decimal_scientific(text: str) -> str:
    """A decimal text with an exponent where Java's BigDecimal.toString has one; Python's rule is the same."""
    value = Decimal(text)
    return str(value) if value.is_finite() else decimal_text(text)


def decimal_double(text: str) -> float:
    return float(text)


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
    if not text.startswith("\\x"):
        raise ValueError("bytes are not in hex form")
    return bytes.fromhex(text[2:])


def finite_decimal(text: str) -> Decimal | None:
    """The number; None for NaN and the infinities, ValueError for what is no number."""
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise ValueError("not a number") from None
    return value if value.is_finite() else None
