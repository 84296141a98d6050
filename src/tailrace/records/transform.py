"""Transform: a rewrite of layouts, done when the plan of a table's records is made, and not per record. Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import TableId
from tailrace.columns.logical import STRING
from tailrace.records.layout import Computed, Node, RecordLayout


@dataclass(frozen=True, slots=True)
class Varying:
    """Records whose layout depends on values: those with the value v of `by` have the layout `of(v)`.

    `by` is a leaf with few different values in a block, as a boolean or a topic; `of` is called once for each, with
    None for null. None in the place of a layout leaves such records out.
    """

    by: Node
    of: Callable[[Any], Rewritten]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """In the place of a layout: such records are left out, and the log says why and how many.

    `reason` is a part of a sentence: what they are, and who leaves them out. `is_error` is for the log's level.
    """

    reason: str
    is_error: bool = False


Rewritten = RecordLayout | Varying | LeftOut | None
"""What a transform makes of a layout; None leaves such records out."""


class Refused(Exception):
    """A record that a transform cannot take, as Debezium's ends there. Becomes a TransformError with table and place.

    `reason` is a sentence without its end that names the transform and the field, and no value. A function of a
    Computed gives the `row` of the arrays that it was given; a layout is refused for every record.
    """

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row


ANY_TOPIC = "*"
"""What a transform's `route` gives where the topic depends on a record's values: no topic has this name."""


class Transform(Protocol):
    """What one word of a configuration's `transforms` does to records. It is hashable, and pickled to the workers.

    Its class, which an entry point of the group `tailrace.transforms` names, is called with the options of the
    configuration that begin with `transforms.<word>.`, without this beginning and without `type`, `predicate` and
    `negate`. It raises ConfigError for an option that is unknown or wrong. Equal options have to give equal transforms.

    A transform that changes topics has a method `route`, which takes a topic and gives the one that its records go to,
    ANY_TOPIC where values choose it. Tables that share a topic are read by one task, so that its order holds. Where the
    topic depends on the table too, or is one of several, a method `routes` in its place takes topic and table and gives
    all topics that records may go to. Planner, worker.

    A transform whose defaults differ between generations of Debezium has a method `in_form` too, which takes
    `event.format` and gives the transform for that form of events. One that adds headers to the record that it is
    given, and not to a copy, as some of Debezium's do, has a method `shared`; see behind_delete. One that depends on
    whether the converter shows nulls as defaults has a method `with_nulls`, which takes that.
    """

    def __hash__(self) -> int: ...

    def rewrite(self, record: RecordLayout) -> Rewritten:
        """The record's layout as it is to be, its topic too. Worker. Raises Refused."""
        ...


Shared = tuple[RecordLayout, bool]
"""A delete with the headers that a transform has added to it, and whether the next transform is given the same record,
and not a copy of it."""


def behind_delete(tombstone: RecordLayout, delete: RecordLayout, transforms: Iterable[Any]) -> RecordLayout:
    """The tombstone with what the first transforms have added to the headers of its delete.

    Debezium's two records have their headers in one place, and the delete has passed when the tombstone comes.
    """
    for transform in transforms:
        if not hasattr(transform, "shared"):
            break
        delete, goes_on = transform.shared(delete)
        if not goes_on:
            break
    return replace(tombstone, headers=delete.headers)


def routed(topic: str, table: TableId, transforms: Iterable[Transform]) -> tuple[str, ...]:
    """The topics of a table's events after all transforms, as far as they depend on topic and table alone.

    The first is that of events which each transform takes.
    """
    found: tuple[str, ...] = (topic,)
    for transform in transforms:
        if hasattr(transform, "routes"):
            found = tuple(dict.fromkeys(one for topic in found for one in transform.routes(topic, table)))
        elif hasattr(transform, "route"):
            found = tuple(dict.fromkeys(map(transform.route, found)))
    return found


def rewritten(record: Rewritten, transforms: Sequence[Transform]) -> Rewritten:
    """The layout after all transforms, in their order; those after a Varying are done for each of its layouts."""
    found = record
    for place, transform in enumerate(transforms):
        if not isinstance(found, RecordLayout):
            return _later(found, transforms[place:])
        found = transform.rewrite(found)
        if isinstance(found, RecordLayout) and found.keep is not None:
            found = kept(found, found.keep)
    return found


def _later(found: Varying | LeftOut | None, transforms: Sequence[Transform]) -> Varying | LeftOut | None:
    """What becomes of a Varying by further transforms, once its values are known."""
    if not isinstance(found, Varying):
        return found
    return Varying(found.by, partial(_of, found.of, transforms))


def _of(of: Callable[[Any], Rewritten], transforms: Sequence[Transform], value: Any) -> Rewritten:
    return rewritten(of(value), transforms)


def kept(record: RecordLayout, keep: Computed) -> Varying:
    """The record where `keep`, a boolean, is true; null is false."""
    return either(keep, replace(record, keep=None), None)


def either(by: Node, true: Rewritten, false: Rewritten) -> Varying:
    """One layout where the boolean `by` is true, another where it is false or null."""
    return Varying(by, partial(_chosen, true, false))


def _chosen(true: Rewritten, false: Rewritten, value: Any) -> Rewritten:
    return true if value else false


def resolved(record: Rewritten, value: Callable[[Node], Any]) -> RecordLayout | LeftOut | None:
    """The layout of one record whose values are all known; `value` gives that of a leaf."""
    while isinstance(record, Varying):
        record = record.of(value(record.by))
    return record


def with_topic(record: RecordLayout, named: Callable[[str], str]) -> RecordLayout:
    """The record with the topic that `named` makes of its topic; of a computed one, of each different topic of a
    block. `named` is pickled with the layout's transform."""
    topic = record.topic
    if isinstance(topic, str):
        return replace(record, topic=named(topic))
    return replace(record, topic=Computed((topic,), partial(by_distinct, named, pa.string()), STRING))


def by_distinct(function: Callable[[Any], Any], of: pa.DataType, values: pa.Array) -> pa.Array:
    """What `function` makes of each of the values, as an array of the type `of`; it is called once for each that
    differs, and null stays null."""
    known = pc.dictionary_encode(values)
    made = [None if value is None else function(value) for value in known.dictionary.to_pylist()]
    return pa.array(made, of).take(known.indices)
