"""JSON texts as typed values: the schema of a text, and its value under that schema. Any process.

Every part is optional. Whole numbers are int32, or int64 if they do not fit; other numbers are doubles. The elements of
an array have one type, which merges the fields of objects. A null, an empty array and an array of these have no type:
such fields are left out, or, if nulls are kept, a null is optional bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pa_json

from tailrace.columns.logical import BOOLEAN, BYTES, DOUBLE, INT32, INT64, STRING, Field, LogicalType
from tailrace.records.layout import Constant
from tailrace.values.arrow import arrow_type_of

_INT32, _INT64 = 1 << 31, 1 << 63
_NULL = BYTES.with_optional(True)


class UnclearJson(Exception):
    """A text that is not a JSON object, or has no schema: mixed types in an array, or a number that is too large."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Derives schemas of JSON objects. `nulls` keeps fields that are null; `root` is the struct's name."""

    nulls: bool
    root: str = ""

    def of_text(self, text: str) -> LogicalType:
        """Return the schema of an object's text. Raises UnclearJson."""
        value = _read(text)
        found = self._object(value, self.root)
        if not _fits(value, found):
            raise UnclearJson
        return replace(found, name=self.root or None)

    def _object(self, value: Any, path: str) -> LogicalType:
        if not isinstance(value, dict):
            raise UnclearJson
        fields = []
        for name, part in value.items():
            kind = self._type(part, f"{path}.{name}" if path else name)
            if kind is not None:
                fields.append(Field(name, kind))
            elif self.nulls and part is None:
                fields.append(Field(name, _NULL))
        return LogicalType("struct", path or None, fields=tuple(fields), optional=True)

    def _type(self, value: Any, path: str) -> LogicalType | None:
        if value is None:
            return None
        if isinstance(value, list):
            items = self._items(value, path)
            return None if items is None else LogicalType("array", items=items, optional=True)
        return self._object(value, path) if isinstance(value, dict) else _scalar(value).with_optional(True)

    def _items(self, values: list[Any], path: str) -> LogicalType | None:
        # as in Debezium, structs in a list within a list have no names
        found = (self._type(value, "" if isinstance(value, list) else path) for value in values)
        kinds = [kind for kind in found if kind is not None]
        if not kinds:
            return _NULL if self.nulls and values and all(value is None for value in values) else None
        return together(kinds)


def _fits(value: Any, kind: LogicalType) -> bool:
    """Return True if a value fits the schema merged from its parts. An empty array has no type of its own, and may be
    among elements of any type."""
    if value is None:
        return True
    if kind.connect == "struct":
        return isinstance(value, dict) and all(_fits(value.get(part.name), part.type) for part in kind.fields)
    if kind.items is not None:
        return isinstance(value, list) and all(_fits(part, kind.items) for part in value)
    return not isinstance(value, list)


def _scalar(value: Any) -> LogicalType:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    if isinstance(value, float):
        return DOUBLE
    if -_INT32 <= value < _INT32:
        return INT32
    if -_INT64 <= value < _INT64:
        return INT64
    raise UnclearJson


def together(kinds: list[LogicalType]) -> LogicalType:
    """Return the common type of several elements. Different structs are merged into one that is not optional. Raises
    UnclearJson."""
    # a null has no influence on the type of the other elements
    kinds = [kind for kind in kinds if kind != _NULL] or kinds
    first = kinds[0]
    if all(kind == first for kind in kinds):
        return first
    if all(kind.connect == "struct" for kind in kinds):
        fields: dict[str, list[LogicalType]] = {}
        for kind in kinds:
            for part in kind.fields:
                fields.setdefault(part.name, []).append(part.type)
        return replace(first, fields=tuple(Field(name, together(of)) for name, of in fields.items()), optional=False)
    if all(kind.connect == "array" and kind.items is not None for kind in kinds):
        return replace(first, items=together([kind.items for kind in kinds if kind.items is not None]))
    raise UnclearJson


def _read(text: str) -> Any:
    if not text.startswith(("{", "[")):
        raise UnclearJson
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_double)
    except (ValueError, RecursionError):
        raise UnclearJson from None


def _refused(word: str) -> Any:
    raise ValueError(word)


def _double(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("beyond a double")
    return number


def value_of(text: str, kind: LogicalType) -> Any:
    """Return the value of a text under its schema."""
    return _shown(_read(text), kind)


def _shown(value: Any, kind: LogicalType) -> Any:
    """Return the value with all fields of its structs, null for missing ones."""
    if value is None or kind == _NULL:
        return None
    if kind.connect == "struct":
        return {part.name: _shown(value.get(part.name), part.type) for part in kind.fields}
    if kind.items is not None:
        return [_shown(part, kind.items) for part in value]
    return value


def constant_of(text: str, kind: LogicalType) -> Constant:
    """Return the value of a text as a constant of a layout."""
    return Constant(value_of(text, kind), kind)


def array_of_texts(texts: pa.Array, kind: LogicalType) -> pa.Array:
    """Return the values of texts with the same schema as an Arrow array; nulls stay null."""
    of = arrow_type_of(kind)
    try:
        return _read_at_once(texts, of)
    except pa.ArrowInvalid:
        # for example a duplicate field, which Arrow's reader refuses
        values = [None if text is None else value_of(text, kind) for text in texts.to_pylist()]
        return pa.array(values, of)


def _read_at_once(texts: pa.Array, of: pa.DataType) -> pa.Array:
    """Read the values by Arrow's reader, one line for each object. Raises ArrowInvalid for unreadable texts."""
    if not of.num_fields or not len(texts):
        raise pa.ArrowInvalid("it would not tell how many rows there are")
    # in valid JSON, raw line breaks are only whitespace: within texts they are escaped
    lines = pc.replace_substring_regex(pc.fill_null(texts, "{}"), r"[\n\r]", " ")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
    data = joined[0].as_buffer()
    reading = pa_json.ReadOptions(use_threads=False, block_size=max(data.size + 1, 1))
    parsing = pa_json.ParseOptions(explicit_schema=pa.schema(list(of)), unexpected_field_behavior="ignore")
    found = pa_json.read_json(pa.BufferReader(data), reading, parsing)
    if found.num_rows != len(texts):
        raise pa.ArrowInvalid("there are other rows than texts")
    columns = [column.combine_chunks() for column in found.columns]
    mask = texts.is_null() if texts.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(of), mask=mask)


def written(kind: LogicalType) -> str:
    """Return a schema as text, for `read`."""
    return json.dumps(_plain(kind), ensure_ascii=False, separators=(",", ":"))


def _plain(kind: LogicalType) -> list[Any]:
    fields = [[part.name, _plain(part.type)] for part in kind.fields]
    return [kind.connect, kind.name, fields, None if kind.items is None else _plain(kind.items), kind.optional]


def read(text: str) -> LogicalType:
    """Return the schema from the text of `written`."""
    return _kind(json.loads(text))


def _kind(plain: list[Any]) -> LogicalType:
    connect, name, fields, items, optional = plain
    return LogicalType(
        connect,
        name,
        fields=tuple(Field(field, _kind(of)) for field, of in fields),
        items=None if items is None else _kind(items),
        optional=optional,
    )
