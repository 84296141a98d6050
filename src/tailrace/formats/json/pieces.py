"""Columns of values as JSON, one piece for each value. Worker."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import STRING
from tailrace.formats.json.kernels import escape
from tailrace.serde import scalar
from tailrace.serde.assemble import Fragment
from tailrace.serde.conversion import ColumnPlan, Conversion, Kernel
from tailrace.serde.fragments import column_fragment, integers_fragment, strings_fragment, text_fragment
from tailrace.serde.json_text import dumps
from tailrace.serde.memory import readonly, text_buffers

_TEXTS = ColumnPlan(0, "", "", STRING, Conversion(STRING, scalar.string, Kernel.STRING), b"null", b"null")


def values_fragment(values: pa.Array) -> Fragment:
    """The JSON of a column's values."""
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


def _shown(value: Any) -> Any:
    """A value of Arrow's in the form that it has in JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    return [_shown(part) for part in value] if isinstance(value, list) else value
