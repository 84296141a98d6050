"""`tailrace init` and `tailrace remove` against MongoDB: the collections of a first file, and what may be removed."""

from __future__ import annotations

from typing import Any

from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.setup.outset import OUTSET
from tailrace.connectors.mongodb.setup.removal import REMOVAL
from tailrace.connectors.registry import parse
from tests.fix_mongodb import MongoDatabase


def config(database: MongoDatabase, **more: str) -> Any:
    named = {name.replace("__", "."): text for name, text in more.items()}
    return parse("mongodb", {"mongodb.connection.string": database.server.uri, "topic.prefix": "p", **named})


def test_a_file_lists_the_collections_that_are_there(mongo_database: MongoDatabase) -> None:
    mongo_database["b.x"].insert_one({})
    mongo_database["a"].insert_one({})
    found = OUTSET(config(mongo_database, database__include__list=mongo_database.name))
    name = mongo_database.name
    assert found.entries == (("collection.include.list", rf"{name}.a,{name}.b\.x"),)
    assert found.statements == ()


def test_a_collection_of_signals_alone_may_be_removed(mongo_database: MongoDatabase) -> None:
    of = config(mongo_database, signal__data__collection=f"{mongo_database.name}.signals")
    stored = MongoOffset().to_json()
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
