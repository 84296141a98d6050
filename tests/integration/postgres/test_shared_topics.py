"""Tables of a server that share a topic: a replay of the topic gives the rows of the tables."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tailrace.log.rows import partitioning
from tests.fix_capture import has_read
from tests.fix_postgres import Database
from tests.fix_query import Query

ROUTED = {
    "topic.naming.strategy": "io.debezium.schema.SchemaRegexTopicNamingStrategy",
    "topic.regex": r"(.*)\.part.*",
    "topic.replacement": "$1.parts",
    "topic.key.enforce.uniqueness": "false",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
    "snapshot.mode": "no_data",
}


def partitions(database: Database, count: int) -> None:
    database.execute(
        "create table whole (id int, region int, v text, primary key (id, region)) partition by list (region)",
        *(f"create table part{number} partition of whole for values in ({number})" for number in range(count)),
        # the row keeps its key in the topic when it moves to another partition
        *(f"alter table part{number} replica identity full" for number in range(count)),
    )


def tasks_rows(one: Query) -> list[list[dict[str, Any]]]:
    """Run one trigger and return the records of each task; empty if nothing was new."""
    start = one.committed if one.committed is not None else one.planner.initial_offset()
    end = one.planner.latest_offset(start, None, None)
    if end == start:
        return []
    tasks = one.planner.partitions(start, end)
    one.committed = end
    return [[row for batch in task.read() for row in batch.to_pylist()] for task in tasks]


def replayed(topic: dict[bytes, bytes], rows: list[dict[str, Any]]) -> None:
    """Return the content of a compacted topic after `rows`."""
    for row in rows:
        if row["topic"] != "s.public.parts":
            continue
        assert row["key"] is not None
        if row["op"] == "tombstone":
            topic.pop(row["key"], None)
        elif row["op"] != "d":
            topic[row["key"]] = row["value"]


@pytest.mark.parametrize("order", ["topic", "key"])
def test_rows_that_move_between_partitions_stay_in_their_shared_topic(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    monkeypatch.setattr(partitioning, "SMALL_BATCH_ROWS", 1)
    partitions(database, 3)
    one = query(
        **ROUTED, **{"event.order": order, "event.order.segments": "3", "message.key.columns": "(.*).part.*:id"}
    )
    topic: dict[bytes, bytes] = {}
    tasks_rows(one)
    drawn = random.Random(7)
    tasks = []
    for _ in range(3):
        with database.connect() as connection:
            for _ in range(60):
                number = drawn.randrange(12)
                region = drawn.randrange(3)
                kind = drawn.randrange(5)
                if kind == 0:
                    connection.execute("delete from whole where id = %s", (number,))
                elif connection.execute("update whole set region = %s where id = %s", (region, number)).rowcount == 0:
                    connection.execute("insert into whole values (%s, %s, 'v')", (number, region))
        target, is_read, found = database.flushed(), False, []
        while found or not is_read:
            is_read = has_read(one.planner, target)
            found = tasks_rows(one)
            tasks.append(len(found))
            # tasks run in parallel: the reverse order is as likely as any other
            for rows in reversed(found):
                replayed(topic, rows)
        with database.connect() as connection:
            held = connection.execute("select id, region, v from whole").fetchall()
        assert sorted(tuple(json.loads(value)["after"].values()) for value in topic.values()) == sorted(held)
    assert max(tasks) == 1 if order == "topic" else max(tasks) > 1


@pytest.mark.parametrize(
    "transform",
    [
        {"type": "ContentBasedRouter", "language": "jsr223.groovy", "topic.expression": "'t-' + value.after.kind"},
        {"type": "ExtractNewRecordState", "route.by.field": "kind"},
        {"type": "io.debezium.transforms.outbox.EventRouter", "route.by.field": "kind"},
    ],
    ids=["ContentBasedRouter", "ExtractNewRecordState", "EventRouter"],
)
def test_records_that_values_send_to_one_topic_stay_in_order(
    database: Database, query: Any, monkeypatch: pytest.MonkeyPatch, transform: dict[str, str]
) -> None:
    monkeypatch.setattr(partitioning, "SMALL_BATCH_ROWS", 1)
    columns = "id int primary key, kind text, aggregateid text, payload text"
    database.execute(f"create table one ({columns})", f"create table two ({columns})")
    options = {f"transforms.t.{name}": text for name, text in transform.items()}
    plain = {"snapshot.mode": "no_data", "key.converter.schemas.enable": "false"}
    one = query(**plain, **options, transforms="t", **{"value.converter.schemas.enable": "false"})
    tasks_rows(one)
    for number in range(20):
        table = ("one", "two")[number % 2]
        database.execute(f"insert into {table} values ({number}, 'x', '', '{number}')")
    target, is_read, found = database.flushed(), False, []
    topics: dict[str, list[int]] = {}
    while found or not is_read:
        is_read = has_read(one.planner, target)
        found = tasks_rows(one)
        for rows in reversed(found):
            for row in rows:
                topics.setdefault(row["topic"], []).append(row["position"])
    (positions,) = topics.values()
    assert len(positions) == 20
    assert positions == sorted(positions)


def test_a_truncate_of_several_tables_stands_between_their_changes(database: Database, query: Any) -> None:
    partitions(database, 2)
    one = query(**ROUTED, **{"skipped.operations": "none"})
    tasks_rows(one)
    database.execute(
        "insert into whole values (1, 0, 'a'), (2, 1, 'a')", "truncate whole", "insert into whole values (3, 0, 'a')"
    )
    found: list[dict[str, Any]] = []
    while len(found) < 5:
        found += [row for rows in tasks_rows(one) for row in rows]
    assert [(row["op"], row["table"]) for row in found[:2] + found[4:]] == [
        ("c", "part0"),
        ("c", "part1"),
        ("c", "part0"),
    ]
    assert sorted((row["op"], row["table"]) for row in found[2:4]) == [("t", "part0"), ("t", "part1")]
