"""Extended JSON in Debezium's texts, read back to values of BSON. Worker.

Exactly the forms that `json_forms` writes are read. An object that looks like a wrapper of a type, but is incomplete,
is a document.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tailrace.connectors.mongodb.values.json_forms import STRICT
from tailrace.connectors.mongodb.values.plain_json import escaped
from tailrace.errors import ConversionError
from tailrace.values.doubles import double_text


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value whose type JSON does not have: the name of its BSON type, and the value.

    | kind | value |
    |---|---|
    | int64, date | int; a date in ms |
    | double, decimal, symbol, code, objectId | float, str |
    | binary | (bytes, subtype) |
    | timestamp | (seconds, increment) |
    | regex | (pattern, options) |
    | scopedCode | (code, document) |
    | dbPointer | (name, id as a hexadecimal str) |
    | undefined, minKey, maxKey | None |
    """

    kind: str
    value: Any


class ExtendedDocument(dict[str, Any]):
    """A document: its fields in order. Values are str, int (an int32), float, bool, None, list, ExtendedDocument and
    TypedValue."""

    __slots__ = ()


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _long(value: Any) -> TypedValue | None:
    return TypedValue("int64", int(value)) if isinstance(value, str) else None


def _double(value: Any) -> float | None:
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else None


def _date(value: Any) -> TypedValue | None:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return TypedValue("date", int(moment.timestamp()) * 1000 + moment.microsecond // 1000)
    if isinstance(value, TypedValue) and value.kind == "int64":
        return TypedValue("date", value.value)
    return TypedValue("date", value) if type(value) is int else None


def _binary(value: Any) -> TypedValue | None:
    if isinstance(value, ExtendedDocument) and set(value) == {"base64", "subType"} and _are_texts(*value.values()):
        return TypedValue("binary", (base64.b64decode(value["base64"]), int(value["subType"], 16)))
    return None


def _timestamp(value: Any) -> TypedValue | None:
    if isinstance(value, ExtendedDocument) and list(value) == ["t", "i"]:
        seconds, order = (part.value if isinstance(part, TypedValue) else part for part in value.values())
        return TypedValue("timestamp", (seconds, order)) if type(seconds) is type(order) is int else None
    return None


def _regex(value: Any) -> TypedValue | None:
    if isinstance(value, ExtendedDocument) and list(value) == ["pattern", "options"] and _are_texts(*value.values()):
        return TypedValue("regex", (value["pattern"], value["options"]))
    return None


def _pointer(value: Any) -> TypedValue | None:
    if isinstance(value, ExtendedDocument) and list(value) == ["$ref", "$id"] and isinstance(value["$ref"], str):
        inner = value["$id"]
        if isinstance(inner, TypedValue) and inner.kind == "objectId":
            return TypedValue("dbPointer", (value["$ref"], inner.value))
    return None


def _text(kind: str) -> Callable[[Any], TypedValue | None]:
    return lambda value: TypedValue(kind, value) if isinstance(value, str) else None


def _alone(kind: str, wanted: Any) -> Callable[[Any], TypedValue | None]:
    return lambda value: TypedValue(kind, None) if value == wanted and type(value) is type(wanted) else None


_SINGLE: dict[str, Callable[[Any], Any]] = {
    "$numberInt": lambda value: int(value) if isinstance(value, str) else None,
    "$numberLong": _long,
    "$numberDouble": _double,
    "$numberDecimal": _text("decimal"),
    "$oid": _text("objectId"),
    "$date": _date,
    "$binary": _binary,
    "$timestamp": _timestamp,
    "$regularExpression": _regex,
    "$dbPointer": _pointer,
    "$symbol": _text("symbol"),
    "$code": _text("code"),
    "$undefined": _alone("undefined", True),
    "$minKey": _alone("minKey", 1),
    "$maxKey": _alone("maxKey", 1),
}


def _pair(names: tuple[str, ...], first: Any, second: Any) -> TypedValue | None:
    if names == ("$binary", "$type") and isinstance(first, str) and type(second) in (str, int):
        # Keys of format 1.1 have the subtype as a signed number.
        subtype = int(second, 16) if isinstance(second, str) else second & 0xFF
        return TypedValue("binary", (base64.b64decode(first), subtype))
    if names == ("$regex", "$options") and _are_texts(first, second):
        return TypedValue("regex", (first, second))
    if names == ("$code", "$scope") and isinstance(first, str) and isinstance(second, ExtendedDocument):
        return TypedValue("scopedCode", (first, second))
    return None


def _object(pairs: list[tuple[str, Any]]) -> Any:
    if pairs and pairs[0][0][:1] == "$":
        found = None
        if len(pairs) == 1:
            read = _SINGLE.get(pairs[0][0])
            found = read(pairs[0][1]) if read is not None else None
        elif len(pairs) == 2:
            found = _pair((pairs[0][0], pairs[1][0]), pairs[0][1], pairs[1][1])
        if found is not None:
            return found
    return ExtendedDocument(pairs)


def _integer(text: str) -> Any:
    value = int(text)
    return value if -(1 << 31) <= value < 1 << 31 else TypedValue("int64", value)


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, strict=False)


def read(text: str) -> Any:
    """Return the value of a text. Raises ConversionError if the text is no JSON."""
    try:
        return _decoder.decode(text)
    except ValueError:
        raise ConversionError("The text of a document in an event is not extended JSON.") from None


def write(value: Any) -> str:
    """Return a value as text, in the form of `after` and `before`: `read(write(value))` is the value."""
    if isinstance(value, str):
        return f'"{escaped(value, STRICT)}"'
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return double_text(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, ExtendedDocument):
        return "{" + ",".join(f'"{escaped(name, STRICT)}": {write(inner)}' for name, inner in value.items()) + "}"
    return _write_typed(value.kind, value.value)


def _write_typed(kind: str, value: Any) -> str:
    if kind in _QUOTED:
        return f'{{"{_QUOTED[kind]}": {write(str(value))}}}'
    if kind == "date":
        return f'{{"$date": {value}}}'
    if kind == "binary":
        return f'{{"$binary": "{base64.b64encode(value[0]).decode()}","$type": "{value[1]:02X}"}}'
    if kind == "timestamp":
        return f'{{"$timestamp": {{"t": {value[0]},"i": {value[1]}}}}}'
    if kind == "regex":
        return f'{{"$regex": {write(value[0])},"$options": {write(value[1])}}}'
    if kind == "scopedCode":
        return f'{{"$code": {write(value[0])},"$scope": {write(value[1])}}}'
    if kind == "dbPointer":
        return f'{{"$ref": {write(value[0])},"$id": {{"$oid": "{value[1]}"}}}}'
    return {"undefined": '{"$undefined": true}', "minKey": '{"$minKey": 1}', "maxKey": '{"$maxKey": 1}'}[kind]


_QUOTED = {
    "int64": "$numberLong", "decimal": "$numberDecimal", "objectId": "$oid", "symbol": "$symbol", "code": "$code",
}  # fmt: skip
