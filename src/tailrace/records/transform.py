"""Transform: a rewrite of layouts, applied when the plan of a table's records is made, not per record. Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns import TableId
from tailrace.columns.logical import STRING
from tailrace.records.layout import ComputedColumn, Node, RecordLayout


@dataclass(frozen=True, slots=True)
class VaryingLayout:
    """Records whose layout depends on values: records with the value v of `by` have the layout `of(v)`.

    `by` is a leaf with few different values in a block, such as a boolean or a topic. `of` is called once per value,
    with None for null. A layout of None leaves such records out.
    """

    by: Node
    of: Callable[[Any], Rewritten]


@dataclass(frozen=True, slots=True)
class LeftOutRecords:
    """Replaces a layout: such records are left out, and the log reports why and how many.

    `reason` is part of a sentence: what the records are, and who leaves them out. `is_error` sets the log level.
    """

    reason: str
    is_error: bool = False


Rewritten = RecordLayout | VaryingLayout | LeftOutRecords | None
"""The result of a transform; None leaves such records out."""


class RefusedRecord(Exception):
    """A record that a transform cannot process, where Debezium fails. Becomes a TransformError with table and place.

    `reason` is a sentence without its end that names the transform and the field, and no value. The function of a
    ComputedColumn sets `row`, an index into its input arrays. If `rewrite` raises, every record of the layout is
    refused.
    """

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason, row)
        self.reason = reason
        self.row = row


ANY_TOPIC = "*"
"""The `route` of a transform if the topic depends on a record's values; no topic has this name."""


class Transform(Protocol):
    """The effect of one name in a configuration's `transforms`. Hashable, and pickled to the workers.

    An entry point of the group `tailrace.transforms` names a function that makes it. The function gets the options that
    begin with `transforms.<word>.`, without this prefix and without `type`, `predicate` and `negate`. It raises
    ConfigError for an option that is unknown or wrong. Equal options must give equal transforms.

    Further methods are optional. `route` belongs to a transform that changes topics: it takes a topic and returns the
    one to which its records go, ANY_TOPIC if values choose it. One task reads all tables that share a topic, to keep
    its order. `routes` replaces it if the topic depends on the table too, or is one of several: it takes topic and
    table and returns all possible topics. Planner, worker.

    `in_form` belongs to a transform whose defaults differ between generations of Debezium: it takes `event.format` and
    returns the transform for it. `shared` belongs to a transform that adds headers to the given record instead of a
    copy, as some of Debezium's do; see behind_delete. `with_nulls` belongs to a transform that depends on how the
    converter shows nulls: it takes True if that shows defaults instead, and returns the transform for it.
    """

    def __hash__(self) -> int: ...

    def rewrite(self, record: RecordLayout) -> Rewritten:
        """Return the rewritten layout, including its topic. Worker. Raises RefusedRecord."""
        ...


Shared = tuple[RecordLayout, bool]
"""A delete with the headers that a transform has added, and whether the next transform gets the same record."""


def behind_delete(tombstone: RecordLayout, delete: RecordLayout, transforms: Iterable[Any]) -> RecordLayout:
    """Return the tombstone with the headers that the first transforms have added to its delete.

    In Debezium the two records share one headers object, and the delete passes the transforms before the tombstone.
    """
    for transform in transforms:
        if not hasattr(transform, "shared"):
            break
        delete, goes_on = transform.shared(delete)
        if not goes_on:
            break
    return replace(tombstone, headers=delete.headers)


def routed(topic: str, table: TableId, transforms: Iterable[Transform]) -> tuple[str, ...]:
    """Return the topics of a table's events after all transforms, as far as they depend on topic and table alone.

    The first topic gets the events that every transform accepts.
    """
    found: tuple[str, ...] = (topic,)
    for transform in transforms:
        if hasattr(transform, "routes"):
            found = tuple(dict.fromkeys(route for topic in found for route in transform.routes(topic, table)))
        elif hasattr(transform, "route"):
            found = tuple(dict.fromkeys(map(transform.route, found)))
    return found


def rewritten(record: Rewritten, transforms: Sequence[Transform]) -> Rewritten:
    """Return the layout after all transforms, in order; those after a VaryingLayout apply to each of its layouts."""
    found = record
    for place, transform in enumerate(transforms):
        if not isinstance(found, RecordLayout):
            return _later(found, transforms[place:])
        found = transform.rewrite(found)
        if isinstance(found, RecordLayout) and found.keep is not None:
            found = kept(found, found.keep)
    return found


def _later(
    found: VaryingLayout | LeftOutRecords | None, transforms: Sequence[Transform]
) -> VaryingLayout | LeftOutRecords | None:
    """Return a VaryingLayout with further transforms, which apply once its values are known."""
    if not isinstance(found, VaryingLayout):
        return found
    return VaryingLayout(found.by, partial(_of, found.of, transforms))


def _of(of: Callable[[Any], Rewritten], transforms: Sequence[Transform], value: Any) -> Rewritten:
    return rewritten(of(value), transforms)


def kept(record: RecordLayout, keep: ComputedColumn) -> VaryingLayout:
    """Return the record where `keep`, a boolean, is true; null is false."""
    return either(keep, replace(record, keep=None), None)


def either(by: Node, true: Rewritten, false: Rewritten) -> VaryingLayout:
    """Return one layout where the boolean `by` is true, another where it is false or null."""
    return VaryingLayout(by, partial(_chosen, true, false))


def _chosen(true: Rewritten, false: Rewritten, value: Any) -> Rewritten:
    return true if value else false


def resolved(record: Rewritten, value: Callable[[Node], Any]) -> RecordLayout | LeftOutRecords | None:
    """Return the layout of one record with known values; `value` returns the value of a leaf."""
    while isinstance(record, VaryingLayout):
        record = record.of(value(record.by))
    return record


def with_topic(record: RecordLayout, named: Callable[[str], str]) -> RecordLayout:
    """Return the record with `named(topic)` as its topic; for a computed topic, once per distinct topic of a block.

    `named` is pickled with the layout's transform.
    """
    topic = record.topic
    if isinstance(topic, str):
        return replace(record, topic=named(topic))
    return replace(record, topic=ComputedColumn((topic,), partial(by_distinct, named, pa.string()), STRING))


def by_distinct(function: Callable[[Any], Any], of: pa.DataType, values: pa.Array) -> pa.Array:
    """Return `function` of each value, as an array of the type `of`. It is called once per distinct value; null stays
    null."""
    known = pc.dictionary_encode(values)
    made = [None if value is None else function(value) for value in known.dictionary.to_pylist()]
    return pa.array(made, of).take(known.indices)
