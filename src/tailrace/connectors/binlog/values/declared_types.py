"""Declared types of columns: name, length and scale from the statement that created the table. No I/O.

Events show them in the parameters of schemas (`column.propagate.source.type`), records of schema changes in their
columns; hashes are cut to the length. The module implements `events.column_plans.DeclaredTypes`.
"""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.binlog.schema.sql_types import TEXTS, sql_type
from tailrace.events.event_settings import EventSettings

UNLIMITED = 2**31 - 1


def is_text(column: Column) -> bool:
    """Return True for a type whose values can be masked: those of labels, too."""
    return sql_type(column).base in (*TEXTS, "enum", "set")


def type_name(column: Column) -> str:
    """Return the words of the type, in capitals."""
    return sql_type(column).words.upper()


def shown_length(column: Column) -> int | None:
    """Return the length that events show; None for a type without a declared length."""
    found = sql_type(column)
    if found.base == "enum":
        return 1
    if found.base == "set":
        return max(0, 2 * len(column.enum_labels) - 1)
    if found.base == "bit":
        return 1 if found.length is None else found.length
    if found.base == "decimal":
        return 10 if found.length is None else found.length
    return found.length


def shown_scale(column: Column) -> int | None:
    """Return the scale that events show; None for a type without one."""
    found = sql_type(column)
    return (found.scale or 0) if found.base == "decimal" else found.scale


def length(column: Column) -> int:
    """Return the length in characters; UNLIMITED without one."""
    found = shown_length(column)
    return UNLIMITED if found is None else found


def parameters(column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
    """Return the schema parameters that name the column's type."""
    size, digits = shown_length(column), shown_scale(column)
    found = {"type": type_name(column)}
    if size is not None:
        found["length"] = str(size)
    if digits is not None:
        found["scale"] = str(digits)
    found["name"] = column.name
    if settings.shaping.comments and column.comment is not None:
        found["comment"] = column.comment
    return tuple((f"__debezium.source.column.{name}", value) for name, value in found.items())


_JDBC = {
    "bit": -7, "bool": 16, "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "float": 6, "double": 8,
    "real": 7, "decimal": 3, "char": 1, "enum": 1, "set": 1, "varchar": 12, "tinytext": 12, "text": 12,
    "mediumtext": 12, "longtext": 12, "binary": -2, "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004,
    "longblob": 2004, "year": 4, "date": 91, "time": 92, "datetime": 93, "timestamp": 2014, "json": 1111,
}  # fmt: skip


def jdbc_type(column: Column) -> int:
    """Return the code of java.sql.Types."""
    found = sql_type(column)
    first = found.words.partition(" ")[0]
    if first == "numeric":
        return 2
    if first in ("nchar", "national") and found.base == "char":
        return -15
    if first in ("nvarchar", "nchar", "national"):
        return -9
    return _JDBC.get(found.base, 1111)
