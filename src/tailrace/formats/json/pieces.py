"""Columns of values as JSON, one piece for each value. Worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.assembly.json_text import dumps
from tailrace.assembly.programs import Fragment
from tailrace.buffers import readonly, text_buffers
from tailrace.columns.logical import BYTES, DOUBLE, FLOAT, STRING
from tailrace.formats.arrow import shown, untyped
from tailrace.formats.json.kernels import escape
from tailrace.values.conversion import ColumnPlan
from tailrace.values.decimals import fixed
from tailrace.values.floats import floating
from tailrace.values.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.values.strings import text

_TEXTS = ColumnPlan(0, "", "", STRING, text(), b"null", b"null")
_MOST_PLACES = 6
_DOUBLES = ColumnPlan(0, "", "", DOUBLE, floating(single=False), b"null", b"null")
_SINGLES = ColumnPlan(0, "", "", FLOAT, floating(single=True), b"null", b"null")


def values_fragment(values: pa.Array) -> Fragment:
    """The JSON of a column's values: of dates, times and durations the numbers, of instants ISO text."""
    if pa.types.is_temporal(values.type):
        values = untyped(values)
    if pa.types.is_integer(values.type):
        if values.null_count:
            return text_fragment(pc.fill_null(values.cast(pa.string()), "null"))
        whole = values if pa.types.is_int64(values.type) else values.cast(pa.int64())
        return integers_fragment(whole.to_numpy())
    if pa.types.is_string(values.type):
        return column_fragment(_TEXTS, values, None)[0]
    if pa.types.is_boolean(values.type):
        return text_fragment(pc.fill_null(values.cast(pa.string()), "null"))
    if pa.types.is_floating(values.type):
        single = pa.types.is_float32(values.type)
        return column_fragment(_SINGLES if single else _DOUBLES, values.cast(pa.string()), None)[0]
    # with more places Arrow writes small numbers with an exponent
    if pa.types.is_decimal(values.type) and 0 <= values.type.scale <= _MOST_PLACES:
        numbers = ColumnPlan(0, "", "", BYTES, fixed(values.type.scale, values.type.precision), b"null", b"null")
        return column_fragment(numbers, values.cast(pa.string()), None)[0]
    # the keys of maps are texts
    return strings_fragment([dumps(shown(value)).encode() for value in values.to_pylist(maps_as_pydicts="strict")])


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
