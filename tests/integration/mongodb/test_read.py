"""spark.read of MongoDB gives all documents at one timestamp."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace.config import Config
from tailrace.connectors.mongodb.consistent_read import HeldDocuments, HeldTask, held
from tailrace.connectors.mongodb.snapshot import chunks
from tailrace.connectors.registry import parse
from tailrace.errors import PositionLost, PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tailrace.monitoring.failures import cause
from tailrace.spark import options
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.test_typed import frame, run
from tests.servers.mongo_proxy import Change, Document, Mongos, Proxy, error


class Past(Change):
    """A proxy that answers reads at a time from the oplog, as MongoDB 5 does; SecantusDB reads only the present.

    An answer has `batch` documents, and the cursor is lost after it. `fails` holds the errors of the first reads.
    """

    def __init__(self, client: pymongo.MongoClient[Document], *fails: Document, batch: int = 1 << 30) -> None:
        self.client = client
        self.fails = list(fails)
        self.batch = batch
        self.asked: list[Document] = []

    def answer(self, document: Document) -> Document | None:
        if "getMore" in document and document["getMore"] == 77:
            return error(43, "CursorNotFound", "cursor id 77 not found")
        at = document.get("readConcern", {}).get("atClusterTime")
        if "find" not in document or at is None:
            return None
        self.asked.append(document)
        if self.fails:
            return self.fails.pop(0)
        namespace = f"{document['$db']}.{document['find']}"
        found = [one for one in self.documents(namespace, at) if self.is_within(document, one["_id"])]
        left = found[document.get("skip", 0) :]
        more = len(left) > self.batch
        cursor = {"firstBatch": left[: self.batch], "id": bson.Int64(77 if more else 0), "ns": namespace}
        return {"cursor": cursor | {"atClusterTime": at}, "ok": 1.0, "operationTime": at}

    def documents(self, namespace: str, at: bson.Timestamp) -> list[Document]:
        """Return the documents of a collection at a time, in the order of their numbers."""
        found: dict[Any, Document] = {}
        for entry in self.client.local["oplog.rs"].find({"ns": namespace, "ts": {"$lte": at}}):
            change = entry["o"]
            if entry["op"] == "i":
                found[change["_id"]] = change
            elif entry["op"] == "d":
                del found[change["_id"]]
            elif entry["op"] == "u":
                found[entry["o2"]["_id"]] |= change["diff"]["updatedFields"]
        return [found[number] for number in sorted(found)]

    @staticmethod
    def is_within(command: Document, number: Any) -> bool:
        low, high = command.get("min", {}).get("_id"), command.get("max", {}).get("_id")
        return (low is None or low <= number) and (high is None or number < high)


@pytest.fixture
def past(mongo_database: MongoDatabase, mongo_proxy_to: Callable[[Change], tuple[Mongo, Proxy]]) -> Past:
    """Return the change of a proxy that keeps the past; its `server` reaches the database through the proxy."""
    change = Past(mongo_database.database.client)
    change.server, _ = mongo_proxy_to(change)  # type: ignore[attr-defined]
    return change


def named(database: MongoDatabase, server: Mongo, **more: str) -> dict[str, str]:
    return {
        "mongodb.connection.string": server.uri, "topic.prefix": "shop", "rows": "typed",
        "collection.include.list": rf"{database.name}\.(c|d)", **more,
    }  # fmt: skip


def read(spark: SparkSession, database: MongoDatabase, past: Any, **more: str) -> DataFrame:
    return spark.read.format("mongodb-cdc").options(**options(named(database, past.server, **more))).load()


def opened(database: MongoDatabase, server: Mongo, **more: str) -> HeldDocuments:
    texts = {name: text for name, text in named(database, server, **more).items() if name != "rows"}
    config: Config = parse("mongodb", texts)
    return held(config, EventSettings.from_options(config))


def documents(task: Any) -> list[Any]:
    return [row for batch in task.read() for row in batch.to_pylist()]


def test_a_read_is_of_one_moment_while_others_write(
    spark: SparkSession, mongo_database: MongoDatabase, past: Past, tmp_path: Path
) -> None:
    """A stream after the position shows exactly the changes that the read lacks."""
    mongo_database["c"].insert_many([{"_id": number, "v": 0} for number in range(200)])
    mongo_database["d"].insert_one({"_id": 1})
    streams = {"snapshot.mode": "no_data", "capture.mode": "change_streams"}
    assert run(frame(spark, mongo_database, **streams), tmp_path) == []
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        number = 1000
        while not ended.is_set():
            mongo_database["c"].insert_one({"_id": number, "v": 1})
            mongo_database["c"].update_one({"_id": number - 900}, {"$set": {"v": number}})
            mongo_database["c"].delete_one({"_id": number - 1000})
            number = min(number + 1, 1199)
            begun.set()
            if number == 1199:
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        source = read(spark, mongo_database, past, **{"row.columns": "op,table,position,ordinal,after"})
        found = source.selectExpr("*", "variant_get(after, '$.v', 'int') v").collect()
    finally:
        ended.set()
        writer.join()
    (position,) = {row.position for row in found}
    assert {row.op for row in found} == {"r"}
    assert {row.table for row in found} == {"c", "d"}
    assert len({row.ordinal for row in found}) == len(found)
    shown = {row.after.toPython()["_id"]: row.v for row in found if row.table == "c"}
    expected = dict.fromkeys(range(200), 0)
    changes = run(frame(spark, mongo_database, **streams), tmp_path)
    assert any(row.position <= position for row in changes)
    for row in changes:
        if row.position > position:
            continue
        number = int(row.key.toPython()["id"])
        if row.op == "d":
            del expected[number]
        elif row.op == "c":
            expected[number] = 1
        else:
            expected[number] = row.update.toPython()["updatedFields"]["v"]
    assert shown == expected


def test_tasks_read_the_moment_of_the_opening_however_late(mongo_database: MongoDatabase, past: Any) -> None:
    """This includes repeated reads, reads after changes of every kind, and lost answers."""
    mongo_database["c"].insert_many([{"_id": number, "v": 0} for number in range(10)])
    snapshot = opened(mongo_database, past.server)
    assert not snapshot.is_read()
    mongo_database["c"].update_one({"_id": 1}, {"$set": {"v": 1}})
    mongo_database["c"].delete_one({"_id": 2})
    mongo_database["c"].insert_one({"_id": 11})
    past.batch = 4
    (task,) = pickle.loads(pickle.dumps(snapshot.tasks))
    for _ in range(2):
        past.asked.clear()
        rows = documents(task)
        assert [row["ordinal"] & 0xFF for row in rows] == list(range(10))
        assert {row["position"] for row in rows} == {snapshot.position}
        assert all(b'\\"v\\": 0' in row["value"] for row in rows)
        assert [command.get("skip", 0) for command in past.asked] == [0, 4, 8]
    # Transient errors before the first answer.
    past.fails = [error(112, "WriteConflict", "conflict")] * 2
    assert len(documents(task)) == 10


def test_chunks_are_tasks(mongo_database: MongoDatabase, past: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 20)
    mongo_database["c"].insert_many([{"_id": number} for number in range(100)])
    snapshot = opened(mongo_database, past.server, **{"event.order.segments": "1"})
    assert 1 < len(snapshot.tasks) <= 4
    rows = [row for task in snapshot.tasks for row in documents(task)]
    assert len({row["key"] for row in rows}) == len(rows) == 100
    assert len({row["ordinal"] for row in rows}) == 100


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        (239, "SnapshotTooOld", "no longer has its state"),
        (246, "SnapshotUnavailable", "was altered after the time of this read"),
    ],
)
def test_a_moment_that_is_gone(mongo_database: MongoDatabase, past: Any, code: int, name: str, said: str) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    (task,) = opened(mongo_database, past.server, **{"errors.max.retries": "1"}).tasks
    past.fails = [error(code, name, "x")] * 2
    with pytest.raises(PositionLost, match=said):
        documents(task)


def test_a_collection_that_is_dropped_while_it_is_read(mongo_database: MongoDatabase, past: Any) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    (task,) = opened(mongo_database, past.server).tasks
    mongo_database["c"].drop()
    mongo_database["c"].insert_one({"_id": 1})
    with pytest.raises(PositionLost, match=r"\.c was dropped or renamed"):
        documents(task)


def test_servers_without_a_past_are_refused(
    mongo_database: MongoDatabase, past: Any, mongo_proxy_to: Callable[[Change], tuple[Mongo, Proxy]]
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    # SecantusDB ignores atClusterTime, and reports the time at which it has read.
    (task,) = opened(mongo_database, mongo_database.server).tasks
    mongo_database["c"].insert_one({"_id": 2})
    assert isinstance(task, HeldTask)
    with pytest.raises(PrerequisiteError, match="does not confirm that it has read at the requested time"):
        documents(task)
    router, _ = mongo_proxy_to(Mongos())
    with pytest.raises(PrerequisiteError, match="sharded cluster is not supported"):
        opened(mongo_database, router)

    class Older(Change):
        replies = (b"maxWireVersion",)
        version = 9

        def reply(self, document: Document) -> Document | None:
            return document | {"maxWireVersion": self.version} if "maxWireVersion" in document else None

    change = Older()
    older, _ = mongo_proxy_to(change)
    with pytest.raises(PrerequisiteError, match=r"MongoDB 5\.0 or later"):
        opened(mongo_database, older)
    change.version = 21
    assert len(opened(mongo_database, older).tasks) == 1
    mongo_database.database.create_collection("d", capped=True, size=4096)
    with pytest.raises(PrerequisiteError, match=r"cannot read capped collections at a given time: .*\.d\."):
        opened(mongo_database, older)


def test_a_read_of_nothing_and_of_events(spark: SparkSession, mongo_database: MongoDatabase, past: Past) -> None:
    assert read(spark, mongo_database, past).collect() == []
    mongo_database["c"].insert_one({"_id": 5, "v": 1})
    (row,) = read(spark, mongo_database, past, rows="bytes", **{"key.converter.schemas.enable": "false"}).collect()
    assert (row.key, row.op, row.topic) == (b'{"id":"5"}', "r", f"shop.{mongo_database.name}.c")


def test_a_lost_server_is_said(spark: SparkSession, mongo_database: MongoDatabase) -> None:
    nowhere = Mongo("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300", "127.0.0.1:1", "")
    with pytest.raises(Exception, match=r"cannot be reached") as refused:
        spark.read.format("mongodb-cdc").options(
            **options(named(mongo_database, nowhere, **{"mongodb.server.selection.timeout.ms": "300"}))
        ).load().collect()
    assert "ConnectionFailed" in type(cause(refused.value)).__name__
