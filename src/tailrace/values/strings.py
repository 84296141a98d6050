"""Strings: unchanged texts, under semantic names for their content."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.columns.logical import STRING, LogicalType, semantic
from tailrace.kernels.buffers import Bytes, Offsets, move
from tailrace.kernels.compiled import kernel
from tailrace.kernels.programs import Fragment
from tailrace.values.conversion import Conversion, Family, TypedColumn
from tailrace.values.texts import Ends, Int, ShownValues, Texts, is_ascii, put_literal, word, written

UUID = semantic(STRING, "io.debezium.data.Uuid")
JSON = semantic(STRING, "io.debezium.data.Json")
XML = semantic(STRING, "io.debezium.data.Xml")
LTREE = semantic(STRING, "io.debezium.data.Ltree")
TSVECTOR = semantic(STRING, "io.debezium.data.Tsvector")

_QUOTE = 34
_ESCAPES = np.zeros(256, np.uint8)
_ESCAPES[:32] = 1
_ESCAPES[240:248] = 2
for _code, _letter in ((34, '"'), (92, "\\"), (8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _ESCAPES[_code] = ord(_letter)
_HEX_UPPER = word(b"0123456789ABCDEF")


def enumeration(labels: tuple[str, ...]) -> LogicalType:
    """Return the schema of one of the labels."""
    return semantic(STRING, "io.debezium.data.Enum", allowed=",".join(labels))


def text(schema: LogicalType = STRING, zero: str = "", unavailable: str | None = None) -> Conversion:
    """Return the conversion of unchanged text; `schema` may give it a semantic name."""
    return Conversion(schema, string, STRINGS, zero=zero, unavailable=unavailable)


def string(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Strings(Family):
    """Unchanged texts."""

    def json(self, texts: Texts, shown: ShownValues) -> tuple[Fragment, int]:
        escapes = int(count_escapes(texts.data, int(texts.bounds[0]), int(texts.bounds[-1])))
        if len(texts.state) == 0 and escapes == 0:
            return Fragment(texts.data, texts.bounds, quoted=True), 0
        return written(strings, texts, shown, escapes, each=2, more=8 * escapes)

    def arrow(self, texts: Texts, logical: LogicalType, of: pa.DataType) -> TypedColumn:
        # a cast would check for invalid UTF-8, character by character
        plain = is_ascii(texts.data, int(texts.bounds[0]), int(texts.bounds[-1]))
        return TypedColumn(texts.column.view(of) if plain else texts.column.cast(of), texts.state)


STRINGS = Strings()


@kernel
def count_escapes(data: Bytes, begin: int, end: int) -> Int:
    """Return how many of the bytes JSON must escape."""
    # The compiler vectorises this, which is thirty times faster, for two reasons: sums of single bytes run over lengths
    # too short to overflow, and indexes cannot be negative.
    count = np.int64(0)
    part = data[begin:end]
    for start in range(0, len(part), 128):
        found = np.uint8(0)
        for byte in part[start : start + 128]:
            short = (byte < np.uint8(32)) | (byte == np.uint8(34)) | (byte == np.uint8(92))
            found = np.uint8(found + np.uint8(short | (byte >= np.uint8(240))))
        count += np.int64(found)
    return count


@kernel(leaf=True)
def put_unit(unit: Int, out: Bytes, at: Int) -> Int:
    """Write the escape of a UTF-16 unit; return the end."""
    out[at] = 92
    out[at + 1] = 117
    for digit in range(4):
        out[at + 2 + digit] = _HEX_UPPER[(unit >> (12 - 4 * digit)) & 15]
    return at + 6


@kernel
def strings(
    data: Bytes, bounds: Offsets, state: Bytes, literals: Bytes, ends: Ends, argument: int, out: Bytes, offsets: Offsets
) -> int:
    """Write text as JSON strings; argument 0: nothing in them must be escaped."""
    source, target = data.ctypes.data, out.ctypes.data
    at: Int = np.int64(0)
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
