"""Timestamps with an offset from UTC: instants in µs, which events show in UTC, and timestamps in ns, which they show
at their own offset.

In Arrow both are instants in UTC in µs: further digits of the second's fraction are cut, and the offset is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import INT32, STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets, move
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import numbers_of, stored
from tailrace.values.calendar import (
    DATE_PATTERN,
    DAY_NS,
    DAY_PARTS,
    DAY_US,
    Found,
    Parts,
    behind_era,
    day_parts,
    days,
    infinite_parts,
    infinity,
    iso_day,
    put_day,
    read_date,
    structured,
    two_digits,
    whole,
)
from tailrace.values.clock import (
    CLOCK_PARTS,
    CLOCK_PATTERN,
    OFFSET_PATTERN,
    clock_parts,
    iso_clock,
    offset_us,
    put_clock_ns,
    read_clock,
    read_offset,
)
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.texts import LOST, VALUE, Bool, Ends, Int, ShownValues, Texts, put_literal, written
from tailrace.values.timestamps import (
    INFINITY_US,
    MINUS_INFINITY_US,
    fine_timestamp,
    fits_us,
    fitting,
    iso_instant,
    moment_us,
    put_instant,
    read_fine_timestamp,
)

ZONED_TIMESTAMP = semantic(STRING, "io.debezium.time.ZonedTimestamp")
STRUCTURED_ZONED_TIMESTAMP = structured(
    "ZonedTimestamp",
    **DAY_PARTS,
    **CLOCK_PARTS,
    offsetSeconds=INT32,
    zoneId=STRING,
    specialValue=STRING,
    precision=INT32,
)

_ZONED_TIMESTAMP = re.compile(f"{DATE_PATTERN} {CLOCK_PATTERN}{OFFSET_PATTERN}( BC)?")
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-5][0-9])")
_ISO = re.compile(
    r"([+-]?[0-9]{4,})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]*))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_ZERO_ISO = "1970-01-01T00:00:00Z"
_ZONE = ("offsetSeconds", "zoneId")
_POWERS = np.array([1_000_000, 100_000, 10_000, 1000, 100, 10, 1], np.int64)
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _QUOTE, _COLON, _BLANK, _T, _Z = 48, 57, 45, 43, 46, 34, 58, 32, 84, 90


def instant(digits: int, mode: str, cut: bool) -> Conversion:
    """Return the conversion of timestamps with an offset, shown in UTC, under a time.precision.mode.

    `cut`: events show the type's `digits` digits of the second's fraction, else as many as a value needs.
    """
    if mode == "structured":
        convert = structured_instant(digits)
        zero = convert("1970-01-01 00:00:00+00")
        return Conversion(STRUCTURED_ZONED_TIMESTAMP, convert, zero=zero, missing={**zero, "zoneId": None})
    shown = digits if cut else None
    text = utc_text(shown)
    zero_text = text("1970-01-01 00:00:00+00")
    family = Instants(-1 if shown is None else shown)
    return Conversion(ZONED_TIMESTAMP, text, family, zero=zero_text, missing=_ZERO_ISO)


def offset_timestamp(digits: int, mode: str) -> Conversion:
    """Return the conversion of timestamps shown at their offset; only time.precision.mode=structured changes it."""
    if mode == "structured":
        convert = structured_offset_timestamp(digits)
        zero = convert("1970-01-01 00:00:00 +00:00")
        return Conversion(STRUCTURED_ZONED_TIMESTAMP, convert, zero=zero)
    return Conversion(ZONED_TIMESTAMP, offset_text, OffsetTimestamps(), zero=_ZERO_ISO)


# --- plain conversions ----------------------------------------------------------------------------------------------


def instant_us(text: str) -> int:
    """Return µs since 1970 of a finite timestamp."""
    found = whole(_ZONED_TIMESTAMP, text)
    return moment_us(found, text) - offset_us(found, 8)


def utc_text(digits: int | None) -> Callable[[str], str]:
    """Return a function that writes ISO text in UTC with `digits` digits of the second's fraction (None: as needed)."""

    def convert(text: str) -> str:
        return text if text in ("infinity", "-infinity") else iso_instant(instant_us(text), digits)

    return convert


def structured_instant(digits: int) -> Callable[[str], Parts]:
    """Return a function that gives the moment in UTC in its parts."""

    def convert(text: str) -> Parts:
        parts = infinite_parts(text, *DAY_PARTS, *CLOCK_PARTS, *_ZONE)
        if parts is None:
            day, us = divmod(instant_us(text), DAY_US)
            parts = {**day_parts(day), **clock_parts(us * 1000), "offsetSeconds": 0, "zoneId": "Z"}
            parts["specialValue"] = None
        return {**parts, "precision": digits}

    return convert


def _local(text: str) -> tuple[int, int, str, int, int]:
    """Return days since 1970 and ns of the local clock, and the offset's sign, hours and minutes."""
    found = whole(_OFFSET, text[-6:])
    day, ns = fine_timestamp(text[:-6].removesuffix(" "))
    return day, ns, found[1], int(found[2]), int(found[3])


def offset_text(text: str) -> str:
    """Return a timestamp with an offset as ISO text at that offset."""
    day, ns, sign, hours, minutes = _local(text)
    offset = f"{sign}{hours:02d}:{minutes:02d}" if hours or minutes else "Z"
    return f"{iso_day(day + ns // DAY_NS)}T{iso_clock(ns % DAY_NS)}{offset}"


def structured_offset_timestamp(digits: int) -> Callable[[str], Parts]:
    """Return a function that gives the local clock in its parts, with its offset from UTC in seconds."""

    def convert(text: str) -> Parts:
        day, ns, sign, hours, minutes = _local(text)
        offset_s = (hours * 3600 + minutes * 60) * (-1 if sign == "-" else 1)
        zone = f"{sign}{hours:02d}:{minutes:02d}" if offset_s else "Z"
        parts = {**day_parts(day), **clock_parts(ns), "offsetSeconds": offset_s, "zoneId": zone}
        return {**parts, "specialValue": None, "precision": digits}

    return convert


def _arrow_instant(text: str, logical: LogicalType) -> int:
    """Return µs since 1970 of ISO text, rounded down, or of a word for infinity."""
    if text in ("infinity", "-infinity"):
        return INFINITY_US if text == "infinity" else MINUS_INFINITY_US
    found = whole(_ISO, text)
    clock_s = int(found[4]) * 3600 + int(found[5]) * 60 + int(found[6])
    us = days(int(found[1]), int(found[2]), int(found[3])) * DAY_US + clock_s * 1_000_000
    us += int((found[7] or "")[:6].ljust(6, "0"))
    if found[8] != "Z":
        offset_s = int(found[8][1:3]) * 3600 + int(found[8][4:]) * 60
        us -= offset_s * (-1_000_000 if found[8][0] == "-" else 1_000_000)
    return fitting(us)


stored("io.debezium.time.ZonedTimestamp", pa.timestamp("us", "UTC"), _arrow_instant, made_of=pa.int64())


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Instants(Family):
    """Timestamps in µs, shown in UTC with `digits` digits of the second's fraction (-1: as many as needed)."""

    digits: int

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(instants, texts, shown, self.digits)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        return numbers_of(instant_values, texts, self.digits, of)


@dataclass(frozen=True, slots=True)
class OffsetTimestamps(Family):
    """Timestamps in ns, at their own offset."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(offset_timestamps, texts, shown, 0)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        return numbers_of(offset_timestamp_values, texts, 0, of)


@kernel(leaf=True, inlined=True)
def is_usual(data: Bytes, begin: Int, end: Int) -> bool:
    """Return True if a text in UTC differs from what events show only in a few characters.

    It has a four-digit year, a day of the month that every month has, and no trailing zero in its fraction.
    """
    rest = end - begin - 22
    if rest < 0 or rest == 1 or rest > 7 or data[end - 3] != _PLUS or data[end - 2] != _ZERO or data[end - 1] != _ZERO:
        return False
    if data[begin + 4] != _MINUS or data[begin + 7] != _MINUS or data[begin + 10] != _BLANK:
        return False
    if data[begin + 13] != _COLON or data[begin + 16] != _COLON:
        return False
    month, day, hours = two_digits(data, begin + 5), two_digits(data, begin + 8), two_digits(data, begin + 11)
    if month < 1 or month > 12 or day < 1 or day > 28 or hours < 0 or hours > 23:
        return False
    minutes, seconds = two_digits(data, begin + 14), two_digits(data, begin + 17)
    if minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return False
    if two_digits(data, begin) < 0 or two_digits(data, begin + 2) < 0:
        return False
    if rest > 0:
        if data[begin + 19] != _POINT or data[end - 4] == _ZERO:
            return False
        for position in range(begin + 20, end - 3):
            if data[position] < _ZERO or data[position] > _NINE:
                return False
    return True


@kernel(leaf=True, inlined=True)
def put_usual(data: Bytes, begin: Int, end: Int, digits: Int, out: Bytes, at: Int) -> Int:
    """Write a text that `is_usual`; return the end."""
    rest = end - begin - 22
    out[at] = _QUOTE
    at += 1
    move(out.ctypes.data + at, data.ctypes.data + begin, 19)
    out[at + 10] = _T
    at += 19
    shown = rest if digits < 0 else (digits + 1 if digits > 0 else 0)
    for place in range(shown):
        out[at] = data[begin + 19 + place] if place < rest else (_POINT if place == 0 else _ZERO)
        at += 1
    out[at] = _Z
    out[at + 1] = _QUOTE
    return at + 2


@kernel(leaf=True, inlined=True)
def read_instant(data: Bytes, begin: Int, end: Int, found: Found) -> Bool:
    """Read a finite timestamp; return True if there was one.

    found[0] gets days since 1970, found[1] µs, found[2] its offset in µs.
    """
    position = read_date(data, begin, end, found)
    if position < 0 or position >= end or data[position] != _BLANK:
        return False
    position = read_clock(data, position + 1, end, found)
    if position >= 0:
        position = read_offset(data, position, end, found)
    return position >= 0 and position == behind_era(data, begin, end)


@kernel
def instants(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write timestamps with an offset as ISO text in UTC, with a fraction of `argument` digits (-1: as needed)."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif infinity(data, begin, end) != 0:
            out[at] = _QUOTE
            at += 1
            for position in range(begin, end):
                out[at] = data[position]
                at += 1
            out[at] = _QUOTE
            at += 1
        elif is_usual(data, begin, end):
            at = put_usual(data, begin, end, argument, out, at)
        elif read_instant(data, begin, end, found):
            at = put_instant(found[0], found[1] - found[2], argument, out, at)
        else:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def instant_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read timestamps with an offset in µs since 1970, the second's fraction cut to `argument` digits unless that is
    -1."""
    found = np.zeros(3, np.int64)
    unit = np.int64(1) if argument < 0 else _POWERS[argument]
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
            continue
        begin, end = bounds[row], bounds[row + 1]
        sign = infinity(data, begin, end)
        if sign != 0:
            out[row], outcome[row] = MINUS_INFINITY_US if sign < 0 else INFINITY_US, VALUE
            continue
        outcome[row] = LOST
        if read_instant(data, begin, end, found):
            clock = found[1] - found[2]
            shift = clock // DAY_US
            day, clock = found[0] + shift, (clock - shift * DAY_US) // unit * unit
            if fits_us(day, clock):
                out[row], outcome[row] = day * DAY_US + clock, VALUE


@kernel(leaf=True, inlined=True)
def read_offset_timestamp(data: Bytes, begin: Int, end: Int, found: Found) -> Bool:
    """Read a timestamp with an offset of hours and minutes; return True if there was one.

    found[0] gets days since 1970, found[1] ns, found[2] the offset in minutes.
    """
    sign = end - 6
    if not sign > begin or (data[sign] != _MINUS and data[sign] != _PLUS) or data[sign + 3] != _COLON:
        return False
    hours, minutes = two_digits(data, sign + 1), two_digits(data, sign + 4)
    behind = sign - 1 if data[sign - 1] == _BLANK else sign
    found[2] = (hours * 60 + minutes) * (-1 if data[sign] == _MINUS else 1)
    return hours >= 0 and 0 <= minutes <= 59 and read_fine_timestamp(data, begin, behind, found) == behind


@kernel
def offset_timestamps(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write timestamps with an offset of hours and minutes as ISO text at that offset."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif not read_offset_timestamp(data, bounds[row], bounds[row + 1], found):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        else:
            out[at] = _QUOTE
            at = put_day(found[0] + found[1] // DAY_NS, out, at + 1)
            out[at] = _T
            at = put_clock_ns(found[1] % DAY_NS, out, at + 1)
            if found[2] == 0:
                out[at] = _Z
                at += 1
            else:
                # the offset is shown as it was read
                move(out.ctypes.data + at, data.ctypes.data + bounds[row + 1] - 6, 6)
                at += 6
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return lost


@kernel
def offset_timestamp_values(
    data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes
) -> None:
    """Read timestamps with an offset of hours and minutes in µs since 1970, rounded down."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_offset_timestamp(data, bounds[row], bounds[row + 1], found):
            out[row] = found[0] * DAY_US + found[1] // 1000 - found[2] * 60_000_000
            outcome[row] = VALUE
        else:
            outcome[row] = LOST
