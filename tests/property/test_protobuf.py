"""Protobuf, read by google's library with the registered schemas, holds the same as the JSON of the batch."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import date, timedelta
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import ChangeBatch
from tailrace.columns.logical import STRING, LogicalType
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConversionError
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.formats.protobuf import encoding
from tailrace.formats.protobuf.schema import ProtobufRules
from tailrace.formats.registry.options import Registry
from tests.property import captured_batches, json_batches
from tests.property.test_avro import exactly, logical_with_optional, rows

pytest.importorskip("google.protobuf")
from tests.extent import examples
from tests.property.proto_text import message_class

DEFAULTS = {"float": exactly(0.0), "double": exactly(0.0), "string": "", "bytes": b"", "boolean": False}
CONNECT = "org.apache.kafka.connect.data."
MESSAGES = tuple(CONNECT + name for name in ("Decimal", "Date", "Time", "Timestamp"))
FIRST_DAY = date(1583, 1, 1)
REFUSALS = (
    "is not a name that Protobuf allows",
    "two fields with the name",
    "a null among its items",
    "is outside the range of Protobuf's own type",
)


class Schemas:
    """The registered schemas, with ids from 1."""

    def __init__(self) -> None:
        self.known: list[tuple[str, str]] = []
        self._classes: dict[int, Any] = {}

    def prefix(self, registry: Registry, topic: str, text: str, name: str | None, kind: str) -> bytes:
        assert (registry.kind, kind) == ("confluent", "PROTOBUF")
        assert name is not None
        if (text, name) not in self.known:
            self.known.append((text, name))
        return b"\0" + (self.known.index((text, name)) + 1).to_bytes(4, "big")

    def read(self, data: bytes) -> Any:
        """Return the message that the other library reads, and check that it would write the same bytes."""
        number = int.from_bytes(data[1:5], "big")
        if number not in self._classes:
            self._classes[number] = message_class(*self.known[number - 1])
        assert (data[0], data[5]) == (0, 0)
        found = self._classes[number].FromString(data[6:])
        assert found.SerializeToString(deterministic=True) == data[6:]
        return found


# Plans of tables, and their ids, are kept from one example to the next.
SCHEMAS = Schemas()


def formats(rules: ProtobufRules) -> dict[str, Any]:
    options = (
        ("optional.for.nullables", str(rules.optionals).lower()),
        ("schema.registry.url", "http://registry"),
        ("scrub.invalid.names", str(rules.scrubs).lower()),
        ("wrapper.for.nullables", str(rules.wrappers).lower()),
    )
    return {f"{part}_format": Format("protobuf", part, options) for part in ("key", "value")}


def is_wrapped(kind: LogicalType, rules: ProtobufRules) -> bool:
    scalar = kind.connect not in ("struct", "array", "map") and kind.name not in MESSAGES
    return rules.wrappers and kind.optional and scalar


def wanted(value: Any, kind: LogicalType, rules: ProtobufRules) -> Any:
    """Return Protobuf's form of a value of the JSON."""
    if value is None:
        if kind.connect in ("array", "map"):
            return []
        shown = is_wrapped(kind, rules) or (rules.optionals and kind.optional)
        return None if shown or kind.connect == "struct" or kind.name in MESSAGES else DEFAULTS.get(kind.connect, 0)
    match kind.connect:
        case "struct":
            return [wanted(value[part.name], part.type, rules) for part in kind.fields]
        case "array":
            assert kind.items is not None
            return [wanted(item, kind.items, rules) for item in value]
        case "map":
            assert kind.items is not None
            pairs = value.items() if isinstance(value, dict) else value
            plain = replace(rules, optionals=False)
            return [[wanted(key, kind.keys or STRING, plain), wanted(item, kind.items, plain)] for key, item in pairs]
    return logical_value(value, kind) if kind.name in MESSAGES else scalar(value, kind)


def scalar(value: Any, kind: LogicalType) -> Any:
    if kind.connect == "bytes":
        return base64.b64decode(value)
    if kind.connect == "float":
        return exactly(float(np.float32(value)))
    return exactly(float(value)) if kind.connect == "double" else value


def logical_value(value: Any, kind: LogicalType) -> Any:
    if kind.name == CONNECT + "Decimal":
        unscaled = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return [unscaled, len(str(abs(unscaled))), int(dict(kind.parameters)["scale"])]
    if kind.name == CONNECT + "Date":
        return [value] if value < FIRST_DAY.toordinal() - date(1970, 1, 1).toordinal() else in_days(value)
    if kind.name == CONNECT + "Time":
        value %= 86_400_000
        return [value // 3_600_000, value // 60_000 % 60, value // 1000 % 60, value % 1000 * 1_000_000]
    return [value // 1000, value % 1000 * 1_000_000]


def in_days(days: int) -> list[int]:
    try:
        found = date(1970, 1, 1) + timedelta(days)
    except OverflowError:
        return [days]
    return [found.year, found.month, found.day]


def found(message: Any, kind: LogicalType, rules: ProtobufRules) -> list[Any]:
    """Return the fields of a read message."""
    fields = sorted(message.DESCRIPTOR.fields, key=lambda field: field.number)
    assert [field.number for field in fields] == list(range(1, len(kind.fields) + 1))
    return [of_field(message, field, part.type, rules) for field, part in zip(fields, kind.fields, strict=True)]


def of_field(message: Any, field: Any, kind: LogicalType, rules: ProtobufRules) -> Any:
    value = getattr(message, field.name)
    if kind.connect == "array":
        assert kind.items is not None
        return [of_value(item, kind.items, rules) for item in value]
    if kind.connect == "map":
        assert kind.items is not None
        parts = (("key", kind.keys or STRING), ("value", kind.items))
        return [[of_field(one, one.DESCRIPTOR.fields_by_name[name], of, rules) for name, of in parts] for one in value]
    assert field.has_presence == (
        kind.connect == "struct"
        or kind.name in MESSAGES
        or is_wrapped(kind, rules)
        or field.containing_oneof is not None
    )
    return of_value(value, kind, rules) if not field.has_presence or message.HasField(field.name) else None


def of_value(value: Any, kind: LogicalType, rules: ProtobufRules) -> Any:
    if kind.connect == "struct":
        return found(value, kind, rules)
    if kind.name == CONNECT + "Decimal":
        return [int.from_bytes(value.value, "big", signed=True), value.precision, value.scale]
    if kind.name in MESSAGES:
        return [getattr(value, field.name) for field in value.DESCRIPTOR.fields]
    if is_wrapped(kind, rules):
        value = value.value
    return exactly(value) if isinstance(value, float) else value


def compare(batch: ChangeBatch, chosen: EventSettings, form: SourceForm, rules: ProtobufRules) -> None:
    chosen = replace(chosen, key_schemas_enable=True, value_schemas_enable=True)
    documents = [
        [row[part] and json.loads(row[part]) for part in ("key", "value")] for row in rows(batch, chosen, form)
    ]
    with patch.object(encoding, "prefix", SCHEMAS.prefix):
        try:
            written = rows(batch, replace(chosen, **formats(rules)), form)
        except ConversionError as error:
            refused = error.message
        else:
            refused = ""
    if refused:
        assert any(reason in refused for reason in REFUSALS)
        return
    assert len(written) == len(documents)
    for row, document in zip(written, documents, strict=True):
        for name, part in zip(("key", "value"), document, strict=True):
            if part is None:
                assert row[name] is None
                continue
            kind = logical_with_optional(part["schema"])
            expected = wanted(part["payload"], kind, rules)
            assert same(found(SCHEMAS.read(row[name]), kind, rules), expected)


def same(left: Any, right: Any) -> bool:
    """Return True if both are equal; a date that is a number on the right side matches any."""
    if isinstance(left, list) and isinstance(right, list):
        if len(right) == 1 and len(left) == 3:
            return True
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    return bool(left == right)


# Most batches need it for their names.
SCRUBS = st.sampled_from([True, True, True, True, False])
RULES = st.builds(ProtobufRules, SCRUBS, st.booleans(), st.booleans())


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings(), RULES)
def test_protobuf_holds_what_json_says(batch: ChangeBatch, chosen: EventSettings, rules: ProtobufRules) -> None:
    compare(batch, chosen, FORM, rules)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)), RULES)
def test_protobuf_of_change_tables_holds_what_json_says(
    data: st.DataObject, connector: str, rules: ProtobufRules
) -> None:
    batch = data.draw(captured_batches.batches(connector))
    compare(batch, data.draw(captured_batches.settings(connector)), captured_batches.form_of(connector), rules)
