"""Timestamps without a zone: in µs, which may be infinite or before Christ, and `fine` ones, in ns and with four-digit
years."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import numbers_of, stored, strings_of
from tailrace.values.calendar import (
    DATE_PATTERN,
    DAY_NS,
    DAY_PARTS,
    DAY_US,
    INT64_MAX,
    ISO,
    MICRO,
    MILLI,
    NANO,
    Found,
    Parts,
    behind_era,
    day_parts,
    days_of,
    infinite_parts,
    infinity,
    iso_day,
    put_day,
    put_two,
    read_date,
    structured,
    whole,
)
from tailrace.values.clock import (
    CLOCK_PARTS,
    CLOCK_PATTERN,
    UNITS_NS,
    clock_ns,
    clock_parts,
    clock_us,
    iso_clock,
    put_clock,
    put_clock_ns,
    read_clock,
    read_clock_ns,
    unit_of,
)
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.dates import strict_date_days
from tailrace.values.integers import put_integer
from tailrace.values.texts import LOST, VALUE, Bool, Ends, Int, ShownValues, Texts, put_literal, written

TIMESTAMP = semantic(INT64, "io.debezium.time.Timestamp")
MICRO_TIMESTAMP = semantic(INT64, "io.debezium.time.MicroTimestamp")
NANO_TIMESTAMP = semantic(INT64, "io.debezium.time.NanoTimestamp")
ISO_TIMESTAMP = semantic(STRING, "io.debezium.time.IsoTimestamp")
CONNECT_TIMESTAMP = semantic(INT64, "org.apache.kafka.connect.data.Timestamp")
STRUCTURED_TIMESTAMP = structured("Timestamp", **DAY_PARTS, **CLOCK_PARTS, specialValue=STRING, precision=INT32)
INFINITY_US = 9_223_372_036_825_200_000
MINUS_INFINITY_US = -9_223_372_036_832_400_000
"""Infinite timestamps for consumers, in µs; Debezium's own constants."""

_TIMESTAMP = re.compile(f"{DATE_PATTERN} {CLOCK_PATTERN}( BC)?")
_ZERO_TEXT, _ZERO_ISO = "1970-01-01 00:00:00", "1970-01-01T00:00:00Z"
# The last date and time that an int64 of µs or ns since 1970 holds, and the first one's clock.
_LAST_US_DAY, _LAST_US_CLOCK, _FIRST_US_CLOCK = 106_751_991, 14_454_775_807, 71_945_224_192
_LAST_NS_DAY, _LAST_NS_CLOCK, _FIRST_NS_CLOCK = 106_751, 85_636_854_775_807, 763_145_224_192
_NOTHING, _FINITE, _INFINITE = 0, 1, 2
_QUOTE, _BLANK, _T, _Z, _PLUS, _MINUS, _COLON = 34, 32, 84, 90, 43, 45, 58

stored("io.debezium.time.Timestamp", pa.timestamp("ms"), made_of=pa.int64())
stored("io.debezium.time.MicroTimestamp", pa.timestamp("us"), made_of=pa.int64())
stored("io.debezium.time.NanoTimestamp", pa.timestamp("ns"), made_of=pa.int64())
stored("org.apache.kafka.connect.data.Timestamp", pa.timestamp("ms"), made_of=pa.int64())


def timestamp(digits: int, mode: str, fine: bool) -> Conversion:
    """Return the conversion of timestamps with `digits` digits of the second's fraction, under a time.precision.mode.

    `fine`: the texts may have more digits than six, but no year beyond 9999 or before 1.
    """
    if mode == "structured":
        convert = fine_timestamp_parts(digits) if fine else timestamp_parts(digits)
        return Conversion(STRUCTURED_TIMESTAMP, convert, zero=convert(_ZERO_TEXT))
    unit = unit_of(digits, mode)
    family = Timestamps(unit, fine)
    if unit == ISO:
        return Conversion(ISO_TIMESTAMP, fine_iso_timestamp if fine else iso_timestamp, family, zero=_ZERO_ISO)
    number = fine_timestamp_in(unit) if fine else timestamp_in(unit)
    schemas = (TIMESTAMP, MICRO_TIMESTAMP, NANO_TIMESTAMP)
    return Conversion(CONNECT_TIMESTAMP if mode == "connect" else schemas[unit], number, family, zero=0)


# --- plain conversions ----------------------------------------------------------------------------------------------


def timestamp_us(text: str) -> int:
    """Return µs since 1970, unbounded; the constants for infinite timestamps."""
    if text in ("infinity", "-infinity"):
        return INFINITY_US if text == "infinity" else MINUS_INFINITY_US
    return moment_us(whole(_TIMESTAMP, text), text)


def moment_us(found: re.Match[str], text: str) -> int:
    """Return µs since 1970 of a date and a time of day in the first seven groups of a match."""
    return days_of(found, text) * DAY_US + clock_us(found, 4)


def fine_timestamp(text: str) -> tuple[int, int]:
    """Return days since 1970, and the time of day in ns."""
    if text[10:11] != " ":
        raise ValueError("not in ISO form")
    return strict_date_days(text[:10]), clock_ns(text[11:])


def iso_instant(us: int, digits: int | None) -> str:
    """Return µs since 1970 as ISO text in UTC, with `digits` digits of the fraction (None: as many as needed)."""
    return f"{iso_day(us // DAY_US)}T{iso_clock(us % DAY_US * 1000, digits)}Z"


def iso_timestamp(text: str) -> str:
    return iso_instant(timestamp_us(text), None)


def fine_iso_timestamp(text: str) -> str:
    day, ns = fine_timestamp(text)
    return f"{iso_day(day + ns // DAY_NS)}T{iso_clock(ns % DAY_NS)}Z"


def timestamp_in(unit: int) -> Callable[[str], int]:
    """Return a function that gives a number of `unit` since 1970, rounded down.

    In ns, infinite timestamps are the ends of an int64.
    """

    def convert(text: str) -> int:
        us = timestamp_us(text)
        if unit == NANO and text in ("infinity", "-infinity"):
            return INT64_MAX if text == "infinity" else -INT64_MAX - 1
        return fitting(us * 1000 // UNITS_NS[unit])

    return convert


def fine_timestamp_in(unit: int) -> Callable[[str], int]:
    """Return a function that gives a number of `unit` since 1970, rounded down."""

    def convert(text: str) -> int:
        day, ns = fine_timestamp(text)
        return fitting((day * DAY_NS + ns) // UNITS_NS[unit])

    return convert


def fitting(value: int) -> int:
    """Return the number. Raises ValueError if it does not fit 64 bits."""
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError("beyond 64 bits")
    return value


def timestamp_parts(digits: int) -> Callable[[str], Parts]:
    def convert(text: str) -> Parts:
        parts = infinite_parts(text, *DAY_PARTS, *CLOCK_PARTS)
        if parts is None:
            day, us = divmod(timestamp_us(text), DAY_US)
            parts = {**day_parts(day), **clock_parts(us * 1000), "specialValue": None}
        return {**parts, "precision": digits}

    return convert


def fine_timestamp_parts(digits: int) -> Callable[[str], Parts]:
    def convert(text: str) -> Parts:
        day, ns = fine_timestamp(text)
        return {**day_parts(day), **clock_parts(ns), "specialValue": None, "precision": digits}

    return convert


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timestamps(Family):
    """Timestamps in µs, or, with `fine`, in ns, as numbers of `unit` or as text."""

    unit: int
    fine: bool

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(fine_timestamps if self.fine else timestamps, texts, shown, self.unit)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        if self.unit == ISO:
            return strings_of(self, texts)
        return numbers_of(fine_timestamp_values if self.fine else timestamp_values, texts, self.unit, of)


@kernel(leaf=True, inlined=True)
def fits_us(day: Int, clock: Int) -> Bool:
    """Return True if a day since 1970 and its µs, together in µs, fit 64 bits."""
    if -_LAST_US_DAY - 1 < day < _LAST_US_DAY or (day == _LAST_US_DAY and clock <= _LAST_US_CLOCK):
        return True
    return day == -_LAST_US_DAY - 1 and clock >= _FIRST_US_CLOCK


@kernel(leaf=True, inlined=True)
def fits_ns(day: Int, clock: Int) -> Bool:
    """Return True if a day since 1970 and its ns, together in ns, fit 64 bits."""
    if -_LAST_NS_DAY - 1 < day < _LAST_NS_DAY or (day == _LAST_NS_DAY and clock <= _LAST_NS_CLOCK):
        return True
    return day == -_LAST_NS_DAY - 1 and clock >= _FIRST_NS_CLOCK


@kernel(leaf=True, inlined=True)
def read_timestamp(data: Bytes, begin: Int, end: Int, unit: Int, found: Found) -> int:
    """Read a timestamp into found[0], days since 1970, and found[1], µs. Return _FINITE or _INFINITE.

    Returns _NOTHING if there is none or if it exceeds 64 bits in `unit`.
    """
    sign = infinity(data, begin, end)
    if sign != 0:
        us = MINUS_INFINITY_US if sign < 0 else INFINITY_US
        found[0] = us // DAY_US
        found[1] = us - found[0] * DAY_US
        return _INFINITE
    position = read_date(data, begin, end, found)
    if position < 0 or position >= end or data[position] != _BLANK:
        return _NOTHING
    if read_clock(data, position + 1, end, found) != behind_era(data, begin, end):
        return _NOTHING
    if unit == MICRO and not fits_us(found[0], found[1]):
        return _NOTHING
    if unit == NANO and not fits_ns(found[0], found[1] * 1000):
        return _NOTHING
    return _FINITE


@kernel(leaf=True, inlined=True)
def timestamp_number(kind: Int, day: Int, clock: Int, unit: Int) -> Int:
    """Return the result of `read_timestamp` as a number of `unit`."""
    if unit == MILLI:
        return day * 86_400_000 + clock // 1000
    if unit == MICRO:
        return day * DAY_US + clock
    if kind == _INFINITE:
        return np.int64(-INT64_MAX - 1) if day < 0 else np.int64(INT64_MAX)
    return (day * DAY_US + clock) * 1000


@kernel(leaf=True, inlined=True)
def put_instant(day: Int, clock: Int, digits: Int, out: Bytes, at: Int) -> Int:
    """Write days since 1970 and µs, which may reach beyond that day, as ISO text in quotes; return the end."""
    shift = clock // DAY_US
    out[at] = _QUOTE
    at = put_day(day + shift, out, at + 1)
    out[at] = _T
    at = put_clock(clock - shift * DAY_US, digits, out, at + 1)
    out[at] = _QUOTE
    return at + 1


def instant_texts(us: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> pa.Array:
    """Return instants in µs since 1970 as ISO texts at offsets in s, with as many digits of the second as needed."""
    out, bounds = np.empty(48 * len(us) + 1, np.uint8), np.zeros(len(us) + 1, np.int32)
    put_instants(readonly(np.ascontiguousarray(us)), readonly(np.ascontiguousarray(offsets)), out, bounds)
    return pa.StringArray.from_buffers(len(us), pa.py_buffer(bounds), pa.py_buffer(out))


@kernel(leaf=True)
def put_instants(us: Any, offsets: Any, out: Bytes, bounds: Offsets) -> None:
    """See `instant_texts`; `out` has room for 48 bytes each."""
    at: Int = 0
    for row in range(len(us)):
        offset = offsets[row]
        local = us[row] + offset * 1_000_000
        day = local // DAY_US
        at = put_day(day, out, at)
        out[at] = _T
        at = put_clock_ns((local - day * DAY_US) * 1000, out, at + 1)
        if offset == 0:
            out[at] = _Z
            at += 1
        else:
            out[at] = _PLUS if offset > 0 else _MINUS
            size = abs(offset)
            at = put_two(size // 3600, out, at + 1)
            out[at] = _COLON
            at = put_two(size // 60 % 60, out, at + 1)
            if size % 60 != 0:
                out[at] = _COLON
                at = put_two(size % 60, out, at + 1)
        bounds[row + 1] = at


@kernel
def timestamps(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write timestamps since 1970 in ms, µs or ns (arguments 0 to 2), or as ISO text (3)."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        kind = read_timestamp(data, bounds[row], bounds[row + 1], argument, found)
        if kind == _NOTHING:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == ISO:
            at = put_instant(found[0], found[1], -1, out, at)
        else:
            at = put_integer(timestamp_number(kind, found[0], found[1], argument), out, at)
        offsets[row + 1] = at
    return lost


@kernel
def timestamp_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read timestamps since 1970 in ms, µs or ns (arguments 0 to 2)."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
            continue
        kind = read_timestamp(data, bounds[row], bounds[row + 1], argument, found)
        if kind == _NOTHING:
            outcome[row] = LOST
        else:
            out[row], outcome[row] = timestamp_number(kind, found[0], found[1], argument), VALUE


@kernel(leaf=True, inlined=True)
def read_fine_timestamp(data: Bytes, begin: Int, end: Int, found: Found) -> Int:
    """Read a date into found[0], days since 1970, and a time of day into found[1], ns; return their end, -1 if none."""
    if begin + 19 > end or data[begin + 10] != _BLANK or read_date(data, begin, begin + 10, found) != begin + 10:
        return -1
    return read_clock_ns(data, begin + 11, end, found)


@kernel(leaf=True, inlined=True)
def read_whole_timestamp(data: Bytes, begin: Int, end: Int, unit: Int, found: Found) -> Bool:
    """Read a whole text like `read_fine_timestamp`, with the end of a day as the begin of the next.

    Returns True if there is one that fits 64 bits in `unit`.
    """
    if read_fine_timestamp(data, begin, end, found) != end:
        return False
    if found[1] >= DAY_NS:
        found[0] += 1
        found[1] -= DAY_NS
    return unit != NANO or fits_ns(found[0], found[1])


@kernel(leaf=True, inlined=True)
def fine_timestamp_number(day: Int, clock: Int, unit: Int) -> Int:
    """Return a day and ns of it as a number of `unit`."""
    if unit == MILLI:
        return day * 86_400_000 + clock // 1_000_000
    if unit == MICRO:
        return day * DAY_US + clock // 1000
    return day * DAY_NS + clock


@kernel
def fine_timestamps(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write timestamps since 1970 in ms, µs or ns (arguments 0 to 2), or as ISO text (3)."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif not read_whole_timestamp(data, bounds[row], bounds[row + 1], argument, found):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == ISO:
            out[at] = _QUOTE
            at = put_day(found[0], out, at + 1)
            out[at] = _T
            at = put_clock_ns(found[1], out, at + 1)
            out[at] = _Z
            out[at + 1] = _QUOTE
            at += 2
        else:
            at = put_integer(fine_timestamp_number(found[0], found[1], argument), out, at)
        offsets[row + 1] = at
    return lost


@kernel
def fine_timestamp_values(
    data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes
) -> None:
    """Read timestamps since 1970 in ms, µs or ns (arguments 0 to 2)."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_whole_timestamp(data, bounds[row], bounds[row + 1], argument, found):
            out[row], outcome[row] = fine_timestamp_number(found[0], found[1], argument), VALUE
        else:
            outcome[row] = LOST
