"""Typed rows have keys, rows and source blocks as separate columns, and the names of values that the log lacks."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.columns import ChangeBatch, Column, TableSchema
from tailrace.columns.typed import OF_TABLES, TYPED_COLUMNS, TypedRows, typed_schema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import SchemaChanged
from tailrace.events.control_records import boundary_rows, heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.events.table_plan import table_plan
from tailrace.events.typed_rows import shown_rows, table_kinds
from tests.unit.events.changes import Change, batch, plain_settings, table

COLUMNS = [
    Column("id", "int4", 23, nullable=False),
    Column("name", "text", 25, nullable=False),
    Column("n", "int8", 20, default="7"),
    Column("price", "numeric", 1700, (10 << 16) + 2 + 4),
    Column("at", "timestamp", 1114),
]
TABLE = table("t", COLUMNS, "id")
ROW = ("1", "a", "5", "1.50", "2020-01-02 03:04:05.000006")
SHOWN = {
    "id": 1,
    "name": "a",
    "n": 5,
    "price": Decimal("1.50"),
    "at": datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
}


def settings_of(schema: pa.Schema | None = None, of: TableSchema | None = None, position: str = "") -> EventSettings:
    return plain_settings().as_typed(TypedRows(schema, None if of is None else of.id, position), TYPED_COLUMNS)


def declared(of: TableSchema) -> pa.Schema:
    """Return the schema that Spark gets for a table."""
    return typed_schema(TYPED_COLUMNS, table_kinds(table_plan(of, settings_of(), FORM).layouts))


def rows(part: ChangeBatch, settings: EventSettings | None = None) -> list[dict[str, Any]]:
    found = list(to_rows(part, settings or settings_of(), FORM))
    for one in found:
        one.validate(full=True)
    return [row for one in found for row in one.to_pylist()]


def test_a_table_has_a_type_for_each_of_its_parts() -> None:
    kinds = table_kinds(table_plan(TABLE, settings_of(), FORM).layouts)
    assert tuple(kinds) == OF_TABLES
    assert kinds["key"] == pa.struct([pa.field("id", pa.int32())])
    assert kinds["before"] == kinds["after"]
    assert [(field.name, field.type) for field in kinds["after"]] == [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
    ]
    assert {"version", "lsn", "txId", "ts_us", "snapshot"} <= {field.name for field in kinds["source"]}
    assert pa.types.is_null(table_kinds(table_plan(table("t", COLUMNS), settings_of(), FORM).layouts)["key"])


def test_infinite_values_can_be_collected() -> None:
    part = batch(TABLE, [("c", None, ("1", "a", "5", "1.50", "infinity")), ("c", None, ("2", "a", "5", "1.50", None))])
    assert [row["after"]["at"] for row in rows(part)] == [datetime.datetime(9999, 12, 31), None]
    assert [warning[:41] for warning in part.warnings] == ["Column at of public.t has infinite values"]


def test_values_stand_in_columns_and_not_in_bytes() -> None:
    (row,) = rows(batch(TABLE, [("c", None, ROW)]))
    assert list(row) == list(TYPED_COLUMNS)
    assert (row["key"], row["before"], row["after"]) == ({"id": 1}, None, SHOWN)
    assert (row["value"], row["unavailable"], row["op"]) == (None, None, "c")
    assert (row["source"]["lsn"], row["source"]["table"], row["source"]["txId"]) == (5000, "t", 700)
    assert (row["topic"], row["position"]) == ("server.public.t", f"{5005:016X}")


def test_what_has_no_value_is_null_whatever_json_shows() -> None:
    changes: list[Change] = [
        ("d", ("1", None, None, None, None), None),
        ("u", None, ("1", "a", None, None, None)),
    ]
    deletion, update = rows(batch(TABLE, changes))
    # Neither the zero of a NOT NULL column, nor a default.
    assert deletion["before"] == {"id": 1, "name": None, "n": None, "price": None, "at": None}
    assert update["after"]["n"] is None
    assert update["source"]["snapshot"] is None


def test_deletes_have_no_tombstones_and_key_changes_are_two_rows() -> None:
    other = ("2", *ROW[1:])
    found = rows(batch(TABLE, [("u", ROW, other), ("d", other, None)]))
    assert [(row["op"], row["key"]) for row in found] == [("d", {"id": 1}), ("c", {"id": 2}), ("d", {"id": 2})]
    assert [row["headers"][0]["key"] for row in found[:2]] == ["__debezium.newkey", "__debezium.oldkey"]


def test_values_that_the_log_did_not_carry_are_null_and_named() -> None:
    changes: list[Change] = [
        ("u", None, ("1", None, "5", None, None)),
        ("u", None, ("2", "b", None, None, None)),
        ("d", ("3", None, None, None, None), None),
    ]
    unavailable = {"name": [True, False, False], "n": [False, False, False], "at": [True, True, False]}
    found = rows(batch(TABLE, changes, unavailable=unavailable))
    assert [row["unavailable"] for row in found] == [["name", "at"], ["at"], None]
    assert found[0]["after"] == {"id": 1, "name": None, "n": 5, "price": None, "at": None}


def test_of_a_key_change_the_new_row_names_what_it_lacks() -> None:
    part = batch(TABLE, [("u", ROW, ("2", None, "5", None, None))], unavailable={"name": [True]})
    deletion, create = rows(part)
    assert (deletion["unavailable"], create["unavailable"]) == (None, ["name"])


def test_records_that_are_no_changes_have_bytes_and_no_rows() -> None:
    settings = settings_of(declared(TABLE), TABLE)
    (beat,) = heartbeat_row(7, 5005, settings).to_pylist()
    assert (beat["op"], beat["value"]) == ("heartbeat", b'{"ts_ms":7}')
    assert all(beat[name] is None for name in (*OF_TABLES, "unavailable"))
    assert boundary_rows([], settings).schema == settings.row_schema


def test_rows_have_the_declared_types_in_the_declared_order() -> None:
    schema = declared(TABLE)
    (found,) = to_rows(batch(TABLE, [("c", None, ROW)]), settings_of(schema, TABLE), FORM)
    assert found.schema == schema


@pytest.mark.parametrize(("position", "stops"), [("0" * 16, True), ("F" * 16, False)])
def test_a_column_that_the_schema_lacks_is_new_behind_its_position_and_dropped_before(
    position: str, stops: bool
) -> None:
    wider = table("t", [*COLUMNS, Column("fresh", "int4", 23)], "id")
    settings = settings_of(declared(TABLE), TABLE, position)
    part = batch(wider, [("c", None, (*ROW, "9"))])
    if stops:
        with pytest.raises(SchemaChanged, match=r"public\.t has the column fresh at the position"):
            rows(part, settings)
    else:
        assert rows(part, settings)[0]["after"] == SHOWN
        assert ["fresh" in warning for warning in part.warnings] in ([True], [])


def test_a_column_that_a_change_does_not_have_is_null() -> None:
    narrower = table("t", COLUMNS[:3], "id")
    (row,) = rows(batch(narrower, [("c", None, ROW[:3])]), settings_of(declared(TABLE), TABLE))
    assert row["after"] == SHOWN | {"price": None, "at": None}


def test_a_change_of_another_table_stops() -> None:
    other = table("other", COLUMNS, "id")
    with pytest.raises(SchemaChanged, match=r"A change of public\.other arrived"):
        rows(batch(other, [("c", None, ROW)]), settings_of(declared(TABLE), TABLE))


def test_a_declared_type_that_does_not_hold_the_values_stops() -> None:
    schema = declared(TABLE)
    narrow = pa.struct([pa.field("id", pa.int16())])
    place = schema.get_field_index("key")
    with pytest.raises(SchemaChanged, match=r"values of the type int32 in key\.id"):
        rows(batch(TABLE, [("c", None, ("70000", *ROW[1:]))]), settings_of(schema.set(place, pa.field("key", narrow))))


def test_what_no_one_makes_is_null_in_its_type() -> None:
    settings = settings_of(declared(TABLE), TABLE)
    found = shown_rows(settings, {}, {"op": lambda: pa.array(["x", "y"], pa.string())}, 2)
    assert found.schema == declared(TABLE)
    assert found["op"].to_pylist() == ["x", "y"]
    assert all(found[name].null_count == 2 for name in TYPED_COLUMNS if name != "op")


@pytest.mark.parametrize(
    ("position", "said", "remedy"),
    [
        (f"{6000:016X}", f"had the key (id) up to the position {5005:016X}, and has none now", "Name a schema with"),
        (f"{5000:016X}", f"has the key (id) at the position {5005:016X}, and had none when", "Start the query again"),
    ],
)
def test_a_key_for_which_the_rows_have_no_column_ends_the_query(position: str, said: str, remedy: str) -> None:
    """Without it an update would not show which row it changed."""
    columns = tuple(name for name in TYPED_COLUMNS if name != "key")
    schema = typed_schema(columns, table_kinds(table_plan(table("t", COLUMNS), settings_of(), FORM).layouts))
    typed = TypedRows(schema, TABLE.id, position, is_keyless=True)
    part = batch(TABLE, [("u", None, ROW)])
    with pytest.raises(SchemaChanged, match=re.escape(f"public.t {said}")) as refused:
        rows(part, plain_settings().as_typed(typed, columns))
    assert refused.value.remedy.startswith(remedy)
    # a change without a key is shown, and a query may leave the column out
    (row,) = rows(batch(table("t", COLUMNS), [("c", None, ROW)]), plain_settings().as_typed(typed, columns))
    assert row["after"] == SHOWN
    (row,) = rows(part, plain_settings().as_typed(replace(typed, is_keyless=False), columns))
    assert row["after"] == SHOWN


def test_older_changes_have_the_names_that_columns_got_since() -> None:
    """Two columns have exchanged their names, one is renamed, and one is dropped."""

    def of(*names: str, key: str) -> TableSchema:
        kinds = {"id": ("int4", 23), "at": ("int4", 23)}
        numbers = {"a": 2, "b": 3, "old": 4, "gone": 5, "id": 1, "at": 1}
        return table("t", [Column(one, *kinds.get(one, ("text", 25)), number=numbers[one]) for one in names], key)

    then = of("id", "a", "b", "old", "gone", key="id")
    now = table(
        "t",
        [
            Column("at", "int4", 23, number=1),
            Column("b", "text", 25, number=2),
            Column("a", "text", 25, number=3),
            Column("new", "text", 25, number=4),
        ],
        "at",
    )
    numbers = ((1, "at"), (2, "b"), (3, "a"), (4, "new"))

    def settings(position: str, numbers: tuple[tuple[int, str], ...] = numbers) -> EventSettings:
        schema = typed_schema(TYPED_COLUMNS, table_kinds(table_plan(now, settings_of(), FORM).layouts))
        return plain_settings().as_typed(TypedRows(schema, now.id, position, numbers=numbers), TYPED_COLUMNS)

    changes: list[Change] = [
        ("u", ("1", "x", "y", "z", "w"), ("1", "x", "y", None, None)), ("d", ("2", "x", "y", "z", "w"), None)
    ]  # fmt: skip
    part = batch(then, changes, unavailable={"old": [True, False], "gone": [True, False]})
    update, deletion = rows(part, settings("F" * 16))
    assert update["key"] == {"at": 1}
    assert update["before"] == {"at": 1, "a": "y", "b": "x", "new": "z"}
    assert update["after"] == {"at": 1, "a": "y", "b": "x", "new": None}
    assert update["unavailable"] == ["new"]
    assert (deletion["key"], deletion["before"]["new"], deletion["after"]) == ({"at": 2}, "z", None)
    assert ["column gone of public.t was dropped since" in text for text in part.warnings] in ([True], [])
    # a newer change is an error: the schema is too old
    with pytest.raises(SchemaChanged, match=r"has the key \(id\) at the position"):
        rows(batch(then, changes), settings("0" * 16))
    # a column that was dropped and made again
    with pytest.raises(SchemaChanged, match=r"had another column old up to the position"):
        rows(batch(then, changes), settings("F" * 16, ((1, "at"), (2, "b"), (3, "a"), (7, "old"))))


def test_a_column_that_older_changes_did_not_carry_is_unavailable() -> None:
    """It was generated then, and has become a plain one."""
    kinds = {"id": ("int4", 23)}
    names = ("id", "g", "v", "late")
    now = table("t", [Column(one, *kinds.get(one, ("text", 25)), number=at) for at, one in enumerate(names, 1)], "id")
    then = table("t", [one for one in now.columns if one.name in ("id", "v")], "id")
    schema = typed_schema(TYPED_COLUMNS, table_kinds(table_plan(now, settings_of(), FORM).layouts))
    typed = TypedRows(schema, now.id, "F" * 16, numbers=tuple((at, one) for at, one in enumerate(names, 1)))
    part = batch(then, [("c", None, ("1", "a")), ("d", ("2", None), None)])
    create, deletion = rows(part, plain_settings().as_typed(typed, TYPED_COLUMNS))
    assert create["after"] == {"id": 1, "g": None, "v": "a", "late": None}
    assert (create["unavailable"], deletion["unavailable"]) == (["g"], None)


def test_a_column_that_may_have_another_name_now_ends_the_query() -> None:
    """Without numbers of columns nothing tells a renamed one from a dropped and an added one."""
    then = table("t", [*COLUMNS[:-1], Column("time", "timestamp", 1114)], "id")
    settings = settings_of(declared(TABLE), TABLE, "F" * 16)
    with pytest.raises(SchemaChanged, match=r"had the column time up to the position \w+, and has at now") as refused:
        rows(batch(then, [("c", None, ROW)]), settings)
    assert refused.value.remedy == "Name a schema with both columns yourself: readStream.schema(…)."


def test_a_key_of_other_columns_ends_the_query() -> None:
    """Without the earlier key an update would not show which row it changed."""
    now = table("t", COLUMNS, "name")
    schema = typed_schema(TYPED_COLUMNS, table_kinds(table_plan(now, settings_of(), FORM).layouts))
    typed = TypedRows(schema, TABLE.id, "F" * 16)
    part = batch(TABLE, [("u", None, ROW)])
    with pytest.raises(SchemaChanged, match=r"had the key \(id\) up to the position \w+, and has the key \(name\) now"):
        rows(part, plain_settings().as_typed(typed, TYPED_COLUMNS))
    # one's own schema is taken as it is
    (row,) = rows(part, plain_settings().as_typed(replace(typed, table=None), TYPED_COLUMNS))
    assert (row["key"], row["after"]) == ({"name": None}, SHOWN)


def test_a_change_of_a_table_that_had_no_column_yet_is_shown() -> None:
    now = table("t", [Column("v", "text", 25, number=1)])
    columns = tuple(name for name in TYPED_COLUMNS if name != "key")
    schema = typed_schema(columns, table_kinds(table_plan(now, settings_of(), FORM).layouts))
    typed = TypedRows(schema, now.id, "F" * 16, is_keyless=True, numbers=((1, "v"),))
    settings = plain_settings().as_typed(typed, columns)
    (row,) = rows(batch(table("t", []), [("c", None, ())]), settings)
    assert (row["before"], row["after"], row["unavailable"]) == (None, {"v": None}, None)
    # nor one of today's
    other = table("t", [Column("w", "text", 25, number=2)])
    update, deletion = rows(batch(other, [("u", ("a",), ("b",)), ("d", ("c",), None)]), settings)
    assert (update["before"], update["after"]) == ({"v": None}, {"v": None})
    assert (deletion["before"], deletion["after"]) == ({"v": None}, None)
