"""The columns that change tables carry, for copies. No I/O."""

from __future__ import annotations

from dataclasses import replace

from tailrace.columns.table import TableSchema
from tailrace.errors import PrerequisiteError


def carried(table: TableSchema, *, copies: bool) -> TableSchema:
    """Return the table without computed columns if rows are copied; otherwise unchanged.

    Change tables have computed columns, but all their values are null. Raises PrerequisiteError if the key has one.
    """
    made = {column.name for column in table.columns if column.generated} if copies else set()
    if not made:
        return table
    if made.intersection(table.key):
        raise PrerequisiteError(
            f"{table.id}: changes do not carry {', '.join(sorted(made.intersection(table.key)))}, a part of its key: "
            "change tables have no values of computed columns.",
            "Give the table another key with message.key.columns, or leave it out.",
        )
    kept = tuple(column for column in table.columns if column.name not in made)
    return replace(table, columns=kept)
