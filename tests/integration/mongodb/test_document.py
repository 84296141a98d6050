"""Document 003: entries as MongoDB 3.4 wrote them become the values of the MongoDB connector 1.1."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from bson import Int64, Timestamp

from tests.fix_mongodb import GenuineOplog
from tests.integration.mongodb.capture import Capture, Event, after

Make = Callable[..., Capture]
ANNE = {"_id": Int64(1004), "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
H = 1546547425148721999


def entry(increment: int, op: str, **more: Any) -> dict[str, Any]:
    return {"ts": Timestamp(1558965508, increment), "t": Int64(1), "h": Int64(H + increment), "v": 2, "op": op,
            "ns": "inventory.customers", **more}  # fmt: skip


@pytest.fixture
def events(genuine_oplog: GenuineOplog, make_capture: Make) -> list[Event]:
    """Return a create, an update and a delete of document 1004, as in the documentation."""
    genuine_oplog.append({**entry(1, "n", o={"msg": "initiating set"}), "ns": ""})
    capture = make_capture(genuine_oplog.server, old=True, snapshot_mode="never")
    capture.idle(1)
    genuine_oplog.append(
        entry(31, "i", o=ANNE),
        entry(32, "u", o={"$set": {"first_name": "Anne Marie"}}, o2={"_id": Int64(1004)}),
        entry(33, "u", o={"$v": 1, "$set": {"a": 1}}, o2={"_id": Int64(1004), "region": "north"}),
        entry(34, "d", o={"_id": Int64(1004)}),
    )
    return capture.until(5)


@pytest.mark.seed("003-01")
@pytest.mark.seed("003-04")
def test_a_value_has_op_and_a_processing_time(events: list[Event]) -> None:
    assert [event["op"] for event in events] == ["c", "u", "u", "d", "tombstone"]
    for event in events[:4]:
        assert event["value"]["op"] == event["op"]
        assert event["value"]["ts_ms"] > 1_700_000_000_000


@pytest.mark.seed("003-02")
@pytest.mark.seed("003-07")
@pytest.mark.seed("003-09")
def test_after_is_the_document_of_a_create_as_strict_json(events: list[Event]) -> None:
    assert events[0]["value"]["after"] == (
        '{"_id": {"$numberLong": "1004"},"first_name": "Anne","last_name": "Kretchmar","email": "annek@noanswer.org"}'
    )
    assert [event["value"]["after"] for event in events[1:4]] == [None, None, None]


@pytest.mark.seed("003-03")
@pytest.mark.seed("003-06")
@pytest.mark.seed("003-12")
def test_the_source_tells_the_oplog_position(events: list[Event]) -> None:
    source = events[0]["value"]["source"]
    assert list(source) == ["version", "connector", "name", "ts_ms", "snapshot", "db", "rs", "collection", "ord", "h",
                            "tord"]  # fmt: skip
    assert source == {
        "version": "1.1.2.Final", "connector": "mongodb", "name": "fulfillment", "ts_ms": 1558965508000,
        "snapshot": "false", "db": "inventory", "rs": "rs0", "collection": "customers", "ord": 31, "h": H + 31,
        "tord": None,
    }  # fmt: skip
    assert [event["value"]["source"]["ord"] for event in events[:4]] == [31, 32, 33, 34]


@pytest.mark.seed("003-10")
@pytest.mark.seed("003-13")
@pytest.mark.seed("003-14")
def test_an_update_has_patch_and_filter_as_the_server_wrote_them(events: list[Event]) -> None:
    value = events[1]["value"]
    assert value["after"] is None
    assert value["patch"] == '{"$set": {"first_name": "Anne Marie"}}'
    assert value["filter"] == '{"_id": {"$numberLong": "1004"}}'
    assert events[2]["value"]["patch"] == '{"$v": 1,"$set": {"a": 1}}'
    assert "before" not in value


@pytest.mark.seed("003-11")
def test_a_filter_may_have_the_fields_of_a_shard_key(events: list[Event]) -> None:
    assert events[2]["value"]["filter"] == '{"_id": {"$numberLong": "1004"},"region": "north"}'
    assert events[2]["key"] == "1004"


@pytest.mark.seed("003-15")
@pytest.mark.seed("003-16")
@pytest.mark.seed("003-17")
def test_a_delete_has_a_filter_and_a_tombstone_of_the_same_key(events: list[Event]) -> None:
    delete, tombstone = events[3], events[4]
    assert delete["value"]["after"] is None
    assert delete["value"]["patch"] is None
    assert delete["value"]["filter"] == '{"_id": {"$numberLong": "1004"}}'
    assert tombstone["value"] is None
    assert {event["key"] for event in events} == {"1004"}


@pytest.mark.seed("003-05")
@pytest.mark.seed("003-05b")
@pytest.mark.seed("003-08")
@pytest.mark.seed("003-18")
def test_schemas_are_of_the_collection_and_reads_tell_the_snapshot(
    genuine_oplog: GenuineOplog, make_capture: Make
) -> None:
    genuine_oplog.append({**entry(31, "n", o={}), "ns": ""})
    client = genuine_oplog.collection.database.client
    for name in ("customers", "orders"):
        client["doc003"][name].insert_one(ANNE)
    capture = make_capture(
        genuine_oplog.server, old=True, database_include_list="doc003",
        **{"value_converter_schemas_enable": "true"},
    )  # fmt: skip
    first, second = capture.until(2)
    client.drop_database("doc003")
    schemas = [event["value"]["schema"] for event in (first, second)]
    assert [field["field"] for field in schemas[0]["fields"]] == [
        "after", "patch", "filter", "source", "op", "ts_ms", "transaction"
    ]  # fmt: skip
    for field in schemas[0]["fields"][:3]:
        assert field == {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1,
                         "field": field["field"]}  # fmt: skip
    assert schemas[0]["name"] == "fulfillment.doc003.customers.Envelope"
    assert schemas[1]["name"] == "fulfillment.doc003.orders.Envelope"
    sources = [json.dumps(schema["fields"][3]) for schema in schemas]
    assert sources[0] == sources[1]
    payload = first["value"]["payload"]
    assert (payload["op"], payload["patch"], payload["filter"]) == ("r", None, None)
    assert (payload["source"]["snapshot"], payload["source"]["ord"], payload["source"]["h"]) == ("true", 31, H + 31)
    assert second["value"]["payload"]["source"]["snapshot"] == "last"
    assert after({"value": payload}) == {
        "_id": {"$numberLong": "1004"},
        **{k: v for k, v in ANNE.items() if k != "_id"},
    }
