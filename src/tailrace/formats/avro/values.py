"""Single values in Avro's binary encoding: constants, and values of types without a kernel. Worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.avro.schema import Rules, is_map, null_is_last


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


def writer(schema: LogicalType, rules: Rules) -> Writer:
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


def _plain(schema: LogicalType, rules: Rules) -> Writer:
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


def _struct(schema: LogicalType, rules: Rules) -> Writer:
    parts = [(part.name, writer(part.type, rules)) for part in schema.fields]
    return lambda value: b"".join(write(value[name]) for name, write in parts)


def _map(schema: LogicalType, rules: Rules) -> Writer:
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
