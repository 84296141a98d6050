"""Texts of defaults, as the server prints their values in rows. No I/O."""

from __future__ import annotations

import re

from tailrace.connectors.binlog.schema.definition import IMPLICIT, ColumnDefinition, Default
from tailrace.connectors.binlog.schema.sql_types import BYTES, INTEGERS, TEXTS, SqlType, parsed

_NUMBERS = frozenset((*INTEGERS, "decimal", "float", "double", "real", "bool", "year"))
_TIME = re.compile(r"(-?)(?:(\d+) )?(\d+):(\d+)(?::(\d+))?(?:\.(\d+))?")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
# zeros of types that are neither numbers nor texts
_ZEROS = {
    "date": "0000-00-00", "datetime": "0000-00-00 00:00:00", "time": "00:00:00", "year": "0000", "set": "",
    "uuid": "00000000-0000-0000-0000-000000000000", "inet4": "0.0.0.0", "inet6": "::",
}  # fmt: skip


def older_text(column: ColumnDefinition) -> str | None:
    """Return the text of the value of rows that are older than the column; None if it is null or unknown."""
    found, kind = column.older, parsed(column.type_text())
    if found is None or found.kind in ("null", "expression", "now", "unknown"):
        return None
    if found is not IMPLICIT and found.kind != IMPLICIT.kind:
        # the default of a timestamp depends on the session's time zone
        text = None if kind.base == "timestamp" else server_text(found, kind)
        if text is not None and kind.base in _NUMBERS and not _NUMBER.fullmatch(text):
            return None
        return text.rstrip(" ") if text is not None and kind.base == "char" else text
    if kind.base == "enum":
        return column.labels[0] if column.labels else None
    if kind.base in _NUMBERS and kind.base != "year":
        return "0"
    if kind.base == "bit":
        return _bits(0, kind)
    if kind.base in BYTES:
        return _bytes(b"", kind)
    return "" if kind.base in TEXTS else _ZEROS.get(kind.base)


def server_text(found: Default, kind: SqlType) -> str | None:
    """Return a default as the server prints its value; None if it is not a value of the type."""
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
