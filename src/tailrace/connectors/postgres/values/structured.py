"""Dates, times and intervals in their parts, for time.precision.mode=structured: one value at a time.

Each function takes the server's text of a value that is not NULL and gives the members of the semantic type
io.debezium.time.Structured…, in their order; ValueError where the text is not one of the type's or a part does not
fit its field. Years are counted astronomically (1 BC is 0), fractions of a second in ns. `digits` is the precision
of the column's type, which every value but a date carries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.connectors.postgres.values import plain
from tailrace.serde import scalar

_SPECIAL = {"infinity": "POSITIVE_INFINITY", "-infinity": "NEGATIVE_INFINITY"}
_DAY = ("year", "month", "day")
_CLOCK = ("hour", "minute", "second", "nanos")
_ZONE = ("offsetSeconds", "zoneId")
_INT32 = 2**31

Convert = Callable[[str], dict[str, Any]]


def _day(days: int) -> dict[str, Any]:
    return dict(zip(_DAY, scalar.civil(days), strict=True))


def _clock(us: int) -> dict[str, Any]:
    seconds, rest = divmod(us, 1_000_000)
    return {"hour": seconds // 3600, "minute": seconds // 60 % 60, "second": seconds % 60, "nanos": rest * 1000}


def _infinite(text: str, *parts: str) -> dict[str, Any] | None:
    """The parts all null and the infinity's name; None for a finite value."""
    special = _SPECIAL.get(text)
    return None if special is None else {**dict.fromkeys(parts), "specialValue": special}


def date(text: str) -> dict[str, Any]:
    return _infinite(text, *_DAY) or {**_day(plain.date_days(text)), "specialValue": None}


def time(digits: int) -> Convert:
    return lambda text: {**_clock(plain.time_us(text)), "precision": digits}


def zoned_time(digits: int) -> Convert:
    """The time of day in its own zone, and the zone's offset from UTC in seconds."""

    def convert(text: str) -> dict[str, Any]:
        us, offset_us = plain.zoned_time_parts_us(text)
        return {**_clock(us), "offsetSeconds": offset_us // 1_000_000, "precision": digits}

    return convert


def timestamp(digits: int) -> Convert:
    def convert(text: str) -> dict[str, Any]:
        parts = _infinite(text, *_DAY, *_CLOCK)
        if parts is None:
            days, us = divmod(plain.timestamp_us(text), plain.DAY_US)
            parts = {**_day(days), **_clock(us), "specialValue": None}
        return {**parts, "precision": digits}

    return convert


def zoned_timestamp(digits: int) -> Convert:
    """The moment in UTC."""

    def convert(text: str) -> dict[str, Any]:
        parts = _infinite(text, *_DAY, *_CLOCK, *_ZONE)
        if parts is None:
            days, us = divmod(plain.timestamp_zoned_us(text), plain.DAY_US)
            parts = {**_day(days), **_clock(us), "offsetSeconds": 0, "zoneId": "Z", "specialValue": None}
        return {**parts, "precision": digits}

    return convert


def duration(digits: int) -> Convert:
    """An interval in the parts that the server shows, each with its own sign."""

    def convert(text: str) -> dict[str, Any]:
        years, months, days, hours, minutes, seconds = plain.interval_parts(text)
        whole = int(seconds)
        parts = {"years": years, "months": months, "days": days, "hours": hours, "minutes": minutes}
        if any(not -_INT32 <= part < _INT32 for part in parts.values()):
            raise ValueError("beyond 32 bits")
        return {**parts, "seconds": whole, "nanos": int((seconds - whole) * 1_000_000_000), "precision": digits}

    return convert
