"""Kernels that write a column's values as text. Worker.

Each takes the bytes of the rows, the starts and lengths of the column's values (a negative length: no value), room for
the longest texts, and the offsets of the texts to write. It returns the number of rows before the first value that does
not have the expected form.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.columns.batch import Bytes, Int32s
from tailrace.connectors.binlog.log.row_kernels import little
from tailrace.kernels.buffers import move
from tailrace.kernels.compiled import kernel
from tailrace.values.calendar import put_day, put_two
from tailrace.values.integers import put_integer, put_unsigned
from tailrace.values.texts import Int, word

_ZERO, _MINUS, _POINT, _COLON, _SPACE, _COMMA, _BACKSLASH, _X = 48, 45, 46, 58, 32, 44, 92, 120
_DIGITS = word(b"0123456789abcdef")
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_TENS = np.array([10**place for place in range(10)], np.int64)
_DAY = 86_400
_LAST_YEAR = 9999


@kernel(leaf=True, inlined=True)
def big(data: Bytes, at: Int, size: Int) -> Int:
    """Return the big-endian number in `size` bytes, at most seven."""
    found: Int = np.int64(0)
    for place in range(size):
        found = (found << 8) | np.int64(data[at + place])
    return int(found)


@kernel(leaf=True, inlined=True)
def put_digits(value: Int, count: Int, out: Bytes, at: Int) -> Int:
    """Write the last `count` digits of a number. Return the end."""
    for place in range(count - 1, -1, -1):
        out[at + place] = _ZERO + value % 10
        value //= 10
    return at + count


@kernel(leaf=True)
def integers(data: Bytes, starts: Int32s, lengths: Int32s, unsigned: Int, out: Bytes, offsets: Int32s) -> Int:
    at: Int = 0
    for row in range(len(lengths)):
        length = lengths[row]
        if length >= 0:
            begin = np.int64(starts[row])
            if length == 8:
                low, high = np.uint64(little(data, begin, 4)), np.uint64(little(data, begin + 4, 4))
                value = low | (high << np.uint64(32))
                if unsigned:
                    at = put_unsigned(value, out, at)
                else:
                    at = put_integer(np.int64(value), out, at)
            else:
                shown = np.int64(little(data, begin, length))
                if not unsigned and shown >> (8 * length - 1):
                    shown -= np.int64(1) << (8 * length)
                at = put_integer(shown, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def decimals(
    data: Bytes, starts: Int32s, lengths: Int32s, precision: Int, scale: Int, out: Bytes, offsets: Int32s
) -> Int:
    """Write packed decimals: nine digits in four bytes, big-endian, the sign in the first bit, negatives inverted."""
    whole = precision - scale
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] < 0:
            offsets[row + 1] = at
            continue
        place: Int = np.int64(starts[row])
        negative = data[place] & 0x80 == 0
        flip = np.int64(0xFF if negative else 0)
        is_first = True
        if negative:
            out[at] = _MINUS
            at += 1
        begin = at
        left: Int = whole
        while left > 0:
            digits = left % 9
            if digits == 0:
                digits = 9
            size = int(_DIGIT_BYTES[digits])
            value: Int = np.int64(0)
            for byte in range(size):
                one = np.int64(data[place + byte])
                if is_first:
                    one ^= 0x80
                    is_first = False
                value = (value << 8) | (one ^ flip)
            if value >= _TENS[digits]:
                return row
            place += size
            left -= digits
            if at > begin:
                at = put_digits(value, digits, out, at)
            elif value > 0:
                at = put_unsigned(np.uint64(value), out, at)
        if at == begin:
            out[at] = _ZERO
            at += 1
        if scale > 0:
            out[at] = _POINT
            at += 1
            left = scale
            while left > 0:
                digits = min(left, 9)
                size = int(_DIGIT_BYTES[digits])
                value = np.int64(0)
                for byte in range(size):
                    one = np.int64(data[place + byte])
                    if is_first:
                        one ^= 0x80
                        is_first = False
                    value = (value << 8) | (one ^ flip)
                if value >= _TENS[digits]:
                    return row
                place += size
                left -= digits
                at = put_digits(value, digits, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def years(data: Bytes, starts: Int32s, lengths: Int32s, out: Bytes, offsets: Int32s) -> Int:
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            value = np.int64(data[starts[row]])
            at = put_digits(1900 + value if value else 0, 4, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True, inlined=True)
def put_date(year: Int, month: Int, day: Int, out: Bytes, at: Int) -> Int:
    at = put_digits(year, 4, out, at)
    out[at] = _MINUS
    at = put_two(month, out, at + 1)
    out[at] = _MINUS
    return put_two(day, out, at + 1)


@kernel(leaf=True, inlined=True)
def put_clock(hour: Int, minute: Int, second: Int, out: Bytes, at: Int) -> Int:
    at = put_two(hour, out, at)
    out[at] = _COLON
    at = put_two(minute, out, at + 1)
    out[at] = _COLON
    return put_two(second, out, at + 1)


@kernel(leaf=True, inlined=True)
def put_fraction(value: Int, size: Int, digits: Int, out: Bytes, at: Int) -> Int:
    """Write the first `digits` of the 2 * `size` digits of `value`, after a point. Return the end."""
    if digits == 0:
        return at
    out[at] = _POINT
    return put_digits(value if digits == 2 * size else value // 10, digits, out, at + 1)


@kernel(leaf=True)
def dates(data: Bytes, starts: Int32s, lengths: Int32s, out: Bytes, offsets: Int32s) -> Int:
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            value = little(data, np.int64(starts[row]), 3)
            if value >> 9 > _LAST_YEAR:
                return row
            at = put_date(value >> 9, value >> 5 & 15, value & 31, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def times(data: Bytes, starts: Int32s, lengths: Int32s, digits: Int, out: Bytes, offsets: Int32s) -> Int:
    size = (digits + 1) // 2
    hundreds: Int = np.int64(1)
    for _ in range(size):
        hundreds *= 100
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            width = 3 + size
            value = big(data, np.int64(starts[row]), width) - (np.int64(1) << (8 * width - 1))
            if value < 0:
                out[at] = _MINUS
                at += 1
                value = -value
            seconds, rest = value >> (8 * size), value & ((np.int64(1) << (8 * size)) - 1)
            if rest >= hundreds:
                return row
            hours = seconds >> 12 & 1023
            if hours >= 100:
                at = put_digits(hours // 100, 1 if hours < 1000 else 2, out, at)
                hours %= 100
            at = put_clock(hours, seconds >> 6 & 63, seconds & 63, out, at)
            at = put_fraction(rest, size, digits, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def datetimes(data: Bytes, starts: Int32s, lengths: Int32s, digits: Int, out: Bytes, offsets: Int32s) -> Int:
    size = (digits + 1) // 2
    hundreds: Int = np.int64(1)
    for _ in range(size):
        hundreds *= 100
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            begin = np.int64(starts[row])
            value = big(data, begin, 5) - (np.int64(1) << 39)
            rest = big(data, begin + 5, size)
            month = value >> 22
            if value < 0 or rest >= hundreds or month // 13 > _LAST_YEAR:
                return row
            at = put_date(month // 13, month % 13, value >> 17 & 31, out, at)
            out[at] = _SPACE
            at = put_clock(value >> 12 & 31, value >> 6 & 63, value & 63, out, at + 1)
            at = put_fraction(rest, size, digits, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def timestamps(
    data: Bytes, starts: Int32s, lengths: Int32s, digits: Int, is_old: Int, out: Bytes, offsets: Int32s
) -> Int:
    """Write timestamps: seconds since 1970, big-endian with a fraction, or little-endian in the old form. Zero is
    written as the date 0000-00-00."""
    size = (digits + 1) // 2
    hundreds: Int = np.int64(1)
    for _ in range(size):
        hundreds *= 100
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            begin = np.int64(starts[row])
            if is_old:
                seconds, rest = np.int64(little(data, begin, 4)), np.int64(0)
            else:
                seconds, rest = np.int64(big(data, begin, 4)), np.int64(big(data, begin + 4, size))
            if rest >= hundreds:
                return row
            if seconds == 0:
                at = put_date(0, 0, 0, out, at)
            else:
                at = put_day(seconds // _DAY, out, at)
            out[at] = _SPACE
            of_day = seconds % _DAY
            at = put_clock(of_day // 3600, of_day // 60 % 60, of_day % 60, out, at + 1)
            at = put_fraction(rest, size, digits, out, at)
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def texts(data: Bytes, starts: Int32s, lengths: Int32s, out: Bytes, offsets: Int32s) -> Int:
    """Copy the values unchanged."""
    at: Int = 0
    data_at, out_at = data.ctypes.data, out.ctypes.data
    for row in range(len(lengths)):
        length = np.int64(lengths[row])
        if length > 0:
            move(out_at + at, data_at + np.int64(starts[row]), length)
            at += length
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def mapped_texts(
    data: Bytes, starts: Int32s, lengths: Int32s, codes: Bytes, sizes: Bytes, out: Bytes, offsets: Int32s
) -> Int:
    """Write texts of a single-byte character set: `codes` has four bytes for each of its characters."""
    at: Int = 0
    for row in range(len(lengths)):
        begin = np.int64(starts[row])
        for place in range(max(lengths[row], 0)):
            byte = np.int64(data[begin + place])
            size = sizes[byte]
            if size == 0:
                return row
            for part in range(size):
                out[at] = codes[4 * byte + part]
                at += 1
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def hexadecimals(data: Bytes, starts: Int32s, lengths: Int32s, least: Int, out: Bytes, offsets: Int32s) -> Int:
    r"""Write bytes as `\x` and hexadecimal digits, filled up with zeros to `least` bytes."""
    at: Int = 0
    for row in range(len(lengths)):
        length = lengths[row]
        if length >= 0:
            begin = np.int64(starts[row])
            out[at] = _BACKSLASH
            out[at + 1] = _X
            at += 2
            for place in range(length):
                byte = data[begin + place]
                out[at] = _DIGITS[byte >> 4]
                out[at + 1] = _DIGITS[byte & 15]
                at += 2
            for _ in range(length, least):
                out[at] = _ZERO
                out[at + 1] = _ZERO
                at += 2
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def labels(
    data: Bytes, starts: Int32s, lengths: Int32s, known: Bytes, bounds: Int32s, out: Bytes, offsets: Int32s
) -> Int:
    """Write labels of an ENUM by their numbers from 1; 0 is the empty text."""
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            number = little(data, np.int64(starts[row]), lengths[row])
            if number >= len(bounds):
                return row
            if number > 0:
                for place in range(bounds[number - 1], bounds[number]):
                    out[at] = known[place]
                    at += 1
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def label_sets(
    data: Bytes, starts: Int32s, lengths: Int32s, known: Bytes, bounds: Int32s, out: Bytes, offsets: Int32s
) -> Int:
    """Write the labels of a SET whose bits are set, with commas between."""
    at: Int = 0
    for row in range(len(lengths)):
        if lengths[row] >= 0:
            begin = np.int64(starts[row])
            is_first = True
            for place in range(8 * lengths[row]):
                if data[begin + (place >> 3)] >> (place & 7) & 1 == 0:
                    continue
                if place >= len(bounds) - 1:
                    return row
                if not is_first:
                    out[at] = _COMMA
                    at += 1
                is_first = False
                for byte in range(bounds[place], bounds[place + 1]):
                    out[at] = known[byte]
                    at += 1
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def uuids(data: Bytes, starts: Int32s, lengths: Int32s, out: Bytes, offsets: Int32s) -> Int:
    """Write UUIDs; the log leaves out their last bytes if these are zero."""
    at: Int = 0
    for row in range(len(lengths)):
        length = lengths[row]
        if length > 16:
            return row
        if length >= 0:
            begin = np.int64(starts[row])
            for place in range(16):
                byte = np.int64(data[begin + place]) if place < length else np.int64(0)
                out[at] = _DIGITS[byte >> 4]
                out[at + 1] = _DIGITS[byte & 15]
                at += 2
                if place in (3, 5, 7, 9):
                    out[at] = _MINUS
                    at += 1
        offsets[row + 1] = at
    return len(lengths)


@kernel(leaf=True)
def gathered(data: Bytes, starts: Int32s, lengths: Int32s, size: Int, out: Bytes) -> Int:
    """Copy values of `size` bytes; zeros for missing values."""
    for row in range(len(lengths)):
        begin = np.int64(starts[row])
        for place in range(size):
            out[row * size + place] = data[begin + place] if lengths[row] == size else np.uint8(0)
    return len(lengths)


def sizes_of(lengths: Int32s) -> tuple[int, int]:
    """Return the number of values, and the sum of their lengths."""
    known: npt.NDArray[np.int32] = np.maximum(lengths, 0)
    return int(np.count_nonzero(lengths >= 0)), int(known.sum(dtype=np.int64))
