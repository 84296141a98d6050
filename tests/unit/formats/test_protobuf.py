"""Protobuf: schemas equal the registered ones exactly, and records have the right bytes."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import ChangeBatch, Column
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    LogicalType,
    array,
    mapping,
    struct,
)
from tailrace.config.formats import Format
from tailrace.connectors.mongodb.records.records import numbered_rows
from tailrace.connectors.mongodb.records.segment import read_documents
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.errors import ConversionError, RegistryError
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.formats.avro.schema import AvroRules
from tailrace.formats.avro.values import array_piece as avro_piece
from tailrace.formats.protobuf.schema import ProtobufRules, file_of, scrubbed
from tailrace.formats.protobuf.values import FieldPlace, array_piece, json_piece, place_of, writer
from tailrace.formats.registry import schema_ids
from tailrace.formats.registry.schema_ids import proto_shape
from tailrace.values.arrow import arrow_type_of
from tailrace.values.calendar import date_of
from tailrace.values.decimals import unscaled_bytes
from tailrace.values.fragments import strings_fragment
from tests.event_settings import event_settings
from tests.servers.registry import Registry
from tests.unit.events.changes import batch, table
from tests.unit.mongodb.test_placing import packed
from tests.unit.mongodb.test_placing import settings as mongodb_settings

TABLE = table("t", [Column("id", "int4", 23, nullable=False), Column("v", "text", 25)], "id")
CHANGES = batch(TABLE, [("c", None, ("1", "a")), ("u", None, ("1", "b")), ("d", ("1", None), None)])
POSTGRES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
PROTOBUF = "io.confluent.connect.protobuf.ProtobufConverter"
CONNECT = "org.apache.kafka.connect.data."
TRANSFORM = "org.apache.kafka.connect.transforms."


def decimal(scale: int, precision: int) -> LogicalType:
    given = (("scale", str(scale)), ("connect.decimal.precision", str(precision)))
    return LogicalType("bytes", CONNECT + "Decimal", 1, given)


@pytest.fixture
def registry(registry: Registry) -> Registry:
    """Yield a registry for Confluent's client."""
    pytest.importorskip("httpx2")
    return registry


def settings(registry: Registry, *parts: str, **options: str) -> EventSettings:
    named = {"schema.registry.url": registry.address} | {name.replace("_", "."): text for name, text in options.items()}
    formats: dict[str, Any] = {
        f"{part}_format": Format("protobuf", part, tuple(sorted(named.items()))) for part in parts
    }
    return event_settings("server", "golden", **formats)


def rows(part: ChangeBatch, chosen: EventSettings) -> list[dict[str, Any]]:
    return [row for found in to_rows(part, chosen, FORM) for row in found.to_pylist()]


def test_a_schema_is_text_as_confluents_converter_lays_it_out() -> None:
    record = struct(
        Field("timestamp", BYTES),
        Field("User_ID", STRING),
        Field("Register_Time", INT16),
        Field("Max_Auto_Value", decimal(20, 38)),
        name="test.db_test.dbo.User_Setup.Value",
    )
    found = file_of(record, ProtobufRules())
    assert (found.name, found.place) == ("test.db_test.dbo.User_Setup.Value", 0)
    assert (
        found.text
        == """syntax = "proto3";
package test.db_test.dbo.User_Setup;

import "confluent/type/decimal.proto";

message Value {
  bytes timestamp = 1;
  string User_ID = 2;
  int32 Register_Time = 3 [(confluent.field_meta) = {
    params: [
      {
        key: "connect.type",
        value: "int16"
      }
    ]
  }];
  confluent.type.Decimal Max_Auto_Value = 4 [(confluent.field_meta) = {
    params: [
      {
        value: "38",
        key: "precision"
      },
      {
        value: "20",
        key: "scale"
      }
    ]
  }];
}
"""
    )


def test_structs_and_maps_are_messages_within_messages() -> None:
    place = struct(Field("at", LogicalType("int64", CONNECT + "Timestamp", 1)), name="x.Place")
    record = struct(
        Field("Place", place.with_optional(True)),
        Field("again", place),
        Field("all", array(place)),
        Field("marks", mapping(STRING.with_optional(True))),
        Field("bare", struct(Field("n", INT32.with_optional(True)))),
    )
    assert (
        file_of(record, ProtobufRules(optionals=True)).text
        == """syntax = "proto3";

import "google/protobuf/timestamp.proto";

message ConnectDefault1 {
  optional PlaceMessage Place = 1;
  Place again = 2;
  repeated Place all = 3;
  repeated ConnectDefault2Entry marks = 4;
  ConnectDefault3 bare = 5;

  message PlaceMessage {
    google.protobuf.Timestamp at = 1;
  }
  message Place {
    google.protobuf.Timestamp at = 1;
  }
  message ConnectDefault2Entry {
    string key = 1;
    string value = 2;
  }
  message ConnectDefault3 {
    optional int32 n = 1;
  }
}
"""
    )


def test_a_field_that_may_be_null_can_be_a_message_of_one_value() -> None:
    record = struct(Field("n", INT64.with_optional(True)), Field("m", INT64), name="R")
    text = file_of(record, ProtobufRules(wrappers=True)).text
    assert 'import "google/protobuf/wrappers.proto";\n' in text
    assert "  google.protobuf.Int64Value n = 1;\n  int64 m = 2;\n" in text
    write = writer(place_of(1, INT64.with_optional(True), ProtobufRules(wrappers=True)), ProtobufRules(wrappers=True))
    assert [write(value) for value in (None, 0, 5)] == [b"", b"\x0a\x00", b"\x0a\x02\x08\x05"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (struct(Field("a-b", STRING), name="R"), "a-b is not a name that Protobuf allows"),
        (struct(Field("a", array(array(STRING))), name="R"), "the list a, whose items are lists or maps"),
        (array(STRING), "a key or value that is a array alone"),
        (decimal(2, 5), "a key or value that is a org.apache.kafka.connect.data.Decimal alone"),
        (
            struct(Field("a", struct(Field("n", INT32), name="x.S")), Field("b", struct(name="y.S")), name="R"),
            "two structs with different fields that are both called S",
        ),
        (struct(Field("a", mapping(STRING)), Field("b", struct(Field("a", STRING), name="R")), name="R"), "called R"),
    ],
)
def test_what_protobuf_cannot_hold_is_refused(record: LogicalType, words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        file_of(record, ProtobufRules())


def test_names_are_scrubbed_as_urls_are_escaped() -> None:
    found = [scrubbed(name) for name in ("a_b", "a b", "1st", "_a", "naïve", "a-b.c")]
    assert found == ["a_b", "a_b", "x1st", "x_a", "na_C3_AFve", "a_b_c"]
    assert (
        "message x_Value {\n  string a_b = 1;"
        in file_of(struct(Field("a b", STRING), name="p._Value"), ProtobufRules(scrubs=True)).text
    )


def test_single_values_are_fields() -> None:
    def field(kind: LogicalType, value: Any) -> str:
        return writer(FieldPlace(1, kind), ProtobufRules())(value).hex()

    assert field(INT32, -1) == "08" + "ff" * 9 + "01"
    assert field(array(INT32), [1, 300]) == "0a0301ac02"
    assert field(array(STRING), ["", "a"]) == "0a000a0161"
    assert field(array(INT32), []) == field(INT32, 0) == field(STRING, "") == ""
    # -1.25 with the scale 2.
    assert field(decimal(2, 5), "gw==") == "0a070a018310031802"
    assert field(LogicalType("int32", CONNECT + "Date"), 0) == "0a0708b20f10011801"
    assert field(LogicalType("int32", CONNECT + "Time"), 3_600_001) == "0a06080120c0843d"
    assert field(LogicalType("int64", CONNECT + "Timestamp"), -1) == "0a1108" + "ff" * 9 + "0110c08faedc03"
    with pytest.raises(ConversionError, match="a null among its items"):
        field(array(STRING), ["a", None])


@pytest.mark.parametrize("unscaled", [0, -5, 10**17, 10**18, 2**63 - 1, -(2**63), 2**63, -(10**30)])
def test_a_column_of_decimals_is_as_single_ones(unscaled: int) -> None:
    text = base64.b64encode(unscaled_bytes(unscaled))
    place = place_of(1, decimal(2, 38), ProtobufRules())
    piece = json_piece(strings_fragment([b'"%b"' % text]), place, ProtobufRules())
    assert piece.data[: piece.offsets[1]].tobytes() == writer(place, ProtobufRules())(text.decode())


@pytest.mark.parametrize("kind", [BOOLEAN, FLOAT, DOUBLE, INT64, STRING, BYTES])
def test_a_column_of_no_records_has_no_bytes(kind: LogicalType) -> None:
    nothing = pa.array([], arrow_type_of(kind))
    assert array_piece(nothing, place_of(1, kind, ProtobufRules()), ProtobufRules()).offsets.tolist() == [0]
    assert avro_piece(nothing, kind, AvroRules()).offsets.tolist() == [0]


def test_dates_are_javas() -> None:
    assert date_of(-141_427) == (1582, 10, 15)
    assert date_of(-141_428) == (1582, 10, 4)
    # 0001-01-01 and the day before, of the Julian calendar.
    assert [date_of(-719_164), date_of(-719_165)] == [(1, 1, 1), (1, 12, 31)]


def test_records_name_their_schema_and_their_message(registry: Registry) -> None:
    found = rows(CHANGES, settings(registry, "key", "value"))
    assert [(version.subject, version.number) for version in registry.versions] == [
        ("server.public.t-key", 1),
        ("server.public.t-value", 1),
    ]
    assert (
        registry.versions[0].schema
        == 'syntax = "proto3";\npackage server.public.t;\n\nmessage Key {\n  int32 id = 1;\n}\n'
    )
    assert {bytes(row["key"]) for row in found} == {b"\0\0\0\0\x01\0\x08\x01"}
    assert [row["value"] is None for row in found] == [False, False, False, True]
    # The field after, with an id and a text.
    assert b"\x12\x05\x08\x01\x12\x01a" in found[0]["value"]
    rows(CHANGES, settings(registry, "key", "value"))
    assert len(registry.requests) == 2


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "server.public.t-value"),
        ("RecordNameStrategy", "server.public.t.Envelope"),
        ("TopicRecordNameStrategy", "server.public.t-server.public.t.Envelope"),
    ],
)
def test_subjects_follow_their_strategy(registry: Registry, strategy: str, subject: str) -> None:
    name = f"io.confluent.kafka.serializers.subject.{strategy}"
    rows(CHANGES, settings(registry, "value", value_subject_name_strategy=name))
    assert [version.subject for version in registry.versions] == [subject]


def test_schemas_may_have_to_be_there(registry: Registry) -> None:
    chosen = settings(registry, "value", auto_register_schemas="false")
    with pytest.raises(RegistryError, match=r"does not have the schema of the subject server\.public\.t-value"):
        rows(CHANGES, chosen)
    rows(CHANGES, settings(registry, "value"))
    schema_ids.forget()
    assert rows(CHANGES, chosen)[0]["value"][:6] == b"\0\0\0\0\x01\0"


def test_the_latest_schema_has_to_have_the_fields_of_the_records(registry: Registry) -> None:
    chosen = settings(registry, "key", use_latest_version="true", auto_register_schemas="false")
    registry.registered("server.public.t-key", 'syntax = "proto3"; message Key { int64 id = 1; }')
    with pytest.raises(RegistryError, match=r"latest schema of the subject server\.public\.t-key has other fields"):
        rows(CHANGES, chosen)
    own = 'syntax = "proto3"; package o; // ours\noption java_package = "x"; message Key { int32 id = 1 [a = {b: 1}]; }'
    registry.registered("server.public.t-key", own)
    assert rows(CHANGES, chosen)[0]["key"] == b"\0\0\0\0\x02\0\x08\x01"


def test_schemas_are_alike_that_write_the_same_bytes() -> None:
    def shape(fields: str, before: str = "") -> Any:
        return proto_shape(f"{before} message M {{ {fields} }}")

    one = shape("int32 a = 1;")
    assert shape("int32 a = 1; string b = 2;") == shape("string b=2; int32 a=1;")
    assert shape("N n = 1; message N {}") == shape(".p.M.N n = 1; message N {}", "package p;")
    assert one == shape("/* a */ int32 a = 1;", "import 'x'; enum E { A = 0; }")
    assert one == shape("oneof x { int32 a = 1; }")
    for other in ("int32 a = 2;", "int64 a = 1;", "int32 b = 1;", "optional int32 a = 1;", "map<string, int32> a = 1;"):
        assert one != shape(other)


@pytest.mark.parametrize(
    ("text", "written"), [("a", b"\0\0\0\0\x01\x02\x0e\x0a\x01a"), ("", b"\0\0\0\0\x01\x02\x0e"), (None, None)]
)
def test_a_value_alone_is_a_message_of_google(registry: Registry, text: str | None, written: bytes | None) -> None:
    options = {
        "transforms": "unwrap,pick",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.pick.type": TRANSFORM + "ExtractField$Value",
        "transforms.pick.field": "v",
        "value.converter": PROTOBUF,
        "value.converter.schema.registry.url": registry.address,
        "key.converter": PROTOBUF,
        "key.converter.schema.registry.url": registry.address,
        "transforms.key.type": TRANSFORM + "ExtractField$Key",
        "transforms.key.field": "id",
    }
    options["transforms"] += ",key"
    chosen = EventSettings.from_options(parse("postgres", POSTGRES | options))
    (row,) = rows(batch(TABLE, [("c", None, ("1", text))]), chosen)
    assert row["key"][5:] == b"\x02\x08\x08\x01"
    assert row["value"] == written
    assert all("message StringValue {\n  string value = 1;\n}\n" in version.schema for version in registry.versions)


def test_documents_are_written(registry: Registry) -> None:
    named = {
        f"{part}_converter{name}": text
        for part in ("key", "value")
        for name, text in (("", PROTOBUF), ("_schema_registry_url", registry.address))
    }
    segment = read_documents(("d", "a"), *packed([{"_id": 1, "v": "a"}]), 1 << 40, 1)
    ((found, _),) = numbered_rows(segment, mongodb_settings(**named))
    (row,) = found.to_pylist()
    assert row["key"] == b"\0\0\0\0\x01\0\x0a\x011"
    assert b'{"_id": 1,"v": "a"}' in row["value"]
    assert "  string id = 1;\n" in registry.schemas[1]
    assert "repeated string removedFields" in registry.schemas[2]


def test_a_computed_topic_has_a_subject_of_its_own(registry: Registry) -> None:
    options = {
        "transforms": "route",
        "transforms.route.type": "io.debezium.transforms.ContentBasedRouter",
        "transforms.route.language": "jsr223.groovy",
        "transforms.route.topic.expression": "value.after.v",
        "value.converter": PROTOBUF,
        "value.converter.schema.registry.url": registry.address,
    }
    chosen = EventSettings.from_options(parse("postgres", POSTGRES | options))
    found = rows(batch(TABLE, [("c", None, ("1", "a")), ("c", None, ("2", "b"))]), chosen)
    assert [row["topic"] for row in found] == ["a", "b"]
    assert sorted(version.subject for version in registry.versions) == ["a-value", "b-value"]
    assert all(row["value"][5] == 0 for row in found)


def test_options_of_reading_have_no_effect() -> None:
    given = {
        "value.converter": PROTOBUF,
        "value.converter.schema.registry.url": "http://r",
        "value.converter.generate.struct.for.nulls": "true",
    }
    found = parse("postgres", POSTGRES | given)
    assert "value.converter.generate.struct.for.nulls has no effect: it has no effect here." in found.notices
    assert found["replace.null.with.default"] is True
    assert (
        parse("postgres", POSTGRES | given | {"value.converter.ignore.default.for.nullables": "true"})[
            "replace.null.with.default"
        ]
        is False
    )
