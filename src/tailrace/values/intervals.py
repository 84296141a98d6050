"""Intervals of months, days and a clock, each with its own sign."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import numbers_of, stored
from tailrace.values.calendar import DAY_US, INT64_MAX, Found, Parts, structured, two_digits, whole
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.integers import put_integer
from tailrace.values.texts import LOST, VALUE, Ends, Int, ShownValues, Texts, is_word, put_literal, word, written

MICRO_DURATION = semantic(INT64, "io.debezium.time.MicroDuration")
INTERVAL = semantic(STRING, "io.debezium.time.Interval")
STRUCTURED_DURATION = structured(
    "Duration",
    **dict.fromkeys(("years", "months", "days", "hours", "minutes"), INT32),
    seconds=INT64,
    nanos=INT32,
    precision=INT32,
)

_INTERVAL = re.compile(
    r"(?=[^ ])(?:([+-]?[0-9]{1,10}) years?)?(?:(?:^| )([+-]?[0-9]{1,10}) mons?)?(?:(?:^| )([+-]?[0-9]{1,10}) days?)?"
    r"(?:(?:^| )([+-]?)([0-9]{2,10}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,6})?))?"
)
_LAST_HOUR = 2_562_047_788
_INT32 = 2**31
# A twelfth of 365.25 days.
_MONTH_US = 2_629_800_000_000
_YEAR, _MONTH, _DAY = word(b"year"), word(b"mon"), word(b"day")
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _COLON, _BLANK, _PLURAL = 48, 57, 45, 43, 46, 58, 32, 115

stored("io.debezium.time.MicroDuration", pa.duration("us"), made_of=pa.int64())


def interval(digits: int, mode: str, handling: str) -> Conversion:
    """Return the conversion of intervals under a time.precision.mode and an interval.handling.mode."""
    if mode == "structured":
        convert = structured_duration(digits)
        return Conversion(STRUCTURED_DURATION, convert, zero=convert("00:00:00"))
    if handling == "string":
        return Conversion(INTERVAL, interval_iso, zero="P0Y0M0DT0H0M0S")
    return Conversion(MICRO_DURATION, interval_us, Intervals(), zero=0)


def interval_parts(text: str) -> tuple[int, int, int, int, int, Decimal]:
    """Return years, months, days, hours, minutes and seconds, each with its own sign."""
    years, months, of_days, sign, *clock = whole(_INTERVAL, text).groups()
    hours, minutes, seconds = int(clock[0] or 0), int(clock[1] or 0), Decimal(clock[2] or 0)
    if hours > _LAST_HOUR:
        raise ValueError("more hours than an interval has")
    if sign == "-":
        hours, minutes, seconds = -hours, -minutes, -seconds
    return int(years or 0), int(months or 0), int(of_days or 0), hours, minutes, seconds


def interval_us(text: str) -> int:
    """Return an interval in µs, with a month of 365.25 / 12 days, clamped to an int64."""
    years, months, of_days, hours, minutes, seconds = interval_parts(text)
    us = (years * 12 + months) * _MONTH_US + of_days * DAY_US + (hours * 3600 + minutes * 60) * 1_000_000
    us += int(seconds * 1_000_000)
    return max(-INT64_MAX - 1, min(us, INT64_MAX))


def interval_iso(text: str) -> str:
    years, months, of_days, hours, minutes, seconds = interval_parts(text)
    shown = f"{seconds.normalize():f}" if seconds else "0"
    return f"P{years}Y{months}M{of_days}DT{hours}H{minutes}M{shown}S"


def structured_duration(digits: int) -> Callable[[str], Parts]:
    """Return a function that gives an interval in the parts that the server shows, each with its own sign."""

    def convert(text: str) -> Parts:
        years, months, of_days, hours, minutes, seconds = interval_parts(text)
        of_seconds = int(seconds)
        parts = {"years": years, "months": months, "days": of_days, "hours": hours, "minutes": minutes}
        if any(not -_INT32 <= part < _INT32 for part in parts.values()):
            raise ValueError("beyond 32 bits")
        nanos = int((seconds - of_seconds) * 1_000_000_000)
        return {**parts, "seconds": of_seconds, "nanos": nanos, "precision": digits}

    return convert


@dataclass(frozen=True, slots=True)
class Intervals(Family):
    """Intervals in µs."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(intervals, texts, shown, 0)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        return numbers_of(interval_values, texts, 0, of)


@kernel(leaf=True, inlined=True)
def read_interval_clock(data: Bytes, position: Int, end: Int, hours: Int, found: Found) -> bool:
    """Read minutes and seconds after `hours` into found[1], all in µs; return True if they were there, and nothing
    else."""
    if hours > _LAST_HOUR or position + 6 > end or data[position + 3] != _COLON:
        return False
    minutes, seconds = two_digits(data, position + 1), two_digits(data, position + 4)
    if minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return False
    clock = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
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
    found[1] = clock
    return position == end


@kernel(leaf=True, inlined=True)
def interval_unit(data: Bytes, begin: Int, end: Int) -> int:
    """Return 1 for a word for years, 2 for months, 3 for days, 0 for any other."""
    last = end - 1 if data[end - 1] == _PLURAL else end
    if is_word(data, begin, last, _YEAR):
        return 1
    if is_word(data, begin, last, _MONTH):
        return 2
    return 3 if is_word(data, begin, last, _DAY) else 0


@kernel(leaf=True, inlined=True)
def interval_sum(months: Int, days: Int, clock: Int) -> Int:
    """Return months, days and µs as µs, clamped to an int64."""
    # The sum may wrap. Near the ends the sign shows that, and beyond them a double does.
    total = months * _MONTH_US + days * DAY_US + clock
    rough = float(months) * _MONTH_US + float(days) * DAY_US + float(clock)
    if abs(rough) > 9.3e18 or (abs(rough) > 9.2e18 and (rough < 0) != (total < 0)):
        total = np.int64(INT64_MAX if rough > 0 else -INT64_MAX - 1)
    return total


@kernel(leaf=True, inlined=True)
def read_interval(data: Bytes, begin: Int, end: Int, found: Found) -> bool:
    """Read an interval in the server's style into found[0], µs, clamped to an int64; return True if there was one."""
    months, days, clock, position, stage = np.int64(0), np.int64(0), np.int64(0), begin, 0
    if begin >= end:
        return False
    while position < end:
        negative = data[position] == _MINUS
        if negative or data[position] == _PLUS:
            position += 1
        start, amount = position, np.int64(0)
        while position < end and _ZERO <= data[position] <= _NINE:
            amount = amount * 10 + data[position] - _ZERO
            position += 1
        if position == start or position - start > 10 or position + 3 > end:
            return False
        if data[position] == _COLON:
            # Hours have two digits or more; the rest is read as a time of day of hour 00.
            if position - start < 2 or not read_interval_clock(data, position, end, amount, found):
                return False
            clock = -found[1] if negative else found[1]
            break
        amount = -amount if negative else amount
        if data[position] != _BLANK:
            return False
        position += 1
        begun = position
        while position < end and data[position] != _BLANK:
            position += 1
        unit = interval_unit(data, begun, position)
        if unit <= stage:
            return False
        stage = unit
        if unit == 1:
            months = amount * 12
        elif unit == 2:
            months += amount
        else:
            days = amount
        position += 1
        if position == end:
            return False
    found[0] = interval_sum(months, days, clock)
    return True


@kernel
def intervals(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write intervals in µs, with a month of 365.25 / 12 days."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
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


@kernel
def interval_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read intervals in µs, with a month of 365.25 / 12 days."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_interval(data, bounds[row], bounds[row + 1], found):
            out[row], outcome[row] = found[0], VALUE
        else:
            outcome[row] = LOST
