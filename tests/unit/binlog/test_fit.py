"""Comparison of tables as the log maps them with their definitions, and definitions from maps that name columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.connectors.binlog.dialect import MYSQL
from tailrace.connectors.binlog.schema import catalog
from tailrace.connectors.binlog.schema.definition import TableDefinition
from tailrace.connectors.binlog.schema.fit import described, hidden_places, misfit
from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap

UTF8MB4, LATIN1, BINARY = 255, 8, 63


def table(columns: str, more: str = "") -> TableDefinition:
    return catalog.definition(f"CREATE TABLE `t` ({columns}) DEFAULT CHARSET=utf8mb4 {more}", ("d", "t"), MYSQL)


def given(*columns: dict[str, Any], named: bool = False) -> TableMap:
    """Return a map of columns, each by the properties that the log has of it."""

    def each(name: str, default: Any = None) -> tuple[Any, ...]:
        return tuple(column.get(name, default) for column in columns)

    return TableMap(
        "d", "t", each("kind"), each("meta", 0), each("nullable", True), b"", unsigned=each("unsigned"),
        collations=each("collation"), names=each("name") if named else None, labels=each("labels"),
        geometry_types=each("shape"), dimensions=each("dimension"), key=((0, 0),) if named else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "column", "expected"),
    [
        ("int", {"kind": ColumnType.LONG}, ""),
        ("int", {"kind": ColumnType.LONGLONG}, "the column c is INT by its definition, and LONGLONG in the log"),
        ("int not null", {"kind": ColumnType.LONG}, "the column c may not be null by its definition, and may"),
        ("int", {"kind": ColumnType.LONG, "nullable": False}, "the column c may be null by its definition, and not in"),
        ("int unsigned", {"kind": ColumnType.LONG, "unsigned": False}, "the column c has another sign in the log"),
        ("int unsigned", {"kind": ColumnType.LONG, "unsigned": True}, ""),
        ("varchar(3)", {"kind": ColumnType.VARCHAR, "meta": 12, "collation": UTF8MB4}, ""),
        ("varchar(3)", {"kind": ColumnType.VARCHAR, "meta": 12, "collation": LATIN1},
         "the column c has the character set utf8mb4 by its definition, and latin1 in the log"),
        ("varchar(3)", {"kind": ColumnType.VARCHAR, "meta": 16}, "the column c has another length in the log"),
        ("varchar(3)", {"kind": ColumnType.BLOB, "meta": 2}, "the column c is VARCHAR by its definition, and BLOB in"),
        ("varchar(20000)", {"kind": ColumnType.MEDIUM_BLOB, "meta": 3}, ""),
        ("enum('a','b')", {"kind": ColumnType.ENUM, "meta": 1, "labels": (b"a", b"b")}, ""),
        ("enum('a','b')", {"kind": ColumnType.ENUM, "meta": 1, "labels": (b"a",)},
         "the column c has 1 labels in the log, and 2 by its definition"),
        ("enum('a','b')", {"kind": ColumnType.ENUM, "meta": 2}, "the column c has another length in the log"),
        ("set('a','b')", {"kind": ColumnType.SET, "meta": 1}, ""),
        ("set('a','b')", {"kind": ColumnType.SET, "meta": 2}, "the column c has another length in the log"),
        ("decimal(10,2)", {"kind": ColumnType.NEWDECIMAL, "meta": 10 << 8 | 2}, ""),
        ("decimal(10,2)", {"kind": ColumnType.NEWDECIMAL, "meta": 10 << 8 | 3}, "the column c has another length"),
        ("datetime(3)", {"kind": ColumnType.DATETIME2, "meta": 3}, ""),
        ("datetime", {"kind": ColumnType.DATETIME2, "meta": 6}, "the column c has another length in the log"),
        ("bit", {"kind": ColumnType.BIT, "meta": 1}, ""),
        ("bit(0)", {"kind": ColumnType.BIT, "meta": 1}, "the column c has another length in the log"),
        ("json", {"kind": ColumnType.JSON, "meta": 4}, ""),
    ],
)  # fmt: skip
def test_a_map_shows_where_a_definition_is_wrong(declared: str, column: dict[str, Any], expected: str) -> None:
    found = misfit(table(f"`c` {declared}"), given(column))
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


ID = {"name": "id", "kind": ColumnType.LONG, "nullable": False}
DEFINED = "`id` int NOT NULL, PRIMARY KEY (`id`)"


def test_columns_that_the_server_adds_are_not_missed() -> None:
    one = table(DEFINED)
    assert misfit(one, given(ID, {"kind": ColumnType.LONGLONG})) == ""
    assert misfit(one, given(ID, {"kind": ColumnType.LONG})) == "the log has 2 columns, and the definition 1"
    for name in ("DB_ROW_HASH_1", "!hidden!i!0!0", "0123456789abcdef0123456789abcdef"):
        assert misfit(one, given(ID, {"name": name, "kind": ColumnType.VARCHAR}, named=True)) == ""
    ends = [{"name": f"row_{end}", "kind": ColumnType.TIMESTAMP2, "meta": 6} for end in ("start", "end")]
    assert misfit(one, given(ID, *ends, named=True)) == "the log has a column row_start too"
    versioned = table(DEFINED, "WITH SYSTEM VERSIONING")
    assert misfit(versioned, given(ID, *ends, named=True)) == ""
    for named in (True, False):
        assert hidden_places(versioned, given(ID, *ends, named=named)) == {1: "start", 2: "end"}
        assert hidden_places(one, given(ID, *ends, named=named)) == {1: "", 2: ""}


def test_names_of_the_log_are_compared() -> None:
    other = given({"name": "key", "kind": ColumnType.LONG, "nullable": False}, named=True)
    assert misfit(table(DEFINED), other) == "the log has the columns key, and the definition id"
    wider = given(ID | {"kind": ColumnType.LONGLONG}, named=True)
    assert misfit(table(DEFINED), wider) == "the column id is INT by its definition, and LONGLONG in the log"


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        ({"kind": ColumnType.TINY, "unsigned": True}, "tinyint unsigned"),
        ({"kind": ColumnType.LONGLONG, "unsigned": False}, "bigint"),
        ({"kind": ColumnType.INT24}, "mediumint"),
        ({"kind": ColumnType.DOUBLE, "meta": 8}, "double"),
        ({"kind": ColumnType.NEWDECIMAL, "meta": 10 << 8 | 2}, "decimal(10,2)"),
        ({"kind": ColumnType.TIME2, "meta": 0}, "time"),
        ({"kind": ColumnType.DATETIME2, "meta": 6}, "datetime(6)"),
        ({"kind": ColumnType.BIT, "meta": 12}, "bit(12)"),
        ({"kind": ColumnType.ENUM, "meta": 1, "labels": (b"a", b"it's"), "collation": LATIN1},
         "enum('a','it''s') character set latin1"),
        ({"kind": ColumnType.SET, "meta": 1, "labels": (b"a",), "collation": UTF8MB4}, "set('a')"),
        ({"kind": ColumnType.GEOMETRY, "meta": 4, "shape": 1}, "point"),
        ({"kind": ColumnType.GEOMETRY, "meta": 4, "shape": 7}, "geometrycollection"),
        ({"kind": ColumnType.GEOMETRY, "meta": 4}, "geometry"),
        ({"kind": ColumnType.BLOB, "meta": 2, "collation": BINARY}, "blob"),
        ({"kind": ColumnType.BLOB, "meta": 4, "collation": UTF8MB4}, "longtext"),
        ({"kind": ColumnType.BLOB, "meta": 1, "collation": LATIN1}, "tinytext character set latin1"),
        ({"kind": ColumnType.VARCHAR, "meta": 12, "collation": UTF8MB4}, "varchar(3)"),
        ({"kind": ColumnType.VARCHAR, "meta": 3, "collation": BINARY}, "varbinary(3)"),
        ({"kind": ColumnType.STRING, "meta": 3, "collation": LATIN1}, "char(3) character set latin1"),
        ({"kind": ColumnType.STRING, "meta": 16, "collation": BINARY}, "binary(16)"),
        ({"kind": ColumnType.JSON, "meta": 4}, "json"),
        ({"kind": ColumnType.YEAR}, "year"),
    ],
)  # fmt: skip
def test_a_map_that_names_its_columns_is_a_definition(column: dict[str, Any], declared: str) -> None:
    found = described(given(ID, column | {"name": "c"}, named=True), ())
    assert found == table(f"`id` int NOT NULL, `c` {declared}, PRIMARY KEY (`id`)").__class__(
        "d", "t", table(f"`id` int NOT NULL, `c` {declared}").columns, ("id",)
    )


def test_what_a_map_lacks_comes_from_the_definition_that_fits_it() -> None:
    known = table("`id` int NOT NULL, `c` int DEFAULT '5' COMMENT 'x', `gone` int, PRIMARY KEY (`id`), "
                  "UNIQUE KEY `u` (`c`), UNIQUE KEY `v` (`gone`)")  # fmt: skip
    named = {"name": "c", "kind": ColumnType.LONG, "nullable": False}
    found = described(given(ID, named, {"name": "DB_ROW_HASH_1", "kind": ColumnType.LONGLONG}, named=True), (known,))
    assert [column.name for column in found.columns] == ["id", "c"]
    assert (found.columns[1].comment, found.columns[1].nullable) == ("x", False)
    assert ([index.name for index in found.unique], found.primary) == (["u"], ("id",))
    wider = described(given(ID, named | {"kind": ColumnType.LONGLONG}, named=True), (known,))
    assert (wider.columns[1].words, wider.columns[1].default) == ("BIGINT", None)


def test_labels_of_the_log_count() -> None:
    latin5 = 30
    turkish = "\u015f", "\u011f"
    labels = tuple(label.encode("iso8859_9") for label in turkish)
    mapped = {"name": "c", "kind": ColumnType.ENUM, "meta": 1, "labels": labels, "collation": latin5}
    right = table("`c` enum('\u015f','\u011f') character set latin5")
    assert misfit(right, given(mapped)) == ""
    wrong = table("`c` enum('\ufffd','x') character set latin5")
    assert misfit(wrong, given(mapped)) == "the column c has other labels in the log"
    assert described(given(mapped, named=True), (wrong,)).columns[0].labels == turkish
    # bytes that the set does not define say nothing
    odd = mapped | {"labels": (b"\xff\xfe", b"x"), "collation": UTF8MB4}
    assert misfit(table("`c` enum('a','b')"), given(odd)) == ""


def test_columns_of_expressions_may_stand_between_the_others() -> None:
    one = table("`id` int NOT NULL, `a` bigint, `x` bigint, KEY `k` ((`a` + 1)), PRIMARY KEY (`id`)")
    one = replace(one, hidden=(("k", 2),))
    many = {"kind": ColumnType.LONGLONG}
    assert misfit(one, given(ID, many, many, many)) == ""
    assert hidden_places(one, given(ID, many, many, many)) == {2: ""}
    assert misfit(one, given(ID, many, {"kind": ColumnType.VARCHAR, "meta": 40}, many)) == ""
    assert misfit(one, given(ID, many, many)) == "the log has 3 columns, and the definition 3"
    assert misfit(one, given(ID, many, many, many, many)) == "the log has 5 columns, and the definition 3"
