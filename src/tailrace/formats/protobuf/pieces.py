"""Columns of values as fields of Protobuf messages, one piece per value. Worker.

If a column's Arrow type holds the values that JSON shows, kernels write from Arrow. Other columns are written from
their JSON: by kernels if it is a number, bytes, or text without escapes, else value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.assembly.programs import Fragment
from tailrace.buffers import Bytes, Offsets, readonly, text_buffers, valid_flags
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
from tailrace.formats.protobuf.kernels import (
    decimals,
    fixed,
    heads,
    integers,
    read_base64,
    read_integers,
    texts,
)
from tailrace.formats.protobuf.schema import DECIMAL, Rules, digits, is_message
from tailrace.formats.protobuf.values import SIZED, Place, tag, wire, writer

_ALL = readonly(np.zeros(0, np.bool_))


def array_piece(values: pa.Array, place: Place, rules: Rules) -> Fragment:
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


def json_piece(written: Fragment, place: Place, rules: Rules) -> Fragment:
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


def _texts(place: Place, data: Bytes, bounds: Offsets, valid: npt.NDArray[np.bool_], cut: int) -> Fragment:
    count = len(bounds) - 1
    room = int(bounds[-1]) - int(bounds[0]) + 12 * count
    return _piece(place, count, room, lambda *to: texts(data, bounds, valid, cut, *to))


def _decimals(place: Place, data: Bytes, bounds: Offsets, valid: npt.NDArray[np.bool_]) -> Fragment | None:
    """Return decimals from their unscaled numbers; None if some have more than 8 bytes."""
    head, scale, count = _bytes(place.head), digits(place.kind), len(bounds) - 1
    out, offsets = np.empty(max((len(head) + 32) * count, 1), np.uint8), np.zeros(count + 1, np.int32)
    wide = decimals(data, bounds, valid, scale, head, _null(place), out, offsets)
    return None if wide else Fragment(readonly(out), readonly(offsets))


def _piece(place: Place, count: int, room: int, write: Callable[..., Any]) -> Fragment:
    """Return the pieces that `write` makes; `room` is for the values without their heads."""
    head = _bytes(place.head)
    inner = tag(1, wire(place.kind))[0] if place.wrapped else -1
    out, offsets = np.empty(max(room + len(head) * count, 1), np.uint8), np.zeros(count + 1, np.int32)
    write(head, inner, int(place.keeps), _null(place), out, offsets)
    return Fragment(readonly(out), readonly(offsets))


def _bytes(text: bytes) -> Bytes:
    return readonly(np.frombuffer(text, np.uint8))


def _null(place: Place) -> int:
    return place.null[0] if place.null else -1
