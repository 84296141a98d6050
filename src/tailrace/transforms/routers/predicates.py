"""Predicates: the conditions of transforms, set by `transforms.<name>.predicate`. Planner, worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import TableId
from tailrace.columns.logical import BOOLEAN
from tailrace.config.expressions import Expression, compile_expression
from tailrace.errors import ConfigError
from tailrace.records.hypertables import Catalogue, Hypertables
from tailrace.records.layout import ComputedColumn, Constant, Node, RecordLayout, Struct
from tailrace.records.transform import Rewritten, Shared, Transform, VaryingLayout, by_distinct, routed


class Predicate(Protocol):
    """A condition on records, named in a configuration's `predicates`. Hashable, and pickled to the workers."""

    def __hash__(self) -> int: ...

    def of_topic(self, topic: str) -> bool | None:
        """Return the answer for all records of a topic; None if it depends on more than the topic."""
        ...

    def of(self, record: RecordLayout) -> bool | Node:
        """Return the answer for the records of a layout: one for all, or a column of booleans."""
        ...


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """True if the whole topic, as left by earlier transforms, matches the pattern."""

    pattern: Expression

    def of_topic(self, topic: str) -> bool | None:
        return self.pattern.fullmatch(topic)

    def of(self, record: RecordLayout) -> bool | Node:
        if isinstance(record.topic, str):
            return self.pattern.fullmatch(record.topic)
        return ComputedColumn((record.topic,), partial(by_distinct, self.pattern.fullmatch, pa.bool_()), BOOLEAN)


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """True if the record has a header of this name."""

    name: str

    def of_topic(self, topic: str) -> bool | None:
        return None

    def of(self, record: RecordLayout) -> bool | Node:
        return any(header.name == self.name for header in record.headers)


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """True if the record has no value."""

    def of_topic(self, topic: str) -> bool | None:
        return None

    def of(self, record: RecordLayout) -> bool | Node:
        return is_null(record.value)


def is_null(node: Node | None) -> bool | Node:
    """Return True or False if all values of a node, or none, are null; else a column of booleans."""
    if node is None:
        return True
    if isinstance(node, Constant):
        return node.value is None
    if isinstance(node, Struct) or not node.type.optional:
        return False
    return ComputedColumn((node,), pc.is_null, BOOLEAN)


@dataclass(frozen=True, slots=True)
class Conditional:
    """A tailrace.records.transform.Transform that applies `transform` to the records for which a predicate is true, or
    with `negate` false. Other records pass unchanged."""

    transform: Transform
    predicate: Predicate
    negate: bool

    @property
    def places_partitions(self) -> bool:
        """True if records may name their partition."""
        return bool(getattr(self.transform, "places_partitions", False))

    @property
    def places_times(self) -> bool:
        """True if records may have a timestamp of their own."""
        return bool(getattr(self.transform, "places_times", False))

    @property
    def asks(self) -> Catalogue | None:
        """See tailrace.records.hypertables."""
        found: Catalogue | None = getattr(self.transform, "asks", None)
        return found

    def knowing(self, hypertables: Hypertables) -> Conditional:
        """See tailrace.records.hypertables."""
        return replace(self, transform=self.transform.knowing(hypertables))  # type: ignore[attr-defined]

    def routes(self, topic: str, table: TableId) -> tuple[str, ...]:
        """See tailrace.records.transform.Transform."""
        answer = self.predicate.of_topic(topic)
        made = () if answer == self.negate else routed(topic, table, (self.transform,))
        return (*made, topic) if answer is None else made or (topic,)

    def rewrite(self, record: RecordLayout) -> Rewritten:
        answer = self.predicate.of(record)
        if isinstance(answer, bool):
            return self._by(record, answer)
        return VaryingLayout(answer, partial(self._by, record))

    def shared(self, record: RecordLayout) -> Shared:
        """See records.transform.behind_delete."""
        answer = self.predicate.of(record)
        if not isinstance(answer, bool):
            return record, False
        if answer == self.negate:
            return record, True
        found: Shared = self.transform.shared(record) if hasattr(self.transform, "shared") else (record, False)
        return found

    def _by(self, record: RecordLayout, answer: Any) -> Rewritten:
        return self.transform.rewrite(record) if bool(answer) != self.negate else record


def topic_name_matches(options: Mapping[str, str]) -> TopicNameMatches:
    """Make the predicate from its options. Raises ConfigError."""
    pattern = _only(options, "pattern")
    try:
        return TopicNameMatches(compile_expression(pattern, ignore_case=False))
    except ValueError as fault:
        raise ConfigError(f"Its pattern {fault}.") from None


def has_header_key(options: Mapping[str, str]) -> HasHeaderKey:
    """Make the predicate from its options. Raises ConfigError."""
    return HasHeaderKey(_only(options, "name"))


def record_is_tombstone(options: Mapping[str, str]) -> RecordIsTombstone:
    """Make the predicate, which has no options. Raises ConfigError."""
    if options:
        raise ConfigError(f"It has no option {next(iter(options))}.")
    return RecordIsTombstone()


def _only(options: Mapping[str, str], name: str) -> str:
    """Return the only option of a predicate. Raises ConfigError if it is missing, or if others are given."""
    unknown = [given for given in options if given != name]
    if unknown:
        raise ConfigError(f"It has no option {unknown[0]}; it has {name}.")
    if not options.get(name):
        raise ConfigError(f"It needs the option {name}.")
    return options[name]
