"""Declared types: the JDBC type, name, length and scale of a column's type in SQL Server's JDBC driver.

Debezium puts them into the parameters of schemas (`column.propagate.source.type`) and into schema changes, and uses
them for masks and hashes. The driver calls `sp_columns_100` and translates ODBC's type codes into java.sql.Types: xml
becomes a long text, and a CLR type becomes bytes.
"""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.connectors.sqlserver.values.declaration import DECIMALS, FRACTIONS, SIZED, UNSIZED, precision_and_scale
from tailrace.events.column_plans import declared_parameters
from tailrace.events.event_settings import EventSettings

UNLIMITED = 2**31 - 1
_JDBC = {
    "bit": -7, "tinyint": -6, "smallint": 5, "int": 4, "bigint": -5, "decimal": 3, "numeric": 2, "money": 3,
    "smallmoney": 3, "float": 8, "real": 7, "date": 91, "time": 92, "datetime": 93, "smalldatetime": 93,
    "datetime2": 93, "datetimeoffset": -155, "char": 1, "varchar": 12, "text": -1, "nchar": -15, "nvarchar": -9,
    "ntext": -16, "xml": -16, "uniqueidentifier": 1, "binary": -2, "varbinary": -3, "image": -4, "timestamp": -2,
    "rowversion": -2, "hierarchyid": -3, "geometry": -3, "geography": -3, "sql_variant": -150,
}  # fmt: skip
_TEXTS = frozenset((1, 12, -1, -15, -9, -16))
_LENGTHS = {
    "bit": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19, "money": 19, "smallmoney": 10, "float": 53,
    "real": 24, "date": 10, "datetime": 23, "smalldatetime": 16, "text": UNLIMITED, "ntext": 2**30 - 1,
    "xml": UNLIMITED, "uniqueidentifier": 36, "image": UNLIMITED, "timestamp": 8, "rowversion": 8,
    "hierarchyid": 892, "geometry": UNLIMITED, "geography": UNLIMITED, "sql_variant": 8000,
}  # fmt: skip
_SCALES = {
    "tinyint": 0, "smallint": 0, "int": 0, "bigint": 0, "money": 4, "smallmoney": 4, "datetime": 3,
    "smalldatetime": 0,
}  # fmt: skip
# Lengths without the fraction of a second.
_CLOCKS = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


def jdbc_type(column: Column) -> int:
    """Return the code of java.sql.Types, or Microsoft's own; 1111 (OTHER) for an unknown type."""
    return _JDBC.get(column.type_name, 1111)


def type_name(column: Column) -> str:
    """Return the type's name, with `identity` for an identity column."""
    return f"{column.type_name} identity" if column.identity else column.type_name


def is_text(column: Column) -> bool:
    """Return True if JDBC treats the column's values as text, which a mask replaces."""
    return jdbc_type(column) in _TEXTS


def length(column: Column) -> int:
    """Return the length of the column's type: characters of text, digits of numbers, bytes."""
    name, declared = column.type_name, column.modifier
    if name in DECIMALS:
        return precision_and_scale(declared)[0]
    if name in FRACTIONS:
        return _CLOCKS[name] + (declared + 1 if declared > 0 else 0)
    if name in SIZED:
        return UNLIMITED if declared == UNSIZED else declared
    return _LENGTHS.get(name, UNLIMITED)


def scale(column: Column) -> int | None:
    """Return the digits after the point, or of a second's fraction; None if the type has none."""
    if column.type_name in DECIMALS:
        return precision_and_scale(column.modifier)[1]
    if column.type_name in FRACTIONS:
        return column.modifier
    return _SCALES.get(column.type_name)


def parameters(column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
    """Return the schema parameters for the column's type in the database; the 1.0 format leaves out its name."""
    return declared_parameters(column, settings, type_name(column), length(column), scale(column))
