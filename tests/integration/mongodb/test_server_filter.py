"""Changes that the lists and skipped.operations leave out do not cross the network, and the position moves all the
same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.connectors.mongodb.log_session import MongoLogSession
from tailrace.log import engine
from tests.fix_mongodb import MongoDatabase
from tests.integration.mongodb.capture import Capture, keys

Make = Callable[..., Capture]


def read_bytes(capture: Capture) -> int:
    """Return the number of bytes of the stream so far."""
    assert isinstance(capture.planner._log, MongoLogSession)
    return capture.planner._log.feed.read_bytes


@pytest.mark.parametrize(
    ("options", "crosses"),
    [
        ({"collection.include.list": "{0}[.]c"}, False),
        ({"collection.exclude.list": "{0}[.]LARGE.*,other[.].*"}, False),
        ({"database.include.list": "{1}.*", "collection.include.list": r".*\.c"}, False),
        ({"filters.match.mode": "literal", "collection.include.list": "{0}.c"}, False),
        # An expression that the server may read differently stays here.
        ({"database.include.list": "{0}", "collection.exclude.list": r".*\.(?!c$).*"}, True),
    ],
)
def test_events_of_other_collections_stay_on_the_server(
    mongo_database: MongoDatabase, make_capture: Make, options: dict[str, str], crosses: bool
) -> None:
    name = mongo_database.name
    named = {option: text.format(name, name[:9]) for option, text in options.items()}
    capture = make_capture(mongo_database.server, snapshot_mode="no_data", **named)
    capture.idle(1)
    mongo_database["large"].insert_many([{"_id": number, "text": "x" * 10_000} for number in range(50)])
    mongo_database["c"].insert_one({"_id": 1})
    assert keys(capture.until(1)) == [("c", "1")]
    assert (read_bytes(capture) > 400_000) == crosses


def test_skipped_operations_stay_on_the_server_and_signals_do_not(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    name = mongo_database.name
    mongo_database["c"].insert_one({"_id": 0})
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", collection_include_list=f"{name}.c", skipped_operations="c",
        signal_data_collection=f"{name}.signals",
    )  # fmt: skip
    capture.idle(1)
    mongo_database["c"].insert_many([{"_id": number, "text": "x" * 10_000} for number in range(1, 50)])
    mongo_database["c"].delete_many({"_id": {"$gt": 1}})
    deleted = capture.until(96)
    assert {event["op"] for event in deleted} == {"d", "tombstone"}
    assert read_bytes(capture) < 400_000
    data = {"data-collections": [f"{name}.c"]}
    mongo_database["signals"].insert_one({"_id": "s", "type": "execute-snapshot", "data": data})
    assert [key for op, key in keys(capture.idle(5)) if op == "r"] == ["0", "1"]


def test_a_document_read_beside_a_skipped_change_is_given(mongo_database: MongoDatabase, make_capture: Make) -> None:
    """With only the user's stages, the server sends every operation; a skipped one must not replace a read."""
    name = mongo_database.name
    mongo_database["c"].insert_one({"_id": 1})
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", database_include_list=name, skipped_operations="u",
        signal_data_collection=f"{name}.signals", cursor_pipeline='[{"$match": {}}]', cursor_pipeline_order="user_only",
    )  # fmt: skip
    capture.idle(1)
    incremental = capture.planner._source.incremental
    assert incremental is not None
    source = incremental._source
    next_chunks = source.next_chunks

    def changed_meanwhile(*given: Any) -> Any:
        found = next_chunks(*given)
        mongo_database["c"].update_one({"_id": 1}, {"$inc": {"n": 1}})
        return found

    source.next_chunks = changed_meanwhile  # type: ignore[method-assign]
    data = {"data-collections": [f"{name}.c"]}
    mongo_database["signals"].insert_one({"_id": "s", "type": "execute-snapshot", "data": data})
    found = [event for event in capture.idle(5) if event["topic"].endswith(".c")]
    assert keys(found) == [("r", "1")]


def test_the_position_moves_past_what_stays_on_the_server(
    mongo_database: MongoDatabase, make_capture: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 0.0)
    name = mongo_database.name
    options = {"snapshot_mode": "no_data", "collection_include_list": f"{name}[.]c"}
    capture = make_capture(mongo_database.server, **options)
    capture.step()
    capture.step()
    before = capture.offset
    mongo_database["other"].insert_one({"_id": 1})
    deadline = time.monotonic() + 60
    while capture.offset["log"]["token"] == before["log"]["token"]:
        assert time.monotonic() < deadline
        assert not capture.step()
    capture.close()
    mongo_database["c"].insert_one({"_id": 2})
    again = make_capture(mongo_database.server, offset=capture.offset, **options)
    assert keys(again.until(1)) == [("c", "2")]


def test_heartbeats_go_on_while_everything_stays_on_the_server(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", collection_include_list=f"{mongo_database.name}[.]c",
        heartbeat_interval_ms="50",
    )  # fmt: skip
    capture.until(1)
    before = capture.offset["log"]["token"]
    mongo_database["other"].insert_one({"_id": 1})
    found = []
    deadline = time.monotonic() + 60
    while capture.offset["log"]["token"] == before:
        assert time.monotonic() < deadline
        found += capture.until(1)
    assert {event["topic"] for event in found} == {"__debezium-heartbeat.fulfillment"}
