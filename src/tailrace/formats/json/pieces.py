"""Columns of values as JSON, one piece for each value. Worker."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.assembly.json_text import dumps
from tailrace.assembly.programs import Fragment
from tailrace.buffers import readonly, text_buffers
from tailrace.columns.logical import STRING
from tailrace.formats.json.kernels import escape
from tailrace.values.binaries import base64_text
from tailrace.values.conversion import ColumnPlan
from tailrace.values.decimals import unscaled, unscaled_bytes
from tailrace.values.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.values.strings import text
from tailrace.values.timestamps import iso_instant

_TEXTS = ColumnPlan(0, "", "", STRING, text(), b"null", b"null")


def values_fragment(values: pa.Array) -> Fragment:
    """The JSON of a column's values: of dates, times and durations the numbers, of instants ISO text."""
    if pa.types.is_temporal(values.type):
        values = _untyped(values)
    if pa.types.is_integer(values.type):
        if values.null_count:
            return text_fragment(pc.fill_null(values.cast(pa.string()), "null"))
        whole = values if pa.types.is_int64(values.type) else values.cast(pa.int64())
        return integers_fragment(whole.to_numpy())
    if pa.types.is_string(values.type):
        return column_fragment(_TEXTS, values, None)[0]
    return strings_fragment([dumps(_shown(value)).encode() for value in values.to_pylist()])


def inner_fragment(values: pa.Array) -> Fragment:
    """What the values are within a JSON string. Texts have no control characters."""
    if not pa.types.is_string(values.type):
        return values_fragment(values)
    data, bounds = text_buffers(values if not values.null_count else pc.fill_null(values, "null"))
    out = np.empty(2 * int(bounds[-1] - bounds[0]) + 1, np.uint8)
    offsets = np.zeros(len(values) + 1, np.int32)
    escape(data, bounds, out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def spread(values: pa.Array, rows: np.ndarray[Any, Any], count: int) -> pa.Array:
    """The values at these rows of a column of `count`, which is null elsewhere."""
    place = np.full(count, -1, np.int32)
    place[rows] = np.arange(len(rows))
    return values.take(pa.array(place, mask=place < 0))


def _untyped(values: pa.Array) -> pa.Array:
    """Dates, times and durations as their numbers, instants in UTC as text."""
    numbers = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if not pa.types.is_timestamp(values.type) or values.type.tz is None:
        return numbers
    return pa.array([None if us is None else iso_instant(us, None) for us in numbers.to_pylist()], pa.string())


def _shown(value: Any) -> Any:
    """A value of Arrow's in the form that it has in JSON."""
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, Decimal):
        return base64_text(unscaled_bytes(unscaled(value, -int(value.as_tuple().exponent))))
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list) else value
