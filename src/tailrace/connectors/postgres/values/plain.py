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

_CLOCK = r"([01][0-9]|2[0-4]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?"
_OFFSET = r"([+-])([0-9]{2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?"
_DATE = r"([0-9]{4,7})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_A_TIME = re.compile(_CLOCK)
_A_ZONED_TIME = re.compile(_CLOCK + _OFFSET)
_A_DATE = re.compile(_DATE + "( BC)?")
_A_TIMESTAMP = re.compile(f"{_DATE} {_CLOCK}( BC)?")
_A_ZONED_TIMESTAMP = re.compile(f"{_DATE} {_CLOCK}{_OFFSET}( BC)?")
_INTERVAL = re.compile(
    r"(?=[^ ])(?:([+-]?[0-9]{1,10}) years?)?(?:(?:^| )([+-]?[0-9]{1,10}) mons?)?(?:(?:^| )([+-]?[0-9]{1,10}) days?)?"
    r"(?:(?:^| )([+-]?)([0-9]{2,10}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,6})?))?"
)
_LAST_HOUR = 2_562_047_788
_FLOAT = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_NUMBER = re.compile(rf"{_FLOAT}|[+-]?(?:Infinity|NaN)")
_POINT = re.compile(r"\(([^,()]+),([^,()]+)\)")
_SPARSE_VECTOR = re.compile(r"\{((?:[0-9]{1,5}:[^:,]+(?:,(?=[0-9])|(?=\})))*)\}/([0-9]{1,9})")
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, )?', re.DOTALL)


def _whole(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError("not in the server's form")
    return found


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
    found = _whole(_A_DATE, text)
    return scalar.days(_year(found[1], text), int(found[2]), int(found[3]))


def _clock_us(found: re.Match[str], first: int = 1) -> int:
    """The time of day in the four groups from `first` on."""
    hours, minutes, seconds, rest = found.group(first, first + 1, first + 2, first + 3)
    us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((rest or "").ljust(6, "0"))
    if us > DAY_US:
        raise ValueError("behind the end of the day")
    return us


def time_us(text: str) -> int:
    return _clock_us(_whole(_A_TIME, text))


def _offset_us(found: re.Match[str], first: int) -> int:
    """The offset in the four groups from `first` on."""
    sign, hours, minutes, seconds = found.group(first, first + 1, first + 2, first + 3)
    us = (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    return us if sign == "+" else -us


def zoned_time_parts_us(text: str) -> tuple[int, int]:
    """The time of day in its own zone, and the zone's offset."""
    found = _whole(_A_ZONED_TIME, text)
    return _clock_us(found), _offset_us(found, 5)


def time_shifted_us(text: str) -> int:
    """The time of day with its offset taken off, which may lead to the day before or after."""
    clock, offset = zoned_time_parts_us(text)
    return clock - offset


def time_zoned_us(text: str) -> int:
    """The time of day in UTC, 0 to 24 h exclusive."""
    return time_shifted_us(text) % DAY_US


def timestamp_us(text: str) -> int:
    """µs since 1970, unbounded; the infinite ones by their constants."""
    if text in ("infinity", "-infinity"):
        return INFINITY_US if text == "infinity" else MINUS_INFINITY_US
    return _moment_us(_whole(_A_TIMESTAMP, text), text)


def _moment_us(found: re.Match[str], text: str) -> int:
    day = scalar.days(_year(found[1], text), int(found[2]), int(found[3]))
    return day * DAY_US + _clock_us(found, 4)


def timestamp_zoned_us(text: str) -> int:
    found = _whole(_A_ZONED_TIMESTAMP, text)
    return _moment_us(found, text) - _offset_us(found, 8)


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
    years, months, of_days, sign, *clock = _whole(_INTERVAL, text).groups()
    hours, minutes, seconds = int(clock[0] or 0), int(clock[1] or 0), Decimal(clock[2] or 0)
    if hours > _LAST_HOUR:
        raise ValueError("more hours than an interval has")
    if sign == "-":
        hours, minutes, seconds = -hours, -minutes, -seconds
    return int(years or 0), int(months or 0), int(of_days or 0), hours, minutes, seconds


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
    if text.strip("01"):
        raise ValueError("not bits")
    value = int(text or "0", 2)
    return scalar.base64_text(value.to_bytes((value.bit_length() + 7) // 8, "little"))


def point(text: str) -> dict[str, Any]:
    x, y = (scalar.decimal_double(part) for part in _whole(_POINT, text).groups())
    wkb = binary.pack("<BIdd", 1, 1, x, y)
    return {"x": x, "y": y, "wkb": scalar.base64_text(wkb), "srid": None}


def geometry(text: str) -> dict[str, Any]:
    """PostGIS: hexadecimal EWKB, whose type word may carry a spatial reference."""
    data = bytes.fromhex(text)
    if len(data) < 9:
        raise ValueError("no geometry is so short")
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
    found = _whole(_SPARSE_VECTOR, text)
    dimensions = int(found[2])
    if dimensions >= 2**15:
        raise ValueError("more dimensions than an int16 holds")
    element = scalar.floating(False)
    pairs = (pair.split(":") for pair in found[1].split(",") if pair)
    return {"dimensions": dimensions, "vector": [[int(index), element(value)] for index, value in pairs]}


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
