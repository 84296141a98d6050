"""Kafka Connect's own transforms work on records of change events and on rows."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column, TableId
from tailrace.config.transforms import transforms
from tailrace.errors import TransformError
from tailrace.events.control_records import heartbeat_row
from tailrace.records.transform import routed
from tests.unit.events.changes import Change, table
from tests.unit.transforms.chains import CONNECT, chain, faults, rows, settings

UNWRAP = {"type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "drop"}
GOODS = table(
    "goods",
    [
        Column("id", "int4", 23, nullable=False),
        Column("sku", "text", 25, nullable=False),
        Column("price", "numeric", 1700, 524_294),
        Column("weight", "float8", 701),
        Column("live", "bool", 16),
        Column("raw", "bytea", 17),
        Column("note", "text", 25, default="'none'::text"),
    ],
    "id",
)
ROWS: tuple[Change, ...] = (
    ("c", None, ["1", "A", "12.34", "1.5", "t", "\\x0102", "x"]),
    ("c", None, ["2", "B", None, None, None, None, None]),
)


def of(name: str, **options: str) -> dict[str, str]:
    return {"type": f"{CONNECT}{name}", **{option.replace("_", "."): text for option, text in options.items()}}


def unwrapped(*steps: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    return rows(UNWRAP, *steps, schema=GOODS, changes=ROWS, **more)


def values(*steps: dict[str, str]) -> list[Any]:
    return [row["value"] for row in unwrapped(*steps)]


def test_fields_become_keys_and_values() -> None:
    found = unwrapped(of("ValueToKey", fields="sku,id"), of("ExtractField$Key", field="sku"))
    assert [row["key"] for row in found] == ["A", "B"]
    assert values(of("ExtractField$Value", field="weight")) == [1.5, None]
    nested = {"field.syntax.version": "V2"}
    after = rows(of("ExtractField$Value", field="after.item") | nested)
    assert [row["value"] for row in after] == ["rope", None, None, None]
    quoted = rows(of("HoistField$Value", field="a.b"), of("ExtractField$Value", field="`a.b`.op") | nested,
                  changes=(("c", None, ["1", "x"]),))  # fmt: skip
    assert [row["value"] for row in quoted] == ["c"]


def test_fields_are_left_out_and_renamed() -> None:
    found = values(of("ReplaceField$Value", include="id,sku,live", exclude="live", renames="sku:article"))
    assert found == [{"id": 1, "article": "A"}, {"id": 2, "article": "B"}]
    assert values(of("ReplaceField$Value", blacklist="sku,price,weight,live,raw,note"))[0] == {"id": 1}


def test_fields_are_inserted_behind_the_others() -> None:
    step = of("InsertField$Value", topic_field="topic!", static_field="origin", static_value="here",
              timestamp_field="at", partition_field="part?")  # fmt: skip
    found = values(of("ReplaceField$Value", include="id"), step)
    assert list(found[0].items()) == [
        ("id", 1), ("topic", "s.public.goods"), ("part", None), ("at", None), ("origin", "here"),
    ]  # fmt: skip
    key = unwrapped(of("InsertField$Key", static_field="k", static_value="v"))
    assert key[0]["key"] == {"id": 1, "k": "v"}


def test_an_inserted_topic_is_the_one_that_an_earlier_transform_made() -> None:
    route = {"type": "ContentBasedRouter", "language": "groovy", "topic.expression": "value.sku"}
    found = values(route, of("InsertField$Value", topic_field="topic"), of("ReplaceField$Value", include="topic"))
    assert found == [{"topic": "A"}, {"topic": "B"}]


def test_masks_are_the_zero_of_the_type_where_there_is_a_value() -> None:
    found = values(of("MaskField$Value", fields="sku,price,weight,live"))
    assert [(row["sku"], row["price"], row["weight"], row["live"]) for row in found] == [
        ("", "AA==", 0.0, False),
        ("", None, None, None),
    ]
    found = values(of("MaskField$Value", fields="id,weight", replacement="7"))
    assert [(row["id"], row["weight"]) for row in found] == [(7, 7.0), (7, None)]
    # A default replaces null before the mask applies.
    assert [row["note"] for row in values(of("MaskField$Value", fields="note", replacement="*"))] == ["*", "*"]
    kept = of("MaskField$Value", fields="note", replacement="*") | {"replace.null.with.default": "false"}
    assert [row["note"] for row in values(kept)] == ["*", "none"]


def test_headers_are_inserted_moved_and_dropped() -> None:
    found = unwrapped(
        of("InsertHeader", header="one", value_literal="12"),
        of("InsertHeader", header="two", value_literal="two"),
        of("HeaderFrom$Value", fields="sku,id", headers="sku,key", operation="move"),
        of("HeaderFrom$Key", fields="id", headers="id", operation="copy"),
        of("DropHeaders", headers="two,sku"),
    )
    assert [row["headers"] for row in found] == [
        [("one", 12), ("key", 1), ("id", 1)],
        [("one", 12), ("key", 2), ("id", 2)],
    ]
    assert list(found[0]["value"]) == ["price", "weight", "live", "raw", "note"]
    assert found[0]["key"] == {"id": 1}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("customer", "string", "customer"),
        ("true", "boolean", True),
        ("-12", "int8", -12),
        ("300", "int16", 300),
        ("100000", "int32", 100_000),
        ("5000000000", "int64", 5_000_000_000),
        ("1.50", "float", 1.5),
        ("1e50", "string", None),
        ("2020-01-02", "int32", 18_263),
        ("03:04:05.006Z", "int32", 11_045_006),
        ("2020-01-02T03:04:05.678Z", "int64", 1_577_934_245_678),
        ("12 apples", "string", "12 apples"),
        # what stands behind a number or a date and one of these marks is ignored
        ("12:30", "int8", 12),
        ("1.5 , x", "float", 1.5),
        ("2020-01-02T03:04:05.678Z,x", "int64", 1_577_934_245_678),
        ("v1:2", "string", "v1:2"),
        ("", "string", ""),
        ("[1, 300]", "array", [1, 300]),
        ("[1,1.5]", "array", [1.0, 1.5]),
        ('["a",]', "array", ["a"]),
        ("[1,,2]", "string", "[1,,2]"),
        ("[a,b]", "string", "[a,b]"),
        ('["2020-01-02"]', "array", [18_263]),
        ('{"a":1,"b":300}', "map", {"a": 1, "b": 300}),
        ('{"a":{"b":[true]}}', "map", {"a": {"b": [True]}}),
    ],
)
def test_a_literal_has_the_type_that_connect_finds(text: str, kind: str, value: Any) -> None:
    step = of("InsertHeader", header="h", value_literal=text)
    ((_, found),) = rows(step, changes=(("c", None, ["1", "x"]),), header_schemas_enable=True)[0]["headers"]
    if value is not None:
        assert (found["schema"]["type"], found["payload"]) == (kind, value)


def test_structs_are_flattened() -> None:
    (found, *_) = rows(of("Flatten$Value", delimiter="_"))
    assert found["value"]["after_item"] == "rope"
    assert found["value"]["before_id"] is None
    assert found["value"]["source_table"] == "t"
    last = rows(of("Flatten$Value"))[-1]
    assert last["value"] is None


def test_a_null_that_has_a_default_is_flat_as_its_default() -> None:
    (found,) = rows(of("Flatten$Value"), schema=GOODS, changes=ROWS[:1])
    assert (found["value"]["before.note"], found["value"]["after.note"]) == ("none", "x")


def test_a_struct_that_is_null_is_flat_as_nulls_where_the_converter_leaves_them() -> None:
    """As in Kafka Connect 2.8, 3.6 and 4.3, a null beside other fields has its default all the same."""
    changes: tuple[Change, ...] = (("c", None, ["1", "A", None, None, None, None, None]),)
    (found,) = rows(of("Flatten$Value"), schema=GOODS, changes=changes, replace_null_with_default=False)
    assert (found["value"]["before.note"], found["value"]["after.note"]) == (None, "none")
    assert found["value"]["before.id"] is None


def test_parts_are_hoisted_and_schemas_are_named() -> None:
    steps = (of("SetSchemaMetadata$Value", schema_name="n", schema_version="2"), of("HoistField$Key", field="k"))
    found = rows(*steps, key_schemas_enable=True, value_schemas_enable=True, changes=(("c", None, ["1", "x"]),))
    assert found[0]["key"]["payload"] == {"k": {"id": 1}}
    schema = found[0]["value"]["schema"]
    assert (schema["name"], schema["version"]) == ("n", 2)
    leaf = rows(of("ExtractField$Key", field="id"), of("SetSchemaMetadata$Key", schema_name="Id"),
                key_schemas_enable=True, changes=(("c", None, ["1", "x"]),))  # fmt: skip
    assert leaf[0]["key"] == {"schema": {"type": "int32", "optional": False, "name": "Id"}, "payload": 1}


def test_topics_follow_an_expression() -> None:
    step = of("RegexRouter", regex=r"(\w+)[.]\w+[.](.*)", replacement="$2-of-$1")
    assert {row["topic"] for row in rows(step)} == {"t-of-s"}
    assert {row["topic"] for row in rows(of("RegexRouter", regex="public", replacement="x"))} == {"s.public.t"}
    assert {row["topic"] for row in rows(of("RegexRouter", regex=".*", replacement="data:$0"))} == {"data:s.public.t"}


def test_moments_change_their_form() -> None:
    columns = [
        Column("id", "int4", 23, nullable=False),
        Column("at", "timestamp", 1114, 3),
        Column("day", "date", 1082),
    ]
    moments = table("m", columns, "id")
    changes: list[Change] = [
        ("c", None, ["1", "2020-01-02 03:04:05.678", "2020-01-02"]),
        ("c", None, ["2", None, None]),
        ("c", None, ["3", "1969-12-31 23:59:59.999", "1969-12-31"]),
    ]

    def converted(field: str, **options: str) -> list[Any]:
        step = of("TimestampConverter$Value", field=field, **options)
        found = rows(UNWRAP, step, schema=moments, changes=changes, time_precision_mode="connect")
        return [row["value"][field] for row in found]

    assert converted("at", target_type="string", format="yyyy-MM-dd HH:mm:ss.SSS") == [
        "2020-01-02 03:04:05.678", None, "1969-12-31 23:59:59.999",
    ]  # fmt: skip
    assert converted("at", target_type="unix", unix_precision="seconds") == [1_577_934_245, None, 0]
    assert converted("at", target_type="unix", unix_precision="microseconds") == [1_577_934_245_678_000, None, -1000]
    assert converted("at", target_type="Date") == [18_263, None, -1]
    assert converted("at", target_type="Time") == [11_045_678, None, 86_399_999]
    assert converted("day", target_type="Timestamp") == [1_577_923_200_000, None, -86_400_000]
    assert converted("day", target_type="string", format="dd.MM.yy") == ["02.01.20", None, "31.12.69"]


def test_a_text_that_is_no_moment_ends_the_query_with_its_place() -> None:
    step = of("TimestampConverter$Value", field="sku", target_type="unix", format="yyyy")
    with pytest.raises(TransformError) as error:
        values(step)
    assert "TimestampConverter finds no moment of the format in the field sku" in str(error.value)
    assert "of public.goods" in str(error.value)
    assert "at 0/1388, change 0" in str(error.value)


@pytest.mark.parametrize(("topic", "shares"), [("all-${timestamp}", True), ("${topic}-${timestamp}", False)])
def test_tables_that_share_the_topics_of_all_moments_are_read_together(topic: str, shares: bool) -> None:
    steps = of("TimestampRouter", topic_format=topic), of("RegexRouter", regex="(.*)-[0-9]+", replacement="$1")
    made = transforms(chain(*steps)).transforms
    (first,), (second,) = (routed(f"s.public.{name}", TableId("golden", "public", name), made) for name in "ab")
    assert (first == second) is shares


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((of("ValueToKey", fields="nothing"),), "ValueToKey finds no field nothing in the value"),
        ((of("ExtractField$Key", field="x"),), "ExtractField finds no field x in the key"),
        ((of("ExtractField$Key", field="id"), of("ExtractField$Key", field="id")), "the key is not a struct"),
        ((of("HeaderFrom$Value", fields="x", headers="x", operation="copy"),), "HeaderFrom finds no field x"),
        ((of("MaskField$Value", fields="raw"),), "MaskField cannot mask the field raw, which is of the type bytes"),
        (
            (of("MaskField$Value", fields="id", replacement="x"),),
            "cannot make int32 of its replacement for the field id",
        ),
        ((of("InsertField$Value", static_field="sku", static_value="x"),), "would make two fields sku"),
        ((of("ReplaceField$Value", renames="sku:id"),), "would make two fields id"),
        ((of("TimestampRouter"),), "TimestampRouter needs the time of the record, and it has none"),
        ((of("TimestampConverter$Value", field="live", target_type="unix"),), "finds no moment in the field live"),
        ((of("InsertField$Value", timestamp_field="at!"),), "InsertField has no value for the field at"),
    ],
)
def test_what_a_record_lacks_is_named(steps: tuple[dict[str, str], ...], said: str) -> None:
    with pytest.raises(TransformError) as error:
        values(*steps)
    assert said in str(error.value)
    assert "public.goods" in str(error.value)


def test_tombstones_pass_where_there_is_nothing_to_do() -> None:
    steps = (
        of("InsertField$Value", topic_field="x"),
        of("MaskField$Value", fields="op"),
        of("ReplaceField$Value", exclude="op"),
        of("Cast$Value", spec="op:string"),
        of("TimestampConverter$Value", field="ts_ms", target_type="Date"),
        of("Flatten$Value"),
        of("SetSchemaMetadata$Value", schema_name="n"),
        of("ExtractField$Value", field="x"),
    )
    assert [row["value"] for row in rows(*steps)][-1] is None


def test_tombstones_without_the_fields_that_are_needed_end_the_query() -> None:
    with pytest.raises(TransformError, match="ValueToKey needs fields, and the value is missing"):
        rows(of("ValueToKey", fields="op"))


def test_other_records_pass_through_chains_too() -> None:
    steps = (
        of("Cast$Value", spec="ts_ms:string"),
        of("HeaderFrom$Value", fields="ts_ms", headers="at", operation="copy"),
    )
    (beat,) = heartbeat_row(5, 7, settings(chain(*steps))).to_pylist()
    assert (beat["value"], beat["headers"]) == (b'{"ts_ms":"5"}', [{"key": "at", "value": b'"5"'}])
    with pytest.raises(TransformError, match="ValueToKey finds no field id in the value, in the record heartbeat"):
        heartbeat_row(5, 7, settings(chain(of("ValueToKey", fields="id"))))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (of("RegexRouter", regex="("), "It needs the option replacement"),
        (of("RegexRouter", regex="(", replacement="x"), "regex: '(' is not a regular expression"),
        (of("RegexRouter", regex="a", replacement="$1"), "names no group of regex"),
        (of("RegexRouter", regex="a", replacement="b", flags="x"), "It has no option flags"),
        (of("ExtractField$Key"), "It needs the option field"),
        (of("ExtractField$Key", field="a", field_syntax_version="V3"), "field.syntax.version must be one of v1, v2"),
        (of("ExtractField", field="a"), "There is no transform"),
        (of("ReplaceField$Value", renames="a"), "renames must be a list of pairs"),
        (of("InsertField$Value"), "It inserts no field"),
        (of("InsertField$Value", offset_field="o"), "offset.field is for sink connectors alone"),
        (of("InsertField$Value", static_field="o!"), "static.field must have a value"),
        (of("InsertHeader", header="h", value_literal='[1,"a"]'), "value.literal is a list or a map whose values have"),
        (of("InsertHeader", header="h", value_literal="{1:2}"), "value.literal is a map whose keys are not texts"),
        (of("InsertHeader", header="h", value_literal="[null]"), "value.literal has a null in a list"),
        (of("InsertHeader", header="h", value_literal="null"), "value.literal is null"),
        (of("HeaderFrom$Key", fields="a", headers="b,c", operation="copy"), "must have the same number of names"),
        (of("HeaderFrom$Key", fields="a", headers="b"), "It needs the option operation"),
        (of("Cast$Value", spec="a:int128"), "int128 is not one of the types"),
        (of("Cast$Value", spec="int8,a:int8"), "spec must be one type for the whole"),
        (of("TimestampConverter$Value", target_type="string"), "needs the option format"),
        (of("TimestampConverter$Value", target_type="string", format="ww"), "format has the letter w"),
        (of("TimestampRouter", timestamp_format="ww"), "timestamp.format has the letter w"),
        (of("SetSchemaMetadata$Value", schema_version="x"), "schema.version must be a whole number"),
    ],
)
def test_wrong_options_are_refused(step: dict[str, str], said: str) -> None:
    (fault,) = faults(step)
    assert said in fault
