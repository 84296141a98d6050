"""Columns of values in Avro's binary encoding, one piece per value. Worker.

If a column's Arrow type holds the values that JSON shows, kernels write from Arrow. Other columns are written from
their JSON: by kernels if it is a number or text without escapes, else value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.assembly.programs import Fragment
from tailrace.buffers import readonly, text_buffers, valid_flags
from tailrace.columns.logical import LogicalType
from tailrace.formats.avro.kernels import fixed, integers, json_base64, json_integers, texts
from tailrace.formats.avro.schema import Rules
from tailrace.formats.avro.values import NullError, branches, writer
from tailrace.formats.json.pieces import values_fragment
from tailrace.formats.leaves import (
    SIX_BITS,
    WHOLE,
    WIDTHS,
    is_plain,
    number_bytes,
    one_by_one,
    takes_arrow,
    whole_numbers,
)

_ALL = readonly(np.zeros(0, np.bool_))


def array_piece(values: pa.Array, schema: LogicalType, rules: Rules) -> Fragment:
    """Return the pieces of an array of any type that holds values of the schema."""
    if not takes_arrow(schema, values.type):
        return json_piece(values_fragment(values), schema, rules)
    flags = valid_flags(values)
    valid = _ALL if flags is None else np.ascontiguousarray(flags)
    if schema.connect in WHOLE:
        whole = np.ascontiguousarray(whole_numbers(values))
        return _piece(schema, len(values), 11 * len(values), lambda *to: integers(whole, valid, *to))
    if schema.connect in ("string", "bytes"):
        data, bounds = text_buffers(values)
        room = int(bounds[-1]) - int(bounds[0]) + 6 * len(values)
        return _piece(schema, len(values), room, lambda *to: texts(data, bounds, valid, 0, *to))
    numbers = number_bytes(values, schema)
    width = WIDTHS[schema.connect]
    return _piece(schema, len(values), len(numbers) + len(values), lambda *to: fixed(numbers, width, valid, *to))


def json_piece(written: Fragment, schema: LogicalType, rules: Rules) -> Fragment:
    """Return the pieces of a column that is JSON already."""
    count, data, bounds = len(written.offsets) - 1, written.data, written.offsets
    quotes = 0 if written.quoted else 1
    if schema.connect in WHOLE:
        return _piece(schema, count, 11 * count, lambda *to: json_integers(data, bounds, *to))
    room = int(bounds[-1]) - int(bounds[0]) + 6 * count
    if schema.connect == "bytes":
        return _piece(schema, count, room, lambda *to: json_base64(data, bounds, quotes, SIX_BITS, *to))
    if schema.connect == "string" and not written.quoted and is_plain(written):
        valid = data[np.minimum(bounds[:-1], max(len(data) - 1, 0))] == ord('"')
        return _piece(schema, count, room, lambda *to: texts(data, bounds, valid, 1, *to))
    return one_by_one(written, writer(schema, rules))


def _piece(schema: LogicalType, count: int, room: int, write: Callable[..., Any]) -> Fragment:
    mark, null = branches(schema)
    out, offsets = np.empty(max(room, 1), np.uint8), np.zeros(count + 1, np.int32)
    if write(mark, null, out, offsets):
        raise NullError(schema)
    return Fragment(readonly(out), readonly(offsets))
