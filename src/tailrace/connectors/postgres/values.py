"""PostgreSQL's types as Debezium shows them: each column's logical type, conversion, default and zero value."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tailrace.columns import Column, TableSchema
from tailrace.columns import logical as lt
from tailrace.columns.logical import ABSENT, LogicalType
from tailrace.connectors.postgres import plain
from tailrace.connectors.postgres.defaults import default_value
from tailrace.events.names import field_name
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import ColumnPlan, Conversion, Kernel, Prepare
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
_NO_ARRAYS = frozenset(("money", "name", "interval", "varbit", "xml", "point", "refcursor", "tsvector"))
_NO_LEGACY_ARRAYS = frozenset(("bytea",))
_NIL_UUID = "00000000-0000-0000-0000-000000000000"


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """How a column's values are shown; None for a type that Debezium does not know and that is not included."""
    known = _known(column, settings)
    # The reference leaves arrays of unknown elements out even where it includes unknown types.
    if known is not None or not settings.include_unknown_datatypes or column.kind == "array":
        return known
    return _opaque(column, settings)


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
        return Conversion(_INTEGERS[name], plain.number, Kernel.VERBATIM, zero=0)
    if name in _STRINGS or (name in _ISN and not settings.legacy):
        return _string(lt.STRING, settings)
    if name in _NAMED_STRINGS:
        zero = {"uuid": _NIL_UUID, "json": "{}", "jsonb": "{}"}.get(name, "")
        return _string(_NAMED_STRINGS[name], settings, zero)
    special = _SPECIAL.get(name)
    return special(column, settings) if special is not None else None


def _string(schema: LogicalType, settings: EventSettings, zero: str = "") -> Conversion:
    placeholder = settings.placeholder.decode("utf-8", "replace")
    return Conversion(schema, plain.string, Kernel.STRING, zero=zero, unavailable=placeholder)


def _boolean(column: Column, settings: EventSettings) -> Conversion:
    return Conversion(lt.BOOLEAN, plain.boolean, Kernel.BOOLEAN, zero=False)


def _float(single: bool) -> Callable[[Column, EventSettings], Conversion]:
    schema = lt.FLOAT if single else lt.DOUBLE

    def build(column: Column, settings: EventSettings) -> Conversion:
        return Conversion(schema, plain.floating(single), Kernel.FLOATING, int(single), zero=0.0)

    return build


def precision_and_scale(modifier: int) -> tuple[int, int]:
    """The precision and scale in a numeric's modifier; scales are signed and have eleven bits."""
    packed = modifier - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def _numeric(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.decimal_handling_mode
    if mode == "string" and settings.legacy:
        return Conversion(lt.STRING, plain.decimal_scientific, Kernel.PLAIN, zero="")
    if mode == "string":
        return Conversion(lt.STRING, plain.decimal_text, Kernel.DECIMAL_TEXT, zero="")
    if mode == "double":
        return Conversion(lt.DOUBLE, plain.decimal_double, Kernel.FLOATING, prepare=Prepare.DOUBLE, zero=0.0)
    if column.modifier < 4:
        zero = {"scale": 0, "value": "AA=="}
        return Conversion(lt.VARIABLE_DECIMAL, plain.variable_decimal, Kernel.VARIABLE_DECIMAL, zero=zero)
    precision, scale = precision_and_scale(column.modifier)
    schema = lt.decimal(scale, precision)
    return Conversion(schema, plain.fixed_decimal(scale), Kernel.DECIMAL, scale, zero="AA==")


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
    fixed = plain.fixed_decimal(scale)

    def precise(value: str) -> str | None:
        return fixed(plain.money_digits(value))

    return Conversion(lt.decimal(scale, None), precise, Kernel.DECIMAL, scale, Prepare.MONEY, zero="AA==")


def _bytea(column: Column, settings: EventSettings) -> Conversion:
    shown = plain.binary_text(settings.binary_handling_mode)
    schema = lt.BYTES if settings.binary_handling_mode == "bytes" else lt.STRING
    argument = {"base64-url-safe": 1, "hex": 2}.get(settings.binary_handling_mode, 0)

    def convert(text: str) -> str:
        return shown(plain.bytea(text))

    return Conversion(schema, convert, Kernel.BINARY, argument, zero="", unavailable=shown(settings.placeholder))


def _opaque(column: Column, settings: EventSettings) -> Conversion:
    shown = plain.binary_text(settings.binary_handling_mode)
    schema = lt.BYTES if settings.binary_handling_mode == "bytes" else lt.STRING
    base = column.element if column.kind == "domain" and column.element is not None else column
    geometric = base.kind == "base" and base.type_name in _GEOMETRIC

    def convert(text: str) -> str:
        return shown(plain.geometric_bytes(text) if geometric else text.encode())

    return Conversion(schema, convert, Kernel.PLAIN, zero="", unavailable=shown(settings.placeholder))


def _bits(column: Column, settings: EventSettings) -> Conversion:
    if column.type_name == "bit" and column.modifier in (-1, 1):
        return Conversion(lt.BOOLEAN, lambda text: text == "1", Kernel.PLAIN, zero=False)
    length = column.modifier if column.modifier > 0 else 2**31 - 1
    return Conversion(lt.bits(length), plain.bit_string, Kernel.PLAIN, zero="")


def time_digits(modifier: int) -> int:
    """The digits of a second's fraction in a time's or timestamp's modifier."""
    return modifier if 0 <= modifier <= 6 else 6


def _date(column: Column, settings: EventSettings) -> Conversion:
    if settings.time_precision_mode == "isostring":
        return Conversion(lt.ISO_DATE, plain.iso_date, Kernel.DATE, 1, zero="1970-01-01Z")
    schema = lt.CONNECT_DATE if settings.time_precision_mode == "connect" else lt.DATE
    return Conversion(schema, plain.date_days, Kernel.DATE, 0, zero=0)


# The argument of the time kernels: µs are divided by 1000, kept, multiplied by 1000, or shown as ISO text.
_MILLI, _MICRO, _NANO, _ISO = 0, 1, 2, 3
_FACTORS = {_MILLI: (1000, 1), _MICRO: (1, 1), _NANO: (1, 1000)}


def _unit(column: Column, mode: str, adaptive: bool) -> int:
    if mode == "isostring":
        return _ISO
    if mode == "nanoseconds":
        return _NANO
    if mode == "connect" or (adaptive and time_digits(column.modifier) <= 3):
        return _MILLI
    return _MICRO


def _time(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.time_precision_mode
    unit = _unit(column, mode, mode == "adaptive")
    if unit == _ISO:
        return Conversion(lt.ISO_TIME, plain.iso_time, Kernel.TIME, unit, zero="00:00:00Z")
    schema = lt.CONNECT_TIME if mode == "connect" else (lt.TIME, lt.MICRO_TIME, lt.NANO_TIME)[unit]
    return Conversion(schema, plain.time_in(*_FACTORS[unit]), Kernel.TIME, unit, zero=0)


def _timestamp(column: Column, settings: EventSettings) -> Conversion:
    mode = settings.time_precision_mode
    unit = _unit(column, mode, mode.startswith("adaptive"))
    if unit == _ISO:
        return Conversion(lt.ISO_TIMESTAMP, plain.iso_timestamp, Kernel.TIMESTAMP, unit, zero="1970-01-01T00:00:00Z")
    schemas = (lt.TIMESTAMP, lt.MICRO_TIMESTAMP, lt.NANO_TIMESTAMP)
    schema = lt.CONNECT_TIMESTAMP if mode == "connect" else schemas[unit]
    return Conversion(schema, plain.timestamp_in(*_FACTORS[unit]), Kernel.TIMESTAMP, unit, zero=0)


def _timestamptz(column: Column, settings: EventSettings) -> Conversion:
    digits = None if settings.legacy else time_digits(column.modifier)
    convert = plain.zoned_timestamp(digits)
    zero = convert("1970-01-01 00:00:00+00")
    argument = -1 if digits is None else digits
    return Conversion(lt.ZONED_TIMESTAMP, convert, Kernel.ZONED_TIMESTAMP, argument, zero=zero)


def _timetz(column: Column, settings: EventSettings) -> Conversion:
    return Conversion(lt.ZONED_TIME, plain.zoned_time, Kernel.ZONED_TIME, zero="00:00:00Z")


def _interval(column: Column, settings: EventSettings) -> Conversion:
    if settings.interval_handling_mode == "string":
        return Conversion(lt.INTERVAL, plain.interval_iso, Kernel.PLAIN, zero="P0Y0M0DT0H0M0S")
    return Conversion(lt.MICRO_DURATION, plain.interval_us, Kernel.INTERVAL, zero=0)


def _hstore(column: Column, settings: EventSettings) -> Conversion:
    placeholder = settings.placeholder.decode("utf-8", "replace")
    if settings.hstore_handling_mode == "map":
        schema = LogicalType("map", items=lt.STRING.with_optional(True))
        return Conversion(schema, plain.hstore, Kernel.PLAIN, zero={}, unavailable={placeholder: placeholder})
    unavailable = dumps({placeholder: placeholder})
    return Conversion(lt.JSON, plain.hstore_json, Kernel.PLAIN, zero="{}", unavailable=unavailable)


def _tsvector(column: Column, settings: EventSettings) -> Conversion | None:
    return None if settings.legacy else _string(lt.TSVECTOR, settings)


def _point(column: Column, settings: EventSettings) -> Conversion:
    return Conversion(lt.POINT, plain.point, Kernel.PLAIN, zero=plain.point("(0,0)"))


def _geometry(schema: LogicalType) -> Callable[[Column, EventSettings], Conversion]:
    empty = "010700000000000000"
    return lambda column, settings: Conversion(schema, plain.geometry, Kernel.PLAIN, zero=plain.geometry(empty))


def _vector(schema: LogicalType, single: bool) -> Callable[[Column, EventSettings], Conversion]:
    return lambda column, settings: Conversion(schema, plain.vector(single), Kernel.PLAIN, zero=[])


def _array(column: Column, settings: EventSettings) -> Conversion | None:
    element = column.element
    if element is None:
        return None
    if element.kind == "base" and element.type_name in _NO_ARRAYS:
        return None
    if settings.legacy and element.type_name in _NO_LEGACY_ARRAYS:
        return None
    if element.modifier == -1 and column.modifier != -1:
        element = Column(element.name, element.type_name, element.type_oid, column.modifier, kind=element.kind,
                         enum_labels=element.enum_labels, element=element.element)  # fmt: skip
    of = _known(element, settings)
    if of is None or element.kind == "domain":
        return None
    # In the reference the elements of an enum array may not be null, those of all other arrays may.
    nulls = element.kind != "enum"
    schema = lt.array(of.logical.with_optional(nulls))
    unavailable = None if settings.legacy else _unavailable_array(element, settings)
    return Conversion(schema, plain.array_of(of.plain, nulls), Kernel.PLAIN, zero=[], unavailable=unavailable)


def _unavailable_array(element: Column, settings: EventSettings) -> list[Any] | None:
    name = element.type_name
    if name in ("int2", "int4", "int8", "oid"):
        return list(settings.placeholder)
    if name == "bytea":
        return [plain.binary_text(settings.binary_handling_mode)(settings.placeholder)]
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
    "date": _date,
    "time": _time,
    "timetz": _timetz,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
    "hstore": _hstore,
    "tsvector": _tsvector,
    "point": _point,
    "geometry": _geometry(lt.GEOMETRY),
    "geography": _geometry(lt.GEOGRAPHY),
    "vector": _vector(lt.DOUBLE_VECTOR, False),
    "halfvec": _vector(lt.FLOAT_VECTOR, True),
}


@lru_cache(maxsize=512)
def plan_columns(table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """The columns that events show, in the table's order, and the names of those left out as unknown."""
    plans: list[ColumnPlan] = []
    unknown: list[str] = []
    for index, column in enumerate(table.columns):
        known = conversion(column, settings)
        if known is None:
            unknown.append(column.name)
        else:
            plans.append(_plan(index, column, known, settings, column.name in table.key))
    return tuple(plans), tuple(unknown)


def _plan(index: int, column: Column, known: Conversion, settings: EventSettings, in_key: bool) -> ColumnPlan:
    not_null_domain = column.kind == "domain" and column.element is not None and not column.element.nullable
    optional = column.nullable and not in_key and not not_null_domain
    default = default_value(column, known, settings)
    if optional:
        shown = None if default == ABSENT or not settings.replace_null_with_default else default
    else:
        shown = known.zero if default in (ABSENT, None) else default
    null = dumps(shown).encode()
    unavailable = null if known.unavailable is None else dumps(known.unavailable).encode()
    schema = known.logical.with_optional(optional).with_default(default)
    return ColumnPlan(index, column.name, field_name(settings, column.name), schema, known, null, unavailable)
