"""`topic.naming.strategy`: which topic a table's records go to, and what distinguishes the tables that share one.

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
    "io.debezium.schema.SchemaRegexTopicNamingStrategy": (True, True),
    "io.debezium.schema.DefaultRegexTopicNamingStrategy": (False, True),
}
"""Debezium's strategies: whether names have the schema, and whether an expression makes them anew."""

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
    r"""`text` with the first match of `expression` replaced as Java does; None unless all of `text` matches.

    In the replacement `$1` and `${name}` are groups, a group without a match is nothing, `\` takes the character
    behind it as it is, and of the digits behind `$` only as many count as there are groups.
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
    """How tables get their topics. `by_schema`: schema and table make the name, else the table alone.

    `expression`, where there is one, makes a new name of the whole one by `replacement`. Then `key_field`, unless it
    is empty, is a field of every key that holds the name before; `key_expression` and `key_replacement` shorten it.
    """

    by_schema: bool = True
    expression: re.Pattern[str] | None = None
    replacement: str = ""
    key_field: str = ""
    key_expression: re.Pattern[str] | None = None
    key_replacement: str = ""

    @classmethod
    def from_options(cls, values: Mapping[str, Any]) -> TopicNaming:
        """Read typed options; those that are absent name topics by schema and table."""
        by_schema, by_expression = STRATEGIES.get(values.get("topic.naming.strategy") or "", (True, False))
        if not by_expression:
            return cls(by_schema)
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
        """The topic that the expression makes of `name`; None where it makes none."""
        return None if self.expression is None else substituted(self.expression, self.replacement, name)

    def key_value(self, name: str) -> str:
        """What the key's field holds for the table whose topic would be `name`."""
        if self.key_expression is None:
            return name
        found = substituted(self.key_expression, self.key_replacement, name)
        return name if found is None else found


def faults(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """What is wrong with the options about topics, as sentences without an end."""
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
    """What is wrong with the expression of the option `name` and the replacement of `option`; empty: nothing."""
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
