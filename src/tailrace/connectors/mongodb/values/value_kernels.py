"""Kernels that write single BSON values as text: texts, binary data, decimals, dates. Worker.

`form` is a `json_forms.Compiled`. Every function writes at `at` in `out` and returns the position after its output.
"""

from __future__ import annotations

import numpy as np

from tailrace.connectors.mongodb.values import json_forms as f
from tailrace.connectors.mongodb.values.fields import Bytes, load
from tailrace.kernels.buffers import move
from tailrace.kernels.compiled import kernel
from tailrace.values.binaries import put_base64
from tailrace.values.calendar import put_day
from tailrace.values.clock import put_clock
from tailrace.values.integers import put_integer
from tailrace.values.strings import put_unit
from tailrace.values.texts import Int

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_LOW_32 = np.uint64(0xFFFFFFFF)
_BILLION = np.uint64(1_000_000_000)
_DAY_MS = 86_400_000
LAST_TEXT_DATE = 253_402_300_799_999
"""The last ms of the year 9999."""

_COPY, _UNIT, _LONGER, _DROP, _UNICODE = f.COPY, f.UNIT, f.LONGER, f.DROP, f.UNICODE_ESCAPE
LEFT = -1
"""Returned instead of a position if only the plain writer can write the value."""


@kernel(leaf=True)
def load_long(data: Bytes, at: Int) -> np.uint64:
    """Return the eight bytes at `at` as uint64."""
    value = np.uint64(0)
    for position in range(8):
        value |= np.uint64(data[np.uintp(at + position)]) << np.uint64(8 * position)
    return value


@kernel(leaf=True)
def put_piece(form: f.Compiled, number: int, out: Bytes, at: Int) -> Int:
    begin = int(form.bounds[np.uintp(number)])
    size = int(form.bounds[np.uintp(number + 1)]) - begin
    move(out.ctypes.data + at, form.pieces.ctypes.data + begin, size)
    return at + size


@kernel(leaf=True)
def put_escape(unit: Int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write the escape of a UTF-16 unit, in lower case."""
    at = put_piece(form, _UNICODE, out, at)
    for digit in range(4):
        out[np.uintp(at + digit)] = _HEX[np.uintp((unit >> (12 - 4 * digit)) & 15)]
    return at + 4


@kernel(leaf=True)
def put_text(data: Bytes, begin: int, end: Int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write the text in data[begin:end] with the form's escapes; LEFT if it is not UTF-8."""
    source, target = data.ctypes.data, out.ctypes.data
    position = begin
    while position < end:
        run = position
        while position < end and form.actions[data[np.uintp(position)]] == _COPY:
            position += 1
        move(target + at, source + run, position - run)
        at += position - run
        if position == end:
            break
        byte = data[np.uintp(position)]
        action = form.actions[byte]
        if action == _LONGER:
            point, size = character_of(data, position, end)
            if size == 0:
                return LEFT
            at = put_character(data, position, point, size, form, out, at)
            position += size
        else:
            if action == _UNIT:
                at = put_escape(int(np.int64(byte)), form, out, at)
            elif action != _DROP:
                at = put_piece(form, action, out, at)
            position += 1
    return at


@kernel(leaf=True)
def character_of(data: Bytes, position: int, end: Int) -> tuple[Int, int]:
    """Return the code point of a multi-byte UTF-8 character at `position`, and its size; size 0 if it is not UTF-8."""
    byte = data[np.uintp(position)]
    point, size = 0, 0
    if 0xC2 <= byte < 0xE0:
        point, size = int(np.int64(byte & 31)), 2
    elif 0xE0 <= byte < 0xF0:
        point, size = int(np.int64(byte & 15)), 3
    elif 0xF0 <= byte < 0xF5:
        point, size = int(np.int64(byte & 7)), 4
    if size == 0 or position + size > end:
        return point, 0
    for following in range(1, size):
        byte = data[np.uintp(position + following)]
        if byte & 0xC0 != 0x80:
            return point, 0
        point = (point << 6) | int(np.int64(byte & 63))
    if size == 3 and (point < 0x800 or 0xD800 <= point < 0xE000):
        return point, 0
    if size == 4 and not 0x10000 <= point < 0x110000:
        return point, 0
    return point, size


@kernel(leaf=True)
def put_character(data: Bytes, position: int, point: Int, size: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write the character `point`, which has `size` bytes at `position`, literally or by its escapes."""
    if size == 4 and (not form.raw or form.within_string):
        high, low = 0xD800 + ((point - 0x10000) >> 10), 0xDC00 + (point & 0x3FF)
        if form.raw:
            # the form writes the character literally, but the surrounding JSON string, by Jackson, escapes it
            return int(put_unit(low, out, put_unit(high, out, at)))
        return put_escape(low, form, out, put_escape(high, form, out, at))
    if size < 4 and form.escaped[np.uintp(point >> 3)] >> np.uint8(point & 7) & 1 != 0:
        return put_escape(point, form, out, at)
    for following in range(size):
        out[np.uintp(at + following)] = data[np.uintp(position + following)]
    return at + size


@kernel(leaf=True)
def put_hex(data: Bytes, begin: int, count: int, out: Bytes, at: Int) -> Int:
    for position in range(count):
        byte = data[np.uintp(begin + position)]
        out[np.uintp(at)] = _HEX[np.uintp(byte >> 4)]
        out[np.uintp(at + 1)] = _HEX[np.uintp(byte & 15)]
        at += 2
    return at


@kernel(leaf=True)
def put_unsigned(value: int, out: Bytes, at: Int) -> Int:
    """Write a uint32."""
    return int(put_integer(np.int64(value), out, at))


@kernel(leaf=True)
def put_date(ms: int, form: f.Compiled, out: Bytes, at: Int) -> Int:
    if form.text_dates and 0 <= ms <= LAST_TEXT_DATE:
        at = put_piece(form, f.TEXT_DATE, out, at)
        day = ms // _DAY_MS
        at = put_day(day, out, at)
        out[at] = 84
        at = put_clock((ms - day * _DAY_MS) * 1000, -1, out, at + 1)
        return put_piece(form, f.TEXT_DATE_END, out, at)
    at = put_piece(form, f.DATE, out, at)
    at = put_integer(ms, out, at)
    return put_piece(form, f.DATE_END, out, at)


@kernel(leaf=True)
def put_binary(data: Bytes, place: int, form: f.Compiled, scratch: Bytes, out: Bytes, at: Int) -> Int:
    """Write binary data whose length is at `place`; LEFT if its two lengths differ."""
    size = load(data, place)
    subtype = np.int64(data[np.uintp(place + 4)])
    begin = place + 5
    if subtype == 2:
        if size < 4 or load(data, begin) != size - 4:
            return LEFT
        size -= 4
        begin += 4
    if size == 16 and subtype in (3, 4) and form.uuid != f.KEEP_UUID:
        turned = subtype == 4 if form.uuid == f.OLD_UUID else subtype == 3
        for position in range(16):
            # Java's old order has the bytes of both halves of a UUID reversed
            scratch[position] = data[np.uintp(begin + ((position & 8) + 7 - (position & 7) if turned else position))]
        if form.uuid == f.NAME_UUID:
            return put_uuid(scratch, form, out, at)
        at = put_piece(form, f.BINARY, out, at)
        at = put_base64(scratch, 16, 0, out, at)
        subtype = np.int64(3)
    else:
        at = put_piece(form, f.BINARY, out, at)
        at = put_base64(data[begin : begin + size], size, 0, out, at)
    at = put_piece(form, f.SUBTYPE, out, at)
    if form.signed_subtype:
        at = put_integer(subtype - 256 if subtype > 127 else subtype, out, at)
    else:
        out[at] = _HEX_UPPER[subtype >> 4]
        out[at + 1] = _HEX_UPPER[subtype & 15]
        at += 2
    return put_piece(form, f.BINARY_END, out, at)


@kernel(leaf=True)
def put_uuid(content: Bytes, form: f.Compiled, out: Bytes, at: Int) -> Int:
    """Write the 16 bytes of `content` as a UUID's text."""
    at = put_piece(form, f.UUID, out, at)
    for part in range(5):
        first, count = (0, 4) if part == 0 else (2 + 2 * part, 2) if part < 4 else (10, 6)
        if part > 0:
            out[at] = 45
            at += 1
        at = put_hex(content, first, count, out, at)
    return put_piece(form, f.UUID_END, out, at)


@kernel(leaf=True)
def put_word(text: Bytes, out: Bytes, at: Int) -> Int:
    for position in range(len(text)):
        out[at + position] = text[position]
    return at + len(text)


_NAN = np.frombuffer(b"NaN", np.uint8).copy()
_INFINITY = np.frombuffer(b"Infinity", np.uint8).copy()


@kernel(leaf=True)
def put_decimal(data: Bytes, place: int, scratch: Bytes, out: Bytes, at: Int) -> Int:
    """Write the decimal128 in the 16 bytes at `place`."""
    low, high = load_long(data, place), load_long(data, place + 8)
    combination = np.int64((high >> np.uint64(58)) & np.uint64(31))
    if combination == 31:
        return put_word(_NAN, out, at)
    if high >> np.uint64(63) != np.uint64(0):
        out[at] = 45
        at += 1
    if combination == 30:
        return put_word(_INFINITY, out, at)
    if (high >> np.uint64(61)) & np.uint64(3) == np.uint64(3):
        # A coefficient of more than 34 digits counts as 0.
        exponent = int(np.int64((high >> np.uint64(47)) & np.uint64(0x3FFF))) - 6176
        low, high = np.uint64(0), np.uint64(0)
    else:
        exponent = int(np.int64((high >> np.uint64(49)) & np.uint64(0x3FFF))) - 6176
        high &= np.uint64((1 << 49) - 1)
    return put_scaled(scratch, digits_of(low, high, scratch), exponent, out, at)


@kernel(leaf=True)
def digits_of(low: np.uint64, high: np.uint64, scratch: Bytes) -> Int:
    """Write the decimal digits of a number of 128 bits into `scratch`, the last one first. Return their count."""
    # Nine digits at a time by long division of four words of 32 bits.
    w3, w2 = high >> np.uint64(32), high & _LOW_32
    w1, w0 = low >> np.uint64(32), low & _LOW_32
    count = 0
    while True:
        rest = w3 % _BILLION
        w3 //= _BILLION
        part = (rest << np.uint64(32)) | w2
        w2, rest = part // _BILLION, part % _BILLION
        part = (rest << np.uint64(32)) | w1
        w1, rest = part // _BILLION, part % _BILLION
        part = (rest << np.uint64(32)) | w0
        w0, rest = part // _BILLION, part % _BILLION
        more = (w3 | w2 | w1 | w0) != np.uint64(0)
        for _ in range(9):
            scratch[count] = 48 + np.int64(rest % np.uint64(10))
            rest //= np.uint64(10)
            count += 1
            if not more and rest == np.uint64(0):
                break
        if not more:
            return count


@kernel(leaf=True)
def put_scaled(digits: Bytes, count: Int, exponent: int, out: Bytes, at: Int) -> Int:
    """Write a decimal of `count` digits, the last one first, times ten to the `exponent`: plain, or with an
    exponent."""
    first = exponent + count - 1
    scientific = exponent > 0 or first < -6
    if scientific:
        point: Int = 1
    elif first >= 0:
        point = first + 1
    else:
        out[at], out[at + 1] = 48, 46
        at += 2
        for _ in range(-first - 1):
            out[at] = 48
            at += 1
        point = count
    for position in range(count):
        if position == point:
            out[at] = 46
            at += 1
        out[at] = digits[count - 1 - position]
        at += 1
    if scientific:
        out[at] = 69
        at += 1
        if first >= 0:
            out[at] = 43
            at += 1
        at = put_integer(first, out, at)
    return at


@kernel(leaf=True)
def put_special(value: float, out: Bytes, at: Int) -> Int:
    """Write a double that is NaN or infinite."""
    if np.isnan(value):
        return put_word(_NAN, out, at)
    if value < 0:
        out[at] = 45
        at += 1
    return put_word(_INFINITY, out, at)
