"""Target tables in PostgreSQL: their columns, their creation and extension, and the statements on rows. Driver.

Names are quoted in every statement, and values are parameters.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError
from tailrace.sinks.jdbc.changes import Cell

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tailrace")

Statement = tuple[str, list[str | None]]
"""SQL and its parameters."""

Name = tuple[str, ...]
"""A table: schema and name, or only a name, which the search path resolves."""

_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), a.atthasdef or a.attidentity <> '' or a.attgenerated <> ''
from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
"""


def quoted(name: str) -> str:
    """Return a name as an SQL identifier for a statement with psycopg's parameters."""
    return '"' + name.replace("\0", "").replace('"', '""').replace("%", "%%") + '"'


def shown(table: Name) -> str:
    """Return a table's name for messages."""
    return ".".join(table)


@dataclass(frozen=True, slots=True)
class _TargetColumn:
    """A column of a target table. `has_default` is True if the server fills it when an insert leaves it out."""

    type: str
    has_default: bool


class TableCache:
    """A cache of the tables' columns. If `evolves`, missing tables and columns are created.

    A table that no longer matches its source causes a warning, once for each way in which a column differs: Debezium's
    sink adds columns, and alters nothing else.
    """

    def __init__(self, evolves: bool) -> None:
        self._evolves = evolves
        self._known: dict[Name, dict[str, _TargetColumn]] = {}
        self._fitting: set[tuple[Name, tuple[tuple[str, str], ...]]] = set()
        """Tables with the columns of records that they fit, by name and type."""
        self._told: set[str] = set()
        """The warnings that were logged."""

    def forget(self) -> None:
        """Clear the cache, after a rollback or when another session may have changed a table."""
        self._known.clear()
        self._fitting.clear()

    def has(self, connection: psycopg.Connection[Any], table: Name) -> bool:
        """Return False if a table is missing and the sink creates tables: then there is nothing to delete."""
        if table not in self._known:
            self._known[table] = self._columns(connection, table)
        return bool(self._known[table]) or not self._evolves

    def fit(
        self,
        connection: psycopg.Connection[Any],
        table: Name,
        key: Sequence[Cell],
        row: Sequence[Cell],
        left_out: Collection[str] = (),
    ) -> None:
        """Create the table or the columns that a record needs, within the connection's transaction.

        `left_out` are columns of the source's row that options leave out. Raises SinkError if some are missing and the
        sink does not create them.
        """
        fitting = table, tuple((cell.name, cell.kind.type) for cell in (*key, *row))
        if fitting in self._fitting:
            return
        self.has(connection, table)
        known = self._known[table]
        missing = [cell for cell in (*key, *row) if cell.name not in known]
        if known:
            self._warn(table, [*key, *row], missing, left_out)
        if missing and not self._evolves:
            what = f"has no column {missing[0].name}" if known else "does not exist"
            raise SinkError(
                f"The table {shown(table)} {what}.",
                "Create it, or set debezium.sink.jdbc.schema.evolution = basic.",
            )
        if missing and known:
            # Existing rows have no value for a new column, so it is nullable.
            added = ", ".join(f"add column if not exists {quoted(cell.name)} {cell.kind.type}" for cell in missing)
            self._execute(connection, f"alter table {_sql(table)} {added}")
        elif missing:
            parts = [
                f"{quoted(cell.name)} {cell.kind.type}{' not null' if cell.required else ''}" for cell in (*key, *row)
            ]
            if key:
                parts.append(f"primary key ({_names(key)})")
            self._execute(connection, f"create table if not exists {_sql(table)} ({', '.join(parts)})")
        known.update((cell.name, _TargetColumn(cell.kind.type, False)) for cell in missing)
        self._fitting.add(fitting)

    def _warn(self, table: Name, cells: Sequence[Cell], missing: Sequence[Cell], left_out: Collection[str]) -> None:
        """Log warnings for columns in which a table will differ from its source."""
        known, name = self._known[table], shown(table)
        for cell in missing if self._evolves else ():
            self._tell(
                f"jdbc: {name} gets the column {cell.name}, null in the rows that it has; remedy: if the source's rows "
                f"have values there, as from a default, read {name} by a snapshot (signal execute-snapshot)",
            )  # fmt: skip
        here = {cell.name for cell in cells} | set(left_out)
        for column, target in known.items():
            if column not in here and not target.has_default:
                self._tell(
                    f"jdbc: {name} has the column {column}, which the source's rows lack, so its values stay as they "
                    f"are; remedy: if the source has dropped or renamed it, drop it from {name}, and read {name} by a "
                    "snapshot (signal execute-snapshot)",
                )  # fmt: skip
        for cell in cells:
            held = known.get(cell.name)
            if held is not None and _rounds(held.type, cell.kind.type):
                self._tell(
                    f"jdbc: {name} has {held.type} for the column {cell.name}, whose values are of the type "
                    f"{cell.kind.type} by now, and loses digits; remedy: alter the column's type in {name}, and read "
                    f"{name} by a snapshot (signal execute-snapshot)",
                )  # fmt: skip

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

    def _columns(self, connection: psycopg.Connection[Any], table: Name) -> dict[str, _TargetColumn]:
        plain = ".".join('"' + part.replace('"', '""') + '"' for part in table)
        found = connection.execute(_COLUMNS, [plain]).fetchall()
        return {name: _TargetColumn(kind, has_default) for name, kind, has_default in found}

    def _execute(self, connection: psycopg.Connection[Any], statement: str) -> None:
        connection.execute(statement.replace("%%", "%").encode())


_NUMBER = re.compile(r"numeric\(\d+,(-?\d+)\)")
_DIGITS = re.compile(r"(?:timestamp|timestamptz|time|timetz)\((\d)\)")
_LOSSLESS = {
    "real": {"smallint", "real"},
    "double precision": {"smallint", "integer", "real", "double precision"},
    "numeric": {"smallint", "integer", "bigint", "numeric", "real", "double precision"},
}
"""Types of numbers whose values a column takes without rounding, by the column's type."""


def _rounds(column: str, field: str) -> bool:
    """Return True if a column accepts the texts of a field's type but loses digits, the time or the zone of some."""
    column = column.replace(" without time zone", "")
    if column.endswith(" with time zone"):
        column = column.removesuffix(" with time zone").replace("timestamp", "timestamptz").replace("time(", "timetz(")
    if column.endswith("[]") and field.endswith("[]"):
        column, field = column[:-2], field[:-2]
    numbers = _LOSSLESS["numeric"]
    is_number = field in numbers or field.startswith("numeric")
    if scale := _NUMBER.fullmatch(column):
        given = _NUMBER.fullmatch(field)
        is_whole = field in ("smallint", "integer", "bigint")
        return is_number and (int(scale[1]) < 0 if is_whole else given is None or int(given[1]) > int(scale[1]))
    if column in _LOSSLESS:
        return is_number and field not in _LOSSLESS[column] and column != "numeric"
    if not field.startswith(("timestamp", "time")):
        return False
    if column in ("date", "timestamp", "timestamptz", "time", "timetz") or _DIGITS.fullmatch(column):
        digits = _DIGITS.fullmatch(column)
        is_short = digits is not None and int(digits[1]) < _FIELD_DIGITS
        return column == "date" or is_short or column.partition("(")[0] != field.partition("(")[0]
    return False


_FIELD_DIGITS = 6
"""Digits of a second in the texts of fields."""


def insert(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the statement that inserts a row."""
    written = [*key, *row]
    places = ", ".join(["%s"] * len(written))
    return f"insert into {_sql(table)} ({_names(written)}) values ({places})", _texts(written)


def upsert(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the statement that inserts a row, or replaces the values of the row with the same key."""
    statement, texts = insert(table, key, row)
    changes = ", ".join(f"{quoted(cell.name)} = excluded.{quoted(cell.name)}" for cell in row)
    return f"{statement} on conflict ({_names(key)}) do {f'update set {changes}' if row else 'nothing'}", texts


def update(table: Name, key: Sequence[Cell], row: Sequence[Cell]) -> Statement:
    """Return the statement that updates the row with a key; `row` must not be empty."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in row)
    return f"update {_sql(table)} set {changes} where {_condition(key)}", _texts([*row, *key])


def move(table: Name, key: Sequence[Cell], to: Sequence[Cell]) -> Statement:
    """Return the statement that changes the key of a row, unless a row has the new key already."""
    changes = ", ".join(f"{quoted(cell.name)} = %s" for cell in to)
    there = f"select from {_sql(table)} where {_condition(to)}"
    statement = f"update {_sql(table)} set {changes} where {_condition(key)} and not exists ({there})"
    return statement, _texts([*to, *key, *to])


def exists(cursor: psycopg.Cursor[Any], table: Name, key: Sequence[Cell]) -> bool:
    """Return True if a row has a key."""
    cursor.execute(f"select from {_sql(table)} where {_condition(key)} limit 1".encode(), _texts(key))
    return cursor.fetchone() is not None


def delete(table: Name, key: Sequence[Cell]) -> Statement:
    """Return the statement that deletes the row with a key."""
    return f"delete from {_sql(table)} where {_condition(key)}", _texts(key)


def truncate(table: Name) -> Statement:
    """Return the statement that truncates a table."""
    return f"truncate table {_sql(table)}", []


def _sql(table: Name) -> str:
    return ".".join(quoted(part) for part in table)


def _names(cells: Iterable[Cell]) -> str:
    return ", ".join(quoted(cell.name) for cell in cells)


def _condition(key: Sequence[Cell]) -> str:
    return " and ".join(f"{quoted(cell.name)} = %s" for cell in key)


def _texts(cells: Iterable[Cell]) -> list[str | None]:
    return [cell.text for cell in cells]
