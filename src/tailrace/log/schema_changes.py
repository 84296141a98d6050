"""SchemaChanges: how often tables were altered, as their changes in the log show it. Planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tailrace.columns.table import Column, TableId, TableSchema


class SchemaChanges:
    """The numbers of changes of tables since the start, by table and kind.

    The first version of a table counts nothing: what it was before is not known.
    """

    def __init__(self) -> None:
        self._latest: dict[TableId, TableSchema] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._end: object = None

    def see(self, end: object, tables: Iterable[TableSchema]) -> None:
        """Count what differs from the last known version of each table to these, which are those of a batch's rows in
        the order of the log. `end` is the batch's end; a batch that is planned again counts once."""
        if end == self._end:
            return
        self._end = end
        for table in tables:
            before, self._latest[table.id] = self._latest.get(table.id), table
            for kind in () if before is None else kinds(before, table):
                own = self._counts.setdefault(str(table.id), {})
                own[kind] = own.get(kind, 0) + 1

    def counts(self) -> dict[str, dict[str, int]]:
        """Return a copy of the numbers. Called by any thread."""
        return {table: dict(own) for table, own in self._counts.copy().items()}


def kinds(before: TableSchema, after: TableSchema) -> list[str]:
    """Return the kind of each difference between two descriptions of a table: `add`, `drop`, `rename` and `type` for a
    column, `key` for the key, and `other` for anything else, such as a default."""
    if (before.columns, before.key) == (after.columns, after.key):
        return []
    old, new = _by_identity(before.columns), _by_identity(after.columns)
    found = ["drop" for one in old if one not in new]
    for identity, column in new.items():
        was = old.get(identity)
        if was is None:
            found.append("add")
            continue
        if was.name != column.name:
            found.append("rename")
        if _type(was) != _type(column):
            found.append("type")
    if before.key != after.key:
        found.append("key")
    return found or ["other"]


def _by_identity(columns: Iterable[Column]) -> Mapping[int | str, Column]:
    """Return the columns by what survives a rename; by their names if the database numbers no columns."""
    return {column.number or column.name: column for column in columns}


def _type(column: Column) -> Column:
    """Return the column with nothing but its type."""
    bare = replace(column, name="", nullable=True, default=None, generated=False, comment=None, identity=False)
    return replace(bare, number=0, filled=False, missing=None)
