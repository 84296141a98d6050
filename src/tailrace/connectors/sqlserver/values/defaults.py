"""Column defaults: the value in the column's schema, from the definition that SQL Server stores.

The server stores every definition in parentheses, and numbers in two pairs: `((0))`, `(N'it''s')`, `(getdate())`.
Literals are read. An expression that only the server can compute gives no default, or the zero value in columns of text
and of bits. The 1.0 format has no defaults.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion
from tailrace.values.decimals import plain_number

_TEXT = re.compile(r"[Nn]?'((?:[^']|'')*)'", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_BYTES = re.compile(r"0x((?:[0-9a-fA-F]{2})*)")
_DAY = r"(\d{4})-?(\d\d)-?(\d\d)"
_CLOCK = r"(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)"
_OFFSET = re.compile(r"([+-]\d\d:\d\d|Z)$")
_MOMENT = re.compile(rf"(?:{_DAY})?(?:[T ]?{_CLOCK})?")

_CHARACTERS = frozenset(("char", "varchar", "text", "nchar", "nvarchar", "ntext"))
_NUMBERS = frozenset(
    ("tinyint", "smallint", "int", "bigint", "decimal", "numeric", "money", "smallmoney", "float", "real")
)
_BINARIES = frozenset(("binary", "varbinary", "image"))
_MOMENTS = frozenset(("date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset"))


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """Return the default in its JSON form; ABSENT if the schema has none."""
    if column.default is None or column.generated or settings.legacy:
        return ABSENT
    expression = bare(column.default)
    name = column.type_name
    if expression.upper() == "NULL":
        return ABSENT
    if name == "bit":
        return _NUMBER.fullmatch(expression) is not None and float(expression) != 0
    text = _TEXT.fullmatch(expression)
    literal = None if text is None else text[1].replace("''", "'")
    if name in _CHARACTERS:
        return known.zero if literal is None else _converted(literal, known)
    if name in _NUMBERS and _NUMBER.fullmatch(expression):
        return _converted(expression, known, name)
    if name in _BINARIES and _BYTES.fullmatch(expression):
        return _converted("\\x" + expression[2:].lower(), known)
    if name in _MOMENTS and literal is not None:
        shown = moment(literal, name)
        return ABSENT if shown is None else _converted(shown, known)
    return ABSENT


def bare(definition: str) -> str:
    """Return the definition without enclosing parentheses."""
    text = definition.strip()
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1].strip()
    return text


def _closes_last(text: str) -> bool:
    """Return True if the last parenthesis closes the first. Parentheses in quotes do not count."""
    depth, quoted = 0, False
    for position, letter in enumerate(text):
        quoted ^= letter == "'"
        if not quoted and letter in "()":
            depth += 1 if letter == "(" else -1
            if depth == 0:
                return position == len(text) - 1
    return False


def _number(expression: str, type_name: str) -> str:
    """Return the number as the server stores it: without a fraction in integer columns."""
    if type_name in ("tinyint", "smallint", "int", "bigint"):
        return str(int(Decimal(plain_number(expression))))
    return expression.removeprefix("+") if type_name in ("float", "real") else plain_number(expression)


def moment(literal: str, type_name: str) -> str | None:
    """Return an ISO literal of a date or time in the form of change tables; None for a form that depends on the
    language."""
    text = literal.strip()
    offset = _OFFSET.search(text) if type_name == "datetimeoffset" else None
    if offset is not None:
        text = text[: offset.start()].rstrip()
    found = _MOMENT.fullmatch(text)
    if found is None or not text:
        return None
    day = f"{found[1]}-{found[2]}-{found[3]}" if found[1] else "1900-01-01"
    clock = found[4] or "00:00:00"
    if clock.count(":") == 1:
        clock += ":00"
    if type_name == "date":
        return day
    if type_name == "time":
        return clock
    if type_name == "datetimeoffset":
        return f"{day} {clock} {'+00:00' if offset is None or offset[1] == 'Z' else offset[1]}"
    return f"{day} {clock}"


def _converted(literal: str, known: Conversion, number_type: str = "") -> Any:
    try:
        value = known.plain(_number(literal, number_type) if number_type else literal)
    except (ValueError, KeyError, ArithmeticError):
        return ABSENT
    return ABSENT if value is None else value
