"""Column defaults: the server's default expression as the value that the column's schema shows.

Literals are read; a function call stands for a value that only the server knows, so the type's zero value is
shown; other expressions, and the types whose defaults the reference leaves out, show none.
"""

from __future__ import annotations

import re
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.events.settings import EventSettings
from tailrace.serde.conversion import Conversion

_LITERAL = re.compile(r"(?:B)?'((?:[^']|'')*)'(?:::.+)?$", re.DOTALL)
_NUMBER = re.compile(r"\(?(-?\d+(?:\.\d+)?)\)?(?:::.+)?$")
_CALL = re.compile(r'(?:"[^"]+"|[a-zA-Z_][\w$.]*)\(.*\)(?:::.+)?$', re.DOTALL)
_KEYWORDS = (
    frozenset(("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"))
    | frozenset(("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "CURRENT_CATALOG", "CURRENT_SCHEMA", "USER"))
)  # fmt: skip
_WITH_DEFAULTS = frozenset(
    ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "char", "bit",
     "varbit", "date", "time", "timestamp", "timestamptz", "interval", "uuid", "json", "jsonb")
)  # fmt: skip


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """The default in its JSON form; ABSENT where the schema has none."""
    base = column.element if column.kind == "domain" and column.element is not None else column
    if column.default is None or column.generated or known.logical.connect in ("struct", "array", "map"):
        return ABSENT
    if base.kind == "enum":
        if settings.legacy:
            return ABSENT
    elif base.kind != "base" or base.type_name not in _WITH_DEFAULTS:
        return ABSENT
    expression = column.default.strip()
    literal = literal_text(expression)
    if literal is not None:
        return _converted(literal, base, known)
    if _CALL.match(expression):
        return known.zero
    if expression.upper().partition("(")[0] in _KEYWORDS and not settings.legacy:
        return known.zero
    return ABSENT


def literal_text(expression: str) -> str | None:
    """The text of a literal with or without a cast, quotes undone; None for any other expression."""
    found = _LITERAL.match(expression)
    if found is not None:
        return found[1].replace("''", "'")
    found = _NUMBER.match(expression)
    if found is not None:
        return found[1]
    return {"true": "t", "false": "f"}.get(expression.partition("::")[0])


def _converted(literal: str, base: Column, known: Conversion) -> Any:
    try:
        value = known.plain(literal)
    except (ValueError, KeyError, ArithmeticError):
        return ABSENT
    return ABSENT if value is None else value
