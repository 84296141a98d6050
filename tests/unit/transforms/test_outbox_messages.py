"""EventRouter and DecodeLogicalDecodingMessageContent make an application's messages from its rows or from the log."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tailrace.columns.logical import BYTES, INT16, INT32, INT64, STRING, Field, LogicalType, semantic, struct
from tailrace.records.layout import Constant, Node, RecordLayout
from tailrace.records.transform import ANY_TOPIC
from tests.layout_blocks import TOPIC, LayoutBlock, change_event, source_block, struct_of
from tests.unit.transforms.rewritten_layouts import debezium, left_out, made_of, one, record_of, refused, seen

TEXT = STRING.with_optional(True)
UUID = semantic(STRING, "io.debezium.data.Uuid")


def row(block: LayoutBlock, payloads: list[Any], kind: LogicalType = TEXT, **more: Node) -> Node:
    """Return rows of an outbox with these payloads and the routing values `a`."""
    count = len(payloads)
    columns: dict[str, Node] = {
        "id": block.column("id", UUID, *(f"id-{place}" for place in range(count))),
        "aggregatetype": block.column("type", STRING, *(["a"] * count)),
        "aggregateid": block.column("key", TEXT, *(["k1", *[None] * (count - 1)])),
        "payload": block.column("payload", kind, *payloads),
    }
    return struct_of(f"{TOPIC}.Value", **(columns | more))


def router(**options: str) -> dict[str, str]:
    return debezium("outbox.EventRouter", **options)


def inserted(after: Node, op: str = "c") -> RecordLayout:
    return record_of(change_event(op, None, after), headers={"first": Constant("h", STRING)})


@pytest.mark.parametrize("op", ["c", "r"])
def test_a_row_becomes_a_message(op: str) -> None:
    block = LayoutBlock(2)
    first, second = seen(router(), inserted(row(block, ["hello é", None]), op), block)
    assert first is not None
    assert second is not None
    assert (first.topic, first.key, first.value) == ("outbox.event.a", "k1", "hello é")
    assert first.headers == [("first", "h"), ("id", "id-0")]
    assert (first.timestamp, first.partition) == (1_795_222_827_700, None)
    assert (second.key, second.value, second.value_schema) == (None, None, TEXT)
    (transform,) = made_of(router())
    assert transform.route(TOPIC) == ANY_TOPIC


def test_columns_may_be_placed_in_headers_the_value_and_the_partition() -> None:
    block = LayoutBlock(1)
    placed: dict[str, Node] = {
        "tenant": Constant("é", STRING), "nr": Constant(3, INT32), "part": Constant(7, INT32), "v": Constant(2, INT32),
        "at": Constant(1_577_934_245_678_901, semantic(INT64, "io.debezium.time.MicroTimestamp")),
    }  # fmt: skip
    step = router(
        table_fields_additional_placement="tenant:header:t,nr:envelope,part:partition",
        table_field_event_timestamp="at",
        table_field_event_schema_version="v",
    )
    (found,) = seen(step, inserted(row(block, ["p"], **placed)), block)
    assert found is not None
    assert found.headers[1:] == [("id", "id-0"), ("t", "é")]
    assert (found.value, found.partition, found.timestamp) == ({"payload": "p", "nr": 3}, 7, 1_577_934_245_678)
    assert found.value_schema is not None
    assert (found.value_schema.name, found.value_schema.version) == ("server.public.t.a.Value", 2)
    assert found.topic == "outbox.event.a"


@pytest.mark.parametrize(
    ("name", "moment", "ms"),
    [
        ("io.debezium.time.Timestamp", -1, -1),
        ("io.debezium.time.NanoTimestamp", 1_577_934_245_678_901_234, 1_577_934_245_678),
        ("org.apache.kafka.connect.data.Timestamp", 0, 0),
    ],
)
def test_the_time_of_a_message_may_be_a_column(name: str, moment: int, ms: int) -> None:
    block = LayoutBlock(1)
    after = row(block, ["p"], at=block.column("at", semantic(INT64, name), moment))
    (found,) = seen(router(table_field_event_timestamp="at"), inserted(after), block)
    assert found is not None
    assert found.timestamp == ms


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({"route_topic_replacement": "events.${routedByValue}"}, "events.a"),
        ({"route_topic_regex": "(.)", "route_topic_replacement": "$1$1"}, "aa"),
        # A value that does not match is used unchanged.
        ({"route_topic_regex": "z", "route_topic_replacement": "never"}, "a"),
        ({"route_by_field": "payload"}, "outbox.event.p"),
    ],
)
def test_topics_follow_the_routing_value(options: dict[str, str], topic: str) -> None:
    block = LayoutBlock(1)
    (found,) = seen(router(**options), inserted(row(block, ["p"])), block)
    assert found is not None
    assert found.topic == topic


def test_other_columns_may_have_other_names() -> None:
    block = LayoutBlock(1)
    after = row(block, ["p"], nr=Constant(5, INT64), what=Constant("w", STRING), who=Constant(b"", STRING))
    step = router(table_field_event_id="nr", table_field_event_key="what", table_field_event_payload="aggregatetype")
    (found,) = seen(step, inserted(after), block)
    assert found is not None
    assert (found.headers[1], found.key, found.value) == (("id", 5), "w", "a")


@pytest.mark.parametrize(
    ("on", "wanted"), [("true", [True, True, True, False]), ("false", [True, False, False, False])]
)
def test_empty_payloads_may_be_tombstones(on: str, wanted: list[bool]) -> None:
    block = LayoutBlock(4)
    found = seen(router(route_tombstone_on_empty_payload=on), inserted(row(block, [None, "", " \n", "x"])), block)
    assert [record is not None and record.value is None for record in found] == wanted
    assert [record and record.value_schema is None for record in found] == [on == "true" and empty for empty in wanted]
    assert [record and record.headers[1] for record in found] == [("id", f"id-{place}") for place in range(4)]


def test_bytes_that_are_empty_are_a_payload() -> None:
    block = LayoutBlock(2)
    after = row(block, ["", None], BYTES.with_optional(True))
    found = seen(router(route_tombstone_on_empty_payload="true"), inserted(after), block)
    assert [record and record.value for record in found] == ["", None]


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (
            '{"b":1,"a":"é","c":12345678901,"d":1.5,"e":true}',
            {"b": 1, "a": "é", "c": 12_345_678_901, "d": 1.5, "e": True},
        ),
        ('{"n":null,"l":[],"k":{"n":null}}', {"k": {}}),
        ('{"l":[1,2],"o":[{"a":1},{"b":2}]}', {"l": [1, 2], "o": [{"a": 1, "b": None}, {"a": None, "b": 2}]}),
        # Mixed types, lists at the top and text that is no JSON stay text.
        ('{"l":[1,"a"]}', '{"l":[1,"a"]}'),
        ("[1]", "[1]"),
        ("{", "{"),
        ("text", "text"),
        (' {"a":1}', ' {"a":1}'),
        (None, None),
    ],
)
def test_payloads_may_be_expanded(payload: str | None, value: Any) -> None:
    block = LayoutBlock(1)
    (found,) = seen(router(table_expand_json_payload="true"), inserted(row(block, [payload])), block)
    assert found is not None
    assert found.value == value


def test_payloads_of_several_schemas_are_expanded_each_by_its_own() -> None:
    block = LayoutBlock(3)
    found = seen(router(table_expand_json_payload="true"), inserted(row(block, ['{"a":1}', "x", '{"a":"b"}'])), block)
    assert [record and record.value for record in found] == [{"a": 1}, "x", {"a": "b"}]
    schemas = [record.value_schema for record in found if record is not None and record.value_schema is not None]
    kinds = [schema.fields[0].type.connect if schema.fields else None for schema in schemas]
    assert kinds == ["int32", None, "string"]


def test_nulls_of_expanded_payloads_may_stay() -> None:
    block = LayoutBlock(1)
    step = router(table_expand_json_payload="true", table_json_payload_null_behavior="optional_bytes")
    (found,) = seen(step, inserted(row(block, ['{"n":null,"l":[null],"e":[],"k":{"n":null}}'])), block)
    assert found is not None
    assert found.value == {"n": None, "l": [None], "k": {"n": None}}
    assert found.value_schema is not None
    assert (found.value_schema.name, found.value_schema.fields[2].type.name) == ("payload", "payload.k")
    assert found.value_schema.fields[0].type == BYTES.with_optional(True)


def test_deletes_and_tombstones_vanish_and_all_else_passes() -> None:
    block = LayoutBlock(1)
    after = row(block, ["p"])
    assert seen(router(), record_of(change_event("d", after, None)), block) == [None]
    assert seen(router(), record_of(None), block) == [None]
    beat = record_of(struct_of("io.debezium.connector.common.Heartbeat", ts_ms=Constant(5, INT64)))
    assert one(router(), beat).value == {"ts_ms": 5}


@pytest.mark.parametrize(("op", "what"), [("u", "an update"), ("t", "a truncate")])
def test_updates_are_left_out_or_refused(op: str, what: str) -> None:
    block = LayoutBlock(1)
    record = record_of(change_event(op, None, row(block, ["p"])))
    for behaviour in ("warn", "error"):
        reason = left_out(router(table_op_invalid_behavior=behaviour), record)
        assert reason == f"{what} of an outbox, which EventRouter leaves out"
    said = refused(router(table_op_invalid_behavior="fatal"), record)
    assert said == f"EventRouter takes no {what.split()[1]} of an outbox (table.op.invalid.behavior)"


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        ({"table_field_event_payload": "x"}, {}, "EventRouter finds no column x"),
        ({"table_field_event_id": "x"}, {}, "EventRouter finds no column x"),
        ({"table_fields_additional_placement": "x:header"}, {}, "EventRouter finds no column x, which is to be placed"),
        ({"route_by_field": "n"}, {"n": Constant(1, INT16)},
         "EventRouter needs a text in the field n, by which it routes"),
        ({"table_field_event_timestamp": "n"}, {"n": Constant(1, INT64)},
         "EventRouter needs a timestamp without time zone in the field n"),
        ({"table_fields_additional_placement": "n:partition"}, {"n": Constant(1, INT64)},
         "EventRouter needs an int32 in the column that names the partition"),
    ],
)  # fmt: skip
def test_what_a_row_lacks_is_named(options: dict[str, str], more: dict[str, Node], said: str) -> None:
    block = LayoutBlock(1)
    assert refused(router(**options), inserted(row(block, ["p"], **more)), block) == said


def test_a_row_without_a_routing_value_is_refused() -> None:
    block = LayoutBlock(2)
    after = row(block, ["p", "q"], aggregatetype=block.column("none", TEXT, "a", None))
    said = refused(router(), inserted(after), block)
    assert said == "EventRouter finds no value in the field aggregatetype, by which it routes"
    missing = router(table_fields_additional_placement="x:header", table_field_additional_missing="ignore")
    assert seen(missing, inserted(row(block, ["p", "q"])), block)[0] is not None


# --- DecodeLogicalDecodingMessageContent ----------------------------------------------------------------------------

DECODE = {"type": "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"}
CONTENT = struct(Field("prefix", STRING), Field("content", BYTES))


def message(content: bytes | str, kind: LogicalType = CONTENT) -> RecordLayout:
    text = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    value = struct_of("io.debezium.connector.postgresql.MessageValue", op=Constant("m", STRING), source=source_block(),
                      message=Constant({"prefix": "p", "content": text}, kind))  # fmt: skip
    return record_of(value, struct_of(prefix=Constant("p", STRING)))


def test_a_message_of_json_is_the_event_of_an_inserted_row() -> None:
    found = one(DECODE, message('{"id":1,"v":"é","n":null}'.encode()))
    assert found.value["after"] == {"id": 1, "v": "é"}
    assert (found.value["op"], found.key, "message" in found.value) == ("c", None, False)
    assert found.value_schema is not None
    assert found.value_schema.name == "io.debezium.connector.postgresql.MessageValue.Envelope"
    assert one(DECODE | {"fields.null.include": "true"}, message(b'{"n":null}')).value["after"] == {"n": None}


def test_a_message_may_go_on_to_an_outbox() -> None:
    content = b'{"id":"1","aggregatetype":"orders","aggregateid":"k","payload":"p"}'
    found = one((DECODE, router()), message(content))
    assert (found.topic, found.key, found.value, found.headers) == ("outbox.event.orders", "k", "p", [("id", "1")])


@pytest.mark.parametrize("content", [b"text", b"", b'{"l":[1,"a"]}', b"[1]", b"{", b'{"n":1e999}'])
def test_a_message_that_is_no_object_is_refused(content: bytes) -> None:
    assert "finds no JSON object with one schema in the field message.content" in refused(DECODE, message(content))


def test_a_message_of_other_bytes_is_refused() -> None:
    assert refused(DECODE, message(b"\xff")).endswith("finds no text in the field message.content")
    text = struct(Field("prefix", STRING), Field("content", STRING))
    assert refused(DECODE, message("7b7d", text)).endswith("as bytes: set binary.handling.mode to bytes")


def test_what_is_no_message_passes() -> None:
    found = one(DECODE, record_of(change_event("c", None, struct_of("r.Value", id=Constant(1, INT32)))))
    assert found.value["op"] == "c"
    assert one(DECODE, record_of(None)).value is None
