"""ExtractNewRecordState replaces events by rows, and handles deletes as in every generation."""

from __future__ import annotations

import json

import pytest

from tailrace.columns import Column
from tailrace.config.formats import Format
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import TransformError
from tailrace.events.record_assembly import to_rows
from tests.unit.events.changes import batch, table
from tests.unit.transforms.told import CUSTOMERS, faults, notices, settings, told

TYPE = "io.debezium.transforms.ExtractNewRecordState"
CHANGES = [
    ("c", None, ["1", "Ann", "north", "30"]),
    ("u", ["1", "Ann", "north", "30"], ["1", "Ann", None, None]),
    ("d", ["1", "Ann", None, "30"], None),
    ("t", None, None),
]
CREATED = {"id": 1, "name": "Ann", "region": "north", "age": 30}
UPDATED = {"id": 1, "name": "Ann", "region": None, "age": 18}
GONE = {"id": 1, "name": "Ann", "region": None, "age": 30}


def unwrap(**options: str) -> dict[str, str]:
    return {"type": TYPE, **{name.replace("_", "."): text for name, text in options.items()}}


@pytest.mark.parametrize(
    ("options", "deletes"),
    [
        ({}, [("d", None)]),
        ({"delete_tombstone_handling_mode": "drop"}, []),
        ({"delete_tombstone_handling_mode": "tombstone"}, [("d", None)]),
        ({"delete_tombstone_handling_mode": "delete-to-tombstone"}, [("d", "TOMBSTONE")]),
        ({"delete_tombstone_handling_mode": "rewrite"}, [("d", GONE | {"__deleted": "true"})]),
        (
            {"delete_tombstone_handling_mode": "rewrite-with-tombstone"},
            [("d", GONE | {"__deleted": "true"}), ("tombstone", "TOMBSTONE")],
        ),
        ({"delete_handling_mode": "drop"}, []),
        ({"delete_handling_mode": "drop", "drop_tombstones": "false"}, [("tombstone", "TOMBSTONE")]),
        ({"delete_handling_mode": "none"}, [("d", None)]),
        ({"delete_handling_mode": "none", "drop_tombstones": "false"}, [("d", None), ("tombstone", "TOMBSTONE")]),
        ({"delete_handling_mode": "rewrite"}, [("d", GONE | {"__deleted": "true"})]),
        ({"drop_deletes": "false"}, [("d", None)]),
        ({"drop_tombstones": "false"}, [("d", None)]),
        ({"delete_handling_mode": "rewrite", "delete_tombstone_handling_mode": "drop"}, []),
    ],
)
def test_what_becomes_of_deletes_is_for_an_option_of_any_generation_to_say(
    options: dict[str, str], deletes: list[tuple[str, object]]
) -> None:
    found = told([unwrap(**options)], CHANGES)
    marked = {"__deleted": "false"} if "rewrite" in next(reversed(options.values()), "") else {}
    assert [(one.op, one.value) for one in found[:2]] == [("c", CREATED | marked), ("u", UPDATED | marked)]
    assert [(one.op, one.value) for one in found[2:]] == deletes


@pytest.mark.parametrize(
    ("options", "deletes"), [({}, []), ({"drop_tombstones": "false"}, [("tombstone", "TOMBSTONE")])]
)
def test_events_of_an_older_form_have_the_older_defaults(
    options: dict[str, str], deletes: list[tuple[str, str]]
) -> None:
    found = told([unwrap(**options)], CHANGES[:3], form="1.7")
    assert [(one.op, one.value) for one in found[2:]] == deletes


def test_whoever_writes_older_names_is_told_what_they_mean() -> None:
    assert notices(unwrap(delete_handling_mode="rewrite", drop_tombstones="false")) == [
        "transforms.t: delete.handling.mode and drop.tombstones: read as Debezium 2 does, as "
        "delete.tombstone.handling.mode=rewrite-with-tombstone says it today; Debezium 3 ignores them."
    ]
    assert "has no effect beside" in notices(unwrap(drop_tombstones="true", delete_tombstone_handling_mode="drop"))[0]
    assert "it is for documents alone" in notices(unwrap(flatten_struct="true"))[0]
    assert notices(unwrap()) == []


def test_a_null_of_the_rows_type_has_its_schema() -> None:
    chosen = settings([unwrap()], value_schemas_enable=True)
    (rows,) = to_rows(batch(CUSTOMERS, CHANGES[2:3]), chosen, FORM)
    value = json.loads(rows["value"][0].as_py())
    assert value["payload"] is None
    assert value["schema"]["optional"]
    assert value["schema"]["name"] == "p.public.customers.Value"


def test_fields_and_headers_are_added_where_they_are_found() -> None:
    names = "op,table,source.schema,before.region:was,lsn:at,transaction.id,before.no_such,nothing,ts_ms:op_ms"
    (found,) = told([unwrap(add_fields=names, add_headers="op,source.db:from")], CHANGES[1:2])
    millis = found.value.pop("__op_ms")
    assert isinstance(millis, int)
    assert found.value == UPDATED | {
        "__op": "u", "__table": "customers", "__source_schema": "public", "__was": "north", "__at": 5000,
        "__transaction_id": None,
    }  # fmt: skip
    assert found.headers == {"__op": "u", "__from": "golden"}
    (found,) = told([unwrap(add_fields="op", add_fields_prefix="", add_headers="op:o", add_headers_prefix="h.")],
                    CHANGES[:1])  # fmt: skip
    assert (found.value["op"], found.headers) == ("c", {"h.o": "c"})


def test_options_of_debezium_1_add_fields_too() -> None:
    (found,) = told([unwrap(add_source_fields="table,db", operation_header="true")], CHANGES[:1])
    assert found.value == CREATED | {"__table": "customers", "__db": "golden"}
    assert found.headers == {"__op": "c"}


def test_added_fields_have_no_defaults() -> None:
    changes = [("u", ["1", "Ann", None, None], ["1", "Ann", None, "2"])]
    (found,) = told([unwrap(add_fields="before.age:was,source.snapshot")], changes)
    assert (found.value["__was"], found.value["__source_snapshot"]) == (None, None)


def test_rows_that_get_the_mark_of_deletes_have_their_defaults_unless_an_option_says_otherwise() -> None:
    marked = {"delete_tombstone_handling_mode": "rewrite"}
    for kept, age in (({}, None), (marked, 18), (marked | {"replace_null_with_default": "false"}, None)):
        (found,) = told([unwrap(**kept)], CHANGES[1:2], replace_null_with_default=False)
        assert found.value["age"] == age


def test_a_default_that_a_transform_puts_in_is_a_text_too() -> None:
    text = Format("simplestring", "value", ())
    for mode, shown in (
        ("rewrite", b"Struct{id=1,name=Ann,age=18,__deleted=false}"),
        ("drop", b"Struct{id=1,name=Ann}"),
    ):
        step = unwrap(delete_tombstone_handling_mode=mode)
        chosen = settings([step], value_format=text, replace_null_with_default=False)
        (rows,) = to_rows(batch(CUSTOMERS, CHANGES[1:2]), chosen, FORM)
        assert rows["value"].to_pylist() == [shown]


def test_structs_in_headers_have_defaults_where_kafka_connect_reads_them_so() -> None:
    header = {"type": "HeaderFrom$Value", "fields": "after", "headers": "row", "operation": "copy"}
    for form, shown in (("simpleheader", b'{"id":1,"name":"Ann","region":null,"age":18}'),
                        ("simplestring", b"Struct{id=1,name=Ann}")):  # fmt: skip
        chosen = settings([header], header_format=Format(form, "header", ()))
        (rows,) = to_rows(batch(CUSTOMERS, CHANGES[1:2]), chosen, FORM)
        assert {one["key"]: one["value"] for one in rows["headers"].to_pylist()[0]}["row"] == shown


def test_a_null_is_no_topic_though_its_column_has_a_default() -> None:
    routes = table("t", [Column("id", "int4", 23, nullable=False), Column("to", "text", 25, default="'x'")], "id")
    found = told([unwrap(route_by_field="to")], [("c", None, ["1", None]), ("c", None, ["2", "y"])], routes)
    assert [(one.topic, one.value["to"]) for one in found] == [("p.public.t", "x"), ("y", "y")]
    # but rows that get __deleted have their defaults before they are routed
    marked = unwrap(route_by_field="to", delete_tombstone_handling_mode="rewrite")
    found = told([marked], [("c", None, ["1", None]), ("d", ["1", None], None)], routes)
    assert [one.topic for one in found] == ["x", "p.public.t"]
    (found,) = told([marked | {"replace.null.with.default": "false"}], [("c", None, ["1", None])], routes)
    assert found.topic == "p.public.t"


@pytest.mark.parametrize(
    ("first", "shared"),
    [
        ({"type": "PartitionRouting", "partition.payload.fields": "change.id", "partition.topic.num": "2"}, True),
        ({"type": "TimezoneConverter", "converted.timezone": "UTC"}, True),
        ({"type": "io.debezium.transforms.Filter", "language": "groovy", "condition": "value.op != 'c'"}, True),
        ({"type": "io.debezium.transforms.Filter", "language": "groovy", "condition": "value.op == 'c'"}, False),
        ({"type": "RegexRouter", "regex": "other", "replacement": "x"}, True),
        ({"type": "RegexRouter", "regex": ".*", "replacement": "x"}, False),
        ({"type": "ByLogicalTableRouter", "topic.regex": "other", "topic.replacement": "x"}, True),
        ({"type": "ByLogicalTableRouter", "topic.regex": ".*", "topic.replacement": "x"}, False),
        ({"type": "HeaderToValue", "headers": "none", "fields": "f"}, True),
        ({"type": "EnforceRecordSize", "max.bytes": "100000"}, True),
    ],
)
def test_a_tombstone_has_its_deletes_headers_behind_transforms_that_pass_the_record_itself(
    first: dict[str, str], shared: bool
) -> None:
    last = unwrap(delete_tombstone_handling_mode="rewrite-with-tombstone", add_headers="op,table")
    found = told([first, last], CHANGES[2:3])[-1]
    assert (found.op, found.value) == ("tombstone", "TOMBSTONE")
    assert found.headers == ({"__op": "d", "__table": "customers"} if shared else {"__op": "d"})


def test_a_null_row_is_a_tombstone_to_the_next_transform() -> None:
    assert [one.op for one in told([unwrap()], CHANGES[2:3])] == ["d"]
    assert told([unwrap(), unwrap()], CHANGES[2:3]) == []


def test_a_column_names_the_topic_unless_it_is_null_or_blank() -> None:
    changes = [("c", None, [str(number), "Ann", region, None]) for number, region in enumerate(("a.b c", None, " "))]
    changes.append(("d", ["7", "Ann", "south", None], None))
    found = told([unwrap(route_by_field="region", delete_tombstone_handling_mode="rewrite-with-tombstone")], changes)
    own = "p.public.customers"
    assert [one.topic for one in found] == ["a.b c", own, own, "south", own]


@pytest.mark.parametrize("field", ["age", "no_such"])
def test_a_column_that_names_no_topic_is_an_error_with_its_place(field: str) -> None:
    with pytest.raises(TransformError, match=rf"column of text {field}.*public\.customers.*0/"):
        told([unwrap(route_by_field=field)], CHANGES[:1])


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        ({}, {"id": 1}, {"id": 1, "name": "Ann", "region": None}),
        ({"drop_fields_keep_schema_compatible": "false"}, {"id": 1}, {"region": None}),
        (
            {"drop_fields_keep_schema_compatible": "false", "drop_fields_from_key": "true"},
            {},
            {"region": None},
        ),
        ({"drop_fields_from_key": "true"}, {"id": 1}, {"id": 1, "name": "Ann", "region": None}),
    ],
)
def test_fields_that_a_header_names_are_dropped(
    options: dict[str, str], key: dict[str, object], value: dict[str, object]
) -> None:
    changes = {"type": "io.debezium.transforms.ExtractChangedRecordState", "header.unchanged.name": "Same"}
    before, after = ["1", "Ann", "north", "30"], ["1", "Ann", None, "30"]
    found = told(
        [changes, unwrap(drop_fields_header_name="Same", **options)], [("c", None, before), ("u", before, after)]
    )
    assert found[0].value == CREATED
    assert (found[1].key, found[1].value) == (key, value)
    assert found[1].headers == {"Same": ["id", "name", "age"]}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delete_tombstone_handling_mode": "keep"}, "delete.tombstone.handling.mode must be one of drop, tombstone"),
        ({"add_field": "op"}, "It has no option add.field; the nearest is add.fields"),
        ({"add_fields": "a.b.c"}, "'a.b.c' names no field"),
        ({"drop_fields_from_key": "yes"}, "drop.fields.from.key must be true or false"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, str], said: str) -> None:
    (fault,) = faults([unwrap(**options)])
    assert said in fault


def test_a_tombstone_has_the_headers_of_its_delete_too() -> None:
    """Debezium's two records share the headers to which the transform adds."""
    kept = unwrap(delete_tombstone_handling_mode="rewrite-with-tombstone", add_headers="op,table")
    chosen = settings([kept], extended_headers_enabled=False)
    (rows,) = to_rows(batch(CUSTOMERS, CHANGES[2:3]), chosen, FORM)
    names = [[header["key"] for header in one] for one in rows["headers"].to_pylist()]
    assert names == [["__op", "__table"], ["__op", "__table", "__op"]]
