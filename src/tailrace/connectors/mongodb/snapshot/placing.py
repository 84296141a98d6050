"""Place the documents of a window in a batch's tasks, after older changes of their keys. Planner.

The tasks of a batch run at the same time. A document whose key was changed before the window, in the same batch, must
follow these changes in their task. Other documents go to separate tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tailrace.connectors.mongodb.log.indexed_run import Flags
from tailrace.connectors.mongodb.records.envelope import table_id
from tailrace.connectors.mongodb.records.partition import key_hashes
from tailrace.connectors.mongodb.records.segment import Segment, selected
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values.fields import Int64s
from tailrace.events import names


def placed(tasks: Sequence[LogTask], documents: Sequence[Segment], settings: MongoSettings) -> list[LogTask]:
    """Return the tasks of a batch with the `documents` of its window, each at the end of the task that changes its
    key."""
    found = list(tasks)
    alone: list[LogTask] = []
    every = [*documents, *(part for task in tasks for part in task.segments)]
    shared = names.shared(settings.events, (table_id(segment.namespace) for segment in every))
    for segment in documents:
        topic = shared[table_id(segment.namespace)]
        keys, left = key_hashes(segment, settings), np.ones(len(segment), np.bool_)
        for place, task in enumerate(tasks):
            parts = [part for part in task.segments if shared[table_id(part.namespace)] == topic]
            if not parts:
                continue
            which = left & _among(keys, [key_hashes(part, settings) for part in parts])
            if which.any():
                more = segment if which.all() else selected(segment, np.flatnonzero(which))
                found[place] = replace(found[place], segments=(*found[place].segments, more))
                left &= ~which
        if left.any():
            rest = segment if left.all() else selected(segment, np.flatnonzero(left))
            alone.append(LogTask((rest,), settings))
    return found + alone


def _among(keys: Int64s | None, changed: Sequence[Int64s | None]) -> Flags:
    """Return flags of the keys that are among the changed ones, by hash. A hash collision only moves a document to
    another task.

    If a key has no text, all changes of the topic are in one task: then all flags are True.
    """
    known = [one for one in changed if one is not None]
    if keys is None or len(known) < len(changed):
        return np.ones(1, np.bool_)
    return np.isin(keys, np.concatenate(known))
