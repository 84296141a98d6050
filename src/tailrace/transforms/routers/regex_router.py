"""RegexRouter: renames topics by a regular expression and a replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from re import Pattern

from tailrace.config.expressions import compile_groups
from tailrace.config.naming import substituted
from tailrace.records.layout import RecordLayout
from tailrace.records.transform import Rewritten, Shared, with_topic
from tailrace.transforms.option_reader import OptionReader


@dataclass(frozen=True, slots=True)
class RegexRouter:
    """A tailrace.records.transform.Transform."""

    expression: Pattern[str]
    replacement: str

    def route(self, topic: str) -> str:
        found = substituted(self.expression, self.replacement, topic)
        return topic if found is None else found

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        topic = record.topic
        return record, isinstance(topic, str) and substituted(self.expression, self.replacement, topic) is None

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return with_topic(record, self.route)


def regex_router(options: Mapping[str, str]) -> RegexRouter:
    """Make the transform from its options. Raises ConfigError."""
    given = OptionReader(options)
    regex, replacement = given.substitution("regex", "replacement", None)
    given.done()
    return RegexRouter(compile_groups(regex), replacement)
