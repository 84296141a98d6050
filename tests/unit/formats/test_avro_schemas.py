"""Avro: the schemas of records as Confluent's AvroData makes them and Apicurio's converter registers them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tailrace import formats
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Field,
    LogicalType,
    array,
    mapping,
    semantic,
    struct,
)
from tailrace.errors import ConversionError
from tailrace.records.layout import Constant
from tests.layout_blocks import BARE, unfilled
from tests.servers.registry import Registry

fastavro = pytest.importorskip("fastavro")

from tests.unit.formats.registered import avro  # noqa: E402

CONNECT = "org.apache.kafka.connect.data."
POINT = struct(Field("x", DOUBLE), name="n.Point")


def record(registry: Registry, kind: LogicalType, **options: str) -> str:
    """Return the schema of records of this struct as the text that is registered."""
    formats.find(avro(registry, **options)).compile(unfilled(kind), True, BARE)
    text = registry.versions[-1].schema
    fastavro.parse_schema(json.loads(text))
    return text


def field(registry: Registry, kind: LogicalType, **options: str) -> str:
    """Return the registered schema for one field `v` of this type."""
    text = record(registry, struct(Field("v", kind), name="n.R"), **options)
    start = '{"type":"record","name":"R","namespace":"n","fields":['
    end = '],"connect.name":"n.R"}' if options.get("connect_meta_data") != "false" else "]}"
    assert text.startswith(start)
    assert text.endswith(end)
    return text.removeprefix(start).removesuffix(end)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (BOOLEAN, '"boolean"'),
        (INT8, '{"type":"int","connect.type":"int8"}'),
        (INT16, '{"type":"int","connect.type":"int16"}'),
        (INT32, '"int"'),
        (INT64, '"long"'),
        (FLOAT, '"float"'),
        (DOUBLE, '"double"'),
        (STRING, '"string"'),
        (BYTES, '"bytes"'),
        (array(INT32), '{"type":"array","items":"int"}'),
        (mapping(STRING.with_optional(True)), '{"type":"map","values":["null","string"]}'),
    ],
)
def test_each_type_has_avros_own(registry: Registry, kind: LogicalType, text: str) -> None:
    assert field(registry, kind) == f'{{"name":"v","type":{text}}}'
    optional = field(registry, kind.with_optional(True))
    assert optional == f'{{"name":"v","type":["null",{text}],"default":null}}'


@pytest.mark.parametrize(
    ("kind", "default", "shown"),
    [
        (INT32, 5, "5"),
        (STRING, 'it"s', r'"it\"s"'),
        (BOOLEAN, False, "false"),
        (DOUBLE, 1.5, "1.5"),
        (array(STRING), ["a"], '["a"]'),
        (mapping(INT32), {"k": 1}, '{"k":1}'),
    ],
)
def test_a_default_puts_its_branch_first(registry: Registry, kind: LogicalType, default: object, shown: str) -> None:
    """It is also in the type, as `connect.default`."""
    plain = field(registry, kind).removeprefix('{"name":"v","type":').removesuffix("}")
    inner = plain.removesuffix("}") if plain.startswith("{") else f'{{"type":{plain}'
    made = f'{inner},"connect.default":{shown}}}'
    defaulted = kind.with_default(default)
    assert field(registry, defaulted) == f'{{"name":"v","type":{made},"default":{shown}}}'
    assert field(registry, defaulted.with_optional(True)) == f'{{"name":"v","type":[{made},"null"],"default":{shown}}}'


def test_a_default_of_null_is_the_one_that_optional_fields_have(registry: Registry) -> None:
    plain = field(registry, INT32.with_optional(True))
    assert field(registry, INT32.with_optional(True).with_default(None)) == plain


def test_a_default_of_bytes_is_text_of_a_character_each(registry: Registry) -> None:
    decimal = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="5").with_default("/84=")
    assert json.loads(field(registry, decimal))["default"] == "\xff\xce"
    assert json.loads(field(registry, BYTES.with_default("AP8=")))["default"] == "\x00\xff"


def test_a_default_of_a_struct_has_the_names_and_bytes_of_avro(registry: Registry) -> None:
    kind = struct(Field("a-b", BYTES), Field("c", INT32.with_optional(True)), name="n.S")
    made = field(registry, kind.with_default({"a-b": "/w==", "c": None}), scrub_invalid_names="true")
    assert json.loads(made)["default"] == {"a_b": "\xff", "c": None}


def test_properties_have_their_order(registry: Registry) -> None:
    """First Avro's own, then scale and precision, then doc, version, parameters, default, name and
    type of Connect's."""
    kind = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="5")
    made = json.loads(field(registry, replace(kind, doc="d").with_default("AA==")), object_pairs_hook=list)
    properties = dict(made)["type"]
    assert [name for name, _ in properties] == [
        "type", "scale", "precision", "connect.doc", "connect.version", "connect.parameters", "connect.default",
        "connect.name", "logicalType",
    ]  # fmt: skip
    short = replace(semantic(INT16, "n.Short"), doc="d")
    properties = dict(json.loads(field(registry, short), object_pairs_hook=list))["type"]
    assert [name for name, _ in properties] == [
        "type",
        "connect.doc",
        "connect.version",
        "connect.name",
        "connect.type",
    ]


@pytest.mark.parametrize(
    ("scale", "precision", "numbers", "is_decimal"),
    [("2", "5", (2, 5), True), ("2", None, (2, 64), True), ("-2", "5", (-2, 5), False), ("6", "5", (6, 5), False)],
)
def test_decimals_say_their_digits(
    registry: Registry, scale: str, precision: str | None, numbers: tuple[int, int], is_decimal: bool
) -> None:
    """Without a precision it is 64; a scale below 0 or above the precision makes no logical type of Avro."""
    parameters = {"scale": scale} | ({} if precision is None else {"connect.decimal.precision": precision})
    kind = LogicalType("bytes", CONNECT + "Decimal", 1, tuple(parameters.items()))
    made = json.loads(field(registry, kind))["type"]
    assert (made["scale"], made["precision"]) == numbers
    assert ("logicalType" in made) is is_decimal
    assert made["connect.parameters"] == parameters


@pytest.mark.parametrize(
    ("kind", "logical"),
    [
        (semantic(INT32, CONNECT + "Date"), "date"),
        (semantic(INT32, CONNECT + "Time"), "time-millis"),
        (semantic(INT64, CONNECT + "Timestamp"), "timestamp-millis"),
        (semantic(INT32, "io.debezium.time.Date"), None),
        (semantic(INT64, "io.debezium.time.MicroTimestamp"), None),
        (semantic(STRING, "io.debezium.data.Uuid"), None),
    ],
)
def test_only_connects_own_moments_are_logical_types(
    registry: Registry, kind: LogicalType, logical: str | None
) -> None:
    made = json.loads(field(registry, kind))["type"]
    assert made.get("logicalType") == logical
    assert made["connect.name"] == kind.name


def test_a_named_record_is_written_out_once(registry: Registry) -> None:
    kind = struct(
        Field("before", POINT.with_optional(True)), Field("after", POINT.with_optional(True)),
        Field("all", array(POINT)), Field("far", struct(Field("p", POINT), name="o.Far")), name="n.R",
    )  # fmt: skip
    point = '{"type":"record","name":"Point","fields":[{"name":"x","type":"double"}],"connect.name":"n.Point"}'
    assert record(registry, kind) == (
        '{"type":"record","name":"R","namespace":"n","fields":['
        f'{{"name":"before","type":["null",{point}],"default":null}},'
        '{"name":"after","type":["null","Point"],"default":null},'
        '{"name":"all","type":{"type":"array","items":"Point"}},'
        '{"name":"far","type":{"type":"record","name":"Far","namespace":"o",'
        '"fields":[{"name":"p","type":"n.Point"}],"connect.name":"o.Far"}}'
        '],"connect.name":"n.R"}'
    )


def test_records_without_a_name_are_numbered(registry: Registry) -> None:
    other, same = struct(Field("y", INT32)), struct(Field("x", INT32))
    kind = struct(Field("a", same), Field("b", same), Field("c", other))
    space = "io.confluent.connect.avro"
    made = json.loads(record(registry, kind))
    assert (made["name"], made["namespace"]) == ("ConnectDefault", space)
    types = [part["type"] for part in made["fields"]]
    assert [types[0]["name"], types[1], types[2]["name"]] == ["ConnectDefault2", "ConnectDefault2", "ConnectDefault3"]


def test_two_records_of_one_name_and_different_fields_are_refused(registry: Registry) -> None:
    kind = struct(Field("a", POINT), Field("b", struct(Field("y", INT32), name="n.Point")), name="n.R")
    with pytest.raises(ConversionError, match=r"Two structs of one record are called n\.Point"):
        record(registry, kind)


def test_a_map_without_texts_as_keys_is_a_list_of_entries(registry: Registry) -> None:
    kind = LogicalType("map", items=DOUBLE, keys=INT16)
    made = json.loads(field(registry, kind))["type"]
    assert made["type"] == "array"
    assert made["items"]["name"] == "MapEntry"
    assert made["items"]["namespace"] == "io.confluent.connect.avro"
    assert [part["name"] for part in made["items"]["fields"]] == ["key", "value"]
    named = json.loads(field(registry, replace(kind, name="n.m.Marks")))["type"]["items"]
    assert (named["name"], named["namespace"], named["connect.internal.type"]) == ("Marks", "n.m", "MapEntry")


def test_keys_that_may_be_null_are_entries_unless_an_option_allows_them(registry: Registry) -> None:
    kind = replace(mapping(INT32), keys=STRING.with_optional(True))
    assert json.loads(field(registry, kind))["type"]["type"] == "array"
    assert field(registry, kind, allow_optional_map_keys="true") == '{"name":"v","type":{"type":"map","values":"int"}}'


def test_connects_own_properties_may_be_left_out(registry: Registry) -> None:
    kind = semantic(INT16, "n.Short").with_default(1)
    assert field(registry, kind, connect_meta_data="false") == '{"name":"v","type":"int","default":1}'
    decimal = semantic(BYTES, CONNECT + "Decimal", scale="2", connect__decimal__precision="5")
    assert json.loads(field(registry, decimal, connect_meta_data="false"))["type"] == {
        "type": "bytes", "scale": 2, "precision": 5, "logicalType": "decimal",
    }  # fmt: skip


def test_a_field_may_have_the_doc_of_its_type(registry: Registry) -> None:
    kind = replace(INT32, doc="how many")
    assert "doc" not in json.loads(field(registry, kind))
    assert json.loads(field(registry, kind, discard_type_doc_default="true"))["doc"] == "how many"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (STRING, '"string"'),
        (INT32.with_optional(True), '["null","int"]'),
        (array(INT32), '{"type":"array","items":"int"}'),
    ],
)
def test_what_is_no_struct_has_a_schema_of_its_own(registry: Registry, kind: LogicalType, text: str) -> None:
    value = [1] if kind.connect == "array" else 1 if kind.connect == "int32" else "a"
    formats.find(avro(registry, "key")).compile(Constant(value, kind), True, BARE)
    assert registry.versions[-1].schema == text
    assert registry.versions[-1].subject == "server.public.t-key"


def test_the_version_of_a_record_is_a_property(registry: Registry) -> None:
    text = record(registry, struct(Field("id", INT32), name="n.R", version=2))
    assert text.endswith('],"connect.version":2,"connect.name":"n.R"}')
    formats.find(avro(registry)).compile(unfilled(struct(Field("id", INT32), name="n.R", version=3)), True, BARE)
    assert [version.number for version in registry.versions] == [1, 2]
