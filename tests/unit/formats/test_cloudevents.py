"""CloudEvents: their attributes, their data, and what the converter's options change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.columns.logical import STRING
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConversionError
from tailrace.events.control_records import heartbeat_row, own_rows
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.formats.cloudevents.options import options_of
from tailrace.formats.option_reader import OptionReader
from tailrace.records.layout import Constant, Header, RecordLayout, Struct
from tests.event_settings import event_settings
from tests.unit.events.changes import batch, table

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES = batch(TABLE, [("c", None, ("1", "a")), ("d", ("1", None), None)])
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p",
            "value.converter": "io.debezium.converters.CloudEventsConverter"}  # fmt: skip
ATTRIBUTES = ["id", "source", "specversion", "type", "time", "datacontenttype"]


class FromHeaders:
    """A transform that moves the parts of the envelope into headers, and leaves the row unchanged."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        if not isinstance(record.value, Struct):
            return record
        parts = [(name, record.value.part(name)) for name in self.names]
        headers = tuple(Header(name, part) for name, part in parts if part is not None)
        fixed = tuple(Header(name, Constant(f"a {name}", STRING)) for name in ("id", "type", "traceparent"))
        return replace(record, value=record.value.part("after"), headers=(*record.headers, *headers, *fixed))


def settings(*transforms: Any, **options: str) -> EventSettings:
    named = tuple(sorted((name.replace("_", "."), text) for name, text in options.items()))
    form = Format("cloudevents", "value", named)
    return event_settings("server", "golden", value_format=form, transforms=transforms)


def events(chosen: EventSettings) -> list[Any]:
    rows = [row for part in to_rows(CHANGES, chosen, FORM) for row in part.to_pylist()]
    return [row["value"] and json.loads(row["value"]) for row in rows]


def test_an_event_has_attributes_and_data() -> None:
    created, deleted, tombstone = events(settings())
    assert tombstone is None
    assert list(created)[:7] == [*ATTRIBUTES, "iodebeziumop"]
    assert (created["iodebeziumop"], deleted["iodebeziumop"]) == ("c", "d")
    assert created["source"] == "/debezium/postgresql/server"
    assert created["type"] == "io.debezium.connector.postgresql.DataChangeEvent"
    parts = {name: created[f"iodebezium{name}"] for name in ("lsn", "txId", "sequence")}
    assert created["id"] == "name:server;" + ";".join(f"{name}:{text}" for name, text in parts.items())
    assert created["data"]["payload"] == {"before": None, "after": {"id": 1, "v": "a"}}
    assert created["data"]["schema"]["name"] == "io.debezium.connector.postgresql.Data"
    assert isinstance(created["iodebeziumtsms"], str)


def test_data_may_come_without_schema_and_events_without_extensions() -> None:
    chosen = settings(json_schemas_enable="false", extension_attributes_enable="false")
    created, _, _ = events(chosen)
    assert list(created) == [*ATTRIBUTES, "data"]
    assert created["data"] == {"before": None, "after": {"id": 1, "v": "a"}}


def test_metadata_may_come_from_headers() -> None:
    chosen = settings(
        FromHeaders("source", "op", "transaction"),
        metadata_source="header",
        json_schemas_enable="false",
        opentelemetry_tracing_attributes_enable="true",
    )
    created = events(chosen)[0]
    assert (created["id"], created["type"], created["traceparent"]) == ("a id", "a type", "a traceparent")
    assert created["data"] == {"id": 1, "v": "a"}
    assert created["iodebeziumop"] == "c"
    chosen = settings(FromHeaders("source", "op"), metadata_source="header,id:generate,type:generate")
    assert events(chosen)[0]["id"].startswith("name:server;lsn:")


def test_the_data_has_the_name_of_data_wherever_the_metadata_is() -> None:
    chosen = settings(FromHeaders("source", "op"), metadata_source="header,id:generate,type:generate")
    created = events(chosen)[0]
    assert created["data"]["schema"]["name"] == "io.debezium.connector.postgresql.Data"
    # There is a place for the transaction, although no header has one.
    assert created["iodebeziumtxid"] is None


class Named:
    """A transform that adds the header with the name of the data's schema."""

    def __init__(self, name: object) -> None:
        self.name = name

    def rewrite(self, record: RecordLayout) -> RecordLayout:
        header = Header("dataSchemaName", Constant(self.name, STRING))
        return replace(record, headers=(*record.headers, header))


def test_the_name_of_the_datas_schema_may_come_from_a_header() -> None:
    chosen = {"metadata_source": "value,dataSchemaName:header", "schema_data_name_source_header_enable": "true"}
    assert events(settings(Named("my data.9"), **chosen))[0]["data"]["schema"]["name"] == "my data.9"
    for name, text in (("metadata_source", "value"), ("schema_data_name_source_header_enable", "false")):
        made = events(settings(Named("mine"), **chosen | {name: text}))[0]["data"]["schema"]["name"]
        assert made == "io.debezium.connector.postgresql.Data"
    with pytest.raises(ConversionError, match="the attribute dataSchemaName from a header"):
        events(settings(**chosen))
    with pytest.raises(ConversionError, match="dataSchemaName, which is not a constant text"):
        events(settings(Named(None), **chosen))


def test_options_of_json_are_those_of_the_data() -> None:
    columns = [
        Column("id", "int4", 23, nullable=False),
        Column("n", "numeric", 1700, modifier=(6 << 16 | 2) + 4, default="1.50"),
    ]
    part = batch(table("t", columns, "id"), [("c", None, ("1", "2.5")), ("c", None, ("2", None))])

    def data(**options: str) -> tuple[list[Any], Any]:
        given = {f"value.converter.json.{name.replace('_', '.')}": text for name, text in options.items()}
        chosen = EventSettings.from_options(parse("postgres", POSTGRES | given))
        rows = [json.loads(row["value"]) for found in to_rows(part, chosen, FORM) for row in found.to_pylist()]
        images = rows[0]["data"]["schema"]["fields"][1]["fields"]
        return [row["data"]["payload"]["after"]["n"] for row in rows], images[1]["default"]

    assert data() == (["APo=", "AJY="], "AJY=")
    assert data(decimal_format="NUMERIC") == ([2.5, 1.5], 1.5)
    assert data(replace_null_with_default="false") == (["APo=", None], "AJY=")


def test_a_header_that_is_missing_is_an_error() -> None:
    with pytest.raises(ConversionError, match="a record has no headers source and op"):
        events(settings(metadata_source="header"))
    with pytest.raises(
        ConversionError, match="the attribute id from a header, but a record has no header of that name"
    ):
        events(settings(metadata_source="value,id:header"))


def test_what_is_no_change_has_no_event() -> None:
    (beat,) = heartbeat_row(5, 7, settings()).to_pylist()
    assert beat["value"] is None
    assert beat["key"] is not None


def test_records_of_the_quarantine_topic_are_json() -> None:
    record = RecordLayout("quarantine", "q", None, Struct((), "tailrace.Quarantine"))
    for form in ("cloudevents", "bytearray"):
        chosen = event_settings("server", "golden", value_format=form, value_schemas_enable=False)
        assert own_rows([(record, {})], chosen).to_pylist()[0]["value"] == b"{}"


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("serializer.type=avro", r"serializer\.type = avro with .*data\.serializer\.type = json is not supported"),
        ("metadata.source=value,id:mine", r"metadata\.source has the word id:mine, which is not known"),
        ("metadata.source=traceparent:generate", r"traceparent:generate is not supported"),
        ("data.serializer.type=protobuf", r"data\.serializer\.type = protobuf is not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(option: str, words: str) -> None:
    name, _, text = option.partition("=")
    with pytest.raises(ConfigError, match=words):
        parse("postgres", POSTGRES | {f"value.converter.{name}": text})


def test_the_address_of_schemas_may_come_from_the_environment_and_shows_no_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, address in (
        ("http://r/", "http://r"),
        ("http://user:pa55@r", "http://r"),
        ("http://user:p@5,5@r,http://user:pa55@s", "http://r,http://s"),
    ):
        named = {"data.serializer.type": "avro", "Avro.Schema.Registry.Url": given}
        assert options_of("value", OptionReader("value.converter.", named)).registry_url == address
    monkeypatch.setenv("CONNECT_VALUE_CONVERTER_APICURIO_REGISTRY_URL", "http://r/apis/registry/v2")
    named = {"data.serializer.type": "avro", "avro.apicurio.registry.headers.enabled": "false"}
    assert options_of("value", OptionReader("value.converter.", named)).registry_url == "http://r/apis/registry/v2"


def test_it_is_a_converter_of_values() -> None:
    with pytest.raises(ConfigError, match=r"key\.converter cannot be CloudEventsConverter"):
        parse("postgres", POSTGRES | {"key.converter": "io.debezium.converters.CloudEventsConverter"})
