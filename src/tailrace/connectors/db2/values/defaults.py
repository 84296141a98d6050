"""Column defaults: the value in the column's schema, from the text of a default in Db2's catalog.

Literals are read: numbers, and texts in quotes (with a letter before them for the kind of text). Expressions that only
the server can compute (`CURRENT TIMESTAMP`, `USER`) give no default. Text of a fixed length is padded, as by the
server.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.connectors.db2.values.declaration import BYTES, DECIMALS, FLOATS, INTEGERS, TEXTS, TIMESTAMPS
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion
from tailrace.values.decimals import plain_number

_TEXT = re.compile(r"(?:[GNgn])?'((?:[^']|'')*)'", re.DOTALL)
_HEXADECIMAL = re.compile(r"(?:[Bb]?[Xx])'((?:[0-9a-fA-F]{2})*)'")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)")
_CLOCK = re.compile(r"(\d\d)[.:](\d\d)(?:[.:](\d\d(?:\.\d+)?))?")
_LARGE = frozenset(("CLOB", "DBCLOB", "XML", "BLOB"))
_PADDED = frozenset(("CHAR", "GRAPHIC"))
_BOOLEANS = {"TRUE": "t", "FALSE": "f", "1": "t", "0": "f"}


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """Return the default in its JSON form; ABSENT if the schema has none."""
    if column.default is None or column.generated or column.type_name in _LARGE:
        return ABSENT
    shown = literal(column, column.default.strip())
    return ABSENT if shown is None else _converted(shown, known)


def literal(column: Column, expression: str) -> str | None:
    """Return the default's value in the form of change tables; None if it is not a literal of the column's type."""
    name = column.type_name
    quoted = _TEXT.fullmatch(expression)
    text = None if quoted is None else quoted[1].replace("''", "'")
    if name in TEXTS:
        return text if text is None or name not in _PADDED else text.ljust(max(column.modifier, 0))
    if name in BYTES:
        digits = _HEXADECIMAL.fullmatch(expression)
        return None if digits is None else "\\x" + digits[1].lower()
    if name == "BOOLEAN":
        return _BOOLEANS.get(expression.upper())
    if name == "DATE":
        return text if text is not None and _DAY.fullmatch(text) else None
    if name == "TIME":
        return None if text is None else _clock(text)
    if name in TIMESTAMPS:
        return None if text is None else _timestamp(text)
    if not _NUMBER.fullmatch(expression):
        return None
    try:
        if name in INTEGERS:
            return str(int(Decimal(plain_number(expression))))
        if name in DECIMALS:
            return plain_number(expression)
    except ValueError:
        # the exponent is out of range
        return None
    return expression.removeprefix("+") if name in FLOATS | {"DECFLOAT"} else None


def _clock(text: str) -> str | None:
    """Return a time of day that was written with points or colons."""
    found = _CLOCK.fullmatch(text)
    return None if found is None else f"{found[1]}:{found[2]}:{found[3] or '00'}"


def _timestamp(text: str) -> str | None:
    """Return a timestamp from `2019-05-27-13.58.28.123456`, or with a blank or T, or with colons; a date means
    midnight."""
    if _DAY.fullmatch(text):
        return f"{text} 00:00:00"
    clock = _clock(text[11:]) if _DAY.fullmatch(text[:10]) and text[10:11] in tuple("- T") else None
    return None if clock is None else f"{text[:10]} {clock}"


def _converted(shown: str, known: Conversion) -> Any:
    try:
        value = known.plain(shown)
    except (ValueError, KeyError, ArithmeticError):
        return ABSENT
    return ABSENT if value is None else value
