"""Defaults of columns in schemas: conversion of the text after DEFAULT to a value of the column. No I/O."""

from __future__ import annotations

import json
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.connectors.binlog.schema.default_texts import server_text
from tailrace.connectors.binlog.schema.sql_types import sql_type
from tailrace.connectors.binlog.schema.tables import default_of
from tailrace.connectors.binlog.values.temporal import is_partial
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion, plain_value
from tailrace.values.json_text import Verbatim
from tailrace.values.texts import VALUE

_MOST_LONG = (1 << 63) - 1


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """Return the default's JSON form; ABSENT if the schema has none."""
    found = default_of(column)
    kind = sql_type(column)
    if found is None or found.kind in ("null", "expression") or kind.base == "uuid":
        # Debezium shows no default of a UUID
        return ABSENT
    if found.kind == "now":
        # the current time is not constant: the epoch replaces it if null is not allowed
        return ABSENT if column.nullable and kind.base == "timestamp" else known.zero
    text = server_text(found, kind)
    if text is None:
        return ABSENT
    if kind.base in ("date", "datetime", "timestamp") and is_partial(text):
        return ABSENT if column.nullable else known.zero
    if kind.base == "bigint" and kind.unsigned and known.logical.connect == "int64":
        # larger numbers would become negative
        text = str(min(int(text), _MOST_LONG)) if text.isdigit() else text
    outcome, value = plain_value(known, text.encode())
    if outcome != VALUE:
        return ABSENT
    # a number's text is its JSON
    return json.loads(value) if isinstance(value, Verbatim) else value
