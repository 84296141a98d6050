"""Declared types: the JDBC type, name, length and scale of a column's type in Db2's JDBC driver.

Debezium puts them into the parameters of schemas (`column.propagate.source.type`) and into schema changes, and uses
them for masks and hashes. `Column.type_oid` already is the code of java.sql.Types.
"""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.db2.values.declaration import DECIMALS, SIZED, TEXTS, TIMESTAMPS, UNSIZED, precision_and_scale
from tailrace.events.column_plans import declared_parameters
from tailrace.events.event_settings import EventSettings

UNLIMITED = 2**31 - 1
_LENGTHS = {
    "BOOLEAN": 1, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "REAL": 24, "DOUBLE": 53, "FLOAT": 53, "DATE": 10,
    "TIME": 8,
}  # fmt: skip
_WHOLE = frozenset(("SMALLINT", "INTEGER", "BIGINT", "TIME"))
# Lengths without the fraction of a second.
_CLOCKS = {"TIMESTAMP": 19, "TIMESTAMP WITH TIME ZONE": 25}


def jdbc_type(column: Column) -> int:
    """Return the code of java.sql.Types."""
    return column.type_oid


def type_name(column: Column) -> str:
    """Return the type's name."""
    return column.type_name


def is_text(column: Column) -> bool:
    """Return True if JDBC treats the column's values as text, which a mask replaces."""
    return column.type_name in TEXTS and column.type_name != "XML"


def length(column: Column) -> int:
    """Return the length of the column's type: characters of text, digits of numbers, bytes."""
    name, declared = column.type_name, column.modifier
    if name in DECIMALS:
        return precision_and_scale(declared)[0]
    if name in TIMESTAMPS:
        return _CLOCKS[name] + (declared + 1 if declared > 0 else 0)
    if name in SIZED or name == "DECFLOAT":
        return UNLIMITED if declared == UNSIZED else declared
    return _LENGTHS.get(name, UNLIMITED)


def scale(column: Column) -> int | None:
    """Return the digits after the point, or of a second's fraction; None if the type has none."""
    if column.type_name in DECIMALS:
        return precision_and_scale(column.modifier)[1]
    if column.type_name in TIMESTAMPS:
        return column.modifier
    return 0 if column.type_name in _WHOLE else None


def parameters(column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
    """Return the schema parameters for the column's type in the database."""
    return declared_parameters(column, settings, type_name(column), length(column), scale(column))
