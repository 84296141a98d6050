"""JSON text as Kafka Connect's JsonConverter writes it: compact, in field order, with Java's numbers."""

from __future__ import annotations

import re
from typing import Any

from tailrace.columns.logical import ABSENT, STRING, LogicalType


class Verbatim(str):
    """Text that is JSON already and is written as it stands."""

    __slots__ = ()


_ESCAPED = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quoted(text: str) -> str:
    """A JSON string, escaped as Jackson does it: characters beyond the basic plane as two surrogates."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    short = _SHORT.get(match.group())
    if short is not None:
        return short
    units = memoryview(match.group().encode("utf-16-le")).cast("H")
    return "".join(f"\\u{unit:04X}" for unit in units)


def dumps(value: Any) -> str:
    """Compact JSON of dicts, lists, strings, numbers, booleans, None and Verbatim."""
    if value is None:
        return "null"
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_number(repr(value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(str(key))}:{dumps(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    raise TypeError(f"no JSON form for {type(value).__name__}")


# Java gives at least two digits, the nearest to the exact value; among the smallest numbers these differ from
# the shortest text padded by a zero. Keys are (digits, exponent of the first digit).
_SUBNORMAL = {("5", -324): ("49", -324), ("1", -323): ("99", -324)}
_SUBNORMAL_SINGLE = {
    ("1", -45): ("14", -45),
    ("3", -45): ("28", -45),
    ("4", -45): ("42", -45),
    ("6", -45): ("56", -45),
    ("8", -45): ("84", -45),
    ("1", -44): ("98", -45),
}


def java_number(text: str, single: bool = False) -> str:
    """A decimal text as Java prints the double (or `single`: float) it stands for; `text` has the shortest digits.

    NaN and the infinities are JSON strings.
    """
    lowered = text.lower().lstrip("+")
    if lowered == "nan":
        return '"NaN"'
    if lowered.lstrip("-") in ("inf", "infinity"):
        return '"-Infinity"' if lowered.startswith("-") else '"Infinity"'
    sign = "-" if lowered.startswith("-") else ""
    mantissa, _, exponent = lowered.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    smallest = _SUBNORMAL_SINGLE if single else _SUBNORMAL
    digits, first = smallest.get((digits, first), (digits, first))
    if -3 <= first < 0:
        return f"{sign}0.{'0' * (-first - 1)}{digits}"
    if 0 <= first < 7:
        return f"{sign}{digits[: first + 1].ljust(first + 1, '0')}.{digits[first + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{first}"


def schema_text(schema: LogicalType, field: str | None = None) -> str:
    """The JSON of a schema, members in JsonConverter's order; `field` is its name within a struct."""
    parts = [f'"type":{quoted(schema.connect)}']
    if schema.connect == "struct":
        parts.append('"fields":[' + ",".join(schema_text(part.type, part.name) for part in schema.fields) + "]")
    elif schema.connect == "array" and schema.items is not None:
        parts.append(f'"items":{schema_text(schema.items)}')
    elif schema.connect == "map" and schema.items is not None:
        parts.append(f'"keys":{schema_text(schema.keys or STRING)},"values":{schema_text(schema.items)}')
    parts.append(f'"optional":{dumps(schema.optional)}')
    if schema.name is not None:
        parts.append(f'"name":{quoted(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{schema.version}')
    if schema.doc is not None:
        parts.append(f'"doc":{quoted(schema.doc)}')
    if schema.parameters:
        parts.append('"parameters":' + dumps(dict(schema.parameters)))
    if schema.default != ABSENT:
        parts.append(f'"default":{dumps(schema.default)}')
    if field is not None:
        parts.append(f'"field":{quoted(field)}')
    return "{" + ",".join(parts) + "}"
