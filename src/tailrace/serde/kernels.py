"""Compiled conversions of text columns to JSON: strings, numbers, booleans, bytes.

Every kernel has the same form. `data[bounds[i]:bounds[i + 1]]` is the text of row i. `state` is empty when all rows
have a text; else 0 marks a row that has one and k one that is shown as literal k - 1, which is
`literals[ends[k - 1]:ends[k]]`: literal 0 is a null's JSON, 1 that of an unchanged TOAST value, 2 that of a text that
could not be converted. The JSON goes to `out`, its bounds to `offsets`. The result is the number of texts that could
not be converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tailrace.compiled import kernel
from tailrace.serde.memory import move

_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[:32] = 1
_ESCAPES[240:248] = 2
for _code, _letter in ((34, '"'), (92, "\\"), (8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _ESCAPES[_code] = ord(_letter)
_HEX_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_NIBBLE = np.full(256, 255, np.uint8)
for _position, _digit in enumerate(b"0123456789abcdef"):
    _NIBBLE[_digit] = _position
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
    np.uint8,
).copy()
_TRUE = np.frombuffer(b"true", np.uint8).copy()
_FALSE = np.frombuffer(b"false", np.uint8).copy()
_ZERO, _MINUS, _QUOTE = 48, 45, 34
_MOST = np.frombuffer(b"9223372036854775807", np.uint8).copy()
_PAIRS = np.frombuffer(b"".join(b"%02d" % pair for pair in range(100)), np.uint8).copy()
# Of the type that they divide: numba would make doubles of a uint64 and an int64.
_HUNDRED, _TEN_THOUSAND, _HUNDRED_MILLIONS = np.uint32(100), np.uint32(10_000), np.uint64(100_000_000)


@kernel(leaf=True)
def put_literal(literals: Any, ends: Any, number: Any, out: Any, at: Any) -> Any:
    """Write literal `number` at `at`; the position behind it."""
    for position in range(ends[number], ends[number + 1]):
        out[at] = literals[position]
        at += 1
    return at


@kernel(leaf=True)
def put_pair(value: Any, out: Any, at: Any) -> Any:
    """Write two digits of a uint32 below 100; the position behind them."""
    out[np.uintp(at)] = _PAIRS[np.uintp(value * np.uint32(2))]
    out[np.uintp(at + 1)] = _PAIRS[np.uintp(value * np.uint32(2) + np.uint32(1))]
    return at + 2


@kernel(leaf=True)
def put_eight(value: Any, out: Any, at: Any) -> Any:
    """Write eight digits of a uint32; the position behind them."""
    high, low = value // _TEN_THOUSAND, value % _TEN_THOUSAND
    at = put_pair(high // _HUNDRED, out, at)
    at = put_pair(high % _HUNDRED, out, at)
    at = put_pair(low // _HUNDRED, out, at)
    return put_pair(low % _HUNDRED, out, at)


@kernel(leaf=True)
def put_short(value: Any, out: Any, at: Any) -> Any:
    """Write a uint32 below 100,000,000 in as few digits as it has; the position behind them."""
    size, bound = 1, np.uint32(10)
    while value >= bound and size < 8:
        size += 1
        bound *= np.uint32(10)
    position = at + size
    while position - at >= 2:
        position -= 2
        put_pair(value % _HUNDRED, out, position)
        value //= _HUNDRED
    if position > at:
        out[at] = np.uint32(_ZERO) + value
    return at + size


@kernel(leaf=True)
def put_integer(value: Any, out: Any, at: Any) -> Any:
    """Write an int64 in decimal; the position behind it."""
    # The magnitude is unsigned: the smallest int64 has no negative.
    rest = np.uint64(value)
    if value < 0:
        out[at] = _MINUS
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)
    if rest < _HUNDRED_MILLIONS:
        return put_short(np.uint32(rest), out, at)
    above = rest // _HUNDRED_MILLIONS
    if above < _HUNDRED_MILLIONS:
        at = put_short(np.uint32(above), out, at)
    else:
        at = put_short(np.uint32(above // _HUNDRED_MILLIONS), out, at)
        at = put_eight(np.uint32(above % _HUNDRED_MILLIONS), out, at)
    return put_eight(np.uint32(rest % _HUNDRED_MILLIONS), out, at)


@kernel
def integers(values: Any, out: Any, offsets: Any) -> None:
    """An int64 array as decimal text."""
    at = 0
    for row in range(len(values)):
        at = put_integer(values[row], out, at)
        offsets[row + 1] = at


@kernel
def count_escapes(data: Any, begin: Any, end: Any) -> Any:
    """How many of the bytes JSON must escape."""
    # Sums of single bytes, over so few that they do not overflow, and no index that could be negative: so the compiler
    # takes many bytes at a time, which makes this thirty times faster.
    count = np.int64(0)
    part = data[begin:end]
    for start in range(0, len(part), 128):
        found = np.uint8(0)
        for byte in part[start : start + 128]:
            short = (byte < np.uint8(32)) | (byte == np.uint8(34)) | (byte == np.uint8(92))
            found = np.uint8(found + np.uint8(short | (byte >= np.uint8(240))))
        count += np.int64(found)
    return count


@kernel
def is_ascii(data: Any, begin: Any, end: Any) -> Any:
    """Whether no byte is above 127. Bytes that are not UTF-8 are."""
    part = data[begin:end]
    for start in range(0, len(part), 4096):
        found = np.uint8(0)
        for byte in part[start : start + 4096]:
            found |= byte
        if found >= np.uint8(128):
            return False
    return True


@kernel
def are_integers(data: Any, bounds: Any, state: Any) -> Any:
    """Whether every text is an integer of 64 bits as JSON has it: no plus sign, no zero before other digits."""
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            continue
        at, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
        negative = at < end and data[np.uintp(at)] == _MINUS
        if negative:
            at += 1
        count = end - at
        if count < 1 or count > 19 or (data[np.uintp(at)] == _ZERO and (count > 1 or negative)):
            return False
        wrong = np.uint8(0)
        for position in range(at, end):
            wrong |= np.uint8(np.uint8(data[np.uintp(position)] - np.uint8(_ZERO)) > np.uint8(9))
        if wrong != 0:
            return False
        if count == 19:
            for place in range(19):
                digit, most = data[np.uintp(at + place)], _MOST[place]
                if place == 18 and negative:
                    most += 1
                if digit != most:
                    if digit > most:
                        return False
                    break
    return True


@kernel
def verbatim(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """Text that is JSON already."""
    source, target, at = data.ctypes.data, out.ctypes.data, np.int64(0)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        else:
            size = bounds[row + 1] - bounds[row]
            move(target + at, source + bounds[row], size)
            at += size
        offsets[row + 1] = at
    return 0


@kernel(leaf=True)
def put_unit(unit: Any, out: Any, at: Any) -> Any:
    """Write the escape of a UTF-16 unit; the position behind it."""
    out[at] = 92
    out[at + 1] = 117
    for digit in range(4):
        out[at + 2 + digit] = _HEX_UPPER[(unit >> (12 - 4 * digit)) & 15]
    return at + 6


@kernel
def strings(data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any) -> Any:
    """Text as JSON strings; argument 0 says that nothing in them must be escaped."""
    source, target, at = data.ctypes.data, out.ctypes.data, np.int64(0)
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        else:
            out[at] = _QUOTE
            at += 1
            position, end = np.int64(bounds[row]), np.int64(bounds[row + 1])
            if argument == 0:
                move(target + at, source + position, end - position)
                at += end - position
                position = end
            while position < end:
                run = position
                while position < end and _ESCAPES[data[np.uintp(position)]] == 0:
                    position += 1
                move(target + at, source + run, position - run)
                at += position - run
                if position == end:
                    break
                byte = data[position]
                escape = _ESCAPES[byte]
                if escape == 1:
                    at = put_unit(np.int64(byte), out, at)
                elif escape != 2:
                    out[at] = 92
                    out[at + 1] = escape
                    at += 2
                elif position + 3 < end:
                    # Four bytes of UTF-8: a character beyond the basic plane, which Jackson writes as surrogates.
                    point = (np.int64(byte & 7) << 18) | (np.int64(data[position + 1] & 63) << 12)
                    point |= (np.int64(data[position + 2] & 63) << 6) | np.int64(data[position + 3] & 63)
                    at = put_unit(0xD800 + ((point - 0x10000) >> 10), out, at)
                    at = put_unit(0xDC00 + (point & 0x3FF), out, at)
                    position += 3
                position += 1
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return 0


@kernel(leaf=True)
def is_word(data: Any, begin: Any, end: Any, word: Any) -> Any:
    """Whether the bytes are those of `word`."""
    if end - begin != len(word):
        return False
    for position in range(len(word)):  # noqa: SIM110  (numba has no generators in all())
        if data[begin + position] != word[position]:
            return False
    return True


@kernel(leaf=True)
def put_boolean(value: Any, out: Any, at: Any) -> Any:
    if value:
        out[at] = 116
        out[at + 1] = 114
        out[at + 2] = 117
        out[at + 3] = 101
        return at + 4
    out[at] = 102
    out[at + 1] = 97
    out[at + 2] = 108
    out[at + 3] = 115
    out[at + 4] = 101
    return at + 5


@kernel
def booleans(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """`t` and `f`, or `true` and `false`, as true and false."""
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        begin, end = bounds[row], bounds[row + 1]
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
        elif (end - begin == 1 and data[begin] == 116) or is_word(data, begin, end, _TRUE):
            at = put_boolean(True, out, at)
        elif (end - begin == 1 and data[begin] == 102) or is_word(data, begin, end, _FALSE):
            at = put_boolean(False, out, at)
        else:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        offsets[row + 1] = at
    return lost


@kernel
def bits(data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any) -> Any:
    """Zeros and ones as base64 of little-endian bytes without trailing zero bytes (argument 0), or one of them as a
    boolean (1)."""
    longest = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    scratch = np.zeros(longest // 8 + 1, np.uint8)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        count, wrong = 0, argument == 1 and end - begin != 1
        # The last digit is the lowest bit.
        for place in range(end - begin):
            digit = np.int64(data[end - 1 - place]) - _ZERO
            wrong = wrong or digit < 0 or digit > 1
            if digit == 1:
                scratch[place >> 3] |= np.uint8(1 << (place & 7))
                count = (place >> 3) + 1
        if wrong:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        elif argument == 1:
            at = put_boolean(count > 0, out, at)
        else:
            out[at] = _QUOTE
            at = put_base64(scratch, count, 0, out, at + 1)
            out[at] = _QUOTE
            at += 1
        scratch[:count] = 0
        offsets[row + 1] = at
    return lost


@kernel(leaf=True)
def put_base64(source: Any, count: Any, url: Any, out: Any, at: Any) -> Any:
    """Write `count` bytes of `source` as base64 with padding; `url` is 64 for the URL-safe alphabet, else 0."""
    position = 0
    while position + 2 < count:
        word = (np.int64(source[position]) << 16) | (np.int64(source[position + 1]) << 8) | source[position + 2]
        out[at] = _BASE64[url + (word >> 18)]
        out[at + 1] = _BASE64[url + ((word >> 12) & 63)]
        out[at + 2] = _BASE64[url + ((word >> 6) & 63)]
        out[at + 3] = _BASE64[url + (word & 63)]
        at += 4
        position += 3
    if position < count:
        word = np.int64(source[position]) << 16
        if position + 1 < count:
            word |= np.int64(source[position + 1]) << 8
        out[at] = _BASE64[url + (word >> 18)]
        out[at + 1] = _BASE64[url + ((word >> 12) & 63)]
        out[at + 2] = _BASE64[url + ((word >> 6) & 63)] if position + 1 < count else 61
        out[at + 3] = 61
        at += 4
    return at


@kernel
def binaries(
    data: Any, bounds: Any, state: Any, literals: Any, ends: Any, argument: Any, out: Any, offsets: Any
) -> Any:
    """`\\x` and hexadecimal digits as a string: base64 (argument 0), URL-safe base64 (1) or hexadecimal (2)."""
    longest = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    scratch = np.empty(longest // 2 + 1, np.uint8)
    at, lost = 0, 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        wrong = end - begin < 2 or (end - begin) % 2 != 0 or data[begin] != 92 or data[begin + 1] != 120
        count = 0
        if not wrong:
            for position in range(begin + 2, end, 2):
                high, low = _NIBBLE[data[position]], _NIBBLE[data[position + 1]]
                wrong = wrong or high == 255 or low == 255
                scratch[count] = (high << 4) | low
                count += 1
        if wrong:
            lost += 1
            at = put_literal(literals, ends, 2, out, at)
        else:
            out[at] = _QUOTE
            at += 1
            if argument == 2:
                for position in range(begin + 2, end):
                    out[at] = data[position]
                    at += 1
            else:
                at = put_base64(scratch, count, 64 if argument == 1 else 0, out, at)
            out[at] = _QUOTE
            at += 1
        offsets[row + 1] = at
    return lost
