"""Application of a statement to the definitions of tables. No I/O."""

from __future__ import annotations

from dataclasses import replace

from tailrace.connectors.binlog.schema.charsets import canonical
from tailrace.connectors.binlog.schema.ddl.parser import PRIMARY, with_index, with_period
from tailrace.connectors.binlog.schema.ddl.statements import Action
from tailrace.connectors.binlog.schema.ddl.tokens import Unparsable
from tailrace.connectors.binlog.schema.definition import (
    IMPLICIT,
    NOTHING,
    UNKNOWN,
    ColumnDefinition,
    Default,
    Index,
    TableDefinition,
)
from tailrace.connectors.binlog.schema.sql_types import parsed

_TEXTS = (
    "CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "VARCHAR2", "NCHAR", "NVARCHAR", "NATIONAL", "TINYTEXT", "TEXT",
    "MEDIUMTEXT", "LONGTEXT", "CLOB", "ENUM", "SET",
)  # fmt: skip
_NATIONAL = ("NCHAR", "NVARCHAR", "NATIONAL")
_OF_BYTES = {
    "CHAR": "BINARY", "VARCHAR": "VARBINARY", "TINYTEXT": "TINYBLOB", "TEXT": "BLOB", "MEDIUMTEXT": "MEDIUMBLOB",
    "LONGTEXT": "LONGBLOB",
}  # fmt: skip


def is_text(column: ColumnDefinition) -> bool:
    """Return True for a type that has a character set."""
    if column.base == "LONG":
        return "VARBINARY" not in column.words
    return column.base in _TEXTS


def resolved(column: ColumnDefinition, charset: str | None, *, has_json: bool) -> ColumnDefinition:
    """Return the column with the character set that it inherits from its table. `has_json` is as in Dialect."""
    if column.base == "JSON" and not has_json:
        return replace(column, charset="utf8mb4")
    if not is_text(column):
        return column if column.charset is None else replace(column, charset=None)
    if column.base in _NATIONAL:
        return replace(column, charset="utf8")
    found = column.charset or charset
    words = _OF_BYTES.get(_plain_words(column)) if found == "binary" else None
    return replace(column, charset=found) if words is None else replace(column, words=words, charset=None)


def _plain_words(column: ColumnDefinition) -> str:
    """Return the server's own name of a column's type."""
    return parsed(column.words.lower()).base.upper()


def _converted(column: ColumnDefinition, charset: str | None, *, has_json: bool) -> ColumnDefinition:
    """Return the column after CONVERT TO CHARACTER SET, which also reaches national types."""
    if not is_text(column):
        return column
    words = _plain_words(column) if column.base in _NATIONAL else column.words
    return resolved(replace(column, words=words, charset=charset), None, has_json=has_json)


def resolved_table(table: TableDefinition, charset: str | None, *, has_json: bool) -> TableDefinition:
    """Return a created table with the character sets of its columns. `charset` is the default of the database."""
    own = table.charset or charset
    columns = tuple(resolved(column, own, has_json=has_json) for column in table.columns)
    return _with_history(replace(table, charset=own, columns=columns))


def _with_history(table: TableDefinition) -> TableDefinition:
    """Return a table with the implicit changes for system versioning: the server adds the period's end to keys."""
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
    """Return the table after the actions of one ALTER TABLE. `charset` is the default of the database.

    As in the server, all actions use the names of columns before the statement, except after AFTER. Raises Unparsable
    if the actions do not fit the table.
    """
    for action in actions:
        if action.verb not in _OF_COLUMNS:
            table = _applied(table, action, charset, has_json=has_json)
    columns = _Columns(table, has_json)
    taken = [action for action in actions if action.verb not in _OF_COLUMNS or columns.take(action)]
    table = columns.result()
    for action in taken:
        if action.verb == "period":
            table = with_period(table, action.name, action.text or "", False)
    for action in taken:
        for index in action.keys:
            table = with_index(table, index)
    return _with_history(table)


_APPLICATIONS = ("from", "until")
_OF_COLUMNS = ("add", "change", "drop", "rename", "default")


def _applied(table: TableDefinition, action: Action, charset: str | None, *, has_json: bool) -> TableDefinition:
    """Return the table after an action on the table as a whole. Keys are added later."""
    if action.verb == "unindex":
        return without_index(table, action.name)
    if action.verb == "reindex":
        assert action.text is not None
        old, new = action.name.casefold(), action.text
        unique = tuple(one._replace(name=new) if one.name.casefold() == old else one for one in table.unique)
        hidden = tuple((new if name.casefold() == old else name, before) for name, before in table.hidden)
        return replace(table, unique=unique, hidden=hidden)
    if action.verb in ("charset", "convert"):
        found = action.text or charset
        table = replace(table, charset=found)
        if action.verb == "charset":
            return table
        return replace(table, columns=tuple(_converted(column, found, has_json=has_json) for column in table.columns))
    if action.verb == "comment":
        return replace(table, comment=action.text)
    if action.verb == "version":
        return replace(table, versioned=bool(action.text))
    if action.verb == "unperiod":
        columns = (replace(one, period="") if one.period in _APPLICATIONS else one for one in table.columns)
        return replace(table, columns=tuple(columns))
    return table


class _Columns:
    """The columns of a table during one statement."""

    def __init__(self, table: TableDefinition, has_json: bool) -> None:
        self._table, self._has_json = table, has_json
        # the new definition of each column, None if dropped
        self._now: list[ColumnDefinition | None] = list(table.columns)
        # columns that get a new place, in the order of the statement: old place (-1: new), column, and the name after
        # AFTER
        self._placed: list[tuple[int, ColumnDefinition, str | None]] = []
        self._highest = max(table.highest, len(table.columns))

    def take(self, action: Action) -> bool:
        """Apply an action. Return False if it has no effect because of IF EXISTS or IF NOT EXISTS. Raises
        Unparsable."""
        place = self._table.index(action.column.name if action.verb == "add" and action.column else action.name)
        if action.verb == "add":
            if place >= 0 and action.if_there:
                return False
            self._add(action)
            return True
        if place < 0:
            if action.if_there:
                return False
            raise Unparsable(f"there is no column {action.name}")
        before = self._table.columns[place]
        if action.verb == "drop":
            self._now[place] = None
        elif action.verb == "change":
            self._change(place, before, action)
        elif action.verb == "rename":
            assert action.text is not None
            self._now[place] = replace(self._now[place] or before, name=action.text)
        else:
            self._now[place] = replace(self._now[place] or before, default=action.default)
        return True

    def _add(self, action: Action) -> None:
        assert action.column is not None
        column = resolved(action.column, self._table.charset, has_json=self._has_json)
        self._highest += 1
        is_key = any(index.name.upper() == PRIMARY for index in action.keys)
        column = replace(column, nullable=column.nullable and not is_key)
        self._placed.append((-1, replace(column, number=self._highest, older=_older(column)), action.place))

    def _change(self, place: int, before: ColumnDefinition, action: Action) -> None:
        assert action.column is not None
        column = resolved(action.column, self._table.charset, has_json=self._has_json)
        if before.name in self._table.primary:
            column = replace(column, nullable=False)
        is_same = column.base == before.base and column.nullable and not column.generated
        older = before.older if is_same or column == replace(before, name=column.name) else UNKNOWN
        column = replace(column, number=before.number, older=older)
        self._now[place] = column
        if action.place is not None:
            self._placed.append((place, column, action.place))

    def result(self) -> TableDefinition:
        """Return the table with its columns in their new order. Raises Unparsable."""
        away = {place for place, _, _ in self._placed}
        columns: list[ColumnDefinition] = []
        # the server's own columns stay where they are
        own = [(before, ColumnDefinition(f"\0{number}", "")) for number, (_, before) in enumerate(self._table.hidden)]
        for place, one in enumerate([*self._now, None]):
            columns += [column for before, column in own if before == place]
            columns += [one] if one is not None and place not in away else []
        for _, column, previous in self._placed:
            columns.insert(_place_behind(columns, previous), column)
        hidden = []
        for number, (_, column) in enumerate(own):
            before = columns.index(column)
            del columns[before]
            hidden.append((self._table.hidden[number][0], before))
        names = [column.name.casefold() for column in columns]
        if len(set(names)) < len(names):
            raise Unparsable(f"there are two columns {next(name for name in names if names.count(name) > 1)}")
        pairs = zip(self._table.columns, self._now, strict=True)
        called = {before.name: None if now is None else now.name for before, now in pairs}
        left = [(index, _called(index.columns, called)) for index in self._table.unique]
        return replace(
            self._table,
            columns=tuple(columns),
            primary=_called(self._table.primary, called),
            # indexes whose columns are all dropped are dropped
            unique=tuple(index._replace(columns=names) for index, names in left if names or not index.plain),
            highest=self._highest,
            hidden=tuple(hidden),
        )


def _place_behind(columns: list[ColumnDefinition], name: str | None) -> int:
    """Return the place after a column; 0 for "", the last place for None."""
    if not name:
        return len(columns) if name is None else 0
    found = [one.name.casefold() for one in columns]
    if name.casefold() not in found:
        raise Unparsable(f"there is no column {name}")
    return found.index(name.casefold()) + 1


def _called(names: tuple[str, ...], called: dict[str, str | None]) -> tuple[str, ...]:
    """Return the names of an index's columns after the statement, without dropped columns."""
    found = (called.get(name, name) for name in names)
    return tuple(name for name in found if name is not None)


def _older(column: ColumnDefinition) -> Default:
    """Return the value of existing rows in an added column."""
    if column.generated or column.automatic or column.period in ("start", "end"):
        return UNKNOWN
    if column.base == "TIMESTAMP" and (column.default is None or column.default == NOTHING):
        # without explicit_defaults_for_timestamp it has an implicit default
        return column.older if column.default is None else NOTHING
    if column.default is not None:
        return UNKNOWN if column.default.kind in ("now", "expression") else column.default
    return NOTHING if column.nullable else IMPLICIT


# --- values of existing rows ------------------------------------------------------------------------------------------

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_SAME_BASE = {
    "INTEGER": "INT", "INT1": "TINYINT", "INT2": "SMALLINT", "INT3": "MEDIUMINT", "MIDDLEINT": "MEDIUMINT",
    "INT4": "INT", "INT8": "BIGINT", "BOOL": "TINYINT", "BOOLEAN": "TINYINT", "SERIAL": "BIGINT", "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL", "FIXED": "DECIMAL", "CHARACTER": "CHAR", "VARCHARACTER": "VARCHAR", "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE", "REAL": "DOUBLE",
}  # fmt: skip
_LONG = {"TINY": 1, "": 2, "MEDIUM": 3, "LONG": 4}
_TEMPORAL = ("TIME", "DATETIME", "TIMESTAMP")


def rewritten(before: TableDefinition, after: TableDefinition, *, strict: bool) -> list[str]:
    """Return the names of the columns whose values a statement may have changed in existing rows, without rows in the
    log.

    `strict` is True if the sql_mode makes the statement fail for a value that does not fit the new type.
    """
    known = {column.number: column for column in before.columns}
    pairs = [(known[column.number], column) for column in after.columns if column.number in known]
    found = [new.name for old, new in pairs if not keeps_values(old, new, strict=strict)]
    if found or any(_shape(old) != _shape(new) for old, new in pairs):
        found += [new.name for _, new in pairs if new.generated and new.name not in found]
    return found


def renumbered(before: TableDefinition, after: TableDefinition) -> tuple[TableDefinition, list[str]]:
    """Return the altered table with its dropped columns recorded, and the sorted names that now belong to other
    columns.

    Such a name was swapped with another, or its column was dropped and added again.
    """
    known = {**dict(before.gone), **{column.name: column.number for column in before.columns if column.number}}
    now = {column.name: column.number for column in after.columns if column.number}
    gone = tuple((name, number) for name, number in known.items() if name not in now)
    return replace(after, gone=gone), sorted(name for name in now if now[name] != known.get(name, now[name]))


def _shape(column: ColumnDefinition) -> tuple[object, ...]:
    return column.words, column.length, column.scale, column.labels, column.charset


def keeps_values(old: ColumnDefinition, new: ColumnDefinition, *, strict: bool) -> bool:
    """Return True if a change of type certainly keeps all values of a column."""
    if old.generated != new.generated or (new.generated and old.expression != new.expression):
        return not new.generated
    if old.nullable and not new.nullable and not strict:
        return False
    if old.charset != new.charset and not strict and canonical(new.charset or "") != "utf8mb4":
        return False
    if _shape(old)[:4] == _shape(new)[:4]:
        return True
    one, other = _SAME_BASE.get(old.base, old.base), _SAME_BASE.get(new.base, new.base)
    if one in _INTEGERS and other in _INTEGERS:
        wider = _INTEGERS.index(other) - _INTEGERS.index(one)
        return strict or (old.unsigned == new.unsigned and wider >= 0) or (old.unsigned and wider > 0)
    for kind in ("TEXT", "BLOB"):
        if one.endswith(kind) and other.endswith(kind):
            return strict or _LONG[other.removesuffix(kind)] >= _LONG[one.removesuffix(kind)]
    if (one, other) in (("VARCHAR", "LONGTEXT"), ("VARBINARY", "LONGBLOB")):
        return True
    if one != other:
        return False
    if one == "DECIMAL":
        fits = (new.length or 10) - (new.scale or 0) >= (old.length or 10) - (old.scale or 0)
        return (new.scale or 0) >= (old.scale or 0) and (strict or (fits and old.unsigned == new.unsigned))
    if one in _TEMPORAL:
        return (new.length or 0) >= (old.length or 0)
    if one in ("ENUM", "SET"):
        return strict or set(old.labels) <= set(new.labels)
    if one in ("CHAR", "BIT", "VARCHAR", "VARBINARY"):
        return strict or (new.length or 1) >= (old.length or 1)
    return False


# --- numbers ----------------------------------------------------------------------------------------------------------


def numbered(table: TableDefinition, number: int) -> TableDefinition:
    """Return a table with its number, and with numbers for its columns without one."""
    columns = tuple(replace(one, number=one.number or place) for place, one in enumerate(table.columns, 1))
    highest = max([table.highest, *(one.number for one in columns)], default=0)
    return replace(table, number=number, columns=columns, highest=highest)


def succeeding(table: TableDefinition, before: TableDefinition, older: Default = UNKNOWN) -> TableDefinition:
    """Return a table that replaces `before`: columns of the same name count as the same column.

    `older` is the value of older rows in the other columns.
    """
    known = {one.name: one for one in before.columns}
    highest = max(before.highest, len(before.columns))
    columns = []
    for column in table.columns:
        was = known.get(column.name)
        if was is None:
            highest += 1
            columns.append(replace(column, number=highest, older=older))
        else:
            columns.append(replace(column, number=was.number, older=was.older))
    return replace(table, number=before.number, columns=tuple(columns), highest=highest)


def without_index(table: TableDefinition, name: str) -> TableDefinition:
    """Return the table without its primary key (`PRIMARY`) or a unique index."""
    if name.upper() == PRIMARY:
        return replace(table, primary=())
    folded = name.casefold()
    return replace(
        table,
        unique=tuple(one for one in table.unique if one.name.casefold() != folded),
        hidden=tuple(one for one in table.hidden if one[0].casefold() != folded),
    )


def with_unique(table: TableDefinition, index: Index) -> TableDefinition:
    """Return the table with a further unique index."""
    return with_index(table, index)
