"""Documents rebuilt from a server's own change stream equal the server's documents."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from bson import encode
from pymongo.errors import WriteError

from tailrace.connectors.mongodb.documents.extended import ExtendedDocument, read, write
from tailrace.connectors.mongodb.documents.states import state_after
from tailrace.connectors.mongodb.values import fields
from tailrace.connectors.mongodb.values.json_forms import RELAXED, STRICT
from tailrace.connectors.mongodb.values.plain_json import plain_text
from tests.fix_mongodb import MongoDatabase

UPDATES: list[Any] = [
    {"$set": {"n": 1, "address.city": "Oslo"}},
    {"$set": {"tags.1": "x", "lines.0.qty": 5}},
    {"$unset": {"address.city": ""}},
    {"$unset": {"tags.0": ""}},
    {"$inc": {"n": 3}},
    {"$push": {"tags": "new"}},
    {"$push": {"lines": {"$each": [{"sku": "z"}, {"sku": "q", "qty": 2.5}]}}},
    {"$pull": {"tags": "x"}},
    {"$pop": {"tags": 1}},
    {"$rename": {"n": "m"}},
    {"$set": {"address": {"city": "Bergen", "geo": {"lat": 60.4}}}},
    {"$set": {"address.geo.lon": 5.3, "deep.a.b": [1, [2]]}},
    [{"$set": {"sum": {"$size": {"$ifNull": ["$tags", []]}}}}],
    [{"$set": {"tags": {"$slice": [{"$ifNull": ["$tags", []]}, 1]}}}],
    [{"$unset": ["deep", "lines"]}],
]
WHOLE = {"name": "Anne", "n": 0, "tags": ["a", "b"], "lines": [{"sku": "x", "qty": 1}], "address": {"street": "y"}}


def text(document: Any, form: Any) -> str:
    return plain_text(encode(document), fields.DOCUMENT, 0, form)


def event(change: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an event of format 3 from a change stream without look-up."""
    operation = {"insert": "c", "replace": "u", "update": "u", "delete": "d"}[change["operationType"]]
    told = change.get("updateDescription")
    if told is None:
        whole = change.get("fullDocument")
        return {"op": operation, "after": None if whole is None else text(whole, STRICT), "updateDescription": None}
    cut = [{"field": part["field"], "size": part["newSize"]} for part in told.get("truncatedArrays") or ()]
    described = {"updatedFields": text(told["updatedFields"], RELAXED), "removedFields": told["removedFields"]}
    return {"op": operation, "after": None, "updateDescription": {**described, "truncatedArrays": cut}}


def test_documents_from_a_change_stream_are_those_of_the_server(mongo_database: MongoDatabase) -> None:
    chosen = random.Random(5)
    collection = mongo_database["documents"]
    states: dict[int, ExtendedDocument | None] = {}
    with collection.watch(max_await_time_ms=500) as stream:
        for number in range(4):
            collection.insert_one({"_id": number, **WHOLE})
        for _ in range(60):
            number = chosen.randrange(4)
            if chosen.random() < 0.1:
                collection.replace_one({"_id": number}, WHOLE)
            else:
                # An update may not fit the state that earlier ones left, as $push on a field that is not an array.
                with suppress(WriteError):
                    collection.update_one({"_id": number}, chosen.choice(UPDATES))
        collection.delete_one({"_id": 3})
        collection.insert_one({"_id": 9, "end": True})
        while 9 not in states:
            change = stream.try_next()
            if change is not None:
                number = change["documentKey"]["_id"]
                states[number] = state_after(states.get(number), event(dict(change)))
    for number, found in states.items():
        wanted = collection.find_one({"_id": number})
        assert (found is None) == (wanted is None), number
        if found is not None:
            # Fields that were set anew may be in another order than on the server.
            assert _sorted(found) == _sorted(read(text(wanted, STRICT))), number


def _sorted(document: ExtendedDocument) -> str:
    return write(ExtendedDocument(sorted(document.items())))
