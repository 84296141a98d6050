"""One value at a time: the server's text to the JSON form of its logical type, in plain Python.

These functions say what a value means. They serve the types that are too rare for compiled conversion, the
defaults and zero values of columns, and the tests that hold the compiled conversions to the same results. Each
takes the text of a value that is not NULL; None as a result means that it is shown as null (a NaN); ValueError that
the text is not one of the type's, or that the logical type cannot hold the value.
"""

from __future__ import annotations

import re
import struct as binary
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.serde import scalar
from tailrace.serde.json_text import Verbatim, dumps, java_number

DAY_US = 86_400_000_000
# What the server's infinite timestamps are to consumers, in µs; Debezium's own constants.
INFINITY_US = 9_223_372_036_825_200_000
MINUS_INFINITY_US = -9_223_372_036_832_400_000
INT64_MAX = 2**63 - 1
# The server's own infinite dates are the ends of an int32.
INFINITY_DAYS = 2**31 - 1
MINUS_INFINITY_DAYS = -(2**31)

_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_OFFSET = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?$")
_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)")
_INTERVAL_UNIT = re.compile(r"([+-]?\d+) (year|mon|day)s?")
_INTERVAL_CLOCK = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)$")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|Infinity|NaN)")
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


def _match(pattern: re.Pattern[str], text: str, start: int = 0) -> re.Match[str]:
    found = pattern.match(text, start)
    if found is None:
        raise ValueError("not in the server's form")
    return found


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """The precision and scale in a numeric's modifier; scales are signed and have eleven bits."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def money_digits(text: str) -> str:
    """The number in a money text of any currency whose decimal sign is a point."""
    digits = re.sub(r"[^0-9.]", "", text)
    return "-" + digits if "-" in text or "(" in text else digits


def _year(digits: str, text: str) -> int:
    return 1 - int(digits) if text.endswith(" BC") else int(digits)


def date_days(text: str) -> int:
    if text in ("infinity", "-infinity"):
        return INFINITY_DAYS if text == "infinity" else MINUS_INFINITY_DAYS
    found = _match(_DATE, text)
    return scalar.days(_year(found[1], text), int(found[2]), int(found[3]))


def _clock_us(found: re.Match[str]) -> int:
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    return seconds * 1_000_000 + int((found[4] or "").ljust(6, "0"))


def time_us(text: str) -> int:
    return _clock_us(_match(_CLOCK, text))


def _offset_us(text: str) -> int:
    found = _OFFSET.search(text)
    if found is None:
        raise ValueError("no offset")
    seconds = int(found[2]) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    return seconds * (1_000_000 if found[1] == "+" else -1_000_000)


def time_shifted_us(text: str) -> int:
    """The time of day with its offset taken off, which may lead to the day before or after."""
    return time_us(text) - _offset_us(text)


def time_zoned_us(text: str) -> int:
    """The time of day in UTC, 0 to 24 h exclusive."""
    return time_shifted_us(text) % DAY_US


def timestamp_us(text: str) -> int:
    """µs since 1970, unbounded; the infinite ones by their constants."""
    if text in ("infinity", "-infinity"):
        return INFINITY_US if text == "infinity" else MINUS_INFINITY_US
    found = _match(_DATE, text)
    clock = _match(_CLOCK, text, found.end() + 1)
    return scalar.days(_year(found[1], text), int(found[2]), int(found[3])) * DAY_US + _clock_us(clock)


def timestamp_zoned_us(text: str) -> int:
    return timestamp_us(text) - _offset_us(text.removesuffix(" BC"))


def fraction(us: int, digits: int | None) -> str:
    """The fraction of a second with `digits` digits, or with as many as it needs."""
    text = f"{us:06d}"
    text = text.rstrip("0") if digits is None else text[:digits]
    return "." + text if text else ""


def _iso_day(day: int) -> str:
    year, month, of_month = scalar.civil(day)
    return f"{scalar.year_text(year)}-{month:02d}-{of_month:02d}"


def _iso_clock(us: int, digits: int | None) -> str:
    seconds, rest = divmod(us, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction(rest, digits)}Z"


def iso_date(text: str) -> str:
    return _iso_day(date_days(text)) + "Z"


def iso_time(text: str) -> str:
    return _iso_clock(time_us(text) % DAY_US, None)


def zoned_time(text: str) -> str:
    return _iso_clock(time_zoned_us(text), None)


def _iso_instant(us: int, digits: int | None) -> str:
    return _iso_day(us // DAY_US) + "T" + _iso_clock(us % DAY_US, digits)


def iso_timestamp(text: str) -> str:
    return _iso_instant(timestamp_us(text), None)


def zoned_timestamp(digits: int | None) -> Callable[[str], str]:
    def convert(text: str) -> str:
        return text if text in ("infinity", "-infinity") else _iso_instant(timestamp_zoned_us(text), digits)

    return convert


def timestamp_in(divisor: int, multiplier: int) -> Callable[[str], int]:
    """µs by a rational factor, rounded down. In ns the infinite ones are the ends of an int64."""

    def convert(text: str) -> int:
        us = timestamp_us(text)
        if multiplier > 1 and text in ("infinity", "-infinity"):
            return INT64_MAX if text == "infinity" else -INT64_MAX - 1
        return _in_range(us * multiplier // divisor)

    return convert


def _in_range(value: int) -> int:
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError("beyond 64 bits")
    return value


def time_in(divisor: int, multiplier: int) -> Callable[[str], int]:
    return lambda text: time_us(text) * multiplier // divisor


def interval_parts(text: str) -> tuple[int, int, int, int, int, Decimal]:
    """Years, months, days, hours, minutes and seconds, each with its own sign."""
    units = {unit: int(amount) for amount, unit in _INTERVAL_UNIT.findall(text)}
    clock = _INTERVAL_CLOCK.search(text)
    if clock is None and not units:
        raise ValueError("not an interval")
    hours, minutes, seconds = (int(clock[2]), int(clock[3]), Decimal(clock[4])) if clock else (0, 0, Decimal(0))
    if clock and clock[1] == "-":
        hours, minutes, seconds = -hours, -minutes, -seconds
    return units.get("year", 0), units.get("mon", 0), units.get("day", 0), hours, minutes, seconds


def interval_us(text: str) -> int:
    """An interval in µs, a month as a twelfth of 365.25 days; at most the ends of an int64."""
    years, months, of_days, hours, minutes, seconds = interval_parts(text)
    month_us = DAY_US * 487 // 16
    us = (years * 12 + months) * month_us + of_days * DAY_US + (hours * 3600 + minutes * 60) * 1_000_000
    us += int(seconds * 1_000_000)
    return max(-INT64_MAX - 1, min(us, INT64_MAX))


def interval_iso(text: str) -> str:
    years, months, of_days, hours, minutes, seconds = interval_parts(text)
    shown = f"{seconds.normalize():f}" if seconds else "0"
    return f"P{years}Y{months}M{of_days}DT{hours}H{minutes}M{shown}S"


def bit(text: str) -> bool:
    return {"1": True, "0": False}[text]


def bit_string(text: str) -> str:
    """Bits as little-endian bytes without trailing zero bytes."""
    value = int(text or "0", 2)
    return scalar.base64_text(value.to_bytes((value.bit_length() + 7) // 8, "little"))


def point(text: str) -> dict[str, Any]:
    x, y = (float(part) for part in text.strip("()").split(","))
    wkb = binary.pack("<BIdd", 1, 1, x, y)
    return {"x": x, "y": y, "wkb": scalar.base64_text(wkb), "srid": None}


def geometry(text: str) -> dict[str, Any]:
    """PostGIS: hexadecimal EWKB, whose type word may carry a spatial reference."""
    data = bytes.fromhex(text)
    order = "<" if data[0] == 1 else ">"
    kind = binary.unpack_from(order + "I", data, 1)[0]
    srid = binary.unpack_from(order + "i", data, 5)[0] if kind & 0x20000000 else None
    return {"wkb": scalar.base64_text(data), "srid": srid}


def vector(single: bool) -> Callable[[str], list[Verbatim]]:
    element = scalar.floating(single)

    def convert(text: str) -> list[Verbatim]:
        if not text.startswith("[") or not text.endswith("]"):
            raise ValueError("not a vector")
        inner = text[1:-1]
        return [element(part) for part in inner.split(",")] if inner else []

    return convert


def sparse_vector(text: str) -> dict[str, Any]:
    """`{1:1,5:-3}/10`: the dimensions, and the pairs of index and value in the order of the indexes.

    ValueError where the dimensions, and with them an index, exceed the int16 that the schema has for both.
    """
    inner, _, size = text.rpartition("/")
    dimensions = int(size)
    if dimensions >= 2**15:
        raise ValueError("more dimensions than an int16 holds")
    pairs = (pair.split(":") for pair in inner[1:-1].split(",") if pair)
    return {
        "dimensions": dimensions,
        "vector": [[int(index), Verbatim(java_number(value))] for index, value in pairs],
    }


def vector_of(element: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """The elements of an oidvector or int2vector, which blanks part."""
    return lambda text: [element(part) for part in text.split()]


def geometric_bytes(text: str) -> bytes:
    """The bytes of a geometric value, its numbers written as doubles: `(2.0,2.0),(0.0,0.0)`."""
    return _NUMBER.sub(lambda match: java_number(match.group()).strip('"'), text).encode()


def hstore(text: str) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    position = 0
    while position < len(text):
        found = _match(_HSTORE, text, position)
        value = found[2]
        pairs[re.sub(r"\\(.)", r"\1", found[1])] = None if value is None else re.sub(r"\\(.)", r"\1", value)
        position = found.end()
    return pairs


def hstore_json(text: str) -> str:
    return dumps(hstore(text))


def array_items(text: str, delimiter: str) -> list[str | None]:
    """The elements of an array of one dimension; ValueError for more, which no array schema can hold."""
    if text.startswith("["):
        text = text.partition("=")[2]
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("not an array")
    if text == "{}":
        return []
    items: list[str | None] = []
    position, last = 1, len(text) - 1
    while True:
        if text[position] == "{":
            raise ValueError("an array of several dimensions")
        if text[position] == '"':
            item, position = _quoted_item(text, position + 1)
            items.append(item)
        else:
            end = text.find(delimiter, position)
            end = last if end < 0 else end
            raw = text[position:end]
            if not raw:
                raise ValueError("an element without a text")
            items.append(None if raw.upper() == "NULL" else raw)
            position = end
        if position == last:
            return items
        if text[position] != delimiter or position + 1 == last:
            raise ValueError("not an array")
        position += 1


def _quoted_item(text: str, position: int) -> tuple[str, int]:
    parts: list[str] = []
    while text[position] != '"':
        if text[position] == "\\":
            position += 1
        parts.append(text[position])
        position += 1
    return "".join(parts), position + 1


def array_of(element: Callable[[str], Any], nulls: bool, delimiter: str = ",") -> Callable[[str], list[Any]]:
    """Elements by `element`; ValueError for an array with a NULL where the element may not be null."""

    def convert(text: str) -> list[Any]:
        items = array_items(text, delimiter)
        if not nulls and None in items:
            raise ValueError("a NULL among elements that may not be null")
        return [None if item is None else element(item) for item in items]

    return convert
