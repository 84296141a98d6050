"""Kafka Connect's transforms extract, drop, rename, insert, hoist and flatten fields, and make keys of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace import values as families
from tailrace.columns.logical import (
    BOOLEAN,
    BYTES,
    DOUBLE,
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
from tailrace.records.layout import ComputedColumn, Constant, Node, Struct
from tailrace.values.decimals import VARIABLE_DECIMAL
from tests.layout_blocks import LayoutBlock, stored, struct_of
from tests.unit.transforms.rewritten_layouts import connect, debezium, one, record_of, refused, seen, values

TEXT, NUMBER = STRING.with_optional(True), INT64.with_optional(True)
ROW = struct_of(
    "s.t.Value",
    id=Constant(1, INT32),
    name=Constant("é", TEXT),
    place=struct_of("s.Place", optional=True, x=Constant(1.5, DOUBLE), at=struct_of(y=Constant(None, TEXT))),
)
"""A row of three fields, the last of which is a struct with a struct in it."""
KEY = struct_of("s.t.Key", id=Constant(1, INT32))
NOTHING = Constant(None, ROW.type.with_optional(True))


def names(kind: LogicalType | None) -> list[str]:
    assert kind is not None
    return [part.name for part in kind.fields]


# --- ExtractField ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "wanted"),
    [("id", 1), ("name", "é"), ("place", {"x": 1.5, "at": {"y": None}})],
)
def test_a_field_takes_the_place_of_the_value(field: str, wanted: Any) -> None:
    assert one(connect("ExtractField$Value", field=field), record_of(ROW, KEY)).value == wanted
    assert one(connect("ExtractField$Value", field=field), record_of(ROW, KEY)).key == {"id": 1}


def test_a_path_leads_into_structs_in_the_second_syntax() -> None:
    nested = {"field_syntax_version": "V2"}
    assert values(connect("ExtractField$Value", field="place.x", **nested), ROW) == [1.5]
    assert values(connect("ExtractField$Value", field="place.at.y", **nested), ROW) == [None]
    dotted = struct_of(**{"a.b": Constant(7, INT32), "a": struct_of(b=Constant(8, INT32))})
    assert values(connect("ExtractField$Value", field="a.b"), dotted) == [7]
    assert values(connect("ExtractField$Value", field="a.b", **nested), dotted) == [8]
    assert values(connect("ExtractField$Value", field="`a.b`", **nested), dotted) == [7]


def test_a_default_within_a_struct_that_is_null_is_shown_as_the_converter_shows_nulls() -> None:
    kind = struct(Field("s", struct(Field("n", INT32.with_default(5))).with_optional(True))).with_optional(True)
    step = connect("ExtractField$Value", field="s.n", field_syntax_version="V2")
    assert values(step, Constant(None, kind)) == [5]
    assert values(step, Constant(None, kind), **{"replace.null.with.default": False}) == [None]


def test_a_field_of_a_struct_that_is_null_is_null() -> None:
    step = connect("ExtractField$Value", field="id")
    assert one(step, record_of(NOTHING)).value is None
    assert one(step, record_of(None)).value is None
    block = LayoutBlock(2)
    kind = struct(Field("n", INT32.with_default(5)), name="s").with_optional(True)
    leaf = block.column("s", kind, {"n": 1}, None)
    assert values(connect("ExtractField$Value", field="n"), leaf, block) == [1, None]


@pytest.mark.parametrize("on", ["true", "false"])
def test_a_null_that_has_a_default_is_this_unless_the_option_says_otherwise(on: str) -> None:
    block = LayoutBlock(2)
    leaf = block.image_column("n", families.integers.integer(32), "1", None, default=5)
    bare = Struct(struct_of(n=_bare(leaf)).members, "s.t.Value")
    step = connect("ExtractField$Value", field="n", replace_null_with_default=on)
    assert values(step, bare, block) == [1, 5 if on == "true" else None]


def _bare(leaf: Any) -> Node:
    """Return the column in the form of a converter that keeps nulls."""
    found: Node = replace(leaf, column=replace(leaf.column, null=b"null"))
    return found


@pytest.mark.parametrize(
    ("which", "field", "said"),
    [
        ("Value", "x", "ExtractField finds no field x in the value"),
        ("Key", "x", "ExtractField finds no field x in the key"),
        ("Value", "place.x", "ExtractField finds no field place.x in the value"),
    ],
)
def test_a_field_that_is_not_there_is_named(which: str, field: str, said: str) -> None:
    assert refused(connect(f"ExtractField${which}", field=field), record_of(ROW, KEY)) == said


def test_what_is_no_struct_has_no_fields() -> None:
    step = connect("ExtractField$Value", field="id")
    assert refused(step, record_of(Constant("a", STRING))) == "ExtractField needs fields, and the value is not a struct"


# --- ReplaceField, HoistField, ValueToKey ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"include": "name,id"}, ["id", "name"]),
        ({"exclude": "name"}, ["id", "place"]),
        ({"include": "id,name", "exclude": "name"}, ["id"]),
        ({"renames": "id:nr,place:where"}, ["nr", "name", "where"]),
        ({"include": "id", "renames": "id:nr"}, ["nr"]),
        ({"renames": "id:name,name:id"}, ["name", "id", "place"]),
        ({"exclude": "none of them"}, ["id", "name", "place"]),
    ],
)
def test_fields_are_kept_in_their_order(options: dict[str, str], wanted: list[str]) -> None:
    found = one(connect("ReplaceField$Value", **options), record_of(ROW, KEY))
    assert list(found.value) == names(found.value_schema) == wanted
    assert found.value_schema is not None
    assert found.value_schema.name == "s.t.Value"


def test_two_fields_may_not_have_one_name() -> None:
    assert (
        refused(connect("ReplaceField$Value", renames="id:name"), record_of(ROW))
        == "ReplaceField would make two fields name"
    )


def test_a_record_without_a_value_passes() -> None:
    for step in (
        connect("ReplaceField$Value", exclude="id"), connect("InsertField$Value", static_field="a", static_value="b"),
        connect("MaskField$Value", fields="id"), connect("Cast$Value", spec="id:string"),
        connect("TimestampConverter$Value", field="id", target_type="unix"),
    ):  # fmt: skip
        for value in (None, NOTHING):
            found = one(step, record_of(value, KEY))
            assert (found.value, found.key) == (None, {"id": 1})


def test_a_value_is_hoisted_into_a_struct() -> None:
    found = one((connect("HoistField$Value", field="row"), connect("HoistField$Key", field="k")), record_of(ROW, KEY))
    assert (found.value["row"]["id"], found.key) == (1, {"k": {"id": 1}})
    assert one(connect("HoistField$Value", field="v"), record_of(Constant("a", STRING))).value == {"v": "a"}


def test_fields_of_the_value_become_the_key() -> None:
    found = one(connect("ValueToKey", fields="name, id"), record_of(ROW, KEY))
    assert list(found.key.items()) == [("name", "é"), ("id", 1)]
    assert found.key_schema is not None
    assert (found.key_schema.name, found.value["id"]) == (None, 1)
    assert refused(connect("ValueToKey", fields="x"), record_of(ROW)) == "ValueToKey finds no field x in the value"
    assert (
        refused(connect("ValueToKey", fields="id"), record_of(None))
        == "ValueToKey needs fields, and the value is missing"
    )


# --- InsertField ----------------------------------------------------------------------------------------------------


def test_fields_are_inserted_behind_all_others_in_their_own_order() -> None:
    step = connect("InsertField$Value", static_field="s", static_value="here", topic_field="t!", timestamp_field="at",
                   partition_field="p?")  # fmt: skip
    record = record_of(ROW, KEY, timestamp=Constant(1_577_934_245_678, INT64), partition=Constant(3, INT32))
    found = one(step, record)
    assert list(found.value.items())[3:] == [
        ("t", "server.public.t"),
        ("p", 3),
        ("at", 1_577_934_245_678),
        ("s", "here"),
    ]
    assert found.value_schema is not None
    kinds = {part.name: part.type for part in found.value_schema.fields}
    assert (kinds["t"].optional, kinds["p"].optional, kinds["s"].optional) == (False, True, True)
    assert kinds["at"].name == "org.apache.kafka.connect.data.Timestamp"
    bare = one(step, record_of(ROW, KEY))
    assert (bare.value["p"], bare.value["at"]) == (None, None)


def test_an_inserted_field_that_must_have_a_value_is_refused_without() -> None:
    step = connect("InsertField$Value", timestamp_field="at!")
    assert refused(step, record_of(ROW)) == "InsertField has no value for the field at, which must have one"
    block = LayoutBlock(2)
    times = ComputedColumn((), lambda: stored(NUMBER, 5, None), NUMBER)
    said = refused(step, record_of(ROW, timestamp=times), block)
    assert said == "InsertField has no value for the field at, which must have one"


def test_keys_of_tombstones_get_fields_too_and_missing_keys_do_not() -> None:
    step = connect("InsertField$Key", static_field="k", static_value="")
    assert one(step, record_of(None, KEY)).key == {"id": 1, "k": ""}
    assert one(step, record_of(ROW)).key is None


def test_values_that_are_null_in_some_records_pass_there() -> None:
    block = LayoutBlock(2)
    row = struct(Field("a", INT32), name="r").with_optional(True)
    column = block.column("v", row, {"a": 1}, None)
    insert = connect("InsertField$Value", static_field="s", static_value="x")
    steps = (insert, connect("Cast$Value", spec="a:string"), connect("MaskField$Value", fields="s"))
    assert values(steps, column, block) == [{"a": "1", "s": ""}, None]
    text = block.column("t", TEXT, "x", None)
    assert "InsertField needs fields" in refused(insert, record_of(text), block)
    assert values(insert, block.column("t", TEXT, None, None), block) == [None, None]


def test_a_topic_that_depends_on_values_is_inserted_as_it_is() -> None:
    block = LayoutBlock(2)
    topic = ComputedColumn((block.column("t", STRING, "a", "b"),), lambda topics: topics, STRING)
    found = seen(connect("InsertField$Value", topic_field="t"), record_of(ROW, topic=topic), block)
    assert [record and record.value["t"] for record in found] == ["a", "b"]


# --- Flatten --------------------------------------------------------------------------------------------------------


def test_structs_are_flattened_under_the_names_of_their_paths() -> None:
    found = one(connect("Flatten$Value", delimiter="_"), record_of(ROW))
    assert found.value == {"id": 1, "name": "é", "place_x": 1.5, "place_at_y": None}
    assert found.value_schema is not None
    optional = {part.name: part.type.optional for part in found.value_schema.fields}
    # A field of a nullable struct is nullable.
    assert optional == {"id": False, "name": True, "place_x": True, "place_at_y": True}
    assert list(one(connect("Flatten$Value"), record_of(ROW)).value)[2:] == ["place.x", "place.at.y"]


def test_lists_stay_and_maps_are_refused() -> None:
    row = struct_of(l=Constant([1, 2], array(INT32)), s=struct_of(m=Constant({"a": 1}, mapping(INT32))))
    assert refused(connect("Flatten$Value"), record_of(row)) == "Flatten cannot flatten the map s.m in the value"
    assert values(connect("Flatten$Value"), row.without("s")) == [{"l": [1, 2]}]


def test_a_struct_that_is_null_in_some_records_is_flat_nulls_there() -> None:
    block = LayoutBlock(2)
    kind = struct(Field("a", INT32), Field("b", STRING.with_default("z")), name="s").with_optional(True)
    row = struct_of("r", s=block.column("s", kind, {"a": 1, "b": "x"}, None))
    assert values(connect("Flatten$Value"), row, block)[0] == {"s.a": 1, "s.b": "x"}
    assert values(connect("Flatten$Value"), row, block)[1]["s.a"] is None


def test_a_null_that_is_known_is_flat_as_the_converter_shows_nulls() -> None:
    kind = struct(Field("a", INT32), Field("b", STRING.with_default("z"))).with_optional(True)
    row = struct_of("r", s=Constant(None, kind))
    step = connect("Flatten$Value")
    assert values(step, row) == [{"s.a": None, "s.b": "z"}]
    assert values(step, row, **{"replace.null.with.default": False}) == [{"s.a": None, "s.b": None}]


def test_a_record_that_is_null_passes_with_its_schema() -> None:
    found = one(connect("Flatten$Value", delimiter="-"), record_of(NOTHING))
    assert (found.value, names(found.value_schema)) == (None, ["id", "name", "place"])


def test_numbers_with_a_scale_of_their_own_are_flattened_too() -> None:
    block = LayoutBlock(3)
    given = {"scale": 1, "value": "Dw=="}, {"scale": 0, "value": "/w=="}, None
    row = struct_of("r", n=block.column("n", VARIABLE_DECIMAL.with_optional(True), *given))
    wanted = [{"n_scale": 1, "n_value": "Dw=="}, {"n_scale": 0, "n_value": "/w=="}, {"n_scale": None, "n_value": None}]
    assert values(connect("Flatten$Value", delimiter="_"), row, block) == wanted


# --- SetSchemaMetadata ----------------------------------------------------------------------------------------------


def test_schemas_get_another_name_and_version() -> None:
    steps = (
        connect("SetSchemaMetadata$Value", schema_name="n.R", schema_version="7"),
        connect("SetSchemaMetadata$Key", schema_version="-1"),
    )
    found = one(steps, record_of(ROW, KEY))
    assert found.value_schema is not None
    assert found.key_schema is not None
    assert (found.value_schema.name, found.value_schema.version) == ("n.R", 7)
    assert (found.key_schema.name, found.key_schema.version) == ("s.t.Key", -1)
    leaf = one(connect("SetSchemaMetadata$Value", schema_name="n.Id"), record_of(Constant(1, INT32)))
    assert leaf.value_schema == LogicalType("int32", "n.Id")
    assert one(connect("SetSchemaMetadata$Value", schema_name="n"), record_of(None)).value_schema is None


# --- headers --------------------------------------------------------------------------------------------------------


def test_headers_are_inserted_taken_from_fields_and_dropped() -> None:
    steps = (
        connect("InsertHeader", header="one", value_literal="12"),
        connect("HeaderFrom$Value", fields="name,id", headers="name,nr", operation="move"),
        connect("HeaderFrom$Key", fields="id", headers="key", operation="copy"),
        connect("DropHeaders", headers="old,none"),
    )
    found = one(steps, record_of(ROW, KEY, headers={"old": Constant("x", STRING), "kept": Constant(True, BOOLEAN)}))
    assert found.headers == [("kept", True), ("one", 12), ("name", "é"), ("nr", 1), ("key", 1)]
    assert (list(found.value), found.key) == (["place"], {"id": 1})


def test_a_header_of_a_field_that_is_not_there_is_refused() -> None:
    step = connect("HeaderFrom$Value", fields="x", headers="x", operation="copy")
    assert refused(step, record_of(ROW)) == "HeaderFrom finds no field x in the value"
    assert refused(step, record_of(None)) == "HeaderFrom needs fields, and the value is missing"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", STRING, ""),
        ("a", STRING, "a"),
        ("true", BOOLEAN, True),
        ("127", LogicalType("int8"), 127),
        ("128", LogicalType("int16"), 128),
        ("-32769", INT32, -32_769),
        ("2147483648", INT64, 2_147_483_648),
        ("1.5", LogicalType("float"), 1.5),
        ("2020-01-02", semantic(INT32, "org.apache.kafka.connect.data.Date"), 18_263),
        ("9223372036854775808", semantic(BYTES, "org.apache.kafka.connect.data.Decimal", scale="0"), "AIAAAAAAAAAA"),
    ],
)
def test_a_literal_is_read_as_kafka_connect_reads_it(text: str, kind: LogicalType, value: Any) -> None:
    move = debezium("HeaderToValue", headers="h", fields="h", operation="move")
    found = one((connect("InsertHeader", header="h", value_literal=text), move), record_of(struct_of()))
    assert found.value == {"h": value}
    assert found.value_schema is not None
    assert found.value_schema.fields[0].type == kind
