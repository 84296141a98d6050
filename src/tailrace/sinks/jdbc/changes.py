"""Conversion of a record, as JSON with schemas, into the key and the columns of a PostgreSQL row. No I/O. Driver."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tailrace.values.calendar import INT64_MAX, civil, iso_day
from tailrace.values.timestamps import INFINITY_US, MINUS_INFINITY_US, iso_instant

# --- fields -----------------------------------------------------------------------------------------------------------

Schema = Mapping[str, Any]
"""The schema of a field, parsed from JSON."""
Text = Callable[[Any], str]

_DAY_US = 86_400_000_000
_MOST_BITS = 83_886_080
"""The longest bit string that a type of PostgreSQL can name."""
_INT32_MAX, _INT32_MIN = 2**31 - 1, -(2**31)
# The year of a date: signed unless it has four digits; 0 is the year 1 BC.
_YEAR = re.compile(r"([+-]?[0-9]{4,})(?=-)")
_INFINITE = {
    **{f"{iso_day(day)}": word for day, word in ((_INT32_MAX, "infinity"), (_INT32_MIN, "-infinity"))},
    **{
        iso_instant(us, None).removesuffix("Z"): word
        for us, word in ((INFINITY_US, "infinity"), (MINUS_INFINITY_US, "-infinity"))
    },
}


class _Number(str):
    """A number of JSON with a fraction or an exponent, as its text: `1E+2` is also base64."""

    __slots__ = ()


class Unsupported(Exception):
    """A field of a type that the sink cannot write. The text names the type and holds no data."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field's type in PostgreSQL, and the function that converts a value, not null, into text."""

    type: str
    text: Text


def kind_of(schema: Schema) -> FieldType:
    """Return the type of a field with this schema. Raises Unsupported."""
    name = str(schema.get("name") or "")
    form = str(schema.get("type") or "")
    parameters = schema.get("parameters") or {}
    if name in _NAMED:
        return _NAMED[name]
    if name == "org.apache.kafka.connect.data.Decimal":
        scale = int(parameters.get("scale", 0))
        precision = parameters.get("connect.decimal.precision")
        return FieldType(
            f"numeric({precision},{scale})" if precision else "numeric", lambda value: _decimal(value, scale)
        )
    if name == "io.debezium.data.Bits":
        length = int(parameters.get("length", 0))
        if length > _MOST_BITS:
            # a type without a length
            length = 0
        return FieldType(f"bit varying({length})" if length else "bit varying", lambda value: _bits(value, length))
    if form == "array":
        items = kind_of(schema.get("items") or {})
        if items.type.endswith("[]"):
            # In PostgreSQL the type of an array does not depend on the number of dimensions.
            return FieldType(items.type, lambda value: "{" + ",".join(map(items.text, value)) + "}")
        return FieldType(f"{items.type}[]", lambda value: _array(value, items.text))
    if form in _PLAIN:
        return _PLAIN[form]
    raise Unsupported(f"of the type {name or form or 'without a schema'}")


def _date(days: int) -> str:
    if days in (_INT32_MAX, _INT32_MIN):
        return "infinity" if days > 0 else "-infinity"
    year, month, day = civil(days)
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{era}"


def _time_of(us: int) -> str:
    seconds, fraction = divmod(us, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def _timestamp(us: int) -> str:
    if us in (INFINITY_US, MINUS_INFINITY_US):
        return "infinity" if us > 0 else "-infinity"
    day, rest = divmod(us, _DAY_US)
    date, bc, _ = _date(day).partition(" BC")
    return f"{date} {_time_of(rest)}{bc}"


def _milli(text: Text) -> Text:
    return lambda value: text(value * 1000)


def _nano(text: Text) -> Text:
    return lambda value: text(value // 1000)


def _nano_timestamp(ns: int) -> str:
    # The infinities are the limits of int64.
    if ns in (INT64_MAX, -INT64_MAX - 1):
        return "infinity" if ns > 0 else "-infinity"
    return _timestamp(ns // 1000)


def _milli_timestamp(ms: int) -> str:
    # The infinities are those in µs, truncated to ms.
    if ms in (INFINITY_US // 1000, MINUS_INFINITY_US // 1000):
        return "infinity" if ms > 0 else "-infinity"
    return _timestamp(ms * 1000)


def _decimal(value: Any, scale: int) -> str:
    """Return a decimal from its unscaled number in base64. A value that is not a text is a number in JSON."""
    if not isinstance(value, str) or isinstance(value, _Number):
        return str(value)
    unscaled = int.from_bytes(_decoded(value), "big", signed=True)
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = f"{abs(unscaled):0{scale + 1}d}"
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _variable(value: Mapping[str, Any]) -> str:
    return _decimal(value["value"], int(value["scale"]))


def _bits(value: str, length: int) -> str:
    """Return little-endian bytes, in base64, as a bit string of `length` bits; 0 for no fixed length."""
    number = int.from_bytes(_decoded(value), "little")
    return f"{number:0{length}b}"[-length:] if length else f"{number:b}"


def _bytes(value: str) -> str:
    return f"\\x{_decoded(value).hex()}"


def _decoded(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _duration(us: int) -> str:
    return f"{us} microseconds"


def _without_zone(value: str) -> str:
    return _iso(value.removesuffix("Z"))


def _iso(value: str) -> str:
    """Return an ISO text in PostgreSQL's form: with the word infinity, years before Christ with BC, and no sign of
    years."""
    if value in _INFINITE:
        return _INFINITE[value]
    found = _YEAR.match(value)
    if found is None:
        return value
    year = int(found[1])
    era = "" if year > 0 else " BC"
    return f"{year if year > 0 else 1 - year:04d}{value[found.end() :]}{era}"


def _array(value: list[Any], text: Text) -> str:
    parts = []
    for item in value:
        if item is None:
            parts.append("NULL")
        else:
            escaped = text(item).replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
    return "{" + ",".join(parts) + "}"


_PLAIN = {
    "int8": FieldType("smallint", str),
    "int16": FieldType("smallint", str),
    "int32": FieldType("integer", str),
    "int64": FieldType("bigint", str),
    "float": FieldType("real", str),
    "double": FieldType("double precision", str),
    "boolean": FieldType("boolean", _boolean),
    "string": FieldType("text", str),
    "bytes": FieldType("bytea", _bytes),
}
_NAMED = {
    **dict.fromkeys(("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"), FieldType("date", _date)),
    **dict.fromkeys(
        ("io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), FieldType("time(6)", _milli(_time_of))
    ),
    "io.debezium.time.MicroTime": FieldType("time(6)", _time_of),
    "io.debezium.time.NanoTime": FieldType("time(6)", _nano(_time_of)),
    "io.debezium.time.ZonedTime": FieldType("timetz(6)", str),
    **dict.fromkeys(
        ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"),
        FieldType("timestamp(6)", _milli_timestamp),
    ),
    "io.debezium.time.MicroTimestamp": FieldType("timestamp(6)", _timestamp),
    "io.debezium.time.NanoTimestamp": FieldType("timestamp(6)", _nano_timestamp),
    "io.debezium.time.ZonedTimestamp": FieldType("timestamptz(6)", _iso),
    "io.debezium.time.IsoDate": FieldType("date", _without_zone),
    "io.debezium.time.IsoTime": FieldType("time(6)", _without_zone),
    "io.debezium.time.IsoTimestamp": FieldType("timestamp(6)", _without_zone),
    "io.debezium.time.Interval": FieldType("interval", str),
    "io.debezium.time.MicroDuration": FieldType("interval", _duration),
    "io.debezium.time.NanoDuration": FieldType("interval", _nano(_duration)),
    "io.debezium.data.VariableScaleDecimal": FieldType("numeric", _variable),
    "io.debezium.data.Json": FieldType("json", str),
    "io.debezium.data.Xml": FieldType("xml", str),
    "io.debezium.data.Uuid": FieldType("uuid", str),
    "io.debezium.data.Ltree": FieldType("ltree", str),
    "io.debezium.data.Tsvector": FieldType("tsvector", str),
    **dict.fromkeys(("io.debezium.data.Enum", "io.debezium.data.EnumSet"), FieldType("text", str)),
}
"""Types by the semantic name of a field. Values are in their JSON form."""


# --- changes ----------------------------------------------------------------------------------------------------------


_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'


class UnreadableRecord(Exception):
    """A record from which no row can be read. The text, the reason, holds no data; `remedy` is "" or a sentence."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of a row. `text` is its value, None for null; `required` is True for a NOT NULL column."""

    name: str
    kind: FieldType
    text: str | None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """A key or a value with its schema. `payload` is None for null."""

    schema: Mapping[str, Any]
    payload: Any

    @property
    def is_envelope(self) -> bool:
        return str(self.schema.get("name") or "").endswith(".Envelope")


class Reader:
    """A reader of JSON with schemas, which parses a schema once for all consecutive records that share it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Mapping[str, Any]]] = {}

    def read(self, data: bytes, where: str) -> Parsed:
        """Parse a document. `where` names a topic or a topic's keys, which share a schema. Raises UnreadableRecord."""
        start, schema = self._known.get(where, (b"", {}))
        if not start or not data.startswith(start):
            start, schema = self._begin(data)
            self._known[where] = start, schema
        try:
            return Parsed(schema, json.loads(data[len(start) : -1], parse_float=_Number))
        except ValueError:
            raise UnreadableRecord("it is not JSON") from None

    def _begin(self, data: bytes) -> tuple[bytes, Mapping[str, Any]]:
        """Return the bytes before the payload, and the schema in them."""
        if not data.startswith(_SCHEMA):
            raise UnreadableRecord("it has no schema")
        try:
            text = data.decode()
            schema, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA))
        except ValueError:
            raise UnreadableRecord("it is not JSON") from None
        start = text[:end].encode() + _PAYLOAD
        if not isinstance(schema, dict) or not data.startswith(start):
            raise UnreadableRecord("it has no schema")
        return start, schema


def header_payload(data: bytes) -> Any:
    """Return the value of a header in JSON with or without a schema. Raises UnreadableRecord."""
    try:
        found = json.loads(data, parse_float=_Number)
    except ValueError:
        raise UnreadableRecord("a header is not JSON") from None
    return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found


def cells(schema: Mapping[str, Any], payload: Mapping[str, Any]) -> list[Cell]:
    """Return the columns of a struct in order. Raises UnreadableRecord for a field that cannot be written."""
    found = []
    for field in schema.get("fields") or ():
        name = field["field"]
        try:
            kind = _kind(json.dumps(field))
            value = payload.get(name)
            text = None if value is None else kind.text(value)
        except Unsupported as reason:
            raise UnreadableRecord(f"its field {name} is {reason}, which the sink does not write") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UnreadableRecord(f"its field {name} has a value that its schema does not allow") from None
        found.append(Cell(name, kind, text, not field.get("optional", False)))
    return found


@lru_cache(maxsize=10_000)
def _kind(field: str) -> FieldType:
    return kind_of(json.loads(field))


def part(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the schema of a struct's field; {} if there is none."""
    return next((field for field in schema.get("fields") or () if field["field"] == name), {})


def placeholders(placeholder: bytes) -> frozenset[str]:
    """Return all texts that stand for an unavailable value, one for each form of a column."""
    encoded = base64.b64encode(placeholder).decode()
    word = placeholder.decode("utf-8", "replace")
    forms = {
        word,
        encoded,
        base64.urlsafe_b64encode(placeholder).decode(),
        placeholder.hex(),
        f"\\x{placeholder.hex()}",
    }
    maps = (json.dumps({word: word}, separators=separators) for separators in ((",", ":"), (", ", ": ")))
    # Arrays of numbers and of days have the placeholder's bytes as Java's numbers, arrays of UUIDs its MD5.
    numbers = [(byte ^ 0x80) - 0x80 for byte in placeholder]
    name = str(uuid.UUID(bytes=hashlib.md5(placeholder, usedforsecurity=False).digest(), version=3))
    arrays = (
        _array(numbers, str),
        _array(numbers, _date),
        _array([name], str),
        *(_array([form], str) for form in forms),
    )
    return frozenset({*forms, *arrays, *maps})
