"""Typed rows hold the same as the JSON of the batch, on random batches."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch
from tailrace.columns.logical import Field, LogicalType
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows, typed_rows
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property.typed_values import fits, found_in, same, wanted

# Structs that are one value in Arrow.
TYPES = {"io.debezium.data.VariableScaleDecimal"}
NOW = 1_795_222_828_465_236_739


def logical(schema: dict[str, Any]) -> LogicalType:
    """Return the type in a JSON schema."""
    items = schema.get("items", schema.get("values"))
    return LogicalType(
        schema["type"],
        schema.get("name"),
        parameters=tuple(schema.get("parameters", {}).items()),
        fields=tuple(Field(field["field"], logical(field)) for field in schema.get("fields", ())),
        items=None if items is None else logical(items),
        keys=logical(schema["keys"]) if schema.get("keys", {}).get("type", "string") != "string" else None,
    )


def agree(found: pa.Scalar, text: bytes | None) -> None:
    """Assert that the typed value equals JSON's, unless its Arrow type cannot hold the latter."""
    if text is None:
        assert not found.is_valid
        return
    document = json.loads(text)
    matches(found, document["payload"], logical(document["schema"]))


def matches(found: pa.Scalar, value: Any, kind: LogicalType) -> None:
    if kind.connect == "struct" and kind.name not in TYPES and value is not None:
        for field in kind.fields:
            matches(found[field.name], value.get(field.name), field.type)
    elif fits(value, kind):
        assert same(found_in(found, kind), wanted(value, kind)), (found, value, kind)


def compare(batch: ChangeBatch, chosen: EventSettings, form: SourceForm) -> None:
    chosen = replace(chosen, key_schemas_enable=True, value_schemas_enable=True)
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        rows = [row for part in to_rows(batch, chosen, form) for row in part.to_pylist()]
        typed = list(typed_rows(batch, chosen, form))
    for keys, values in typed:
        keys.validate(full=True)
        values.validate(full=True)
    assert sum(len(keys) for keys, _ in typed) == len(rows)
    typed_keys = [key for keys, _ in typed for key in keys]
    typed_values = [value for _, values in typed for value in values]
    for key, value, row in zip(typed_keys, typed_values, rows, strict=True):
        agree(key, row["key"])
        agree(value, row["value"])


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings())
def test_typed_rows_hold_what_json_says(batch: ChangeBatch, chosen: EventSettings) -> None:
    compare(batch, chosen, FORM)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)))
def test_typed_rows_of_change_tables_hold_what_json_says(data: st.DataObject, connector: str) -> None:
    batch = data.draw(captured_batches.batches(connector))
    compare(batch, data.draw(captured_batches.settings(connector)), captured_batches.form_of(connector))
