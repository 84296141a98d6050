"""Tables of PostgreSQL that rows go to: their columns, how they are made and widened, and the statements. Driver.

Names go quoted into every statement, and values as parameters.
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
"""A table: schema and name, or the name alone, which the search path places."""

_COLUMNS = (
    "select a.attname from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped"
)


def quoted(name: str) -> str:
    """A name as an identifier of SQL, in a statement with parameters of psycopg's."""
    return '"' + name.replace("\0", "").replace('"', '""').replace("%", "%%") + '"'


def shown(table: Name) -> str:
    """A table as errors show it."""
    return ".".join(table)


class Tables:
    """What is known of the tables; `evolves` says that missing tables and columns are made."""

    def __init__(self, evolves: bool) -> None:
        self._evolves = evolves
        self._known: dict[Name, set[str]] = {}

    def forget(self) -> None:
        """Look everything up again: a transaction was given up, or another one may have changed a table."""
        self._known.clear()

    def has(self, connection: psycopg.Connection[Any], table: Name) -> bool:
        """Whether there is something that a delete could find; True for a table that somebody else has to make."""
        if table not in self._known:
            self._known[table] = self._columns(connection, table)
        return bool(self._known[table]) or not self._evolves

    def fit(self, connection: psycopg.Connection[Any], table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> None:
        """See to it that a table has the columns of a record; raises SinkError where it has not, and may not get them.

        What is made is part of the connection's transaction.
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
                "Make it, or set debezium.sink.jdbc.schema.evolution = basic.",
            )
        if known:
            # Rows that are there have no value for it, so it may be null.
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
    """A new row."""
    written = [*key, *row]
    places = ", ".join(["%s"] * len(written))
    return f"insert into {_sql(table)} ({_names(written)}) values ({places})", _texts(written)


def upsert(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """A row that takes the place of the one of its key."""
    statement, texts = insert(table, key, row)
    changes = ", ".join(f"{quoted(cell.name)} = excluded.{quoted(cell.name)}" for cell in row)
    return f"{statement} on conflict ({_names(key)}) do {f'update set {changes}' if row else 'nothing'}", texts


def update(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """New values, one at least, for the row of a key."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in row)
    return f"update {_sql(table)} set {changes} where {_condition(key)}", _texts([*row, *key])


def move(table: Name, key: Sequence[Cell], to: Sequence[Cell]) -> Statement:
    """Return the statement that gives a row another key, unless a row has that key already."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in to)
    there = f"select from {_sql(table)} where {_condition(to)}"
    statement = f"update {_sql(table)} set {changes} where {_condition(key)} and not exists ({there})"
    return statement, _texts([*to, *key, *to])


def delete(table: Name, key: Sequence[Cell]) -> Statement:
    """The row of a key goes."""
    return f"delete from {_sql(table)} where {_condition(key)}", _texts(key)


def truncate(table: Name) -> Statement:
    """All rows go."""
    return f"truncate table {_sql(table)}", []


def _sql(table: Name) -> str:
    return ".".join(quoted(part) for part in table)


def _names(cells: Iterable[Cell]) -> str:
    return ", ".join(quoted(cell.name) for cell in cells)


def _condition(key: Sequence[Cell]) -> str:
    return " and ".join(f"{quoted(cell.name)} = %s" for cell in key)


def _texts(cells: Iterable[Cell]) -> list[str | None]:
    return [cell.text for cell in cells]
