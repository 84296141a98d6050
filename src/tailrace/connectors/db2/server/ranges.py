"""Ranges of keys: their condition in SQL, and their bounds. Planner and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import Key, KeyRange
from tailrace.connectors.db2.server.catalog import quoted
from tailrace.connectors.db2.server.connection import Connection
from tailrace.connectors.db2.server.rows import parameter, selected, texts


def boundary(connection: Connection, table: TableSchema, rows: KeyRange, count: int) -> Key | None:
    """Return the key of the `count`-th row of `rows` in the order of the key; None if there are fewer."""
    where, values = condition(table, rows, nulls=False)
    names = [quoted(name) for name in rows.key]
    first = (
        f"(SELECT {', '.join(names)} FROM {quoted(table.id.schema, table.id.table)}{where} "
        f"ORDER BY {', '.join(names)} FETCH FIRST {int(count)} ROWS ONLY) AS r"
    )
    ((found,),) = connection.rows(f"SELECT COUNT(*) FROM {first}", *values)
    return _last(connection, table, rows, first, values) if found == count else None


def maximum(connection: Connection, table: TableSchema, rows: KeyRange) -> Key | None:
    """Return the greatest key of `rows` without NULLs; None if there is none."""
    where, values = condition(table, rows)
    given = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in rows.key)
    where = f"{where} AND {given}" if where else f" WHERE {given}"
    names = ", ".join(quoted(name) for name in rows.key)
    return _last(
        connection, table, rows, f"(SELECT {names} FROM {quoted(table.id.schema, table.id.table)}{where}) AS r", values
    )


def _last(connection: Connection, table: TableSchema, rows: KeyRange, source: str, values: Sequence[Any]) -> Key | None:
    """Return the greatest key of a derived table."""
    columns = [table.columns[table.index(name)] for name in rows.key]
    names = ", ".join(selected(column, quoted(column.name)) for column in columns)
    order = ", ".join(f"{quoted(name)} DESC" for name in rows.key)
    found = connection.rows(f"SELECT {names} FROM {source} ORDER BY {order} FETCH FIRST 1 ROWS ONLY", *values)
    if not found:
        return None
    texts_of = [texts(column, [value])[0].as_py() for column, value in zip(columns, found[0], strict=True)]
    return tuple(text.decode() for text in texts_of)


def condition(table: TableSchema, rows: KeyRange, *, nulls: bool = True) -> tuple[str, list[Any]]:
    """Return the condition of a range of keys, with a leading blank, and its values: `(a, b) > (x, y)` spelled out.

    Rows without a value in a nullable column, as a surrogate key may be, belong to the first of several ranges; with
    `nulls` False to none.
    """
    parts: list[str] = []
    values: list[Any] = []
    columns = [table.columns[table.index(name)] for name in rows.key]
    for bound, sign, last in ((rows.after, ">", ">"), (rows.upto, "<", "<=")):
        if bound is None:
            continue
        given = [parameter(column, text) for column, text in zip(columns, bound, strict=True)]
        options = []
        for place in range(len(columns)):
            equal = [f"{quoted(column.name)} = ?" for column in columns[:place]]
            compare = last if place == len(columns) - 1 else sign
            options.append(" AND ".join([*equal, f"{quoted(columns[place].name)} {compare} ?"]))
            values += [*given[:place], given[place]]
        if nulls and sign == "<" and rows.after is None:
            options += [f"{quoted(column.name)} IS NULL" for column in columns if column.nullable]
        parts.append("(" + " OR ".join(f"({one})" for one in options) + ")")
    if rows.keys:
        same = " AND ".join(f"{quoted(column.name)} = ?" for column in columns)
        parts.append("(" + " OR ".join([f"({same})"] * len(rows.keys)) + ")")
        values += [parameter(column, text) for one in rows.keys for column, text in zip(columns, one, strict=True)]
    if rows.condition:
        parts.append(f"({rows.condition})")
    return (f" WHERE {' AND '.join(parts)}" if parts else ""), values
