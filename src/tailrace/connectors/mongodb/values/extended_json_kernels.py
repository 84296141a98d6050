"""The compiled writer of BSON values as JSON text: one pass over the bytes, with a stack of its own. Worker.

It leaves to `plain_json`, by a mark, the values that it cannot write or that are malformed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as f
from tailrace.connectors.mongodb.values.fields import load, value_size
from tailrace.connectors.mongodb.values.value_kernels import (
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
from tailrace.serde.double_kernels import double_of, put_double
from tailrace.serde.kernels import put_integer
from tailrace.serde.leaf import leaf

SLOTS = 16_384
"""The size of the table in which names are looked up that a document has had; a power of two."""
_MOST_NAMES = SLOTS // 2
_MOST_MET = 16 * _MOST_NAMES
"""So many slots of other names a document's names come upon at most; by chance it is a sixteenth of that."""
_SPARE = 256
"""No piece, and no number with its pieces, has more bytes; texts have at most seven for each of theirs."""

_LEVELS = f.MOST_LEVELS
(
    _DOUBLE, _STRING, _DOCUMENT, _ARRAY, _BINARY, _UNDEFINED, _OBJECT_ID, _BOOLEAN, _DATE, _NULL, _REGEX
) = range(1, 12)  # fmt: skip
_DB_POINTER, _CODE, _SYMBOL, _SCOPED, _INT32, _TIMESTAMP, _INT64, _DECIMAL = range(12, 20)
_MIN_KEY, _MAX_KEY = fields.MIN_KEY, fields.MAX_KEY


@leaf
def names_differ(data: Any, begin: Any, end: Any, serials: Any, names: Any, serial: Any) -> Any:
    """Whether the elements from `begin` to `end` are whole and have different names, as far as the table goes.

    A slot belongs to the document whose serial number it has; `names` is where its name begins. Which names meet in a
    slot depends on a secret, so that nobody can choose names that all do; if they should, the plain writer has them.
    """
    at, count, met = begin, 0, 0
    secret = np.uint32(serials[np.uintp(SLOTS + 1)])
    while at < end:
        kind = data[np.uintp(at)]
        at += 1
        name, mixed = at, secret
        while at < end and data[np.uintp(at)] != 0:
            mixed = np.uint32((mixed ^ np.uint32(data[np.uintp(at)])) * np.uint32(16_777_619))
            at += 1
        length = at - name
        at += 1
        size = value_size(data, kind, at, end) if at <= end else np.int64(-1)
        count += 1
        if size < 0 or count > _MOST_NAMES:
            return False
        slot = np.int64((mixed ^ (mixed >> np.uint32(15))) & np.uint32(SLOTS - 1))
        while serials[np.uintp(slot)] == serial:
            met += 1
            if met > _MOST_MET:
                return False
            other, same = names[np.uintp(slot)], data[np.uintp(names[np.uintp(slot)] + length)] == 0
            position = 0
            while same and position < length:
                same = data[np.uintp(other + position)] == data[np.uintp(name + position)]
                position += 1
            if same:
                return False
            slot = (slot + 1) & (SLOTS - 1)
        serials[np.uintp(slot)] = serial
        names[np.uintp(slot)] = name
        at += size
    return at == end


@leaf
def put_options(data: Any, begin: Any, end: Any, scratch: Any) -> Any:
    """The letters of a regular expression's options in order, into `scratch`; -1 when they are no few ASCII letters."""
    count = end - begin
    if count > 32:
        return np.int64(-1)
    for position in range(count):
        byte = data[np.uintp(begin + position)]
        if byte >= 128:
            return np.int64(-1)
        place = position
        while place > 0 and scratch[place - 1] > byte:
            scratch[place] = scratch[place - 1]
            place -= 1
        scratch[place] = byte
    return count


@leaf
def put_scalar(
    data: Any, kind: Any, place: Any, size: Any, pieces: Any, bounds: Any, actions: Any, escaped: Any, switches: Any,
    scratch: Any, out: Any, at: Any,
) -> Any:  # fmt: skip
    """A value that is no document; -1 for one that the plain writer must look at."""
    if kind in (_STRING, _CODE, _SYMBOL):
        if size < 5 or data[np.uintp(place + size - 1)] != 0:
            return np.int64(-1)
        opening = f.QUOTE if kind == _STRING else f.CODE if kind == _CODE else f.SYMBOL
        closing = f.QUOTE if kind == _STRING else f.CODE_END if kind == _CODE else f.SYMBOL_END
        at = put_piece(pieces, bounds, opening, out, at)
        at = put_text(data, place + 4, place + size - 1, pieces, bounds, actions, escaped, switches, out, at)
        return put_piece(pieces, bounds, closing, out, at) if at >= 0 else at
    if kind == _INT32:
        at = put_piece(pieces, bounds, f.INT, out, at)
        at = put_integer(load(data, place), out, at)
        return put_piece(pieces, bounds, f.INT_END, out, at)
    if kind == _OBJECT_ID:
        at = put_piece(pieces, bounds, f.OBJECT_ID, out, at)
        at = put_hex(data, place, 12, out, at)
        return put_piece(pieces, bounds, f.OBJECT_ID_END, out, at)
    if kind == _DATE:
        return put_date(np.int64(load_long(data, place)), pieces, bounds, switches, out, at)
    if kind == _INT64:
        at = put_piece(pieces, bounds, f.LONG, out, at)
        at = put_integer(np.int64(load_long(data, place)), out, at)
        return put_piece(pieces, bounds, f.LONG_END, out, at)
    if kind == _DOUBLE:
        bits = load_long(data, place)
        value = double_of(bits)
        if not np.isfinite(value):
            at = put_piece(pieces, bounds, f.ODD, out, at)
            at = put_special(value, out, at)
            return put_piece(pieces, bounds, f.ODD_END, out, at)
        at = put_piece(pieces, bounds, f.DOUBLE, out, at)
        at = put_double(value, out, at)
        return put_piece(pieces, bounds, f.DOUBLE_END, out, at)
    if kind == _BOOLEAN:
        if data[np.uintp(place)] > 1:
            return np.int64(-1)
        return put_piece(pieces, bounds, f.TRUE if data[np.uintp(place)] == 1 else f.FALSE, out, at)
    if kind == _NULL:
        return put_piece(pieces, bounds, f.NULL, out, at)
    if kind == _BINARY:
        return put_binary(data, place, pieces, bounds, switches, scratch, out, at)
    if kind == _DECIMAL:
        at = put_piece(pieces, bounds, f.DECIMAL, out, at)
        at = put_decimal(data, place, scratch, out, at)
        return put_piece(pieces, bounds, f.DECIMAL_END, out, at)
    if kind == _TIMESTAMP:
        at = put_piece(pieces, bounds, f.STAMP, out, at)
        at = put_unsigned(load(data, place + 4) & 0xFFFFFFFF, out, at)
        at = put_piece(pieces, bounds, f.STAMP_ORDER, out, at)
        at = put_unsigned(load(data, place) & 0xFFFFFFFF, out, at)
        return put_piece(pieces, bounds, f.STAMP_END, out, at)
    if kind == _REGEX:
        middle = place
        while data[np.uintp(middle)] != 0:
            middle += 1
        at = put_piece(pieces, bounds, f.REGEXP, out, at)
        at = put_text(data, place, middle, pieces, bounds, actions, escaped, switches, out, at)
        count = put_options(data, middle + 1, place + size - 1, scratch)
        if at < 0 or count < 0:
            return np.int64(-1)
        at = put_piece(pieces, bounds, f.OPTIONS, out, at)
        at = put_text(scratch, 0, count, pieces, bounds, actions, escaped, switches, out, at)
        return put_piece(pieces, bounds, f.REGEXP_END, out, at)
    if kind == _DB_POINTER:
        if size < 17 or data[np.uintp(place + size - 13)] != 0:
            return np.int64(-1)
        at = put_piece(pieces, bounds, f.POINTER, out, at)
        at = put_text(data, place + 4, place + size - 13, pieces, bounds, actions, escaped, switches, out, at)
        if at < 0:
            return at
        at = put_piece(pieces, bounds, f.POINTER_ID, out, at)
        at = put_hex(data, place + size - 12, 12, out, at)
        return put_piece(pieces, bounds, f.POINTER_END, out, at)
    if kind == _MIN_KEY:
        return put_piece(pieces, bounds, f.MIN_KEY, out, at)
    if kind == _MAX_KEY:
        return put_piece(pieces, bounds, f.MAX_KEY, out, at)
    return put_piece(pieces, bounds, f.UNDEFINED, out, at)


@njit(cache=True, nogil=True)
def write(
    data: Any, places: Any, kinds: Any, start: Any, pieces: Any, bounds: Any, actions: Any, escaped: Any,
    refused: Any, switches: Any, serials: Any, names: Any, out: Any, offsets: Any, left: Any,
) -> Any:  # fmt: skip
    """Write the values from row `start` on into `out`; the row that has no room any more, or the count of rows.

    The value of row r is of type kinds[r] at places[r], ABSENT for none; its text ends at offsets[r + 1]. `left`
    becomes 1 for rows that the plain writer must write, which have no text here.
    """
    ends = np.empty(_LEVELS + 1, np.int64)
    closes = np.empty(_LEVELS + 1, np.int64)
    named = np.empty(_LEVELS + 1, np.bool_)
    scratch = np.empty(64, np.uint8)
    # Serial numbers go on from call to call: the table is never emptied.
    serial = serials[SLOTS]
    limit, room = np.int64(len(data)), np.int64(len(out)) - _SPARE
    at = np.int64(offsets[start])
    for row in range(start, len(places)):
        kind, position = kinds[row], places[row]
        if kind == fields.ABSENT:
            if at > room:
                serials[SLOTS] = serial
                return row
            at = put_piece(pieces, bounds, f.ABSENT, out, at)
            offsets[row + 1] = at
            continue
        begin, depth, first = at, 0, True
        good: Any = True
        if at > room:
            serials[SLOTS] = serial
            return row
        if switches[4] != 0:
            out[at] = 34
            at += 1
        end = limit
        while good:
            # A value of type `kind` is at `position`, and may go up to `end`.
            size = value_size(data, kind, position, end)
            if size < 0 or refused[kind] != 0:
                good = False
                break
            if kind in (_DOCUMENT, _ARRAY, _SCOPED):
                if at > room:
                    serials[SLOTS] = serial
                    return row
                opening, closing, stop, inner = f.OPEN, f.CLOSE, position + size - 1, position
                if kind == _ARRAY:
                    opening, closing = f.OPEN_ARRAY, f.CLOSE_ARRAY
                elif kind == _SCOPED:
                    # Its own length, a text, and a document that goes up to the end.
                    length = load(data, position + 4) if size >= 14 else np.int64(-1)
                    inner = position + 8 + length
                    good = length > 0 and inner + 5 <= position + size and data[np.uintp(inner - 1)] == 0
                    good = good and inner + load(data, inner) == position + size
                    if not good:
                        break
                    if at + 7 * length > room:
                        serials[SLOTS] = serial
                        return row
                    at = put_piece(pieces, bounds, f.SCOPED, out, at)
                    at = put_text(data, position + 8, inner - 1, pieces, bounds, actions, escaped, switches, out, at)
                    good = at >= 0
                    if not good:
                        break
                    at = put_piece(pieces, bounds, f.SCOPE, out, at)
                    closing = f.SCOPE_END
                    if switches[3] != 0:
                        opening, inner = -1, stop - 4
                serial += 1
                good = depth < _LEVELS and data[np.uintp(stop)] == 0
                if good and kind != _ARRAY and opening >= 0:
                    good = names_differ(data, inner + 4, stop, serials, names, serial)
                if not good:
                    break
                if opening >= 0:
                    at = put_piece(pieces, bounds, opening, out, at)
                ends[depth], closes[depth], named[depth] = stop, closing, kind != _ARRAY
                depth += 1
                position = inner + 4
                first = True
            else:
                if at + 7 * size > room:
                    serials[SLOTS] = serial
                    return row
                at = put_scalar(
                    data, kind, position, size, pieces, bounds, actions, escaped, switches, scratch, out, at
                )  # fmt: skip
                good = at >= 0
                position += size
            while good and depth > 0 and position == ends[depth - 1]:
                if at > room:
                    serials[SLOTS] = serial
                    return row
                depth -= 1
                at = put_piece(pieces, bounds, closes[depth], out, at)
                position += 1
                first = False
            if not good or depth == 0:
                break
            end = ends[depth - 1]
            kind = data[np.uintp(position)]
            position += 1
            name = position
            while position < end and data[np.uintp(position)] != 0:
                position += 1
            if at + 7 * (position - name) > room:
                serials[SLOTS] = serial
                return row
            if not first:
                at = put_piece(pieces, bounds, f.SEPARATOR, out, at)
            first = False
            if named[depth - 1]:
                at = put_piece(pieces, bounds, f.QUOTE, out, at)
                at = put_text(data, name, position, pieces, bounds, actions, escaped, switches, out, at)
                good = at >= 0
                if good:
                    at = put_piece(pieces, bounds, f.COLON, out, at)
            position += 1
            good = good and position <= end
        if not good:
            at = begin
            left[row] = 1
        elif switches[4] != 0:
            out[at] = 34
            at += 1
        offsets[row + 1] = at
    serials[SLOTS] = serial
    return len(places)
