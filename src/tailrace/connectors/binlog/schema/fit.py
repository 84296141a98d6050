"""Comparison of table maps with definitions, and definitions from table maps. No I/O.

The check covers all that the log shows: kinds, lengths of numbers and fractions, nullability, and, if the log has them,
names, signs, character sets and labels. A wrong definition rarely passes it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tailrace.connectors.binlog.schema.charsets import canonical, charset_of
from tailrace.connectors.binlog.schema.definition import ColumnDefinition, TableDefinition
from tailrace.connectors.binlog.schema.table_map import ColumnType, TableMap
from tailrace.connectors.binlog.schema.texts import readable

_VARIABLE = {ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.VARCHAR_COMPRESSED}
_LONG = {
    ColumnType.BLOB,
    ColumnType.TINY_BLOB,
    ColumnType.MEDIUM_BLOB,
    ColumnType.LONG_BLOB,
    ColumnType.BLOB_COMPRESSED,
}
_FIXED = {ColumnType.STRING}
_BY_WORD: dict[str, set[ColumnType]] = {}
for _words, _types in (
    ("TINYINT INT1 BOOL BOOLEAN", {ColumnType.TINY}),
    ("SMALLINT INT2", {ColumnType.SHORT}),
    ("MEDIUMINT MIDDLEINT INT3", {ColumnType.INT24}),
    ("INT INTEGER INT4", {ColumnType.LONG}),
    ("BIGINT INT8 SERIAL", {ColumnType.LONGLONG}),
    ("FLOAT FLOAT4", {ColumnType.FLOAT, ColumnType.DOUBLE}),
    ("DOUBLE FLOAT8", {ColumnType.DOUBLE}),
    # REAL_AS_FLOAT makes it a FLOAT
    ("REAL", {ColumnType.DOUBLE, ColumnType.FLOAT}),
    ("DECIMAL DEC NUMERIC FIXED NUMBER", {ColumnType.NEWDECIMAL, ColumnType.DECIMAL, ColumnType.DOUBLE}),
    ("BIT", {ColumnType.BIT}),
    ("YEAR", {ColumnType.YEAR}),
    ("DATE", {ColumnType.DATE, ColumnType.NEWDATE}),
    ("TIME", {ColumnType.TIME, ColumnType.TIME2}),
    ("DATETIME", {ColumnType.DATETIME, ColumnType.DATETIME2}),
    ("TIMESTAMP", {ColumnType.TIMESTAMP, ColumnType.TIMESTAMP2}),
    ("ENUM", {ColumnType.ENUM}),
    ("SET", {ColumnType.SET}),
    ("JSON", {ColumnType.JSON} | _LONG),
    ("VECTOR", {ColumnType.VECTOR} | _LONG | _VARIABLE),
    ("UUID INET4 INET6", _FIXED),
    ("GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON GEOMETRYCOLLECTION GEOMCOLLECTION",
     {ColumnType.GEOMETRY}),
    # without strict mode the server turns a type that is too long into a TEXT or BLOB
    ("CHAR CHARACTER NCHAR BINARY", _FIXED | _VARIABLE | _LONG),
    ("VARCHAR VARCHARACTER NVARCHAR VARCHAR2 VARBINARY RAW NATIONAL", _VARIABLE | _LONG | _FIXED),
    ("TINYTEXT TEXT MEDIUMTEXT LONGTEXT CLOB LONG TINYBLOB BLOB MEDIUMBLOB LONGBLOB XMLTYPE", _LONG),
):  # fmt: skip
    _BY_WORD |= dict.fromkeys(_words.split(), _types)

_MOST_BYTES = {
    "utf8mb4": 4, "utf8mb3": 3, "utf16": 4, "utf16le": 4, "utf32": 4, "ucs2": 2, "gb18030": 4, "ujis": 3, "eucjpms": 3,
    "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "gbk": 2,
}  # fmt: skip
_SHORT = ("CHAR", "CHARACTER", "NCHAR", "BINARY", "VARCHAR", "VARCHARACTER", "NVARCHAR", "VARBINARY", "NATIONAL")
_INTEGERS = (ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG)
# columns of functional indexes of MySQL before 8.0.17 have a hash as their name
_FUNCTIONAL = re.compile(r"[0-9a-f]{32}")
_HIDDEN = (ColumnType.LONGLONG, ColumnType.TIMESTAMP2)


SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip
"""The columns of a sequence of MariaDB."""
_SEQUENCE_ENDS = (ColumnType.LONGLONG, ColumnType.TINY, ColumnType.LONGLONG)


def is_sequence(given: TableMap) -> bool:
    """Return True for the map of a sequence, or of a table of the same types if the log does not name columns.

    The first five columns have the sequence's own type: since MariaDB 11.5 any integer.
    """
    kinds = (*given.types[:1] * 5, *_SEQUENCE_ENDS)
    if given.types != kinds or given.types[0] not in _INTEGERS or any(given.nullable):
        return False
    return given.names in (None, SEQUENCE)


def misfit(table: TableDefinition, given: TableMap, *, checks_null: bool = True) -> str:
    """Return the reason why a definition does not fit a map; "" if it fits."""
    names = given.names
    if names is not None:
        return _named_misfit(table, given, names)
    extra = len(given) - len(table.columns)
    is_hidden = extra > 0 and not table.hidden and all(kind in _HIDDEN for kind in given.types[-extra:])
    if extra != len(table.hidden) and not is_hidden:
        return f"the log has {len(given)} columns, and the definition {len(table.columns)}"
    hidden = hidden_places(table, given)
    shown = (place for place in range(len(given)) if place not in hidden)
    for place, column in zip(shown, table.columns, strict=True):
        reason = _column_misfit(column, given, place, checks_null)
        if reason:
            return reason
    return ""


def _named_misfit(table: TableDefinition, given: TableMap, names: tuple[str, ...]) -> str:
    shown = [column.name for column in table.columns]
    visible = [name for name in names if name in set(shown)]
    if visible != shown:
        return f"the log has the columns {', '.join(names)}, and the definition {', '.join(shown)}"
    for column in table.columns:
        reason = _column_misfit(column, given, names.index(column.name), False)
        if reason:
            return reason
    hidden = [name for name in names if name not in set(shown)]
    return "" if all(_is_hidden(name, table) for name in hidden) else f"the log has a column {hidden[0]} too"


def _is_hidden(name: str, table: TableDefinition) -> bool:
    """Return True for a column that the server adds and that definitions do not show."""
    if name.startswith(("DB_ROW_HASH_", "!hidden!")) or _FUNCTIONAL.fullmatch(name):
        return True
    return table.versioned and name in ("row_start", "row_end")


def hidden_places(table: TableDefinition, given: TableMap) -> dict[int, str]:
    """Return the places of columns that definitions do not show, each with its role: `start` and `end` of a row's
    validity, or ""."""
    if given.names is not None:
        shown = {column.name for column in table.columns}
        ends = {"row_start": "start", "row_end": "end"}
        return {
            place: ends.get(name, "") if table.versioned else ""
            for place, name in enumerate(given.names)
            if name not in shown
        }
    if table.hidden:
        return dict.fromkeys((before + number for number, (_, before) in enumerate(table.hidden)), "")
    places = range(len(table.columns), len(given))
    if not table.versioned:
        return dict.fromkeys(places, "")
    times = [place for place in places if given.types[place] in (ColumnType.TIMESTAMP2, ColumnType.LONGLONG)]
    return dict.fromkeys(places, "") | dict(zip(times[:2], ("start", "end"), strict=False))


def _column_misfit(column: ColumnDefinition, given: TableMap, place: int, checks_null: bool) -> str:
    kind, meta = given.types[place], given.meta[place]
    where = f"the column {column.name}"
    if kind not in _BY_WORD.get(column.base, {kind}):
        return f"{where} is {column.words} by its definition, and {kind.name} in the log"
    if kind in _LONG and column.base in _SHORT:
        # the server turns a type that is too long into a TEXT or BLOB
        most = 1 if column.charset is None else _MOST_BYTES.get(canonical(column.charset), 1)
        if (column.length or 1) * most < 256:
            return f"{where} is {column.words} by its definition, and {kind.name} in the log"
    # columns of a period or of a primary key are never nullable
    if checks_null and column.nullable and not given.nullable[place] and column.base not in ("TIMESTAMP", "SERIAL"):
        return f"{where} may be null by its definition, and not in the log"
    if checks_null and not column.nullable and given.nullable[place]:
        return f"{where} may not be null by its definition, and may in the log"
    unsigned = given.unsigned[place] if given.unsigned else None
    if unsigned is not None and unsigned != column.unsigned and kind in _INTEGERS:
        return f"{where} has another sign in the log"
    collation = given.collations[place] if given.collations else None
    if collation is not None and column.charset is not None and kind not in (ColumnType.JSON,):
        found = charset_of(collation)
        if (
            found is not None
            and found != canonical(column.charset)
            and not (found == "binary" and column.base == "JSON")
        ):
            return f"{where} has the character set {column.charset} by its definition, and {found} in the log"
    labels = given.labels[place] if given.labels else None
    if labels is not None and len(labels) != len(column.labels):
        return f"{where} has {len(labels)} labels in the log, and {len(column.labels)} by its definition"
    if labels is not None and _readable_labels(given, place) not in (None, column.labels):
        return f"{where} has other labels in the log"
    return _length_misfit(column, kind, meta, where)


def _readable_labels(given: TableMap, place: int) -> tuple[str, ...] | None:
    """Return the labels of a column; None if the log lacks them, or has characters of an unknown set."""
    labels, collation = given.labels[place] if given.labels else None, given.collations[place]
    charset = None if collation is None else charset_of(collation)
    if labels is None or charset is None:
        return None
    found = tuple(readable(label, charset) for label in labels)
    return None if any("\ufffd" in label for label in found) else found


def _length_misfit(column: ColumnDefinition, kind: ColumnType, meta: int, where: str) -> str:
    expected: int | None = None
    if kind is ColumnType.NEWDECIMAL:
        expected = (column.length or 10) << 8 | (column.scale or 0)
    elif kind in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        expected = column.length or 0
    elif kind is ColumnType.BIT:
        expected = 1 if column.length is None else column.length
    elif kind in (ColumnType.VARCHAR, ColumnType.STRING) and column.length is not None:
        most = 1 if column.charset is None else _MOST_BYTES.get(canonical(column.charset), 1)
        expected = column.length * most
    elif kind is ColumnType.ENUM:
        expected = 1 if len(column.labels) < 256 else 2
    elif kind is ColumnType.SET:
        size = (len(column.labels) + 7) // 8
        expected = 8 if size > 4 else size
    if expected is not None and meta != expected:
        return f"{where} has another length in the log"
    return ""


# --- definitions of maps ----------------------------------------------------------------------------------------------

_WORDS = {
    ColumnType.TINY: "TINYINT", ColumnType.SHORT: "SMALLINT", ColumnType.INT24: "MEDIUMINT", ColumnType.LONG: "INT",
    ColumnType.LONGLONG: "BIGINT",
    ColumnType.FLOAT: "FLOAT", ColumnType.DOUBLE: "DOUBLE", ColumnType.NEWDECIMAL: "DECIMAL", ColumnType.BIT: "BIT",
    ColumnType.YEAR: "YEAR",
    ColumnType.DATE: "DATE", ColumnType.NEWDATE: "DATE", ColumnType.TIME: "TIME", ColumnType.TIME2: "TIME",
    ColumnType.DATETIME: "DATETIME",
    ColumnType.DATETIME2: "DATETIME", ColumnType.TIMESTAMP: "TIMESTAMP", ColumnType.TIMESTAMP2: "TIMESTAMP",
    ColumnType.ENUM: "ENUM",
    ColumnType.SET: "SET", ColumnType.JSON: "JSON", ColumnType.VECTOR: "VECTOR",
}  # fmt: skip
_GEOMETRIES = (
    "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip
_TEXTS = {1: "TINYTEXT", 2: "TEXT", 3: "MEDIUMTEXT", 4: "LONGTEXT"}
_BYTES = {1: "TINYBLOB", 2: "BLOB", 3: "MEDIUMBLOB", 4: "LONGBLOB"}


def described(given: TableMap, known: tuple[TableDefinition, ...]) -> TableDefinition:
    """Return the definition from a map that names its columns.

    Properties that a map lacks (a column's default, its comment, the spelling of its type) come from the first of
    `known` in which a column of that name fits the map.
    """
    assert given.names is not None
    found = []
    for place, name in enumerate(given.names):
        fitting = (
            column
            for table in known
            for column in table.columns
            if column.name == name and not _column_misfit(column, given, place, False)
        )
        nullable = given.nullable[place]
        found.append(replace(next(fitting, None) or _of_map(given, place, name), nullable=nullable))
    base = next(iter(known), None)
    key = tuple(given.names[place] for place, _ in given.key or ())
    if base is None:
        return TableDefinition(given.database, given.table, tuple(found), key)
    shown = {column.name for column in base.columns}
    visible = tuple(column for column in found if column.name in shown or not _is_hidden(column.name, base))
    names = {column.name for column in visible}
    unique = tuple(index for index in base.unique if all(name in names for name in index.columns))
    places = [place for place, column in enumerate(found) if column.name not in names]
    befores = [place - number for number, place in enumerate(places)]
    hidden = zip((index for index, _ in base.hidden), befores, strict=False)
    base = replace(base, hidden=tuple(hidden) if len(base.hidden) == len(befores) else ())
    return replace(base, columns=visible, primary=tuple(name for name in key if name in names), unique=unique)


def _of_map(given: TableMap, place: int, name: str) -> ColumnDefinition:
    kind, meta = given.types[place], given.meta[place]
    collation = given.collations[place] if given.collations else None
    charset = None if collation is None else charset_of(collation)
    charset = None if charset == "binary" else charset
    column = ColumnDefinition(name, _WORDS.get(kind, ""), charset=charset)
    if (
        kind in (ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG)
        and given.unsigned[place]
    ):
        return replace(column, words=f"{column.words} UNSIGNED")
    if kind is ColumnType.NEWDECIMAL:
        return replace(column, length=meta >> 8, scale=meta & 255)
    if kind in (ColumnType.TIME2, ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        return replace(column, length=meta or None)
    if kind is ColumnType.BIT:
        return replace(column, length=meta)
    if kind in (ColumnType.ENUM, ColumnType.SET):
        labels = _readable_labels(given, place)
        if labels is None:
            labels = tuple(label.decode("utf-8", "replace") for label in given.labels[place] or ())
        literals = tuple("'" + label.replace("'", "''") + "'" for label in labels)
        return replace(column, labels=labels, literals=literals)
    if kind is ColumnType.GEOMETRY:
        shape = given.geometry_types[place] if given.geometry_types else None
        return replace(column, words=_GEOMETRIES[shape] if shape is not None and shape < 8 else "GEOMETRY")
    if kind in _LONG:
        return replace(column, words=(_BYTES if charset is None else _TEXTS).get(meta, "BLOB"))
    if kind in _VARIABLE or kind is ColumnType.STRING:
        short = kind is ColumnType.STRING
        words = ("BINARY" if short else "VARBINARY") if charset is None else ("CHAR" if short else "VARCHAR")
        most = 1 if charset is None else _MOST_BYTES.get(charset, 1)
        return replace(column, words=words, length=meta // most)
    return column
