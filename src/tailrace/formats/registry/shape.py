"""The shape of an Avro schema: what decides how its bytes are written, and what they mean. Any process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of values beyond their type, such as a decimal's scale or a moment's unit; None if not stated.

    `is_known`: the schema states meanings, so None means that there is none.
    """

    value: Any
    is_known: bool = False


def alike(own: Any, other: Any) -> bool:
    """Return True if shapes are equal and no meaning in `other` contradicts `own`."""
    if isinstance(own, Meaning) and isinstance(other, Meaning):
        return other.value in (None, own.value) or (own.value is None and not own.is_known)
    if isinstance(own, list) and isinstance(other, list):
        return len(own) == len(other) and all(map(alike, own, other))
    return bool(own == other)


def shape(text: str) -> Any:
    """Return the types with their meanings, and field names in their order; named types by full names."""
    return _shape(json.loads(text), "", '"connect.name"' in text)


def _shape(schema: Any, space: str, tells: bool) -> Any:
    if isinstance(schema, list):
        return [_shape(branch, space, tells) for branch in schema]
    if isinstance(schema, str):
        if schema in _PLAIN:
            return [schema, Meaning(None, tells)]
        return schema if "." in schema or not space else f"{space}.{schema}"
    kind = schema["type"]
    if kind in ("record", "enum", "fixed"):
        name = str(schema["name"])
        own = name.rpartition(".")[0] or str(schema.get("namespace", space))
        full = name if "." in name or not own else f"{own}.{name}"
        fields = [[part["name"], _shape(part["type"], own, tells)] for part in schema.get("fields", ())]
        meaning = [_meaning(schema, tells)] if kind == "fixed" else []
        return [kind, full, fields, schema.get("symbols"), schema.get("size"), *meaning]
    if kind in ("array", "map"):
        return [kind, _shape(schema["items" if kind == "array" else "values"], space, tells)]
    if isinstance(kind, str) and kind in _PLAIN:
        return [kind, _meaning(schema, tells)]
    return _shape(kind, space, tells)


def _meaning(schema: dict[str, Any], tells: bool) -> Meaning:
    name = schema.get("connect.name")
    logical = _LOGICAL.get(str(schema.get("logicalType")))
    if _DECIMAL in (name, logical):
        scale: Any = schema.get("scale", dict(schema.get("connect.parameters") or {}).get("scale", 0))
        return Meaning((_DECIMAL, int(scale)), tells)
    return Meaning(_SAME.get(str(name), name) or logical, tells)


_PLAIN = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LOGICAL = {
    "decimal": _DECIMAL,
    "date": "io.debezium.time.Date",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_SAME = {f"org.apache.kafka.connect.data.{name}": f"io.debezium.time.{name}" for name in ("Date", "Time", "Timestamp")}
"""Kafka Connect's own types correspond to Debezium's of the same unit."""
