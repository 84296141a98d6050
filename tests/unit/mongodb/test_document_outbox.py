"""MongoEventRouter turns outbox documents into messages, with all of its options."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.columns.row import COLUMNS
from tailrace.config.transforms import transforms
from tailrace.connectors.mongodb.descriptor import CONNECTOR
from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.errors import ConfigError, TransformError
from tests.unit.mongodb.changes import KINDS, change, segment
from tests.unit.mongodb.test_placing import settings

CLASS = "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter"
ID, KEY = TypedValue("objectId", "5f0d1a2b3c4d5e6f708192a3"), TypedValue("objectId", "5f0d1a2b3c4d5e6f708192ff")
LINES = [ExtendedDocument(n=1), ExtendedDocument()]
PAYLOAD = ExtendedDocument(
    _id=KEY, name='Peter "P" {,}', total=1.5, lines=LINES, none=ExtendedDocument(), nothing=[], list=[1, None]
)
OUTBOX = ExtendedDocument(_id=ID, aggregateid=KEY, aggregatetype="Order", type="Created", payload=PAYLOAD)
TEXT = """{
  "_id": {
    "$oid": "5f0d1a2b3c4d5e6f708192ff"
  },
  "name": "Peter \\"P\\" {,}",
  "total": {
    "$numberDouble": "1.5"
  },
  "lines": [
    {
      "n": {
        "$numberInt": "1"
      }
    },
    {}
  ],
  "none": {},
  "nothing": [],
  "list": [
    {
      "$numberInt": "1"
    },
    null
  ]
}"""


def rows(*documents: Any, op: str = "c", columns: str = "", **options: str) -> list[dict[str, Any]]:
    """Return the rows for inserted outbox documents."""
    named = {"transforms": "o", "transforms.o.type": CLASS, **({"row.columns": columns} if columns else {})}
    named |= {f"transforms.o.{name}": text for name, text in options.items()}
    given = settings(**named)
    given = replace(given, events=replace(given.events, columns=tuple(columns.split(",")) if columns else COLUMNS))
    parts = [change(op, document.get("_id"), after=document) for document in documents]
    return [row for part in to_rows(segment(parts, op * len(parts), KINDS["3"]), given) for row in part.to_pylist()]


def headers(row: dict[str, Any]) -> dict[str, Any]:
    """Return the headers of a record after those of the context."""
    return {pair["key"]: json.loads(pair["value"]) for pair in row["headers"] if not pair["key"].startswith("__")}


def payload(row: dict[str, Any]) -> Any:
    return json.loads(row["value"])["payload"]


def test_a_document_is_a_message_with_the_payload_as_indented_text() -> None:
    (row,) = rows(OUTBOX)
    assert row["topic"] == "outbox.event.Order"
    text = {"type": "string", "optional": True}
    assert json.loads(row["key"]) == {"schema": text, "payload": KEY.value}
    assert json.loads(row["value"]) == {"schema": text, "payload": TEXT}
    assert headers(row) == {"id": {"schema": text, "payload": ID.value}}


def test_documents_of_other_shapes_are_messages_each_as_it_is() -> None:
    plain = ExtendedDocument(OUTBOX, payload="plain text", aggregatetype="Customer")
    number = ExtendedDocument(OUTBOX, payload=7)
    found = rows(OUTBOX, plain, number)
    assert [row["topic"] for row in found] == ["outbox.event.Order", "outbox.event.Customer", "outbox.event.Order"]
    assert [payload(row) for row in found] == [TEXT, "plain text", 7]


def test_a_payload_is_a_struct_where_it_is_expanded() -> None:
    document = ExtendedDocument(OUTBOX, payload=ExtendedDocument(PAYLOAD, list=[1, 2]))
    (row,) = rows(document, **{"collection.expand.json.payload": "true"})
    value = json.loads(row["value"])
    assert (value["schema"]["type"], value["schema"]["name"]) == ("struct", "io.debezium.data.Json.payload")
    assert value["payload"] == {
        "_id": KEY.value, "name": PAYLOAD["name"], "total": 1.5, "lines": [{"n": 1}, {"n": None}], "none": {},
        "nothing": [], "list": [1, 2],
    }  # fmt: skip


def test_fields_have_other_names() -> None:
    document = ExtendedDocument(_id=ID, e="x", k="key", p="text", r="R")
    names = {"event.id": "e", "event.key": "k", "event.payload": "p"}
    options = {f"collection.field.{name}": text for name, text in names.items()}
    (row,) = rows(document, **options, **{"route.by.field": "r", "route.topic.replacement": "to.${routedByValue}"})
    assert (row["topic"], json.loads(row["key"])["payload"], payload(row)) == ("to.R", "key", "text")
    assert headers(row)["id"]["payload"] == "x"


def test_fields_are_placed_in_headers_and_beside_the_payload_with_a_version() -> None:
    document = ExtendedDocument(OUTBOX, version=3, note="n", part=2, at=TypedValue("int64", 1558965515123))
    options = {
        "collection.fields.additional.placement": "type:header:kind,note:envelope,part:partition,at:header",
        "collection.field.event.schema.version": "version",
        "collection.field.event.timestamp": "at",
    }
    (row,) = rows(document, columns="topic,key,value,headers,op,partition,timestamp", **options)
    value = json.loads(row["value"])
    assert value["payload"] == {"payload": TEXT, "note": "n"}
    assert (value["schema"]["name"], value["schema"]["version"]) == ("io.debezium.data.Order.Json", 3)
    assert (row["partition"], row["timestamp"]) == (2, 1558965515123)
    assert headers(row)["kind"]["payload"] == "Created"
    moment = {"type": "int64", "optional": False, "name": "io.debezium.time.Timestamp", "version": 1}
    assert headers(row)["at"] == {"schema": moment, "payload": 1558965515123}


def test_an_update_is_left_out_and_told_and_a_delete_vanishes(caplog: pytest.LogCaptureFixture) -> None:
    assert rows(OUTBOX, op="u") == []
    assert "an update of an outbox" in caplog.text
    assert rows(OUTBOX, op="d") == []
    with pytest.raises(TransformError, match=r"update.*inventory\.customers at 1558965515:6, number 0"):
        rows(OUTBOX, op="u", **{"table.op.invalid.behavior": "fatal"})


def test_a_message_without_payload_may_be_a_tombstone() -> None:
    (row,) = rows(ExtendedDocument(OUTBOX, payload=""), **{"route.tombstone.on.empty.payload": "true"})
    assert row["value"] is None


@pytest.mark.parametrize(
    ("document", "options", "said"),
    [
        (ExtendedDocument(_id=ID, aggregatetype="a"), {}, "finds no column payload"),
        (ExtendedDocument(OUTBOX, aggregatetype=5), {}, "needs a text in the field aggregatetype"),
        (OUTBOX, {"collection.fields.additional.placement": "x:header"}, "finds no column x"),
        (OUTBOX, {"collection.field.event.timestamp": "type"}, "timestamp"),
    ],
)
def test_what_cannot_be_routed_ends_with_its_place(document: Any, options: dict[str, str], said: str) -> None:
    with pytest.raises(TransformError, match=rf"{said}.*inventory\.customers at"):
        rows(document, **options)


def test_options_are_those_of_collections() -> None:
    def made(**options: str) -> Any:
        given = {f"transforms.o.{name}": text for name, text in options.items()}
        return transforms({"transforms": ["o"], "transforms.o.type": CLASS, **given}, CONNECTOR.traits.transforms)

    assert any("no option table.field.event.id" in fault for fault in made(**{"table.field.event.id": "x"}).faults)
    assert any("must be true" in fault for fault in made(**{"collection.expand.json.payload": "x"}).faults)
    wrong = made(**{"collection.field.additional.missing": "x"}).faults
    assert any("collection.field.additional.missing must be one of" in fault for fault in wrong)
    (notice,) = made(**{"collection.op.invalid.behavior": "fatal"}).notices
    assert "table.op.invalid.behavior is what Debezium reads" in notice


def test_it_is_for_documents_alone() -> None:
    made = transforms({"transforms": ["o"], "transforms.o.type": CLASS})
    assert made.faults


def test_a_configuration_with_it_is_read() -> None:
    assert settings(transforms="o", transforms_o_type=CLASS).events.transforms
    with pytest.raises(ConfigError, match="no option colour"):
        settings(transforms="o", transforms_o_type=CLASS, transforms_o_colour="red")
