"""BSON as JSON text in plain Python: the reference for the kernels, and the writer of values that they cannot write.
Worker.

Kernels leave to this module documents that name a field twice (the last value counts, at the place of the first), texts
that are not UTF-8 (written with U+FFFD), very wide documents, and malformed data, which raises DecodeError here.
"""

from __future__ import annotations

import base64
import codecs
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as f
from tailrace.connectors.mongodb.values.json_forms import MOST_LEVELS, JsonForm, escaped_units
from tailrace.errors import ConversionError, DecodeError

_LAST_TEXT_DATE = 253_402_300_799_999
_REPLACEMENT = "tailrace.java"
_NAMES = {
    fields.REGEX: "regular expression", fields.DB_POINTER: "DBPointer", fields.TIMESTAMP: "timestamp",
}  # fmt: skip
_ESCAPED = escaped_units()
_SIMPLE = {
    fields.NULL: f.NULL, fields.UNDEFINED: f.UNDEFINED, fields.MIN_KEY: f.MIN_KEY, fields.MAX_KEY: f.MAX_KEY,
}  # fmt: skip
_TEXTS = {
    fields.STRING: (f.QUOTE, f.QUOTE), fields.CODE: (f.CODE, f.CODE_END), fields.SYMBOL: (f.SYMBOL, f.SYMBOL_END),
}  # fmt: skip
_INTEGERS = {fields.INT32: (f.INT, f.INT_END), fields.INT64: (f.LONG, f.LONG_END)}


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Return U+FFFD for a part that is not UTF-8, and the place after it. As in Java a surrogate in three bytes is one
    part."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, at = error.object, error.start
    if data[at] == 0xED and len(data) > at + 1 and 0xA0 <= data[at + 1] <= 0xBF:
        return "\ufffd", at + (3 if len(data) > at + 2 and 0x80 <= data[at + 2] <= 0xBF else 2)
    return "\ufffd", error.end


codecs.register_error(_REPLACEMENT, _replace)


def text_of(data: bytes) -> str:
    """Decode UTF-8 as Java does."""
    return data.decode("utf-8", _REPLACEMENT)


@dataclass(slots=True)
class _Open:
    """A document or array that is being written: its remaining items, and the piece that closes it."""

    items: Iterator[tuple[str, int, int]]
    close: int
    named: bool
    empty: bool = True


def escaped(text: str, form: JsonForm) -> str:
    """Return a text with the form's escapes, without quotes."""
    writer = _Writer(b"", form)
    writer.text(text)
    return "".join(writer.parts)


def plain_text(data: bytes, kind: int, place: int, form: JsonForm) -> str:
    """Return the text of the value of type `kind` at `place`.

    Raises DecodeError if it does not follow BSON, ConversionError if it is nested too deeply or has a type that the
    form refuses.
    """
    writer = _Writer(data, form)
    writer.value(kind, place)
    while writer.stack:
        top = writer.stack[-1]
        item = next(top.items, None)
        if item is None:
            writer.put(top.close)
            writer.stack.pop()
            continue
        if not top.empty:
            writer.put(f.SEPARATOR)
        top.empty = False
        if top.named:
            writer.put(f.QUOTE)
            writer.text(item[0])
            writer.put(f.COLON)
        writer.value(item[1], item[2])
    return "".join(writer.parts)


class _Writer:
    def __init__(self, data: bytes, form: JsonForm) -> None:
        self.data = data
        self.form = form
        self.parts: list[str] = []
        self.stack: list[_Open] = []
        self._short = form.short_escapes()

    def put(self, piece: int) -> None:
        self.parts.append(self.form.pieces[piece])

    def between(self, begin: int, text: str, end: int) -> None:
        self.parts += (self.form.pieces[begin], text, self.form.pieces[end])

    def text(self, text: str) -> None:
        """Write a text with the form's escapes."""
        for character in text:
            code = ord(character)
            if character in self._short:
                self.put(self._short[character])
            elif self.form.raw:
                self.parts.append(character if code >= 32 else "")
            else:
                units = memoryview(character.encode("utf-16-le")).cast("H").tolist()
                if len(units) == 2 or _ESCAPED[code >> 3] >> (code & 7) & 1:
                    self.parts += (f"{self.form.pieces[f.UNICODE_ESCAPE]}{unit:04x}" for unit in units)
                else:
                    self.parts.append(character)

    def value(self, kind: int, at: int) -> None:
        """Write a value. Of a document or array only the beginning is written, and the rest is pushed on the stack."""
        body = self.data[at : at + value_size(self.data, kind, at)]
        if kind in self.form.refused:
            raise ConversionError(
                f"A document has a {_NAMES[kind]} in its _id, for which keys of event.format=1.1 have no text.",
                "Set event.format=3, or leave the collection out.",
            )
        if kind == fields.DOCUMENT:
            self.open(at, f.OPEN, f.CLOSE, True)
        elif kind == fields.ARRAY:
            self.open(at, f.OPEN_ARRAY, f.CLOSE_ARRAY, False)
        elif kind == fields.SCOPED_CODE:
            self.scoped(at)
        elif kind in _SIMPLE:
            self.put(_SIMPLE[kind])
        elif kind in _TEXTS:
            begin, end = _TEXTS[kind]
            self.put(begin)
            self.text(text_of(body[4:-1]))
            self.put(end)
        elif kind in _INTEGERS:
            begin, end = _INTEGERS[kind]
            self.between(begin, str(int.from_bytes(body, "little", signed=True)), end)
        else:
            self.scalar(kind, body, at)

    def scalar(self, kind: int, body: bytes, at: int) -> None:
        """Write a value that is neither a document nor a text nor an integer."""
        if kind == fields.DOUBLE:
            self.double(struct.unpack("<d", body)[0])
        elif kind == fields.BOOLEAN:
            if body[0] > 1:
                raise DecodeError("A boolean of the log is neither 0 nor 1.", at)
            self.put(f.TRUE if body[0] else f.FALSE)
        elif kind == fields.DATE:
            self.date(int.from_bytes(body, "little", signed=True))
        elif kind == fields.OBJECT_ID:
            self.between(f.OBJECT_ID, body.hex(), f.OBJECT_ID_END)
        elif kind == fields.BINARY:
            self.binary(body[4], body[5:], at)
        elif kind == fields.DECIMAL:
            self.between(f.DECIMAL, decimal_text(body), f.DECIMAL_END)
        elif kind == fields.TIMESTAMP:
            order, seconds = struct.unpack("<II", body)
            self.between(f.STAMP, str(seconds), f.STAMP_ORDER)
            self.parts += (str(order), self.form.pieces[f.STAMP_END])
        elif kind == fields.REGEX:
            pattern, options, _ = body.split(b"\0")
            self.put(f.REGEXP)
            self.text(text_of(pattern))
            self.put(f.OPTIONS)
            self.text("".join(sorted(text_of(options))))
            self.put(f.REGEXP_END)
        else:
            self.put(f.POINTER)
            self.text(text_of(body[4:-13]))
            self.between(f.POINTER_ID, body[-12:].hex(), f.POINTER_END)

    def scoped(self, at: int) -> None:
        """Write code with a scope: in BSON the length of the whole, a text, and a document."""
        length = value_size(self.data, fields.STRING, at + 4)
        self.put(f.SCOPED)
        self.text(text_of(self.data[at + 8 : at + 3 + length]))
        self.put(f.SCOPE)
        if self.form.without_scope:
            self.put(f.SCOPE_END)
        else:
            self.open(at + 4 + length, f.OPEN, f.SCOPE_END, True)

    def open(self, at: int, begin: int, close: int, named: bool) -> None:
        if len(self.stack) == MOST_LEVELS:
            raise ConversionError(f"A document is nested in more than {MOST_LEVELS} levels.")
        found = list(items(self.data, at))
        if named:
            # the last of equal names takes the place of the first
            found = list({item[0]: item for item in found}.values())
        self.put(begin)
        self.stack.append(_Open(iter(found), close, named))

    def double(self, value: float) -> None:
        if math.isfinite(value):
            self.between(f.DOUBLE, double_text(value), f.DOUBLE_END)
        else:
            text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            self.between(f.ODD, text, f.ODD_END)

    def date(self, ms: int) -> None:
        if self.form.text_dates and 0 <= ms <= _LAST_TEXT_DATE:
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
            fraction = f".{ms % 1000:03d}".rstrip("0").rstrip(".")
            text = moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"
            self.between(f.TEXT_DATE, text, f.TEXT_DATE_END)
        else:
            self.between(f.DATE, str(ms), f.DATE_END)

    def binary(self, subtype: int, content: bytes, at: int) -> None:
        if subtype == 2:
            if len(content) < 4 or int.from_bytes(content[:4], "little") != len(content) - 4:
                raise DecodeError("Binary data of subtype 2 has two lengths that differ.", at)
            content = content[4:]
        if subtype in (3, 4) and len(content) == 16 and self.form.uuid != f.KEEP_UUID:
            turned = content[7::-1] + content[:7:-1]
            if self.form.uuid == f.NAME_UUID:
                digits = (turned if subtype == 3 else content).hex()
                text = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
                self.between(f.UUID, text, f.UUID_END)
                return
            subtype, content = 3, turned if subtype == 4 else content
        self.between(f.BINARY, base64.b64encode(content).decode(), f.SUBTYPE)
        number = subtype - 256 if subtype > 127 else subtype
        self.parts += (str(number) if self.form.signed_subtype else f"{subtype:02X}", self.form.pieces[f.BINARY_END])


def value_size(data: bytes, kind: int, at: int) -> int:
    """Return the size of a value in bytes. Raises DecodeError if it goes beyond `data`, or its type is unknown."""
    fixed = {
        fields.DOUBLE: 8, fields.UNDEFINED: 0, fields.OBJECT_ID: 12, fields.BOOLEAN: 1, fields.DATE: 8,
        fields.NULL: 0, fields.INT32: 4, fields.TIMESTAMP: 8, fields.INT64: 8, fields.DECIMAL: 16,
        fields.MIN_KEY: 0, fields.MAX_KEY: 0,
    }  # fmt: skip
    counted = {
        fields.STRING: (4, 1), fields.CODE: (4, 1), fields.SYMBOL: (4, 1), fields.DB_POINTER: (16, 1),
        fields.BINARY: (5, 0), fields.DOCUMENT: (0, 5), fields.ARRAY: (0, 5), fields.SCOPED_CODE: (0, 14),
    }  # fmt: skip
    if kind in fixed:
        size = fixed[kind]
    elif kind in counted:
        extra, least = counted[kind]
        length = int.from_bytes(data[at : at + 4], "little", signed=True)
        size = length + extra
        if at + 4 > len(data) or length < least:
            raise DecodeError("A value of the log has an impossible length.", at)
    elif kind == fields.REGEX:
        middle = data.find(b"\0", at)
        end = data.find(b"\0", middle + 1) if middle >= 0 else -1
        size = end + 1 - at if end >= 0 else len(data) + 1
    else:
        raise DecodeError(f"The log has a value of type {kind}, which BSON does not know.", at)
    if at + size > len(data):
        raise DecodeError("A value of the log goes beyond its document.", at)
    if kind in (fields.STRING, fields.CODE, fields.SYMBOL) and data[at + size - 1] != 0:
        raise DecodeError("A text of the log does not end with a zero byte.", at)
    if kind == fields.DB_POINTER and data[at + size - 13] != 0:
        raise DecodeError("A text of the log does not end with a zero byte.", at)
    return size


def items(data: bytes, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield names, types and places of the elements of the document or array at `at`. Raises DecodeError."""
    end = at + value_size(data, fields.DOCUMENT, at) - 1
    if data[end] != 0:
        raise DecodeError("A document of the log does not end with a zero byte.", at)
    within = data[:end]
    at += 4
    while at < end:
        stop = within.find(b"\0", at + 1)
        if stop < 0:
            raise DecodeError("A field of the log has no end of its name.", at)
        yield text_of(within[at + 1 : stop]), data[at], stop + 1
        at = stop + 1 + value_size(within, data[at], stop + 1)


def double_text(value: float) -> str:
    """Return a finite double as Java before 19 writes it; see `values.doubles`."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    value = abs(value)
    if value == 0:
        return sign + "0.0"
    mantissa, exponent = math.frexp(value)
    whole, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    if value < 2.0**63 and value == int(value):
        cut = int((exponent - 2) * math.log10(2)) if exponent > 3 else 0
        digits, last = (int(value) + 10**cut // 2) // 10**cut, cut
    else:
        digits, last = _between_midpoints(whole, exponent)
    text = str(digits).rstrip("0")
    first = last + len(str(digits)) - 1
    if len(text) == 1 and value < 1e-322:
        units = round(value / 5e-324)
        if units == 1 or 10 <= units <= 18:
            text, first = ("49", -324) if units == 1 else (str((units * 494 + 50) // 100), -323)
    if -3 <= first < 0:
        return f"{sign}0.{'0' * (-first - 1)}{text}"
    if 0 <= first < 7:
        text = text.ljust(first + 2, "0")
        return f"{sign}{text[: first + 1]}.{text[first + 1 :]}"
    return f"{sign}{text[0]}.{text[1:] or '0'}E{first}"


def _between_midpoints(whole: int, exponent: int) -> tuple[int, int]:
    """Return the shortest decimal strictly between the midpoints to the neighbours; of several the nearest."""
    lowest = -1074
    if exponent < lowest:
        whole, exponent = whole >> (lowest - exponent), lowest
    half = Fraction(2) ** exponent / 2
    if whole & (whole - 1) == 0:
        half /= 2
    value = whole * Fraction(2) ** exponent
    place = math.floor(math.log10(float(value))) + 2 if value > 0 else 0
    while True:
        unit = Fraction(10) ** place
        near = round(value / unit)
        # of two equally near numbers `round` chooses the even one
        for digits in sorted((near, near - 1, near + 1), key=lambda digits: abs(digits * unit - value)):
            if digits > 0 and value - half < digits * unit < value + half:
                return digits, place
        place -= 1


def decimal_text(body: bytes) -> str:
    """Return the 16 bytes of a decimal128 in the notation of BSON's specification of decimals."""
    low, high = struct.unpack("<QQ", body)
    sign = high >> 63
    combination = high >> 58 & 31
    if combination >= 30:
        return "NaN" if combination == 31 else "-Infinity" if sign else "Infinity"
    if high >> 61 & 3 == 3:
        exponent, digits = (high >> 47 & 0x3FFF) - 6176, 0
    else:
        exponent, digits = (high >> 49 & 0x3FFF) - 6176, (high & (1 << 49) - 1) << 64 | low
    return str(Decimal((sign, tuple(map(int, str(digits))), exponent)))
