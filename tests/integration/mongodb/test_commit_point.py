"""Changes that a majority of the replica set does not have yet are neither read nor counted as read.

SecantusDB has one member, so a majority always has everything there. A proxy shows the oplog like a primary whose
followers are behind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bson import Int64, Timestamp

from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.oplog import OplogFeed, newest
from tailrace.connectors.mongodb.log.position import WHOLE, ChangePosition
from tailrace.errors import PositionLost
from tests.fix_mongodb import GenuineOplog, Mongo, MongoDatabase, stand_in
from tests.integration.mongodb.capture import COMMENT, Ahead, Capture, keys
from tests.servers.mongo_proxy import Change, Document, Oplog, Proxy, error

Make = Callable[..., Capture]
Through = Callable[[Change], tuple[Mongo, Proxy]]


class Lagging(Oplog):
    """A primary that knows of a majority only up to `committed`; None: the majority has everything."""

    def __init__(self) -> None:
        self.committed: Timestamp | None = None
        self.majority_reads = 0
        self.is_anew = True
        """True if a cursor was opened since `committed` changed: its contents are fixed when it is opened."""

    def request(self, document: Document) -> Document | None:
        asked = document.get("find") == "oplog.rs" and document.get("readConcern", {}).get("level") == "majority"
        self.majority_reads += asked and document.get("comment") != COMMENT
        self.is_anew |= "find" in document and document.get("comment") != COMMENT
        if asked and self.committed is not None:
            document["filter"] = {"$and": [document.get("filter", {}), {"ts": {"$lte": self.committed}}]}
        return super().request(document)

    def answer(self, document: Document) -> Document | None:
        # A disconnected client may continue its cursor over another connection.
        return error(43, "CursorNotFound", "cursor not found") if "getMore" in document and not self.is_anew else None


class Lagged(GenuineOplog):
    """The oplog of such a primary."""

    change: Lagging
    proxy: Proxy

    def commit(self, at: Timestamp | None) -> None:
        """Let a majority have everything up to `at`. Cursors begin anew, as after an election."""
        self.change.committed = at
        self.change.is_anew = False
        self.proxy.cut()


@pytest.fixture
def lagged(mongodb: Mongo, mongo_proxy_to: Through) -> Iterator[Lagged]:
    client = mongodb.client()
    change = Lagging()
    server, proxy = mongo_proxy_to(change)
    found = Lagged(server, stand_in(client))
    found.change, found.proxy = change, proxy
    yield found
    client.close()


def insert(at: int, id_: int, **more: Any) -> Document:
    return {"ts": Timestamp(at, 1), "t": Int64(1), "v": 2, "op": "i", "ns": "shop.c", "o": {"_id": id_}, **more}


def started(lagged: Lagged, make: Make, **options: str) -> Capture:
    """Return a query whose position is after the first entry."""
    lagged.append(insert(100, 0))
    capture = make(lagged.server, old=True, snapshot_mode="never", **options)
    capture.step()
    return capture


def feed_of(lagged: Lagged) -> OplogFeed:
    config = {"event.format": "1.1", **{f"{kind}.{side}.list": [] for kind in ("database", "collection")
                                        for side in ("include", "exclude")}}  # fmt: skip
    return OplogFeed(lagged.server.client(), Namespaces(CollectionFilter(config)))


def test_the_log_counts_as_read_only_as_far_as_the_server_has_sent_it(lagged: Lagged) -> None:
    """The operation times of the answers are years ahead of these entries, as they are ahead of a majority."""
    lagged.append(insert(100, 0), insert(101, 1), insert(102, 2))
    lagged.change.committed = Timestamp(101, 1)
    feed = feed_of(lagged)
    try:
        feed.open(ChangePosition(100 << 32 | 1, WHOLE))
        for _ in range(6):
            feed.read()
        assert feed.answered_at > 102 << 32
        assert feed.caught_up_at == 101 << 32 | 1
    finally:
        feed.close()
        feed._client.close()


def test_a_query_that_ends_at_the_present_reads_to_it(lagged: Lagged, make_capture: Make) -> None:
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1), insert(102, 2))
    lagged.change.committed = Timestamp(101, 1)
    capture.planner.stop_at_present()
    assert capture.planner._target == ChangePosition(101 << 32 | 1, WHOLE)
    found = []
    while (batch := capture.step()) is not None:
        found += batch
    assert keys(found) == [("c", "1")]


def test_a_new_primary_is_asked_for_the_present_until_it_knows_it(lagged: Lagged, make_capture: Make) -> None:
    """It has everything acknowledged before the election, and at first shows less than that."""
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1), insert(102, 2), insert(103, 0, t=Int64(2), op="n", ns="", o={"msg": "new primary"}))
    lagged.change.committed = Timestamp(101, 1)
    request, reads = lagged.change.request, lagged.change.majority_reads

    def catching_up(document: Document) -> Document | None:
        if lagged.change.majority_reads >= reads + 3:
            lagged.change.committed = None
        return request(document)

    lagged.change.request = catching_up  # type: ignore[method-assign]
    capture.planner.stop_at_present()
    # A cursor that was opened before continues to show the same; a server's own would show the rest.
    lagged.commit(None)
    found = []
    while (batch := capture.step()) is not None:
        found += batch
    assert keys(found) == [("c", "1"), ("c", "2")]


def test_a_start_is_behind_what_a_majority_has(lagged: Lagged, make_capture: Make) -> None:
    lagged.append(insert(100, 0), insert(101, 1))
    lagged.change.committed = Timestamp(100, 1)
    capture = make_capture(lagged.server, old=True, snapshot_mode="never")
    capture.step()
    assert capture.offset["log"]["time"] == [100, 1]
    # An election has replaced the entry that no majority had.
    lagged.collection.delete_one({"ts": Timestamp(101, 1)})
    lagged.append(insert(101, 2, t=Int64(2)))
    lagged.commit(None)
    assert keys(capture.until(1)) == [("c", "2")]


def test_a_new_primary_that_does_not_know_the_position_yet_is_asked_again(lagged: Lagged, make_capture: Make) -> None:
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1))
    assert keys(capture.until(1)) == [("c", "1")]
    lagged.commit(Timestamp(99, 1))
    reads = lagged.change.majority_reads
    while lagged.change.majority_reads < reads + 2:
        assert capture.step() is None
    lagged.append(insert(102, 2))
    lagged.commit(None)
    assert keys(capture.until(1)) == [("c", "2")]


def test_a_replayed_batch_waits_for_all_of_it(lagged: Lagged, make_capture: Make) -> None:
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1), insert(102, 2))
    start, end = capture.offset, None
    while end is None or end["log"]["time"] != [102, 1]:
        end = capture.plan()
    first = capture.read(start, end)
    capture.close()
    lagged.change.committed = Timestamp(101, 1)
    again = make_capture(lagged.server, old=True, snapshot_mode="never", offset=start)
    # The commit point returns after some requests for the log.
    reads = lagged.change.majority_reads
    request = lagged.change.request

    def catching_up(document: Document) -> Document | None:
        if lagged.change.majority_reads >= reads + 4:
            lagged.change.committed = None
        return request(document)

    lagged.change.request = catching_up  # type: ignore[method-assign]
    assert keys(again.read(start, end)) == keys(first) == [("c", "1"), ("c", "2")]


@pytest.mark.parametrize("gone", [100, 102], ids=["start", "end"])
def test_a_replayed_batch_whose_range_is_gone_is_an_error_and_no_shorter_batch(
    lagged: Lagged, make_capture: Make, gone: int
) -> None:
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1), insert(102, 2))
    start, end = capture.offset, None
    while end is None or end["log"]["time"] != [102, 1]:
        end = capture.plan()
    capture.close()
    lagged.collection.delete_one({"ts": Timestamp(gone, 1)})
    lagged.append(insert(103, 3))
    again = make_capture(lagged.server, old=True, snapshot_mode="never", offset=start)
    with pytest.raises(PositionLost):
        again.read(start, json.loads(json.dumps(end)))


def test_entries_that_fall_off_while_the_reader_rests_are_an_error(lagged: Lagged) -> None:
    """It waits while its spool is full, for any time."""
    lagged.append(insert(100, 0), insert(101, 1))
    feed = feed_of(lagged)
    try:
        feed.open(ChangePosition(100 << 32 | 1, WHOLE))
        while not feed._begins or feed._unchecked:
            feed.read()
        assert feed._reached.time == 101 << 32 | 1
        lagged.collection.delete_many({})
        # 102 was written and fell off with the others.
        lagged.append(insert(103, 3))
        with pytest.raises(PositionLost, match="no longer reaches back"):
            feed.read()
    finally:
        feed.close()
        feed._client.close()


def test_statements_before_one_of_a_session_are_no_part_of_it(lagged: Lagged, make_capture: Make) -> None:
    """MongoDB 8 writes a retryable insert of several documents as `applyOps`; `prevOpTime` leads to the one before."""
    capture = started(lagged, make_capture)
    session = {"lsid": {"id": b"1" * 16}, "txnNumber": Int64(7), "multiOpType": 1}
    nowhere = {"ts": Timestamp(0, 0), "t": Int64(-1)}
    for at, ids, before in ((101, (1, 2), nowhere), (102, (3, 4), {"ts": Timestamp(101, 1), "t": Int64(1)})):
        operations = [{"op": "i", "ns": "shop.c", "o": {"_id": id_}, "o2": {"_id": id_}} for id_ in ids]
        entry = insert(at, 0, op="c", ns="admin.$cmd", o={"applyOps": operations}, prevOpTime=before, **session)
        lagged.append(entry)
    assert keys(capture.until(4)) == [("c", "1"), ("c", "2"), ("c", "3"), ("c", "4")]
    assert capture.idle() == []


def test_a_statement_does_not_need_the_one_before_it(lagged: Lagged, make_capture: Make) -> None:
    capture = started(lagged, make_capture)
    session = {"lsid": {"id": b"1" * 16}, "txnNumber": Int64(7), "multiOpType": 1}
    operations = [{"op": "i", "ns": "shop.c", "o": {"_id": 1}, "o2": {"_id": 1}}]
    # That one has fallen off the log.
    before = {"ts": Timestamp(99, 1), "t": Int64(1)}
    lagged.append(insert(101, 0, op="c", ns="admin.$cmd", o={"applyOps": operations}, prevOpTime=before, **session))
    assert keys(capture.until(1)) == [("c", "1")]


def test_the_invariant_sees_a_position_that_no_majority_has(lagged: Lagged, make_capture: Make) -> None:
    capture = started(lagged, make_capture)
    lagged.append(insert(101, 1))
    end = None
    while end is None:
        end = capture.plan()
    lagged.change.committed = Timestamp(100, 1)
    with pytest.raises(Ahead, match="ahead of 100:1, which a majority has"):
        capture._hold(end)
    with pytest.raises(Ahead, match="went back"):
        capture.offset = capture.planner.initial_offset()


# --- change streams ------------------------------------------------------------------------------------------------


def token(time: int) -> Document:
    """Return a resume token in the form of a mongod: a key string that begins with the cluster time."""
    return {"_data": f"82{time:016X}2B0229296E04"}


class Answering(Change):
    """A proxy that gives resume tokens of MongoDB's form, at the cluster time `at`, with later operation times."""

    replies = (b"postBatchResumeToken", b"setName")

    def __init__(self, at: int) -> None:
        self.at = at

    def reply(self, document: Document) -> Document | None:
        if "cursor" in document and "postBatchResumeToken" in document["cursor"]:
            document["cursor"]["postBatchResumeToken"] = token(self.at)
            document["operationTime"] = Timestamp((self.at >> 32) + 5, 1)
            return document
        return None


def test_a_stream_counts_as_read_as_far_as_its_tokens_say(
    mongo_database: MongoDatabase, mongo_proxy_to: Through
) -> None:
    change = Answering(500 << 32 | 1)
    server, _ = mongo_proxy_to(change)
    config = {"event.format": "3", **{f"{kind}.{side}.list": [] for kind in ("database", "collection")
                                      for side in ("include", "exclude")}}  # fmt: skip
    client = server.client()
    feed = ChangeStreamFeed(
        lambda: client, Namespaces(CollectionFilter(config)), StreamSettings(mongo_database.name), await_ms=20
    )
    try:
        feed.open(ChangePosition())
        for _ in range(3):
            feed.read()
        assert feed.answered_at == 505 << 32 | 1
        assert feed.caught_up_at == 500 << 32 | 1
        change.at = 501 << 32 | 1
        while feed.caught_up_at != change.at:
            feed.read()
    finally:
        feed.close()
        client.close()


def test_a_stream_from_a_chosen_time_on_gives_the_changes_that_are_there_already(
    mongo_database: MongoDatabase, make_capture: Make
) -> None:
    mongo_database["c"].insert_one({"_id": 0})
    hello = mongo_database.server.client()
    at = hello.admin.command("ping")["operationTime"]
    hello.close()
    mongo_database["c"].insert_many([{"_id": number} for number in range(1, 6)])
    capture = make_capture(
        mongo_database.server, snapshot_mode="no_data", collection_include_list=f"{mongo_database.name}[.]c",
        capture_start_op_time=str((at.time << 32 | at.inc) + 1),
    )  # fmt: skip
    assert keys(capture.until(5)) == [("c", str(number)) for number in range(1, 6)]
    capture.close()
    mongo_database["c"].insert_one({"_id": 6})
    again = make_capture(
        mongo_database.server, snapshot_mode="no_data", collection_include_list=f"{mongo_database.name}[.]c",
        offset=capture.offset,
    )  # fmt: skip
    assert keys(again.until(1)) == [("c", "6")]


# --- documents -----------------------------------------------------------------------------------------------------


class Watching(Change):
    """A proxy that records the read concerns of the commands on one collection."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.concerns: list[Any] = []

    def request(self, document: Document) -> Document | None:
        if document.get("find") == self.collection:
            self.concerns.append(document.get("readConcern"))
        return None


@pytest.mark.parametrize("old", [True, False])
def test_documents_of_a_snapshot_are_a_majoritys_and_no_older_than_the_log_that_follows(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make, old: bool
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    watching = Watching("c")
    server, _ = mongo_proxy_to(watching)
    capture = make_capture(server, old=old, database_include_list=mongo_database.name)
    assert keys(capture.step() or []) == [("r", "1")]
    asked = [concern for concern in watching.concerns if concern and "afterClusterTime" in concern]
    # The test for a document, and the documents; the test whether a majority can be read names no time.
    assert len(asked) >= 2
    assert len(watching.concerns) - len(asked) <= 1
    at = Timestamp(*capture.offset["log"]["time"])
    assert all(concern["level"] == "majority" and concern["afterClusterTime"] >= at for concern in asked)


def test_documents_of_a_window_are_a_majoritys_and_no_older_than_its_opening(
    mongo_database: MongoDatabase, mongo_proxy_to: Through, make_capture: Make
) -> None:
    mongo_database["c"].insert_many([{"_id": number} for number in range(3)])
    mongo_database.database.create_collection("signals")
    watching = Watching("c")
    server, _ = mongo_proxy_to(watching)
    capture = make_capture(
        server, database_include_list=mongo_database.name, snapshot_mode="no_data",
        signal_data_collection=f"{mongo_database.name}.signals",
    )  # fmt: skip
    capture.idle(1)
    data = {"data-collections": [f"{mongo_database.name}.c"]}
    mongo_database["signals"].insert_one({"_id": "s", "type": "execute-snapshot", "data": data})
    found = [event for event in capture.idle(4) if event["topic"].endswith(".c")]
    assert keys(found) == [("r", "0"), ("r", "1"), ("r", "2")]
    asked = [concern for concern in watching.concerns if concern and "afterClusterTime" in concern]
    # The greatest key, the documents, and the end.
    assert len(asked) >= 3
    client = mongo_database.server.client()
    signalled = client.local["oplog.rs"].find_one({"o._id": "s"})
    client.close()
    assert signalled is not None
    assert all(concern["afterClusterTime"] > signalled["ts"] for concern in asked)


def test_the_newest_entry_of_an_oplog_is_one_that_a_majority_has(lagged: Lagged) -> None:
    lagged.append(insert(100, 0), insert(101, 1))
    lagged.change.committed = Timestamp(100, 1)
    client = lagged.server.client()
    try:
        assert newest(client, majority=True).time == 100 << 32 | 1
        assert newest(client).time == 101 << 32 | 1
    finally:
        client.close()
