"""What the converters that a configuration names make of a column's conversion. No I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tailrace.columns import Column, TableId
from tailrace.columns.logical import STRING
from tailrace.connectors.binlog.values import numbers
from tailrace.connectors.binlog.values.converters import SINK, TINYINT, ZERO_DATE, Converter
from tailrace.connectors.binlog.values.rules import rules
from tailrace.connectors.binlog.values.types import TEXTS, SqlType, sql_type
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
        return numbers.integer(16)
    if kind.base in ("real", "double") and kind.words.startswith("real") and converter.selects(name, "selector.real"):
        return floats.floating(not converter.is_on("treat.real.as.double", True))
    if kind.base in TEXTS and converter.selects(name, "selector.string"):
        charset = kind.charset or ""
        parameters = (("__debezium.source.column.character_set", charset),)
        return replace(known, logical=replace(STRING, parameters=parameters))
    return None


def _zero_date(converter: Converter, name: str, kind: SqlType, known: Conversion) -> Conversion | None:
    return None


_MAKERS: dict[str, Any] = {TINYINT: _tinyint, SINK: _sink, ZERO_DATE: _zero_date}
