"""Decimals as JSON numbers, for `decimal.format=NUMERIC`: with all digits of their scale, as in Java. Worker."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tailrace.columns.logical import ABSENT, STRING, LogicalType
from tailrace.kernels.programs import Fragment
from tailrace.values.fragments import json_array, strings_fragment
from tailrace.values.json_text import Verbatim, dumps

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MOST_KNOWN = 100_000


def has_decimals(schema: LogicalType) -> bool:
    """Return True if values of the schema are decimals or contain some."""
    parts = [part.type for part in schema.fields]
    return schema.name == _DECIMAL or any(map(has_decimals, [*parts, *filter(None, (schema.items, schema.keys))]))


def with_numbers(value: Any, schema: LogicalType) -> Any:
    """Return a value with its decimals replaced by numbers."""
    if value is None or not has_decimals(schema):
        return value
    if schema.name == _DECIMAL:
        whole = Decimal(int.from_bytes(base64.b64decode(value), "big", signed=True))
        sign, digits, _ = whole.as_tuple()
        return Verbatim(Decimal((sign, digits, -int(dict(schema.parameters)["scale"]))))
    if schema.connect == "struct":
        return {part.name: with_numbers(value[part.name], part.type) for part in schema.fields}
    assert schema.items is not None
    if schema.connect == "array":
        return [with_numbers(item, schema.items) for item in value]
    keys, items = schema.keys or STRING, schema.items
    if isinstance(value, dict):
        return {key: with_numbers(item, items) for key, item in value.items()}
    return [[with_numbers(key, keys), with_numbers(item, items)] for key, item in value]


def schema_with_numbers(schema: LogicalType) -> LogicalType:
    """Return the schema with the defaults of decimals replaced by numbers."""
    if not has_decimals(schema):
        return schema
    default = schema.default if schema.default == ABSENT else with_numbers(schema.default, schema)
    return replace(
        schema,
        default=default,
        fields=tuple(replace(part, type=schema_with_numbers(part.type)) for part in schema.fields),
        items=None if schema.items is None else schema_with_numbers(schema.items),
        keys=None if schema.keys is None else schema_with_numbers(schema.keys),
    )


def numbers_fragment(written: Fragment, schema: LogicalType) -> Fragment:
    """Return the column with its decimals replaced by numbers; equal values are made once."""
    quote = '"' if written.quoted else ""
    known: dict[str, bytes] = {}
    parts: list[bytes] = []
    for text in json_array(written).to_pylist():
        found = known.get(text)
        if found is None:
            value = json.loads(f"{quote}{text}{quote}", parse_float=Verbatim)
            found = dumps(with_numbers(value, schema)).encode()
            if len(known) < _MOST_KNOWN:
                known[text] = found
        parts.append(found)
    return strings_fragment(parts)
