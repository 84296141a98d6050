"""PostgreSQL's types as Debezium shows them: each column's logical type, conversion, default and zero value."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tailrace.columns import Column, TableSchema
from tailrace.columns import logical as lt
from tailrace.columns.logical import LogicalType
from tailrace.connectors.postgres.values import declared, plain, temporal
from tailrace.connectors.postgres.values.defaults import default_value
from tailrace.events.plans import Types, key_columns, shown_columns
from tailrace.events.settings import EventSettings
from tailrace.serde import scalar
from tailrace.serde.conversion import ColumnPlan, Conversion, Elements, Kernel, Prepare
from tailrace.serde.json_text import dumps

# Types that are a string without a semantic name, as the server writes them.
_STRINGS = frozenset(
    ("text", "varchar", "bpchar", "char", "name", "citext", "inet", "cidr", "macaddr", "macaddr8",
     "int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
)  # fmt: skip
_ISN = frozenset(("isbn", "isbn13", "ean13", "issn", "issn13", "ismn", "ismn13", "upc"))
_NAMED_STRINGS = {"json": lt.JSON, "jsonb": lt.JSON, "xml": lt.XML, "ltree": lt.LTREE, "uuid": lt.UUID}
_INTEGERS = {"int2": lt.INT16, "int4": lt.INT32, "int8": lt.INT64, "oid": lt.INT64}
_GEOMETRIC = frozenset(("line", "lseg", "box", "path", "polygon", "circle"))
# Arrays of these have no mapping in the reference, so they count as unknown types.
_NO_ARRAYS = frozenset(("money", "name", "interval", "varbit", "xml", "point", "refcursor"))
# Elements that may not be null, with enums; a NULL among them makes the array one that cannot be converted.
_SURE_ELEMENTS = _ISN | {"tsvector", "vector", "halfvec", "sparsevec"}
# The catalog's own arrays of one dimension, without braces and without NULLs.
_PLAIN_VECTORS = frozenset(("oidvector", "int2vector"))
_NO_LEGACY_ARRAYS = frozenset(("bytea",))
# What parts the elements in an array's text, where it is no comma (typdelim in the catalog).
_DELIMITERS = {"box": ";", "geometry": ":", "geography": ":"}
_NIL_UUID = "00000000-0000-0000-0000-000000000000"


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """How a column's values are shown; None for a type that Debezium does not know and that is not included."""
    known = _known(column, settings)
    if known is not None or not settings.include_unknown_datatypes:
        return known
    if column.kind != "array":
        return _opaque(column, settings)
    element = column.element
    if element is None or (element.kind != "domain" and _known(element, settings) is not None):
        # An array of a known type that has no mapping of its own stays out.
        return None
    of = _opaque(element, settings)
    return _list_of(lt.array(of.logical), of, element, nulls=False)


def _known(column: Column, settings: EventSettings) -> Conversion | None:
    if column.kind == "domain":
        return _known(column.element, settings) if column.element is not None else None
    if column.kind == "enum":
        return _string(lt.enumeration(column.enum_labels), settings)
    if column.kind == "array":
        return _array(column, settings)
    if column.kind == "composite":
        return None
    name = column.type_name
    if name in _INTEGERS:
        return Conversion(_INTEGERS[name], scalar.number, Kernel.VERBATIM, zero=0)
    if name in _STRINGS or (name in _ISN and not settings.legacy):
        return _string(lt.STRING, settings)
    if name in _NAMED_STRINGS:
        zero = {"uuid": _NIL_UUID, "json": "{}", "jsonb": "{}"}.get(name, "")
        return replace(_string(_NAMED_STRINGS[name], settings, zero), missing="")
    special = _SPECIAL.get(name)
    return special(column, settings) if special is not None else None


def _string(schema: LogicalType, settings: EventSettings, zero: str = "") -> Conversion:
    placeholder = settings.placeholder.decode("utf-8", "replace")
    return Conversion(schema, scalar.string, Kernel.STRING, zero=zero, unavailable=placeholder)


def _boolean(column: Column, settings: EventSettings) -> Conversion:
    return Conversion(lt.BOOLEAN, scalar.boolean, Kernel.BOOLEAN, zero=False)


def _float(single: bool) -> Callable[[Column, EventSettings], Conversion]:
    schema = lt.FLOAT if single else lt.DOUBLE

    def build(column: Column, settings: EventSettings) -> Conversion:
        return Conversion(schema, scalar.floating(single), Kernel.FLOATING, int(single), zero=0.0)

    return build


def _numeric(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.decimal_handling_mode
    if mode == "string" and settings.legacy:
        return Conversion(lt.STRING, scalar.decimal_scientific, Kernel.PLAIN, zero="")
    if mode == "string":
        return Conversion(lt.STRING, scalar.decimal_text, Kernel.DECIMAL_TEXT, zero="")
    if mode == "double":
        return Conversion(lt.DOUBLE, scalar.decimal_double, Kernel.FLOATING, prepare=Prepare.DOUBLE, zero=0.0)
    if column.modifier < 4:
        zero = {"scale": 0, "value": "AA=="}
        return Conversion(lt.VARIABLE_DECIMAL, scalar.variable_decimal, Kernel.VARIABLE_DECIMAL, zero=zero)
    precision, scale = plain.precision_and_scale(column.modifier)
    schema = lt.decimal(scale, precision)
    return Conversion(schema, scalar.fixed_decimal(scale), Kernel.DECIMAL, scale, zero="AA==")


def _money(column: Column, settings: EventSettings) -> Conversion:
    # In the 1.7 form money is a Decimal whatever decimal.handling.mode says.
    mode = "precise" if settings.legacy else settings.decimal_handling_mode
    scale = settings.money_fraction_digits
    if mode == "string":

        def text(value: str) -> str:
            return plain.money_digits(value)

        return Conversion(lt.STRING, text, Kernel.STRING, prepare=Prepare.MONEY, zero="")
    if mode == "double":

        def double(value: str) -> float:
            return float(plain.money_digits(value))

        return Conversion(lt.DOUBLE, double, Kernel.FLOATING, prepare=Prepare.MONEY_DOUBLE, zero=0.0)
    fixed = scalar.fixed_decimal(scale)

    def precise(value: str) -> str | None:
        return fixed(plain.money_digits(value))

    return Conversion(lt.decimal(scale, None), precise, Kernel.DECIMAL, scale, Prepare.MONEY, zero="AA==")


def _bytea(column: Column, settings: EventSettings) -> Conversion:
    shown = scalar.binary_text(settings.binary_handling_mode)
    schema = lt.BYTES if settings.binary_handling_mode == "bytes" else lt.STRING
    argument = {"base64-url-safe": 1, "hex": 2}.get(settings.binary_handling_mode, 0)

    def convert(text: str) -> str:
        return shown(scalar.hexadecimal(text))

    # Hexadecimal is text to consumers of today's format, and so is its placeholder.
    as_text = settings.binary_handling_mode == "hex" and not settings.legacy
    unavailable = settings.placeholder.decode("utf-8", "replace") if as_text else shown(settings.placeholder)
    return Conversion(schema, convert, Kernel.BINARY, argument, zero="", unavailable=unavailable)


def _opaque(column: Column, settings: EventSettings) -> Conversion:
    shown = scalar.binary_text(settings.binary_handling_mode)
    schema = lt.BYTES if settings.binary_handling_mode == "bytes" else lt.STRING
    base = column.element if column.kind == "domain" and column.element is not None else column
    geometric = base.kind == "base" and base.type_name in _GEOMETRIC

    def convert(text: str) -> str:
        return shown(plain.geometric_bytes(text) if geometric else text.encode())

    return Conversion(schema, convert, Kernel.PLAIN, zero="", unavailable=shown(settings.placeholder))


def _bits(column: Column, settings: EventSettings) -> Conversion:
    if column.type_name == "bit" and column.modifier in (-1, 1):
        return Conversion(lt.BOOLEAN, plain.bit, Kernel.BITS, 1, zero=False)
    length = column.modifier if column.modifier > 0 else 2**31 - 1
    return Conversion(lt.bits(length), plain.bit_string, Kernel.BITS, zero="")


def _hstore(column: Column, settings: EventSettings) -> Conversion:
    placeholder = settings.placeholder.decode("utf-8", "replace")
    if settings.hstore_handling_mode == "map":
        schema = LogicalType("map", items=lt.STRING.with_optional(True))
        return Conversion(schema, plain.hstore, Kernel.PLAIN, zero={}, unavailable={placeholder: placeholder})
    unavailable = placeholder if settings.legacy else dumps({placeholder: placeholder})
    return Conversion(lt.JSON, plain.hstore_json, Kernel.PLAIN, zero="{}", unavailable=unavailable)


def _tsvector(column: Column, settings: EventSettings) -> Conversion | None:
    return None if settings.legacy else _string(lt.TSVECTOR, settings)


def _point(column: Column, settings: EventSettings) -> Conversion:
    parts = Elements(Conversion(lt.DOUBLE, scalar.floating(False), Kernel.FLOATING), "(", ")")
    return Conversion(lt.POINT, plain.point, Kernel.POINT, zero=plain.point("(0,0)"), elements=parts)


def _geometry(schema: LogicalType) -> Callable[[Column, EventSettings], Conversion]:
    empty = "010700000000000000"
    return lambda column, settings: Conversion(schema, plain.geometry, Kernel.PLAIN, zero=plain.geometry(empty))


def _vector(schema: LogicalType, single: bool) -> Callable[[Column, EventSettings], Conversion | None]:
    def build(column: Column, settings: EventSettings) -> Conversion | None:
        if settings.legacy:
            return None
        element = lt.FLOAT if single else lt.DOUBLE
        parts = Elements(Conversion(element, scalar.floating(single), Kernel.FLOATING, int(single)), "[", "]")
        return Conversion(schema, plain.vector(single), Kernel.LIST, zero=[], elements=parts)

    return build


def _sparse_vector(column: Column, settings: EventSettings) -> Conversion | None:
    if settings.legacy:
        return None
    return Conversion(lt.SPARSE_VECTOR, plain.sparse_vector, Kernel.PLAIN, zero={"dimensions": 0, "vector": []})


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
        # The 1.7 form has times in arrays in µs, whatever their precision and time.precision.mode are.
        element, settings = replace(element, modifier=-1), replace(settings, time_precision_mode="adaptive")
    of = _known(element, settings)
    if of is None or element.kind == "domain":
        return None
    if column.type_name in _PLAIN_VECTORS:
        return Conversion(lt.array(of.logical), plain.vector_of(of.plain), Kernel.PLAIN, zero=[])
    nulls = element.kind != "enum" and element.type_name not in _SURE_ELEMENTS
    schema = lt.array(of.logical.with_optional(nulls))
    unavailable = None if settings.legacy else _unavailable_array(element, of, settings)
    return _list_of(schema, of, element, nulls, unavailable)


def _list_of(
    schema: LogicalType, of: Conversion, element: Column, nulls: bool, unavailable: list[Any] | None = None
) -> Conversion:
    """An array of what `of` converts, `nulls` among it or not."""
    base = element.element if element.kind == "domain" and element.element is not None else element
    delimiter = _DELIMITERS.get(base.type_name, ",")
    convert = plain.array_of(of.plain, nulls, delimiter)
    elements = Elements(of, delimiter=delimiter, nulls=nulls)
    return Conversion(schema, convert, Kernel.LIST, zero=[], unavailable=unavailable, elements=elements)


def _signed(data: bytes) -> list[int]:
    """Bytes as numbers, as Java has them: -128 to 127."""
    return [(value ^ 0x80) - 0x80 for value in data]


def _unavailable_array(element: Column, of: Conversion, settings: EventSettings) -> list[Any] | None:
    name = element.type_name
    if name in ("int2", "int4", "int8", "oid"):
        return _signed(settings.placeholder)
    if name == "date" and of.logical == lt.DATE:
        return _signed(settings.placeholder)
    if name == "bytea":
        return [scalar.binary_text(settings.binary_handling_mode)(settings.placeholder)]
    if name == "uuid":
        digest = hashlib.md5(settings.placeholder, usedforsecurity=False).digest()
        return [str(uuid.UUID(bytes=digest, version=3))]
    if element.kind == "base" and (name in _STRINGS or name in _NAMED_STRINGS):
        return [settings.placeholder.decode("utf-8", "replace")]
    return None


_SPECIAL: dict[str, Callable[[Column, EventSettings], Conversion | None]] = {
    "bool": _boolean,
    "float4": _float(True),
    "float8": _float(False),
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
    "point": _point,
    "geometry": _geometry(lt.GEOMETRY),
    "geography": _geometry(lt.GEOGRAPHY),
    "vector": _vector(lt.DOUBLE_VECTOR, False),
    "halfvec": _vector(lt.FLOAT_VECTOR, True),
    "sparsevec": _sparse_vector,
}


def _optional(column: Column) -> bool:
    not_null_domain = column.kind == "domain" and column.element is not None and not column.element.nullable
    return column.nullable and not not_null_domain


TYPES = Types(conversion, default_value, _optional, declared)


@lru_cache(maxsize=512)
def plan_columns(table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """The columns that events show, in the table's order, and the names of those left out as unknown."""
    return shown_columns(table, settings, TYPES)


def plan_key(table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
    """The columns of the key in the key's order, as they are: no option about columns shapes a key."""
    return key_columns(table, settings, TYPES)
