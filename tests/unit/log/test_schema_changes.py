"""Changes of tables are counted by kind, once for each batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.log.schema_changes import SchemaChanges, kinds

ID = Column("id", "int4", 23, number=1)
NAME = Column("name", "text", 25, number=2)
TABLE = TableSchema(TableId("shop", "public", "things"), (ID, NAME), ("id",))


def altered(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return replace(TABLE, columns=columns, key=key, version=2)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (altered(ID, NAME), []),
        (altered(ID, NAME, Column("more", "text", 25, number=3)), ["add"]),
        (altered(ID), ["drop"]),
        (altered(ID, replace(NAME, name="title")), ["rename"]),
        (altered(ID, replace(NAME, type_name="varchar", type_oid=1043, modifier=24)), ["type"]),
        (altered(ID, NAME, key=("name",)), ["key"]),
        (altered(ID, replace(NAME, default="'x'")), ["other"]),
        (altered(replace(ID, type_name="int8", type_oid=20), Column("name", "text", 25, number=3)),
         ["drop", "type", "add"]),
    ],
)  # fmt: skip
def test_each_difference_has_a_kind(after: TableSchema, found: list[str]) -> None:
    assert sorted(kinds(TABLE, after)) == sorted(found)


def test_columns_without_numbers_are_known_by_their_names() -> None:
    before = replace(TABLE, columns=(replace(ID, number=0), replace(NAME, number=0)))
    after = replace(before, columns=(before.columns[0], replace(before.columns[1], name="title")))
    assert kinds(before, after) == ["drop", "add"]


def test_a_batch_that_is_planned_again_counts_once() -> None:
    found, wider = SchemaChanges(), altered(ID, NAME, Column("more", "text", 25, number=3))
    found.see("1", [TABLE])
    assert found.counts() == {}
    for _ in range(2):
        found.see("2", [TABLE, wider, TABLE])
    assert found.counts() == {"public.things": {"add": 1, "drop": 1}}
    found.see("3", [TABLE])
    assert found.counts() == {"public.things": {"add": 1, "drop": 1}}
