"""Target tables in PostgreSQL: their columns, their creation and extension, and the statements on rows. Driver.

Names are quoted in every statement, and values are parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.jdbc.changes import Cell

if TYPE_CHECKING:
    import psycopg

Statement = tuple[str, list[str | None]]
"""SQL and its parameters."""

Name = tuple[str, ...]
"""A table: schema and name, or only a name, which the search path resolves."""

_COLUMNS = (
    "select a.attname from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped"
)


def quoted(name: str) -> str:
    """Return a name as an SQL identifier for a statement with psycopg's parameters."""
    return '"' + name.replace("\0", "").replace('"', '""').replace("%", "%%") + '"'


def shown(table: Name) -> str:
    """Return a table's name for messages."""
    return ".".join(table)


class Tables:
    """A cache of the tables' columns. If `evolves`, missing tables and columns are created."""

    def __init__(self, evolves: bool) -> None:
        self._evolves = evolves
        self._known: dict[Name, set[str]] = {}

    def forget(self) -> None:
        """Clear the cache, after a rollback or when another session may have changed a table."""
        self._known.clear()

    def has(self, connection: psycopg.Connection[Any], table: Name) -> bool:
        """Return False if a table is missing and the sink itself creates tables, so that it holds nothing to delete."""
        if table not in self._known:
            self._known[table] = self._columns(connection, table)
        return bool(self._known[table]) or not self._evolves

    def fit(self, connection: psycopg.Connection[Any], table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> None:
        """Create the table or the columns that a record needs, within the connection's transaction.

        Raises SinkError if some are missing and the sink does not create them.
        """
        self.has(connection, table)
        known = self._known[table]
        missing = [cell for cell in (*key, *row) if cell.name not in known]
        if not missing:
            return
        if not self._evolves:
            what = f"has no column {missing[0].name}" if known else "does not exist"
            raise SinkError(
                f"The table {shown(table)} {what}.",
                "Create it, or set debezium.sink.jdbc.schema.evolution = basic.",
            )
        if known:
            # Existing rows have no value for a new column, so it is nullable.
            added = ", ".join(f"add column if not exists {quoted(cell.name)} {cell.kind.type}" for cell in missing)
            self._execute(connection, f"alter table {_sql(table)} {added}")
        else:
            parts = [
                f"{quoted(cell.name)} {cell.kind.type}{' not null' if cell.required else ''}" for cell in (*key, *row)
            ]
            if key:
                parts.append(f"primary key ({_names(key)})")
            self._execute(connection, f"create table if not exists {_sql(table)} ({', '.join(parts)})")
        known.update(cell.name for cell in missing)

    def _columns(self, connection: psycopg.Connection[Any], table: Name) -> set[str]:
        plain = ".".join('"' + part.replace('"', '""') + '"' for part in table)
        return {name for (name,) in connection.execute(_COLUMNS, [plain]).fetchall()}

    def _execute(self, connection: psycopg.Connection[Any], statement: str) -> None:
        connection.execute(statement.replace("%%", "%").encode())


def insert(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the insert of a row."""
    written = [*key, *row]
    places = ", ".join(["%s"] * len(written))
    return f"insert into {_sql(table)} ({_names(written)}) values ({places})", _texts(written)


def upsert(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the insert of a row, which replaces the values of a row with the same key."""
    statement, texts = insert(table, key, row)
    changes = ", ".join(f"{quoted(cell.name)} = excluded.{quoted(cell.name)}" for cell in row)
    return f"{statement} on conflict ({_names(key)}) do {f'update set {changes}' if row else 'nothing'}", texts


def update(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the update of a key's row; `row` must not be empty."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in row)
    return f"update {_sql(table)} set {changes} where {_condition(key)}", _texts([*row, *key])


def move(table: Name, key: Sequence[Cell], to: Sequence[Cell]) -> Statement:
    """Return the statement that gives a row another key, unless a row has that key already."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in to)
    there = f"select from {_sql(table)} where {_condition(to)}"
    statement = f"update {_sql(table)} set {changes} where {_condition(key)} and not exists ({there})"
    return statement, _texts([*to, *key, *to])


def delete(table: Name, key: Sequence[Cell]) -> Statement:
    """Return the delete of a key's row."""
    return f"delete from {_sql(table)} where {_condition(key)}", _texts(key)


def truncate(table: Name) -> Statement:
    """Return the truncate of a table."""
    return f"truncate table {_sql(table)}", []


def _sql(table: Name) -> str:
    return ".".join(quoted(part) for part in table)


def _names(cells: Iterable[Cell]) -> str:
    return ", ".join(quoted(cell.name) for cell in cells)


def _condition(key: Sequence[Cell]) -> str:
    return " and ".join(f"{quoted(cell.name)} = %s" for cell in key)


def _texts(cells: Iterable[Cell]) -> list[str | None]:
    return [cell.text for cell in cells]
