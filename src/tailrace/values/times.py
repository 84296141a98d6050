"""Times of day, without and with a zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import INT32, INT64, STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import numbers_of, stored, strings_of
from tailrace.values.calendar import DAY_NS, DAY_US, ISO, MICRO, MILLI, NANO, Found, Parts, structured, whole
from tailrace.values.clock import (
    CLOCK_PARTS,
    CLOCK_PATTERN,
    OFFSET_PATTERN,
    UNITS_NS,
    clock_ns,
    clock_parts,
    clock_us,
    iso_clock,
    offset_us,
    put_clock,
    put_clock_ns,
    read_clock,
    read_clock_ns,
    read_offset,
    unit_of,
)
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.integers import put_integer
from tailrace.values.texts import LOST, VALUE, Ends, Int, ShownValues, Texts, put_literal, written

TIME = semantic(INT32, "io.debezium.time.Time")
MICRO_TIME = semantic(INT64, "io.debezium.time.MicroTime")
NANO_TIME = semantic(INT64, "io.debezium.time.NanoTime")
ISO_TIME = semantic(STRING, "io.debezium.time.IsoTime")
CONNECT_TIME = semantic(INT32, "org.apache.kafka.connect.data.Time")
ZONED_TIME = semantic(STRING, "io.debezium.time.ZonedTime")
STRUCTURED_TIME = structured("Time", **CLOCK_PARTS, precision=INT32)
STRUCTURED_ZONED_TIME = structured("ZonedTime", **CLOCK_PARTS, offsetSeconds=INT32, precision=INT32)

_TIME, _ZONED_TIME = re.compile(CLOCK_PATTERN), re.compile(CLOCK_PATTERN + OFFSET_PATTERN)
_ZONED = 4
_QUOTE, _Z = 34, 90


def _of_a_day(unit: int) -> Callable[[int, LogicalType], int]:
    """Return a function that checks a time of day for Arrow, which has no 24:00:00."""

    def value(number: int, logical: LogicalType) -> int:
        if number * UNITS_NS[unit] >= DAY_NS:
            raise ValueError("not before the end of the day")
        return number

    return value


stored("io.debezium.time.Time", pa.time32("ms"), _of_a_day(MILLI), made_of=pa.int32())
stored("io.debezium.time.MicroTime", pa.time64("us"), _of_a_day(MICRO), made_of=pa.int64())
stored("io.debezium.time.NanoTime", pa.time64("ns"), _of_a_day(NANO), made_of=pa.int64())
stored("org.apache.kafka.connect.data.Time", pa.time32("ms"), _of_a_day(MILLI), made_of=pa.int32())


def time(digits: int, mode: str, fine: bool) -> Conversion:
    """Return the conversion of times of day with `digits` digits of the second's fraction, under a time.precision.mode.

    `fine`: the texts may have more digits than six.
    """
    if mode == "structured":
        convert = structured_time(digits, fine)
        return Conversion(STRUCTURED_TIME, convert, zero=convert("00:00:00"))
    unit = MICRO if mode == "adaptive_time_microseconds" else unit_of(digits, mode)
    family = Times(unit, fine)
    read = clock_ns if fine else _clock_ns
    if unit == ISO:
        return Conversion(ISO_TIME, lambda text: iso_clock(read(text) % DAY_NS) + "Z", family, zero="00:00:00Z")
    schema = CONNECT_TIME if mode == "connect" else (TIME, MICRO_TIME, NANO_TIME)[unit]
    return Conversion(schema, lambda text: read(text) // UNITS_NS[unit], family, zero=0)


def zoned_time(digits: int, mode: str) -> Conversion:
    """Return the conversion of times of day with an offset from UTC, shown in UTC."""
    if mode == "structured":
        convert = structured_zoned_time(digits)
        return Conversion(STRUCTURED_ZONED_TIME, convert, zero=convert("00:00:00+00"))
    return Conversion(ZONED_TIME, utc_time, ZonedTimes(), zero="00:00:00Z")


def _clock_ns(text: str) -> int:
    return clock_us(whole(_TIME, text)) * 1000


def utc_time(text: str) -> str:
    """Return the time of day in UTC."""
    found = whole(_ZONED_TIME, text)
    return iso_clock((clock_us(found) - offset_us(found, 5)) % DAY_US * 1000) + "Z"


def structured_time(digits: int, fine: bool) -> Callable[[str], Parts]:
    read = clock_ns if fine else _clock_ns
    return lambda text: {**clock_parts(read(text)), "precision": digits}


def structured_zoned_time(digits: int) -> Callable[[str], Parts]:
    """Return a function that gives the time of day in its own zone, and the zone's offset from UTC in seconds."""

    def convert(text: str) -> Parts:
        found = whole(_ZONED_TIME, text)
        parts = clock_parts(clock_us(found) * 1000)
        return {**parts, "offsetSeconds": offset_us(found, 5) // 1_000_000, "precision": digits}

    return convert


@dataclass(frozen=True, slots=True)
class Times(Family):
    """Times of day in µs, or, with `fine`, in ns, as numbers of `unit` or as text."""

    unit: int
    fine: bool

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(fine_times if self.fine else times, texts, shown, self.unit)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        if self.unit == ISO:
            return strings_of(self, texts)
        return numbers_of(fine_time_values if self.fine else time_values, texts, self.unit, of)


@dataclass(frozen=True, slots=True)
class ZonedTimes(Family):
    """Times of day with an offset, as text in UTC."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(times, texts, shown, _ZONED)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        return strings_of(self, texts)


@kernel(leaf=True, inlined=True)
def read_time(data: Bytes, begin: Int, end: Int, zoned: bool, found: Found) -> bool:
    """Read a time of day into found[1], its offset from UTC into found[2], both in µs; return True if there was one."""
    found[2] = 0
    position = read_clock(data, begin, end, found)
    if position >= 0 and zoned:
        position = read_offset(data, position, end, found)
    return position == end


@kernel(leaf=True, inlined=True)
def time_number(us: Int, unit: Int) -> Int:
    """Return a time of day, in µs, as a number of `unit`."""
    if unit == MILLI:
        return us // 1000
    return us * (1 if unit == MICRO else 1000)


@kernel(leaf=True, inlined=True)
def fine_time_number(ns: Int, unit: Int) -> Int:
    """Return a time of day, in ns, as a number of `unit`."""
    return ns // (1_000_000 if unit == MILLI else (1000 if unit == MICRO else 1))


@kernel
def times(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write times of day in ms, µs or ns (arguments 0 to 2), as ISO text (3), or with a zone as ISO text in UTC (4)."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif not read_time(data, bounds[row], bounds[row + 1], argument == _ZONED, found):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument >= ISO:
            us = found[1] - found[2]
            out[at] = _QUOTE
            at = put_clock(us - us // DAY_US * DAY_US, -1, out, at + 1)
            out[at] = _QUOTE
            at += 1
        else:
            at = put_integer(time_number(found[1], argument), out, at)
        offsets[row + 1] = at
    return lost


@kernel
def time_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read times of day in ms, µs or ns (arguments 0 to 2); Arrow has no 24:00:00."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_time(data, bounds[row], bounds[row + 1], False, found) and found[1] < DAY_US:
            out[row], outcome[row] = time_number(found[1], argument), VALUE
        else:
            outcome[row] = LOST


@kernel
def fine_times(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write times of day in ms, µs or ns (arguments 0 to 2), or as ISO text (3)."""
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif read_clock_ns(data, bounds[row], bounds[row + 1], found) != bounds[row + 1]:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == ISO:
            out[at] = _QUOTE
            at = put_clock_ns(found[1] % DAY_NS, out, at + 1)
            out[at] = _Z
            out[at + 1] = _QUOTE
            at += 2
        else:
            at = put_integer(fine_time_number(found[1], argument), out, at)
        offsets[row + 1] = at
    return lost


@kernel
def fine_time_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read times of day in ms, µs or ns (arguments 0 to 2); Arrow has no 24:00:00."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_clock_ns(data, bounds[row], bounds[row + 1], found) == bounds[row + 1] and found[1] < DAY_NS:
            out[row], outcome[row] = fine_time_number(found[1], argument), VALUE
        else:
            outcome[row] = LOST
