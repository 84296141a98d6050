"""The server's catalog: its tables, and their definitions from SHOW CREATE TABLE. Planner and driver.

Sessions must come from `server.connection`, which sets sql_mode and character set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import md5
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tailrace.columns.table import TableSchema
from tailrace.connectors.binlog.dialect import Dialect
from tailrace.connectors.binlog.schema.ddl.evolution import resolved_table
from tailrace.connectors.binlog.schema.ddl.parser import parse
from tailrace.connectors.binlog.schema.ddl.statements import CreateTable
from tailrace.connectors.binlog.schema.ddl.tokens import WORD, SqlSettings, Unparsable, tokens
from tailrace.connectors.binlog.schema.definition import Name, TableDefinition
from tailrace.connectors.binlog.schema.tables import schema_of
from tailrace.connectors.binlog.server.connection import rows
from tailrace.connectors.binlog.server.errors import number_of

if TYPE_CHECKING:
    from pymysql.connections import Connection

BUILT_IN = ("mysql", "performance_schema", "sys", "information_schema")
_NO_TABLE = (1146, 1356, 1051)
_HIDDEN = "!hidden!"
_MOST_PARTS = 16
"""The most parts of an index."""
Position = TypeVar("Position")


class ListedTable(NamedTuple):
    """A table of the server. `kind` is BASE TABLE, VIEW, SEQUENCE or SYSTEM VERSIONED; `size` is its estimated number
    of rows."""

    database: str
    table: str
    engine: str
    kind: str
    size: int

    @property
    def id(self) -> Name:
        return self.database, self.table


class DatabaseCharset(NamedTuple):
    """A database with its default character set and collation."""

    name: str
    charset: str
    collation: str


class Created(NamedTuple):
    """A table's definition, and the text of SHOW CREATE TABLE up to its last word.

    The text lacks the end of a comment that the server executes, as in Debezium's records.
    """

    table: TableDefinition
    text: str


def names(session: Connection[Any]) -> list[ListedTable]:
    """Return the tables and views of all databases except the server's, sorted by database and name."""
    built_in = ", ".join(f"'{name}'" for name in BUILT_IN)
    found = rows(
        session,
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_TYPE, TABLE_ROWS FROM information_schema.TABLES "
        f"WHERE TABLE_SCHEMA NOT IN ({built_in})",
    )
    listed = (
        ListedTable(database, table, engine or "", kind, size or 0) for database, table, engine, kind, size in found
    )
    return sorted(listed, key=lambda one: (one.database, one.table))


def holds_rows(listed: ListedTable) -> bool:
    """Return True for a table, not for a view or a sequence."""
    return listed.kind in ("BASE TABLE", "SYSTEM VERSIONED")


def databases(session: Connection[Any]) -> dict[str, DatabaseCharset]:
    """Return all databases except the server's, by name, sorted."""
    found = rows(
        session,
        "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA",
    )
    return {
        name: DatabaseCharset(name, charset, collation)
        for name, charset, collation in sorted(found)
        if name not in BUILT_IN
    }


def quoted(*parts: str) -> str:
    """Return a name in backticks, its parts joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def created(session: Connection[Any], names: Iterable[Name], dialect: Dialect) -> dict[Name, Created]:
    """Return the current definitions of these tables, without tables that are gone, views and sequences.

    Raises Unparsable, which names the table, for a definition that is not understood.
    """
    found: dict[Name, Created] = {}
    for name in names:
        text = _shown(session, name)
        if text is not None:
            if _is_sequence(text, dialect):
                continue
            shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            table = definition(text, name, dialect)
            found[name] = Created(_with_places(session, table) if table.hidden else table, _ended(shown, dialect))
    return found


def _ended(text: str, dialect: Dialect) -> str:
    """Return a statement up to its last word or symbol."""
    return text[: tokens(text, SqlSettings(mariadb=dialect.name == "mariadb"))[-2].end]


def _with_places(session: Connection[Any], table: TableDefinition) -> TableDefinition:
    """Return a table of MySQL with the places of the columns that the server has added for expressions of indexes."""
    names = {_hidden_name(index.name, part): index.name for index in table.unique for part in range(_MOST_PARTS)}
    shown, hidden = {column.name for column in table.columns}, []
    before = 0
    for name, *_ in rows(session, f"SHOW EXTENDED COLUMNS FROM {quoted(*table.id)}"):
        if name in shown:
            before += 1
        elif name in names:
            hidden.append((names[name], before))
        elif name.startswith(_HIDDEN):
            # MySQL 8.0.17 and newer name the index, the part and a number
            hidden.append((name.removeprefix(_HIDDEN).rsplit("!", 2)[0], before))
    return replace(table, hidden=tuple(hidden)) if len(hidden) == len(table.hidden) else table


def _hidden_name(index: str, part: int) -> str:
    """Return the name of the column for a part of an index, as MySQL before 8.0.17 makes it."""
    return md5(f"{index}{part}".encode(), usedforsecurity=False).hexdigest()


def _is_sequence(text: str, dialect: Dialect) -> bool:
    """Return True for MariaDB's definition of a sequence, which is a table with an option."""
    if "SEQUENCE=1" not in text:
        return False
    found = tokens(text, SqlSettings(mariadb=dialect.name == "mariadb"))
    return any(one.kind == WORD and (one.text, after.text) == ("SEQUENCE", "=") for one, after in pairwise(found))


def _shown(session: Connection[Any], name: Name) -> str | None:
    import pymysql

    # a binary default may not be UTF-8
    session.use_unicode = False
    try:
        shown = rows(session, f"SHOW CREATE TABLE {quoted(*name)}")
    except pymysql.err.Error as error:
        if number_of(error) in _NO_TABLE:
            return None
        raise
    finally:
        session.use_unicode = True
    text = shown[0][1].decode("utf-8", "surrogateescape")
    return text if text.upper().startswith("CREATE TABLE") else None


def definition(text: str, name: Name, dialect: Dialect) -> TableDefinition:
    """Return the definition from a text of SHOW CREATE TABLE. Raises Unparsable, which names the table."""
    reading = SqlSettings(mariadb=dialect.name == "mariadb")
    try:
        statement = parse(text, name[0], reading)[0][0]
    except Unparsable as fault:
        raise Unparsable(f"{name[0]}.{name[1]}: {fault.what}", fault.at) from None
    assert isinstance(statement, CreateTable)
    if statement.table is None:
        raise Unparsable(f"{name[0]}.{name[1]}: a table without columns")
    return resolved_table(statement.table.renamed(name), None, has_json=dialect.has_json)


def schemas(session: Connection[Any], names: Iterable[Name], dialect: Dialect) -> dict[Name, TableSchema]:
    """Return the current TableSchemas of these tables, without tables that are gone."""
    return {name: schema_of(one.table) for name, one in created(session, names, dialect).items()}


def at_one_position(
    read: Callable[[], Mapping[Name, Created]], position: Callable[[], Position], tries: int = 5
) -> tuple[Mapping[Name, Created], Position]:
    """Return the definitions that `read` returned both before and after a log position, and this position.

    Raises Unparsable if tables were altered at each attempt.
    """
    before = read()
    for _ in range(tries):
        at = position()
        after = read()
        if before == after:
            return after, at
        before = after
    raise Unparsable("tables were altered each time that their definitions were read")


def listed_names(listed: Sequence[ListedTable]) -> list[Name]:
    """Return the names of the tables that hold rows."""
    return [one.id for one in listed if holds_rows(one)]
