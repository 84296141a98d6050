"""Ranges of keys: the table, condition and parameters of a select that reads a range. Planner and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.columns import Column, TableSchema
from tailrace.connectors.changetables.dialect import KeyRange
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.texts import bound, quoted
from tailrace.errors import ConfigError


class Select(NamedTuple):
    """A range of a table: the columns of its key, the table with its hint, the condition, and its parameters."""

    key: list[Column]
    source: str
    where: str
    parameters: list[Any]


def select(table: TableSchema, rows: KeyRange, isolation: str) -> Select:
    """Return the range `rows` for `snapshot.isolation.mode`. Raises ConfigError for a key that the table does not
    have."""
    key = _key_columns(table, rows.key)
    conditions: list[str] = []
    parameters: list[Any] = []
    for limit, condition in ((rows.after, statements.above), (rows.upto, statements.up_to)):
        if limit is not None:
            conditions.append(condition(key))
            values = [bound(column, text) for column, text in zip(key, limit, strict=True)]
            parameters += statements.compared_parts(values)
    if rows.keys:
        conditions.append(statements.among(key, len(rows.keys)))
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
