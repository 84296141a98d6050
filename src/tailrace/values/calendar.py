"""Dates of the proleptic Gregorian calendar: days since 1970 to text and back.

The text is ISO 8601 with years of four digits or more, and ` BC` at the end for years before 1. Years are counted
astronomically (1 BC is 0).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from tailrace.columns.logical import INT8, INT32, Field, LogicalType, struct
from tailrace.kernels.buffers import Bytes
from tailrace.kernels.compiled import kernel
from tailrace.values.integers import put_integer
from tailrace.values.texts import Int, is_word, word

MILLI, MICRO, NANO, ISO = range(4)
"""The unit of a time's number, or ISO text."""
DAY_US = 86_400_000_000
DAY_NS = 86_400_000_000_000
INT64_MAX = 2**63 - 1
DATE_PATTERN = r"([0-9]{4,7})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
DAY_PARTS = {"year": INT32, "month": INT8, "day": INT8}
SPECIAL = {"infinity": "POSITIVE_INFINITY", "-infinity": "NEGATIVE_INFINITY"}
"""Infinite dates and timestamps in structured values."""

Parts = dict[str, Any]
Found = npt.NDArray[np.int64]
"""The result of a kernel that reads a text: days since 1970, time of day, offset from UTC."""

_ZERO, _NINE, _MINUS, _PLUS = 48, 57, 45, 43
_INFINITY = word(b"infinity")
_GREGORIAN = -141_427
"""The day 1582-10-15; before it, Java's dates are of the Julian calendar."""


def whole(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    """Return the match of the whole text. Raises ValueError if there is none."""
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError("not in ISO form")
    return found


def days(year: int, month: int, day: int) -> int:
    """Return a date as days since 1970."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def days_of(found: re.Match[str], text: str) -> int:
    """Return the date in the first three groups of a match in `text`, as days since 1970; `text` may end with ` BC`."""
    year = 1 - int(found[1]) if text.endswith(" BC") else int(found[1])
    return days(year, int(found[2]), int(found[3]))


def civil(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of `day` days since 1970."""
    day += 719_468
    era, of_era = divmod(day, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    month_of_year = month + (3 if month < 10 else -9)
    return year + era * 400 + (month_of_year <= 2), month_of_year, of_year - (153 * month + 2) // 5 + 1


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day in Java's calendar of days since 1970; years before 1 count backwards from 1."""
    if days >= _GREGORIAN:
        return civil(days)
    # days since 1 March of the year 0
    era, rest = divmod(days + 719_470, 1461)
    of_era = min(rest // 365, 3)
    rest -= 365 * of_era
    month = (5 * rest + 2) // 153
    year = 4 * era + of_era + (month > 9)
    return (year if year > 0 else 1 - year), month + (3 if month < 10 else -9), rest - (153 * month + 2) // 5 + 1


def iso_day(day: int) -> str:
    """Return days since 1970 as ISO 8601 and Java write them: four-digit years, with a sign beyond 9999 and below 0."""
    year, month, of_month = civil(day)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{of_month:02d}"


def day_parts(day: int) -> Parts:
    return dict(zip(DAY_PARTS, civil(day), strict=True))


def infinite_parts(text: str, *names: str) -> Parts | None:
    """Return null parts with the infinity's name; None for a finite value."""
    special = SPECIAL.get(text)
    return None if special is None else {**dict.fromkeys(names), "specialValue": special}


def structured(name: str, **parts: LogicalType) -> LogicalType:
    """Return the schema of a date, time or duration in its parts, each of which may be null."""
    fields = (Field(part, kind.with_optional(True)) for part, kind in parts.items())
    return struct(*fields, name=f"io.debezium.time.Structured{name}", version=1)


@kernel(leaf=True, inlined=True)
def two_digits(data: Bytes, at: Int) -> Int:
    """Return the number of two digits, or a large negative one if they are not digits, which spoils every sum."""
    high, low = np.int64(data[at]) - _ZERO, np.int64(data[at + 1]) - _ZERO
    if high < 0 or high > 9 or low < 0 or low > 9:
        return -1_000_000_000
    return high * 10 + low


@kernel(leaf=True, inlined=True)
def behind_era(data: Bytes, begin: Int, end: Int) -> Int:
    """Return where ` BC` begins at the end of the text; the end if there is none."""
    if end - begin > 3 and data[end - 1] == 67 and data[end - 2] == 66 and data[end - 3] == 32:
        return end - 3
    return end


@kernel(leaf=True, inlined=True)
def infinity(data: Bytes, begin: Int, end: Int) -> int:
    """Return 1 for `infinity`, -1 for `-infinity`, 0 for any other text."""
    if end == begin or data[end - 1] != 121:
        return 0
    if data[begin] == _MINUS:
        return -1 if is_word(data, begin + 1, end, _INFINITY) else 0
    return 1 if is_word(data, begin, end, _INFINITY) else 0


@kernel(leaf=True, inlined=True)
def read_date(data: Bytes, begin: Int, end: Int, found: Found) -> Int:
    """Read a date into found[0], days since 1970; return its end, or -1 if there is none."""
    position, year = begin, np.int64(0)
    while position < end and _ZERO <= data[position] <= _NINE:
        year = year * 10 + data[position] - _ZERO
        position += 1
    if position - begin < 4 or position - begin > 7 or position + 6 > end:
        return -1
    month, day = two_digits(data, position + 1), two_digits(data, position + 4)
    if data[position] != _MINUS or data[position + 3] != _MINUS or not 1 <= month <= 12 or not 1 <= day <= 31:
        return -1
    if behind_era(data, begin, end) < end:
        year = 1 - year
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3) + 2) // 5 + day - 1
    found[0] = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return position + 6


@kernel(leaf=True, inlined=True)
def put_two(value: Int, out: Bytes, at: Int) -> Int:
    """Write two digits; return the end."""
    out[at] = _ZERO + value // 10
    out[at + 1] = _ZERO + value % 10
    return at + 2


@kernel(leaf=True)
def put_day(day: Int, out: Bytes, at: Int) -> Int:
    """Write days since 1970 as a date, with the year as in ISO 8601; return the end."""
    day += 719_468
    era = day // 146_097
    of_era = day - era * 146_097
    of_400 = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_400 + of_400 // 4 - of_400 // 100)
    month = (5 * of_year + 2) // 153
    of_month = of_year - (153 * month + 2) // 5 + 1
    year = of_400 + era * 400
    month += 3
    if month > 12:
        month -= 12
        year += 1
    if year < 0:
        out[at] = _MINUS
        at += 1
        year = -year
    elif year > 9999:
        out[at] = _PLUS
        at += 1
    if year > 9999:
        at = put_integer(np.int64(year), out, at)
    else:
        at = put_two(year // 100, out, at)
        at = put_two(year % 100, out, at)
    out[at] = _MINUS
    at = put_two(month, out, at + 1)
    out[at] = _MINUS
    return put_two(of_month, out, at + 1)
