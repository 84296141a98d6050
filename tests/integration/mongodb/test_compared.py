"""`tailrace verify` reads documents of MongoDB as variants, and the keys that changes touch."""

from __future__ import annotations

from contextlib import closing

import bson

from tests.fix_mongodb import MongoDatabase
from tests.integration.changetables.test_compared import keys, opened, rows


def test_documents_and_the_keys_of_changes(mongo_database: MongoDatabase) -> None:
    kept, number = mongo_database["c"], bson.ObjectId("665f1f77bcf86cd799439011")
    kept.insert_many([{"_id": number}, {"_id": 'a"b', "v": 1}, {"_id": 5, "v": {"w": [1.5]}}])
    mongo_database["other"].insert_one({"_id": 1})
    named = {"collection.include.list": rf"{mongo_database.name}\.(c|other|none)"}
    options = {"mongodb.connection.string": mongo_database.server.uri} | named
    with closing(opened("mongodb", options)) as found:
        found.take()
        c, other = found.tables
        kept.update_one({"_id": 5}, {"$set": {"v": 2}})
        kept.delete_one({"_id": number})
        kept.insert_one({"_id": 7})
        assert [row[0] for row in rows(found, c)] == ['"a\\"b"', "5", "7"]
        assert [row[0] for row in rows(found, other)] == ["1"]
        assert found.is_told()
        # Later changes are not requested.
        kept.insert_one({"_id": 8})
        touched = {key for (key,) in keys(found, c, found.position)}
        assert touched >= {b"5", b"7", b'{"$oid": "665f1f77bcf86cd799439011"}'}
        assert not touched & {b'"a\\"b"', b"1"}
        assert keys(found, other, found.position) in ([], [(b"1",)])
