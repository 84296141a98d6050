"""JSON: schemas beside payloads equal those of Kafka Connect's JsonConverter, and schemas in a registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace import formats
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
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
from tailrace.config.formats import Format
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout
from tests.layout_blocks import BARE, LayoutBlock, encoded, stored, struct_of, unfilled
from tests.servers.registry import Registry

DECIMAL = semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="2", connect__decimal__precision="5")
NUMERIC = Format("json", "value", (("decimal.format", "NUMERIC"),))


def schema(kind: LogicalType, form: Format | str = "json", value: Any = None) -> str:
    """Return the schema beside a value of this type as it is written."""
    data = formats.find(form).one(Constant(value, kind), True, BARE)
    start, end = b'{"schema":', b',"payload":' + (b"null}" if value is None else json.dumps(value).encode() + b"}")
    assert data.startswith(start)
    assert data.endswith(end)
    text: str = data[len(start) : -len(end)].decode()
    return text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (INT32, '{"type":"int32","optional":false}'),
        (STRING.with_optional(True), '{"type":"string","optional":true}'),
        (BOOLEAN.with_default(False), '{"type":"boolean","optional":false,"default":false}'),
        (INT64.with_optional(True).with_default(None), '{"type":"int64","optional":true,"default":null}'),
        (DOUBLE.with_default(1e10), '{"type":"double","optional":false,"default":1.0E10}'),
        (STRING.with_default('é"'), r'{"type":"string","optional":false,"default":"é\""}'),
        (array(INT16), '{"type":"array","items":{"type":"int16","optional":false},"optional":false}'),
        (
            mapping(INT32.with_optional(True)),
            '{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"int32","optional":true},'
            '"optional":false}',
        ),
        (
            LogicalType("map", items=DOUBLE, keys=INT16),
            '{"type":"map","keys":{"type":"int16","optional":false},"values":{"type":"double","optional":false},'
            '"optional":false}',
        ),
        (
            replace(DECIMAL, doc="d").with_default("AA=="),
            '{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,"doc":"d",'
            '"parameters":{"scale":"2","connect.decimal.precision":"5"},"default":"AA=="}',
        ),
    ],
)
def test_a_schema_has_its_members_in_the_order_of_the_converter(kind: LogicalType, text: str) -> None:
    assert schema(kind) == text


def test_fields_have_their_names_behind_all_else() -> None:
    inner = struct(Field("x", INT32), name="n.Inner", version=3)
    kind = struct(Field('a"é', inner.with_optional(True)), Field("b", STRING.with_default("z")), name="n.Outer")
    assert schema(kind) == (
        '{"type":"struct","fields":['
        '{"type":"struct","fields":[{"type":"int32","optional":false,"field":"x"}],"optional":true,"name":"n.Inner",'
        '"version":3,"field":"a\\"é"},'
        '{"type":"string","optional":false,"default":"z","field":"b"}'
        '],"optional":false,"name":"n.Outer"}'
    )


def test_defaults_of_decimals_are_numbers_where_values_are() -> None:
    kind = struct(Field("n", DECIMAL.with_default("APo=")), Field("l", array(DECIMAL.with_default("/w=="))), name="n.R")
    found = json.loads(schema(kind, NUMERIC))
    assert found["fields"][0]["default"] == 2.5
    assert found["fields"][1]["items"]["default"] == -0.01
    assert json.loads(schema(kind))["fields"][0]["default"] == "APo="


def test_a_schema_is_beside_the_payload_of_each_record() -> None:
    block = LayoutBlock(2)
    layout = struct_of("n.R", id=block.column("id", INT32, 1, -1))
    fields = '[{"type":"int32","optional":false,"field":"id"}]'
    wanted = f'{{"schema":{{"type":"struct","fields":{fields},"optional":false,"name":"n.R"}},"payload":'
    assert encoded("json", layout, block, schemas=True) == [
        f'{wanted}{{"id":{number}}}}}'.encode() for number in (1, -1)
    ]


def registered(registry: Registry, part: str = "value", **options: str) -> Format:
    """Return the format of Apicurio's ExtJsonConverter."""
    given = {"auto-register": "true", "headers.enabled": "false", "url": registry.apicurio, "as-confluent": "true"}
    named = {f"apicurio.registry.{name}": text for name, text in (given | options).items()}
    return Format("json-apicurio", part, tuple(sorted(named.items())))


def test_a_schema_may_be_in_a_registry(registry: Registry) -> None:
    block = LayoutBlock(3)
    layout = struct_of("n.R", id=block.column("id", INT32.with_optional(True), 1, None, 3), t=Constant("é", STRING))
    form = registered(registry)
    assert encoded(form, layout, block) == [
        f'{{"schemaId":1,"payload":{{"id":{number},"t":"é"}}}}'.encode() for number in ("1", "null", "3")
    ]
    beside = formats.find("json").one(Constant(None, layout.type), True, BARE)
    assert f'{{"schema":{registry.schemas[1]},"payload":null}}'.encode() == beside
    assert [version.subject for version in registry.versions] == ["server.public.t-value"]
    known = struct_of("n.R", id=Constant(5, INT32))
    assert formats.find(form).one(known, True, BARE) == b'{"schemaId":2,"payload":{"id":5}}'
    assert formats.find(form).one(Constant(None, STRING.with_optional(True)), True, BARE) is None


def test_a_topic_of_its_own_has_a_schema_of_its_own(registry: Registry) -> None:
    block = LayoutBlock(3)
    topic = ComputedColumn((block.column("t", STRING, "a", "a", "b"),), lambda topics: topics, STRING)
    record = RecordLayout("c", topic, None, None)
    layout = struct_of("n.R", id=block.column("id", INT32, 1, 2, 3))
    found = encoded(registered(registry), layout, block, record=record)
    assert [json.loads(data)["payload"]["id"] for data in found] == [1, 2, 3]
    # Apicurio's converters recognise a schema by its text, under whichever subject it came first.
    assert [json.loads(data)["schemaId"] for data in found] == [1, 1, 1]
    # Except for the latest schema of a subject.
    registry.registered("a-value", registry.schemas[1])
    registry.registered("b-value", registry.schemas[1] + " ")
    latest = registered(registry, **{"auto-register": "false", "find-latest": "true"})
    found = encoded(latest, layout, block, record=record)
    assert [json.loads(data)["schemaId"] for data in found] == [1, 1, 2]


def test_ids_in_headers_are_refused(registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"headers\.enabled is true, its default, and ids in headers are not written"):
        formats.find(registered(registry, **{"headers.enabled": "true"}))
    with pytest.raises(ConfigError, match="needs its options"):
        formats.find("json-apicurio").compile(unfilled(struct(Field("id", INT32), name="n.R")), True, BARE)


def test_layouts_of_a_block_share_their_columns() -> None:
    """An insert, a delete and its tombstone are in one block: each record has the layout of its number."""
    block = LayoutBlock(4)
    number = block.column("n", INT64, 1, 2, 3, 4)
    moved = ComputedColumn((number,), lambda numbers: stored(INT64, *(-n for n in numbers.to_pylist())), INT64)
    encoding = formats.find("json")
    documents = [
        encoding.compile(struct_of(a=number, b=moved), False, BARE),
        encoding.compile(struct_of(b=moved), False, BARE),
        None,
    ]
    of = block.index[0].copy()
    of[:] = [1, 0, 2, 0]
    assert encoding.block(block).encode(documents, of).to_pylist() == [
        b'{"b":-1}', b'{"a":2,"b":-2}', None, b'{"a":4,"b":-4}',
    ]  # fmt: skip
    assert encoding.block(block).encode([None], of * 0).to_pylist() == [None] * 4
