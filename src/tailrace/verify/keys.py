"""Keys as Python values, including dates and timestamps outside Python's years. Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.values.calendar import civil

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, order=True)
class FarMoment:
    """A date or timestamp before the year 1 or after 9999, in days or µs since 1970; instants have a `zone`.

    Its text ends with BC for years before 1, as databases with such values read it.
    """

    number: int
    is_date: bool = False
    zone: str = ""

    def __str__(self) -> str:
        day, us = (self.number, 0) if self.is_date else divmod(self.number, _DAY_US)
        year, month, of_month = civil(day)
        text = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{of_month:02d}"
        if not self.is_date:
            seconds, fraction = divmod(us, 1_000_000)
            text += f" {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}{self.zone}"
        return text if year > 0 else f"{text} BC"


def values_of(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of an array: instants in UTC, dates and timestamps outside Python's range as `FarMoment`."""
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    try:
        found: list[Any] = array.to_pylist()
        return found
    except (OverflowError, ValueError):
        return [_value(one) for one in array]


def _value(one: pa.Scalar) -> Any:
    try:
        return one.as_py()
    except (OverflowError, ValueError):
        kind = one.type
        if pa.types.is_list(kind):
            return values_of(one.values)
        if pa.types.is_date32(kind):
            return FarMoment(one.cast(pa.int32()).as_py(), True)
        if pa.types.is_timestamp(kind):
            number = one.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).as_py()
            return FarMoment(number, zone="" if kind.tz is None else "+00")
        raise


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of the type `kind` from values of `values_of`."""
    if not any(isinstance(value, FarMoment) for value in values):
        return pa.array(values, kind)
    parts = [
        pa.array([value.number], pa.int32() if value.is_date else pa.int64()).cast(kind)
        if isinstance(value, FarMoment)
        else pa.array([value], kind)
        for value in values
    ]
    return pa.concat_arrays(parts)
