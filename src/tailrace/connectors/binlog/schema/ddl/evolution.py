"""Application of a statement to the definitions of tables. No I/O."""

from __future__ import annotations

from dataclasses import replace

from tailrace.connectors.binlog.schema.ddl.parser import PRIMARY, with_index
from tailrace.connectors.binlog.schema.ddl.statements import Action
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definition import ColumnDefinition, Index, TableDefinition

_TEXTS = (
    "CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "VARCHAR2", "NCHAR", "NVARCHAR", "NATIONAL", "TINYTEXT", "TEXT",
    "MEDIUMTEXT", "LONGTEXT", "CLOB", "ENUM", "SET",
)  # fmt: skip
_OF_BYTES = {
    "CHAR": "BINARY", "CHARACTER": "BINARY", "VARCHAR": "VARBINARY", "VARCHARACTER": "VARBINARY",
    "TINYTEXT": "TINYBLOB", "TEXT": "BLOB", "MEDIUMTEXT": "MEDIUMBLOB", "LONGTEXT": "LONGBLOB",
}  # fmt: skip


def is_text(column: ColumnDefinition) -> bool:
    """Return True for a type that has a character set."""
    if column.base == "LONG":
        return "VARBINARY" not in column.words
    return column.base in _TEXTS


def resolved(column: ColumnDefinition, charset: str | None, *, has_json: bool) -> ColumnDefinition:
    """Return the column with the character set that it gets from its table; `has_json`: JSON is a type of its own."""
    if column.base == "JSON" and not has_json:
        return replace(column, charset="utf8mb4")
    if not is_text(column):
        return column if column.charset is None else replace(column, charset=None)
    if column.base in ("NCHAR", "NVARCHAR", "NATIONAL"):
        return replace(column, charset="utf8")
    found = column.charset or charset
    if found == "binary" and column.words in _OF_BYTES:
        return replace(column, words=_OF_BYTES[column.words], charset=None)
    return replace(column, charset=found)


def resolved_table(table: TableDefinition, charset: str | None, *, has_json: bool) -> TableDefinition:
    """Return a created table, whose database has `charset`, with the character sets of its columns."""
    own = table.charset or charset
    columns = tuple(resolved(column, own, has_json=has_json) for column in table.columns)
    return _with_history(replace(table, charset=own, columns=columns))


def _with_history(table: TableDefinition) -> TableDefinition:
    """Return a system-versioned table with what the server adds to it: keys end with the period's end."""
    ends = [column.name for column in table.columns if column.period == "end"]
    if not table.versioned or not ends:
        return table
    end = ends[0]
    return replace(
        table,
        columns=tuple(
            replace(column, nullable=False) if column.name == end and table.primary else column
            for column in table.columns
        ),
        primary=(*table.primary, end) if table.primary and end not in table.primary else table.primary,
        unique=tuple(
            index if end in index.columns else index._replace(columns=(*index.columns, end)) for index in table.unique
        ),
    )


def altered(
    table: TableDefinition, actions: tuple[Action, ...], charset: str | None, *, has_json: bool
) -> TableDefinition:
    """Return the table after the actions of ALTER TABLE; `charset` is its database's. Raises Unparsable if they do not
    fit it."""
    for action in actions:
        table = _applied(table, action, charset, has_json)
    return table


def _applied(table: TableDefinition, action: Action, charset: str | None, has_json: bool) -> TableDefinition:
    if action.verb in ("add", "change"):
        return _placed(table, action, has_json)
    if action.verb == "key":
        return with_index(table, action.keys[0])
    if action.verb == "unindex":
        return without_index(table, action.name)
    if action.verb == "reindex":
        assert action.text is not None
        unique = tuple(
            one._replace(name=action.text) if one.name.casefold() == action.name.casefold() else one
            for one in table.unique
        )
        return replace(table, unique=unique)
    if action.verb in ("charset", "convert"):
        found = action.text or charset
        table = replace(table, charset=found)
        if action.verb == "charset":
            return table
        return replace(
            table,
            columns=tuple(
                replace(column, charset=found)
                if is_text(column) and column.base not in ("NATIONAL", "NCHAR", "NVARCHAR")
                else column
                for column in table.columns
            ),
        )
    if action.verb == "comment":
        return replace(table, comment=action.text)
    if action.verb == "version":
        return replace(table, versioned=bool(action.text))
    place = table.index(action.name)
    if place < 0:
        if action.if_there:
            return table
        raise Unparsable(f"there is no column {action.name}")
    if action.verb == "drop":
        return _without(table, place)
    column = table.columns[place]
    if action.verb == "rename":
        assert action.text is not None
        return _with_columns(
            table, [*table.columns[:place], replace(column, name=action.text), *table.columns[place + 1 :]],
            {column.name: action.text},
        )  # fmt: skip
    changed = replace(column, default=action.default)
    return replace(table, columns=(*table.columns[:place], changed, *table.columns[place + 1 :]))


def _placed(table: TableDefinition, action: Action, has_json: bool) -> TableDefinition:
    """Return the table with a column added, or changed."""
    assert action.column is not None
    column = resolved(action.column, table.charset, has_json=has_json)
    columns = list(table.columns)
    renamed: dict[str, str] = {}
    if action.verb == "change":
        place = table.index(action.name)
        if place < 0:
            if action.if_there:
                return table
            raise Unparsable(f"there is no column {action.name}")
        before = columns.pop(place)
        renamed = {before.name: column.name}
        if before.name in table.primary:
            column = replace(column, nullable=False)
    else:
        if table.index(column.name) >= 0:
            if action.if_there:
                return table
            raise Unparsable(f"there is a column {column.name} already")
        place = len(columns)
    if action.place is not None:
        place = 0
        if action.place:
            found = [one.name.casefold() for one in columns]
            if action.place.casefold() not in found:
                raise Unparsable(f"there is no column {action.place}")
            place = found.index(action.place.casefold()) + 1
    columns.insert(place, column)
    table = _with_columns(table, columns, renamed)
    for index in action.keys:
        table = with_index(table, index)
    return table


def _with_columns(table: TableDefinition, columns: list[ColumnDefinition], renamed: dict[str, str]) -> TableDefinition:
    """Return the table with these columns, its indexes following those that are `renamed`."""
    return replace(
        table,
        columns=tuple(columns),
        primary=tuple(renamed.get(name, name) for name in table.primary),
        unique=tuple(
            index._replace(columns=tuple(renamed.get(name, name) for name in index.columns)) for index in table.unique
        ),
    )


def _without(table: TableDefinition, place: int) -> TableDefinition:
    """Return the table without a column; indexes lose it, and those of no column are gone."""
    name = table.columns[place].name
    left = [index._replace(columns=tuple(one for one in index.columns if one != name)) for index in table.unique]
    return replace(
        table,
        columns=(*table.columns[:place], *table.columns[place + 1 :]),
        primary=tuple(one for one in table.primary if one != name),
        unique=tuple(index for index in left if index.columns or not index.plain),
    )


def without_index(table: TableDefinition, name: str) -> TableDefinition:
    """Return the table without its primary key (`PRIMARY`) or a unique index."""
    if name.upper() == PRIMARY:
        return replace(table, primary=())
    return replace(table, unique=tuple(one for one in table.unique if one.name.casefold() != name.casefold()))


def with_unique(table: TableDefinition, index: Index) -> TableDefinition:
    """Return the table with a further unique index."""
    return with_index(table, index)
