"""Columns and keys of tables, from SQL Server's catalog. Planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.columns import Column
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.declaration import modifier

Query = Callable[[str], list[tuple[Any, ...]]]
"""A function that returns every row of a statement's result."""


def columns(query: Query, objects: Sequence[int]) -> dict[int, dict[str, Column]]:
    """Return the columns of tables by object id and name, in the order of the table."""
    found: dict[int, dict[str, Column]] = {}
    for number, name, _, type_name, kind_id, *sizes, nullable, default, computed, identity in query(
        statements.columns(objects)
    ):
        kind = type_name.lower()
        found.setdefault(number, {})[name] = Column(
            name,
            kind,
            kind_id,
            modifier(kind, *sizes),
            bool(nullable),
            default,
            generated=bool(computed),
            identity=bool(identity),
        )
    return found


def keys(query: Query, objects: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return the columns of each table's primary key, else of its first unique index, as Debezium does."""
    found: dict[int, tuple[int, list[str]]] = {}
    for number, index, name in query(statements.keys(objects)):
        first, names = found.setdefault(number, (index, []))
        if index == first:
            names.append(name)
    return {number: tuple(names) for number, (_, names) in found.items()}
