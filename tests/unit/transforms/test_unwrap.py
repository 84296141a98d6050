"""ExtractNewDocumentState, plain and by shapes, equals Debezium's own for the same events.

`unwrap.jsonl.gz` was recorded with Debezium 1.1.2 (format 1.1) and 3.6.1 (format 3). A line holds the parts to put into
the operation's event of `unwrap_events.json`, the transform's options, and the resulting record: null for none, "error"
if Debezium ended.
"""

from __future__ import annotations

import gzip
import json
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import ROW_SCHEMA
from tailrace.config.transforms import transforms
from tailrace.connectors.mongodb.descriptor import CONNECTOR
from tailrace.connectors.mongodb.documents.options import unwrap
from tailrace.connectors.mongodb.documents.state import extract_new_document_state
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.errors import ConversionError
from tests.extent import sized
from tests.property.plain_unwrap import Schemas, Unwrapping
from tests.unit.mongodb.changes import KINDS, of_text, segment
from tests.unit.mongodb.test_placing import settings

HERE = Path(__file__).parent
EVENTS = json.loads((HERE / "unwrap_events.json").read_text("utf-8"))
with gzip.open(HERE / "unwrap.jsonl.gz", "rt", encoding="utf-8") as lines:
    VECTORS = [json.loads(line) for line in lines]


def transform(options: dict[str, str], form: str, schemas: Schemas = Schemas()) -> Unwrapping:  # noqa: B008
    chosen, faults = unwrap(options, form)
    assert chosen is not None, faults
    return Unwrapping(chosen, schemas)


def event(vector: dict[str, Any], schemas: bool = True) -> tuple[bytes, bytes | None]:
    """Return key and value of the event that a vector describes."""
    form, operation = vector["format"], vector["op"]
    key, value = (json.loads(json.dumps(part)) for part in EVENTS[form][operation if operation in "cud" else "c"])
    key["payload"]["id"] = vector["key"]
    payload = value["payload"]
    payload |= {"op": operation, "after": vector.get("after")}
    if form == "1.1":
        payload |= {"patch": vector.get("patch")}
    else:
        payload |= {"before": vector.get("before"), "updateDescription": None}
        if "updated" in vector:
            removed = vector.get("removed")
            told = {"removedFields": removed, "updatedFields": vector["updated"], "truncatedArrays": None}
            payload["updateDescription"] = told
    parts = (key, value) if schemas else (key["payload"], payload)
    texts = [json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode() for part in parts]
    return texts[0], None if operation == "tombstone" else texts[1]


def test_records_are_those_of_debezium() -> None:
    for vector in VECTORS:
        unwrapping = transform(vector["options"], vector["format"])
        try:
            record = unwrapping.record(*event(vector), [])
        except ConversionError:
            assert vector["result"] == "error", vector
            continue
        if record is None:
            assert vector["result"] is None, vector
            continue
        headers = [{"key": name, "value": value.decode()} for name, value in record.headers if value is not None]
        assert record.key is not None
        got = {"key": record.key.decode(), "value": record.value and record.value.decode(), "headers": headers}
        assert got == vector["result"], vector


def test_records_without_schemas_have_the_same_payload() -> None:
    for vector in VECTORS:
        if not isinstance(vector["result"], dict) or vector["op"] == "tombstone":
            continue
        record = transform(vector["options"], vector["format"], Schemas(False, False, False)).record(
            *event(vector, schemas=False), []
        )
        assert record is not None
        wanted = vector["result"]
        assert json.loads(record.key or b"null") == json.loads(wanted["key"])["payload"]
        value = wanted["value"]
        assert json.loads(record.value or b"null") == (value and json.loads(value)["payload"]), vector


LEGACY = {"event_format": "1.1", "capture_mode": "oplog"}
PARTS = ("after", "before", "updated", "removed", "patch")


def by_shape(vectors: list[dict[str, Any]], schemas: str) -> tuple[Any, Any]:
    """Return the results of the plain transform and of the one by shapes, for all vectors in one segment."""
    form, options = vectors[0]["format"], vectors[0]["options"]
    documents, ops = [], ""
    for vector in vectors:
        op = vector["op"][:1].replace("t", "d")
        named = {name: vector[name] for name in PARTS if vector.get(name) is not None}
        kept = {name: part for name, part in named.items() if (name == "patch") <= (form == "1.1")}
        documents.append(of_text(form, op, vector["key"], **kept))
        ops += op
    found = segment(documents, ops, KINDS[form])
    enabled = {f"{part}_converter_schemas_enable": schemas for part in ("key", "value", "header")}
    plain = settings(**enabled, **(LEGACY if form == "1.1" else {}))
    made = extract_new_document_state(options).in_form(form)
    results: list[Any] = []
    for chosen in (plain, replace(plain, events=replace(plain.events, transforms=(made,)))):
        try:
            rows = list(to_rows(found, chosen))
            if chosen is plain:
                rows = list(transform(options, form, Schemas(*[schemas == "true"] * 3))(rows))
            results.append([row for part in rows for row in part.to_pylist()])
        except ConversionError:
            results.append("error")
    return results[0], results[1]


def is_refused(vector: dict[str, Any]) -> bool:
    """Return True if a vector has no record; an oplog has no rows of a snapshot."""
    return vector["result"] == "error" or (vector["format"], vector["op"]) == ("1.1", "r")


@pytest.mark.parametrize("schemas", ["true", "false"])
def test_documents_by_their_shapes_give_the_same_records(schemas: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors are converted together and one by one: in the short extent every fourth of them, from a random one."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_558_965_516_000_000_000)
    apart = sized(4, 1)
    for vector in VECTORS[secrets.randbelow(apart) :: apart]:
        wanted, got = by_shape([vector], schemas)
        assert got == wanted, vector
        assert (wanted == "error") == is_refused(vector), vector
    together: dict[str, list[dict[str, Any]]] = {}
    for vector in VECTORS:
        if not is_refused(vector):
            together.setdefault(f"{vector['format']} {sorted(vector['options'].items())}", []).append(vector)
    for vectors in together.values():
        wanted, got = by_shape(vectors, schemas)
        assert got == wanted != "error"


def rows(*given: tuple[str, bytes | None, bytes | None]) -> pa.RecordBatch:
    """Return rows of op, key and value, with further columns that identify the row."""
    columns: dict[str, list[Any]] = {field.name: [None] * len(given) for field in ROW_SCHEMA}
    columns |= {"op": [row[0] for row in given], "key": [row[1] for row in given], "value": [row[2] for row in given]}
    columns["ordinal"] = list(range(len(given)))
    columns["headers"] = [[{"key": "k", "value": b"v"}], *[None] * (len(given) - 1)]
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA
    )


@pytest.mark.parametrize("text", ['{"a": }', '{"$date": 5}', "5"])
def test_a_text_that_is_no_document_is_an_error_without_its_content(text: str) -> None:
    key, value = event({"format": "3", "op": "c", "key": "1", "after": text})
    with pytest.raises(ConversionError) as caught:
        transform({}, "3").record(key, value, [])
    assert text not in str(caught.value)


CLASS = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"


def made(options: dict[str, str], kind: str = CLASS) -> Any:
    """Return the settings of a configuration with these options of the transform."""
    given = {f"transforms.u.{name}": text for name, text in options.items()} | {"event.format": "3"}
    return transforms({"transforms": ["u"], "transforms.u.type": kind, **given}, CONNECTOR.traits.transforms)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"array.encoding": "map"}, "must be one of"),
        ({"colour": "red"}, "has no such option"),
        ({"array.encodin": "array"}, "the nearest is array.encoding"),
        ({"predicate": "p"}, "predicates does not name"),
    ],
)
def test_what_there_is_not_is_refused_by_name(options: dict[str, str], said: str) -> None:
    (fault,) = made(options).faults
    assert said in fault


def test_it_is_for_documents_alone() -> None:
    (fault,) = transforms({"transforms": ["u"], "transforms.u.type": CLASS}).faults
    assert "is not supported" in fault


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("io.debezium.transforms.ExtractNewRecordState", {}, "ExtractNewDocumentState"),
        ("ExtractNewDocumentState", {"route.by.field": "a"}, "does nothing with it"),
        (CLASS, {"sanitize.field.names": "true"}, "does nothing with it"),
        (CLASS, {"drop.tombstones": "true"}, "delete.tombstone.handling.mode"),
    ],
)
def test_what_is_taken_otherwise_or_has_no_effect_is_a_notice(kind: str, options: dict[str, str], said: str) -> None:
    found = made(options, kind)
    assert found.faults == []
    (notice,) = found.notices
    assert said in notice
