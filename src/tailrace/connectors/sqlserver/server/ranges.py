"""Ranges of keys: the table, condition and parameters of a select that reads a range. Planner and tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.columns import Column, TableId, TableSchema
from tailrace.connectors.changetables.dialect import KeyRange
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.texts import bound, quoted
from tailrace.errors import ConfigError

_CODED = ("char", "varchar")
"""Types whose texts are in the code page of their collation."""


class Select(NamedTuple):
    """A range of a table: the columns of its key, the table with its hint, the condition, and its parameters."""

    key: list[Column]
    source: str
    where: str
    parameters: list[Any]


def select(
    table: TableSchema, rows: KeyRange, isolation: str, collations: Callable[[TableId], Mapping[str, str]]
) -> Select:
    """Return the range `rows` for `snapshot.isolation.mode`. Raises ConfigError for a key that the table does not
    have.

    `collations` returns those of columns whose code page is not the database's. It is called only if a key has texts in
    code pages.
    """
    key = _key_columns(table, rows.key)
    is_bounded = rows.after is not None or rows.upto is not None or rows.keys
    apart = collations(table.id) if is_bounded and any(column.type_name in _CODED for column in key) else {}
    conditions: list[str] = []
    parameters: list[Any] = []
    for limit, condition in ((rows.after, statements.above), (rows.upto, statements.up_to)):
        if limit is not None:
            conditions.append(condition(key, apart))
            values = [bound(column, text) for column, text in zip(key, limit, strict=True)]
            parameters += statements.compared_parts(values)
    if rows.keys:
        conditions.append(statements.among(key, len(rows.keys), apart))
        parameters += [bound(column, text) for one in rows.keys for column, text in zip(key, one, strict=True)]
    if rows.condition:
        conditions.append(f"({rows.condition})")
    source = quoted(table.id.schema, table.id.table) + statements.hint(isolation)
    return Select(key, source, " and ".join(conditions), parameters)


def _key_columns(table: TableSchema, names: Sequence[str]) -> list[Column]:
    """Return columns by name. Raises ConfigError for a column that the table does not have, as a surrogate key may."""
    known = {column.name: column for column in table.columns}
    folded = {column.name.lower(): column for column in table.columns}
    missing = [name for name in names if name not in known and name.lower() not in folded]
    if missing:
        raise ConfigError(f"The table {table.id} has no captured column {missing[0]}.", "Name one that is captured.")
    return [known.get(name) or folded[name.lower()] for name in names]
