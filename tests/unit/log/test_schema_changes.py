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
        (altered(ID, replace(NAME, type_name="varchar", type_oid=1043, modifier=24)), ["narrow"]),
        (altered(ID, NAME, key=("name",)), ["key"]),
        (altered(ID, replace(NAME, default="'x'")), ["other"]),
        (altered(replace(ID, type_name="int8", type_oid=20), Column("name", "text", 25, number=3)),
         ["drop", "widen", "add"]),
    ],
)  # fmt: skip
def test_each_difference_has_a_kind(after: TableSchema, found: list[str]) -> None:
    assert sorted(kinds(TABLE, after)) == sorted(found)


def enum(*labels: str) -> Column:
    return Column("v", "mood", 16400, kind="enum", enum_labels=labels)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (Column("v", "int4", 23), Column("v", "int8", 20), "widen"),
        (Column("v", "int4", 23), Column("v", "int2", 21), "narrow"),
        (Column("v", "float4", 700), Column("v", "float8", 701), "widen"),
        (Column("v", "varchar", 1043, 24), Column("v", "varchar", 1043, 44), "widen"),
        (Column("v", "varchar", 1043, 24), Column("v", "varchar", 1043), "widen"),
        (Column("v", "varchar", 1043), Column("v", "varchar", 1043, 24), "narrow"),
        (Column("v", "text", 25), Column("v", "int4", 23), "type"),
        # PostgreSQL's numeric(10,2) to (12,2), (12,4), (12,6) and (8,2)
        (Column("v", "numeric", 1700, 655366), Column("v", "numeric", 1700, 786438), "widen"),
        (Column("v", "numeric", 1700, 655366), Column("v", "numeric", 1700, 786440), "widen"),
        (Column("v", "numeric", 1700, 655366), Column("v", "numeric", 1700, 786442), "type"),
        (Column("v", "numeric", 1700, 655366), Column("v", "numeric", 1700, 524294), "narrow"),
        (Column("v", "numeric", 1700, 655366), Column("v", "numeric", 1700), "widen"),
        (enum("sad", "ok"), enum("sad", "ok", "glad"), "widen"),
        (enum("sad", "ok"), enum("sad"), "narrow"),
        (enum("sad", "ok"), enum("glad", "ok"), "type"),
        # SQL Server and Db2
        (Column("v", "nvarchar", 231, 20), Column("v", "nvarchar", 231, -1), "widen"),
        (Column("v", "datetime2", 42, 7), Column("v", "datetime2", 42, 3), "narrow"),
        (Column("v", "INTEGER", 4), Column("v", "BIGINT", -5), "widen"),
        # MySQL and MariaDB
        (Column("v", "VARCHAR(20)", 0), Column("v", "VARCHAR(40)", 0), "widen"),
        (Column("v", "DECIMAL(10,2)", 0), Column("v", "DECIMAL(8,2)", 0), "narrow"),
        (Column("v", "INT(11)", 0), Column("v", "BIGINT", 0), "widen"),
        (Column("v", "INT", 0), Column("v", "INT UNSIGNED", 0), "type"),
        (Column("v", "INT UNSIGNED", 0), Column("v", "BIGINT UNSIGNED", 0), "widen"),
    ],
)  # fmt: skip
def test_a_type_that_holds_more_is_wider(before: Column, after: Column, found: str) -> None:
    table = replace(TABLE, columns=(before,), key=())
    assert kinds(table, replace(table, columns=(after,))) == [found]


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
