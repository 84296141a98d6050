"""field.exclude.list and field.renames, against what Debezium's own FieldSelector gave for the same documents.

`field_filters.jsonl` was recorded with Debezium 1.1.2 (`entry`) and 3.6.1 (`document`, `changed`, names); null where it
ends with an error, or drops the name.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values import json_forms as forms
from tailrace.connectors.mongodb.values.field_filters import field_filter, filtered
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tailrace.errors import ConversionError
from tests.unit.mongodb.bson_bytes import array, document, text

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "field_filters.jsonl").read_text("utf-8").splitlines()]
FORMS = {"entry": forms.STRICT_1_1, "document": forms.STRICT, "changed": forms.RELAXED}


def bson(value: Any) -> tuple[int, bytes]:
    if isinstance(value, dict):
        return fields.DOCUMENT, document((name, *bson(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return fields.ARRAY, array(map(bson, value))
    if isinstance(value, bool):
        return fields.BOOLEAN, bytes((value,))
    if isinstance(value, int):
        return fields.INT32, struct.pack("<i", value)
    if isinstance(value, str):
        return fields.STRING, text(value)
    assert value is None
    return fields.NULL, b""


def test_documents_have_the_fields_that_debezium_leaves() -> None:
    for vector in VECTORS:
        if "document" not in vector:
            continue
        found = field_filter(vector["exclude"], vector["rename"], "db", "c")
        content = bson(vector["document"])[1]
        for name, wanted in vector["results"].items():
            try:
                made = content if found is None else getattr(found, name)(content)
                got: str | None = plain_text(made, fields.DOCUMENT, 0, FORMS[name])
            except ConversionError:
                got = None
            assert got == wanted, (name, vector)


def test_removed_names_are_those_that_debezium_leaves() -> None:
    for vector in VECTORS:
        if "name" in vector:
            found = field_filter(vector["exclude"], vector["rename"], "db", "c")
            assert found is not None
            assert found.name(vector["name"]) == vector["result"], vector


@pytest.mark.parametrize(
    ("entry", "applies"),
    [
        ("db.c.a", True),
        ("*.c.a", True),
        ("d*.*.a", True),
        ("DB.C.a", True),
        ("db.x.a", False),
        ("x.c.a", False),
        ("d.c.a", False),
    ],
)
def test_an_entry_is_about_the_collections_that_its_patterns_match(entry: str, applies: bool) -> None:
    assert (field_filter([entry], [], "db", "c") is not None) is applies


def test_a_column_of_documents_is_filtered_into_a_buffer_of_its_own() -> None:
    one, other = bson({"a": 1, "b": 2})[1], bson({"b": 3})[1]
    data = np.frombuffer(one + other, np.uint8)
    places = np.array([0, -1, len(one)])
    kinds = np.array([fields.DOCUMENT, fields.ABSENT, fields.DOCUMENT], np.uint8)
    chosen = field_filter(["db.c.b"], [], "db", "c")
    assert chosen is not None
    made, found = filtered(data, places, kinds, chosen.document)
    texts = [plain_text(made.tobytes(), fields.DOCUMENT, place, forms.STRICT) for place in found.tolist() if place >= 0]
    assert texts == ['{"a": 1}', "{}"]
    assert found[1] == -1
