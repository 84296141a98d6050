"""Typed rows hold what the JSON of the same batch says, on random batches."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.form import Form
from tailrace.events.records import to_rows, typed_rows
from tailrace.events.settings import EventSettings
from tests.property import captured_batches, json_batches

NOW = 1_795_222_828_465_236_739


def shown(value: Any, schema: dict[str, Any]) -> Any:
    """A value of JSON under its schema, as Python has it of an Arrow array."""
    if value is None:
        return None
    match schema["type"]:
        case "bytes":
            return base64.b64decode(value)
        case "float":
            return pa.scalar(float(value), pa.float32()).as_py()
        case "double":
            return float(value)
        case "struct":
            return {field["field"]: shown(value.get(field["field"]), field) for field in schema["fields"]}
        case "array":
            return [shown(item, schema["items"]) for item in value]
        case "map":
            pairs = value.items() if isinstance(value, dict) else value
            return [(shown(key, schema["keys"]), shown(item, schema["values"])) for key, item in pairs]
    return value


def told(text: bytes | None) -> Any:
    if text is None:
        return None
    document = json.loads(text)
    return shown(document["payload"], document["schema"])


def compare(batch: ChangeBatch, chosen: EventSettings, form: Form) -> None:
    chosen = replace(chosen, key_schemas_enable=True, value_schemas_enable=True)
    with patch("tailrace.events.records.time.time_ns", lambda: NOW):
        rows = [row for part in to_rows(batch, chosen, form) for row in part.to_pylist()]
        typed = list(typed_rows(batch, chosen, form))
    for keys, values in typed:
        keys.validate(full=True)
        values.validate(full=True)
    keys = [key for found, _ in typed for key in found.to_pylist()]
    values = [value for _, found in typed for value in found.to_pylist()]
    # by their text, since nan is not equal to itself
    assert repr(keys) == repr([told(row["key"]) for row in rows])
    assert repr(values) == repr([told(row["value"]) for row in rows])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings())
def test_typed_rows_hold_what_json_says(batch: ChangeBatch, chosen: EventSettings) -> None:
    compare(batch, chosen, FORM)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)))
def test_typed_rows_of_change_tables_hold_what_json_says(data: st.DataObject, connector: str) -> None:
    batch = data.draw(captured_batches.batches(connector))
    compare(batch, data.draw(captured_batches.settings(connector)), captured_batches.form_of(connector))
