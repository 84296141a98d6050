"""ExtractNewRecordState and ExtractChangedRecordState replace events by rows, and show what an update changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace import values as families
from tailrace.columns.logical import DOUBLE, INT32, INT64, STRING, Field, array, struct
from tailrace.records.layout import AFTER, BEFORE, Constant, Node, RecordLayout, Struct
from tailrace.records.transform import ANY_TOPIC
from tests.layout_blocks import TOPIC, LayoutBlock, change_event, source_block, struct_of
from tests.unit.transforms.rewritten_layouts import debezium, made_of, one, record_of, refused, seen

ROW = struct_of(f"{TOPIC}.Value", id=Constant(1, INT32), v=Constant("é", STRING.with_optional(True)))
OLD = struct_of(f"{TOPIC}.Value", id=Constant(1, INT32), v=Constant(None, STRING.with_optional(True)))
KEY = struct_of(f"{TOPIC}.Key", id=Constant(1, INT32))
TOMBSTONE = record_of(None, KEY)
MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")


def unwrap(**options: str) -> dict[str, str]:
    return debezium("ExtractNewRecordState", **options)


def event(op: str, before: Node | None, after: Node | None, **more: Node) -> RecordLayout:
    return record_of(change_event(op, before, after, **more), KEY)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_row_takes_the_place_of_its_event(mode: str, op: str) -> None:
    found = one(unwrap(delete_tombstone_handling_mode=mode), event(op, None, ROW))
    marked = {"__deleted": "false"} if mode.startswith("rewrite") else {}
    assert found.value == {"id": 1, "v": "é"} | marked
    assert (found.key, found.topic) == ({"id": 1}, TOPIC)
    assert found.value_schema is not None
    assert (found.value_schema.name, found.value_schema.optional) == (f"{TOPIC}.Value", False)


@pytest.mark.parametrize(
    ("mode", "deleted", "tombstone"),
    [
        ("drop", "dropped", "dropped"),
        ("tombstone", None, "dropped"),
        ("rewrite", {"id": 1, "v": None, "__deleted": "true"}, "dropped"),
        ("rewrite-with-tombstone", {"id": 1, "v": None, "__deleted": "true"}, None),
        ("delete-to-tombstone", None, "dropped"),
    ],
)
def test_deletes_and_tombstones_follow_the_mode(mode: str, deleted: Any, tombstone: Any) -> None:
    step = unwrap(delete_tombstone_handling_mode=mode)
    for record, wanted in ((event("d", OLD, None), deleted), (TOMBSTONE, tombstone)):
        (found,) = seen(step, record)
        assert (found is None) == (wanted == "dropped")
        if found is not None:
            assert (found.value, found.key) == (wanted, {"id": 1})
            assert list(found.value or []) == list(wanted or [])


@pytest.mark.parametrize("mode", MODES)
def test_truncates_are_dropped_and_all_else_passes(mode: str) -> None:
    step = unwrap(delete_tombstone_handling_mode=mode)
    assert seen(step, event("t", None, ROW)) == [None]
    beat = record_of(struct_of("io.debezium.connector.common.Heartbeat", ts_ms=Constant(5, INT64)))
    assert one(step, beat).value == {"ts_ms": 5}
    message = record_of(struct_of("io.debezium.connector.postgresql.MessageValue", op=Constant("m", STRING)))
    assert one(step, message).value == {"op": "m"}


def test_older_events_drop_deletes_unless_an_option_says_otherwise() -> None:
    for form, wanted in (("3", [False]), ("1.7", [True])):
        assert [found is None for found in seen(unwrap(), event("d", OLD, None), **{"event.format": form})] == wanted
    given = {"delete_handling_mode": "rewrite", "drop_tombstones": "false"}
    assert one(unwrap(**given), event("d", OLD, None)).value["__deleted"] == "true"
    assert one(unwrap(**given), TOMBSTONE).value is None


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ("op", {"__op": "u"}),
        ("lsn,table", {"__lsn": 24_023_128, "__table": "t"}),
        ("source.ts_ms", {"__source_ts_ms": 1_795_222_827_639}),
        ("ts_ms:at", {"__at": 1_795_222_827_700}),
        ("before.v:old,after.v", {"__old": None, "__after_v": "é"}),
        ("transaction.id,total_order", {"__transaction_id": "700:24", "__total_order": 2}),
        ("none,before.none", {}),
    ],
)
def test_fields_and_headers_are_added(fields: str, wanted: dict[str, Any]) -> None:
    kind = struct(Field("id", STRING), Field("total_order", INT64)).with_optional(True)
    record = event("u", OLD, ROW, transaction=Constant({"id": "700:24", "total_order": 2}, kind))
    found = one(unwrap(add_fields=fields), record)
    assert list(found.value.items())[2:] == list(wanted.items())
    assert found.value_schema is not None
    assert all(part.type.optional for part in found.value_schema.fields[2:])
    assert one(unwrap(add_headers=fields), record).headers == list(wanted.items())
    bare = one(unwrap(add_fields=fields, **{"add_fields_prefix": ""}), record)
    assert list(bare.value)[2:] == [name[2:] for name in wanted]


def test_a_field_of_a_row_that_is_not_there_is_null() -> None:
    found = one(unwrap(add_fields="before.id", add_headers="before.v"), event("c", None, ROW))
    assert (found.value["__before_id"], found.headers) == (None, [("__before_v", None)])


def test_a_rewritten_delete_has_its_mark_before_what_is_added() -> None:
    step = unwrap(delete_tombstone_handling_mode="rewrite-with-tombstone", add_fields="op", add_headers="op,table")
    found = one(step, event("d", OLD, None))
    assert list(found.value.items())[2:] == [("__deleted", "true"), ("__op", "d")]
    assert found.headers == [("__op", "d"), ("__table", "t")]
    assert one(step, TOMBSTONE).headers == [("__op", "d")]


def test_a_topic_may_be_a_column_of_the_row() -> None:
    block = LayoutBlock(4)
    row = struct_of("r.Value", v=block.column("v", STRING.with_optional(True), "my topic.é", None, " ", "b"))
    step = unwrap(route_by_field="v")
    found = seen(step, record_of(change_event("c", None, row), KEY), block)
    assert [record and record.topic for record in found] == ["my topic.é", TOPIC, TOPIC, "b"]
    found = seen(step, record_of(change_event("d", row, None), KEY), block)
    assert found[0] is not None
    assert (found[0].topic, found[0].value) == ("my topic.é", None)
    (route,) = made_of(step)
    assert route.route(TOPIC) == ANY_TOPIC
    said = refused(unwrap(route_by_field="id"), event("c", None, ROW))
    assert said == "ExtractNewRecordState finds no column of text id, by which it is to route"


@pytest.mark.parametrize(("on", "shown"), [("true", 5), ("false", None)])
def test_a_null_is_its_default_where_the_option_says_so(on: str, shown: Any) -> None:
    block = LayoutBlock(1)
    leaf = block.image_column("n", families.integers.integer(32), None, default=5)
    bare = replace(leaf, column=replace(leaf.column, null=b"null"))
    step = unwrap(replace_null_with_default=on, delete_tombstone_handling_mode="rewrite")
    found = seen(step, record_of(change_event("c", None, struct_of("r.Value", n=bare))), block)
    assert [record and record.value for record in found] == [{"n": shown, "__deleted": "false"}]


# --- ExtractChangedRecordState --------------------------------------------------------------------------------------

NAMES = debezium("ExtractChangedRecordState", header_changed_name="changed", header_unchanged_name="same")


def updates(block: LayoutBlock, **columns: tuple[Node, Node]) -> RecordLayout:
    """Return updates whose rows have these columns, each before and after."""
    before, after = (
        Struct(struct_of(**{name: pair[place] for name, pair in columns.items()}).members, "r.Value", optional=True)
        for place in (0, 1)
    )
    return record_of(change_event("u", before, after), KEY)


def test_an_update_names_the_columns_that_it_changed() -> None:
    block = LayoutBlock(3)
    integer, text = families.integers.integer(32), families.strings.text()
    record = updates(
        block,
        id=(
            block.image_column("id", integer, "1", "2", None, image=BEFORE),
            block.image_column("id", integer, "1", "3", None, image=AFTER),
        ),
        v=(
            block.image_column("v", text, "a", None, "é", image=BEFORE),
            block.image_column("v", text, "b", None, None, image=AFTER),
        ),
    )
    found = seen(NAMES, record, block)
    assert [record and record.headers for record in found] == [
        [("changed", ["v"]), ("same", ["id"])],
        [("changed", ["id"]), ("same", ["v"])],
        [("changed", ["v"]), ("same", ["id"])],
    ]


@pytest.mark.parametrize(
    ("kind", "old", "new", "differs"),
    [
        (DOUBLE, "NaN", "NaN", False),
        (DOUBLE, 0.0, -0.0, True),
        (STRING, "a", "a", False),
        (array(INT32), [1], [1], False),
        (array(INT32), [1], [2], True),
        (INT32, None, 0, True),
        (INT32, None, None, False),
    ],
)
def test_values_are_compared_as_java_compares_them(kind: Any, old: Any, new: Any, differs: bool) -> None:
    block = LayoutBlock(1)
    kind = kind.with_optional(True)
    record = updates(block, v=(block.column("old", kind, old), block.column("new", kind, new)))
    (found,) = seen(NAMES, record, block)
    assert found is not None
    assert dict(found.headers) == {"changed": ["v"] if differs else [], "same": [] if differs else ["v"]}


@pytest.mark.parametrize(
    ("op", "before", "after"), [("c", None, ROW), ("r", None, ROW), ("d", OLD, None), ("u", None, ROW)]
)
def test_other_changes_have_empty_lists(op: str, before: Node | None, after: Node | None) -> None:
    assert one(NAMES, event(op, before, after)).headers == [("changed", []), ("same", [])]
    assert one(NAMES, TOMBSTONE).headers == []
    only = debezium("ExtractChangedRecordState", header_unchanged_name="same")
    assert one(only, event(op, before, after)).headers == [("same", [])]


@pytest.mark.parametrize(("compatible", "columns"), [("true", ["id", "same"]), ("false", ["same"])])
def test_unchanged_columns_may_be_dropped_by_their_header(compatible: str, columns: list[str]) -> None:
    """Only nullable columns are dropped, unless the schema need not stay compatible."""
    block = LayoutBlock(1)
    integer = families.integers.integer(32)

    def pair(name: str, old: str, new: str, optional: bool) -> tuple[Node, Node]:
        return (block.image_column(name, integer, old, image=BEFORE, optional=optional),
                block.image_column(name, integer, new, image=AFTER, optional=optional))  # fmt: skip

    record = updates(
        block, id=pair("id", "1", "1", False), v=pair("v", "2", "2", True), same=pair("same", "3", "4", True)
    )
    steps = (
        debezium("ExtractChangedRecordState", header_unchanged_name="same"),
        unwrap(
            drop_fields_header_name="same", drop_fields_keep_schema_compatible=compatible, drop_fields_from_key="true"
        ),
    )
    (found,) = seen(steps, record, block)
    assert found is not None
    assert list(found.value) == columns
    assert found.key == ({"id": 1} if compatible == "true" else {})


def test_a_source_that_is_computed_gives_fields_too() -> None:
    kind = source_block().type
    block = LayoutBlock(1)
    given = {
        part.name: None if part.type.optional else 5 if part.type.connect == "int64" else "s" for part in kind.fields
    }
    source = block.column("source", kind, given)
    value = change_event("c", None, ROW).with_part("source", source)
    (found,) = seen(unwrap(add_fields="ts_ms:at,source.table,lsn"), record_of(value), block)
    assert found is not None
    assert list(found.value.items())[2:] == [("__at", 1_795_222_827_700), ("__source_table", "s"), ("__lsn", None)]
