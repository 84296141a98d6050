"""Values as Java shows them in text: by `toString`, and by Kafka Connect's rules for headers. Any process."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tailrace.columns.logical import STRING, LogicalType
from tailrace.values.calendar import date_of
from tailrace.values.json_text import java_number

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DAY_MS = 86_400_000
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

Shown = Callable[[Any, LogicalType], str]


def to_string(value: Any, schema: LogicalType) -> str:
    """Return Java's `toString` of a value in its JSON form; nulls in structs are left out."""
    if value is None:
        return "null"
    if schema.connect == "struct":
        shown = (f"{part.name}={to_string(value[part.name], part.type)}" for part in schema.fields
                 if value[part.name] is not None)  # fmt: skip
        return "Struct{" + ",".join(shown) + "}"
    if schema.connect == "array" and schema.items is not None:
        items = schema.items
        return "[" + ", ".join(to_string(item, items) for item in value) + "]"
    if schema.connect == "map" and schema.items is not None:
        return "{" + ", ".join(f"{key}={item}" for key, item in _pairs(value, schema, to_string)) + "}"
    if schema.connect == "bytes" and schema.name != _DECIMAL:
        size = len(base64.b64decode(value))
        return f"java.nio.HeapByteBuffer[pos=0 lim={size} cap={size}]"
    ms = _milliseconds(value, schema)
    if ms is not None:
        days, rest = divmod(ms, _DAY_MS)
        year, month, day = date_of(days)
        return f"{_DAYS[(days + 3) % 7]} {_MONTHS[month - 1]} {day:02d} {_clock(rest)} UTC {year}"
    return _scalar(value, schema)


def in_header(value: Any, schema: LogicalType, inner: bool = False) -> str:
    """Return a value as Kafka Connect's SimpleHeaderConverter writes it; `inner`: it is part of another value."""
    if value is None:
        return "null"
    if schema.connect == "struct":
        shown = (f"{_quoted(part.name)}:{in_header(value[part.name], part.type, True)}" for part in schema.fields)
        return "{" + ",".join(shown) + "}"
    if schema.connect == "array" and schema.items is not None:
        items = schema.items
        return "[" + ",".join(in_header(item, items, True) for item in value) + "]"
    if schema.connect == "map" and schema.items is not None:
        of = _pairs(value, schema, lambda item, kind: in_header(item, kind, True))
        return "{" + ",".join(f"{key}:{item}" for key, item in of) + "}"
    if schema.connect == "string":
        return _quoted(value) if inner else str(value)
    if schema.connect == "bytes" and schema.name != _DECIMAL:
        return _quoted(value) if inner else str(value)
    ms = _milliseconds(value, schema)
    if ms is None:
        return _scalar(value, schema)
    days, rest = divmod(ms, _DAY_MS)
    time = f"{_clock(rest)}.{rest % 1000:03d}Z"
    if ms < _DAY_MS:
        # Kafka Connect takes moments before 1970 for times of day too
        return time
    year, month, day = date_of(days)
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return f"{date}T{time}" if rest else date


def _pairs(value: Any, schema: LogicalType, shown: Shown) -> list[tuple[str, str]]:
    assert schema.items is not None
    keys, items = schema.keys or STRING, schema.items
    pairs = value.items() if isinstance(value, dict) else value
    return [(shown(key, keys), shown(item, items)) for key, item in pairs]


def _scalar(value: Any, schema: LogicalType) -> str:
    if schema.name == _DECIMAL:
        whole = int.from_bytes(base64.b64decode(value), "big", signed=True)
        sign, digits, _ = Decimal(whole).as_tuple()
        return str(Decimal((sign, digits, -int(dict(schema.parameters)["scale"]))))
    if schema.connect == "boolean":
        return "true" if value else "false"
    if schema.connect in ("float", "double"):
        return java_number(repr(float(value)) if not isinstance(value, str) else value).strip('"')
    return str(value)


def _milliseconds(value: Any, schema: LogicalType) -> int | None:
    """Return the ms since 1970 of a value of Connect's date and time types; None for other types."""
    match schema.name:
        case "org.apache.kafka.connect.data.Date":
            return int(value) * _DAY_MS
        case "org.apache.kafka.connect.data.Time" | "org.apache.kafka.connect.data.Timestamp":
            return int(value)
    return None


def _clock(ms: int) -> str:
    """Return the time of day, to the second."""
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
