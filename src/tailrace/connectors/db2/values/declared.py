"""Declared types: the JDBC type, name, length and scale of a column's type as Db2's JDBC driver names them.

Debezium puts them into the parameters of schemas (`column.propagate.source.type`) and into schema changes, and goes by
them for masks and hashes. `Column.type_oid` is the code of java.sql.Types already.
"""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.db2.values.declaration import DECIMALS, SIZED, TEXTS, TIMESTAMPS, UNSIZED, precision_and_scale
from tailrace.events.settings import EventSettings
from tailrace.events.shaped import declared_parameters

UNLIMITED = 2**31 - 1
_LENGTHS = {
    "BOOLEAN": 1, "SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "REAL": 24, "DOUBLE": 53, "FLOAT": 53, "DATE": 10,
    "TIME": 8,
}  # fmt: skip
_WHOLE = frozenset(("SMALLINT", "INTEGER", "BIGINT", "TIME"))
# Without the fraction of a second.
_CLOCKS = {"TIMESTAMP": 19, "TIMESTAMP WITH TIME ZONE": 25}


def jdbc_type(column: Column) -> int:
    """The code of java.sql.Types."""
    return column.type_oid


def type_name(column: Column) -> str:
    """The type's name."""
    return column.type_name


def is_text(column: Column) -> bool:
    """Whether the column's values are text to JDBC: those that a mask replaces."""
    return column.type_name in TEXTS and column.type_name != "XML"


def length(column: Column) -> int:
    """The length of the column's type: characters of text, digits of numbers, bytes."""
    name, declared = column.type_name, column.modifier
    if name in DECIMALS:
        return precision_and_scale(declared)[0]
    if name in TIMESTAMPS:
        return _CLOCKS[name] + (declared + 1 if declared > 0 else 0)
    if name in SIZED or name == "DECFLOAT":
        return UNLIMITED if declared == UNSIZED else declared
    return _LENGTHS.get(name, UNLIMITED)


def scale(column: Column) -> int | None:
    """The digits behind the point, or of a second's fraction; None where the type has none."""
    if column.type_name in DECIMALS:
        return precision_and_scale(column.modifier)[1]
    if column.type_name in TIMESTAMPS:
        return column.modifier
    return 0 if column.type_name in _WHOLE else None


def parameters(column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
    """The schema parameters that show the column's type in the database."""
    return declared_parameters(column, settings, type_name(column), length(column), scale(column))
