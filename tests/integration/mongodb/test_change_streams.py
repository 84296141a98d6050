"""Change streams have positions and events in parts, survive interruptions, and end with an error when lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import bson
import numpy as np
import pytest
from bson import Timestamp

from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings, token_time
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.server.raw import CursorBatch
from tailrace.connectors.mongodb.values import fields
from tailrace.errors import PositionLost, PrerequisiteError
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.capture import Capture, after, keys
from tests.servers.mongo_proxy import Change, Failing, Mongos, Proxy, error

Make = Callable[..., Capture]
Through = Callable[[Change], tuple[Mongo, Proxy]]


def started(make: Make, server: Mongo, database: str, **options: str) -> Capture:
    """Return a query that has a position and no snapshot."""
    capture = make(server, snapshot_mode="no_data", database_include_list=database, **options)
    capture.idle(1)
    return capture


def test_events_come_once_whatever_cuts_the_batches(mongo_database: MongoDatabase, make_capture: Make) -> None:
    capture = started(make_capture, mongo_database.server, mongo_database.name)
    mongo_database["c"].insert_many([{"_id": number} for number in range(7)])
    first = capture.until(4, rows=2)
    capture.close()
    mongo_database["c"].delete_one({"_id": 0})
    again = make_capture(mongo_database.server, database_include_list=mongo_database.name, offset=capture.offset)
    rest = again.until(9 - len(first))
    assert keys(first + rest) == [("c", str(n)) for n in range(7)] + [("d", "0"), ("tombstone", "0")]


def test_a_batch_that_is_planned_again_holds_the_same(mongo_database: MongoDatabase, make_capture: Make) -> None:
    capture = started(make_capture, mongo_database.server, mongo_database.name)
    mongo_database["c"].insert_many([{"_id": number} for number in range(7)])
    found = capture.until(7)
    capture.close()
    begun, ended = capture.batches[-1]
    again = make_capture(mongo_database.server, database_include_list=mongo_database.name, offset=begun)
    repeated = again.read(begun, ended)
    assert [event["position"] for event in repeated] == [event["position"] for event in found[-len(repeated) :]]
    again.offset = ended
    mongo_database["c"].insert_one({"_id": "later"})
    assert keys(again.until(1)) == [("c", '"later"')]


def test_a_lost_connection_is_tried_again(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make
) -> None:
    server, proxy = mongo_proxy_to(Change())
    capture = started(make_capture, server, mongo_database.name)
    mongo_database["c"].insert_one({"_id": 1})
    assert keys(capture.until(1)) == [("c", "1")]
    proxy.cut()
    mongo_database["c"].insert_one({"_id": 2})
    assert keys(capture.until(1)) == [("c", "2")]


@pytest.mark.parametrize(
    ("code", "raised", "words"),
    [
        (286, PositionLost, "no longer in the oplog"),
        (10334, PrerequisiteError, "larger than 16 MB"),
        (13, PrerequisiteError, "may not read"),
        (40573, PrerequisiteError, "not a member of a replica set"),
    ],
)
def test_what_ends_a_stream_is_said(
    mongo_database: MongoDatabase,
    mongo_proxy_to: Through,
    make_capture: Make,
    code: int,
    raised: type[Exception],
    words: str,
) -> None:
    failing = Failing(lambda document: "getMore" in document, error(code, "Name", "text with data"), times=0)
    server, _ = mongo_proxy_to(failing)
    capture = started(make_capture, server, mongo_database.name)
    failing.times = -1
    with pytest.raises(raised, match=words):
        capture.idle(100)


def test_an_election_is_passed_over(mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make) -> None:
    stepped_down = error(189, "PrimarySteppedDown", "step down", "ResumableChangeStreamError")
    failing = Failing(lambda document: "getMore" in document, stepped_down, times=0)
    server, _ = mongo_proxy_to(failing)
    capture = started(make_capture, server, mongo_database.name)
    mongo_database["c"].insert_one({"_id": 1})
    capture.until(1)
    failing.times = 2
    mongo_database["c"].insert_one({"_id": 2})
    assert keys(capture.until(1)) == [("c", "2")]


def test_a_sharded_cluster_is_read_through_its_router(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    server, _ = mongo_proxy_to(Mongos())
    capture = make_capture(server, database_include_list=mongo_database.name)
    assert keys(capture.idle()) == [("r", "1")]
    mongo_database["c"].insert_one({"_id": 2})
    assert keys(capture.until(1)) == [("c", "2")]


def test_cursors_stay_with_one_of_several_routers(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make
) -> None:
    class Router(Mongos):
        def __init__(self) -> None:
            self.cursors: list[str] = []

        def answer(self, document: dict[str, Any]) -> dict[str, Any] | None:
            command = next(iter(document))
            if command in ("aggregate", "find", "getMore"):
                self.cursors.append(command)
            return super().answer(document)

    routers = [Router(), Router()]
    servers, proxies = zip(*map(mongo_proxy_to, routers), strict=True)
    both = Mongo(f"mongodb://{servers[0].address},{servers[1].address}/", servers[0].address, "")
    mongo_database["c"].insert_many([{"_id": number} for number in range(250)])
    capture = make_capture(
        both, database_include_list=mongo_database.name, snapshot_fetch_size="10",
        mongodb_server_selection_timeout_ms="2000",
    )  # fmt: skip
    assert len(capture.idle()) == 250
    for router in routers:
        router.cursors.clear()
    mongo_database["c"].insert_one({"_id": "new"})
    assert keys(capture.until(1)) == [("c", '"new"')]
    # The event may be in the answer to an earlier command.
    until = time.monotonic() + 20
    while not any(router.cursors for router in routers) and time.monotonic() < until:
        capture.step()
    used = [number for number, router in enumerate(routers) if router.cursors]
    assert len(used) == 1
    proxies[used[0]].__exit__(None, None, None)
    mongo_database["c"].insert_one({"_id": "newer"})
    assert keys(capture.until(1)) == [("c", '"newer"')]


def test_the_oplog_of_a_router_is_refused(mongo_proxy_to: Through, make_capture: Make) -> None:
    server, _ = mongo_proxy_to(Mongos())
    with pytest.raises(PrerequisiteError, match="not a member of a replica set"):
        make_capture(server, old=True).step()


def test_a_stream_on_a_collection_goes_on_after_the_collection_is_dropped(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    mongo_database["c"].insert_one({"_id": 0})
    capture = started(
        make_capture, mongo_database.server, mongo_database.name, capture_scope="collection",
        capture_target=f"{mongo_database.name}.c",
    )  # fmt: skip
    mongo_database["c"].insert_one({"_id": 1})
    assert keys(capture.until(1)) == [("c", "1")]
    mongo_database["c"].drop()
    mongo_database["c"].insert_one({"_id": 2})
    mongo_database["other"].insert_one({"_id": 3})
    assert keys(capture.until(1)) == [("c", "2")]


def test_large_documents_are_left_out_where_that_is_asked_for(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    capture = started(
        make_capture, mongo_database.server, mongo_database.name, cursor_oversize_handling_mode="skip",
        cursor_oversize_skip_threshold="1000",
    )  # fmt: skip
    mongo_database["c"].insert_many([{"_id": 1}, {"_id": 2, "text": "x" * 2000}, {"_id": 3}])
    assert keys(capture.until(2)) == [("c", "1"), ("c", "3")]


def test_the_server_may_split_events(mongo_database: MongoDatabase, make_capture: Make) -> None:
    capture = started(
        make_capture, mongo_database.server, mongo_database.name, cursor_oversize_handling_mode="split"
    )  # fmt: skip
    mongo_database["c"].insert_one({"_id": 1, "a": 2})
    found = capture.until(1)
    assert after(found[0]) == {"_id": 1, "a": 2}


def test_stages_of_the_user_choose_among_events(mongo_database: MongoDatabase, make_capture: Make) -> None:
    stages = '[{"$match": {"fullDocument.kind": "wanted"}}]'
    capture = started(make_capture, mongo_database.server, mongo_database.name, cursor_pipeline=stages)
    mongo_database["c"].insert_many(
        [{"_id": 1, "kind": "wanted"}, {"_id": 2, "kind": "other"}, {"_id": 3, "kind": "wanted"}]
    )
    assert keys(capture.until(2)) == [("c", "1"), ("c", "3")]


def test_the_key_order_spreads_documents_and_keeps_theirs(mongo_database: MongoDatabase, make_capture: Make) -> None:
    from tailrace.connectors.mongodb.records import partition

    capture = started(
        make_capture, mongo_database.server, mongo_database.name, event_order="key", event_order_segments="3"
    )
    patched = pytest.MonkeyPatch()
    patched.setattr(partition, "SMALL", 1)
    with patched.context():
        mongo_database["c"].insert_many([{"_id": number} for number in range(30)])
        mongo_database["c"].update_many({}, {"$set": {"a": 1}})
        found = capture.until(60)
        start, end = capture.batches[-1]
        assert len(capture.planner.partitions(start, end)) == 3
    patched.undo()
    for number in range(30):
        assert [event["op"] for event in found if event["key"] == str(number)] == ["c", "u"]


# --- without a server ----------------------------------------------------------------------------------------------


def answer(*documents: dict[str, Any]) -> CursorBatch:
    encoded = [bson.encode(document) for document in documents]
    starts = np.cumsum([0, *map(len, encoded)])[:-1].astype(np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return CursorBatch(data, starts, None, 0)


def test_parts_of_an_event_are_put_together() -> None:
    config = {"event.format": "3", **{f"{kind}.{side}.list": [] for kind in ("database", "collection")
                                      for side in ("include", "exclude")}}  # fmt: skip
    feed = ChangeStreamFeed(None, Namespaces(CollectionFilter(config)), StreamSettings(split=True))  # type: ignore[arg-type]
    common = {"clusterTime": Timestamp(5, 1)}
    whole = {"_id": {"_data": "a"}, "operationType": "insert", **common, "ns": {"db": "d", "coll": "c"},
             "documentKey": {"_id": 1}, "fullDocument": {"_id": 1}}  # fmt: skip
    first = {"_id": {"_data": "b"}, "splitEvent": {"fragment": 1, "of": 2}, "operationType": "update", **common,
             "ns": {"db": "d", "coll": "c"}, "documentKey": {"_id": 2},
             "fullDocumentBeforeChange": {"_id": 2}}  # fmt: skip
    second = {"_id": {"_data": "c"}, "splitEvent": {"fragment": 2, "of": 2}, "fullDocument": {"_id": 2, "x": 1}}
    run = feed._run(answer(whole, first))
    assert run is not None
    assert len(run.rows) == 1
    run = feed._run(answer(second))
    assert run is not None
    start = int(run.rows.at[0])
    size = int(fields.load(run.rows.data, start))
    joined = bson.decode(run.rows.data[start : start + size].tobytes())
    assert joined["_id"] == {"_data": "c"}
    assert joined["fullDocument"] == {"_id": 2, "x": 1}
    assert joined["fullDocumentBeforeChange"] == {"_id": 2}
    assert "splitEvent" not in joined
    assert list(run.rows.number) == [2]


def test_the_time_of_a_token() -> None:
    # From MongoDB's documentation of change streams.
    real = "82635019A0000000012B042C0100296E5A1004AB1154ACACD849A48C61756D70D3B21F463C6F7065726174696F6E54797065"
    assert token_time(bson.encode({"_data": real})) == 0x635019A0 << 32 | 1
    assert token_time(bson.encode({"_data": "no hexadecimal digits"})) is None
    assert token_time(bson.encode({"_data": b"old"})) is None


def test_what_is_done_to_whole_collections_is_told(
    mongo_database: MongoDatabase, make_capture: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Events are only for documents; the warnings name the collections."""
    name = mongo_database.name
    mongo_database["a"].insert_one({"_id": 1})
    mongo_database["b"].insert_one({"_id": 2})
    capture = started(make_capture, mongo_database.server, name)
    mongo_database["a"].rename("b", dropTarget=True)
    mongo_database["b"].drop()
    mongo_database["b"].insert_one({"_id": 3})
    assert keys(capture.until(1)) == [("c", "3")]
    assert f"{name}.a was renamed to {name}.b: the log does not bring its documents" in caplog.text
    assert f"{name}.b was dropped: copies of it stay as they are" in caplog.text


def test_collections_that_the_lists_capture_late_are_told(
    mongo_database: MongoDatabase, make_capture: Make, caplog: pytest.LogCaptureFixture
) -> None:
    name = mongo_database.name
    mongo_database["a"].insert_one({"_id": 1})
    mongo_database["b"].insert_one({"_id": 2})
    capture = make_capture(mongo_database.server, collection_include_list=rf"{name}[.]a")
    assert keys(capture.until(1)) == [("r", "1")]
    capture.close()
    mongo_database["b"].insert_one({"_id": 3})
    again = make_capture(mongo_database.server, collection_include_list=rf"{name}[.].*", offset=capture.offset)
    assert keys(again.until(1)) == [("c", "3")]
    (told,) = [text for record in caplog.records if "from now on" in (text := record.getMessage())]
    assert told.startswith(f"the lists capture {name}.b from now on")
    again.close()
    caplog.clear()
    last = make_capture(mongo_database.server, collection_include_list=rf"{name}[.].*", offset=again.offset)
    last.idle(1)
    assert "from now on" not in caplog.text


def test_collections_of_which_changes_do_not_tell_all_are_told(
    mongo_database: MongoDatabase, make_capture: Make, caplog: pytest.LogCaptureFixture
) -> None:
    name = mongo_database.name
    mongo_database["c"].database.create_collection("small", capped=True, size=4096)
    mongo_database["c"].database.create_collection("shown", viewOn="c", pipeline=[])
    started(make_capture, mongo_database.server, name)
    assert f"drop to make room: {name}.small." in caplog.text
    assert f"snapshots do not read them: {name}.shown." in caplog.text
