"""Filter and ContentBasedRouter: keep records or choose topics by an expression in Groovy, JavaScript or SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.logical import STRING
from tailrace.config.expressions import compile_expression
from tailrace.errors import ConfigError
from tailrace.records.layout import ComputedColumn, Constant, RecordLayout
from tailrace.records.transform import ANY_TOPIC, RefusedRecord, Rewritten, Shared, Transform, VaryingLayout, kept
from tailrace.scripting.script_syntax import GROOVY, JAVASCRIPT, NotUnderstood, ScriptTree, parse
from tailrace.scripting.script_terms import ScriptMeaning
from tailrace.scripting.sql_syntax import parse_sql
from tailrace.scripting.sql_terms import SqlMeaning
from tailrace.transforms.option_reader import OptionReader
from tailrace.transforms.routers.predicates import Conditional, TopicNameMatches, is_null

_SQL = "sql"
_LANGUAGES = {
    "jsr223.groovy": GROOVY,
    "groovy": GROOVY,
    "jsr223.graal.js": JAVASCRIPT,
    "graal.js": JAVASCRIPT,
    "sql": _SQL,
    "spark.sql": _SQL,
}
"""The languages by the words of the option `language`."""
_KEEP, _DROP, _EVALUATE = "keep", "drop", "evaluate"


@dataclass(frozen=True, slots=True)
class Script:
    """An expression, its language, and the handling of records without a value (`nulls`).

    Scripts are compared by their texts: in trees, 1 equals true.
    """

    text: str
    tree: ScriptTree = field(compare=False)
    language: str
    where: str
    nulls: str

    def meaning(self, record: RecordLayout) -> ScriptMeaning | SqlMeaning:
        """Return the evaluator of the expression for records of this layout."""
        if self.language == _SQL:
            return SqlMeaning(record, self.where)
        return ScriptMeaning(record, self.language, self.where)


@dataclass(frozen=True, slots=True)
class Filter:
    """A tailrace.records.transform.Transform that drops records for which the condition is not true."""

    script: Script

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        try:
            return record, self.rewrite(record) is not None
        except RefusedRecord:
            return record, False

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return _by_null(self.script, record, self._asked)

    def _asked(self, record: RecordLayout) -> Rewritten:
        answer = self.script.meaning(record).boolean(self.script.tree)
        if isinstance(answer, bool):
            return record if answer else None
        return kept(record, answer)


@dataclass(frozen=True, slots=True)
class ContentBasedRouter:
    """A tailrace.records.transform.Transform that sends records to the topic of an expression."""

    script: Script

    def route(self, topic: str) -> str:
        return ANY_TOPIC

    def rewrite(self, record: RecordLayout) -> Rewritten:
        return _by_null(self.script, record, self._routed)

    def _routed(self, record: RecordLayout) -> Rewritten:
        found = self.script.meaning(record).text(self.script.tree)
        if not isinstance(found, ComputedColumn):
            return record if found is None else replace(record, topic=found)
        topic = Constant(record.topic, STRING) if isinstance(record.topic, str) else record.topic
        return replace(record, topic=ComputedColumn((found, topic), _or_else, STRING))


def _or_else(found: pa.Array, otherwise: pa.Array) -> pa.Array:
    return pc.coalesce(found, otherwise)


def _by_null(script: Script, record: RecordLayout, asked: Callable[[RecordLayout], Rewritten]) -> Rewritten:
    """Handle records without a value by `null.handling.mode`, all others by `asked`."""
    null = is_null(record.value)
    if script.nulls == _EVALUATE or null is False:
        return asked(record)
    passed = record if script.nulls == _KEEP else None
    if null is True:
        return passed
    assert not isinstance(null, bool)
    return VaryingLayout(null, partial(_chosen, passed, asked, record))


def _chosen(
    passed: Rewritten, asked: Callable[[RecordLayout], Rewritten], record: RecordLayout, null: bool
) -> Rewritten:
    return passed if null else asked(record)


def _script(given: OptionReader, option: str, name: str) -> Script:
    word = given.required("language")
    if word.lower() not in _LANGUAGES:
        known = "jsr223.groovy, jsr223.graal.js and spark.sql"
        raise ConfigError(f"language = {word} is not supported: conditions are in {known}.")
    language = _LANGUAGES[word.lower()]
    text = given.required(option)
    try:
        tree = parse_sql(text) if language == _SQL else parse(text, language)
    except NotUnderstood as fault:
        raise ConfigError(f"{option}: {fault}.") from None
    nulls = given.word("null.handling.mode", _KEEP, (_KEEP, _DROP, _EVALUATE))
    return Script(text, tree, language, f"{name}'s {option}", nulls)


def _for_topics(given: OptionReader, made: Transform) -> Transform:
    """Restrict the transform to the topics that match `topic.regex`. Raises ConfigError."""
    pattern = given.text("topic.regex")
    given.done()
    if not pattern:
        return made
    try:
        return Conditional(made, TopicNameMatches(compile_expression(pattern, ignore_case=False)), False)
    except ValueError as fault:
        raise ConfigError(f"topic.regex: {fault}.") from None


def script_filter(options: Mapping[str, str]) -> Transform:
    """Make Filter from its options. Raises ConfigError."""
    given = OptionReader(options)
    return _for_topics(given, Filter(_script(given, "condition", "Filter")))


def content_based_router(options: Mapping[str, str]) -> Transform:
    """Make ContentBasedRouter from its options. Raises ConfigError."""
    given = OptionReader(options)
    return _for_topics(given, ContentBasedRouter(_script(given, "topic.expression", "ContentBasedRouter")))
