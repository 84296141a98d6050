"""Collections that share a topic give records in log order, by topic and by key."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import bson
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tailrace.config.expressions import compile_groups
from tailrace.config.naming import TopicNaming
from tailrace.connectors.mongodb.log.indexed_run import ChangeArrays, numbered
from tailrace.connectors.mongodb.records import partition
from tailrace.connectors.mongodb.records.segment import OPLOG
from tailrace.connectors.mongodb.records.tasks import LogTask
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.log import interleaving
from tests.event_settings import event_settings
from tests.extent import examples

KNOWN = [("d", "c0"), ("d", "c1"), ("d", "c2"), ("d", "other")]
EVENTS = event_settings(
    "server",
    "",
    connector="mongodb",
    key_schemas_enable=False,
    value_schemas_enable=False,
    skipped_operations=frozenset(),
    processing_failure_mode="skip",
    naming=TopicNaming(expression=compile_groups(r"(.*)\.c[0-9]"), replacement="$1.all"),
)
SHARED = MongoSettings(EVENTS)

# Equal keys that an application writes as different types, and a key that has no text in 1.1.
KEYS: list[Any] = [0, 1, bson.Int64(1), 1.0, "1", {"a": 1}, {"a": bson.Int64(1)}, bson.ObjectId(b"123456789012")]
Change = tuple[str, int, int, int]
"""Operation, collection, key, and the number of seconds since the last change."""
changes = st.tuples(
    st.sampled_from("cud"), st.integers(0, 3), st.integers(0, len(KEYS) - 1), st.sampled_from([0, 0, 1])
)
logs = st.lists(changes, max_size=40)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits that small batches reach."""
    monkeypatch.setattr(partition, "SMALL", 1)
    monkeypatch.setattr(interleaving, "WINDOW", 5)
    monkeypatch.setattr(interleaving, "PER_TABLE", 1)


def entry(change: Change, number: int, keys: list[Any]) -> bytes:
    op, _, key, _ = change
    document = {"_id": keys[key], "n": number}
    if op == "u":
        return bson.encode({"o": {"$set": {"n": number}}, "o2": {"_id": keys[key]}})
    return bson.encode({"o": document if op == "c" else {"_id": keys[key]}})


def rows_of(log: list[Change], cuts: list[int], keys: list[Any]) -> list[ChangeArrays]:
    seconds = 1000 + np.cumsum([change[3] for change in log], dtype=np.int64)
    time = seconds << 32
    number = numbered(time, 0, 0)
    found = []
    bounds = sorted({0, len(log), *(cut % (len(log) + 1) for cut in cuts)})
    for low, high in pairwise(bounds):
        documents = [entry(log[row], row, keys) for row in range(low, high)]
        at = np.cumsum([0, *map(len, documents)]).astype(np.int64)[:-1]
        found.append(
            ChangeArrays(
                np.frombuffer(b"".join(documents), np.uint8),
                at,
                time[low:high],
                number[low:high],
                np.array([ord(change[0]) for change in log[low:high]], np.uint8),
                np.array([change[1] for change in log[low:high]], np.int32),
            )
        )
    return found


Record = tuple[str, str, int, str, str, bytes]


def records(task: LogTask) -> list[Record]:
    return [
        (row["topic"], row["position"], row["ordinal"], row["table"], row["op"], row["key"])
        for found in task.read()
        for row in found.to_pylist()
    ]


def one_by_one(rows: list[ChangeArrays], settings: MongoSettings) -> list[Record]:
    """Return the records of every single change, in log order."""
    found = []
    for part in rows:
        for row in range(len(part)):
            (task,) = partition.tasks_of([part.part(slice(row, row + 1))], KNOWN, OPLOG, settings, by_key=False,
                                         parallelism=1)  # fmt: skip
            found += records(task)
    return found


@hypothesis_settings(deadline=None, max_examples=examples(40))
@given(logs, st.lists(st.integers(0, 100), max_size=3), st.integers(1, 4))
def test_the_records_of_a_topic_come_in_the_order_of_the_log(
    log: list[Change], cuts: list[int], parallelism: int
) -> None:
    rows = rows_of(log, cuts, KEYS)
    found: dict[str, list[Record]] = {}
    for task in partition.tasks_of(rows, KNOWN, OPLOG, SHARED, by_key=False, parallelism=parallelism):
        own: dict[str, list[Record]] = defaultdict(list)
        for record in records(task):
            own[record[0]].append(record)
        assert not set(own) & set(found)
        found |= own
    expected: dict[str, list[Record]] = defaultdict(list)
    for record in one_by_one(rows, SHARED):
        expected[record[0]].append(record)
    assert found == expected


@hypothesis_settings(deadline=None, max_examples=examples(40))
@given(logs, st.lists(st.integers(0, 100), max_size=3), st.integers(2, 4), st.booleans())
def test_the_records_of_a_key_come_in_the_order_of_the_log_from_whichever_collection(
    log: list[Change], cuts: list[int], parallelism: int, legacy: bool
) -> None:
    settings = replace(SHARED, events=replace(EVENTS, event_format="1.1")) if legacy else SHARED
    rows = rows_of(log, cuts, KEYS)
    found: dict[tuple[str, bytes], list[Record]] = defaultdict(list)
    where: dict[tuple[str, bytes], int] = {}
    tasks = partition.tasks_of(rows, KNOWN, OPLOG, settings, by_key=True, parallelism=parallelism)
    for number, task in enumerate(tasks):
        for record in records(task):
            key = record[0], record[5]
            assert where.setdefault(key, number) == number
            found[key].append(record)
    expected: dict[tuple[str, bytes], list[Record]] = defaultdict(list)
    for record in one_by_one(rows, settings):
        expected[record[0], record[5]].append(record)
    assert found == expected


def test_keys_are_spread_and_a_key_without_a_text_keeps_its_topic_whole() -> None:
    keys = [*range(20), bson.Timestamp(1, 1)]
    log: list[Change] = [("c", n % 3, n, 0) for n in range(21)]
    legacy = replace(SHARED, events=replace(EVENTS, event_format="1.1"))
    spread = partition.tasks_of(rows_of(log[:20], [], keys), KNOWN, OPLOG, legacy, by_key=True, parallelism=4)
    assert len(spread) == 4
    whole = partition.tasks_of(rows_of(log, [], keys), KNOWN, OPLOG, legacy, by_key=True, parallelism=4)
    assert len(whole) == 1
    assert [record[4] for record in records(whole[0])] == ["c"] * 20 + ["quarantine"]
