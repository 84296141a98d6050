"""Times of day and offsets from UTC, in µs, or in ns for texts with more digits (`fine`)."""

from __future__ import annotations

import re

import numpy as np

from tailrace.columns.logical import INT8, INT32
from tailrace.kernels.buffers import Bytes
from tailrace.kernels.compiled import kernel
from tailrace.values.calendar import DAY_NS, DAY_US, ISO, MICRO, MILLI, NANO, Found, Parts, put_two, two_digits, whole
from tailrace.values.texts import Int

SECOND_NS = 1_000_000_000
CLOCK_PATTERN = r"([01][0-9]|2[0-4]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6}))?"
OFFSET_PATTERN = r"([+-])([0-9]{2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?"
CLOCK_PARTS = {"hour": INT8, "minute": INT8, "second": INT8, "nanos": INT32}
UNITS_NS = {MILLI: 1_000_000, MICRO: 1000, NANO: 1}

_FINE_CLOCK = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]+))?")
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _COLON, _Z = 48, 57, 45, 43, 46, 58, 90


def unit_of(digits: int, mode: str) -> int:
    """Return the unit for a type with `digits` digits of the second's fraction under time.precision.mode."""
    if mode == "isostring":
        return ISO
    if mode in ("microseconds", "nanoseconds"):
        return MICRO if mode == "microseconds" else NANO
    if mode == "connect" or digits <= 3:
        return MILLI
    return MICRO if digits <= 6 else NANO


def clock_us(found: re.Match[str], first: int = 1) -> int:
    """Return the time of day in the four groups from `first` on, in µs."""
    hours, minutes, seconds, rest = found.group(first, first + 1, first + 2, first + 3)
    us = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((rest or "").ljust(6, "0"))
    if us > DAY_US:
        raise ValueError("after the end of the day")
    return us


def offset_us(found: re.Match[str], first: int) -> int:
    """Return the offset in the four groups from `first` on, in µs."""
    sign, hours, minutes, seconds = found.group(first, first + 1, first + 2, first + 3)
    us = (int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    return us if sign == "+" else -us


def clock_ns(text: str) -> int:
    """Return the time of day in ns, with the fraction cut to nine digits."""
    found = whole(_FINE_CLOCK, text)
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    ns = seconds * SECOND_NS + int((found[4] or "")[:9].ljust(9, "0"))
    if ns > DAY_NS:
        raise ValueError("after the end of the day")
    return ns


def iso_clock(ns: int, digits: int | None = None) -> str:
    """Return a time of day with `digits` digits of the second's fraction, or with as many as needed."""
    seconds, rest = divmod(ns, SECOND_NS)
    fraction = f"{rest:09d}".rstrip("0") if digits is None else f"{rest:09d}"[:digits]
    point = "." if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{point}{fraction}"


def clock_parts(ns: int) -> Parts:
    seconds, rest = divmod(ns, SECOND_NS)
    return {"hour": seconds // 3600, "minute": seconds // 60 % 60, "second": seconds % 60, "nanos": rest}


@kernel(leaf=True, inlined=True)
def read_clock(data: Bytes, begin: Int, end: Int, found: Found) -> Int:
    """Read a time of day into found[1], µs; return its end, or -1 if there is none."""
    if begin + 8 > end or data[begin + 2] != _COLON or data[begin + 5] != _COLON:
        return -1
    hours, minutes, seconds = two_digits(data, begin), two_digits(data, begin + 3), two_digits(data, begin + 6)
    if hours < 0 or hours > 24 or minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return -1
    whole = hours * 3600 + minutes * 60 + seconds
    position, rest, unit = begin + 8, np.int64(0), 100_000
    if position < end and data[position] == _POINT:
        position += 1
        while position < end and _ZERO <= data[position] <= _NINE and unit > 0:
            rest += (data[position] - _ZERO) * unit
            unit //= 10
            position += 1
        if unit == 100_000:
            return -1
    found[1] = whole * 1_000_000 + rest
    # 24:00:00 ends a day; nothing of that day follows
    return position if found[1] <= DAY_US else -1


@kernel(leaf=True, inlined=True)
def read_offset(data: Bytes, begin: Int, end: Int, found: Found) -> Int:
    """Read an offset from UTC into found[2], µs; return its end, or -1 if there is none."""
    if begin + 3 > end or (data[begin] != _MINUS and data[begin] != _PLUS):
        return -1
    seconds = two_digits(data, begin + 1) * 3600
    position, unit = begin + 3, 60
    wrong = seconds < 0
    while position + 3 <= end and data[position] == _COLON and unit > 0:
        part = two_digits(data, position + 1)
        wrong = wrong or part < 0 or part > 59
        seconds += part * unit
        unit //= 60
        position += 3
    if wrong:
        return -1
    found[2] = seconds * (-1_000_000 if data[begin] == _MINUS else 1_000_000)
    return position


@kernel(leaf=True)
def put_clock(us: Int, digits: Int, out: Bytes, at: Int) -> Int:
    """Write a time of day and Z, with a fraction of `digits` digits (-1: as many as needed); return the end."""
    seconds = us // 1_000_000
    rest = us - seconds * 1_000_000
    at = put_two(seconds // 3600, out, at)
    out[at] = _COLON
    at = put_two(seconds // 60 % 60, out, at + 1)
    out[at] = _COLON
    at = put_two(seconds % 60, out, at + 1)
    if digits != 0 and (digits > 0 or rest != 0):
        out[at] = _POINT
        at += 1
        unit = 100_000
        while unit > 0 and digits != 0 and (digits > 0 or rest != 0):
            out[at] = _ZERO + rest // unit
            rest %= unit
            unit //= 10
            at += 1
            if digits > 0:
                digits -= 1
    out[at] = _Z
    return at + 1


@kernel(leaf=True, inlined=True)
def read_clock_ns(data: Bytes, begin: Int, end: Int, found: Found) -> Int:
    """Read a time of day into found[1], ns; return its end, or -1 if there is none."""
    if begin + 8 > end or data[begin + 2] != _COLON or data[begin + 5] != _COLON:
        return -1
    hours, minutes, seconds = two_digits(data, begin), two_digits(data, begin + 3), two_digits(data, begin + 6)
    if hours < 0 or hours > 24 or minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return -1
    position, rest, unit = begin + 8, np.int64(0), np.int64(100_000_000)
    if position < end and data[position] == _POINT:
        position += 1
        first = position
        while position < end and _ZERO <= data[position] <= _NINE:
            rest += (data[position] - _ZERO) * unit
            unit //= 10
            position += 1
        if position == first:
            return -1
    found[1] = (hours * 3600 + minutes * 60 + seconds) * SECOND_NS + rest
    # 24:00:00 ends a day; nothing of that day follows
    return position if found[1] <= 86_400 * SECOND_NS else -1


@kernel(leaf=True, inlined=True)
def put_clock_ns(ns: Int, out: Bytes, at: Int) -> Int:
    """Write a time of day with as many digits of the second's fraction as needed; return the end."""
    seconds = ns // SECOND_NS
    rest = ns - seconds * SECOND_NS
    at = put_two(seconds // 3600, out, at)
    out[at] = _COLON
    at = put_two(seconds // 60 % 60, out, at + 1)
    out[at] = _COLON
    at = put_two(seconds % 60, out, at + 1)
    if rest != 0:
        out[at] = _POINT
        at += 1
        unit = np.int64(100_000_000)
        while rest != 0:
            out[at] = _ZERO + rest // unit
            rest %= unit
            unit //= 10
            at += 1
    return at
