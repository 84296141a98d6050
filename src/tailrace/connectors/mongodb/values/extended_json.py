"""BSON values as JSON text, a column at a time, in one compiled pass over the bytes without recursion. Worker."""

from __future__ import annotations

import secrets
import threading
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as f
from tailrace.connectors.mongodb.values.fields import Bytes, Int64s, load, value_size
from tailrace.connectors.mongodb.values.json_forms import JsonForm
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.connectors.mongodb.values.value_kernels import (
    LEFT,
    load_long,
    put_binary,
    put_date,
    put_decimal,
    put_hex,
    put_piece,
    put_special,
    put_text,
    put_unsigned,
)
from tailrace.errors import ConversionError
from tailrace.kernels.buffers import readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.doubles import double_of, put_double
from tailrace.values.integers import put_integer
from tailrace.values.json_text import quoted
from tailrace.values.texts import Int

# --- kernels ----------------------------------------------------------------------------------------------------------

SLOTS = 16_384
"""The size of the table of a document's names; a power of two."""
_MOST_NAMES = SLOTS // 2
_MOST_MET = 16 * _MOST_NAMES
"""Most occupied slots that the names of a document may meet; about a sixteenth is usual."""
_SPARE = 256
"""More bytes than any piece, or any number with its pieces, needs. A text needs at most seven for each of its bytes."""

NO_ROOM = -2
"""Returned instead of a position if the output may have no room for the next value."""

(
    _DOUBLE, _STRING, _DOCUMENT, _ARRAY, _BINARY, _UNDEFINED, _OBJECT_ID, _BOOLEAN, _DATE, _NULL, _REGEX
) = range(1, 12)  # fmt: skip
_DB_POINTER, _CODE, _SYMBOL, _SCOPED, _INT32, _TIMESTAMP, _INT64, _DECIMAL = range(12, 20)
_MIN_KEY, _MAX_KEY = fields.MIN_KEY, fields.MAX_KEY


class SeenNames(NamedTuple):
    """The names of documents of one thread, in a table of slots.

    `serials` holds for each slot the serial number of the document that uses it, and then the latest serial number and
    a secret. `names` holds the place where the name in a slot begins. Serial numbers continue from call to call, so the
    table need not be cleared.
    """

    serials: Int64s
    names: Int64s


class Levels(NamedTuple):
    """The open documents and arrays: the end of each, the piece that closes it, and a flag for elements with names.

    `scratch` is a buffer in which a value is assembled.
    """

    ends: Int64s
    closes: Int64s
    named: npt.NDArray[np.bool_]
    scratch: Bytes


@kernel(leaf=True)
def names_differ(data: Bytes, begin: int, end: int, seen: SeenNames) -> bool:
    """Return True if the elements from `begin` to `end` are complete and have distinct names; False also if the table
    is too small to decide.

    A secret determines which names share a slot, so nobody can choose names with many collisions. If many collide by
    chance, this returns False, and the plain writer writes the document.
    """
    serial = seen.serials[np.uintp(SLOTS)] + 1
    seen.serials[np.uintp(SLOTS)] = serial
    at, count, met = begin, 0, 0
    secret = np.uint32(seen.serials[np.uintp(SLOTS + 1)])
    while at < end:
        kind = data[np.uintp(at)]
        at += 1
        name, mixed = at, secret
        while at < end and data[np.uintp(at)] != 0:
            mixed = np.uint32((mixed ^ np.uint32(data[np.uintp(at)])) * np.uint32(16_777_619))
            at += 1
        length = at - name
        at += 1
        size = value_size(data, kind, at, end) if at <= end else -1
        count += 1
        if size < 0 or count > _MOST_NAMES:
            return False
        slot = np.int64((mixed ^ (mixed >> np.uint32(15))) & np.uint32(SLOTS - 1))
        while seen.serials[np.uintp(slot)] == serial:
            met += 1
            if met > _MOST_MET or same_name(data, seen.names[np.uintp(slot)], name, length):
                return False
            slot = (slot + 1) & (SLOTS - 1)
        seen.serials[np.uintp(slot)] = serial
        seen.names[np.uintp(slot)] = name
        at += size
    return at == end


@kernel(leaf=True)
def same_name(data: Bytes, other: int, name: int, length: int) -> bool:
    """Return True if the name at `other` equals the one at `name`, which has this length."""
    same = bool(data[np.uintp(other + length)] == 0)
    position = 0
    while same and position < length:
        same = bool(data[np.uintp(other + position)] == data[np.uintp(name + position)])
        position += 1
    return same


@kernel(leaf=True)
def put_options(data: Bytes, begin: int, end: int, scratch: Bytes) -> Int:
    """Write the letters of a regular expression's options, sorted, to `scratch`. Return their number; LEFT if they are
    many or not ASCII."""
    count = end - begin
    if count > 32:
        return LEFT
    for position in range(count):
        byte = data[np.uintp(begin + position)]
        if byte >= 128:
            return LEFT
        place = position
        while place > 0 and scratch[place - 1] > byte:
            scratch[place] = scratch[place - 1]
            place -= 1
        scratch[place] = byte
    return count


@kernel(leaf=True, inlined=True)
def put_string(data: Bytes, kind: int, place: int, size: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write a string, code or symbol."""
    if size < 5 or data[np.uintp(place + size - 1)] != 0:
        return LEFT
    opening = f.QUOTE if kind == _STRING else f.CODE if kind == _CODE else f.SYMBOL
    closing = f.QUOTE if kind == _STRING else f.CODE_END if kind == _CODE else f.SYMBOL_END
    at = put_piece(form, opening, out, at)
    at = put_text(data, place + 4, place + size - 1, form, out, at)
    return put_piece(form, closing, out, at) if at >= 0 else at


@kernel(leaf=True)
def put_float(data: Bytes, place: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    value = double_of(load_long(data, place))
    if not np.isfinite(value):
        at = put_piece(form, f.ODD, out, at)
        at = put_special(value, out, at)
        return put_piece(form, f.ODD_END, out, at)
    at = put_piece(form, f.DOUBLE, out, at)
    at = put_double(value, out, at)
    return put_piece(form, f.DOUBLE_END, out, at)


@kernel(leaf=True)
def put_timestamp(data: Bytes, place: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    at = put_piece(form, f.STAMP, out, at)
    at = put_unsigned(load(data, place + 4) & 0xFFFFFFFF, out, at)
    at = put_piece(form, f.STAMP_ORDER, out, at)
    at = put_unsigned(load(data, place) & 0xFFFFFFFF, out, at)
    return put_piece(form, f.STAMP_END, out, at)


@kernel(leaf=True)
def put_regex(data: Bytes, place: int, size: int, form: f.Compiled, scratch: Bytes, out: Bytes, at: Int) -> Int:
    middle = place
    while data[np.uintp(middle)] != 0:
        middle += 1
    at = put_piece(form, f.REGEXP, out, at)
    at = put_text(data, place, middle, form, out, at)
    count = put_options(data, middle + 1, place + size - 1, scratch)
    if at < 0 or count < 0:
        return LEFT
    at = put_piece(form, f.OPTIONS, out, at)
    at = put_text(scratch, 0, count, form, out, at)
    return put_piece(form, f.REGEXP_END, out, at)


@kernel(leaf=True)
def put_pointer(data: Bytes, place: int, size: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write a DBPointer."""
    if size < 17 or data[np.uintp(place + size - 13)] != 0:
        return LEFT
    at = put_piece(form, f.POINTER, out, at)
    at = put_text(data, place + 4, place + size - 13, form, out, at)
    if at < 0:
        return at
    at = put_piece(form, f.POINTER_ID, out, at)
    at = put_hex(data, place + size - 12, 12, out, at)
    return put_piece(form, f.POINTER_END, out, at)


@kernel(leaf=True, inlined=True)
def put_scalar(
    data: Bytes, kind: int, place: int, size: int, form: f.Compiled, scratch: Bytes, out: Bytes, at: Int
) -> Int:  # fmt: skip
    """Write a value that is not a document; LEFT if only the plain writer can."""
    if kind in (_STRING, _CODE, _SYMBOL):
        return put_string(data, kind, place, size, form, out, at)
    if kind == _INT32:
        at = put_piece(form, f.INT, out, at)
        at = put_integer(load(data, place), out, at)
        return put_piece(form, f.INT_END, out, at)
    if kind == _OBJECT_ID:
        at = put_piece(form, f.OBJECT_ID, out, at)
        at = put_hex(data, place, 12, out, at)
        return put_piece(form, f.OBJECT_ID_END, out, at)
    if kind == _DATE:
        return put_date(int(np.int64(load_long(data, place))), form, out, at)
    if kind == _INT64:
        at = put_piece(form, f.LONG, out, at)
        at = put_integer(np.int64(load_long(data, place)), out, at)
        return put_piece(form, f.LONG_END, out, at)
    if kind == _DOUBLE:
        return put_float(data, place, form, out, at)
    if kind == _BOOLEAN:
        if data[np.uintp(place)] > 1:
            return LEFT
        return put_piece(form, f.TRUE if data[np.uintp(place)] == 1 else f.FALSE, out, at)
    if kind == _NULL:
        return put_piece(form, f.NULL, out, at)
    if kind == _BINARY:
        return put_binary(data, place, form, scratch, out, at)
    if kind == _DECIMAL:
        at = put_piece(form, f.DECIMAL, out, at)
        at = put_decimal(data, place, scratch, out, at)
        return put_piece(form, f.DECIMAL_END, out, at)
    if kind == _TIMESTAMP:
        return put_timestamp(data, place, form, out, at)
    if kind == _REGEX:
        return put_regex(data, place, size, form, scratch, out, at)
    if kind == _DB_POINTER:
        return put_pointer(data, place, size, form, out, at)
    if kind == _MIN_KEY:
        return put_piece(form, f.MIN_KEY, out, at)
    if kind == _MAX_KEY:
        return put_piece(form, f.MAX_KEY, out, at)
    return put_piece(form, f.UNDEFINED, out, at)


@kernel(leaf=True)
def put_code(data: Bytes, place: int, size: int, form: f.Compiled, out: Bytes, at: Int) -> tuple[Int, int]:
    """Write the part of code with a scope before its scope; also return the place where the scope begins."""
    # The value is its own length, a text, and a document that fills the rest.
    length = load(data, place + 4) if size >= 14 else -1
    scope = place + 8 + length
    if length <= 0 or scope + 5 > place + size or data[np.uintp(scope - 1)] != 0:
        return LEFT, scope
    if scope + load(data, scope) != place + size:
        return LEFT, scope
    if at + 7 * length > len(out) - _SPARE:
        return NO_ROOM, scope
    at = put_piece(form, f.SCOPED, out, at)
    at = put_text(data, place + 8, scope - 1, form, out, at)
    if at < 0:
        return LEFT, scope
    return put_piece(form, f.SCOPE, out, at), scope


@kernel(leaf=True, inlined=True)
def open_level(
    data: Bytes, kind: int, place: int, size: int, form: f.Compiled, seen: SeenNames, levels: Levels, depth: int,
    out: Bytes, at: Int,
) -> tuple[Int, int]:  # fmt: skip
    """Write the beginning of a document, an array or code with a scope, and push the level.

    Also return the place where its elements begin.
    """
    opening, closing, stop, inner = f.OPEN, f.CLOSE, place + size - 1, place
    if kind == _ARRAY:
        opening, closing = f.OPEN_ARRAY, f.CLOSE_ARRAY
    elif kind == _SCOPED:
        at, inner = put_code(data, place, size, form, out, at)
        if at < 0:
            return at, inner
        closing = f.SCOPE_END
        if form.without_scope:
            opening, inner = -1, stop - 4
    if depth >= f.MOST_LEVELS or data[np.uintp(stop)] != 0:
        return LEFT, inner
    if opening >= 0:
        if kind != _ARRAY and not names_differ(data, inner + 4, stop, seen):
            return LEFT, inner
        at = put_piece(form, opening, out, at)
    levels.ends[depth], levels.closes[depth], levels.named[depth] = stop, closing, kind != _ARRAY
    return at, inner + 4


@kernel(leaf=True, inlined=True)
def put_name(data: Bytes, name: int, end: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    at = put_piece(form, f.QUOTE, out, at)
    at = put_text(data, name, end, form, out, at)
    return put_piece(form, f.COLON, out, at) if at >= 0 else at


@kernel(leaf=True, inlined=True)
def put_value(
    data: Bytes, kind: int, position: int, form: f.Compiled, seen: SeenNames, levels: Levels, out: Bytes, at: Int
) -> Int:
    """Write the value of type `kind` at `position`, with everything in it; LEFT or NO_ROOM if it cannot be written."""
    room = len(out) - _SPARE
    depth, first, end = 0, True, len(data)
    while True:
        # A value of type `kind` is at `position`, and must end by `end`.
        size = value_size(data, kind, position, end)
        if size < 0 or form.refused[kind] != 0:
            return LEFT
        if kind in (_DOCUMENT, _ARRAY, _SCOPED):
            if at > room:
                return NO_ROOM
            at, position = open_level(data, kind, position, size, form, seen, levels, depth, out, at)
            depth += 1
            first = True
        else:
            if at + 7 * size > room:
                return NO_ROOM
            at = put_scalar(data, kind, position, size, form, levels.scratch, out, at)
            position += size
        if at < 0:
            return at
        while depth > 0 and position == levels.ends[depth - 1]:
            if at > room:
                return NO_ROOM
            depth -= 1
            at = put_piece(form, levels.closes[depth], out, at)
            position += 1
            first = False
        if depth == 0:
            return at
        end = levels.ends[depth - 1]
        kind = data[np.uintp(position)]
        position += 1
        name = position
        while position < end and data[np.uintp(position)] != 0:
            position += 1
        if at + 7 * (position - name) > room:
            return NO_ROOM
        if not first:
            at = put_piece(form, f.SEPARATOR, out, at)
        first = False
        if levels.named[depth - 1]:
            at = put_name(data, name, position, form, out, at)
        position += 1
        if at < 0 or position > end:
            return LEFT


@kernel
def write(
    data: Bytes, places: Int64s, kinds: Bytes, start: int, form: f.Compiled, seen: SeenNames, out: Bytes,
    offsets: Int64s, left: Bytes,
) -> Int:  # fmt: skip
    """Write the values from row `start` on into `out`. Return the first row without room, or the number of rows.

    The value of row r is of type kinds[r] at places[r], ABSENT if there is none; its text ends at offsets[r + 1].
    `left` becomes 1 for rows that only the plain writer can write; they have no text here.
    """
    levels = Levels(
        np.empty(f.MOST_LEVELS + 1, np.int64),
        np.empty(f.MOST_LEVELS + 1, np.int64),
        np.empty(f.MOST_LEVELS + 1, np.bool_),
        np.empty(64, np.uint8),
    )
    room = len(out) - _SPARE
    at: Int = int(offsets[start])
    for row in range(start, len(places)):
        if at > room:
            return row
        if kinds[row] == fields.ABSENT:
            at = put_piece(form, f.ABSENT, out, at)
            offsets[row + 1] = at
            continue
        begin = at
        if form.within_string:
            out[at] = 34
            at += 1
        at = put_value(data, kinds[row], places[row], form, seen, levels, out, at)
        if at == NO_ROOM:
            return row
        if at < 0:
            at = begin
            left[row] = 1
        elif form.within_string:
            out[at] = 34
            at += 1
        offsets[row + 1] = at
    return len(places)


# --- columns ----------------------------------------------------------------------------------------------------------


_MOST = 2**31 - 1
_compiled = lru_cache(JsonForm.compiled)
_local = threading.local()


def json_texts(data: Bytes, places: Int64s, kinds: Bytes, form: JsonForm, within_string: bool = True) -> Fragment:
    """Return the texts of the values of types `kinds` at `places` in `data`.

    Places and kinds are those of `fields.locate` and `fields.elements`; a whole document is of kind DOCUMENT. With
    `within_string` each text is a JSON string, with quotes and escapes, and a missing value (kind ABSENT) is `null`;
    otherwise texts are bare. Raises DecodeError for a value that does not follow BSON; ConversionError for a value
    nested more than 1,024 levels deep, for a type that the form refuses, and for texts of more than 2 GiB.
    """
    compiled = _compiled(form, within_string)
    count = len(places)
    places = readonly(np.ascontiguousarray(places, np.int64).view())
    kinds = readonly(np.ascontiguousarray(kinds, np.uint8).view())
    # The compiled writer takes contiguous arrays, read-only if they are inputs.
    data = readonly(data.view())
    offsets, left = np.zeros(count + 1, np.int64), np.zeros(count, np.uint8)
    out = np.empty(_first_guess(data, count), np.uint8)
    seen = _seen()
    row = 0
    while True:
        row = int(write(data, places, kinds, row, compiled, seen, out, offsets, left))
        if row == count:
            break
        if len(out) > _MOST + 1024:
            raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
        larger = np.empty(2 * len(out) + 65_536, np.uint8)
        larger[: offsets[row]] = out[: offsets[row]]
        out = larger
    total = int(offsets[-1])
    out = out[:total]
    if left.any():
        out, offsets = _with_plain(data, places, kinds, form, within_string, out, offsets, left)
    if int(offsets[-1]) > _MOST:
        raise ConversionError("The JSON of one block of documents exceeds 2 GiB.")
    return Fragment(out, offsets.astype(np.int32))


def _first_guess(data: Bytes, count: int) -> int:
    return 2 * len(data) + 64 * count + 4096


def _seen() -> SeenNames:
    """Return this thread's table of names."""
    if not hasattr(_local, "seen"):
        serials = np.zeros(SLOTS + 2, np.int64)
        serials[SLOTS + 1] = secrets.randbits(32)
        _local.seen = SeenNames(serials, np.zeros(SLOTS, np.int64))
    found: SeenNames = _local.seen
    return found


def _with_plain(
    data: Bytes,
    places: Int64s,
    kinds: Bytes,
    form: JsonForm,
    within_string: bool,
    out: Bytes,
    offsets: Int64s,
    left: Bytes,
) -> tuple[Bytes, Int64s]:
    """Return the texts together with those of the rows that the compiled writer has left to the plain writer."""
    content = data.tobytes()
    parts: list[Bytes] = []
    sizes = np.diff(offsets)
    done = 0
    for row in np.flatnonzero(left).tolist():
        text = plain_text(content, int(kinds[row]), int(places[row]), form)
        encoded = (quoted(text) if within_string else text).encode()
        parts += (out[done : int(offsets[row])], np.frombuffer(encoded, np.uint8))
        done = int(offsets[row])
        sizes[row] = len(encoded)
    parts.append(out[done:])
    bounds = np.zeros(len(offsets), np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return np.concatenate(parts), bounds
