"""message.key.columns: keys of other columns than the table's own."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.columns import Column, TableSchema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.events.admission import Admission
from tests.unit.events.changes import Change, batch, read, table
from tests.unit.events.recorded import recorded, settings_of

CUSTOMERS = table(
    "customers",
    [Column("id", "int4", 23, nullable=False), Column("name", "text", 25, nullable=False), Column("email", "text", 25)],
    "id",
)
ORDERS = table("orders", [Column("id", "int4", 23, nullable=False), Column("customer", "int4", 23)], "id")
# As recorded with 3.6.1 for the same tables.
OPTION = "public.customers:id,email;(.*).nokey:a;public.orders:customer,id"


def events(shown: TableSchema, changes: list[Change], option: str = OPTION, form: str = "3") -> list[dict[str, Any]]:
    case = "postgres/tutorial" if form == "3" else "postgres-1.7/tutorial"
    off = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
    settings = settings_of(case, **off, **{"message.key.columns": option, "header.converter.schemas.enable": "false"})
    return read(batch(Admission(settings, FORM).admit(shown), changes), settings)


@pytest.mark.seed("000-05", "004-03")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/key_columns",
        "postgres/incremental_message_key",
        "postgres-1.7/key_columns",
        "postgres-1.7/incremental_message_key",
        "sqlserver-3/message_key",
    ],
)
def test_keys_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert "message.key.columns" not in str(found.lines[0])
    assert found.made() == found.lines


def test_a_change_of_a_named_column_is_a_change_of_the_key() -> None:
    found = events(CUSTOMERS, [("u", ("1", "Sally", "sally@acme.com"), ("1", "Sally", "new@acme.com"))])
    old, new = {"id": 1, "email": "sally@acme.com"}, {"id": 1, "email": "new@acme.com"}
    assert [(row["op"], row["key"]) for row in found] == [("d", old), ("tombstone", old), ("c", new)]
    assert [row["headers"].get("__debezium.newkey") for row in found] == [new, new, None]
    assert [row["headers"].get("__debezium.oldkey") for row in found] == [None, None, old]


def test_a_change_of_another_column_is_none() -> None:
    (row,) = events(CUSTOMERS, [("u", ("1", "Sally", None), ("1", "Sam", None))])
    assert (row["op"], row["key"]) == ("u", {"id": 1, "email": None})


def test_a_key_that_becomes_null_changes() -> None:
    found = events(CUSTOMERS, [("u", ("1", "Sally", "a"), ("1", "Sally", None))])
    assert [row["key"]["email"] for row in found] == ["a", "a", None]


def test_without_the_old_row_an_update_has_the_new_key_alone() -> None:
    # For a table whose replica identity is its primary key, as recorded, there is no delete of {"customer":1}.
    (row,) = events(ORDERS, [("u", None, ("2", "3"))])
    assert (row["op"], row["key"]) == ("u", {"customer": 3, "id": 2})


def test_a_delete_that_lacks_a_column_of_the_key_has_null_there() -> None:
    deletion, tombstone = events(ORDERS, [("d", ("2", None), None)])
    assert deletion["key"] == tombstone["key"] == {"customer": None, "id": 2}


def test_columns_come_in_the_options_order_and_in_1_7_in_the_tables() -> None:
    assert [list(events(ORDERS, [("c", None, ("2", "1"))], form=form)[0]["key"]) for form in ("3", "1.7")] == [
        ["customer", "id"],
        ["id", "customer"],
    ]


@pytest.mark.parametrize("name", ["nokey", "keyless"])
def test_an_entry_is_an_expression_over_schema_and_table(name: str) -> None:
    shown = table(name, [Column("a", "int4", 23), Column("b", "text", 25)])
    (row,) = events(shown, [("c", None, ("1", "x"))])
    assert row["key"] == ({"a": 1} if name == "nokey" else None)


def test_several_entries_that_name_a_table_make_one_key() -> None:
    (row,) = events(ORDERS, [("c", None, ("2", "1"))], "public.orders:customer;(.*).orders:id,customer")
    assert list(row["key"].items()) == [("customer", 1), ("id", 2)]


def test_a_column_may_be_named_in_another_case() -> None:
    shown = table("orders", [Column("Id", "int4", 23, nullable=False), Column("v", "text", 25)])
    (row,) = events(shown, [("c", None, ("2", "x"))], "public.orders:id")
    assert row["key"] == {"Id": 2}
