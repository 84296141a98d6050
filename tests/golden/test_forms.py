"""The fixed parts of every recorded record equal ours, field by field, in both formats, without a server.

A golden case shows the same, and more, for its own records if it runs; this test also covers recordings of cases that
cannot run here.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tailrace.columns import TableId, TableSchema
from tailrace.columns.logical import LogicalType
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events import control_records
from tailrace.events.event_settings import EventSettings
from tailrace.values.json_text import schema_text
from tests.event_schemas import event_schemas
from tests.event_settings import event_settings
from tests.golden import case as cases
from tests.golden import runner

FORMATS = {"postgres-1.7": "1.7", "postgres": "3"}
ENVELOPE = "Envelope"
COMMON = "io.debezium.connector.common."
CONNECTOR = "io.debezium.connector.postgresql."
OTHERS: dict[str, Callable[[EventSettings], LogicalType]] = {
    COMMON + "TransactionMetadataKey": control_records.boundary_key_schema,
    COMMON + "TransactionMetadataValue": control_records.boundary_value_schema,
    COMMON + "ServerNameKey": control_records.heartbeat_key_schema,
    COMMON + "Heartbeat": control_records.heartbeat_value_schema,
    CONNECTOR + "MessageKey": control_records.message_key_schema,
    CONNECTOR + "MessageValue": lambda settings: control_records.message_value_schema(settings, FORM),
}


@cache
def recorded(folder: str) -> dict[str, list[tuple[str, str, list[str]]]]:
    """Return the distinct forms in recordings of a format, by the last part of an envelope's name or another whole
    name: the case, the schema's text, and the names in the payload."""
    found: dict[str, dict[tuple[str, str], tuple[str, str, list[str]]]] = {}
    for case in cases.find(runner.default_cases()):
        if case.database == "postgresql" and case.name.partition("/")[0] == folder and "format" not in case.knobs:
            for schema, payload in _parts(case.path):
                name = str(schema.get("name"))
                kind = ENVELOPE if name.endswith("." + ENVELOPE) else name
                # The content of a message has the form of that option, which its own cases show.
                shaped = kind.endswith("MessageValue") and "binary.handling.mode" in case.properties
                if kind in (ENVELOPE, *OTHERS) and not shaped:
                    text = json.dumps(without_rows(schema))
                    found.setdefault(kind, {}).setdefault((text, str(list(payload))), (case.name, text, list(payload)))
    return {kind: list(shown.values()) for kind, shown in found.items()}


def _parts(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the schemas and payloads of a recording's keys and values."""
    with gzip.open(path / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            for part in (record["key"], record["value"]):
                if isinstance(part, dict) and list(part) == ["schema", "payload"] and isinstance(part["schema"], dict):
                    yield part["schema"], part["payload"]


def without_rows(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an envelope's schema without the name, the field and the columns that come from its table."""
    if not str(schema.get("name")).endswith("." + ENVELOPE):
        return schema
    fields = [
        {key: value for key, value in field.items() if key not in ("fields", "name")}
        if field["field"] in ("before", "after")
        else field
        for field in schema["fields"]
    ]
    return schema | {"fields": fields, "name": ENVELOPE}


def ours(kind: str, settings: EventSettings) -> tuple[str, list[str]]:
    """Return the schema's text and the names of its fields as this product writes them."""
    schema: LogicalType
    if kind == ENVELOPE:
        schema = event_schemas(TableSchema(TableId("d", "public", "t"), (), ()), (), (), settings, FORM).value
    else:
        schema = OTHERS[kind](settings)
    parsed = json.loads(schema_text(schema))
    return json.dumps(without_rows(parsed)), [field["field"] for field in parsed["fields"]]


@pytest.mark.seed("000-23", "000-23b", "000-24")
@pytest.mark.parametrize("folder", FORMATS)
@pytest.mark.parametrize("kind", [ENVELOPE, *OTHERS])
def test_the_fixed_schemas_are_those_of_all_recordings(folder: str, kind: str) -> None:
    shown = recorded(folder).get(kind)
    if not shown:
        pytest.skip(f"no recording in {folder} has {kind}")
    expected = ours(kind, event_settings("server", "d", event_format=FORMATS[folder]))
    assert [(case, *expected) for case, _, _ in shown] == shown


@pytest.mark.parametrize("folder", FORMATS)
def test_every_recording_of_events_has_envelopes(folder: str) -> None:
    assert recorded(folder)[ENVELOPE]
    assert set(recorded(folder)) >= {COMMON + "ServerNameKey", COMMON + "Heartbeat"}


def test_a_field_that_is_missing_or_elsewhere_would_be_seen() -> None:
    new, old = (ours(ENVELOPE, event_settings("s", "d", event_format=form)) for form in ("3", "1.7"))
    assert new != old
    names = [name for name in new[1] if name in old[1]]
    assert sorted(names) == sorted(old[1])
    assert names != old[1]
