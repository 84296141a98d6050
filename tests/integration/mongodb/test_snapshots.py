"""Snapshots of MongoDB read chunks of `_id` ranges, survive restarts, filter, and read documents beside the stream."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.errors import ConversionError, PrerequisiteError
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.capture import Capture, after, keys
from tests.servers.mongo_proxy import Change, Failing, Proxy, error

Make = Callable[..., Capture]
Through = Callable[[Change], tuple[Mongo, Proxy]]
IDS: list[Any] = [
    MinKey(), None, -5, 1.5, 2, Int64(3), Decimal128("4.5"), "a", "b", {"a": 1}, {"b": [1, 2]}, Binary(b"xyz", 0),
    ObjectId("64b7f0c2a1b2c3d4e5f60718"), True, False, Timestamp(5, 6), Timestamp(7, 8), MaxKey(),
]  # fmt: skip


def snapshot_of(make: Make, database: MongoDatabase, **options: str) -> Capture:
    return make(database.server, database_include_list=database.name, **options)


def test_chunks_hold_every_document_once_whatever_the_types_of_ids(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 3)
    monkeypatch.setattr(chunks.plan, "__defaults__", ((), 3))
    mongo_database["c"].insert_many([{"_id": id_} for id_ in IDS])
    capture = snapshot_of(make_capture, mongo_database)
    found = capture.idle()
    assert len(capture.offset["snapshot"]["plan"]["collections"][0][2]) >= 2
    assert len(found) == len({event["key"] for event in found}) == len(IDS)
    assert [event["snapshot"] for event in found].count("last") == 1
    assert len({event["position"] for event in found}) == len(IDS)


def test_a_snapshot_goes_on_where_it_was_left(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks.plan, "__defaults__", ((), 10))
    mongo_database["c"].insert_many([{"_id": number} for number in range(300)])
    capture = snapshot_of(make_capture, mongo_database, event_order_segments="2")
    first = capture.step()
    assert first is not None
    assert 0 < len(first) < 300
    capture.close()
    mongo_database["c"].insert_one({"_id": "new"})
    again = snapshot_of(make_capture, mongo_database, event_order_segments="2", offset=capture.offset)  # type: ignore[arg-type]
    rest = again.idle()
    read = [event["key"] for event in first + rest if event["op"] == "r"]
    assert sorted(key for key in read if key != '"new"') == sorted(map(str, range(300)))
    assert [event["key"] for event in rest if event["op"] == "c"] == ['"new"']


@pytest.mark.parametrize("old", [False, True])
def test_the_last_document_that_is_there_ends_a_snapshot(
    mongo_database: MongoDatabase, make_capture: Make, old: bool
) -> None:
    """Debezium marks the last record that it has read, whatever empty collections follow."""
    for name in ("a", "b", "c", "d"):
        mongo_database[name].insert_many([{"_id": number} for number in range(3)])
    capture = make_capture(mongo_database.server, old=old, database_include_list=mongo_database.name)
    start = capture.offset
    end = json.loads(json.dumps(capture.planner.latest_offset(start, None, None)))
    mongo_database["c"].delete_many({})
    mongo_database["d"].drop()
    found = capture.read(start, end)
    assert [event["topic"][-1] + event["key"] for event in found] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert [event["snapshot"] for event in found] == ["true"] * 5 + ["last"]
    assert [event["value"]["source"]["snapshot"] for event in found] == ["true"] * 5 + ["last"]


def test_a_snapshot_whose_last_batch_is_emptied_ends_with_a_document_read_before(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks.plan, "__defaults__", ((), 10))
    mongo_database["c"].insert_many([{"_id": number} for number in range(100)])
    capture = snapshot_of(make_capture, mongo_database, event_order_segments="1")
    first = capture.step() or []
    read = {int(event["key"]) for event in first}
    assert 0 < len(read) < 100
    mongo_database["c"].delete_many({"_id": {"$nin": sorted(read)}})
    rest = [event for event in capture.idle() if event["op"] == "r"]
    assert [(event["key"], event["snapshot"]) for event in rest] == [(str(max(read)), "last")]
    assert len({event["position"] for event in first + rest}) == len(first) + 1


def test_a_snapshot_of_which_nothing_is_left_is_over(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    capture = snapshot_of(make_capture, mongo_database)
    start = capture.offset
    end = json.loads(json.dumps(capture.planner.latest_offset(start, None, None)))
    mongo_database["c"].drop()
    assert capture.read(start, end) == []
    capture.offset = end
    mongo_database["c"].insert_one({"_id": 2})
    assert ("c", "2") in keys(capture.idle())


def test_changes_while_a_snapshot_is_read_follow_it(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_many([{"_id": 1, "a": 1}, {"_id": 2}])
    capture = snapshot_of(make_capture, mongo_database)
    assert keys(capture.step() or []) == [("r", "1"), ("r", "2")]
    mongo_database["c"].update_one({"_id": 1}, {"$set": {"a": 2}})
    mongo_database["c"].delete_one({"_id": 2})
    assert keys(capture.until(3)) == [("u", "1"), ("d", "2"), ("tombstone", "2")]


def test_filters_and_lists_choose_what_is_read(mongo_database: MongoDatabase, make_capture: Make) -> None:
    for name in ("a", "b", "c"):
        mongo_database[name].insert_many([{"_id": number, "kind": number % 2} for number in range(4)])
    whole = f"{mongo_database.name}.a"
    capture = make_capture(
        mongo_database.server,
        offset=None,
        **{
            "database.include.list": mongo_database.name,
            "snapshot.include.collection.list": f"{mongo_database.name}[.][ab]",
            "snapshot.collection.filter.overrides": whole,
            f"snapshot.collection.filter.overrides.{whole}": '{"kind": 1}',
        },
    )
    found = capture.idle()
    read = {name: [e["key"] for e in found if e["topic"].endswith(f".{name}")] for name in ("a", "b", "c")}
    assert read == {"a": ["1", "3"], "b": ["0", "1", "2", "3"], "c": []}


def test_views_are_not_read(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    mongo_database.database.create_collection("v", viewOn="c", pipeline=[])
    assert keys(snapshot_of(make_capture, mongo_database).idle()) == [("r", "1")]


def test_a_heartbeat_tells_that_the_query_lives(mongo_database: MongoDatabase, make_capture: Make) -> None:
    capture = snapshot_of(make_capture, mongo_database, snapshot_mode="no_data", heartbeat_interval_ms="100")
    found = capture.until(2)
    assert {event["topic"] for event in found} == {"__debezium-heartbeat.fulfillment"}


def test_a_document_that_has_no_event_is_put_aside(mongo_database: MongoDatabase, make_capture: Make) -> None:
    """Debezium 1.1 ends at a timestamp as `_id`, because its keys have no text for one."""
    mongo_database["c"].insert_many([{"_id": 1}, {"_id": Timestamp(5, 6)}, {"_id": 3}])
    options = {"database_include_list": mongo_database.name}
    with pytest.raises(ConversionError, match=r"c at .*cannot become an event.*event.format=3"):
        make_capture(mongo_database.server, old=True, **options).idle()
    options["event_processing_failure_handling_mode"] = "warn"
    found = make_capture(mongo_database.server, old=True, **options).idle()
    assert sorted(event["op"] for event in found) == ["quarantine", "r", "r"]
    aside = next(event["value"] for event in found if event["op"] == "quarantine")
    assert bson.decode(base64.b64decode(aside["message"])) == {"_id": Timestamp(5, 6)}


# --- beside the stream ---------------------------------------------------------------------------------------------


def signalled(make: Make, database: MongoDatabase, **options: str) -> Capture:
    database.database.create_collection("signals")
    capture = make(
        database.server,
        **{
            "database_include_list": database.name,
            "snapshot_mode": "no_data",
            "signal_data_collection": f"{database.name}.signals",
            "incremental_snapshot_chunk_size": "4",
            **options,
        },
    )
    capture.idle(1)
    return capture


def ask(database: MongoDatabase, id_: str, *collections: str, type_: str = "execute-snapshot", **more: Any) -> None:
    data = {"data-collections": [f"{database.name}.{name}" for name in collections], **more}
    database["signals"].insert_one({"_id": id_, "type": type_, "data": data})


def documents(found: list[Any]) -> list[Any]:
    return [event for event in found if not event["topic"].endswith(".signals")]


def test_the_state_that_events_give_is_the_database_s_while_documents_change(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    collection = mongo_database["c"]
    collection.insert_many([{"_id": number, "v": 0} for number in range(60)])
    capture = signalled(make_capture, mongo_database)
    ask(mongo_database, "s", "c")
    stop = threading.Event()

    def change() -> None:
        dice = random.Random(7)
        while not stop.is_set():
            number = dice.randrange(70)
            if dice.random() < 0.3:
                collection.delete_one({"_id": number})
            else:
                collection.replace_one({"_id": number}, {"v": dice.randrange(1000)}, upsert=True)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        found = capture.until(150, seconds=30)
    finally:
        stop.set()
        writer.join()
    found = documents(found + capture.idle(5))
    state: dict[str, Any] = {}
    for event in found:
        if event["op"] in ("c", "u", "r"):
            state[event["key"]] = after(event)
        else:
            state.pop(event["key"], None)
    reads = [event for event in found if event["snapshot"] == "incremental"]
    assert reads
    assert len({event["key"] for event in reads}) == len(reads)
    assert {int(key): value["v"] for key, value in state.items()} == {d["_id"]: d["v"] for d in collection.find()}


def test_a_window_is_read_though_its_watermarks_fill_the_spool(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    mongo_database["c"].insert_many([{"_id": number} for number in range(20)])
    capture = signalled(
        make_capture, mongo_database, max_queue_size_in_bytes="1", incremental_snapshot_window_chunks="1"
    )
    ask(mongo_database, "s", "c")
    # The signal, and five windows with two watermarks and four documents.
    found = capture.until(1 + 5 * 6) + capture.idle(5)
    assert keys(documents(found)) == [("r", str(number)) for number in range(20)]


def test_a_restart_reads_the_last_window_again_and_loses_none(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    mongo_database["c"].insert_many([{"_id": number} for number in range(20)])
    capture = signalled(make_capture, mongo_database, incremental_snapshot_window_chunks="1")
    ask(mongo_database, "s", "c")
    found: list[Any] = []
    while len(documents(found)) < 8:
        found += capture.step() or []
    capture.close()
    again = make_capture(
        mongo_database.server, offset=capture.offset, database_include_list=mongo_database.name,
        signal_data_collection=f"{mongo_database.name}.signals", incremental_snapshot_chunk_size="4",
        snapshot_mode="no_data",
    )  # fmt: skip
    rest = documents(again.idle(5))
    read = [event["key"] for event in documents(found) + rest if event["op"] == "r"]
    assert set(read) == set(map(str, range(20)))
    assert len(read) <= 24


def test_a_condition_and_a_missing_collection(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_many([{"_id": number, "kind": number % 2} for number in range(9)])
    capture = signalled(make_capture, mongo_database)
    name = f"{mongo_database.name}.c"
    ask(mongo_database, "s", "missing", "c",
        **{"additional-conditions": [{"data-collection": name, "filter": json.dumps({"kind": 1})}]})  # fmt: skip
    assert keys(documents(capture.idle(5))) == [("r", str(number)) for number in (1, 3, 5, 7)]


def test_ids_of_every_type_are_read_beside_the_stream(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_many([{"_id": id_} for id_ in IDS])
    capture = signalled(make_capture, mongo_database)
    ask(mongo_database, "s", "c")
    found = documents(capture.idle(6))
    assert len(found) == len({event["key"] for event in found}) == len(IDS)


def test_a_snapshot_is_paused_resumed_and_stopped(mongo_database: MongoDatabase, make_capture: Make) -> None:
    mongo_database["c"].insert_many([{"_id": number} for number in range(40)])
    capture = signalled(make_capture, mongo_database, incremental_snapshot_window_chunks="1")
    ask(mongo_database, "p1", "c")
    ask(mongo_database, "p2", type_="pause-snapshot")
    paused = documents(capture.idle(4))
    assert len(paused) < 40
    ask(mongo_database, "p3", type_="resume-snapshot")
    rest = documents(capture.idle(4))
    assert len(paused) + len(rest) == 40
    ask(mongo_database, "p4", "c")
    ask(mongo_database, "p5", "c", type_="stop-snapshot")
    assert len(documents(capture.idle(4))) < 40


def test_a_window_is_read_again_after_a_start_whose_first_call_fails(
    mongo_database: MongoDatabase, make_capture: Make, mongo_proxy_to: Through
) -> None:
    """A kill leaves open if the documents of the last window were delivered."""
    mongo_database["c"].insert_many([{"_id": number} for number in range(12)])
    capture = signalled(make_capture, mongo_database, incremental_snapshot_window_chunks="1")
    ask(mongo_database, "s", "c")
    while "before" not in capture.offset.get("progress", {}):
        start = capture.offset
        end = capture.plan()
        if end is not None:
            # After a crash, a new planner reads the batch with the window.
            if "before" not in end["progress"]:
                capture.read(start, end)
            capture.offset = end
    capture.close()
    failing = Failing(lambda command: "insert" in command, error(13, "Unauthorized", "not authorized"), 1)
    server, _ = mongo_proxy_to(failing)
    again = make_capture(
        server, offset=capture.offset, database_include_list=mongo_database.name,
        signal_data_collection=f"{mongo_database.name}.signals", incremental_snapshot_chunk_size="4",
        snapshot_mode="no_data",
    )  # fmt: skip
    with pytest.raises(PrerequisiteError):
        again.idle(100)
    assert failing.times == 0
    read = [event["key"] for event in documents(again.idle(5)) if event["op"] == "r"]
    assert sorted(read, key=int) == [str(number) for number in range(12)]
