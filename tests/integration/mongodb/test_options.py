"""Options of the MongoDB connector have their effect on the events of a query over two databases."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from tailrace.connectors.mongodb.log.change_stream import ChangeStreamFeed, StreamSettings
from tailrace.connectors.mongodb.log.namespaces import CollectionFilter, Namespaces
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.registry import parse
from tests.fix_capture import StillClock
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.capture import Query
from tests.servers.mongo_proxy import Change, Proxy

SHOP, OTHER = "0", "1"
"""The two databases, by their places."""
FILTERS = "snapshot.collection.filter.overrides"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            {"cursor.pipeline": "[{$match: {operationType: 'insert'}}]", "snapshot.mode": "no_data"},
            ["c 0.a 9", "c 1.b 9"],
        ),
        (
            {"cursor.pipeline": '[{"$match": {"operationType": "update"}}]', "cursor.pipeline.order": "user_only",
             "snapshot.mode": "no_data"},
            ["u 0.a 9"],
        ),
        (
            {FILTERS: "{0}.a", f"{FILTERS}.{{0}}.a": "{n: {$gt: 1}}"},
            ["c 0.a 9", "c 1.b 9", "r 0.a 2", "r 1.b 0", "u 0.a 9"],
        ),
        (
            {"capture.scope": "database", "capture.target": "{1}"},
            ["c 1.b 9", "r 1.b 0"],
        ),
        (
            {"capture.scope": "collection", "capture.target": "{0}.a", "snapshot.mode": "no_data",
             "skipped.operations": "u"},
            ["c 0.a 9"],
        ),
        (
            {"filters.match.mode": "literal", "collection.include.list": "{1}.b", "snapshot.mode": "no_data"},
            ["c 1.b 9"],
        ),
        (
            {"mongodb.name": "p", "collection.whitelist": "{0}[.].*", "snapshot.mode": "never"},
            ["c 0.a 9", "u 0.a 9"],
        ),
    ],
    ids=["pipeline", "only_pipeline", "filter", "database", "collection", "literal", "expressions"],
)  # fmt: skip
def test_options_choose_what_is_captured(
    make_mongo_database: Callable[[], MongoDatabase],
    mongo_query: Callable[..., Query],
    options: dict[str, str],
    wanted: list[str],
) -> None:
    shop, other = make_mongo_database(), make_mongo_database()
    names = {"{0}": shop.name, "{1}": other.name}

    def named(text: str) -> str:
        for mark, name in names.items():
            text = text.replace(mark, name)
        return text

    lists = {"database.include.list": f"{shop.name},{other.name}"}
    if any(".list" in name or "whitelist" in name for name in options):
        lists = {}
    shop["a"].insert_many([{"_id": number, "n": number} for number in range(3)])
    other["b"].insert_one({"_id": 0})
    query = mongo_query(shop.server, **lists, **{named(name): named(text) for name, text in options.items()})
    query.begin()
    shop["a"].insert_one({"_id": 9})
    shop["a"].update_one({"_id": 9}, {"$set": {"n": 1}})
    other["b"].insert_one({"_id": 9})
    query.until(len(wanted))
    places = {shop.name: SHOP, other.name: OTHER}
    found = []
    for event in query.events:
        _, database, collection = event.topic.split(".")
        found.append(f"{event.op} {places[database]}.{collection} {event.id['id']}")
    assert sorted(found) == wanted


class Recorded(Change):
    """A proxy that records the time limits of commands for more of the log."""

    def __init__(self) -> None:
        self.limits: set[int | None] = set()

    def answer(self, document: dict[str, Any]) -> dict[str, Any] | None:
        if "getMore" in document:
            self.limits.add(document.get("maxTimeMS"))
        return None


@pytest.mark.parametrize("form", [{"mongodb_name": "p"}, {}], ids=["oplog", "change_streams"])
@pytest.mark.parametrize(("given", "sent"), [("123", 123), ("0", None)])
def test_the_server_waits_for_changes_as_long_as_it_is_told(
    mongo_database: MongoDatabase,
    mongo_proxy_to: Callable[[Change], tuple[Mongo, Proxy]],
    mongo_query: Callable[..., Query],
    form: dict[str, str],
    given: str,
    sent: int | None,
) -> None:
    recorded = Recorded()
    server, _ = mongo_proxy_to(recorded)
    options = {"snapshot.mode": "no_data", "cursor.max.await.time.ms": given}
    query = mongo_query(server, database_include_list=mongo_database.name, **form, **options)
    query.begin()
    mongo_database["c"].insert_one({"_id": 1})
    query.until(1)
    deadline = time.monotonic() + 30
    while not recorded.limits and time.monotonic() < deadline:
        query.step()
    assert recorded.limits == {sent}


@pytest.mark.parametrize(("mode", "last"), [("split", [{"$changeStreamSplitLargeEvent": {}}]), ("fail", [])])
def test_splitting_is_the_last_stage_of_a_stream(mode: str, last: list[Any]) -> None:
    sent: list[Any] = []

    class Client:
        def __getitem__(self, name: str) -> Client:
            return self

        def start_session(self, **options: Any) -> Client:
            return self

        def command(self, command: dict[str, Any], **options: Any) -> Any:
            sent.append(command)
            raise StopIteration

    options = {"mongodb.connection.string": "mongodb://h/", "topic.prefix": "p", "cursor.oversize.handling.mode": mode,
               "cursor.pipeline": '[{"$match": {"a": 1}}]'}  # fmt: skip
    config = parse("mongodb", options)
    captured = CollectionFilter(config)
    feed = ChangeStreamFeed(lambda: cast(Any, Client()), Namespaces(captured), StreamSettings.of(config, captured))
    feed.open(ChangePosition())
    with pytest.raises(StopIteration):
        feed.read()
    assert sent[0]["pipeline"][2:] == [{"$match": {"a": 1}}, *last]


@pytest.mark.parametrize("form", [{"mongodb_name": "p"}, {}], ids=["oplog", "change_streams"])
def test_changes_gather_between_two_batches(
    mongo_database: MongoDatabase,
    mongo_query: Callable[..., Query],
    dispatch_clock: StillClock,
    form: dict[str, str],
) -> None:
    lists = {"database.whitelist" if form else "database.include.list": mongo_database.name}
    waits = {"poll.dispatch.interval.ms": "60000", "poll.interval.ms": "50"}
    query = mongo_query(mongo_database.server, snapshot_mode="never" if form else "no_data", **lists, **waits, **form)
    query.begin()
    mongo_database["c"].insert_one({"_id": 1})
    query.until(1)
    mongo_database["c"].insert_one({"_id": 2})
    mongo_database["c"].insert_one({"_id": 3})
    dispatch_clock.now += 59
    assert not any(query.step() for _ in range(10))
    dispatch_clock.now += 2
    query.until(3)
    assert [event.id["id"] for event in query.events] == ["1", "2", "3"]
