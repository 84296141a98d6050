"""Dates, which may be infinite or before Christ; `strict` dates have four-digit years and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import INT32, STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import numbers_of, stored, strings_of
from tailrace.values.calendar import (
    DATE_PATTERN,
    DAY_PARTS,
    Found,
    Parts,
    behind_era,
    day_parts,
    days_of,
    infinite_parts,
    infinity,
    iso_day,
    put_day,
    read_date,
    structured,
    whole,
)
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.integers import put_integer
from tailrace.values.texts import LOST, VALUE, Ends, Int, ShownValues, Texts, put_literal, written

DATE = semantic(INT32, "io.debezium.time.Date")
ISO_DATE = semantic(STRING, "io.debezium.time.IsoDate")
CONNECT_DATE = semantic(INT32, "org.apache.kafka.connect.data.Date")
STRUCTURED_DATE = structured("Date", **DAY_PARTS, specialValue=STRING)
INFINITY_DAYS = 2**31 - 1
"""The server's infinite dates are the ends of an int32."""
MINUS_INFINITY_DAYS = -(2**31)

_DATE = re.compile(DATE_PATTERN + "( BC)?")
_STRICT_DATE = re.compile(DATE_PATTERN.replace("{4,7}", "{4}"))
_ZERO_TEXT = "1970-01-01"
_LENGTH = 10
_QUOTE, _Z = 34, 90

stored("io.debezium.time.Date", pa.date32(), made_of=pa.int32())
stored("org.apache.kafka.connect.data.Date", pa.date32(), made_of=pa.int32())


def date(mode: str, strict: bool) -> Conversion:
    """Return the conversion of dates under a time.precision.mode."""
    if mode == "structured":
        convert = strict_date_parts if strict else date_parts
        return Conversion(STRUCTURED_DATE, convert, zero=convert(_ZERO_TEXT))
    if mode == "isostring":
        return Conversion(ISO_DATE, strict_iso_date if strict else iso_date, Dates(True, strict), zero="1970-01-01Z")
    schema = CONNECT_DATE if mode == "connect" else DATE
    return Conversion(schema, strict_date_days if strict else date_days, Dates(False, strict), zero=0)


def date_days(text: str) -> int:
    """Return days since 1970; infinite dates are the ends of an int32."""
    if text in ("infinity", "-infinity"):
        return INFINITY_DAYS if text == "infinity" else MINUS_INFINITY_DAYS
    return days_of(whole(_DATE, text), text)


def strict_date_days(text: str) -> int:
    """Return days since 1970."""
    return days_of(whole(_STRICT_DATE, text), text)


def iso_date(text: str) -> str:
    return iso_day(date_days(text)) + "Z"


def strict_iso_date(text: str) -> str:
    return iso_day(strict_date_days(text)) + "Z"


def date_parts(text: str) -> Parts:
    return infinite_parts(text, *DAY_PARTS) or {**day_parts(date_days(text)), "specialValue": None}


def strict_date_parts(text: str) -> Parts:
    return {**day_parts(strict_date_days(text)), "specialValue": None}


@dataclass(frozen=True, slots=True)
class Dates(Family):
    """Dates as days since 1970, or, with `iso`, as text."""

    iso: bool
    strict: bool

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(dates, texts, shown, int(self.iso) + 2 * int(self.strict))

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        return strings_of(self, texts) if self.iso else numbers_of(date_values, texts, int(self.strict), of)


@kernel(leaf=True, inlined=True)
def read_days(data: Bytes, begin: Int, end: Int, strict: bool, found: Found) -> bool:
    """Read a date into found[0], days since 1970, infinity as an end of an int32; return True if there was one."""
    if strict and end - begin != _LENGTH:
        return False
    infinite = infinity(data, begin, end)
    if infinite != 0:
        found[0] = MINUS_INFINITY_DAYS if infinite < 0 else INFINITY_DAYS
        return True
    return read_date(data, begin, end, found) == behind_era(data, begin, end)


@kernel
def dates(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write dates as days since 1970 (argument 0) or ISO text (1); infinite ones as the ends of an int32.

    Arguments 2 and 3 are the same for texts with four-digit years and nothing else.
    """
    found = np.zeros(3, np.int64)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif not read_days(data, bounds[row], bounds[row + 1], argument >= 2, found):
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument & 1 == 0:
            at = put_integer(found[0], out, at)
        else:
            out[at] = _QUOTE
            at = put_day(found[0], out, at + 1)
            out[at] = _Z
            out[at + 1] = _QUOTE
            at += 2
        offsets[row + 1] = at
    return lost


@kernel
def date_values(data: Bytes, bounds: Offsets, state: Bytes, argument: int, out: Found, outcome: Bytes) -> None:
    """Read dates as days since 1970; argument 1 is for texts with four-digit years and nothing else."""
    found = np.zeros(3, np.int64)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        elif read_days(data, bounds[row], bounds[row + 1], argument == 1, found):
            out[row], outcome[row] = found[0], VALUE
        else:
            outcome[row] = LOST
