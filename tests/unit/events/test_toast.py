"""Values that the log did not carry: the placeholder in the form of each type, and never in an old row."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column, TableSchema
from tests.unit.events.changes import Change, batch, plain_settings, read, table

PLACEHOLDER = "__debezium_unavailable_value"
# The bytes of the placeholder as numbers, which an array of integers shows.
NUMBERS = list(PLACEHOLDER.encode())
ENCODED = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


def array(name: str, of: str) -> Column:
    return Column(name, f"_{of}", 0, kind="array", element=Column("e", of, 0))


TOAST = table(
    "toast_default",
    [
        Column("id", "int4", 23, nullable=False),
        Column("n", "int4", 23),
        Column("big_text", "text", 25),
        Column("big_bytes", "bytea", 17),
        Column("big_json", "jsonb", 3802),
        array("big_array", "text"),
        array("big_ints", "int4"),
        Column("big_varchar", "varchar", 1043, 20004, nullable=False, default="'short'::character varying"),
    ],
    "id",
)
BIG = [column.name for column in TOAST.columns[2:]]
# As 3.6.1 recorded an update that changed none of the large values, and one with another placeholder.
RECORDED = {
    "big_text": PLACEHOLDER,
    "big_bytes": ENCODED,
    "big_json": PLACEHOLDER,
    "big_array": [PLACEHOLDER],
    "big_ints": NUMBERS,
    "big_varchar": PLACEHOLDER,
}
NAMED = {
    "big_text": "__none__",
    "big_bytes": "X19ub25lX18=",
    "big_json": "__none__",
    "big_array": ["__none__"],
    "big_ints": [95, 95, 110, 111, 110, 101, 95, 95],
    "big_varchar": "__none__",
}
UPDATE: Change = ("u", None, ("1", "2", None, None, None, None, None, None))


@pytest.mark.parametrize(("placeholder", "shown"), [(PLACEHOLDER, RECORDED), ("__none__", NAMED)])
def test_an_update_shows_the_placeholder_in_the_form_of_each_type(placeholder: str, shown: dict[str, Any]) -> None:
    settings = plain_settings(placeholder=placeholder.encode())
    (row,) = read(batch(TOAST, [UPDATE], unavailable={name: [True] for name in BIG}), settings)
    assert row["value"]["after"] == {"id": 1, "n": 2} | shown


def one(column: Column, **more: Any) -> Any:
    """Return an update's value for a column whose value the log did not carry."""
    small = table("big", [Column("id", "int4", 23, nullable=False), column], "id")
    (row,) = read(batch(small, [("u", None, ("1", None))], unavailable={column.name: [True]}), plain_settings(**more))
    return row["value"]["after"][column.name]


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (Column("x", "xml", 142), PLACEHOLDER),
        (Column("j", "json", 114), PLACEHOLDER),
        (Column("c", "bpchar", 1042, 9004), PLACEHOLDER),
        (Column("h", "hstore", 0), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),
        (array("va", "varchar"), [PLACEHOLDER]),
        (array("ba", "bytea"), [ENCODED]),
        (array("ua", "uuid"), ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        (array("la", "int8"), NUMBERS),
        (array("da", "date"), NUMBERS),
        (array("ja", "jsonb"), [PLACEHOLDER]),
        (array("fa", "float8"), None),
        (Column("vb", "varbit", 1562), None),
        (Column("num", "numeric", 1700), None),
    ],
)
def test_placeholders_by_type_are_as_recorded(column: Column, shown: Any) -> None:
    assert one(column) == shown


@pytest.mark.parametrize(
    ("column", "more", "shown"),
    [
        (Column("h", "hstore", 0), {"hstore_handling_mode": "map"}, {PLACEHOLDER: PLACEHOLDER}),
        (Column("b", "bytea", 17), {"binary_handling_mode": "hex"}, PLACEHOLDER),
        (Column("b", "bytea", 17), {"binary_handling_mode": "hex", "placeholder": b"\0\xffA"}, "\0\ufffdA"),
        (Column("t", "text", 25), {"placeholder": b"\0\xffA"}, "\0\ufffdA"),
        (array("ia", "int4"), {"placeholder": b"\0\xffA"}, [0, -1, 65]),
        (array("da", "date"), {"time_precision_mode": "connect"}, None),
    ],
)
def test_placeholders_by_mode_are_as_recorded(column: Column, more: dict[str, Any], shown: Any) -> None:
    assert one(column, **more) == shown


SMALL = table(
    "t",
    [Column("id", "int4", 23, nullable=False), Column("v", "text", 25), Column("w", "text", 25, default="'w'::text")],
    "id",
)


def test_null_is_no_placeholder() -> None:
    changes: list[Change] = [("u", None, ("1", None, "x")), ("u", None, ("2", None, "x")), ("u", None, ("3", "v", "x"))]
    found = read(batch(SMALL, changes, unavailable={"v": [True, False, False]}), plain_settings())
    assert [row["value"]["after"]["v"] for row in found] == [PLACEHOLDER, None, "v"]


def test_a_default_does_not_stand_for_what_the_log_did_not_carry() -> None:
    changes: list[Change] = [("u", None, ("1", "v", None)), ("u", None, ("2", "v", None))]
    found = read(batch(SMALL, changes, unavailable={"w": [True, False]}), plain_settings())
    assert [row["value"]["after"]["w"] for row in found] == [PLACEHOLDER, "w"]


def test_the_create_of_a_key_change_shows_it_and_the_delete_does_not() -> None:
    full = TableSchema(SMALL.id, SMALL.columns, SMALL.key, replica_identity="f")
    part = batch(full, [("u", ("1", "long", "x"), ("2", None, "x"))], unavailable={"v": [True]})
    deletion, _, create = read(part, plain_settings())
    assert deletion["value"]["before"]["v"] == "long"
    assert create["value"]["after"] == {"id": 2, "v": PLACEHOLDER, "w": "x"}
