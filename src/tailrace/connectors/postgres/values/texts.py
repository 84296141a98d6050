"""Columns of a query as the texts of their types' output functions. Worker.

The server writes most of the texts. Numbers, booleans, dates and times arrive in binary form and are written here:
this saves the server a third of its time for a row of usual columns. Sessions have `DateStyle=ISO` and `TimeZone=UTC`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.table import Column
from tailrace.kernels.buffers import Bytes, Offsets, binary_array, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.values.calendar import put_day, put_two, two_digits
from tailrace.values.clock import put_clock
from tailrace.values.integers import put_integer
from tailrace.values.texts import Bool, Int

# The server's own types, whose oids are the same everywhere: those selected as they are, and those selected by a
# function that gives the binary form.
_AS_THEY_ARE = frozenset({16, 20, 21, 23, 25, 1043})
_SENT = {1082: "date_send", 1114: "timestamp_send", 1184: "timestamptz_send"}

# Days from 1970 to the server's epoch in 2000; the first day of the year 1 and the last of 9999; days of 400 years.
_EPOCH, _FIRST_DAY, _LAST_DAY, _ERA = 10_957, -719_162, 2_932_896, 146_097
_DAY_US = 86_400_000_000
_INT32_MAX, _INT64_MAX = 2_147_483_647, 9_223_372_036_854_775_807
# The longest texts of a timestamp, with time zone and BC, and of a date.
_LONGEST, _LONGEST_DATE = 36, 18
_INFINITY = np.frombuffer(b"-infinity", np.uint8)


def selected(column: Column, name: str, outputs: Mapping[str, str]) -> str:
    """Return the item of a select list for the column, called `name` in SQL, in the form that `texts` takes.

    `outputs` has by column name the output function of its type.
    """
    if column.kind == "base" and column.type_oid in _AS_THEY_ARE:
        return name
    if column.kind == "base" and column.type_oid in _SENT:
        return f"pg_catalog.{_SENT[column.type_oid]}({name}) as {name}"
    return f"pg_catalog.textin({outputs[column.name]}({name})) as {name}"


def texts(values: pa.Array, column: Column) -> pa.Array:
    """Return the texts, as `binary`, of the values that a query has returned for `column`."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_boolean(kind):
        return pc.if_else(values, pa.scalar(b"t"), pa.scalar(b"f"))
    if not pa.types.is_binary(kind):
        return values.cast(pa.binary())
    content, bounds = text_buffers(values)
    size, longest = (4, _LONGEST_DATE) if column.type_oid == 1082 else (8, _LONGEST)
    out = np.empty(len(values) * longest + 1, np.uint8)
    offsets = np.empty(len(values) + 1, np.int32)
    end = _moments(content, bounds, size, column.type_oid == 1184, out, offsets)
    return binary_array(out[:end], offsets, valid_flags(values))


@kernel(leaf=True)
def _number(data: Bytes, begin: Int, end: Int) -> Int:
    """Return the big-endian bytes as a signed number."""
    value = np.int64(np.int8(data[begin]))
    for place in range(begin + 1, end):
        value = value << 8 | np.int64(data[place])
    return value


@kernel(leaf=True)
def _put_infinity(negative: Bool, infinity: Bytes, out: Bytes, at: Int) -> Int:
    for place in range(0 if negative else 1, 9):
        out[at] = infinity[place]
        at += 1
    return at


@kernel(leaf=True)
def _put_date(day: Int, out: Bytes, at: Int) -> Int:
    """Write days since 1970 as the server does, but without the BC of years before Christ."""
    if _FIRST_DAY <= day <= _LAST_DAY:
        return put_day(day, out, at)
    # write the same day of a year with four digits, and then replace the year
    eras = (day + 719_468) // _ERA - 5
    put_day(day - eras * _ERA, out, at)
    year: Int = np.int64(0)
    for place in range(4):
        year = year * 10 + np.int64(out[at + place]) - 48
    year += eras * 400
    if year < 1:
        year = 1 - year
    high, low = two_digits(out, at + 5), two_digits(out, at + 8)
    if year > 9999:
        at = put_integer(np.int64(year), out, at)
    else:
        at = put_two(year // 100, out, at)
        at = put_two(year % 100, out, at)
    out[at] = 45
    at = put_two(high, out, at + 1)
    out[at] = 45
    return put_two(low, out, at + 1)


@kernel
def _moments(data: Bytes, bounds: Offsets, size: int, zoned: bool, out: Bytes, offsets: Offsets) -> Int:
    """Write the texts of values of `size` bytes (4: days since 2000, 8: µs since 2000), and return their end.

    Values of another length are null.
    """
    at: Int = 0
    most = _INT32_MAX if size == 4 else _INT64_MAX
    for row in range(len(bounds) - 1):
        offsets[row] = at
        if bounds[row + 1] - bounds[row] != size:
            continue
        value = _number(data, bounds[row], bounds[row + 1])
        if value == most or value == -most - 1:
            at = _put_infinity(value < 0, _INFINITY, out, at)
            continue
        day = (value if size == 4 else value // _DAY_US) + _EPOCH
        at = _put_date(day, out, at)
        if size == 8:
            out[at] = 32
            # minus 1, to overwrite the letter of the time zone that is put there
            at = put_clock(value % _DAY_US, -1, out, at + 1) - 1
            if zoned:
                out[at], out[at + 1], out[at + 2] = 43, 48, 48
                at += 3
        if day < _FIRST_DAY:
            out[at], out[at + 1], out[at + 2] = 32, 66, 67
            at += 3
    offsets[len(bounds) - 1] = at
    return at


def load() -> None:
    """Load the kernel, or compile it the first time, so that the first real call does not wait for it."""
    none, bounds, out = np.empty(0, np.uint8), np.zeros(1, np.int32), np.empty(0, np.uint8)
    _moments(readonly(none), readonly(bounds), 8, False, out, np.empty(1, np.int32))
