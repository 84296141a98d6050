"""Conversions of the types of MySQL and MariaDB: logical type, conversion, default and zero value. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from tailrace.columns import Column, TableId, TableSchema
from tailrace.columns.logical import ABSENT, FLOAT, STRING, array, semantic
from tailrace.connectors.binlog.dialect import MARIADB
from tailrace.connectors.binlog.schema.sql_types import BYTES, GEOMETRIES, INTEGERS, TEXTS, SqlType, sql_type
from tailrace.connectors.binlog.values import declared_types, geometry, numbers, temporal
from tailrace.connectors.binlog.values.defaults import default_value
from tailrace.connectors.binlog.values.named_converters import converted, gives_null
from tailrace.connectors.binlog.values.rules import ValueRules, adjusts_years, rules, zero_dates
from tailrace.events import column_plans
from tailrace.events.column_plans import Types, key_columns, shown_columns
from tailrace.events.event_settings import EventSettings
from tailrace.values import decimals, floats, integers, strings
from tailrace.values.conversion import ColumnPlan, Conversion

FLOAT_VECTOR = replace(array(FLOAT), name="io.debezium.data.FloatVector", version=1)
_FLOATS = 24
"""A FLOAT of more bits is a DOUBLE."""


def conversion(column: Column, settings: EventSettings) -> Conversion | None:
    """Return the conversion of a column's values by its type; None for an unknown type."""
    kind = sql_type(column)
    if kind.base in INTEGERS:
        return _integer(kind, settings)
    if kind.base in TEXTS:
        return column_plans.text(settings)
    special = _SPECIAL.get(kind.base)
    if special is not None:
        return special(column, kind, settings)
    if kind.base in BYTES:
        return column_plans.binary(settings)
    return geometry.geometry() if kind.base in GEOMETRIES else None


def _integer(kind: SqlType, settings: EventSettings) -> Conversion:
    bits = INTEGERS[kind.base]
    if not kind.unsigned:
        return numbers.integer(bits)
    if kind.base == "bigint":
        known = rules(settings)
        if settings.copies and known.wraps:
            # a copy never shows a different number
            return numbers.integer(64) if known.wraps_copies else decimals.fixed(0, 20)
        return numbers.wrapping() if known.wraps else decimals.fixed(0, 20)
    return numbers.integer({"smallint": 32, "int": 64}.get(kind.base, bits))


def _bool(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    # the catalog shows tinyint(1), so copies, whose types must not change by a restart, have numbers
    return numbers.integer(16) if settings.copies else numbers.number_as_boolean()


def _bit(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    length = kind.length or 1
    return numbers.single_bit() if length == 1 else numbers.bits(length)


def _decimal(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    precision = 10 if kind.length is None else kind.length
    return column_plans.decimal(precision, kind.scale or 0, settings)


def _float(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    if kind.scale is not None:
        return numbers.float_as_double()
    if kind.length is not None and kind.length > _FLOATS:
        return floats.floating(False)
    return numbers.single(exact=settings.copies)


def _double(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return floats.floating(False)


def _real(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    # the catalog shows double, so a column is a REAL only in events of a table whose creation is in the log
    return floats.floating(False) if settings.copies else numbers.single(exact=True)


def _enum(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return column_plans.text(settings, strings.enumeration(_escaped(column.enum_labels)))


def _set(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    allowed = ",".join(_escaped(column.enum_labels))
    return column_plans.text(settings, semantic(STRING, "io.debezium.data.EnumSet", allowed=allowed))


def _escaped(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(label.replace(",", "\\,") for label in labels)


def _json(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    known = column_plans.text(settings, strings.JSON)

    def convert(text: str) -> str | None:
        # existing rows have no bytes for an added column
        return text or (None if column.nullable else "{}")

    return replace(known, plain=convert, zero="{}")


def _uuid(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return column_plans.text(settings, strings.UUID)


def _address(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return column_plans.text(settings)


def _year(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return Conversion(temporal.YEAR, temporal.year_number, integers.INTEGERS, zero=0)


def _date(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    known = temporal.date(settings.time_precision_mode, adjusts_years(settings))
    return temporal.with_zeros(known, zero_dates(settings))


def _time(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return temporal.time(kind.length or 0, settings.time_precision_mode)


def _datetime(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    known = temporal.datetime(kind.length or 0, settings.time_precision_mode, adjusts_years(settings))
    return temporal.with_zeros(known, zero_dates(settings))


def _timestamp(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return temporal.with_zeros(temporal.timestamp(), zero_dates(settings))


def _point(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return geometry.point()


def _vector(column: Column, kind: SqlType, settings: EventSettings) -> Conversion:
    return Conversion(FLOAT_VECTOR, _vector_value, zero=[])


def _vector_value(text: str) -> list[Any]:
    found = json.loads(text, parse_float=str, parse_int=str)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("not a vector")
    return [floats.shortest(True)(one) for one in found]


_SPECIAL: dict[str, Callable[[Column, SqlType, EventSettings], Conversion]] = {
    "bool": _bool, "bit": _bit, "decimal": _decimal, "float": _float, "double": _double, "real": _real, "enum": _enum,
    "set": _set, "json": _json, "uuid": _uuid, "inet4": _address, "inet6": _address, "year": _year, "date": _date,
    "time": _time, "datetime": _datetime, "timestamp": _timestamp, "point": _point, "vector": _vector,
}  # fmt: skip


# --- plans ------------------------------------------------------------------------------------------------------------


def _of_table(table: TableId, column: Column, settings: EventSettings) -> Conversion | None:
    known = conversion(column, settings)
    return None if known is None else converted(table, column, known, settings)


def _optional(table: TableId, given: ValueRules, nulls: bool, column: Column) -> bool:
    return column.nullable or _gives_null(table, given, nulls, column)


def _gives_null(table: TableId, given: ValueRules, nulls: bool, column: Column) -> bool:
    return (nulls and sql_type(column).base in temporal.DATED) or gives_null(table, column, given)


def _default(
    table: TableId, given: ValueRules, nulls: bool, column: Column, known: Conversion, settings: EventSettings
) -> Any:
    return ABSENT if _gives_null(table, given, nulls, column) else default_value(column, known, settings)


@lru_cache(maxsize=4096)
def _types(table: TableId, given: ValueRules, nulls: bool) -> Types:
    default, optional = partial(_default, table, given, nulls), partial(_optional, table, given, nulls)
    return Types(partial(_of_table, table), default, optional, declared_types)


def types_of(table: TableId, settings: EventSettings) -> Types:
    """Return the Types of a table's columns. It depends on the table, as converters select columns by their full
    names."""
    return _types(table, rules(settings), zero_dates(settings) == "null")


def plan_columns(table: TableSchema, settings: EventSettings) -> tuple[tuple[ColumnPlan, ...], tuple[str, ...]]:
    """Return the columns of values, in the table's order, and the names of columns left out because of unknown types.

    Hidden columns of the log have no name, and are left out.
    """
    plans, unknown = shown_columns(table, settings, types_of(table.id, settings))
    if _documents(settings):
        plans = tuple(_documented(plan, table.columns[plan.index].comment) for plan in plans)
    return tuple(plan for plan in plans if plan.source_name), tuple(name for name in unknown if name)


def _documents(settings: EventSettings) -> bool:
    """Return True if schemas show comments. In Debezium's connector for MariaDB they do regardless of the option."""
    return settings.shaping.comments or settings.connector == MARIADB.name


def _documented(plan: ColumnPlan, comment: str | None) -> ColumnPlan:
    return plan if comment is None else replace(plan, schema=replace(plan.schema, doc=comment))


def plan_key(table: TableSchema, settings: EventSettings) -> tuple[ColumnPlan, ...]:
    """Return the columns of the key in the key's order, without the column options for values."""
    plans = key_columns(table, settings, types_of(table.id, settings))
    return (
        tuple(_documented(plan, table.columns[plan.index].comment) for plan in plans) if _documents(settings) else plans
    )
