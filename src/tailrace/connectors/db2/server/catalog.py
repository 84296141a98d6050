"""Columns, keys and names of Db2's tables, by the server's procedures for drivers. Planner and driver.

Every server of the family has SYSIBM.SQLCOLUMNS, SQLPRIMARYKEYS, SQLSTATISTICS and SQLTABLES, with the same result
columns ("Db2 CLI: catalog functions"; the option DATATYPE='JDBC' asks for codes of java.sql.Types). Some servers do not
accept parameters as arguments, so they are written as literals; names in SQLCOLUMNS and SQLTABLES are patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.columns.table import Column, TableId
from tailrace.connectors.db2.server.connection import Connection, RightLacking
from tailrace.connectors.db2.values.declaration import LOBS, TYPES, modifier, type_name
from tailrace.errors import ConnectionFailed, TailraceError

Table = tuple[str, str]
"""Schema and table."""

_SYSTEM = ("SYS", "SYSIBM", "SYSCAT", "SYSSTAT", "SYSPROC", "SYSTOOLS", "SYSFUN", "SYSIBMADM", "SYSIBMINTERNAL",
           "SYSIBMTS", "SYSPUBLIC", "SYSCS_DIAG", "SYSCS_UTIL", "NULLID", "SQLJ")  # fmt: skip
_ONE_BY_ONE = 4
"""Most tables of a schema that are queried one by one; for more the whole schema is queried at once."""

# SYSCAT.TABLES.CONTROL: R for rows, C for columns, B for both
_CONTROLLED = (
    "SELECT TABSCHEMA, TABNAME FROM SYSCAT.TABLES WHERE CONTROL IN ('R', 'C', 'B') OR SECPOLICYNAME IS NOT NULL"
)
_UNIQUE = 0
_QUICK = 1


def quoted(*parts: str) -> str:
    """Return names as delimited identifiers, joined by dots."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def literal(text: str) -> str:
    """Return a character constant."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as the catalog describes it."""

    column: Column

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_lob(self) -> bool:
        return self.column.type_name in LOBS

    def nullable_column(self) -> Column:
        """Return the column as nullable and without default."""
        return replace(self.column, nullable=True, default=None)


class Catalog:
    """The catalog of one database, over one connection. All methods raise TailraceError."""

    def __init__(self, connection: Connection, database: str) -> None:
        self._connection = connection
        self._database = database

    def columns(self, tables: Iterable[Table]) -> dict[Table, list[CatalogColumn]]:
        """Return the columns of each table, in the table's order. Tables that do not exist are absent."""
        wanted: dict[str, set[str]] = {}
        for schema, table in tables:
            wanted.setdefault(schema, set()).add(table)
        found: dict[Table, list[tuple[int, CatalogColumn]]] = {}
        for schema, names in sorted(wanted.items()):
            patterns = sorted(names) if len(names) <= _ONE_BY_ONE else ["%"]
            for pattern in patterns:
                for row in self._connection.rows(
                    f"CALL SYSIBM.SQLCOLUMNS(NULL, {literal(schema)}, {literal(pattern)}, NULL, 'DATATYPE=''JDBC''')"
                ):
                    # `_` is also a pattern, so the rows may be of other tables
                    if row[1].rstrip() == schema and (row[2] in names if pattern == "%" else row[2] == pattern):
                        found.setdefault((schema, row[2]), []).append((int(row[16]), _described(row)))
        return {table: [column for _, column in sorted(some, key=_place)] for table, some in found.items()}

    def key(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the columns of the primary key, in its order, else of a unique index over NOT NULL columns, else ().

        Of several such indexes the first by name is used, as in drivers that query the catalog in this way.
        """
        rows = self._connection.rows(f"CALL SYSIBM.SQLPRIMARYKEYS(NULL, {literal(schema)}, {literal(table)}, NULL)")
        if rows:
            return tuple(row[3] for row in sorted(rows, key=lambda row: row[4]))
        nullable = {one.name: one.column.nullable for one in self.columns([(schema, table)]).get((schema, table), [])}
        indexes: dict[str, list[tuple[int, str]]] = {}
        for row in self._connection.rows(
            f"CALL SYSIBM.SQLSTATISTICS(NULL, {literal(schema)}, {literal(table)}, {_UNIQUE}, {_QUICK}, "
            "'DATATYPE=''JDBC''')"
        ):
            # NON_UNIQUE, INDEX_NAME, ORDINAL_POSITION, COLUMN_NAME; a row of statistics has no index
            if row[5] is not None and row[8] is not None and not row[3]:
                indexes.setdefault(row[5], []).append((int(row[7]), row[8]))
        for _, parts in sorted(indexes.items()):
            names = [name for _, name in sorted(parts)]
            if all(nullable.get(name) is False for name in names):
                return tuple(names)
        return ()

    def tables(self) -> list[TableId]:
        """Return all tables except the server's own, sorted."""
        rows = self._connection.rows("CALL SYSIBM.SQLTABLES(NULL, '%', '%', '''TABLE''', 'DATATYPE=''JDBC''')")
        named = [TableId(self._database, row[1].rstrip(), row[2]) for row in rows if row[3] == "TABLE"]
        return sorted(table for table in named if table.schema not in _SYSTEM)

    def controlled(self) -> set[Table]:
        """Return the tables with row permissions, column masks or label-based access control, which hide rows or
        values.

        The result is empty if the server has no such catalog. Raises RightLacking if the user may not read it.
        """
        try:
            rows = self._connection.rows(_CONTROLLED)
        except (ConnectionFailed, RightLacking):
            raise
        except TailraceError:
            return set()
        return {(row[0].rstrip(), row[1]) for row in rows}


def shown_key(key: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the key if all its columns are captured, else no key."""
    return tuple(key) if set(key) <= set(columns) else ()


def _place(numbered: tuple[int, CatalogColumn]) -> int:
    return numbered[0]


def _described(row: tuple[object, ...]) -> CatalogColumn:
    """Return the column of a row of SQLCOLUMNS: COLUMN_NAME, DATA_TYPE, TYPE_NAME, COLUMN_SIZE, DECIMAL_DIGITS,
    REMARKS, …"""
    name, code, named, size, digits = row[3], row[4], row[5], row[6], row[8]
    source = row[21] if len(row) > 21 else None
    resolved = type_name(str(named), int(str(source)) if source is not None else None)
    default = None if row[12] is None else str(row[12])
    column = Column(
        str(name),
        resolved,
        int(str(code)),
        modifier(resolved, _number(size), _number(digits)),
        str(row[17]).strip() != "NO",
        None if default in (None, "NULL") else default,
        "base" if resolved in TYPES else "unknown",
        comment=str(row[11]) if row[11] else None,
    )
    return CatalogColumn(column)


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))
