"""Defaults of columns in schemas: what a statement says after DEFAULT, as a value of the column. No I/O."""

from __future__ import annotations

import json
import re
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.connectors.binlog.schema.definition import Default
from tailrace.connectors.binlog.schema.tables import default_of
from tailrace.connectors.binlog.values.sql_types import BYTES, INTEGERS, SqlType, sql_type
from tailrace.connectors.binlog.values.temporal import is_partial
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion, plain_value
from tailrace.values.json_text import Verbatim
from tailrace.values.texts import VALUE

_MOST_LONG = (1 << 63) - 1
_NUMBERS = frozenset((*INTEGERS, "decimal", "float", "double", "real", "bool", "year"))
_TIME = re.compile(r"(-?)(?:(\d+) )?(\d+):(\d+)(?::(\d+))?(?:\.(\d+))?")


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """Return the default's JSON form; ABSENT if the schema has none."""
    found = default_of(column)
    kind = sql_type(column)
    if found is None or found.kind in ("null", "expression") or kind.base == "uuid":
        # Debezium shows no default of a UUID
        return ABSENT
    if found.kind == "now":
        # the server's clock is no constant: the epoch stands for it where null may not
        return ABSENT if column.nullable and kind.base == "timestamp" else known.zero
    text = _server_text(found, kind, column)
    if text is None:
        return ABSENT
    if kind.base in ("date", "datetime", "timestamp") and is_partial(text):
        return ABSENT if column.nullable else known.zero
    if kind.base == "bigint" and kind.unsigned and known.logical.connect == "int64":
        # larger ones would be negative
        text = str(min(int(text), _MOST_LONG)) if text.isdigit() else text
    outcome, value = plain_value(known, text.encode())
    if outcome != VALUE:
        return ABSENT
    # a number's text is its JSON
    return json.loads(value) if isinstance(value, Verbatim) else value


def _server_text(found: Default, kind: SqlType, column: Column) -> str | None:
    """Return a default as the server would print a value of it; None if it is not one of the type."""
    value = found.value
    if found.kind == "hex":
        data = bytes.fromhex(value.zfill(len(value) + len(value) % 2))
        if kind.base in _NUMBERS:
            return str(int.from_bytes(data, "big"))
        if kind.base in (*BYTES, "bit"):
            return _bytes(data, kind)
        return data.decode("utf-8", "replace")
    if found.kind == "bits":
        number = int(value or "0", 2)
        if kind.base == "bit":
            return _bits(number, kind)
        size = (len(value) + 7) // 8
        return str(number) if kind.base in _NUMBERS else number.to_bytes(size, "big").decode("utf-8", "replace")
    if found.kind == "word":
        value = found.value
    if kind.base == "bit":
        return _bits(int(value), kind) if value.isdigit() else None
    if kind.base in BYTES:
        return _bytes(value.encode(), kind)
    return _number_or_time(value, kind)


def _number_or_time(value: str, kind: SqlType) -> str:
    if kind.base in INTEGERS or kind.base == "bool":
        return str(round(float(value))) if re.fullmatch(r"[+-]?\d*\.\d*|[+-]?\d+[eE]\d+", value) else value.strip()
    if kind.base == "year" and value.strip().isdigit():
        number = int(value)
        # years of two digits; a number 0 is the year 0
        if number < 100 and (number or len(value.strip()) < 3):
            number += 2000 if number < 70 else 1900
        return str(number)
    if kind.base == "time":
        return _time(value)
    if kind.base in ("date", "datetime", "timestamp"):
        return _moment(value, kind)
    return value


def _time(value: str) -> str:
    found = _TIME.fullmatch(value.strip())
    if found is None:
        return value
    sign, days, hours, minutes, seconds, fraction = found.groups()
    total = int(days or 0) * 24 + int(hours)
    text = f"{sign}{total:02d}:{int(minutes):02d}:{int(seconds or 0):02d}"
    return f"{text}.{fraction}" if fraction else text


def _moment(value: str, kind: SqlType) -> str:
    digits = re.findall(r"\d+", value)
    if len(digits) < 3 or len(digits[0]) not in (2, 4):
        return value
    year = int(digits[0])
    if len(digits[0]) == 2:
        year += 2000 if year < 70 else 1900
    day = f"{year:04d}-{int(digits[1]):02d}-{int(digits[2]):02d}"
    if kind.base == "date":
        return day
    hours, minutes, seconds = (int(part) for part in [*digits[3:6], "0", "0", "0"][:3])
    fraction = f".{digits[6][:6]}" if len(digits) > 6 else ""
    return f"{day} {hours:02d}:{minutes:02d}:{seconds:02d}{fraction}"


def _bits(number: int, kind: SqlType) -> str:
    size = ((kind.length or 1) + 7) // 8
    return "\\x" + number.to_bytes(max(size, (number.bit_length() + 7) // 8), "big").hex()


def _bytes(data: bytes, kind: SqlType) -> str:
    if kind.base == "binary":
        data = data.ljust(kind.length or 1, b"\0")
    return "\\x" + data.hex()
