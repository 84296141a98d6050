"""Conversions of PostgreSQL's types as in Debezium: logical type, conversion, default and zero value. No I/O."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tailrace.columns import Column, TableSchema
from tailrace.columns.logical import DOUBLE, STRING, LogicalType, array
from tailrace.connectors.postgres.values import declared_types, plain, temporal
from tailrace.connectors.postgres.values.composites import composite
from tailrace.connectors.postgres.values.defaults import default_value
from tailrace.events.column_plans import Types, key_columns, shown_columns
from tailrace.events.event_settings import EventSettings
from tailrace.values import binaries, booleans, decimals, floats, geometry, integers, lists, maps, strings
from tailrace.values.conversion import ColumnPlan, Conversion
from tailrace.values.dates import DATE
from tailrace.values.json_text import dumps
from tailrace.values.preparation import PreparedFamily

# Types shown as the server's text, a string without a semantic name.
_STRINGS = frozenset(
    ("text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr", "macaddr8",
     "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
)  # fmt: skip
_ISN = frozenset(("isbn", "isbn13", "ean13", "issn", "issn13", "ismn", "ismn13", "upc"))
_NAMED_STRINGS = {
    "json": strings.JSON, "jsonb": strings.JSON, "xml": strings.XML, "ltree": strings.LTREE, "uuid": strings.UUID
}  # fmt: skip
_INTEGERS = {"int2": 16, "int4": 32, "int8": 64, "oid": 64}
_GEOMETRIC = frozenset(("line", "lseg", "box", "path", "polygon", "circle"))
# Arrays of these have no mapping in Debezium, so they count as unknown types.
_NO_ARRAYS = frozenset(("money", "name", "interval", "varbit", "xml", "point", "refcursor"))
# Elements that, like those of enums, may not be null: an array with a NULL cannot be converted.
_SURE_ELEMENTS = _ISN | {"tsvector", "vector", "halfvec", "sparsevec"}
# The catalog's own arrays of one dimension, without braces and without NULLs.
_PLAIN_VECTORS = frozenset(("oidvector", "int2vector"))
_NO_LEGACY_ARRAYS = frozenset(("bytea",))
# Delimiters of the elements in an array's text, if not a comma (typdelim in the catalog).
_DELIMITERS = {"box": ";", "geometry": ":", "geography": ":"}
_NIL_UUID = "00000000-0000-0000-0000-000000000000"


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """Return the conversion of a column's values; None for a type unknown to Debezium, unless unknown types are
    included."""
    known = _known(column, settings)
    if known is not None or not settings.include_unknown_datatypes:
        return known
    if column.kind != "array":
        return _opaque(column, settings)
    element = column.element
    if element is None or (element.kind != "domain" and _known(element, settings) is not None):
        # An array without a mapping, although its elements' type has one, is left out.
        return None
    of = _opaque(element, settings)
    return _list_of(array(of.logical), of, element, nulls=False)


def _known(column: Column, settings: EventSettings) -> Conversion | None:
    if column.kind == "domain":
        return _known(column.element, settings) if column.element is not None else None
    if column.kind == "enum":
        return _string(strings.enumeration(column.enum_labels), settings)
    if column.kind == "array":
        return _array(column, settings)
    if column.kind == "composite":
        return _composite(column, settings)
    name = column.type_name
    if name in _INTEGERS:
        return integers.integer(_INTEGERS[name])
    if name in _STRINGS or (name in _ISN and not settings.legacy):
        return _string(STRING, settings)
    if name in _NAMED_STRINGS:
        zero = {"uuid": _NIL_UUID, "json": "{}", "jsonb": "{}"}.get(name, "")
        return replace(_string(_NAMED_STRINGS[name], settings, zero), missing="")
    special = _SPECIAL.get(name)
    return special(column, settings) if special is not None else None


def _composite(column: Column, settings: EventSettings) -> Conversion | None:
    """Return the conversion of a composite type for typed rows; else None: Debezium does not know such types."""
    if settings.typed is None or not column.fields:
        return None
    return composite([(attribute.name, _known(attribute, settings)) for attribute in column.fields])


def _string(schema: LogicalType, settings: EventSettings, zero: str = "") -> Conversion:
    return strings.text(schema, zero, settings.placeholder.decode("utf-8", "replace"))


def _numeric(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.decimal_handling_mode
    precision, scale = (None, None) if column.modifier < 4 else plain.precision_and_scale(column.modifier)
    if mode == "string":
        if settings.legacy:
            return decimals.as_scientific_text()
        return decimals.as_text(scale, settings.placeholder.decode("utf-8", "replace"))
    if mode == "double":
        return decimals.as_double()
    return decimals.variable() if scale is None else decimals.fixed(scale, precision)


def _money(column: Column, settings: EventSettings) -> Conversion:
    # In the 1.7 format money is a Decimal under any decimal.handling.mode.
    mode = "precise" if settings.legacy else settings.decimal_handling_mode
    if mode == "string":
        zero = decimals.zero_text(settings.money_fraction_digits)
        return Conversion(STRING, plain.money_digits, PreparedFamily(plain.money_numbers, strings.STRINGS), zero=zero)
    if mode == "double":

        def double(value: str) -> float:
            return float(plain.money_digits(value))

        return Conversion(DOUBLE, double, PreparedFamily(plain.money_doubles, floats.DOUBLES), zero=0.0)
    fixed = decimals.fixed(settings.money_fraction_digits, None)

    def precise(value: str) -> Any:
        return fixed.plain(plain.money_digits(value))

    return replace(fixed, plain=precise, family=PreparedFamily(plain.money_numbers, fixed.family))


def _bytea(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.binary_handling_mode
    # In format 3 hexadecimal is text, and so is its placeholder.
    if mode == "hex" and not settings.legacy:
        return binaries.binary(mode, settings.placeholder.decode("utf-8", "replace"))
    return binaries.binary(mode, binaries.binary_text(mode)(settings.placeholder))


def _opaque(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.binary_handling_mode
    shown = binaries.binary_text(mode)
    base = column.element if column.kind == "domain" and column.element is not None else column
    geometric = base.kind == "base" and base.type_name in _GEOMETRIC

    def convert(text: str) -> str:
        return shown(plain.geometric_bytes(text) if geometric else text.encode())

    return Conversion(binaries.binary_type(mode), convert, zero="", unavailable=shown(settings.placeholder))


def _bits(column: Column, settings: EventSettings) -> Conversion:
    if column.type_name == "bit" and column.modifier in (-1, 1):
        return booleans.single_bit()
    return booleans.bits(column.modifier if column.modifier > 0 else 2**31 - 1)


def _hstore(column: Column, settings: EventSettings) -> Conversion:
    placeholder = settings.placeholder.decode("utf-8", "replace")
    if settings.hstore_handling_mode == "map":
        return maps.hstore_map({placeholder: placeholder})
    return maps.hstore_text(placeholder if settings.legacy else dumps({placeholder: placeholder}))


def _since_v3(conversion: Callable[[], Conversion]) -> Callable[[Column, EventSettings], Conversion | None]:
    """Return the conversion function of a type that the 1.7 format does not know."""
    return lambda column, settings: None if settings.legacy else conversion()


def _tsvector(column: Column, settings: EventSettings) -> Conversion | None:
    return None if settings.legacy else _string(strings.TSVECTOR, settings)


def _array(column: Column, settings: EventSettings) -> Conversion | None:
    element = column.element
    if element is None:
        return None
    if element.kind == "base" and element.type_name in _NO_ARRAYS:
        return None
    if settings.legacy and element.type_name in _NO_LEGACY_ARRAYS:
        return None
    if element.modifier == -1 and column.modifier != -1:
        element = replace(element, modifier=column.modifier)
    if settings.legacy and element.type_name == "time":
        # In the 1.7 format times in arrays are in µs, under any precision and time.precision.mode.
        element, settings = replace(element, modifier=-1), replace(settings, time_precision_mode="adaptive")
    of = _known(element, settings)
    if of is None or element.kind == "domain":
        return None
    if column.type_name in _PLAIN_VECTORS:
        return Conversion(array(of.logical), plain.vector_of(of.plain), zero=[])
    nulls = element.kind != "enum" and element.type_name not in _SURE_ELEMENTS
    schema = array(of.logical.with_optional(nulls))
    unavailable = None if settings.legacy else _unavailable_array(element, of, settings)
    return _list_of(schema, of, element, nulls, unavailable)


def _list_of(
    schema: LogicalType, of: Conversion, element: Column, nulls: bool, unavailable: list[Any] | None = None
) -> Conversion:
    """Return the conversion of an array of elements that `of` converts; `nulls`: elements may be null."""
    base = element.element if element.kind == "domain" and element.element is not None else element
    return lists.list_of(schema, of, _DELIMITERS.get(base.type_name, ","), nulls, unavailable)


def _signed(data: bytes) -> list[int]:
    """Return bytes as Java's numbers, -128 to 127."""
    return [(value ^ 0x80) - 0x80 for value in data]


def _unavailable_array(element: Column, of: Conversion, settings: EventSettings) -> list[Any] | None:
    name = element.type_name
    if name in ("int2", "int4", "int8", "oid"):
        return _signed(settings.placeholder)
    if name == "date" and of.logical == DATE:
        return _signed(settings.placeholder)
    if name == "bytea":
        return [binaries.binary_text(settings.binary_handling_mode)(settings.placeholder)]
    if name == "uuid":
        digest = hashlib.md5(settings.placeholder, usedforsecurity=False).digest()
        return [str(uuid.UUID(bytes=digest, version=3))]
    if element.kind == "base" and (name in _STRINGS or name in _NAMED_STRINGS):
        return [settings.placeholder.decode("utf-8", "replace")]
    return None


_SPECIAL: dict[str, Callable[[Column, EventSettings], Conversion | None]] = {
    "bool": lambda column, settings: booleans.boolean_type(),
    "float4": lambda column, settings: floats.floating(True),
    "float8": lambda column, settings: floats.floating(False),
    "numeric": _numeric,
    "money": _money,
    "bytea": _bytea,
    "bit": _bits,
    "varbit": _bits,
    "date": temporal.date,
    "time": temporal.time,
    "timetz": temporal.timetz,
    "timestamp": temporal.timestamp,
    "timestamptz": temporal.timestamptz,
    "interval": temporal.interval,
    "hstore": _hstore,
    "tsvector": _tsvector,
    "point": lambda column, settings: geometry.point_type(),
    "geometry": lambda column, settings: geometry.geometry_type(geometry.GEOMETRY),
    "geography": lambda column, settings: geometry.geometry_type(geometry.GEOGRAPHY),
    "vector": _since_v3(lambda: lists.vector(False)),
    "halfvec": _since_v3(lambda: lists.vector(True)),
    "sparsevec": _since_v3(maps.sparse),
}


def _optional(column: Column) -> bool:
    not_null_domain = column.kind == "domain" and column.element is not None and not column.element.nullable
    return column.nullable and not not_null_domain


TYPES = Types(conversion, default_value, _optional, declared_types)


@lru_cache(maxsize=512)
def plan_columns(table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """Return the columns that events show, in the table's order, and the names of columns left out as unknown."""
    return shown_columns(table, settings, TYPES)


def plan_key(table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
    """Return the columns of the key in the key's order; options about columns do not apply to a key."""
    return key_columns(table, settings, TYPES)
