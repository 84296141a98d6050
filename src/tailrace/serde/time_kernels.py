"""Compiled conversions of dates and times to JSON; their form is that of `serde.kernels`.

The text is ISO 8601 with a space between date and time, years of four digits or more, an optional fraction of up to
six digits, an optional offset of hours, minutes and seconds, and ` BC` at the end of years before 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.compiled import kernel
from tailrace.serde.kernels import is_word, put_integer, put_literal
from tailrace.serde.memory import move

_ZERO, _NINE, _MINUS, _POINT, _QUOTE, _COLON = 48, 57, 45, 46, 34, 58
_INFINITY = np.frombuffer(b"infinity", np.uint8).copy()
_YEAR, _MONTH, _DAY = (np.frombuffer(word, np.uint8).copy() for word in (b"year", b"mon", b"day"))
_DAY_US = 86_400_000_000
# A twelfth of 365.25 days, and the most months and days whose µs an int64 holds.
_MONTH_US = 2_629_800_000_000
_INT64_MAX = 9_223_372_036_854_775_807
# The first date and time that an int64 of µs or ns since 1970 cannot hold, and the last before its smallest.
_LAST_US_DAY, _LAST_US_CLOCK, _FIRST_US_CLOCK = 106_751_991, 14_454_775_807, 71_945_224_192
_LAST_NS_DAY, _LAST_NS_CLOCK, _FIRST_NS_CLOCK = 106_751, 85_636_854_775, 763_145_225
_INFINITY_MS = 9_223_372_036_825_200
_MINUS_INFINITY_MS = -9_223_372_036_832_400
MILLI, MICRO, NANO, ISO = 0, 1, 2, 3


@kernel(leaf=True)
def two_digits(data: Any, at: Any) -> Any:
    """The number of two digits; a large negative one where there are none, which spoils every sum."""
    high, low = np.int64(data[at]) - _ZERO, np.int64(data[at + 1]) - _ZERO
    if high < 0 or high > 9 or low < 0 or low > 9:
        return -1_000_000_000
    return high * 10 + low


@kernel(leaf=True)
def behind_era(data: Any, begin: Any, end: Any) -> Any:
    """Where ` BC` begins at the end of the text; the end where it has none."""
    if end - begin > 3 and data[end - 1] == 67 and data[end - 2] == 66 and data[end - 3] == 32:
        return end - 3
    return end


@kernel(leaf=True)
def infinity(data: Any, begin: Any, end: Any) -> Any:
    """1 for `infinity`, -1 for `-infinity`, 0 for any other text."""
    if end == begin or data[end - 1] != 121:
        return 0
    if data[begin] == _MINUS:
        return -1 if is_word(data, begin + 1, end, _INFINITY) else 0
    return 1 if is_word(data, begin, end, _INFINITY) else 0


@kernel(leaf=True)
def read_date(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read a date into found[0], days since 1970; the position behind it, or -1 when there is none."""
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


@kernel(leaf=True)
def read_clock(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read a time of day into found[1], µs; the position behind it, or -1 when there is none."""
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
    return position if found[1] <= _DAY_US else -1


@kernel(leaf=True)
def read_offset(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read an offset from UTC into found[2], µs; the position behind it, or -1 when there is none."""
    if begin + 3 > end or (data[begin] != _MINUS and data[begin] != 43):
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
def put_two(value: Any, out: Any, at: Any) -> Any:
    out[at] = _ZERO + value // 10
    out[at + 1] = _ZERO + value % 10
    return at + 2


@kernel(leaf=True)
def put_day(day: Any, out: Any, at: Any) -> Any:
    """Write days since 1970 as a date, the year as ISO 8601 has it."""
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
        out[at] = 43
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


@kernel(leaf=True)
def put_clock(us: Any, digits: Any, out: Any, at: Any) -> Any:
    """Write a time of day and Z; a fraction of `digits` digits, or of as many as it needs when -1."""
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
    out[at] = 90
    return at + 1


@kernel
def dates(data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any) -> Any:
    """Dates as days since 1970 (argument 0) or ISO text (1); the infinite ones as the ends of an int32.

    Arguments 2 and 3 are the same for texts that have years of four digits and nothing else.
    """
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        good, infinite = argument < 2 or end - begin == 10, infinity(data, begin, end)
        if not good:
            pass
        elif infinite != 0:
            found[0] = -2_147_483_648 if infinite < 0 else 2_147_483_647
        else:
            good = read_date(data, begin, end, found) == behind_era(data, begin, end)
        if not good:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument & 1 == 0:
            at = put_integer(found[0], out, at)
        else:
            out[at] = _QUOTE
            at = put_day(found[0], out, at + 1)
            out[at] = 90
            out[at + 1] = _QUOTE
            at += 2
        offsets[row + 1] = at
    return lost


@kernel
def times(data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any) -> Any:
    """Times of day in ms, µs or ns (arguments 0 to 2), as ISO text (3), or of a zone as ISO text in UTC (4)."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        found[2] = 0
        position = read_clock(data, bounds[row], bounds[row + 1], found)
        if position >= 0 and argument == 4:
            position = read_offset(data, position, bounds[row + 1], found)
        if position != bounds[row + 1]:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument >= ISO:
            us = found[1] - found[2]
            out[at] = _QUOTE
            at = put_clock(us - us // _DAY_US * _DAY_US, -1, out, at + 1)
            out[at] = _QUOTE
            at += 1
        elif argument == MILLI:
            at = put_integer(found[1] // 1000, out, at)
        else:
            at = put_integer(found[1] * (1 if argument == MICRO else 1000), out, at)
        offsets[row + 1] = at
    return lost


@kernel
def timestamps(
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
        begin, end = bounds[row], bounds[row + 1]
        good, sign = True, infinity(data, begin, end)
        infinite = sign != 0
        if infinite:
            ms = _MINUS_INFINITY_MS if sign < 0 else _INFINITY_MS
            found[0] = ms // 86_400_000
            found[1] = (ms - found[0] * 86_400_000) * 1000
        else:
            position = read_date(data, begin, end, found)
            good = position >= 0 and position < end and data[position] == 32
            good = good and read_clock(data, position + 1, end, found) == behind_era(data, begin, end)
        day, clock = found[0], found[1]
        if good and argument == MICRO:
            good = -_LAST_US_DAY - 1 < day < _LAST_US_DAY or (day == _LAST_US_DAY and clock <= _LAST_US_CLOCK)
            good = good or (day == -_LAST_US_DAY - 1 and clock >= _FIRST_US_CLOCK)
        elif good and argument == NANO and not infinite:
            good = -_LAST_NS_DAY - 1 < day < _LAST_NS_DAY or (day == _LAST_NS_DAY and clock <= _LAST_NS_CLOCK)
            good = good or (day == -_LAST_NS_DAY - 1 and clock >= _FIRST_NS_CLOCK)
        if not good:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == ISO:
            ended = clock // _DAY_US
            out[at] = _QUOTE
            at = put_day(day + ended, out, at + 1)
            out[at] = 84
            at = put_clock(clock - ended * _DAY_US, -1, out, at + 1)
            out[at] = _QUOTE
            at += 1
        elif argument == MILLI:
            at = put_integer(day * 86_400_000 + clock // 1000, out, at)
        elif argument == MICRO:
            at = put_integer(day * _DAY_US + clock, out, at)
        elif infinite:
            at = put_integer(np.int64(-(2**63)) if day < 0 else np.int64(2**63 - 1), out, at)
        else:
            at = put_integer((day * _DAY_US + clock) * 1000, out, at)
        offsets[row + 1] = at
    return lost


@kernel(leaf=True)
def put_utc(data: Any, begin: Any, end: Any, digits: Any, out: Any, at: Any) -> Any:
    """Write an instant of which the server's text, in UTC already, differs by a few characters; -1 for any other.

    Those have a year of four digits, a day of the month that every month has, and no zero at their end.
    """
    rest = end - begin - 22
    if rest < 0 or rest == 1 or rest > 7 or data[end - 3] != 43 or data[end - 2] != _ZERO or data[end - 1] != _ZERO:
        return -1
    if data[begin + 4] != _MINUS or data[begin + 7] != _MINUS or data[begin + 10] != 32:
        return -1
    if data[begin + 13] != _COLON or data[begin + 16] != _COLON:
        return -1
    month, day, hours = two_digits(data, begin + 5), two_digits(data, begin + 8), two_digits(data, begin + 11)
    if month < 1 or month > 12 or day < 1 or day > 28 or hours < 0 or hours > 23:
        return -1
    minutes, seconds = two_digits(data, begin + 14), two_digits(data, begin + 17)
    if minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return -1
    if two_digits(data, begin) < 0 or two_digits(data, begin + 2) < 0:
        return -1
    if rest > 0:
        if data[begin + 19] != _POINT or data[end - 4] == _ZERO:
            return -1
        for position in range(begin + 20, end - 3):
            if data[position] < _ZERO or data[position] > _NINE:
                return -1
    out[at] = _QUOTE
    at += 1
    move(out.ctypes.data + at, data.ctypes.data + begin, 19)
    out[at + 10] = 84
    at += 19
    shown = rest if digits < 0 else (digits + 1 if digits > 0 else 0)
    for place in range(shown):
        out[at] = data[begin + 19 + place] if place < rest else (_POINT if place == 0 else _ZERO)
        at += 1
    out[at] = 90
    out[at + 1] = _QUOTE
    return at + 2


@kernel
def zoned_timestamps(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Timestamps with an offset as ISO text in UTC, the fraction of `argument` digits, or as it needs when -1."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        if infinity(data, begin, end) != 0:
            out[at] = _QUOTE
            at += 1
            for position in range(begin, end):
                out[at] = data[position]
                at += 1
            out[at] = _QUOTE
            at += 1
            offsets[row + 1] = at
            continue
        behind = put_utc(data, begin, end, argument, out, at)
        if behind >= 0:
            at = behind
            offsets[row + 1] = at
            continue
        position = read_date(data, begin, end, found)
        if position >= 0:
            position = read_clock(data, position + 1, end, found) if position < end and data[position] == 32 else -1
        if position >= 0:
            position = read_offset(data, position, end, found)
        if position < 0 or position != behind_era(data, begin, end):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        else:
            us = found[1] - found[2]
            shift = us // _DAY_US
            out[at] = _QUOTE
            at = put_day(found[0] + shift, out, at + 1)
            out[at] = 84
            at = put_clock(us - shift * _DAY_US, argument, out, at + 1)
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return lost


@kernel(leaf=True)
def read_interval(data: Any, begin: Any, end: Any, found: Any) -> Any:
    """Read an interval in the server's own style into found[0], µs, at most an int64's ends; whether there was one."""
    months, days, clock, position, stage = np.int64(0), np.int64(0), np.int64(0), begin, 0
    if begin >= end:
        return False
    while position < end:
        negative = data[position] == _MINUS
        if negative or data[position] == 43:
            position += 1
        start, amount = position, np.int64(0)
        while position < end and _ZERO <= data[position] <= _NINE:
            amount = amount * 10 + data[position] - _ZERO
            position += 1
        if position == start or position - start > 10 or position + 3 > end:
            return False
        if data[position] == _COLON:
            # Hours have two digits or more; the rest is read as a time of day of hour 00.
            if amount > 2_562_047_788 or position + 6 > end or data[position + 3] != _COLON:
                return False
            minutes, seconds = two_digits(data, position + 1), two_digits(data, position + 4)
            if minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59 or position - start < 2:
                return False
            clock = ((amount * 60 + minutes) * 60 + seconds) * 1_000_000
            position += 6
            if position < end and data[position] == _POINT:
                position += 1
                unit = 100_000
                while position < end and _ZERO <= data[position] <= _NINE and unit > 0:
                    clock += (data[position] - _ZERO) * unit
                    unit //= 10
                    position += 1
                if unit == 100_000:
                    return False
            clock = -clock if negative else clock
            if position != end:
                return False
        else:
            amount = -amount if negative else amount
            if data[position] != 32:
                return False
            position += 1
            word = position
            while position < end and data[position] != 32:
                position += 1
            last = position - 1 if data[position - 1] == 115 else position
            if is_word(data, word, last, _YEAR) and stage < 1:
                months, stage = amount * 12, 1
            elif is_word(data, word, last, _MONTH) and stage < 2:
                months, stage = months + amount, 2
            elif is_word(data, word, last, _DAY) and stage < 3:
                days, stage = amount, 3
            else:
                return False
            position += 1
            if position == end:
                return False
    # The sum may wrap on its way; near the ends the sign tells a wrapped one, and beyond them a double does.
    total = months * _MONTH_US + days * _DAY_US + clock
    rough = float(months) * _MONTH_US + float(days) * _DAY_US + float(clock)
    if abs(rough) > 9.3e18 or (abs(rough) > 9.2e18 and (rough < 0) != (total < 0)):
        total = np.int64(_INT64_MAX if rough > 0 else -_INT64_MAX - 1)
    found[0] = total
    return True


@kernel
def intervals(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Intervals in µs, a month as a twelfth of 365.25 days."""
    found = np.zeros(3, np.int64)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif read_interval(data, bounds[row], bounds[row + 1], found):
            at = put_integer(found[0], out, at)
        else:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        offsets[row + 1] = at
    return lost
