"""Infinite dates and timestamps in copies: tables and typed rows hold a day at each end of Python's calendar instead.

Events show them as the ends of the types' ranges, which neither Spark nor Python can read back: widening such a date to
a timestamp overflows, and `datetime` has no years beyond 9999. The two days are readable in every time zone.
"""

from __future__ import annotations

import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.values.calendar import INT64_MAX
from tailrace.values.dates import INFINITY_DAYS, MINUS_INFINITY_DAYS
from tailrace.values.timestamps import INFINITY_US, MINUS_INFINITY_US

LATEST, EARLIEST = datetime.date(9999, 12, 31), datetime.date(1, 1, 3)
"""`infinity` and `-infinity` in copies; timestamps are the beginnings of these days, in UTC if they have a zone."""

_EPOCH = datetime.date(1970, 1, 1)
_DAYS = ((LATEST - _EPOCH).days, (EARLIEST - _EPOCH).days)
_ENDS = {
    "s": (INFINITY_US // 1_000_000, MINUS_INFINITY_US // 1_000_000),
    "ms": (INFINITY_US // 1000, MINUS_INFINITY_US // 1000),
    "us": (INFINITY_US, MINUS_INFINITY_US),
    "ns": (INT64_MAX, -INT64_MAX - 1),
}
_OF_A_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 0}


def may_be_infinite(kind: pa.DataType) -> bool:
    """Return True for dates and timestamps, and for structs and lists of these; there are no maps of them."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return True
    if pa.types.is_map(kind):
        return False
    return any(may_be_infinite(kind.field(place).type) for place in range(kind.num_fields))


def finite(values: pa.Array) -> tuple[pa.Array, int]:
    """Return the values with LATEST and EARLIEST for infinite ones, at any depth, and the number of infinite values.

    Timestamps in ns, which end in 2262, become timestamps in µs if any is infinite.
    """
    kind = values.type
    if not may_be_infinite(kind):
        return values, 0
    if not kind.num_fields:
        return _replaced(values)
    if pa.types.is_struct(kind):
        parts, counts = zip(*(finite(values.field(place)) for place in range(kind.num_fields)), strict=True)
        if not any(counts):
            return values, 0
        fields = [kind.field(place).with_type(part.type) for place, part in enumerate(parts)]
        return pa.StructArray.from_arrays(list(parts), fields=fields, mask=values.is_null()), sum(counts)
    elements, count = finite(values.flatten())
    return (pa.ListArray.from_arrays(_offsets(values), elements), count) if count else (values, 0)


def _replaced(values: pa.Array) -> tuple[pa.Array, int]:
    kind = values.type
    if pa.types.is_date32(kind):
        ends, wanted, numbers = (INFINITY_DAYS, MINUS_INFINITY_DAYS), _DAYS, values.cast(pa.int32())
    else:
        day = _OF_A_DAY[kind.unit]
        ends, wanted, numbers = _ENDS[kind.unit], (_DAYS[0] * day, _DAYS[1] * day), values.cast(pa.int64())
    masks = [pc.fill_null(pc.equal(numbers, pa.scalar(end, numbers.type)), False) for end in ends]
    count = sum(pc.sum(mask).as_py() or 0 for mask in masks)
    if not count:
        return values, 0
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        kind = pa.timestamp("us", kind.tz)
        numbers = pc.floor_temporal(values, unit="microsecond").cast(kind, safe=False).cast(pa.int64())
        wanted = (_DAYS[0] * _OF_A_DAY["us"], _DAYS[1] * _OF_A_DAY["us"])
    for mask, number in zip(masks, wanted, strict=True):
        numbers = pc.if_else(mask, pa.scalar(number, numbers.type), numbers)
    return numbers.cast(kind), count


def _offsets(values: pa.Array) -> pa.Array:
    """Return the index at which the elements of each list begin among all elements; null for a null list."""
    lengths: npt.NDArray[np.int64] = np.diff(values.offsets.to_numpy()).astype(np.int64)
    lengths[np.asarray(values.is_null())] = 0
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    return pa.array(ends, mask=np.append(np.asarray(values.is_null()), False))
