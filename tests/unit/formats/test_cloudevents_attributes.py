"""CloudEvents: each attribute of an event comes from its part of the envelope or its header."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace import formats
from tailrace.columns.logical import BYTES, INT32, INT64, STRING, Field, semantic, struct
from tailrace.config.formats import Format
from tailrace.errors import ConfigError, ConversionError
from tailrace.records.layout import ComputedColumn, Constant, Header, Node, RecordLayout
from tests.layout_blocks import BARE, TOPIC, LayoutBlock, change_event, encoded, source_block, stored, struct_of
from tests.servers.registry import Registry

pytest.importorskip("fastavro")

from tests.unit.formats.registered import read_avro

ROW = struct_of(f"{TOPIC}.Value", id=Constant(1, INT32), v=Constant("é", STRING.with_optional(True)))
ORDERS = struct(Field("id", STRING), Field("total_order", INT64), Field("data_collection_order", INT64))


def form(**options: str) -> Format:
    """Return the format with these options; `_` in their names is a dot."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    return Format("cloudevents", "value", tuple(sorted(named.items())))


CREATED = change_event("c", None, ROW)


def event(value: Node = CREATED, record: RecordLayout = BARE, **options: str) -> Any:
    """Return the event of a record whose values are all known; None for null."""
    data = formats.find(form(**options)).one(value, True, record)
    return None if data is None else json.loads(data)


def test_attributes_come_in_their_order() -> None:
    found = event()
    assert list(found) == [
        "id", "source", "specversion", "type", "time", "datacontenttype", "iodebeziumop", "iodebeziumversion",
        "iodebeziumconnector", "iodebeziumname", "iodebeziumtsms", "iodebeziumdb", "iodebeziumsequence",
        "iodebeziumschema", "iodebeziumtable", "iodebeziumtxId", "iodebeziumlsn", "iodebeziumtxid",
        "iodebeziumtxtotalorder", "iodebeziumtxdatacollectionorder", "data",
    ]  # fmt: skip
    assert found["id"] == 'name:server;lsn:24023128;txId:700;sequence:["23","24"]'
    assert found["source"] == "/debezium/postgresql/server"
    assert (found["specversion"], found["datacontenttype"]) == ("1.0", "application/json")
    assert found["type"] == "io.debezium.connector.postgresql.DataChangeEvent"
    assert found["time"] == "2026-11-21T01:00:27.639Z"
    # Whole numbers of 64 bits are texts.
    assert (found["iodebeziumlsn"], found["iodebeziumtxId"], found["iodebeziumtsms"]) == (
        "24023128", "700", "1795222827639",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "time"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_the_time_has_three_digits(ms: int, time: str) -> None:
    assert event(change_event("c", None, ROW, source=source_block(ts_ms=Constant(ms, INT64))))["time"] == time


def test_a_part_that_is_null_is_a_null_attribute() -> None:
    nothing = Constant(None, INT64.with_optional(True))
    found = event(change_event("r", None, ROW, source=source_block(lsn=nothing, txId=nothing)))
    assert found["id"] == 'name:server;lsn:null;txId:null;sequence:["23","24"]'
    assert (found["iodebeziumlsn"], found["iodebeziumtxid"], found["iodebeziumtxtotalorder"]) == (None, None, None)


def test_names_of_attributes_have_letters_and_digits_alone() -> None:
    source = source_block(**{"origin_lsn-2.x é": Constant("o", STRING)})
    assert event(change_event("c", None, ROW, source=source))["iodebeziumoriginlsn2x"] == "o"


def test_the_place_in_a_transaction_is_three_attributes() -> None:
    block = Constant({"id": "700:24", "total_order": 2, "data_collection_order": 1}, ORDERS.with_optional(True))
    found = event(change_event("c", None, ROW, transaction=block))
    shown = [found[f"iodebeziumtx{name}"] for name in ("id", "totalorder", "datacollectionorder")]
    assert shown == ["700:24", "2", "1"]


@pytest.mark.parametrize(
    ("connector", "parts", "wanted"),
    [
        ("sqlserver", {"change_lsn": "a:1", "commit_lsn": "a:2", "event_serial_no": 3},
         "name:server;change_lsn:a:1;commit_lsn:a:2;event_serial_no:3"),
        ("mongodb", {"ord": 5}, "name:server;ts:1795222827639;ord:5"),
    ],
)  # fmt: skip
def test_an_id_is_made_of_what_the_connector_has(connector: str, parts: dict[str, Any], wanted: str) -> None:
    nodes = {name: Constant(value, STRING if isinstance(value, str) else INT64) for name, value in parts.items()}
    source = source_block(connector=Constant(connector, STRING), **nodes)
    found = event(change_event("c", None, ROW, source=source))
    assert found["id"] == wanted
    assert found["source"] == f"/debezium/{connector}/server"


def test_ids_of_a_block_are_those_of_its_records() -> None:
    block = LayoutBlock(2)
    source = source_block(lsn=block.column("lsn", INT64, 1, 2), sequence=block.column("seq", STRING, '["1"]', '["2"]'))
    row = struct_of("r.Value", id=block.column("id", INT32, 7, -7))
    found = [
        json.loads(data)
        for data in encoded(form(json_schemas_enable="false"), change_event("c", None, row, source=source), block)
    ]
    assert [one["id"] for one in found] == [
        'name:server;lsn:1;txId:700;sequence:["1"]', 'name:server;lsn:2;txId:700;sequence:["2"]',
    ]  # fmt: skip
    assert [one["iodebeziumlsn"] for one in found] == ["1", "2"]
    assert [one["data"] for one in found] == [
        {"before": None, "after": {"id": 7}},
        {"before": None, "after": {"id": -7}},
    ]


def test_data_is_the_rows_with_their_schema() -> None:
    data = event(change_event("u", ROW, ROW))["data"]
    assert data["payload"] == {"before": {"id": 1, "v": "é"}, "after": {"id": 1, "v": "é"}}
    assert data["schema"]["name"] == "io.debezium.connector.postgresql.Data"
    assert [part["field"] for part in data["schema"]["fields"]] == ["before", "after"]
    assert event(json_schemas_enable="false")["data"] == {"before": None, "after": {"id": 1, "v": "é"}}


def test_decimals_of_the_data_may_be_numbers() -> None:
    kind = semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="2").with_default("ZA==")
    value = change_event("c", None, struct_of("r.Value", n=Constant("APo=", kind)))
    data = event(value, json_decimal_format="NUMERIC")["data"]
    assert data["payload"]["after"]["n"] == 2.5
    assert data["schema"]["fields"][1]["fields"][0]["default"] == 1.0
    assert event(value)["data"]["payload"]["after"]["n"] == "APo="


@pytest.mark.parametrize(
    "value",
    [
        Constant(None, struct(Field("id", INT32)).with_optional(True)),
        Constant("text", STRING),
        struct_of("io.debezium.connector.common.Heartbeat", ts_ms=Constant(1, INT64)),
        struct_of("event.block", status=Constant("BEGIN", STRING)),
        ROW,
    ],
)
def test_what_is_no_change_has_no_event(value: Node) -> None:
    assert event(value) is None
    assert formats.find(form()).compile(value, True, BARE) is None


def test_a_tombstone_beside_an_event_is_null() -> None:
    block = LayoutBlock(3)
    encoding = formats.find(form())
    document = encoding.compile(change_event("d", ROW, None), True, BARE)
    found = encoding.block(block).encode([document, None], block.index[0] % 2).to_pylist()
    assert [data is None for data in found] == [False, True, False]
    assert json.loads(found[0])["iodebeziumop"] == "d"


def with_headers(**headers: Node) -> RecordLayout:
    return replace(BARE, headers=tuple(Header(name, node) for name, node in headers.items()))


def test_metadata_and_single_attributes_may_come_from_headers() -> None:
    record = with_headers(
        source=source_block(),
        op=Constant("u", STRING),
        id=Constant("mine", STRING),
        traceparent=Constant("00-a", STRING),
    )
    chosen = {"metadata_source": "header,type:generate", "opentelemetry_tracing_attributes_enable": "true"}
    found = event(ROW, record, json_schemas_enable="false", **chosen)
    assert (found["id"], found["iodebeziumop"], found["traceparent"]) == ("mine", "u", "00-a")
    assert found["type"] == "io.debezium.connector.postgresql.DataChangeEvent"
    assert list(found)[6] == "traceparent"
    assert found["data"] == {"id": 1, "v": "é"}
    # A record without a change is not an event.
    assert event(ROW, replace(BARE, op="heartbeat"), metadata_source="header") is None


def test_extensions_may_be_left_out() -> None:
    found = event(extension_attributes_enable="false")
    assert list(found) == ["id", "source", "specversion", "type", "time", "datacontenttype", "data"]


def test_a_source_block_that_transforms_have_computed_has_no_id() -> None:
    source = source_block(lsn=ComputedColumn((), lambda: stored(INT64, 1), INT64))
    with pytest.raises(ConversionError, match="cannot be made of a computed source block"):
        event(change_event("c", None, ROW, source=source))
    with pytest.raises(ConversionError, match="needs the names of connector, server and database"):
        event(change_event("c", None, ROW, source=source_block().without("name")))


AVRO = {
    "data_serializer_type": "avro",
    "avro_apicurio_registry_as-confluent": "true",
    "avro_apicurio_registry_auto-register": "true",
    "avro_apicurio_registry_headers_enabled": "false",
}


def in_avro(registry: Registry, **more: str) -> dict[str, str]:
    return AVRO | {"avro_apicurio_registry_url": registry.apicurio} | more


def test_the_data_may_be_avro_in_base64(registry: Registry) -> None:
    found = event(**in_avro(registry))
    assert found["datacontenttype"] == "application/avro"
    assert found["dataschema"] == f"{registry.apicurio}/schemas/ids/1"
    assert list(found).index("dataschema") == 6
    assert read_avro(registry, base64.b64decode(found["data"])) == {"before": None, "after": {"id": 1, "v": "é"}}
    assert [version.subject for version in registry.versions] == [f"{TOPIC}-value"]


def test_the_event_may_be_avro_too(registry: Registry) -> None:
    block = LayoutBlock(2)
    row = struct_of("r.Value", id=block.column("id", INT32, 7, -7))
    found = encoded(form(**in_avro(registry, serializer_type="avro")), change_event("c", None, row), block)
    events = [read_avro(registry, data) for data in found]
    assert [read_avro(registry, one["data"])["after"] for one in events] == [{"id": 7}, {"id": -7}]
    assert [one["specversion"] for one in events] == ["1.0", "1.0"]
    assert [version.subject for version in registry.versions] == [f"{TOPIC}-data-value", f"{TOPIC}-value"]
    assert json.loads(registry.versions[1].schema)["namespace"] == "server.golden.CloudEvents"


def test_an_event_in_avro_needs_a_topic_that_is_known(registry: Registry) -> None:
    topic = ComputedColumn((), lambda: stored(STRING, "a"), STRING)
    chosen = form(**in_avro(registry, serializer_type="avro"))
    with pytest.raises(ConfigError, match="cannot be written for topics that depend on values"):
        formats.find(chosen).compile(change_event("c", None, ROW), True, replace(BARE, topic=topic))


@pytest.mark.parametrize(
    ("mode", "name"),
    [("avro", "my_server.golden.CloudEvents.Envelope"), ("none", "my-server.golden.CloudEvents.Envelope")],
)
def test_the_name_of_the_event_is_adjusted(registry: Registry, mode: str, name: str) -> None:
    source = source_block(name=Constant("my-server", STRING))
    value = change_event("c", None, ROW, source=source)
    chosen = in_avro(registry, serializer_type="avro")
    encoded(form(**chosen, schema_name_adjustment_mode=mode), value, LayoutBlock(1))
    made = json.loads(registry.versions[1].schema)
    assert f"{made['namespace']}.{made['name']}" == name
    encoded(form(**chosen, schema_cloudevents_name="my.Event"), value, LayoutBlock(1))
    assert json.loads(registry.versions[-1].schema)["name"] == "Event"


def test_rows_that_are_computed_are_data_too() -> None:
    kind = struct(Field("id", INT32), name="r.Value").with_optional(True)
    block = LayoutBlock(2)
    row = ComputedColumn((), lambda: stored(kind, {"id": 1}, None), kind)
    found = encoded(form(json_schemas_enable="false"), change_event("c", None, row), block)
    assert [json.loads(data)["data"]["after"] for data in found] == [{"id": 1}, None]
