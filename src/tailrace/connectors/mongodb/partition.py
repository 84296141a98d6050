"""From the changes of a batch to its tasks, so that the promised order holds. Planner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.connectors.mongodb import fields
from tailrace.connectors.mongodb.chunk import Namespace, Rows
from tailrace.connectors.mongodb.envelope import table_id
from tailrace.connectors.mongodb.images import images
from tailrace.connectors.mongodb.segment import Numbers, Segment, segments, selected
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.tasks import LogTask
from tailrace.events import names

# A batch of fewer changes is one task: another would cost more than it saves.
SMALL = 4096


def tasks_of(
    rows: Sequence[Rows],
    known: Sequence[Namespace],
    kind: str,
    settings: MongoSettings,
    *,
    by_key: bool,
    parallelism: int,
    numbers: Sequence[Numbers] | None = None,
) -> list[LogTask]:
    """The tasks: all changes of one topic in one, or with `by_key` those of one document.

    Tasks of topics are filled up evenly by bytes.
    """
    found = segments(rows, known, kind, numbers)
    total = sum(len(part) for part in rows)
    if total < SMALL or parallelism < 2:
        whole = _in_order([part for parts in found.values() for part in parts])
        return [LogTask(tuple(whole), settings)] if whole else []
    if by_key:
        return _by_key(found, settings, parallelism)
    topics: dict[str, list[Segment]] = {}
    for namespace, parts in found.items():
        topics.setdefault(names.topic(settings.events, table_id(namespace)), []).extend(parts)
    loads: list[tuple[int, list[Segment]]] = [(0, []) for _ in range(min(parallelism, len(topics)))]
    for parts in sorted(topics.values(), key=lambda parts: -sum(len(part.data) for part in parts)):
        size, held = min(loads, key=lambda load: load[0])
        loads.remove((size, held))
        loads.append((size + sum(len(part.data) for part in parts), held + _in_order(parts)))
    return [LogTask(tuple(held), settings) for _, held in loads if held]


def _in_order(parts: Sequence[Segment]) -> list[Segment]:
    return sorted(parts, key=lambda part: (int(part.time[0]), int(part.number[0])))


def _by_key(found: dict[Namespace, list[Segment]], settings: MongoSettings, parallelism: int) -> list[LogTask]:
    """Every collection over `parallelism` tasks by a hash of the bytes of `_id`."""
    loads: list[list[Segment]] = [[] for _ in range(parallelism)]
    for parts in found.values():
        for part in parts:
            key = images(part).key
            hashes = fields.hashes(part.data, key.places, key.kinds)
            for number in range(parallelism):
                which = np.flatnonzero(hashes % parallelism == number)
                if len(which):
                    loads[number].append(selected(part, which))
    return [LogTask(tuple(held), settings) for held in loads if held]
