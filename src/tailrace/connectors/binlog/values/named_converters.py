"""Conversions of columns with the configured converters. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tailrace.columns import Column, TableId
from tailrace.columns.logical import STRING
from tailrace.config.option import split_list
from tailrace.connectors.binlog.schema.sql_types import TEXTS, SqlType, sql_type
from tailrace.connectors.binlog.values import numbers
from tailrace.connectors.binlog.values.converters import SINK, TINYINT, ZERO_DATE, Converter
from tailrace.connectors.binlog.values.rules import ValueRules, rules
from tailrace.connectors.binlog.values.temporal import is_partial, without_adjustment
from tailrace.events.event_settings import EventSettings
from tailrace.values import floats
from tailrace.values.conversion import Conversion


def converted(table: TableId, column: Column, known: Conversion, settings: EventSettings) -> Conversion:
    """Return the conversion by the first converter that selects the column; `known` if none does."""
    kind = sql_type(column)
    name = f"{table.schema}.{table.table}.{column.name}"
    for converter in rules(settings).converters:
        found: Conversion | None = _MAKERS[converter.kind](converter, name, kind, known)
        if found is not None:
            return found
    return known


def _tinyint(converter: Converter, name: str, kind: SqlType, known: Conversion) -> Conversion | None:
    if kind.base not in ("tinyint", "bool") or not converter.selects(name, "selector", ".*"):
        return None
    if kind.base == "tinyint" and kind.length != 1 and converter.is_on("length.checker", True):
        return None
    return numbers.positive_as_boolean()


def _sink(converter: Converter, name: str, kind: SqlType, known: Conversion) -> Conversion | None:
    if (kind.base == "bool" or (kind.base == "tinyint" and kind.length == 1)) and converter.selects(
        name, "selector.boolean"
    ):
        return numbers.positive_as_number()
    if kind.base in ("float", "double", "real") and converter.selects(name, "selector.real"):
        if not converter.is_on("treat.real.as.double", True):
            return numbers.single(exact=True)
        return numbers.float_as_double() if kind.base == "float" else floats.floating(False)
    if kind.base in TEXTS and converter.selects(name, "selector.string"):
        charset = kind.charset or ""
        parameters = (("__debezium.source.column.character_set", charset),)
        return replace(known, logical=replace(STRING, parameters=parameters))
    return None


def _zero_date(converter: Converter, name: str, kind: SqlType, known: Conversion) -> Conversion | None:
    fallback = _fallback(converter, name, kind)
    if fallback is None:
        return None
    # years of two digits are left alone
    known = without_adjustment(known)
    if fallback == "NULL":
        return known

    def convert(text: str) -> Any:
        return known.plain(fallback if is_partial(text) else text)

    return replace(known, plain=convert)


def _fallback(converter: Converter, name: str, kind: SqlType) -> str | None:
    """Return the replacement of a zero date in the server's text form, or NULL; None if the converter does not select
    the column."""
    targets = [one.upper() for one in split_list(converter.option("target.types", "DATE,DATETIME,TIMESTAMP"))]
    if kind.base.upper() not in targets or not converter.selects(name, "selector", ".*"):
        return None
    own = converter.option(f"column.{name}.fallback", converter.option(f"fallback.{kind.base}", "NULL")).strip()
    if own.upper() == "NULL":
        return "NULL"
    text = own.rstrip("Z").replace("T", " ")
    if kind.base == "date":
        return text[:10]
    return text if len(text) > 10 else f"{text} 00:00:00"


def gives_null(table: TableId, column: Column, given: ValueRules) -> bool:
    """Return True if a converter replaces values of a column by null, even if the column is not nullable."""
    kind = sql_type(column)
    if kind.base not in ("date", "datetime", "timestamp"):
        return False
    name = f"{table.schema}.{table.table}.{column.name}"
    zero_dates = (one for one in given.converters if one.kind == ZERO_DATE)
    found = next((found for one in zero_dates if (found := _fallback(one, name, kind)) is not None), None)
    return found == "NULL"


_MAKERS: dict[str, Any] = {TINYINT: _tinyint, SINK: _sink, ZERO_DATE: _zero_date}
