"""Keys of tables in SQL: reading, writing and comparing them in the server's order.

A key is kept as texts: numbers and times as the server prints them, and text and binary columns as hexadecimal digits
of their bytes in the column's character set. So values are not converted, and the column's collation compares them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.columns.table import Column, TableSchema
from tailrace.connectors.binlog.schema.texts import text_of
from tailrace.errors import DecodeError

Key = tuple[str, ...]
"""The texts of a key's columns, or of its first columns only, which stand for all rows with these values."""

_WHOLE = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
_NUMBERS = (*_WHOLE, "decimal", "numeric")
_PLACES = ("enum", "set", "year")
_TIMES = ("date", "datetime", "timestamp", "time")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_PRINTED = ("uuid", "inet4", "inet6")
_SYNONYMS = {
    "integer": "int", "int4": "int", "int8": "bigint", "int2": "smallint", "int1": "tinyint", "int3": "mediumint",
    "middleint": "mediumint", "bool": "tinyint", "boolean": "tinyint", "dec": "decimal", "numeric": "decimal",
    "fixed": "decimal", "real": "double", "float8": "double", "float4": "float", "character": "char", "nchar": "char",
    "national": "char", "nvarchar": "varchar", "long": "mediumtext", "serial": "bigint",
    "geomcollection": "geometrycollection",
}  # fmt: skip
_CHARSET = re.compile(r" character set (\w+)$")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_DOUBLE = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
_HEX, _DIGITS = re.compile(r"([0-9A-F]{2})*"), re.compile(r"([0-9a-f]{2})*")


def quoted(name: str) -> str:
    """Return the name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def qualified(table: TableSchema) -> str:
    return f"{quoted(table.id.schema)}.{quoted(table.id.table)}"


def literal(text: str) -> str:
    """Return the text as an SQL literal that does not depend on sql_mode."""
    return f"_utf8mb4 x'{text.encode().hex()}'" if text else "''"


def base(column: Column) -> str:
    """Return the server's name of the column's type, without length, sign or character set."""
    found = re.split(r"[( ]", column.type_name.lower(), maxsplit=1)[0]
    return _SYNONYMS.get(found, found)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key: its name, its type, and the character set of its texts ("": none or unknown)."""

    name: str
    type: str
    charset: str = ""

    @classmethod
    def of(cls, column: Column) -> KeyColumn | None:
        """Return the KeyColumn of a column; None for a type by which a table cannot be divided."""
        kind = base(column)
        if kind not in (*_NUMBERS, *_PLACES, *_TIMES, *_BYTES, *_TEXTS, *_PRINTED, "float", "double", "bit"):
            return None
        found = _CHARSET.search(column.type_name)
        return cls(column.name, kind, found[1] if found else "")

    @property
    def is_whole(self) -> bool:
        """True for integers."""
        return self.type in _WHOLE

    def read(self, alias: str = "") -> str:
        """Return the expression of the column's text."""
        column = alias + quoted(self.name)
        if self.type in (*_PLACES, "bit"):
            return f"{column} + 0"
        if self.type in ("float", "double"):
            return f"{column} + 0e0"
        if self.type in _BYTES:
            return f"hex({column})"
        if self.type in _TEXTS:
            return f"hex({column})" if self.charset else f"hex(convert({column} using utf8mb4))"
        return column

    def ordered(self) -> str:
        """Return an expression whose comparison follows the column's sort order. If it is the bare column, an index is
        used."""
        # comparisons of labels are of texts, and literals of years with one or two digits are converted
        return f"({quoted(self.name)} + 0)" if self.type in _PLACES else quoted(self.name)

    def shown(self, text: str) -> str:
        """Return a key's text as notifications show it."""
        if self.type not in _TEXTS:
            return text
        try:
            return text_of(bytes.fromhex(text), self.charset or "utf8mb4").decode()
        except DecodeError:
            return text

    def written(self, text: str) -> str:
        """Return a key's text as a literal. Raises ValueError for a text that the column cannot have."""
        if self.type in (*_NUMBERS, *_PLACES, "bit"):
            return _checked(_NUMBER, text)
        if self.type in ("float", "double"):
            return _checked(_DOUBLE, text) + ("" if "e" in text else "e0")
        if self.type in _BYTES:
            return f"x'{_checked(_HEX, text)}'"
        if self.type in _TEXTS:
            return f"_{self.charset or 'utf8mb4'} x'{_checked(_HEX, text)}'"
        return literal(text)

    def logged(self, text: bytes) -> str:
        """Return a literal that equals the column's value, from the text of the value in the log."""
        shown = text.decode("utf-8", "surrogateescape")
        if self.type == "bit":
            return str(int(shown[2:] or "0", 16))
        if self.type in _BYTES:
            return f"x'{_checked(_DIGITS, shown[2:])}'"
        if self.type in (*_NUMBERS, "year"):
            return _checked(_NUMBER, shown)
        if self.type == "float":
            return self.written(_shortest(float(np.float32(shown))))
        if self.type == "double":
            return self.written(_shortest(float(shown)))
        return f"_utf8mb4 x'{text.hex()}'"

    def equal(self) -> str:
        """Return the expression to compare with a literal of `logged`."""
        return f"({quoted(self.name)} + 0)" if self.type == "year" else quoted(self.name)


def _shortest(value: float) -> str:
    return repr(value).replace("e+", "e")


def _checked(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError("a key in the checkpoint is none of its column")
    return text


def key_columns(table: TableSchema, names: Sequence[str]) -> tuple[KeyColumn, ...]:
    """Return the columns `names` of a table; () if the table cannot be divided by one of them."""
    found = [KeyColumn.of(table.columns[table.index(name)]) for name in names]
    return tuple(one for one in found if one is not None) if all(found) else ()


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with keys after `after`, up to and including `upto`; None: no bound. A bound may lack the last columns."""

    after: Key | None = None
    upto: Key | None = None


def compared(columns: Sequence[KeyColumn], operator: str, key: Key) -> str:
    """Return the condition that a row's key is greater than `key` (`operator` is `>`), or not (`<=`).

    Columns are compared one after another, since servers use no index for a comparison of rows. Columns that `key`
    lacks are ignored.
    """
    found = ""
    for column, text in reversed(list(zip(columns, key, strict=False))):
        name, value = column.ordered(), column.written(text)
        if not found:
            found = f"{name} {operator} {value}"
        else:
            found = f"({name} {operator[0]} {value} or ({name} = {value} and {found}))"
    if len(key) > 1:
        first, value = columns[0].ordered(), columns[0].written(key[0])
        found = f"({first} {operator[0]}= {value} and {found})"
    return found


def within(columns: Sequence[KeyColumn], rows: KeyRange) -> list[str]:
    """Return the conditions for the rows of a range."""
    bounds = ((">", rows.after), ("<=", rows.upto))
    return [compared(columns, operator, key) for operator, key in bounds if key is not None]


def sorting(columns: Sequence[KeyColumn], direction: str = "") -> str:
    """Return the list of an `order by`."""
    return ", ".join(f"{quoted(column.name)}{direction}" for column in columns)


def where(conditions: Sequence[str]) -> str:
    return f" where {' and '.join(conditions)}" if conditions else ""
