"""Typed rows of MongoDB: documents as variants, read from BSON. Worker.

Numbers, texts, dates and binary data keep their types. An ObjectId becomes its hexadecimal digits, a UUID its text, a
Decimal128 of at most 38 digits a decimal. Types that a variant does not have become objects or texts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pyarrow as pa

from tailrace.connectors.mongodb.records.images import Values
from tailrace.connectors.mongodb.records.texts import Edit
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Bytes
from tailrace.errors import DecodeError
from tailrace.formats.typed.variant import document_variants
from tailrace.kernels.programs import Fragment
from tailrace.values.fragments import json_array

_UUID = 4


def documents(data: Bytes, found: Values, edit: Edit | None = None) -> pa.Array:
    """Return documents as variants, after `edit`; null if there is none. Raises DecodeError."""
    made = _decoded(data, found, edit)
    return document_variants(made, [one is not None for one in made])


def keys(data: Bytes, found: Values) -> pa.Array:
    """Return the keys, objects with the one field `id`."""
    places = zip(found.places.tolist(), found.kinds.tolist(), strict=True)
    made = [None if place < 0 else {"id": _value(data, place, kind)} for place, kind in places]
    return document_variants(made, [one is not None for one in made])


def updates(data: Bytes, updated: Values, shown: Fragment, edit: Edit | None) -> pa.Array:
    """Return the descriptions of updates, whose JSON is `shown`, as variants in which changed fields keep their
    types."""
    changed = _decoded(data, updated, edit)
    made: list[dict[str, Any] | None] = []
    for text, fresh in zip(json_array(shown).to_pylist(), changed, strict=True):
        description = json.loads(text)
        made.append(None if description is None else description | {"updatedFields": fresh})
    return document_variants(made, [one is not None for one in made])


def _decoded(data: Bytes, found: Values, edit: Edit | None) -> list[dict[str, Any] | None]:
    places = found.places
    if edit is not None:
        data, places = edit(data, places, found.kinds)
    return [None if place < 0 else _plain(_document(data, place)) for place in places.tolist()]


def _value(data: Bytes, place: int, kind: int) -> Any:
    """Return a value of any type, decoded as the only field of a document."""
    size = int(fields.value_size(data, kind, place, len(data)))
    if size < 0:
        raise DecodeError("A key does not follow the BSON format.", place)
    body = bytes([kind]) + b"v\0" + data[place : place + size].tobytes() + b"\0"
    return _plain(_read(struct.pack("<i", len(body) + 4) + body, place)["v"])


def _document(data: Bytes, place: int) -> Mapping[str, Any]:
    size = int(fields.load(data, place))
    return _read(data[place : place + size].tobytes(), place)


def _read(document: bytes, place: int) -> Mapping[str, Any]:
    import bson
    from bson.codec_options import CodecOptions, DatetimeConversion

    options: CodecOptions[dict[str, Any]] = CodecOptions(
        tz_aware=True,
        tzinfo=UTC,
        unicode_decode_error_handler="replace",
        datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    )
    try:
        return bson.decode(document, options)
    except bson.errors.BSONError as error:
        raise DecodeError(f"A document is malformed: {type(error).__name__}.", place) from None


def _plain(value: Any) -> Any:
    """Return a value of BSON as a value that a variant can hold."""
    if value is None or type(value) in (bool, int, float, str, bytes, datetime):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return _special(value)


def _special(value: Any) -> Any:
    import bson
    from bson import dbref, regex, timestamp
    from bson.datetime_ms import DatetimeMS

    match value:
        case bson.ObjectId() | bson.MinKey() | bson.MaxKey():
            return str(value) if isinstance(value, bson.ObjectId) else type(value).__name__
        case bson.Int64():
            return int(value)
        case bson.Decimal128():
            return value.to_decimal()
        case bson.Code():
            return str(value) if value.scope is None else {"code": str(value), "scope": _plain(value.scope)}
        case bson.Binary():
            whole = value.subtype == _UUID and len(value) == 16
            return str(UUID(bytes=bytes(value))) if whole else bytes(value)
        case timestamp.Timestamp():
            return {"i": value.inc, "t": value.time}
        case regex.Regex():
            return {"options": str(regex_options(value.flags)), "pattern": value.pattern}
        case dbref.DBRef():
            return _plain(dict(value.as_doc()))
        case DatetimeMS():
            return {"ms": int(value)}
    return str(value)


def regex_options(flags: int) -> str:
    """Return the letters of a regular expression's options."""
    import re

    known = {"i": re.IGNORECASE, "l": re.LOCALE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.UNICODE, "x": re.VERBOSE}
    return "".join(letter for letter, flag in known.items() if flags & flag)
