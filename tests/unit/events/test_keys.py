"""Keys have the right columns in the right order, or are absent."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.postgres.log.form import FORM
from tailrace.errors import ConfigError
from tailrace.events.admission import Admission
from tests.unit.events.changes import batch, plain_settings, read, table
from tests.unit.events.recorded import recorded, settings_of

COLUMNS = [
    Column("a", "int4", 23, nullable=False),
    Column("b", "text", 25, nullable=False),
    Column("v", "text", 25),
]


@pytest.mark.seed("000-05", "000-10", "000-11", "000-13", "000-15", "000-19", "000-21", "000-22", "000-38", "004-03")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/no_pk",
        "postgres/keys_unique",
        "postgres/replica_identity",
        "postgres-1.7/no_pk",
        "postgres-1.7/keys_unique",
        "postgres-1.7/replica_identity",
        "sqlserver-1.0/no_key",
        "sqlserver-3/no_key",
    ],
)
def test_keys_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


@pytest.mark.seed("000-14", "004-07")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/column_lists",
        "postgres-1.7/column_lists",
        "sqlserver-1.0/column_exclude",
        "sqlserver-3/column_list",
        "sqlserver-3/column_masks",
    ],
)
def test_lists_of_columns_leave_keys_whole(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


def test_a_key_has_its_own_order_of_columns() -> None:
    (row,) = read(batch(table("t", COLUMNS, "b", "a"), [("c", None, ("1", "x", None))]), plain_settings())
    assert list(row["key"].items()) == [("b", "x"), ("a", 1)]
    assert list(row["value"]["after"]) == ["a", "b", "v"]


@pytest.mark.seed("000-15", "000-38", "004-09")
def test_a_table_without_a_key_has_null_keys_and_no_headers_of_keys() -> None:
    changes: list[Any] = [
        ("c", None, ("1", "x", None)),
        ("u", ("1", "x", None), ("2", "y", None)),
        ("d", ("2", "y", None), None),
    ]
    found = read(batch(table("t", COLUMNS), changes), plain_settings())
    assert [(row["op"], row["key"]) for row in found] == [("c", None), ("u", None), ("d", None), ("tombstone", None)]
    assert found[1]["value"]["before"] == {"a": 1, "b": "x", "v": None}
    assert all("__debezium.newkey" not in row["headers"] for row in found)


def test_a_deletes_key_comes_from_the_row_before_it() -> None:
    deletion, tombstone = read(batch(table("t", COLUMNS, "a"), [("d", ("7", None, None), None)]), plain_settings())
    assert deletion["key"] == tombstone["key"] == {"a": 7}


def test_a_key_that_the_log_does_not_carry_is_the_zero_of_its_type() -> None:
    # The same holds for a table whose replica identity is an index beside the primary key.
    (row, _) = read(batch(table("t", COLUMNS, "a"), [("d", (None, "x", None), None)]), plain_settings())
    assert row["key"] == {"a": 0}
    assert row["value"]["before"] == {"a": 0, "b": "x", "v": None}


def test_a_column_that_values_mask_or_leave_out_is_whole_in_the_key() -> None:
    shown = table("customers", COLUMNS, "a", "b")
    for options in (
        {"column.exclude.list": "public.customers.b"},
        {"column.mask.with.4.chars": "public.customers.b"},
        {"column.truncate.to.1.chars": "public.customers.b"},
    ):
        settings = settings_of("postgres/tutorial", **options)
        (row,) = read(batch(shown, [("u", ("1", "long", None), ("1", "long", "v"))]), settings)
        assert row["key"]["payload"] == {"a": 1, "b": "long"}
        assert row["value"]["payload"]["after"].get("b") in (None, "****", "l")
        assert row["op"] == "u"


def test_a_schema_may_have_a_key_that_message_key_columns_does_not_know() -> None:
    settings = settings_of("postgres/tutorial", **{"message.key.columns": "public.t:gone"})
    with pytest.raises(ConfigError, match=r"the column gone of public\.t"):
        Admission(settings, FORM).admit(table("t", COLUMNS, "a"))
    assert Admission(settings, FORM).admit(table("other", COLUMNS, "a")).key == ("a",)


@pytest.mark.seed("000-09", "004-05", "004-06")
def test_names_that_collide_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission(plain_settings(), FORM)
    first, second = (TableSchema(TableId("golden", "public", name), tuple(COLUMNS), ("a",)) for name in ("a b", "a?b"))
    with caplog.at_level(logging.WARNING, "tailrace"):
        for one in (first, second, first, second):
            admission.admit(one)
    assert admission.warnings == ["the tables public.a b and public.a?b share the topic server.public.a_b"]
    assert [record.message for record in caplog.records] == admission.warnings


def test_two_columns_that_become_one_field_are_an_error() -> None:
    twins = table("t", [Column("a-b", "int4", 23, nullable=False), Column("a_b", "int4", 23)], "a-b")
    admission = Admission(plain_settings(field_name_adjustment_mode="avro"), FORM)
    with pytest.raises(ConfigError, match=r"The columns a-b and a_b of public\.t both become the field a_b"):
        admission.admit(twins)
    assert Admission(plain_settings(field_name_adjustment_mode="avro_unicode"), FORM).admit(twins) == twins
