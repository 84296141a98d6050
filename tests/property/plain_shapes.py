"""Conversion of BSON values to Kafka Connect's: a schema that follows from the value itself, and its JSON. Worker.

A schema is a tuple, so that equal schemas compare equal and their texts are kept: (type, name, version, optional,
parts). The parts of a struct are pairs of name and schema, the part of an array is the schema of its elements, and the
part of a scalar is the JSON of its parameters and default, if it has any.
"""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue
from tailrace.errors import ConversionError
from tailrace.values.doubles import double_text
from tailrace.values.json_text import quoted

Schema = tuple[str, str | None, int | None, bool, Any]
Shaped = tuple[Schema, Any]
"""A schema and a value in its form: JSON text of a scalar, a list of values of a struct or an array, or None."""

BOOLEAN: Schema = ("boolean", None, None, True, None)
INT32: Schema = ("int32", None, None, True, None)
INT64: Schema = ("int64", None, None, True, None)
DOUBLE: Schema = ("double", None, None, True, None)
STRING: Schema = ("string", None, None, True, None)
BYTES: Schema = ("bytes", None, None, True, None)
TIME: Schema = ("int64", "org.apache.kafka.connect.data.Timestamp", 1, True, None)
REGEX: Schema = (
    "struct", "io.debezium.mongodb.regex", None, True, (("regex", STRING), ("options", STRING)),
)  # fmt: skip

_LEFT_OUT = frozenset(("symbol", "undefined", "minKey", "maxKey", "dbPointer"))
_INVALID = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class Shaper:
    """The rules to shape documents: `documents` makes arrays structs, `sanitize` makes names legal in Avro.

    `unnamed` leaves the structs of empty documents, and those in arrays of arrays, without a name, as in Debezium 3.
    """

    documents: bool
    sanitize: bool
    unnamed: bool

    def fields(self, document: ExtendedDocument, name: str | None, inside: bool = False) -> list[tuple[str, Shaped]]:
        """Return the fields of a document that have a form in Connect, in order. Raises ConversionError.

        `inside` is True within an array that becomes a struct, where even empty structs have names.
        """
        found = []
        for field, value in document.items():
            if _is_left_out(value):
                continue
            shown = _sanitized(field) if self.sanitize else field
            found.append((shown, self.value(value, f"{name or 'null'}.{shown}", inside)))
        return found

    def struct(self, document: ExtendedDocument, name: str | None, inside: bool) -> Shaped:
        fields = self.fields(document, name, inside)
        named = name if fields or inside or not self.unnamed else None
        return struct(fields, named)

    def value(self, value: Any, name: str | None, inside: bool) -> Shaped:
        """Return a value with its schema; `inside` is as for `fields`."""
        if isinstance(value, str):
            return STRING, quoted(value)
        if isinstance(value, bool):
            return BOOLEAN, "true" if value else "false"
        if isinstance(value, int):
            return INT32, str(value)
        if isinstance(value, float):
            return DOUBLE, _double(value)
        if value is None:
            return STRING, None
        if isinstance(value, ExtendedDocument):
            return self.struct(value, name, inside)
        if isinstance(value, list):
            return self._array(value, name)
        return self._typed(value, name)

    def _typed(self, value: TypedValue, name: str | None) -> Shaped:
        kind, inner = value.kind, value.value
        if kind in ("int64", "date"):
            return (INT64 if kind == "int64" else TIME), str(inner)
        if kind in ("objectId", "decimal", "code"):
            return STRING, quoted(inner)
        if kind == "timestamp":
            # Java reads the seconds as a signed number.
            return TIME, str(((inner[0] + (1 << 31)) % (1 << 32) - (1 << 31)) * 1000)
        if kind == "binary":
            return BYTES, f'"{base64.b64encode(inner[0]).decode()}"'
        if kind == "regex":
            return REGEX, [quoted(inner[0]), quoted(inner[1])]
        if kind == "scopedCode":
            scope = self.struct(inner[1], f"{name}.scope", False)
            schema, values = struct([("code", (STRING, quoted(inner[0]))), ("scope", scope)], name)
            return (*schema[:3], False, schema[4]), values
        raise ConversionError(f"A document has a value of the type {kind} in an array, which Connect has no type for.")

    def _array(self, items: list[Any], name: str | None) -> Shaped:
        if self.documents:
            numbered = [(f"_{at}", item) for at, item in enumerate(items) if not _is_left_out(item)]
            shaped = [(field, self.value(item, f"{name}.{field}", True)) for field, item in numbered]
            return struct(shaped, name)
        if not items:
            return ("array", None, None, True, STRING), []
        # All elements have the array's name; elements of an inner array have none.
        within = None if self.unnamed and isinstance(items[0], list) else name
        shapes = [self.value(item, within, False) for item in items]
        schema = shapes[0][0]
        for other, item in zip(shapes[1:], items[1:], strict=True):
            schema = _merged(schema, other[0], item is None or items[0] is None, name)
        if all(item is None for item in items):
            return ("array", None, None, True, STRING), [None] * len(items) if self.unnamed else []
        values = [None if item is None else fitted(shape, schema) for shape, item in zip(shapes, items, strict=True)]
        return ("array", None, None, True, schema), values


def _is_left_out(value: Any) -> bool:
    """Return True for a value of a type that Connect lacks; Debezium leaves out such fields."""
    return isinstance(value, TypedValue) and value.kind in _LEFT_OUT


def struct(fields: list[tuple[str, Shaped]], name: str | None) -> Shaped:
    """Return a struct of named values. Of equal names the last value counts, at the first one's place."""
    chosen = dict(fields)
    schema = ("struct", name, None, True, tuple((field, shape[0]) for field, shape in chosen.items()))
    return schema, [shape[1] for shape in chosen.values()]


def _double(value: float) -> str:
    if math.isfinite(value):
        return double_text(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _sanitized(name: str) -> str:
    found = _INVALID.sub("_", name)
    return f"_{found}" if found[:1].isdigit() else found


def _merged(one: Schema, other: Schema, null: bool, name: str | None) -> Schema:
    """Return a schema for elements of both schemas. Raises ConversionError if there is none."""
    if one == other and not (null and one[0] != "string"):
        return one
    if one[0] == other[0] == "struct" and not null and REGEX not in (one, other):
        fields = dict(one[4])
        for field, schema in other[4]:
            fields[field] = _merged(fields[field], schema, False, f"{name}.{field}") if field in fields else schema
        return ("struct", one[1] or other[1], None, True, tuple(fields.items()))
    if one[0] == other[0] == "array" and not null:
        if STRING in (one[4], other[4]):
            # The type of the elements of an empty array is unknown.
            return one if other[4] == STRING else other
        return ("array", None, None, True, _merged(one[4], other[4], False, name))
    if null and one[0] == "struct":
        return one
    raise ConversionError(
        f"The array {name} has elements of different types, which a Connect array cannot have.",
        "Set array.encoding=document for the transform.",
    )


def fitted(shape: Shaped, schema: Schema) -> Any:
    """Return the value of `shape` in the form of a schema that it was merged into."""
    own, value = shape
    if own == schema or value is None:
        return value
    if schema[0] == "struct":
        given = {field: (part, inner) for (field, part), inner in zip(own[4], value, strict=True)}
        return [fitted(given[field], part) if field in given else None for field, part in schema[4]]
    return [fitted((own[4], inner), schema[4]) for inner in value]


def flattened(fields: list[tuple[str, Shaped]], delimiter: str, arrays: bool) -> list[tuple[str, Shaped]]:
    """Return the fields, with structs replaced by their fields under joined names. `arrays`: arrays may stay."""
    found: list[tuple[str, Shaped]] = []
    for name, (schema, value) in fields:
        if schema[0] == "struct":
            inner = zip(schema[4], value, strict=True)
            parts = [(f"{name}{delimiter}{field}", (part, item)) for (field, part), item in inner]
            found += flattened(parts, delimiter, arrays)
        elif schema[0] == "array" and not arrays:
            raise ConversionError(
                f"The field {name} is an array, which flatten.struct of event.format=1.1 cannot flatten.",
                "Set array.encoding=document for the transform.",
            )
        else:
            found.append((name, (schema, value)))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConversionError(
            f"flatten.struct makes two fields by the name {twice}.", "Choose another flatten.struct.delimiter."
        )
    return found


@lru_cache(4096)
def schema_json(schema: Schema, field: str | None = None) -> str:
    """Return the JSON of a schema, with members in JsonConverter's order."""
    kind, name, version, optional, parts = schema
    text = f'{{"type":"{kind}"'
    if kind == "struct":
        text += ',"fields":[' + ",".join(schema_json(part, own) for own, part in parts) + "]"
    elif kind == "array":
        text += f',"items":{schema_json(parts)}'
    text += ',"optional":true' if optional else ',"optional":false'
    if name is not None:
        text += f',"name":{quoted(name)}'
    if version is not None:
        text += f',"version":{version}'
    if isinstance(parts, str):
        text += parts
    return text + (f',"field":{quoted(field)}}}' if field is not None else "}")


def value_json(schema: Schema, value: Any) -> str:
    """Return the JSON of a value in the form of its schema."""
    if value is None:
        return "null"
    if schema[0] == "struct":
        pairs = zip(schema[4], value, strict=True)
        return "{" + ",".join(f"{quoted(field)}:{value_json(part, item)}" for (field, part), item in pairs) + "}"
    if schema[0] == "array":
        return "[" + ",".join(value_json(schema[4], item) for item in value) + "]"
    return str(value)
