"""Column defaults: the server's default expression as the value that the column's schema shows. No I/O.

A literal is shown as its value. For a function call, or an expression that begins with one, only the server knows the
value, and the type's zero value is shown. Other expressions show no default. As in Debezium, columns of domains, of the
server's "char" and of types not in _WITH_DEFAULTS have no default: consumers would read nulls as defaults.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tailrace.columns import Column
from tailrace.columns.logical import ABSENT
from tailrace.connectors.postgres.values import plain
from tailrace.events.event_settings import EventSettings
from tailrace.values.conversion import Conversion
from tailrace.values.decimals import unscaled

_LITERAL = re.compile(r"(?:B)?'((?:[^']|'')*)'(?:::.+)?$", re.DOTALL)
_NUMBER = re.compile(r"\(?(-?\d+(?:\.\d+)?)\)?(?:::.+)?$")
_CALL = re.compile(r'(?:"[^"]+"|[a-zA-Z_][\w$.]*)\(.*\)(?:::.+)?$', re.DOTALL)
_BEGINS_WITH_CALL = re.compile(r'\(?(?:"[^"]+"|[a-zA-Z_][\w$.]*)\(.*\)', re.DOTALL)
_QUALIFIED = re.compile(r'(?:"[^"]+"|[\w$]+)\.')
_CAST_TWICE = re.compile(r"\(((?:B)?'(?:[^']|'')*'::[^()]+(?:\(\d+(?:,\d+)?\))?)\)::.+$", re.DOTALL)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?")
_KEYWORDS = (
    frozenset(("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"))
    | frozenset(("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "CURRENT_CATALOG", "CURRENT_SCHEMA", "USER"))
)  # fmt: skip
_WITH_DEFAULTS = frozenset(
    ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "bit",
     "varbit", "date", "time", "timestamp", "timestamptz", "interval", "uuid", "json", "jsonb")
)  # fmt: skip


def default_value(column: Column, known: Conversion, settings: EventSettings) -> Any:
    """Return the default in its JSON form; ABSENT if the schema has none."""
    if column.default is None or column.generated or known.logical.connect in ("struct", "array", "map"):
        return ABSENT
    if column.kind == "enum":
        if settings.legacy:
            return ABSENT
    elif column.kind != "base" or column.type_name not in _WITH_DEFAULTS:
        return ABSENT
    expression = column.default.strip()
    literal = literal_text(expression)
    if literal is not None:
        return _converted(_stored(literal, column), known)
    if settings.legacy:
        # 1.7 knows only calls that are the whole expression, and no functions qualified by a schema.
        return known.zero if _CALL.match(expression) and not _QUALIFIED.match(expression) else ABSENT
    if _BEGINS_WITH_CALL.match(expression):
        return known.zero
    if expression.upper().partition("(")[0] in _KEYWORDS:
        return known.zero
    return ABSENT


def literal_text(expression: str) -> str | None:
    """Return the unquoted text of a literal with up to two casts; None for any other expression."""
    twice = _CAST_TWICE.match(expression)
    found = _LITERAL.match(twice[1] if twice else expression)
    if found is not None:
        return found[1].replace("''", "'")
    found = _NUMBER.match(expression)
    if found is not None:
        return found[1]
    return {"true": "t", "false": "f"}.get(expression.partition("::")[0])


def _stored(literal: str, column: Column) -> str:
    """Return the literal as the server stores it in the column.

    A numeric has the column's scale, a timestamp without zone is in UTC, and a timestamp for a date is its day.
    """
    if column.type_name == "timestamptz" and _MOMENT.fullmatch(literal):
        return f"{literal}+00"
    if column.type_name == "date" and _MOMENT.fullmatch(literal):
        return literal[:10]
    if column.type_name != "numeric" or column.modifier < 4:
        return literal
    scale = plain.precision_and_scale(column.modifier)[1]
    try:
        value = Decimal(literal)
    except ArithmeticError:
        return literal
    if not value.is_finite():
        return literal
    sign, digits, _ = Decimal(unscaled(value, scale)).as_tuple()
    return f"{Decimal((sign, digits, -scale)):f}"


def _converted(literal: str, known: Conversion) -> Any:
    try:
        value = known.plain(literal)
    except (ValueError, KeyError, ArithmeticError):
        return ABSENT
    return ABSENT if value is None else value
