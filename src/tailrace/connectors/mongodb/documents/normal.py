"""Values of BSON after a round trip through the text of an event. Worker.

The text of a document does not distinguish all of BSON: a document {"$date": 5} looks like a date. Such values, and
strings that are not UTF-8, become the value that a consumer reads from their text.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue, read
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.json_forms import KEY, KEY_1_1, JsonForm
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.errors import ConversionError


def normal(data: bytes, kind: int, place: int, form: JsonForm) -> tuple[int, bytes]:
    """Return the type and the bytes of the value that the text of the value at `place` means, in the given form.

    Raises ConversionError and DecodeError.
    """
    value = read(plain_text(data, kind, place, form))
    if kind == fields.DOCUMENT and form not in (KEY, KEY_1_1) and not isinstance(value, ExtendedDocument):
        # a document with only the fields of a wrapper was read as the wrapped value
        raise ConversionError("An event's document has the form of a single value of extended JSON.")
    try:
        return encoded(value)
    except (struct.error, ValueError):
        # a wrapper in a document may claim a number beyond the bits of its type
        raise ConversionError("An event's document has the form of a value that BSON cannot hold.") from None


def encoded(value: Any) -> tuple[int, bytes]:
    """Return a value of `extended` as its type and bytes in BSON. Raises struct.error or ValueError if it has none."""
    if isinstance(value, str):
        return fields.STRING, _text(value)
    if isinstance(value, bool):
        return fields.BOOLEAN, bytes([value])
    if isinstance(value, int):
        return fields.INT32, struct.pack("<i", value)
    if isinstance(value, float):
        return fields.DOUBLE, struct.pack("<d", value)
    if value is None:
        return fields.NULL, b""
    if isinstance(value, ExtendedDocument):
        return fields.DOCUMENT, _document(value.items())
    if isinstance(value, list):
        return fields.ARRAY, _document((str(number), item) for number, item in enumerate(value))
    return _typed(value)


def _typed(value: TypedValue) -> tuple[int, bytes]:
    kind, inner = value.kind, value.value
    if kind in ("int64", "date"):
        return fields.INT64 if kind == "int64" else fields.DATE, struct.pack("<q", inner)
    if kind == "decimal":
        return _decimal(inner)
    if kind in ("code", "symbol"):
        return fields.CODE if kind == "code" else fields.SYMBOL, _text(inner)
    if kind == "objectId":
        # a wrapper in a document may claim any text
        is_one = re.fullmatch("[0-9a-f]{24}", inner) is not None
        return (fields.OBJECT_ID, bytes.fromhex(inner)) if is_one else (fields.STRING, _text(inner))
    if kind == "timestamp":
        return fields.TIMESTAMP, struct.pack("<II", inner[1] & 0xFFFFFFFF, inner[0] & 0xFFFFFFFF)
    if kind == "binary":
        # subtype 2, the old form of binary data, repeats the length
        content = struct.pack("<i", len(inner[0])) + inner[0] if inner[1] == 2 else inner[0]
        return fields.BINARY, struct.pack("<iB", len(content), inner[1]) + content
    if kind == "regex":
        if any("\0" in part for part in inner):
            raise ValueError("a zero byte ends each part of a regular expression")
        return fields.REGEX, b"".join(part.encode("utf-8", "surrogatepass") + b"\0" for part in inner)
    if kind == "scopedCode":
        body = _text(inner[0]) + _document(inner[1].items())
        return fields.SCOPED_CODE, struct.pack("<i", len(body) + 4) + body
    if kind == "dbPointer":
        if re.fullmatch("[0-9a-f]{24}", inner[1]) is None:
            raise ValueError("a pointer has an ObjectId")
        return fields.DB_POINTER, _text(inner[0]) + bytes.fromhex(inner[1])
    return {"undefined": fields.UNDEFINED, "minKey": fields.MIN_KEY, "maxKey": fields.MAX_KEY}[kind], b""


def _decimal(text: str) -> tuple[int, bytes]:
    """Return a decimal as type and bytes in BSON; a text that is not a decimal in canonical form becomes a string."""
    from bson import Decimal128

    try:
        made = Decimal128(text)
    except (ArithmeticError, ValueError):
        return fields.STRING, _text(text)
    return (fields.DECIMAL, made.bid) if str(made) == text else (fields.STRING, _text(text))


def _text(text: str) -> bytes:
    content = text.encode("utf-8", "replace")
    return struct.pack("<i", len(content) + 1) + content + b"\0"


def _document(items: Any) -> bytes:
    body = b""
    for name, value in items:
        kind, content = encoded(value)
        body += bytes([kind]) + name.encode("utf-8", "replace") + b"\0" + content
    return struct.pack("<i", len(body) + 5) + body + b"\0"
