"""`topic.naming.strategy`: the topic of a table's records, and the key field that distinguishes tables within a topic.

Values only: hashable, picklable, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tailrace.config.expressions import compile_groups

STRATEGIES = {
    "io.debezium.schema.SchemaTopicNamingStrategy": (True, False),
    "io.debezium.schema.DefaultTopicNamingStrategy": (False, False),
    "io.debezium.schema.SchemaUnicodeTopicNamingStrategy": (True, False),
    "io.debezium.schema.DefaultUnicodeTopicNamingStrategy": (False, False),
    "io.debezium.schema.SchemaRegexTopicNamingStrategy": (True, True),
    "io.debezium.schema.DefaultRegexTopicNamingStrategy": (False, True),
}
"""Debezium's strategies: whether names have the schema, and whether an expression rewrites them."""

_REGEX_OPTIONS = (
    "topic.regex",
    "topic.replacement",
    "topic.key.enforce.uniqueness",
    "topic.key.field.name",
    "topic.key.field.regex",
    "topic.key.field.replacement",
)
_REFERENCE = re.compile(
    r"\\(?P<plain>.)|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|\$(?P<number>[0-9]+)|(?P<broken>[\\$])", re.DOTALL
)


@lru_cache(1 << 14)
def substituted(expression: re.Pattern[str], replacement: str, text: str) -> str | None:
    r"""Return `text` with the first match of `expression` replaced as in Java; None unless all of `text` matches.

    In the replacement, `$1` and `${name}` are groups, a group without a match is empty, and `\` quotes the next
    character. After `$`, only as many digits count as give an existing group.
    """
    if expression.fullmatch(text) is None:
        return None
    found = expression.search(text)
    assert found is not None

    def put(part: re.Match[str]) -> str:
        if part["plain"] is not None:
            return part["plain"]
        if part["name"] is not None:
            return found[part["name"]] or ""
        digits, rest = part["number"], ""
        while len(digits) > 1 and int(digits) > expression.groups:
            digits, rest = digits[:-1], digits[-1] + rest
        return (found[int(digits)] or "") + rest

    return text[: found.start()] + _REFERENCE.sub(put, replacement) + text[found.end() :]


@dataclass(frozen=True, slots=True)
class TopicNaming:
    """The naming of tables' topics. `by_schema`: the name has schema and table, else only the table.

    `unicode`: characters that topics cannot have, and underscores, become `_uXXXX`, so that names stay distinct.

    `expression`, if present, replaces the whole name by `replacement`. Then `key_field`, unless empty, is a field of
    every key with the original name; `key_expression` and `key_replacement` shorten it.
    """

    by_schema: bool = True
    expression: re.Pattern[str] | None = None
    replacement: str = ""
    key_field: str = ""
    key_expression: re.Pattern[str] | None = None
    key_replacement: str = ""
    unicode: bool = False

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> TopicNaming:
        """Read typed options; by default topics are named by schema and table."""
        strategy = values.get("topic.naming.strategy") or ""
        by_schema, by_expression = STRATEGIES.get(strategy, (True, False))
        if not by_expression:
            return cls(by_schema, unicode="Unicode" in strategy)
        shortened = values["topic.key.field.regex"]
        return cls(
            by_schema,
            compile_groups(values["topic.regex"]),
            values["topic.replacement"],
            values["topic.key.field.name"] if values["topic.key.enforce.uniqueness"] else "",
            compile_groups(shortened) if shortened else None,
            values["topic.key.field.replacement"] or "",
        )

    def routed(self, name: str) -> str | None:
        """Return the topic that the expression makes of `name`; None if it makes none."""
        return None if self.expression is None else substituted(self.expression, self.replacement, name)

    def key_value(self, name: str) -> str:
        """Return the value of the key's field for the table whose topic would be `name`."""
        if self.key_expression is None:
            return name
        found = substituted(self.key_expression, self.key_replacement, name)
        return name if found is None else found


def faults(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the faults of the options about topics, as sentences without an end."""
    _, by_expression = STRATEGIES[values["topic.naming.strategy"]]
    if not by_expression:
        return [f"{name} needs a topic.naming.strategy by expression" for name in _REGEX_OPTIONS if name in given]
    found = []
    for regex, replacement, needed in (
        ("topic.regex", "topic.replacement", True),
        ("topic.key.field.regex", "topic.key.field.replacement", False),
    ):
        if needed or values[regex] or values[replacement]:
            missing = [f"{name} is missing" for name in (regex, replacement) if not values[name]]
            fault = "" if missing else replacement_fault(regex, values[regex], replacement, values[replacement])
            found += [*missing, fault] if fault else missing
    return found


def replacement_fault(name: str, regex: str, option: str, replacement: str) -> str:
    """Return the fault of the expression of option `name` and the replacement of `option`; "" if none."""
    try:
        expression = compile_groups(regex)
    except ValueError as fault:
        return f"{name}: {fault}"
    for part in _REFERENCE.finditer(replacement):
        unknown = part["name"] is not None and part["name"] not in expression.groupindex
        beyond = part["number"] is not None and int(part["number"][0]) > expression.groups
        if part["broken"] or unknown or beyond:
            return f"{option}: {part[0]!r} names no group of {name}"
    return ""
