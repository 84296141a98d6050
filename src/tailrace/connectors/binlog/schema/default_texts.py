"""Texts of defaults, as the server prints their values in rows. No I/O."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, localcontext

from tailrace.connectors.binlog.schema.definition import IMPLICIT, ColumnDefinition, Default
from tailrace.connectors.binlog.schema.sql_types import BYTES, INTEGERS, TEXTS, SqlType, parsed

_NUMBERS = frozenset((*INTEGERS, "decimal", "float", "double", "real", "bool", "year"))
_DIGITS = 100
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE = r"\d{4}-\d\d-\d\d"
_FORMS = {
    "date": re.compile(_DATE),
    "datetime": re.compile(rf"{_DATE} \d\d:\d\d:\d\d(?:\.\d+)?"),
    "time": re.compile(r"-?\d\d\d?:\d\d:\d\d(?:\.\d+)?"),
}
"""The server's forms of dates and times."""
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
        return None if text is None else _stored(text, found, column, kind)
    if kind.base == "enum":
        return column.labels[0] if column.labels else None
    if kind.base in _NUMBERS and kind.base != "year":
        return "0"
    if kind.base == "bit":
        return _bits(0, kind)
    if kind.base in BYTES:
        return _bytes(b"", kind)
    return "" if kind.base in TEXTS else _ZEROS.get(kind.base)


def _stored(text: str, found: Default, column: ColumnDefinition, kind: SqlType) -> str | None:
    """Return the value that the server stores for the text of a default; None if that is not certain."""
    if kind.base in _NUMBERS:
        return _stored_number(text, found, kind) if _NUMBER.fullmatch(text) else None
    if kind.base in _FORMS:
        if text == "0":
            return _ZEROS[kind.base]
        return text if _FORMS[kind.base].fullmatch(text) and _fraction(text) <= (kind.length or 0) else None
    if kind.base in ("enum", "set"):
        return _stored_labels(text, found, column)
    if kind.base == "uuid":
        return text.lower() if _UUID.fullmatch(text) else None
    if kind.base in TEXTS:
        # the server prints a number in its own way, and the character set of other bytes is not known
        if (found.kind == "number" and not _PLAIN.fullmatch(text)) or "\ufffd" in text:
            return None
        return text.rstrip(" ") if kind.base == "char" else text
    return text


def _stored_number(text: str, found: Default, kind: SqlType) -> str:
    if kind.base == "year":
        return "0000" if found.kind == "number" and not int(found.value) else text
    if kind.base != "decimal" or (_PLAIN.fullmatch(text) and _fraction(text) <= (kind.scale or 0)):
        return text
    unit = Decimal(1).scaleb(-(kind.scale or 0))
    with localcontext(prec=_DIGITS):
        return format(Decimal(text).quantize(unit, ROUND_HALF_UP), "f")


def _fraction(text: str) -> int:
    """Return the number of digits of a time's fraction, without zeros at the end."""
    return len(text.partition(".")[2].rstrip("0"))


def _stored_labels(text: str, found: Default, column: ColumnDefinition) -> str | None:
    """Return the labels of a default as the column spells and orders them."""
    if found.kind != "text":
        return None
    places = {label.casefold(): place for place, label in reversed([*enumerate(column.labels)])}
    if column.base == "ENUM":
        place = places.get(text.rstrip(" ").casefold())
        return text if text in column.labels else None if place is None else column.labels[place]
    named = [places.get(label.casefold(), -1) for label in text.split(",")] if text else []
    return None if -1 in named else ",".join(column.labels[place] for place in sorted({*named}))


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
        if re.fullmatch(r"[+-]?(?:\d+\.\d*|\.\d+)|[+-]?\d+[eE]\d+", value):
            return str(int(Decimal(value).to_integral_value(ROUND_HALF_UP)))
        return value.strip()
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
