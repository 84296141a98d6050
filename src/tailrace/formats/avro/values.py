"""Values in Avro's binary encoding: single ones, and columns of them by compiled kernels. Worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.avro.schema import AvroRules, is_map, null_is_last
from tailrace.formats.binary import (
    SIX_BITS,
    WHOLE,
    WIDTHS,
    is_plain,
    number_bytes,
    one_by_one,
    takes_arrow,
    whole_numbers,
)
from tailrace.formats.json.values import values_fragment
from tailrace.kernels.buffers import Bytes, Offsets, move, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment

# --- single values ----------------------------------------------------------------------------------------------------


class NullError(ConversionError):
    """A null in a `schema` that does not allow it."""

    def __init__(self, schema: LogicalType) -> None:
        super().__init__(*null_is_no_value(schema))
        self.args = (schema,)
        self.schema = schema


Writer = Callable[[Any], bytes]
"""Encodes a value in its JSON form; None for null."""

FIRST, SECOND = 0, 2
"""The bytes of the two branches of a union."""


def branches(schema: LogicalType) -> tuple[int, int]:
    """Return the byte before a value and the byte of a null; -1 for both if the schema is not optional."""
    if not schema.optional:
        return -1, -1
    return (FIRST, SECOND) if null_is_last(schema) else (SECOND, FIRST)


def varint(number: int) -> bytes:
    """Return a 64-bit integer as Avro writes it: zig-zag, seven bits to a byte."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def writer(schema: LogicalType, rules: AvroRules) -> Writer:
    """Return the encoder of the schema's values. Raises ConversionError for a null that the schema does not allow."""
    plain = _plain(schema, rules)
    mark, null = branches(schema)
    if mark < 0:

        def required(value: Any) -> bytes:
            if value is None:
                raise NullError(schema)
            return plain(value)

        return required
    before, absent = bytes([mark]), bytes([null])
    return lambda value: absent if value is None else before + plain(value)


def null_is_no_value(schema: LogicalType, column: str = "") -> tuple[str, str]:
    """Return message and remedy for a null that the schema does not allow, with the column if known."""
    of = f"A field of type {schema.name or schema.connect}" if not column else f"The column {column}"
    return (
        f"{of} is null in a record, and its Avro schema does not allow that.",
        "Its value does not fit its type in events: set event.converting.failure.handling.mode to fail to be told "
        "which column it is, or leave the column out (column.exclude.list).",
    )


def _plain(schema: LogicalType, rules: AvroRules) -> Writer:
    match schema.connect:
        case "boolean":
            return lambda value: b"\x01" if value else b"\x00"
        case "int8" | "int16" | "int32" | "int64":
            return lambda value: varint(int(value))
        case "float":
            return lambda value: struct.pack("<f", float(value))
        case "double":
            return lambda value: struct.pack("<d", float(value))
        case "string":
            return lambda value: _sized(str(value).encode())
        case "bytes":
            return lambda value: _sized(base64.b64decode(value))
        case "struct":
            return _struct(schema, rules)
        case "array":
            assert schema.items is not None
            item = writer(schema.items, rules)
            return lambda value: _list([item(one) for one in value])
    return _map(schema, rules)


def _struct(schema: LogicalType, rules: AvroRules) -> Writer:
    parts = [(part.name, writer(part.type, rules)) for part in schema.fields]
    return lambda value: b"".join(write(value[name]) for name, write in parts)


def _map(schema: LogicalType, rules: AvroRules) -> Writer:
    """Return the encoder of a map. Its JSON is an object, or a list of pairs if keys are not texts."""
    assert schema.items is not None
    keys = STRING if is_map(schema, rules) else schema.keys or STRING
    key, item = writer(keys, rules), writer(schema.items, rules)

    def write(value: Any) -> bytes:
        pairs = value.items() if isinstance(value, dict) else value
        return _list([key(name) + item(one) for name, one in pairs])

    return write


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def _list(items: list[bytes]) -> bytes:
    """Return items as one block, followed by the end of the list."""
    return varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


# --- kernels ----------------------------------------------------------------------------------------------------------

_MINUS, _QUOTE, _NULL, _PAD = 45, 34, 110, 61
_MORE = 0x80


@kernel(leaf=True, inlined=True)
def _varint(out: Any, at: Any, number: Any) -> Any:
    """Write a 64-bit integer in zig-zag encoding; return its end."""
    rest = (number << 1) ^ (number >> 63)
    while (rest & ~0x7F) != 0:
        out[at] = (rest & 0x7F) | _MORE
        at += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    out[at] = rest
    return at + 1


@kernel(leaf=True)
def integers(values: Any, valid: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write integers; `out` has room for 11 bytes each."""
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(values)):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            at = _varint(out, at, values[row])
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel
def texts(
    data: Bytes, bounds: Offsets, valid: Any, cut: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write texts or bytes after their length, less `cut` bytes at both ends; `out` has room for 6 bytes more each."""
    source, target = data.ctypes.data, out.ctypes.data
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            first, last = np.int64(bounds[row] + cut), np.int64(bounds[row + 1] - cut)
            at = _varint(out, at, last - first)
            move(target + at, source + first, last - first)
            at += last - first
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def fixed(values: Bytes, width: Any, valid: Any, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write values of `width` bytes unchanged; `out` has room for one byte more each."""
    at, wrong = 0, 0
    all_valid = len(valid) == 0
    for row in range(len(values) // width):
        if all_valid or valid[row]:
            if mark >= 0:
                out[at] = mark
                at += 1
            for place in range(row * width, row * width + width):
                out[at] = values[place]
                at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        else:
            wrong += 1
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def json_integers(data: Bytes, bounds: Offsets, mark: Any, null: Any, out: Bytes, offsets: Offsets) -> Any:
    """Write integers that are given as JSON; `out` has room for 11 bytes each."""
    at, wrong = 0, 0
    for row in range(len(bounds) - 1):
        place, last = bounds[row], bounds[row + 1]
        if data[place] == _NULL:
            if null >= 0:
                out[at] = null
                at += 1
            else:
                wrong += 1
        else:
            if mark >= 0:
                out[at] = mark
                at += 1
            negative = data[place] == _MINUS
            if negative:
                place += 1
            # negative, since the range below 0 has room for the least number
            number = 0
            while place < last:
                number = number * 10 - (data[place] - 48)
                place += 1
            at = _varint(out, at, number if negative else -number)
        offsets[row + 1] = at
    return wrong


@kernel(leaf=True)
def json_base64(
    data: Bytes, bounds: Offsets, quotes: Any, table: Bytes, mark: Any, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write bytes that are given as JSON: base64 within `quotes` quotes at each end.

    `table` has the six bits of each letter. `out` has room for 6 bytes more than the text each.
    """
    at, wrong = 0, 0
    for row in range(len(bounds) - 1):
        first, last = bounds[row] + quotes, bounds[row + 1] - quotes
        if quotes and data[bounds[row]] != _QUOTE:
            if null >= 0:
                out[at] = null
                at += 1
            else:
                wrong += 1
        else:
            if mark >= 0:
                out[at] = mark
                at += 1
            while last > first and data[last - 1] == _PAD:
                last -= 1
            size = (last - first) * 3 // 4
            at = _varint(out, at, size)
            held, bits = 0, 0
            for place in range(first, last):
                held = (held << 6) | table[data[place]]
                bits += 6
                if bits >= 8:
                    bits -= 8
                    out[at] = (held >> bits) & 0xFF
                    at += 1
                    held &= (1 << bits) - 1
        offsets[row + 1] = at
    return wrong


# --- columns ----------------------------------------------------------------------------------------------------------


_ALL = readonly(np.zeros(0, np.bool_))


def array_piece(values: pa.Array, schema: LogicalType, rules: AvroRules) -> Fragment:
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


def json_piece(written: Fragment, schema: LogicalType, rules: AvroRules) -> Fragment:
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
