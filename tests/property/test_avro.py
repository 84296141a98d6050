"""Avro, read by another library with the registered schemas, holds the same as the JSON of the batch."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch
from tailrace.columns.logical import LogicalType
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.events.record_assembly import to_rows
from tailrace.formats.registry.apicurio import Client
from tailrace.formats.registry.options import Registry
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property.test_typed import NOW, logical

fastavro = pytest.importorskip("fastavro")
OPTIONS = (
    ("apicurio.registry.as-confluent", "true"),
    ("apicurio.registry.auto-register", "true"),
    ("apicurio.registry.headers.enabled", "false"),
    ("apicurio.registry.url", "http://registry/apis/registry/v2"),
)
KEYS, VALUES = (Format("avro-apicurio", part, OPTIONS) for part in ("key", "value"))


class Schemas:
    """The registered schemas, with ids from 1."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._parsed: dict[int, Any] = {}

    def register(self, client: Client, registry: Registry, subject: str, schema: str, kind: str) -> int:
        assert kind == "AVRO"
        assert subject.endswith(f"-{registry.part}")
        if schema not in self.texts:
            self.texts.append(schema)
        return self.texts.index(schema) + 1

    def read(self, data: bytes | None) -> Any:
        """Return the value that the other library reads; None for null."""
        if data is None:
            return None
        number = int.from_bytes(data[1:5], "big")
        if number not in self._parsed:
            self._parsed[number] = fastavro.parse_schema(plain(json.loads(self.texts[number - 1])))
        source = io.BytesIO(data[5:])
        found = fastavro.schemaless_reader(source, self._parsed[number])
        assert (data[0], source.read()) == (0, b"")
        return found


# Plans of tables, and their ids, are kept from one example to the next.
SCHEMAS = Schemas()


def register(client: Client, registry: Registry, subject: str, schema: str, kind: str) -> int:
    return SCHEMAS.register(client, registry, subject, schema, kind)


def plain(schema: Any) -> Any:
    """Return the schema without logical types, so that values are read as written."""
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: plain(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def wanted(value: Any, kind: LogicalType) -> Any:
    """Return Avro's form of a value of the JSON."""
    if value is None:
        return None
    match kind.connect:
        case "struct":
            return {part.name: wanted(value[part.name], part.type) for part in kind.fields}
        case "array":
            assert kind.items is not None
            return [wanted(item, kind.items) for item in value]
        case "map":
            assert kind.items is not None
            if isinstance(value, dict):
                return {key: wanted(item, kind.items) for key, item in value.items()}
            return [{"key": key, "value": wanted(item, kind.items)} for key, item in value]
        case "bytes":
            return base64.b64decode(value)
        case "float":
            return exactly(float(np.float32(value)))
        case "double":
            return exactly(float(value))
    return value


def exactly(number: float) -> str:
    """Return a number as text, so that NaN equals itself."""
    return f"float {number!r}"


def found(value: Any) -> Any:
    """Return a read value, with fractional numbers as texts."""
    if isinstance(value, dict):
        return {name: found(part) for name, part in value.items()}
    if isinstance(value, list):
        return [found(part) for part in value]
    return exactly(value) if isinstance(value, float) else value


def lacks(value: Any, kind: LogicalType) -> bool:
    """Return True if a value is null that must not be, as one that does not fit its type."""
    if value is None:
        return not kind.optional
    if kind.connect == "struct":
        return any(lacks(value[part.name], part.type) for part in kind.fields)
    if kind.items is None:
        return False
    items = (item for _, item in value.items()) if isinstance(value, dict) else value
    return kind.connect == "array" and any(lacks(item, kind.items) for item in items)


def rows(batch: ChangeBatch, chosen: EventSettings, form: SourceForm) -> list[dict[str, Any]]:
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        return [row for part in to_rows(batch, chosen, form) for row in part.to_pylist()]


def compare(batch: ChangeBatch, chosen: EventSettings, form: SourceForm) -> None:
    chosen = replace(chosen, key_schemas_enable=True, value_schemas_enable=True)
    documents = [
        [row[part] and json.loads(row[part]) for part in ("key", "value")] for row in rows(batch, chosen, form)
    ]
    kinds = {
        json.dumps(part["schema"]): logical_with_optional(part["schema"]) for row in documents for part in row if part
    }
    with patch.object(Client, "register", register):
        try:
            written = rows(batch, replace(chosen, key_format=KEYS, value_format=VALUES), form)
        except ConversionError as error:
            refused = error.message
            parts = [part for row in documents for part in row if part]
            lacking = any(lacks(part["payload"], kinds[json.dumps(part["schema"])]) for part in parts)
        else:
            refused, lacking = "", False
    if refused:
        assert "its Avro schema does not allow that" in refused
        assert lacking
        return
    assert len(written) == len(documents)
    for row, document in zip(written, documents, strict=True):
        for name, part in zip(("key", "value"), document, strict=True):
            expected = part and wanted(part["payload"], kinds[json.dumps(part["schema"])])
            assert found(SCHEMAS.read(row[name])) == expected


def logical_with_optional(schema: dict[str, Any]) -> LogicalType:
    """Return the type in a JSON schema, including what may be null."""
    bare = logical(schema)
    fields = tuple(
        replace(part, type=logical_with_optional(one))
        for part, one in zip(bare.fields, schema.get("fields", ()), strict=True)
    )
    items = schema.get("items", schema.get("values"))
    return replace(
        bare,
        optional=schema["optional"],
        fields=fields,
        items=None if items is None else logical_with_optional(items),
    )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings())
def test_avro_holds_what_json_says(batch: ChangeBatch, chosen: EventSettings) -> None:
    compare(batch, chosen, FORM)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)))
def test_avro_of_change_tables_holds_what_json_says(data: st.DataObject, connector: str) -> None:
    batch = data.draw(captured_batches.batches(connector))
    compare(batch, data.draw(captured_batches.settings(connector)), captured_batches.form_of(connector))
