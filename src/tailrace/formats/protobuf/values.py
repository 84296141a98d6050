"""Single values as fields of Protobuf messages: constants, and values of types without a kernel. Worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError
from tailrace.formats.protobuf.schema import DATE, DECIMAL, TIME, Rules, digits, is_message, is_wrapped
from tailrace.values.calendar import date_of

VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5
"""Wire types."""
RECORD_ITSELF = 0
"""Stands for the field number of a struct that is the whole record: it has neither a head nor a size."""
_DAY_MS = 86_400_000
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_WIRES = {"float": FOUR_BYTES, "double": EIGHT_BYTES, "string": SIZED, "bytes": SIZED}

Writer = Callable[[Any], bytes]
"""Encodes a value in its JSON form; None for null."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a message. `keeps`: its type's default is written too. `wrapped`: its values are messages with a
    value. `null` is the encoding of a null."""

    number: int
    kind: LogicalType
    keeps: bool = False
    wrapped: bool = False
    null: bytes = b""

    @property
    def head(self) -> bytes:
        """The bytes before a value."""
        return tag(self.number, SIZED if self.wrapped else wire(self.kind))


def place_of(number: int, kind: LogicalType, rules: Rules) -> Place:
    """Return the field of a message with this number."""
    keeps = rules.optionals and kind.optional
    return Place(number, kind, keeps, is_wrapped(kind, rules))


def wire(kind: LogicalType) -> int:
    """Return the wire type of the values of a type."""
    if is_message(kind) or kind.connect in ("struct", "array", "map"):
        return SIZED
    return _WIRES.get(kind.connect, VARINT)


def tag(number: int, kind: int) -> bytes:
    """Return the bytes before the value of the field with this number."""
    return varint(number << 3 | kind)


def varint(number: int) -> bytes:
    """Return a 64-bit integer, seven bits to a byte; negative ones in two's complement."""
    rest = number & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(data: bytes) -> bytes:
    """Return bytes after their length."""
    return varint(len(data)) + data


def zigzag(number: int) -> bytes:
    """Return an index of a message, in zig-zag encoding."""
    return varint(number << 1)


def writer(place: Place, rules: Rules) -> Writer:
    """Return the encoder of a whole field; it writes nothing for a null, or for a default that is not kept."""
    kind, head = place.kind, place.head
    match kind.connect:
        case "array":
            return _array(place, rules)
        case "map":
            return _map(place, rules)
    if place.number == RECORD_ITSELF:
        fields = _fields(kind, rules)
        return lambda value: place.null if value is None else fields(value)
    if place.wrapped:
        inner = writer(Place(1, kind), rules)
        return lambda value: place.null if value is None else head + sized(inner(value))
    plain = _plain(kind, rules)
    if place.keeps or kind.connect not in _DEFAULTS or is_message(kind):
        return lambda value: place.null if value is None else head + plain(value)
    default = plain(_DEFAULTS[kind.connect])

    def write(value: Any) -> bytes:
        if value is None:
            return place.null
        made = plain(value)
        return b"" if made == default else head + made

    return write


_DEFAULTS: dict[str, Any] = {
    "boolean": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "bytes": "",
}


def _plain(kind: LogicalType, rules: Rules) -> Writer:
    """Return the encoder of a value without its head."""
    match kind.name:
        case _ if not is_message(kind):
            return _scalar(kind, rules)
        case name if name == DECIMAL:
            scale = digits(kind)
            return lambda value: sized(_decimal(int.from_bytes(base64.b64decode(value), "big", signed=True), scale))
        case name if name == DATE:
            return lambda value: sized(_numbers(*date_of(value)))
        case name if name == TIME:
            return lambda value: sized(_time(value))
    return lambda value: sized(_timestamp(value))


def _scalar(kind: LogicalType, rules: Rules) -> Writer:
    match kind.connect:
        case "boolean":
            return lambda value: b"\x01" if value else b"\x00"
        case "float":
            return lambda value: struct.pack("<f", float(value))
        case "double":
            return lambda value: struct.pack("<d", float(value))
        case "string":
            return lambda value: sized(str(value).encode())
        case "bytes":
            return lambda value: sized(base64.b64decode(value))
        case "struct":
            fields = _fields(kind, rules)
            return lambda value: sized(fields(value))
    return lambda value: varint(int(value))


def _fields(kind: LogicalType, rules: Rules) -> Writer:
    """Return the encoder of the fields of a struct that is not null."""
    parts = [
        (part.name, writer(place_of(number, part.type, rules), rules)) for number, part in enumerate(kind.fields, 1)
    ]
    return lambda value: b"".join(write(value[name]) for name, write in parts)


def _array(place: Place, rules: Rules) -> Writer:
    """Return the encoder of a list: numbers together after one head, other items with a head each."""
    items = place.kind.items
    assert items is not None
    wrapped = is_wrapped(items, rules)
    packed = not wrapped and wire(items) != SIZED
    one = Place(place.number, items, True, wrapped)
    item = _plain(items, rules) if packed else writer(one, rules)

    def write(value: Any) -> bytes:
        if value is None:
            return place.null
        if any(part is None for part in value):
            raise ConversionError(
                "A list of a record has a null among its items, which Protobuf's lists cannot hold.",
                "Leave the column out (column.exclude.list), or use another converter.",
            )
        made = b"".join(map(item, value))
        return place.head + sized(made) if packed and made else made

    return write


def _map(place: Place, rules: Rules) -> Writer:
    """Return the encoder of a map: a message of key and value for each entry."""
    kind = place.kind
    assert kind.items is not None
    # parts of entries are never optional
    key, item = (
        writer(replace(place_of(number, part, rules), keeps=False), rules)
        for number, part in ((1, kind.keys or STRING), (2, kind.items))
    )

    def write(value: Any) -> bytes:
        if value is None:
            return place.null
        pairs = value.items() if isinstance(value, dict) else value
        return b"".join(place.head + sized(key(name) + item(one)) for name, one in pairs)

    return write


def _numbers(*values: int) -> bytes:
    """Return a message of integers; zeros are left out."""
    return b"".join(tag(number, VARINT) + varint(value) for number, value in enumerate(values, 1) if value)


def _decimal(unscaled: int, scale: int) -> bytes:
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    parts = ((2, len(str(abs(unscaled)))), (3, scale))
    return (
        tag(1, SIZED)
        + sized(unscaled.to_bytes(size, "big", signed=True))
        + b"".join(tag(number, VARINT) + varint(value) for number, value in parts if value)
    )


def _time(ms: int) -> bytes:
    if not 0 <= ms <= _DAY_MS:
        raise _outside("time of day")
    seconds, rest = divmod(ms % _DAY_MS, 1000)
    return _numbers(seconds // 3600, seconds // 60 % 60, seconds % 60, rest * 1_000_000)


def _timestamp(ms: int) -> bytes:
    seconds, rest = divmod(ms, 1000)
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        raise _outside("timestamp")
    return _numbers(seconds, rest * 1_000_000)


def _outside(what: str) -> ConversionError:
    return ConversionError(
        f"A {what} of a record is outside the range of Protobuf's own type.",
        "Let time.precision.mode be adaptive, which shows numbers, or leave the column out (column.exclude.list).",
    )
