"""EventRouter turns rows of an outbox into messages."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tailrace.columns import Column
from tailrace.columns.logical import INT64, STRING
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import TransformError
from tailrace.events.record_assembly import to_rows
from tailrace.transforms.outbox.json_shapes import Shapes, UnclearJson, read, value_of, written
from tests.unit.events.changes import Change, batch, table
from tests.unit.transforms.told import Told, faults, notices, settings, told

TYPE = "io.debezium.transforms.outbox.EventRouter"
OUTBOX = table(
    "outbox",
    [
        Column("id", "int8", 20, nullable=False),
        Column("aggregatetype", "text", 25),
        Column("aggregateid", "text", 25),
        Column("payload", "text", 25),
        Column("part", "int4", 23),
        Column("at", "timestamp", 1114),
    ],
    "id",
)


def router(**options: str) -> dict[str, str]:
    return {"type": TYPE, **{name.replace("_", "."): text for name, text in options.items()}}


def row(
    payload: str | None = "x", route: str | None = "order", part: str | None = None, at: str | None = None
) -> Change:
    return ("c", None, ["7", route, "k1", payload, part, at])


def messages(options: dict[str, str], *changes: Change) -> list[Told]:
    return told([options], changes, OUTBOX)


def test_a_row_becomes_a_message_to_the_topic_of_its_route() -> None:
    (found,) = messages(router(), row())
    assert (found.topic, found.key, found.value, found.headers) == ("outbox.event.order", "k1", "x", {"id": 7})
    assert found.timestamp is not None
    assert found.partition is None


def test_columns_are_placed_in_headers_values_and_partitions() -> None:
    placed = "part:partition, aggregateid:header:agg,payload:header,part:envelope:p,at:envelope"
    (found,) = messages(router(table_fields_additional_placement=placed), row(part="3"))
    assert found.headers == {"id": 7, "agg": "k1", "payload": "x"}
    assert (found.partition, found.value) == (3, {"payload": "x", "p": 3, "at": None})


def test_the_time_is_that_of_a_column_in_whole_milliseconds() -> None:
    options = router(table_field_event_timestamp="at")
    found = messages(options, row(at="2020-01-02 03:04:05.678901"), row(at="1969-12-31 23:59:59.999"), row())
    assert [one.timestamp for one in found[:2]] == [1577934245678, -1]
    # without a value there, the event's own time is it
    assert found[2].timestamp is not None
    assert found[2].timestamp > 1_700_000_000_000


def test_nulls_are_their_defaults_except_in_what_places_a_message() -> None:
    columns = [
        Column(name, "text", 25, default=f"'{name}'") for name in ("aggregatetype", "aggregateid", "payload", "kind")
    ]
    some = table("outbox", [*OUTBOX.columns[:1], *columns, Column("part", "int4", 23, default="4")], "id")
    placed = "kind:header,kind:envelope:k,part:partition"
    options = router(table_fields_additional_placement=placed, route_tombstone_on_empty_payload="true")
    for shown in (True, False):
        (found,) = told([options], [("c", None, ["7", "a", None, None, None, None])], some,
                        replace_null_with_default=shown)  # fmt: skip
        assert (found.topic, found.key, found.partition) == ("outbox.event.a", "aggregateid", None)
        assert (found.headers, found.value) == ({"id": 7, "kind": "kind"}, {"payload": "payload", "k": "kind"})
    with pytest.raises(TransformError, match="finds no value in the field aggregatetype"):
        told([options], [("c", None, ["7", None, "k", "p", None, None])], some)


def test_structs_of_expanded_payloads_are_named_after_the_payloads_column() -> None:
    body = table("outbox", [*OUTBOX.columns[:3], Column("body", "text", 25)], "id")
    options = router(table_field_event_payload="body", table_expand_json_payload="true")
    chosen = settings([options], value_schemas_enable=True)
    changes: list[Change] = [("c", None, ["7", "a", "k", '{"a": {"b": 1}, "c": [[{"d": 1}]]}'])]
    (rows,) = to_rows(batch(body, changes), chosen, FORM)
    schema = json.loads(rows["value"][0].as_py())["schema"]
    inner = schema["fields"][1]["items"]["items"]
    assert (schema["name"], schema["fields"][0]["name"], inner.get("name")) == ("body", "body.a", None)


def test_a_payload_is_empty_as_java_trims_texts() -> None:
    found = messages(router(route_tombstone_on_empty_payload="true"), row(" \t\x01 "), row("\u3000"))
    assert [one.value for one in found] == ["TOMBSTONE", "\u3000"]


def test_an_envelope_is_named_after_its_route_and_version() -> None:
    options = router(table_fields_additional_placement="at:envelope", table_field_event_schema_version="part")
    chosen = settings([options], value_schemas_enable=True)
    (rows,) = to_rows(batch(OUTBOX, [row(route="a", part="2"), row(route="b", part="3")]), chosen, FORM)
    schemas = [json.loads(one.as_py())["schema"] for one in rows["value"]]
    assert [(one["name"], one["version"]) for one in schemas] == [
        ("p.public.outbox.a.Value", 2),
        ("p.public.outbox.b.Value", 3),
    ]


def test_a_payload_that_is_empty_becomes_a_tombstone_where_that_is_asked_for() -> None:
    payloads = (None, "", "  ", "{}")
    for options, values in (
        (router(route_tombstone_on_empty_payload="true"), ["TOMBSTONE", "TOMBSTONE", "TOMBSTONE", "{}"]),
        (router(), [None, "", "  ", "{}"]),
    ):
        assert [one.value for one in messages(options, *map(row, payloads))] == values


def test_deletes_vanish_and_other_changes_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    old = row()[2]
    changes: list[Change] = [row(), ("u", old, old), ("u", old, old), ("d", old, None), ("t", None, None)]
    for behavior, level in (("warn", logging.WARNING), ("error", logging.ERROR)):
        caplog.clear()
        assert [one.op for one in messages(router(table_op_invalid_behavior=behavior), *changes)] == ["c"]
        said = {record.message: record.levelno for record in caplog.records}
        assert said == {
            "2 records are left out: an update of an outbox, which EventRouter leaves out.": level,
            "1 records are left out: a truncate of an outbox, which EventRouter leaves out.": level,
        }
    with pytest.raises(TransformError, match=r"takes no update of an outbox .*public\.outbox.*0/"):
        messages(router(table_op_invalid_behavior="fatal"), *changes[:2])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table_field_event_payload": "body"}, "finds no column body"),
        ({"table_field_event_id": "event_id"}, "finds no column event_id"),
        ({"route_by_field": "part"}, "needs a text in the field part"),
        ({"table_fields_additional_placement": "no_such:header"}, "finds no column no_such"),
        ({"table_fields_additional_placement": "id:partition"}, "needs an int32"),
        ({"table_field_event_timestamp": "id"}, "needs a timestamp without time zone in the field id"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_with_its_place(options: dict[str, str], said: str) -> None:
    with pytest.raises(TransformError, match=rf"EventRouter {said}.*public\.outbox.*0/"):
        messages(router(**options), row())


def test_a_row_without_a_route_is_an_error_at_its_own_place() -> None:
    with pytest.raises(TransformError, match=r"no value in the field aggregatetype.* at 0/139C,"):
        messages(router(), row(), row(), row(route=None))


def test_a_column_that_is_not_there_may_be_passed_over() -> None:
    placed = "no_such:header,id:header:again"
    options = router(table_fields_additional_placement=placed, table_field_additional_missing="ignore")
    assert messages(options, row())[0].headers == {"id": 7, "again": 7}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table_fields_additional_placement": "id:body"}, "'id:body' places no column"),
        ({"route_topic_replacement": "${other}"}, "names no group of route.topic.regex"),
        ({"route_topic_regex": "("}, "is not a regular expression"),
        ({"table_field_event_ids": "x"}, "the nearest is table.field.event.id"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], said: str) -> None:
    (fault,) = faults([router(**options)])
    assert said in fault


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ('{"a":1,"b":[{"x":1},{"y":"z"}],"c":null,"d":[]}',
         {"a": 1, "b": [{"x": 1, "y": None}, {"x": None, "y": "z"}]}),
        ('{"n":12345678901,"f":1e3,"t":true}', {"n": 12345678901, "f": 1000.0, "t": True}),
        ('{"l":[[1],[2,null]],"e":{}}', {"l": [[1], [2, None]], "e": {}}),
        ('{"mixed":[1,"a"]}', '{"mixed":[1,"a"]}'),
        ('{"mixed":[1,[]]}', '{"mixed":[1,[]]}'),
        ("[1]", "[1]"),
        ("plain", "plain"),
        (None, None),
        ('{"huge":9223372036854775808}', '{"huge":9223372036854775808}'),
    ],
)  # fmt: skip
def test_payloads_of_json_are_expanded(payload: str | None, value: Any) -> None:
    options = router(table_expand_json_payload="true")
    assert [one.value for one in messages(options, row(payload), row("other"))] == [value, "other"]


def test_nulls_are_kept_as_optional_bytes_where_that_is_asked_for() -> None:
    kind = Shapes(True, "payload").of_text('{"a":null,"b":[null],"c":[],"d":1}')
    assert [(field.name, field.type.connect) for field in kind.fields] == [
        ("a", "bytes"),
        ("b", "array"),
        ("d", "int32"),
    ]
    assert value_of('{"a":null,"b":[null],"d":1}', kind) == {"a": None, "b": [None], "d": 1}


def test_a_schema_of_json_is_read_as_it_was_written() -> None:
    kind = Shapes(False, "payload").of_text('{"a":{"b":[{"c":1.5}]},"n":12345678901,"s":"x"}')
    assert read(written(kind)) == kind
    assert next((field.name, field.type.name) for field in kind.fields) == ("a", "payload.a")
    assert kind.fields[1].type == INT64.with_optional(True)
    assert kind.fields[2].type == STRING.with_optional(True)


@pytest.mark.parametrize("text", ['{"a":NaN}', '{"a":1e999}', "{", "[1]", "1", '{"a":[{"b":1},{"b":"x"}]}'])
def test_what_has_no_schema_is_unclear(text: str) -> None:
    with pytest.raises(UnclearJson):
        Shapes(False).of_text(text)


def test_the_keys_column_has_an_older_name() -> None:
    (found,) = messages(router(table_field_event_payload_id="aggregatetype"), row())
    assert found.key == "order"
    both = router(table_field_event_payload_id="aggregatetype", table_field_event_key="aggregateid")
    (found,) = messages(both, row())
    assert found.key == "k1"
    assert notices(both) == ["transforms.t: table.field.event.payload.id has no effect beside table.field.event.key."]
    assert "no spans are traced" in notices(router(tracing_operation_name="x"))[0]


def test_without_a_column_of_that_name_there_is_no_key() -> None:
    (found,) = messages(router(table_field_event_key="no_such"), row())
    assert found.key == "TOMBSTONE"
