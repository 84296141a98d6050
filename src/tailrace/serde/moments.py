"""Dates, times of day and timestamps to the nanosecond, one value at a time, in plain Python.

The text is ISO 8601 as change tables give it: `2019-05-27`, `13:58:28.1234567`, `2019-05-27 13:58:28.1234567`, and
`2019-05-27 13:58:28.1234567 +02:00` with an offset. Years have four digits, and 24:00:00 ends a day. Of a fraction of a
second nine digits count, further ones are cut. ValueError says that a text is none of these, or that the result does
not fit its type. `digits` is the precision of the column's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tailrace.serde import scalar

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
MILLI, MICRO, NANO, ISO = range(4)
"""What a number counts, or that it is ISO text; the argument of the kernels of `serde.fine_kernels`."""

_UNITS_NS = {MILLI: 1_000_000, MICRO: 1000, NANO: 1}
_INT64 = 2**63
_DATE = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")
_CLOCK = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?")
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-5][0-9])")

Parts = dict[str, Any]


def _whole(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError("not in ISO form")
    return found


def date_days(text: str) -> int:
    """Days since 1970."""
    found = _whole(_DATE, text)
    return scalar.days(int(found[1]), int(found[2]), int(found[3]))


def clock_ns(text: str) -> int:
    """The time of day in ns."""
    found = _whole(_CLOCK, text)
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    ns = seconds * SECOND_NS + int((found[4] or "")[:9].ljust(9, "0"))
    if ns > DAY_NS:
        raise ValueError("behind the end of the day")
    return ns


def timestamp(text: str) -> tuple[int, int]:
    """Days since 1970, and the time of day in ns."""
    return date_days(text[:10]), clock_ns(_after(text, " "))


def _after(text: str, separator: str) -> str:
    if text[10:11] != separator:
        raise ValueError("not in ISO form")
    return text[11:]


def _fitting(value: int) -> int:
    if not -_INT64 <= value < _INT64:
        raise ValueError("beyond 64 bits")
    return value


def clock_in(unit: int) -> Callable[[str], int | str]:
    """A time of day as a number of `unit`, rounded down, or as ISO text."""
    if unit == ISO:
        return lambda text: iso_clock(clock_ns(text) % DAY_NS) + "Z"
    return lambda text: clock_ns(text) // _UNITS_NS[unit]


def timestamp_in(unit: int) -> Callable[[str], int | str]:
    """A timestamp as a number of `unit` since 1970, rounded down, or as ISO text."""

    def iso(text: str) -> str:
        day, ns = timestamp(text)
        return f"{iso_day(day + ns // DAY_NS)}T{iso_clock(ns % DAY_NS)}Z"

    def number(text: str) -> int:
        day, ns = timestamp(text)
        return _fitting((day * DAY_NS + ns) // _UNITS_NS[unit])

    return iso if unit == ISO else number


def iso_date(text: str) -> str:
    return iso_day(date_days(text)) + "Z"


def _zoned(text: str) -> tuple[int, int, str, int, int]:
    """Days since 1970 and ns of the local clock, and the offset: its sign, hours and minutes."""
    found = _whole(_OFFSET, text[-6:])
    day, ns = timestamp(text[:-6].removesuffix(" "))
    return day, ns, found[1], int(found[2]), int(found[3])


def offset_timestamp(text: str) -> str:
    """A timestamp with an offset as ISO text, at its own offset."""
    day, ns, sign, hours, minutes = _zoned(text)
    offset = f"{sign}{hours:02d}:{minutes:02d}" if hours or minutes else "Z"
    return f"{iso_day(day + ns // DAY_NS)}T{iso_clock(ns % DAY_NS)}{offset}"


def iso_day(day: int) -> str:
    year, month, of_month = scalar.civil(day)
    return f"{scalar.year_text(year)}-{month:02d}-{of_month:02d}"


def iso_clock(ns: int) -> str:
    """A time of day with as many digits of the second's fraction as it needs."""
    seconds, rest = divmod(ns, SECOND_NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


# --- the parts of io.debezium.time.Structured…, in their order ----------------------------------------------------


def _day_parts(day: int) -> Parts:
    return dict(zip(("year", "month", "day"), scalar.civil(day), strict=True))


def _clock_parts(ns: int) -> Parts:
    seconds, rest = divmod(ns, SECOND_NS)
    return {"hour": seconds // 3600, "minute": seconds // 60 % 60, "second": seconds % 60, "nanos": rest}


def date_parts(text: str) -> Parts:
    return {**_day_parts(date_days(text)), "specialValue": None}


def clock_parts(digits: int) -> Callable[[str], Parts]:
    return lambda text: {**_clock_parts(clock_ns(text)), "precision": digits}


def timestamp_parts(digits: int) -> Callable[[str], Parts]:
    def convert(text: str) -> Parts:
        day, ns = timestamp(text)
        return {**_day_parts(day), **_clock_parts(ns), "specialValue": None, "precision": digits}

    return convert


def offset_timestamp_parts(digits: int) -> Callable[[str], Parts]:
    """The local clock and its offset from UTC in seconds."""

    def convert(text: str) -> Parts:
        day, ns, sign, hours, minutes = _zoned(text)
        offset_s = (hours * 3600 + minutes * 60) * (-1 if sign == "-" else 1)
        zone = f"{sign}{hours:02d}:{minutes:02d}" if offset_s else "Z"
        parts = {**_day_parts(day), **_clock_parts(ns), "offsetSeconds": offset_s, "zoneId": zone}
        return {**parts, "specialValue": None, "precision": digits}

    return convert
