"""Single values in Avro's binary encoding: constants, and the values of types that no kernel writes. Worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from typing import Any

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.avro.schema import Rules, is_map, null_is_last


class NullError(ConversionError):
    """A null of a `schema` that does not allow it."""

    def __init__(self, schema: LogicalType) -> None:
        super().__init__(*null_is_no_value(schema))
        self.args = (schema,)
        self.schema = schema


Writer = Callable[[Any], bytes]
"""Makes the bytes of a value that has the form it has in JSON; null is None."""

FIRST, SECOND = 0, 2
"""The bytes that name the branches of a union of two."""


def branches(schema: LogicalType) -> tuple[int, int]:
    """The byte before a value and the byte of a null; -1 for both where the schema is not optional."""
    if not schema.optional:
        return -1, -1
    return (FIRST, SECOND) if null_is_last(schema) else (SECOND, FIRST)


def varint(number: int) -> bytes:
    """A whole number of 64 bits as Avro writes it: zig-zag, seven bits to a byte."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def writer(schema: LogicalType, rules: Rules) -> Writer:
    """What makes the bytes of the schema's values. It raises ConversionError for a null where there may be none."""
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
    """What is said of a null in a field whose schema does not allow one, of the column where that is known."""
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
    """A map, whose JSON is an object, or a list of pairs where keys are no texts."""
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
    """Items as one block and the end of the list."""
    return varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"
