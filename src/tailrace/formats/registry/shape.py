"""What of an Avro schema decides how its bytes are written. Any process."""

from __future__ import annotations

import json
from typing import Any


def shape(text: str) -> Any:
    """The types and the names of fields in their order, and nothing else of a schema; named types by full names."""
    return _shape(json.loads(text), "")


def _shape(schema: Any, space: str) -> Any:
    if isinstance(schema, list):
        return [_shape(branch, space) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PLAIN or "." in schema or not space else f"{space}.{schema}"
    kind = schema["type"]
    if kind in ("record", "enum", "fixed"):
        name = str(schema["name"])
        own = name.rpartition(".")[0] or str(schema.get("namespace", space))
        full = name if "." in name or not own else f"{own}.{name}"
        fields = [[part["name"], _shape(part["type"], own)] for part in schema.get("fields", ())]
        return [kind, full, fields, schema.get("symbols"), schema.get("size")]
    if kind in ("array", "map"):
        return [kind, _shape(schema["items" if kind == "array" else "values"], space)]
    return _shape(kind, space)


_PLAIN = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
