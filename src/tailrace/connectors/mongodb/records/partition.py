"""Partitioning: splits the changes of a batch into tasks that keep the order of events. Planner.

Collections with the same topic share its task or, with order by key, the tasks of its keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, Namespace
from tailrace.connectors.mongodb.records import texts
from tailrace.connectors.mongodb.records.envelope import table_id
from tailrace.connectors.mongodb.records.images import images
from tailrace.connectors.mongodb.records.segment import Numbers, Segment, segments, selected
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.fields import Int64s
from tailrace.errors import ConversionError, DecodeError
from tailrace.events import names

# A batch of fewer changes is one task: a second task would cost more than it saves.
SMALL = 4096


def tasks_of(
    rows: Sequence[ChangeArrays],
    known: Sequence[Namespace],
    kind: str,
    settings: MongoSettings,
    *,
    by_key: bool,
    parallelism: int,
    numbers: Sequence[Numbers] | None = None,
) -> list[LogTask]:
    """Return the tasks. All changes of a topic are in one task, or with `by_key` all changes of a document.

    Topics are spread evenly over the tasks by bytes.
    """
    found = segments(rows, known, kind, numbers)
    every = [part for parts in found.values() for part in parts]
    total = sum(len(part) for part in rows)
    if total < SMALL or parallelism < 2:
        whole = _in_order(every)
        return [LogTask(tuple(whole), settings)] if whole else []
    loads: list[list[Segment]] = [[] for _ in range(parallelism)]
    unsplit: list[list[Segment]] = []
    for parts in names.by_topic(settings.events, every, lambda part: table_id(part.namespace)).values():
        split = _by_key(parts, settings, parallelism) if by_key else None
        if split is None:
            unsplit.append(parts)
            continue
        for held, more in zip(loads, split, strict=True):
            held.extend(more)
    for one in sorted(unsplit, key=_size, reverse=True):
        min(loads, key=_size).extend(_in_order(one))
    return [LogTask(tuple(held), settings) for held in loads if held]


def _size(parts: Sequence[Segment]) -> int:
    return sum(len(part.data) for part in parts)


def _in_order(parts: Sequence[Segment]) -> list[Segment]:
    return sorted(parts, key=lambda part: (int(part.time[0]), int(part.number[0])))


def _by_key(parts: Sequence[Segment], settings: MongoSettings, parallelism: int) -> list[list[Segment]] | None:
    """Return the changes of a topic by a hash of their keys; None if one of the keys has none."""
    loads: list[list[Segment]] = [[] for _ in range(parallelism)]
    for part in parts:
        hashes = key_hashes(part, settings)
        if hashes is None:
            return None
        for number in range(parallelism):
            which = np.flatnonzero(hashes % parallelism == number)
            if len(which):
                loads[number].append(selected(part, which))
    return loads


def key_hashes(segment: Segment, settings: MongoSettings) -> Int64s | None:
    """Return a hash of the text of each document's key; None if a key has no text.

    The hash is not taken of the bytes of `_id`, because a long and an int of the same value are the same key.
    """
    try:
        keys = texts.values(segment.data, images(segment).key, texts.key_form(settings))
    except (ConversionError, DecodeError):
        return None
    return fields.hashes(keys.data, keys.offsets)
