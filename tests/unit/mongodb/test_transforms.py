"""Chains over MongoDB's records: documents, keys and topics, with predicates; what cannot be shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, TypedValue
from tailrace.connectors.mongodb.records.records import to_rows
from tailrace.errors import ConversionError, TransformError
from tests.unit.mongodb.changes import KINDS, change, segment
from tests.unit.mongodb.test_placing import settings

CONNECT = "org.apache.kafka.connect.transforms"
PLAIN = {f"{part}_converter_schemas_enable": "false" for part in ("key", "value", "header")}


def rows(ops: str, documents: list[bytes], **options: str) -> list[dict[str, Any]]:
    named = {name.replace("__", "."): text for name, text in options.items()}
    found = segment(documents, ops, KINDS["3"])
    return [row for part in to_rows(found, settings(**PLAIN, **named)) for row in part.to_pylist()]


INSERTED = change("c", 1, after=ExtendedDocument(_id=1, name="a", size=2.5))
OTHER = change("c", 2, after=ExtendedDocument(_id=2, name="b", inner=ExtendedDocument(x=TypedValue("int64", 5))))
DELETED = change("d", 1)
UNWRAP = {"transforms.u.type": "ExtractNewDocumentState"}


def test_documents_pass_through_a_chain() -> None:
    options = {
        **UNWRAP,
        "transforms": "u,field,key,route",
        "transforms.field.type": f"{CONNECT}.InsertField$Value",
        "transforms.field.topic.field": "from",
        "transforms.field.predicate": "gone",
        "transforms.field.negate": "true",
        "transforms.key.type": f"{CONNECT}.ExtractField$Key",
        "transforms.key.field": "id",
        "transforms.route.type": f"{CONNECT}.RegexRouter",
        "transforms.route.regex": "p[.](.*)",
        "transforms.route.replacement": "to.$1",
        "predicates": "gone",
        "predicates.gone.type": f"{CONNECT}.predicates.RecordIsTombstone",
    }
    found = rows("ccd", [INSERTED, OTHER, DELETED], **options)
    assert {row["topic"] for row in found} == {"to.inventory.customers"}
    assert [row["key"] for row in found] == [b"1", b"2", b"1"]
    source = "p.inventory.customers"
    assert [row["value"] and json.loads(row["value"]) for row in found] == [
        {"_id": 1, "name": "a", "size": 2.5, "from": source},
        {"_id": 2, "name": "b", "inner": {"x": 5}, "from": source},
        None,
    ]


def test_the_snapshot_marker_is_its_default_or_null_as_a_transform_needs_it() -> None:
    flat = {"transforms": "f", "transforms.f.type": f"{CONNECT}.Flatten$Value"}
    for nulls in ("true", "false"):
        (row,) = rows("c", [INSERTED], **flat, **{"value.converter.replace.null.with.default": nulls})
        assert json.loads(row["value"])["source.snapshot"] == "false"
    unwrap = {**UNWRAP, "transforms": "u", "transforms.u.add.fields": "source.snapshot"}
    (row,) = rows("c", [INSERTED], **unwrap)
    assert json.loads(row["value"])["__source_snapshot"] in (None, "false")


def test_a_tombstone_has_the_headers_of_its_delete() -> None:
    unwrap = {
        **UNWRAP,
        "transforms": "u",
        "transforms.u.delete.tombstone.handling.mode": "rewrite-with-tombstone",
        "transforms.u.add.headers": "collection,op",
        "extended.headers.enabled": "false",
    }
    delete, tombstone = rows("d", [DELETED], **unwrap)
    shown = [[(one["key"], one["value"]) for one in row["headers"]] for row in (delete, tombstone)]
    added = [("__collection", b'"customers"'), ("__op", b'"d"')]
    # the operation of a tombstone comes once more
    assert (shown, tombstone["value"]) == ([added, [*added, added[1]]], None)


def test_fields_of_transactions_and_updates_are_added() -> None:
    added = "transaction.id,transaction.total_order"
    added += ",updateDescription.updatedFields:new,updateDescription.removedFields:gone"
    given = settings(**PLAIN, **UNWRAP, **{"transforms": "u", "transforms.u.add.fields": added})
    updated = change("u", 1, after=ExtendedDocument(_id=1, n=2), updated=ExtendedDocument(n=2), removed=["old"])
    found = segment([INSERTED, updated], "cu", KINDS["3"])
    numbered = replace(found, total_order=np.array([0, 3]), table_order=np.array([0, 1]))
    first, second = (json.loads(row["value"]) for part in to_rows(numbered, given) for row in part.to_pylist())
    nothing = {"__transaction_id": None, "__transaction_total_order": None, "__new": None, "__gone": None}
    assert first == {"_id": 1, "name": "a", "size": 2.5, **nothing}
    assert second["__new"] == '{"n": 2}'
    assert (second["__gone"], second["__transaction_total_order"]) == (["old"], 3)


def test_what_was_changed_before_is_refused_with_its_place() -> None:
    options = {**UNWRAP, "transforms": "mask,u", "transforms.mask.type": f"{CONNECT}.ExtractField$Key"}
    with pytest.raises(TransformError, match=r"no id of a document in the key.*inventory\.customers at 1558965515:6"):
        rows("c", [INSERTED], **options, **{"transforms.mask.field": "id"})


def test_a_document_without_a_schema_is_put_aside_alone() -> None:
    mixed = change("c", 3, after=ExtendedDocument(_id=3, list=[1, "x"]))
    options = {**UNWRAP, "transforms": "u"}
    with pytest.raises(ConversionError, match=r"array p\.inventory\.customers\.list has elements of different types"):
        rows("cc", [INSERTED, mixed], **options)
    found = rows("ccc", [INSERTED, mixed, OTHER], **options, **{"event.processing.failure.handling.mode": "skip"})
    assert [row["op"] for row in found] == ["c", "quarantine", "c"]


def test_a_record_that_is_dropped_needs_no_form_of_its_key() -> None:
    """The update's document was gone when it was looked up, and Kafka Connect has no schema for its key."""
    key = ExtendedDocument(list=[1, "x"])
    options = {**UNWRAP, "transforms": "u", "transforms.u.delete.tombstone.handling.mode": "drop"}
    found = rows("cu", [INSERTED, change("u", key)], **options)
    assert [row["op"] for row in found] == ["c"]
    with pytest.raises(ConversionError, match="list has elements of different types"):
        rows("c", [change("c", key, after=ExtendedDocument(_id=key))], **options)


def test_a_router_by_name_needs_no_documents() -> None:
    options = {"transforms": "r", "transforms.r.type": f"{CONNECT}.RegexRouter", "transforms.r.regex": ".*",
               "transforms.r.replacement": "all"}  # fmt: skip
    found = rows("cd", [INSERTED, DELETED], **options)
    assert [(row["topic"], row["op"]) for row in found] == [("all", "c"), ("all", "d"), ("all", "tombstone")]


NO_VALUE = [
    ExtendedDocument({"$numberInt": "99999999999"}),
    ExtendedDocument({"$date": ExtendedDocument({"$numberLong": "9" * 20})}),
    ExtendedDocument({"$binary": ExtendedDocument({"base64": "AA==", "subType": "fff"})}),
    ExtendedDocument({"$regularExpression": ExtendedDocument({"pattern": "a\0b", "options": ""})}),
    ExtendedDocument({"$dbPointer": ExtendedDocument({"$ref": "a", "$id": ExtendedDocument({"$oid": "zz"})})}),
]


@pytest.mark.parametrize("value", NO_VALUE, ids=lambda value: next(iter(value)))
def test_a_document_that_looks_like_a_value_beyond_its_type_is_put_aside_alone(value: ExtendedDocument) -> None:
    options = {**UNWRAP, "transforms": "u"}
    changes = [INSERTED, change("c", 3, after=ExtendedDocument(_id=3, v=value)), OTHER]
    with pytest.raises(ConversionError, match="a value that BSON cannot hold"):
        rows("ccc", changes, **options)
    found = rows("ccc", changes, **options, **{"event.processing.failure.handling.mode": "skip"})
    assert [row["op"] for row in found] == ["c", "quarantine", "c"]


NOT_WHOLE = [
    {"$regex": "x", "$options": None},
    {"$regularExpression": {"pattern": 5, "options": "i"}},
    {"$code": 1, "$scope": {}},
    {"$binary": "AA==", "$type": None},
    {"$binary": {"base64": 5, "subType": "00"}},
    {"$timestamp": {"t": "x", "i": {}}},
    {"$dbPointer": {"$ref": 5, "$id": "x"}},
]


@pytest.mark.parametrize("value", NOT_WHOLE, ids=lambda value: next(iter(value)))
def test_a_document_that_only_looks_like_a_value_is_a_document(value: dict[str, Any]) -> None:
    def documents(of: Any) -> Any:
        return ExtendedDocument({name: documents(part) for name, part in of.items()}) if isinstance(of, dict) else of

    inserted = change("c", 3, after=ExtendedDocument(_id=3, v=documents(value)))
    (found,) = rows("c", [inserted], **UNWRAP, transforms="u")
    assert json.loads(found["value"]) == {"_id": 3, "v": value}
