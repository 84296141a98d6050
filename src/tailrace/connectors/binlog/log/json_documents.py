"""MySQL's binary JSON as text, and the differences of partial updates. Worker.

The text is compact. A double is written as in Java, or with all of its digits if Java would write an exponent. Times
are written without trailing zeros of the fraction. Values for which JSON has no type become base64.
"""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from typing import TypeAlias

from tailrace.connectors.binlog.log.packed_values import datetime_text, decimal_text
from tailrace.connectors.binlog.schema.table_map import ColumnType, packed
from tailrace.errors import DecodeError
from tailrace.values.json_text import java_number

Node: TypeAlias = "str | list[Node] | dict[str, Node]"
"""A document: a leaf is its JSON text."""

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = (
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    15,
)
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_INLINE = {_LITERAL, _INT16, _UINT16}
_DEEPEST = 100
_ESCAPES = {code: f"\\u{code:04x}" for code in range(32)}
_ESCAPES |= {34: '\\"', 92: "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_REPLACE, _INSERT, _REMOVE = 0, 1, 2


def document_text(data: bytes) -> str:
    """Return the text of a binary document. Empty bytes are an empty object. Raises DecodeError."""
    return rendered(parsed(data)) if data else "{}"


def parsed(data: bytes) -> Node:
    """Return a binary document. Raises DecodeError."""
    try:
        return _value(data[0], data, 1, 0)
    except (IndexError, struct.error, UnicodeDecodeError, KeyError, ValueError) as error:
        raise DecodeError("A JSON value of the log does not follow the server's format.") from error


def rendered(node: Node) -> str:
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return "[" + ",".join(rendered(one) for one in node) + "]"
    return "{" + ",".join(f"{quoted(key)}:{rendered(one)}" for key, one in node.items()) + "}"


def quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _value(kind: int, data: bytes, at: int, depth: int) -> Node:
    if depth > _DEEPEST:
        raise ValueError(depth)
    if kind <= _LARGE_ARRAY:
        return _container(kind, data, at, depth)
    if kind == _LITERAL:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        length, at = _length(data, at)
        return quoted(_bytes(data, at, length).decode())
    if kind == _OPAQUE:
        length, begin = _length(data, at + 1)
        return _opaque(data[at], _bytes(data, begin, length))
    raise ValueError(kind)


def _container(kind: int, data: bytes, at: int, depth: int) -> Node:
    is_large, is_object = kind in (_LARGE_OBJECT, _LARGE_ARRAY), kind <= _LARGE_OBJECT
    size, form = (4, "<I") if is_large else (2, "<H")
    base = at
    count, length = (struct.unpack_from(form, data, at + step)[0] for step in (0, size))
    if base + length > len(data):
        raise ValueError(length)
    at += 2 * size
    keys = []
    if is_object:
        for _ in range(count):
            begin, long = struct.unpack_from(form, data, at)[0], struct.unpack_from("<H", data, at + size)[0]
            keys.append(_bytes(data, base + begin, long).decode())
            at += size + 2
    values = []
    for _ in range(count):
        of = data[at]
        if of in _INLINE or (is_large and of in (_INT32, _UINT32)):
            values.append(_value(of, data, at + 1, depth + 1))
        else:
            values.append(_value(of, data, base + struct.unpack_from(form, data, at + 1)[0], depth + 1))
        at += 1 + size
    return dict(zip(keys, values, strict=True)) if is_object else values


def _bytes(data: bytes, at: int, length: int) -> bytes:
    found = data[at : at + length]
    if at < 0 or len(found) != length:
        raise ValueError(at)
    return found


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length in groups of seven bits, and the place after it."""
    found = 0
    for place in range(5):
        byte = data[at + place]
        found |= (byte & 127) << (7 * place)
        if byte < 128:
            return found, at + place + 1
    raise ValueError(at)


def double_text(value: float) -> str:
    shown = java_number(repr(value), False)
    return format(Decimal(value), "f") if "E" in shown else shown


def _opaque(kind: int, data: bytes) -> str:
    if kind == ColumnType.NEWDECIMAL:
        return decimal_text(data[2:], data[0], data[1])
    if kind in (ColumnType.DATE, ColumnType.TIME, ColumnType.DATETIME, ColumnType.TIMESTAMP):
        return f'"{_moment(kind, int.from_bytes(data[:8], "little", signed=True))}"'
    return f'"{base64.b64encode(data).decode()}"'


def _moment(kind: int, packed_value: int) -> str:
    sign, value = "-" if packed_value < 0 else "", abs(packed_value)
    micros, seconds = value & 0xFFFFFF, value >> 24
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    if kind == ColumnType.TIME:
        return f"{sign}{seconds >> 12 & 0x3FF:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}{fraction}"
    text = datetime_text(seconds)
    return text[:10] if kind == ColumnType.DATE else text + fraction


# --- partial updates --------------------------------------------------------------------------------------------------


def updated_text(before: bytes, differences: bytes) -> str:
    """Return the text of a document after a partial update, given as the log's `differences`. Raises DecodeError."""
    document = parsed(before)
    try:
        at = 0
        while at < len(differences):
            operation = differences[at]
            length, at = packed(differences, at + 1)
            steps = _steps(_bytes(differences, at, length).decode())
            at += length
            value: Node = ""
            if operation != _REMOVE:
                length, at = packed(differences, at)
                value = parsed(_bytes(differences, at, length))
                at += length
            document = _applied(document, steps, operation, value)
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise DecodeError("A partial update of a JSON value does not fit the value before it.") from error
    return rendered(document)


def _steps(path: str) -> list[str | int]:
    """Return the steps of a path such as `$.a[0]."b c"`."""
    found: list[str | int] = []
    at = 1
    if path[0] != "$":
        raise ValueError(path)
    while at < len(path):
        if path[at] == "[":
            end = path.index("]", at)
            found.append(int(path[at + 1 : end]))
            at = end + 1
        elif path[at : at + 2] == '."':
            end = at + 2
            while path[end] != '"':
                end += 2 if path[end] == "\\" else 1
            found.append(_unquoted(path[at + 1 : end + 1]))
            at = end + 1
        elif path[at] == ".":
            end = min((place for mark in ".[" if (place := path.find(mark, at + 1)) >= 0), default=len(path))
            found.append(path[at + 1 : end])
            at = end
        else:
            raise ValueError(path)
    return found


def _unquoted(text: str) -> str:
    import json

    return str(json.loads(text, strict=False))


def _applied(document: Node, steps: list[str | int], operation: int, value: Node) -> Node:
    if not steps:
        if operation != _REPLACE:
            raise ValueError(operation)
        return value
    of = document
    for step in steps[:-1]:
        of = of[step]  # type: ignore[index]
    last = steps[-1]
    if isinstance(of, list) and isinstance(last, int):
        if operation == _INSERT:
            of.insert(last, value)
        elif operation == _REMOVE:
            del of[last]
        else:
            of[last] = value
    elif isinstance(of, dict) and isinstance(last, str):
        if operation == _REMOVE:
            del of[last]
        elif operation == _REPLACE and last not in of:
            raise KeyError(last)
        else:
            of[last] = value
            if operation == _INSERT:
                # the server sorts names by their length, then by their bytes
                members = sorted(of.items(), key=lambda one: (len(one[0].encode()), one[0].encode()))
                of.clear()
                of.update(members)
    else:
        raise TypeError(last)
    return document
