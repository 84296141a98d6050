"""Differences that are right: rules about a type or a condition, never about a case, each with its reason."""

from __future__ import annotations

import json
import re
from collections import Counter

from tests.golden.normalise import payload
from tests.golden.record import Record
from tests.golden.wire import Text, write

HSTORE_ORDER = "an hstore as JSON lists its keys in Java's hash order there and in the server's order here"

_MARKER = re.compile(r'("snapshot":)"[a-z_]*"')


def accepted(path: str, wanted: str, got: str, wanted_part: object, got_part: object) -> str | None:
    """The reason why `got` may stand at `path` of a key or value where `wanted` was recorded; None if there is none.

    `wanted` and `got` are JSON texts of leaves; the parts are the whole key or value that they stand in.
    """
    if _type_at(path, wanted_part) == "io.debezium.data.Json" and _flat_map(wanted) == _flat_map(got) is not None:
        return HSTORE_ORDER
    return None


def same_but_for_chunks(wanted: list[Record], got: list[Record], chunk_rows: int) -> bool:
    """Whether two topics differ only in the order of the leading snapshot rows, more of them than one chunk holds.

    The snapshot markers belong to places in that order, not to rows, so they have to agree place by place.
    """
    rows = _leading_reads(wanted)
    if len(wanted) != len(got) or rows <= chunk_rows or _leading_reads(got) != rows:
        return False
    texts = [[_text(record) for record in side] for side in (wanted, got)]
    markers = [[_MARKER.findall(text) for text in side[:rows]] for side in texts]
    bodies = [Counter(_MARKER.sub(r"\1", text) for text in side[:rows]) for side in texts]
    return texts[0][rows:] == texts[1][rows:] and markers[0] == markers[1] and bodies[0] == bodies[1]


def _leading_reads(records: list[Record]) -> int:
    count = 0
    for record in records:
        value = payload(record.value)
        if not isinstance(value, dict) or value.get("op") != '"r"':
            break
        count += 1
    return count


def _text(record: Record) -> str:
    return f"{write(record.key)} {write(record.value)} {[(name, write(leaf)) for name, leaf in record.headers]}"


def _flat_map(leaf: str) -> dict[str, str | None] | None:
    """The map that a JSON string holds as JSON text, if it is one of strings and nulls; None otherwise."""
    text = Text(leaf).string
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    if isinstance(value, dict) and all(item is None or isinstance(item, str) for item in value.values()):
        return value
    return None


def _type_at(path: str, part: object) -> str | None:
    """The semantic type of the field at `path` of Connect's JSON with a schema; None without a schema."""
    if not isinstance(part, dict) or set(part) != {"schema", "payload"}:
        return None
    schema = part["schema"]
    steps = re.findall(r"\.([^.\[]+)|\[(\d+)\]", path)
    names = [name for name, _ in steps]
    if names[1:2] != ["payload"]:
        return None
    for name in names[2:]:
        if not isinstance(schema, dict):
            return None
        if name:
            fields = schema.get("fields", [])
            schema = next((field for field in fields if field.get("field") == write(Text(f'"{name}"'))), None)
        else:
            schema = schema.get("items")
    leaf = schema.get("name") if isinstance(schema, dict) else None
    return leaf.string if isinstance(leaf, Text) else None
