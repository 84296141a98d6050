"""The span of the oplog is that of its entries."""

from __future__ import annotations

import time

from tailrace.connectors.mongodb.retention import retention
from tailrace.connectors.registry import parse
from tests.fix_mongodb import MongoDatabase


def test_the_oldest_entry_and_the_span_are_those_of_the_oplog(mongo_database: MongoDatabase) -> None:
    mongo_database["a"].insert_one({"_id": 1})
    with mongo_database.server.client() as client:
        times = [one["ts"].time for one in client["local"]["oplog.rs"].find({}, {"ts": 1})]
    found = retention(parse("mongodb", mongo_database.options(topic_prefix="p")))
    assert found.slots == ()
    assert found.oldest_s is not None
    assert found.kept_s is not None
    # the oldest entries of a capped collection may leave meanwhile
    assert min(times) <= found.oldest_s <= time.time()
    assert max(times) - min(times) <= found.kept_s + (found.oldest_s - min(times)) + 60
