"""Values as fields of Protobuf's messages: single ones, and columns of them by compiled kernels. Worker."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import STRING, LogicalType
from tailrace.errors import ConversionError
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
from tailrace.formats.protobuf.schema import DATE, DECIMAL, TIME, ProtobufRules, digits, is_message, is_wrapped
from tailrace.kernels.buffers import Bytes, Offsets, readonly, text_buffers, valid_flags
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.calendar import date_of

# --- single values ----------------------------------------------------------------------------------------------------

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
class FieldPlace:
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


def place_of(number: int, kind: LogicalType, rules: ProtobufRules) -> FieldPlace:
    """Return the field of a message with this number."""
    keeps = rules.optionals and kind.optional
    return FieldPlace(number, kind, keeps, is_wrapped(kind, rules))


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


def writer(place: FieldPlace, rules: ProtobufRules) -> Writer:
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
        inner = writer(FieldPlace(1, kind), rules)
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


def _plain(kind: LogicalType, rules: ProtobufRules) -> Writer:
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


def _scalar(kind: LogicalType, rules: ProtobufRules) -> Writer:
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


def _fields(kind: LogicalType, rules: ProtobufRules) -> Writer:
    """Return the encoder of the fields of a struct that is not null."""
    parts = [
        (part.name, writer(place_of(number, part.type, rules), rules)) for number, part in enumerate(kind.fields, 1)
    ]
    return lambda value: b"".join(write(value[name]) for name, write in parts)


def _array(place: FieldPlace, rules: ProtobufRules) -> Writer:
    """Return the encoder of a list: numbers together after one head, other items with a head each."""
    items = place.kind.items
    assert items is not None
    wrapped = is_wrapped(items, rules)
    packed = not wrapped and wire(items) != SIZED
    item_place = FieldPlace(place.number, items, True, wrapped)
    item = _plain(items, rules) if packed else writer(item_place, rules)

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


def _map(place: FieldPlace, rules: ProtobufRules) -> Writer:
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


# --- kernels ----------------------------------------------------------------------------------------------------------

_MINUS, _QUOTE, _NULL, _PAD = 45, 34, 110, 61
_MORE = 0x80


@kernel(leaf=True, inlined=True)
def _varint(out: Any, at: Any, number: Any) -> Any:
    """Write a 64-bit integer; return its end."""
    rest = number
    while (rest & ~0x7F) != 0:
        out[at] = (rest & 0x7F) | _MORE
        at += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    out[at] = rest
    return at + 1


@kernel(leaf=True, inlined=True)
def _size(number: Any) -> Any:
    """Return the number of bytes of a 64-bit integer."""
    size = 1
    rest = number
    while (rest & ~0x7F) != 0:
        size += 1
        rest = (rest >> 7) & 0x01FFFFFFFFFFFFFF
    return size


@kernel(leaf=True, inlined=True)
def _begun(out: Any, at: Any, head: Any, inner: Any, size: Any) -> Any:
    """Write the bytes before a value of `size` bytes (0: the default); return their end."""
    for place in range(len(head)):
        out[at] = head[place]
        at += 1
    if inner >= 0:
        at = _varint(out, at, size + 1 if size > 0 else 0)
        if size > 0:
            out[at] = inner
            at += 1
    return at


@kernel(leaf=True)
def integers(
    values: Any, valid: Any, head: Bytes, inner: Any, keeps: Any, null: Any, out: Bytes, offsets: Offsets
) -> None:
    """Write integers; `out` has room for the head and 12 bytes each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(values)):
        if all_valid or valid[row]:
            number = values[row]
            if inner >= 0:
                at = _begun(out, at, head, inner, _size(number) if number != 0 else 0)
                if number != 0:
                    at = _varint(out, at, number)
            elif number != 0 or keeps:
                at = _begun(out, at, head, inner, 0)
                at = _varint(out, at, number)
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def texts(
    data: Bytes,
    bounds: Offsets,
    valid: Any,
    cut: Any,
    head: Bytes,
    inner: Any,
    keeps: Any,
    null: Any,
    out: Bytes,
    offsets: Offsets,
) -> None:
    """Write texts or bytes, without `cut` bytes at both ends; `out` has room for the head and 12 bytes more each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            first, last = bounds[row] + cut, bounds[row + 1] - cut
            size = last - first
            if inner >= 0 or size > 0 or keeps:
                at = _begun(out, at, head, inner, _size(size) + size if size > 0 else 0)
                if inner < 0 or size > 0:
                    at = _varint(out, at, size)
                for place in range(first, last):
                    out[at] = data[place]
                    at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def fixed(
    values: Bytes, width: Any, valid: Any, head: Bytes, inner: Any, keeps: Any, null: Any, out: Bytes, offsets: Offsets
) -> None:
    """Write values of `width` bytes unchanged; `out` has room for the head and 2 bytes more each."""
    at = 0
    all_valid = len(valid) == 0
    for row in range(len(values) // width):
        if all_valid or valid[row]:
            first, last = row * width, row * width + width
            is_default = True
            for place in range(first, last):
                if values[place] != 0:
                    is_default = False
            if inner >= 0 or keeps or not is_default:
                at = _begun(out, at, head, inner, 0 if is_default else width)
                if inner < 0 or not is_default:
                    for place in range(first, last):
                        out[at] = values[place]
                        at += 1
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at


@kernel(leaf=True)
def heads(sizes: Any, present: Any, head: Bytes, out: Bytes, offsets: Offsets) -> None:
    """Write the bytes before messages of these sizes; `out` has room for the head and 5 bytes each."""
    at = 0
    for row in range(len(sizes)):
        if present[row]:
            at = _begun(out, at, head, -1, 0)
            at = _varint(out, at, sizes[row])
        offsets[row + 1] = at


@kernel(leaf=True)
def read_integers(data: Bytes, bounds: Offsets, values: Any, valid: Any) -> None:
    """Read integers that are given as JSON."""
    for row in range(len(bounds) - 1):
        place, last = bounds[row], bounds[row + 1]
        valid[row] = data[place] != _NULL
        if valid[row]:
            negative = data[place] == _MINUS
            if negative:
                place += 1
            # negative, since the range below 0 has room for the least number
            number = 0
            while place < last:
                number = number * 10 - (data[place] - 48)
                place += 1
            values[row] = number if negative else -number


@kernel(leaf=True)
def read_base64(
    data: Bytes, bounds: Offsets, quotes: Any, table: Bytes, valid: Any, out: Bytes, offsets: Offsets
) -> None:
    """Read bytes given as JSON: base64 within `quotes` quotes at each end; `table` has each letter's six bits."""
    at = 0
    for row in range(len(bounds) - 1):
        first, last = bounds[row] + quotes, bounds[row + 1] - quotes
        valid[row] = not quotes or data[bounds[row]] == _QUOTE
        if valid[row]:
            while last > first and data[last - 1] == _PAD:
                last -= 1
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


@kernel(leaf=True)
def decimals(
    data: Bytes, bounds: Offsets, valid: Any, scale: Any, head: Bytes, null: Any, out: Bytes, offsets: Offsets
) -> Any:
    """Write decimals from their unscaled numbers in as few bytes as possible, big-endian.

    `out` has room for the head and 32 bytes more each. Numbers of more than 8 bytes are not written; returns how many.
    """
    at, wide = 0, 0
    all_valid = len(valid) == 0
    of_scale = 0 if scale == 0 else 1 + _size(scale)
    for row in range(len(bounds) - 1):
        if all_valid or valid[row]:
            first, last = bounds[row], bounds[row + 1]
            if last - first > 8:
                wide += 1
            else:
                number = 0
                if data[first] >= 128:
                    number = -1
                for place in range(first, last):
                    number = (number << 8) | data[place]
                # negative, since the range below 0 has room for the least number
                rest = number if number < 0 else -number
                digits = 0
                while digits == 0 or rest != 0:
                    # towards zero
                    rest = (rest + 9) // 10
                    digits += 1
                at = _begun(out, at, head, -1, 0)
                at = _varint(out, at, 4 + last - first + of_scale)
                out[at] = 10
                out[at + 1] = last - first
                at += 2
                for place in range(first, last):
                    out[at] = data[place]
                    at += 1
                out[at] = 16
                out[at + 1] = digits
                at += 2
                if scale != 0:
                    out[at] = 24
                    at = _varint(out, at + 1, scale)
        elif null >= 0:
            out[at] = null
            at += 1
        offsets[row + 1] = at
    return wide


# --- columns ----------------------------------------------------------------------------------------------------------


_ALL = readonly(np.zeros(0, np.bool_))


def array_piece(values: pa.Array, place: FieldPlace, rules: ProtobufRules) -> Fragment:
    """Return the pieces of an array of any type that holds values of the field's schema."""
    kind = place.kind
    if is_message(kind) or not takes_arrow(kind, values.type):
        return json_piece(values_fragment(values), place, rules)
    flags = valid_flags(values)
    valid = _ALL if flags is None else readonly(np.ascontiguousarray(flags))
    count = len(values)
    if kind.connect in WHOLE:
        whole = readonly(np.ascontiguousarray(whole_numbers(values)))
        return _piece(place, count, 12 * count, lambda *to: integers(whole, valid, *to))
    if kind.connect in ("string", "bytes"):
        data, bounds = text_buffers(values)
        return _texts(place, data, bounds, valid, 0)
    numbers = readonly(number_bytes(values, kind))
    width = WIDTHS[kind.connect]
    return _piece(place, count, len(numbers) + 2 * count, lambda *to: fixed(numbers, width, valid, *to))


def json_piece(written: Fragment, place: FieldPlace, rules: ProtobufRules) -> Fragment:
    """Return the pieces of a column that is JSON already."""
    count, data, bounds = len(written.offsets) - 1, written.data, written.offsets
    kind = place.kind
    if kind.connect in WHOLE and not is_message(kind):
        values, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        read_integers(data, bounds, values, valid)
        whole, flags = readonly(values), readonly(valid)
        return _piece(place, count, 12 * count, lambda *to: integers(whole, flags, *to))
    if kind.connect == "bytes":
        quotes = 0 if written.quoted else 1
        valid, found = np.zeros(count, np.bool_), np.zeros(count + 1, np.int32)
        out = np.empty(max(int(bounds[-1]) - int(bounds[0]), 1), np.uint8)
        read_base64(data, bounds, quotes, SIX_BITS, valid, out, found)
        if kind.name != DECIMAL:
            return _texts(place, readonly(out), readonly(found), readonly(valid), 0)
        made = _decimals(place, readonly(out), readonly(found), readonly(valid))
        if made is not None:
            return made
    if kind.connect == "string" and not written.quoted and is_plain(written):
        valid = data[np.minimum(bounds[:-1], max(len(data) - 1, 0))] == ord('"')
        return _texts(place, data, bounds, readonly(valid), 1)
    return one_by_one(written, writer(place, rules))


def head_piece(sizes: npt.NDArray[np.int32], present: npt.NDArray[np.bool_], number: int) -> Fragment:
    """Return the bytes before messages of these sizes in field `number`; nothing where `present` is False."""
    head = _bytes(tag(number, SIZED))
    out, offsets = np.empty(max((len(head) + 5) * len(sizes), 1), np.uint8), np.zeros(len(sizes) + 1, np.int32)
    heads(readonly(sizes), readonly(present), head, out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _texts(place: FieldPlace, data: Bytes, bounds: Offsets, valid: npt.NDArray[np.bool_], cut: int) -> Fragment:
    count = len(bounds) - 1
    room = int(bounds[-1]) - int(bounds[0]) + 12 * count
    return _piece(place, count, room, lambda *to: texts(data, bounds, valid, cut, *to))


def _decimals(place: FieldPlace, data: Bytes, bounds: Offsets, valid: npt.NDArray[np.bool_]) -> Fragment | None:
    """Return decimals from their unscaled numbers; None if some have more than 8 bytes."""
    head, scale, count = _bytes(place.head), digits(place.kind), len(bounds) - 1
    out, offsets = np.empty(max((len(head) + 32) * count, 1), np.uint8), np.zeros(count + 1, np.int32)
    wide = decimals(data, bounds, valid, scale, head, _null(place), out, offsets)
    return None if wide else Fragment(readonly(out), readonly(offsets))


def _piece(place: FieldPlace, count: int, room: int, write: Callable[..., Any]) -> Fragment:
    """Return the pieces that `write` makes; `room` is for the values without their heads."""
    head = _bytes(place.head)
    inner = tag(1, wire(place.kind))[0] if place.wrapped else -1
    out, offsets = np.empty(max(room + len(head) * count, 1), np.uint8), np.zeros(count + 1, np.int32)
    write(head, inner, int(place.keeps), _null(place), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _bytes(text: bytes) -> Bytes:
    return readonly(np.frombuffer(text, np.uint8))


def _null(place: FieldPlace) -> int:
    return place.null[0] if place.null else -1
