"""Transform: a rewrite of layouts, done when the plan of a table's records is made, and not per record. Worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from tailrace.records.layout import RecordLayout


class Transform(Protocol):
    """What one word of a configuration's `transforms` does to records. It is hashable, and pickled to the workers.

    Its class, which an entry point of the group `tailrace.transforms` names, is called with the options of the
    configuration that begin with `transforms.<word>.`, without this beginning and without `type`. It raises ConfigError
    for an option that is unknown or wrong. Equal options have to give equal transforms.
    """

    def __hash__(self) -> int: ...

    def route(self, topic: str) -> str:
        """The topic that records for `topic` go to. Tables that share one are read by one task, so that the order of
        the topic holds. Planner, worker."""
        ...

    def rewrite(self, record: RecordLayout) -> RecordLayout | None:
        """The record's layout as it is to be; its topic is what `route` has made of it. None leaves such records out.
        Worker."""
        ...


def routed(topic: str, transforms: Iterable[Transform]) -> str:
    """The topic after all transforms."""
    for transform in transforms:
        topic = transform.route(topic)
    return topic


def rewritten(record: RecordLayout, transforms: Iterable[Transform]) -> RecordLayout | None:
    """The layout after all transforms, in their order; None where one leaves such records out."""
    found: RecordLayout | None = record
    for transform in transforms:
        found = None if found is None else transform.rewrite(found)
    return found


def at_its_topic(record: RecordLayout, transforms: Iterable[Transform]) -> RecordLayout | None:
    """The same for a record whose topic no transform has seen yet."""
    topic = record.topic if not isinstance(record.topic, str) else routed(record.topic, transforms)
    return rewritten(replace(record, topic=topic), transforms)
