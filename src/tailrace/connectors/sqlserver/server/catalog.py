"""What SQL Server's catalog says of tables: their columns and keys. Planner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tailrace.columns import Column
from tailrace.connectors.sqlserver.server import statements
from tailrace.connectors.sqlserver.values.declaration import modifier

Query = Callable[[str], list[tuple[Any, ...]]]
"""Every row of a statement's result."""


def columns(query: Query, objects: Sequence[int]) -> dict[int, dict[str, Column]]:
    """The columns of tables by object id and name, in the order of the table."""
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
    """Of each table the primary key's columns, else those of its first unique index, as Debezium takes them."""
    found: dict[int, tuple[int, list[str]]] = {}
    for number, index, name in query(statements.keys(objects)):
        first, names = found.setdefault(number, (index, []))
        if index == first:
            names.append(name)
    return {number: tuple(names) for number, (_, names) in found.items()}
