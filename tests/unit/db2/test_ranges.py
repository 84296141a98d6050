"""Ranges of keys as conditions in SQL."""

from __future__ import annotations

from typing import Any

from tailrace.columns.table import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import KeyRange
from tailrace.connectors.db2.server import ranges

TABLE = TableSchema(
    TableId("DB", "S", "T"),
    (Column("ID", "INTEGER", 4, nullable=False), Column("NAME", "VARCHAR", 12, 9, nullable=True)),
    ("ID",),
)


def test_rows_without_a_value_in_a_surrogate_key_are_in_the_first_range() -> None:
    """Comparisons leave NULL out, so that no range would have these rows."""
    assert ranges.condition(TABLE, KeyRange(("NAME",), None, ("m",))) == (
        ' WHERE (("NAME" <= ?) OR ("NAME" IS NULL))', ["m"]
    )  # fmt: skip
    assert ranges.condition(TABLE, KeyRange(("NAME",), ("m",), ("z",))) == (
        ' WHERE (("NAME" > ?)) AND (("NAME" <= ?))', ["m", "z"]
    )  # fmt: skip
    assert ranges.condition(TABLE, KeyRange(("ID",), None, ("5",))) == (' WHERE (("ID" <= ?))', ["5"])


class Asked:
    """A connection that has no rows, and keeps the statements."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def rows(self, statement: str, *values: Any) -> list[tuple[int]]:
        self.statements.append(statement)
        return [(0,)]


def test_a_range_ends_at_a_row_with_a_value() -> None:
    connection: Any = Asked()
    assert ranges.boundary(connection, TABLE, KeyRange(("NAME",), None, ("z",)), 100) is None
    assert "IS NULL" not in connection.statements[0]
