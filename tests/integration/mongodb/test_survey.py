"""`tailrace init` and `tailrace remove` against MongoDB: the collections of a first file, and what may be removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.setup.removal import REMOVAL
from tailrace.connectors.mongodb.setup.survey import SURVEY
from tailrace.connectors.registry import parse
from tailrace.errors import PositionLost
from tests.fix_mongodb import Mongo, MongoDatabase
from tests.integration.mongodb.capture import Capture
from tests.servers.mongo_proxy import Change, Failing, Identified, Proxy, error


def config(database: MongoDatabase, **more: str) -> Any:
    named = {name.replace("__", "."): text for name, text in more.items()}
    return parse("mongodb", {"mongodb.connection.string": database.server.uri, "topic.prefix": "p", **named})


def test_a_file_lists_the_collections_that_are_there(mongo_database: MongoDatabase) -> None:
    mongo_database["b.x"].insert_one({})
    mongo_database["a"].insert_one({})
    found = SURVEY(config(mongo_database, database__include__list=mongo_database.name))
    name = mongo_database.name
    assert found.entries == (("collection.include.list", rf"{name}.a,{name}.b\.x"),)
    assert found.statements == ()


HERE, THERE = UUID(int=1), UUID(int=2)
Proxied = Callable[[Change], tuple[Mongo, Proxy]]


def signals(server: Mongo, name: str) -> Any:
    return parse(
        "mongodb",
        {"mongodb.connection.string": server.uri, "topic.prefix": "p", "signal.data.collection": f"{name}.signals"},
    )


def test_a_collection_of_signals_alone_may_be_removed(mongo_database: MongoDatabase, mongo_proxy_to: Proxied) -> None:
    server, _ = mongo_proxy_to(Identified(HERE))
    of = signals(server, mongo_database.name)
    stored = MongoOffset(server=HERE.hex).to_json()
    assert REMOVAL.found(of, stored) == []
    mongo_database["signals"].insert_one({"_id": "1", "type": "execute-snapshot", "data": {}})
    (part,) = REMOVAL.found(of, None)
    assert part.kept.startswith("There is no checkpoint")
    mongo_database["signals"].insert_one({"_id": "2", "name": "a customer"})
    (part,) = REMOVAL.found(of, stored)
    assert part.kept == "It has documents that are no signals."
    mongo_database["signals"].delete_one({"_id": "2"})
    (part,) = REMOVAL.found(of, stored)
    assert (part.name, part.kept) == (f"the signal collection {mongo_database.name}.signals", "")
    REMOVAL.remove(of, part)
    assert REMOVAL.found(of, stored) == []


def test_a_collection_is_left_unless_the_checkpoint_is_of_this_server(
    mongo_database: MongoDatabase, mongo_proxy_to: Proxied
) -> None:
    mongo_database["signals"].insert_one({"_id": "1", "type": "execute-snapshot", "data": {}})
    server, _ = mongo_proxy_to(Identified(HERE))
    of = signals(server, mongo_database.name)
    (part,) = REMOVAL.found(of, MongoOffset(server=THERE.hex).to_json())
    assert part.kept == "The checkpoint is of another server."
    (part,) = REMOVAL.found(of, MongoOffset().to_json())
    assert part.kept.startswith("The checkpoint does not show of which server it is")
    closed, _ = mongo_proxy_to(
        Failing(lambda asked: next(iter(asked)) == "listCollections" and asked["$db"] == "admin",
                error(13, "Unauthorized", "not authorized on admin"))
    )  # fmt: skip
    (part,) = REMOVAL.found(signals(closed, mongo_database.name), MongoOffset(server=HERE.hex).to_json())
    assert part.kept.startswith("The user may not see which server this is")


def of_log(server: Mongo, kind: str, mode: str) -> dict[str, str]:
    """Return the options of a query that reads the oplog or the change streams of `server`."""
    if kind == "oplog":
        return {"mongodb.name": "p", "mongodb.hosts": server.hosts, "snapshot.mode": "never"}
    return {"topic.prefix": "p", "mongodb.connection.string": server.uri, "snapshot.mode": mode}


@pytest.mark.parametrize("kind", ["oplog", "change streams"])
def test_a_run_does_not_go_on_from_the_checkpoint_of_another_server(mongo_proxy_to: Proxied, kind: str) -> None:
    # the same log, so that the position alone would be found there
    here, there = mongo_proxy_to(Identified(HERE))[0], mongo_proxy_to(Identified(THERE))[0]
    first = Capture(**of_log(here, kind, "no_data"))
    first.step()
    first.close()
    assert first.offset["server"] == HERE.hex
    same = Capture(first.offset, **of_log(here, kind, "no_data"))
    same.step()
    same.close()
    again = Capture(first.offset, **of_log(there, kind, "no_data"))
    with pytest.raises(PositionLost, match="The checkpoint is of another replica set"):
        again.step()
    again.close()


def test_a_run_that_mends_gaps_begins_anew_on_another_server(
    mongo_database: MongoDatabase, mongo_proxy_to: Proxied
) -> None:
    mongo_database["c"].insert_one({"_id": 1})
    here, there = mongo_proxy_to(Identified(HERE))[0], mongo_proxy_to(Identified(THERE))[0]
    only = {"database.include.list": mongo_database.name}
    first = Capture(**of_log(here, "", "no_data"), **only)
    first.step()
    first.close()
    mends = Capture(first.offset, **of_log(there, "", "when_needed"), **only)
    assert [event["op"] for event in mends.until(1)] == ["r"]
    assert mends.offset["server"] == THERE.hex
    mends.close()
