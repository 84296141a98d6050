"""Declared types: name, length and scale of a column's type, as PostgreSQL's JDBC driver reports them. No I/O.

Debezium puts them into the parameters of schemas (`column.propagate.source.type`), and cuts hashes to the length. The
length is in characters for text, in decimal digits for numbers, else in characters of the longest text.
"""

from __future__ import annotations

from tailrace.columns import Column
from tailrace.events.column_plans import declared_parameters
from tailrace.events.event_settings import EventSettings

UNLIMITED = 2**31 - 1
TEXT_TYPES = frozenset(("text", "varchar", "bpchar", "char", "name"))
"""Character types to JDBC; enums, and domains over these types, are character types as well."""

_MOST_DIGITS = 131_089
_LENGTHS = {"int2": 5, "int4": 10, "oid": 10, "int8": 19, "float4": 8, "float8": 17, "bool": 1, "char": 1,
            "date": 13, "interval": 49}  # fmt: skip
_SCALES = {"float4": 8, "float8": 17}
# Lengths of the longest texts without the fraction of a second.
_CLOCKS = {"time": 8, "timetz": 14, "timestamp": 22, "timestamptz": 28}


def _base(column: Column) -> Column:
    """Return the base type of a domain, the element of an array, or the column itself."""
    if column.kind in ("domain", "array") and column.element is not None:
        return column.element
    return column


def is_text(column: Column) -> bool:
    """Return True if the column's values are text to JDBC: a mask replaces such values."""
    base = _base(column) if column.kind == "domain" else column
    return base.kind == "enum" or (base.kind == "base" and base.type_name in TEXT_TYPES)


def length(column: Column) -> int:
    """Return the length of the column's type; UNLIMITED if it has none."""
    base = _base(column)
    modifier = column.modifier if column.kind == "array" and base.modifier < 0 else base.modifier
    name = base.type_name
    if name in ("varchar", "bpchar"):
        return modifier - 4 if modifier >= 4 else UNLIMITED
    if name == "numeric":
        return (modifier - 4) >> 16 & 0xFFFF if modifier >= 4 else _MOST_DIGITS
    if name in ("bit", "varbit"):
        return modifier if modifier > 0 else (1 if name == "bit" else UNLIMITED)
    if name in _CLOCKS:
        # For a precision of 1, the JDBC driver counts two digits.
        digits = {-1: 6, 1: 2}.get(modifier, modifier)
        return _CLOCKS[name] + (digits + 1 if digits else 0)
    return _LENGTHS.get(name, UNLIMITED)


def scale(column: Column) -> int:
    """Return the number of digits after the decimal point, also of a second's fraction."""
    base = _base(column)
    modifier = column.modifier if column.kind == "array" and base.modifier < 0 else base.modifier
    if base.type_name == "numeric":
        return ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400 if modifier >= 4 else 0
    if base.type_name in _CLOCKS:
        return 6 if modifier < 0 else modifier
    if base.type_name == "interval":
        return 6 if modifier < 0 or modifier & 0xFFFF == 0xFFFF else modifier & 0xFFFF
    return _SCALES.get(base.type_name, 0)


def parameters(column: Column, settings: EventSettings) -> tuple[tuple[str, str], ...]:
    """Return the schema parameters for the column's type in the database; the 1.7 format leaves out its name."""
    return declared_parameters(column, settings, column.type_name, length(column), scale(column))
