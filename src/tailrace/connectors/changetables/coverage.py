"""The columns that change tables carry, for copies. No I/O."""

from __future__ import annotations

from dataclasses import replace

from tailrace.columns.table import TableSchema
from tailrace.errors import PrerequisiteError


def carried(table: TableSchema, *, copies: bool) -> TableSchema:
    """Return the table without the columns whose values changes never have, where rows are copies; else as it is.

    Those are computed columns: a change table has them, and every value is null. Raises PrerequisiteError where the
    table's key has one.
    """
    made = {column.name for column in table.columns if column.generated} if copies else set()
    if not made:
        return table
    if made.intersection(table.key):
        raise PrerequisiteError(
            f"{table.id}: changes do not carry {', '.join(sorted(made.intersection(table.key)))}, which its key has: "
            "change tables have no values of computed columns.",
            "Give the table another key with message.key.columns, or leave it out.",
        )
    kept = tuple(column for column in table.columns if column.name not in made)
    return replace(table, columns=kept)
