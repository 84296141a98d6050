"""Columns of values in Avro's binary encoding, one piece for each value. Worker.

What a column's Arrow type holds as JSON shows it, kernels write from Arrow. The rest is written from its JSON: by
kernels where that is a number, or text without escapes, else value by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.programs import Fragment
from tailrace.buffers import Bytes, readonly, text_buffers, valid_flags
from tailrace.columns.logical import LogicalType
from tailrace.formats.avro.kernels import fixed, integers, json_base64, json_integers, texts
from tailrace.formats.avro.schema import Rules
from tailrace.formats.avro.values import NullError, branches, writer
from tailrace.formats.json.pieces import values_fragment
from tailrace.values.fragments import json_array

_ALL = readonly(np.zeros(0, np.bool_))
_WHOLE = ("int8", "int16", "int32", "int64")
_MOST_KNOWN = 100_000


def _six_bits() -> Bytes:
    table = np.zeros(256, np.uint8)
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    table[list(letters)] = np.arange(64)
    return readonly(table)


_SIX_BITS = _six_bits()


def takes_arrow(schema: LogicalType, of: pa.DataType) -> bool:
    """Whether arrays of the type `of` hold the values of the schema as events show them, and kernels write them."""
    if schema.connect in _WHOLE:
        return not pa.types.is_time(of)
    if schema.connect == "string":
        return bool(pa.types.is_string(of))
    if schema.connect == "bytes":
        return bool(pa.types.is_binary(of))
    return schema.connect in ("boolean", "float", "double")


def array_piece(values: pa.Array, schema: LogicalType, rules: Rules) -> Fragment:
    """The values of an array, whose type is any that holds values of the schema."""
    if not takes_arrow(schema, values.type):
        return json_piece(values_fragment(values), schema, rules)
    flags = valid_flags(values)
    valid = _ALL if flags is None else np.ascontiguousarray(flags)
    if schema.connect in _WHOLE:
        whole = np.ascontiguousarray(_whole(values))
        return _piece(schema, len(values), 11 * len(values), lambda *to: integers(whole, valid, *to))
    if schema.connect in ("string", "bytes"):
        data, bounds = text_buffers(values)
        room = int(bounds[-1]) - int(bounds[0]) + 6 * len(values)
        return _piece(schema, len(values), room, lambda *to: texts(data, bounds, valid, 0, *to))
    numbers = _bytes_of(values, schema)
    width = len(numbers) // max(len(values), 1)
    return _piece(schema, len(values), len(numbers) + len(values), lambda *to: fixed(numbers, width, valid, *to))


def json_piece(written: Fragment, schema: LogicalType, rules: Rules) -> Fragment:
    """The values of a column that is JSON already."""
    count, data, bounds = len(written.offsets) - 1, written.data, written.offsets
    quotes = 0 if written.quoted else 1
    if schema.connect in _WHOLE:
        return _piece(schema, count, 11 * count, lambda *to: json_integers(data, bounds, *to))
    room = int(bounds[-1]) - int(bounds[0]) + 6 * count
    if schema.connect == "bytes":
        return _piece(schema, count, room, lambda *to: json_base64(data, bounds, quotes, _SIX_BITS, *to))
    if schema.connect == "string" and not written.quoted and _is_plain(written):
        valid = data[np.minimum(bounds[:-1], max(len(data) - 1, 0))] == ord('"')
        return _piece(schema, count, room, lambda *to: texts(data, bounds, valid, 1, *to))
    return _one_by_one(written, schema, rules)


def _one_by_one(written: Fragment, schema: LogicalType, rules: Rules) -> Fragment:
    """The values by what writes single ones; equal values are written once."""
    write, quote = writer(schema, rules), '"' if written.quoted else ""
    known: dict[str, bytes] = {}
    parts: list[bytes] = []
    for text in json_array(written).to_pylist():
        found = known.get(text)
        if found is None:
            found = write(json.loads(f"{quote}{text}{quote}"))
            if len(known) < _MOST_KNOWN:
                known[text] = found
        parts.append(found)
    return joined(parts)


def joined(parts: list[bytes]) -> Fragment:
    """Pieces one after another."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    data = np.frombuffer(b"".join(parts) or b"\0", np.uint8)
    return Fragment(data, readonly(offsets))


def _piece(schema: LogicalType, count: int, room: int, write: Callable[..., Any]) -> Fragment:
    mark, null = branches(schema)
    out, offsets = np.empty(max(room, 1), np.uint8), np.zeros(count + 1, np.int32)
    if write(mark, null, out, offsets):
        raise NullError(schema)
    return Fragment(readonly(out), readonly(offsets))


def _whole(values: pa.Array) -> npt.NDArray[Any]:
    """The numbers of integers, dates, times, timestamps and durations; what stands for nulls means nothing."""
    width = values.type.bit_width
    if not pa.types.is_integer(values.type):
        values = values.view(pa.int32() if width == 32 else pa.int64())
    kind: Any = np.dtype(f"int{width}")
    found = np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]
    return found if width == 64 else found.astype(np.int64)


def _bytes_of(values: pa.Array, schema: LogicalType) -> Bytes:
    """The bytes of numbers and of truth values; a NaN is Java's."""
    if schema.connect == "boolean":
        return np.ascontiguousarray(values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))
    kind: Any = "<f4" if schema.connect == "float" else "<f8"
    found = values.cast(pa.float32() if schema.connect == "float" else pa.float64())
    numbers = np.array(found.fill_null(0).to_numpy(zero_copy_only=False), kind)
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint8)


def _is_plain(written: Fragment) -> bool:
    """Whether nothing in the texts is escaped."""
    first, last = int(written.offsets[0]), int(written.offsets[-1])
    return not (written.data[first:last] == ord("\\")).any()
