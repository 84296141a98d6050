"""Bytes: base64 in JSON, or another text under binary.handling.mode."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import BYTES, STRING, LogicalType
from tailrace.kernels.buffers import Bytes, Offsets, binary_array, readonly
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.arrow import strings_of
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.texts import LOST, Ends, Int, ShownValues, Texts, put_literal, word, written

_HEXADECIMAL = re.compile(r"\\x(?:[0-9a-f]{2})*")
_QUOTE, _BACKSLASH, _X = 34, 92, 120
_LAST_DIGIT = 15
_NIBBLE = np.full(256, 255, np.uint8)
for _position, _digit in enumerate(b"0123456789abcdef"):
    _NIBBLE[_digit] = _position
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_BASE64 = word(_LETTERS + b"+/" + _LETTERS + b"-_")
_MODES = {"base64-url-safe": 1, "hex": 2}


def binary(mode: str, unavailable: str | None) -> Conversion:
    r"""Return the conversion of bytes, in hexadecimal digits after `\x`, under a binary.handling.mode."""
    shown = binary_text(mode)

    def convert(text: str) -> str:
        return shown(hexadecimal(text))

    family = Binaries(_MODES.get(mode, 0))
    return Conversion(binary_type(mode), convert, family, zero="", unavailable=unavailable)


def binary_type(mode: str) -> LogicalType:
    """Return the schema of bytes under a binary.handling.mode."""
    return BYTES if mode == "bytes" else STRING


def binary_text(mode: str) -> Callable[[bytes], str]:
    """Return a function that writes bytes for JSON under a binary.handling.mode."""
    if mode == "hex":
        return bytes.hex
    if mode == "base64-url-safe":
        return lambda data: base64.urlsafe_b64encode(data).decode()
    return base64_text


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def hexadecimal(text: str) -> bytes:
    r"""Return the bytes for the hexadecimal digits after `\x`."""
    if not _HEXADECIMAL.fullmatch(text):
        raise ValueError("bytes are not in hex form")
    return bytes.fromhex(text[2:])


@dataclass(frozen=True, slots=True)
class Binaries(Family):
    """Hexadecimal digits, shown as base64 (mode 0), URL-safe base64 (1) or unchanged (2)."""

    mode: int

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        return written(binaries, texts, shown, self.mode)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn | None:
        if logical.connect != "bytes":
            return strings_of(self, texts)
        out, offsets = np.empty(texts.size // 2 + 1, np.uint8), np.zeros(len(texts) + 1, np.int32)
        outcome = np.zeros(len(texts), np.uint8)
        binary_values(texts.data, texts.bounds, texts.state, out, offsets, outcome)
        return TypedColumn(binary_array(out, offsets), readonly(outcome))


@kernel(leaf=True)
def put_base64(source: Bytes, count: Int, url: int, out: Bytes, at: Int) -> Int:
    """Write `count` bytes as padded base64; `url` is 64 for the URL-safe alphabet, else 0. Return the end."""
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


@kernel(leaf=True, inlined=True)
def read_hexadecimal(data: Bytes, begin: Int, end: Int, out: Bytes, at: Int) -> Int:
    r"""Write the bytes for the digits after `\x` at `at`; return the end, or -1 for an invalid digit."""
    if end - begin < 2 or (end - begin) % 2 != 0 or data[begin] != _BACKSLASH or data[begin + 1] != _X:
        return -1
    wrong = False
    for position in range(begin + 2, end, 2):
        high, low = _NIBBLE[data[position]], _NIBBLE[data[position + 1]]
        wrong = wrong or high > _LAST_DIGIT or low > _LAST_DIGIT
        out[at] = (high << 4) | low
        at += 1
    return -1 if wrong else at


@kernel
def binaries(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    r"""Write `\x` and hexadecimal digits as a string: base64 (argument 0), URL-safe base64 (1) or hexadecimal (2)."""
    longest = 0
    for row in range(len(bounds) - 1):
        longest = max(longest, bounds[row + 1] - bounds[row])
    scratch = np.empty(longest // 2 + 1, np.uint8)
    at: Int = 0
    lost = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            at = put_literal(literals, ends, state[row] - 1, out, at)
            offsets[row + 1] = at
            continue
        begin, end = bounds[row], bounds[row + 1]
        count = read_hexadecimal(data, begin, end, scratch, 0)
        if count < 0:
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


@kernel
def binary_values(data: Bytes, bounds: Offsets, state: Bytes, out: Bytes, offsets: Offsets, outcome: Bytes) -> None:
    """Write the bytes of hexadecimal texts one after another, with their ends."""
    at: Int = 0
    for row in range(len(bounds) - 1):
        if len(state) > 0 and state[row] != 0:
            outcome[row] = state[row]
        else:
            behind = read_hexadecimal(data, bounds[row], bounds[row + 1], out, at)
            if behind < 0:
                outcome[row] = LOST
            else:
                at = behind
        offsets[row + 1] = at
