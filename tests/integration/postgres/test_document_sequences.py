"""The documented PostgreSQL events, form 1.7: key changes, deletes and tombstones, truncates, compaction."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.fix_capture import Captures
from tests.fix_postgres import Database

TABLE = "create table t (id int primary key, v text)"
PLAIN = {"key_converter_schemas_enable": "false", "value_converter_schemas_enable": "false"}


@pytest.mark.seed("000-35", "000-36")
@pytest.mark.parametrize(
    ("table", "identity", "old", "new"),
    [
        ("id int primary key, u int not null, v text", "default", {"id": 1}, {"id": 5}),
        ("id int primary key, u int not null, v text", "full", {"id": 1}, {"id": 5}),
        ("v text, id int not null unique, u int not null", "full", {"id": 1}, {"id": 5}),
        ("id int, u int, v text, primary key (u, id)", "default", {"u": 2, "id": 1}, {"u": 2, "id": 5}),
    ],
)
def test_a_changed_key_is_a_delete_a_tombstone_and_a_create(
    database: Database, capture: Captures, table: str, identity: str, old: dict[str, int], new: dict[str, int]
) -> None:
    query = capture(f"create table t ({table})", f"alter table t replica identity {identity}")
    database.execute("insert into t (id, u, v) values (1, 2, 'x')", "update t set id = 5, v = 'y'")
    deleted, tombstone, created = query.take(4)[1:]
    assert [deleted.id, tombstone.id, created.id] == [old, old, new]
    assert (deleted.payload["op"], deleted.payload["after"]) == ("d", None)
    assert tombstone.row["value"] is None
    assert (created.payload["op"], created.payload["before"]) == ("c", None)
    assert created.payload["after"] == {"id": 5, "u": 2, "v": "y"}
    assert deleted.source["lsn"] == created.source["lsn"]


@pytest.mark.seed("000-37")
def test_the_events_of_a_changed_key_name_the_other_key(database: Database, capture: Captures) -> None:
    query = capture(TABLE)
    database.execute("insert into t values (1, 'x')", "update t set id = 5")
    plain, deleted, _, created = query.take(4)
    # The headers of a plain event, and of other generations: this format has no others.
    assert (plain.headers, list(deleted.headers), list(created.headers)) == (
        {},
        ["__debezium.newkey"],
        ["__debezium.oldkey"],
    )
    assert deleted.headers["__debezium.newkey"] == {"schema": created.key["schema"], "payload": {"id": 5}}
    assert created.headers["__debezium.oldkey"] == {"schema": created.key["schema"], "payload": {"id": 1}}


@pytest.mark.seed("000-35", "000-36")
def test_an_update_that_writes_the_same_key_stays_an_update(database: Database, capture: Captures) -> None:
    query = capture(TABLE, "alter table t replica identity full")
    database.execute("insert into t values (1, 'x')", "update t set id = 1, v = 'y'")
    assert [event.op for event in query.take(2)] == ["c", "u"]


@pytest.mark.seed("000-40")
@pytest.mark.parametrize(("wanted", "count"), [("true", 7), ("false", 5)])
def test_each_delete_has_a_tombstone_unless_switched_off(
    database: Database, capture: Captures, wanted: str, count: int
) -> None:
    query = capture(TABLE, tombstones_on_delete=wanted)
    database.execute("insert into t values (1, 'x'), (2, 'y')", "update t set id = 3 where id = 1")
    database.execute("delete from t where id = 2")
    events = query.take(count)
    deletes = [at for at, event in enumerate(events) if event.op == "d"]
    assert [events[at].id for at in deletes] == [{"id": 1}, {"id": 2}]
    if wanted == "true":
        followers = [events[at + 1] for at in deletes]
        assert [event.row["value"] for event in followers] == [None, None]
        assert [event.row["key"] for event in followers] == [events[at].row["key"] for at in deletes]
    else:
        assert all(event.row["value"] is not None for event in events)


@pytest.mark.seed("000-41", "000-32")
def test_a_truncate_has_neither_key_nor_rows(database: Database, capture: Captures) -> None:
    # The document leaves out `before` and `after`; the converter writes them as null, like any field of the envelope.
    query = capture(TABLE, truncate_handling_mode="include")
    database.execute("insert into t values (1, 'x')", "truncate t")
    created, truncated = query.take(2)
    assert truncated.row["key"] is None
    value = truncated.payload
    assert (value["op"], value["before"], value["after"]) == ("t", None, None)
    assert list(truncated.source) == list(created.source)
    assert truncated.source["lsn"] > created.source["lsn"]
    assert type(value["ts_ms"]) is int


@pytest.mark.seed("000-43")
def test_truncates_have_to_be_asked_for(database: Database, capture: Captures) -> None:
    query = capture(TABLE)
    database.execute("insert into t values (1, 'x')", "truncate t", "insert into t values (2, 'y')")
    assert [event.op for event in query.take(2)] == ["c", "c"]


@pytest.mark.seed("000-42", "000-43")
def test_a_truncate_of_several_tables_is_an_event_of_each_in_its_place(database: Database, capture: Captures) -> None:
    query = capture(
        TABLE,
        "create table parent (id int primary key)",
        "create table child (id int primary key, parent int references parent)",
        truncate_handling_mode="include",
    )
    database.execute(
        "insert into t values (1, 'x')",
        "insert into parent values (1)",
        "insert into child values (1, 1)",
        "truncate t, parent cascade",
        "insert into t values (2, 'y')",
    )
    events = query.take(7)
    by_table = {name: [e.op for e in events if e.row["table"] == name] for name in ("t", "parent", "child")}
    # A topic has the order of the log; consumers see this order if the topic has one partition.
    assert by_table == {"t": ["c", "t", "c"], "parent": ["c", "t"], "child": ["c", "t"]}
    assert len({event.source["txId"] for event in events if event.op == "t"}) == 1


@pytest.mark.seed("000-39")
def test_the_latest_event_of_each_key_is_the_whole_table(database: Database, capture: Captures) -> None:
    query = capture("create table t (a int, b int, v text, primary key (a, b))", **PLAIN)
    chance = random.Random(17)
    rows: dict[tuple[int, int], str] = {}
    records = 0
    with database.connect() as connection:
        for number in range(300):
            key, other = ((chance.randrange(4), chance.randrange(4)) for _ in range(2))
            if key not in rows:
                connection.execute("insert into t values (%s, %s, %s)", (*key, str(number)))
                rows[key] = str(number)
                records += 1
            elif other not in rows:
                connection.execute("update t set a = %s, b = %s where a = %s and b = %s", (*other, *key))
                rows[other] = rows.pop(key)
                records += 3
            elif number % 3:
                connection.execute("update t set v = %s where a = %s and b = %s", (str(number), *key))
                rows[key] = str(number)
                records += 1
            else:
                connection.execute("delete from t where a = %s and b = %s", key)
                del rows[key]
                records += 2
    kept: dict[bytes, bytes | None] = {}
    for event in query.take(records):
        kept[event.row["key"]] = event.row["value"]
    found: list[dict[str, Any]] = [json.loads(value)["after"] for value in kept.values() if value is not None]
    assert sorted((row["a"], row["b"], row["v"]) for row in found) == sorted((*key, v) for key, v in rows.items())
    assert {(json.loads(key)["a"], json.loads(key)["b"]) for key, value in kept.items() if value is not None} == set(
        rows
    )
