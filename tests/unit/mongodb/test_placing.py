"""A document of a window follows the older changes of its key, in any division into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
import numpy as np
import pytest

from tailrace.columns.batch import Marker
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays
from tailrace.connectors.mongodb.records.partition import SMALL, tasks_of
from tailrace.connectors.mongodb.records.segment import READ, STREAM, Segment, read_documents
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.snapshot.placing import placed
from tailrace.connectors.registry import parse
from tailrace.events.event_settings import EventSettings
from tailrace.kernels.buffers import readonly

NAMES = [("d", "a"), ("d", "b")]


def settings(**options: str) -> MongoSettings:
    named = {name.replace("_", "."): text for name, text in options.items()}
    config = parse("mongodb", {"mongodb.connection.string": "mongodb://h/?replicaSet=r", "topic.prefix": "p"} | named)
    return MongoSettings.of(config, EventSettings.from_options(config, "run"), "r")


def packed(documents: Sequence[dict[str, Any]]) -> tuple[Any, Any]:
    encoded = [bson.encode(document) for document in documents]
    starts = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    return readonly(np.frombuffer(b"".join(encoded), np.uint8)), starts


def changes(ids: Sequence[Any], collection: int) -> ChangeArrays:
    """Return updates of documents, at the timestamps from 1 on."""
    namespace = dict(zip(("db", "coll"), NAMES[collection], strict=True))
    data, starts = packed([{"operationType": "update", "ns": namespace, "documentKey": {"_id": id_}} for id_ in ids])
    count = len(ids)
    return ChangeArrays(
        data, starts, np.arange(1, count + 1, dtype=np.int64), np.ones(count, np.int64),
        np.full(count, ord("u"), np.uint8), np.full(count, collection, np.int32),
    )  # fmt: skip


def read(ids: Sequence[Any], collection: int) -> Segment:
    data, starts = packed([{"_id": id_} for id_ in ids])
    return read_documents(NAMES[collection], data, starts, 1 << 40, 1, marker=Marker.INCREMENTAL)


def told(segment: Segment) -> list[tuple[str, str, Any]]:
    """Return kind, collection and key of each document."""
    found = []
    for start in segment.starts.tolist():
        size = int.from_bytes(segment.data[start : start + 4].tobytes(), "little")
        document = bson.decode(segment.data[start : start + size].tobytes())
        key = document if segment.kind == READ else document["documentKey"]
        found.append((segment.kind, segment.namespace[1], key["_id"]))
    return found


def order(task: LogTask) -> list[tuple[str, str, Any]]:
    return [one for segment in task.segments for one in told(segment)]


@pytest.mark.parametrize("by_key", [False, True], ids=["topic", "key"])
@pytest.mark.parametrize("count", [10, SMALL], ids=["one task", "several"])
def test_a_document_follows_the_changes_of_its_key(by_key: bool, count: int) -> None:
    made = settings()
    rows = [changes(list(range(count)), 0), changes(list(range(count)), 1)]
    tasks = tasks_of(rows, NAMES, STREAM, made, by_key=by_key, parallelism=4)
    documents = [read([*range(0, count, 3), -1, -2], 0), read([2, -3], 1)]
    found = [order(task) for task in placed(tasks, documents, made)]
    everything = [one for task in found for one in task]
    given = [one for task in tasks for one in order(task)] + [one for part in documents for one in told(part)]
    assert sorted(everything, key=str) == sorted(given, key=str)
    for _, collection, key in (one for part in documents for one in told(part) if one[2] >= 0):
        (task,) = [task for task in found if (READ, collection, key) in task]
        assert task.index((STREAM, collection, key)) < task.index((READ, collection, key))
    # Documents that no change of the batch touches do not delay a task.
    assert [task for task in found if all(kind == READ for kind, _, _ in task)] == [
        [(READ, "a", -1), (READ, "a", -2)],
        [(READ, "b", -3)],
    ]


def test_a_key_is_one_whatever_the_type_of_its_number() -> None:
    made = settings()
    ids = [bson.Int64(number) for number in range(SMALL)]
    tasks = tasks_of([changes(ids, 0)], NAMES, STREAM, made, by_key=True, parallelism=4)
    found = [order(task) for task in placed(tasks, [read(list(range(0, SMALL, 5)), 0)], made)]
    assert len(found) == len(tasks)
    assert all((STREAM, "a", key) in task for task in found for kind, _, key in task if kind == READ)


def test_without_a_window_nothing_changes() -> None:
    made = settings()
    tasks = tasks_of([changes([1], 0)], NAMES, STREAM, made, by_key=False, parallelism=4)
    assert placed(tasks, [], made) == tasks
