"""Compiled conversions of dates and times to the nanosecond; their form is that of `serde.kernels`.

What a text means is said by `serde.moments`, which gives the same results one value at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.compiled import kernel
from tailrace.serde.kernels import put_integer, put_literal
from tailrace.serde.time_kernels import put_day, put_two, read_date, two_digits

_ZERO, _NINE, _MINUS, _POINT, _QUOTE, _COLON, _BLANK = 48, 57, 45, 46, 34, 58, 32
_SECOND_NS = 1_000_000_000
_DAY_NS = 86_400_000_000_000
# The first date and time that an int64 of ns since 1970 cannot hold, and the last before its smallest.
_LAST_DAY, _LAST_CLOCK, _FIRST_CLOCK = 106_751, 85_636_854_775_807, 763_145_224_192
_MILLI, _MICRO, _NANO, _ISO = 0, 1, 2, 3


@kernel(leaf=True)
def read_clock_ns(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read a time of day into found[1], ns; the position behind it, or -1 when there is none."""
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
    found[1] = (hours * 3600 + minutes * 60 + seconds) * _SECOND_NS + rest
    # 24:00:00 ends a day; nothing of that day follows
    return position if found[1] <= 86_400 * _SECOND_NS else -1


@kernel(leaf=True)
def read_timestamp_ns(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read a date into found[0], days since 1970, and a time of day into found[1], ns; -1 when there are none."""
    if begin + 19 > end or data[begin + 10] != _BLANK or read_date(data, begin, begin + 10, found) != begin + 10:
        return -1
    return read_clock_ns(data, begin + 11, end, found)


@kernel(leaf=True)
def put_clock_ns(ns: Any, out: Any, at: Any) -> Any:
    """Write a time of day with as many digits of the second's fraction as it needs; the position behind it."""
    seconds = ns // _SECOND_NS
    rest = ns - seconds * _SECOND_NS
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


@kernel
def fine_times(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Times of day in ms, µs or ns (arguments 0 to 2), or as ISO text (3)."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        if read_clock_ns(data, bounds[row], bounds[row + 1], found) != bounds[row + 1]:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == _ISO:
            out[at] = _QUOTE
            at = put_clock_ns(found[1] % _DAY_NS, out, at + 1)
            out[at] = 90
            out[at + 1] = _QUOTE
            at += 2
        else:
            unit = 1_000_000 if argument == _MILLI else (1000 if argument == _MICRO else 1)
            at = put_integer(found[1] // unit, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def fine_timestamps(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Timestamps since 1970 in ms, µs or ns (arguments 0 to 2), or as ISO text (3)."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        good = read_timestamp_ns(data, bounds[row], bounds[row + 1], found) == bounds[row + 1]
        if found[1] >= _DAY_NS:
            found[0] += 1
            found[1] -= _DAY_NS
        day, clock = found[0], found[1]
        if good and argument == _NANO:
            good = -_LAST_DAY - 1 < day < _LAST_DAY or (day == _LAST_DAY and clock <= _LAST_CLOCK)
            good = good or (day == -_LAST_DAY - 1 and clock >= _FIRST_CLOCK)
        if not good:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == _ISO:
            out[at] = _QUOTE
            at = put_day(day, out, at + 1)
            out[at] = 84
            at = put_clock_ns(clock, out, at + 1)
            out[at] = 90
            out[at + 1] = _QUOTE
            at += 2
        elif argument == _MILLI:
            at = put_integer(day * 86_400_000 + clock // 1_000_000, out, at)
        elif argument == _MICRO:
            at = put_integer(day * 86_400_000_000 + clock // 1000, out, at)
        else:
            at = put_integer(day * _DAY_NS + clock, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def offset_timestamps(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Timestamps with an offset of hours and minutes as ISO text at that offset."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, sign = bounds[row], bounds[row + 1] - 6
        good = sign > begin and (data[sign] == _MINUS or data[sign] == 43) and data[sign + 3] == _COLON
        hours, minutes = np.int64(0), np.int64(0)
        if good:
            hours, minutes = two_digits(data, sign + 1), two_digits(data, sign + 4)
            behind = sign - 1 if data[sign - 1] == _BLANK else sign
            good = hours >= 0 and 0 <= minutes <= 59 and read_timestamp_ns(data, begin, behind, found) == behind
        if not good:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        else:
            out[at] = _QUOTE
            at = put_day(found[0] + found[1] // _DAY_NS, out, at + 1)
            out[at] = 84
            at = put_clock_ns(found[1] % _DAY_NS, out, at + 1)
            if hours == 0 and minutes == 0:
                out[at] = 90
                at += 1
            else:
                out[at] = data[sign]
                at = put_two(hours, out, at + 1)
                out[at] = _COLON
                at = put_two(minutes, out, at + 1)
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return lost
