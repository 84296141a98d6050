"""The steps of a MongoDB case, `run.json`, and their execution. MONGODB.md beside the recordings explains them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymongo
from bson import json_util
from bson.codec_options import DatetimeConversion
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from tests.fix_mongodb import stand_in

Document = dict[str, Any]
Step = Mapping[str, Any]

CONTROL = frozenset({"start", "stop", "wait", "settle", "sleep"})
"""The steps that concern the connector, not the server."""
_JSON = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_SURROGATES = range(0xD8, 0xE0)
_DIGITS = "0123456789"


def load(path: Path) -> list[Step]:
    """Return the steps of a run.json, with values in canonical extended JSON. Raises ValueError for an unknown step."""
    steps: list[Step] = json_util.loads(path.read_text(encoding="utf-8"), json_options=_JSON)["steps"]
    known = CONTROL | {name.removeprefix("_do_") for name in vars(Writer) if name.startswith("_do_")}
    if unknown := sorted({step["op"] for step in steps} - known):
        raise ValueError(f"{path.parent.name}/run.json: unknown steps {unknown}")
    return steps


class Writer:
    """A writer that carries out the steps on the server one after another."""

    def __init__(self, client: pymongo.MongoClient[Document]) -> None:
        self._client = client
        self._oplog: Collection[Document] | None = None
        self._entries = 0

    def do(self, step: Step, session: ClientSession | None = None) -> None:
        """Carry out one step. Raises PyMongo's errors unless the step is marked `fails`."""
        method = getattr(self, f"_do_{step['op']}")
        try:
            method(step, session)
        except pymongo.errors.PyMongoError:
            if not step.get("fails"):
                raise

    def _of(self, step: Step) -> Collection[Document]:
        database, collection = step["ns"].split(".", 1)
        return self._client[database][collection]

    def _do_insert(self, step: Step, session: ClientSession | None) -> None:
        documents = step["documents"]
        if len(documents) > 1:
            self._of(step).insert_many(documents, session=session)
        else:
            self._of(step).insert_one(documents[0], session=session)

    def _do_insertRange(self, step: Step, session: ClientSession | None) -> None:
        numbers = range(step["from"], step["to"] + 1)
        self._of(step).insert_many([filled(step["template"], number) for number in numbers], session=session)

    def _do_insertLarge(self, step: Step, session: ClientSession | None) -> None:
        text = (_DIGITS * (step["size"] // len(_DIGITS) + 1))[: step["size"]]
        self._of(step).insert_one({**step["document"], step["field"]: text}, session=session)

    def _do_insertCharacters(self, step: Step, session: ClientSession | None) -> None:
        blocks = {
            f"u{block:02x}": "".join(map(chr, range(block << 8, (block + 1) << 8)))
            for block in step["blocks"]
            if block not in _SURROGATES
        }
        self._of(step).insert_one({**step["document"], **blocks}, session=session)

    def _do_update(self, step: Step, session: ClientSession | None) -> None:
        collection = self._of(step)
        update = collection.update_many if step.get("many") else collection.update_one
        update(
            step["filter"],
            step["update"],
            upsert=bool(step.get("upsert")),
            array_filters=step.get("arrayFilters"),
            session=session,
        )

    def _do_replace(self, step: Step, session: ClientSession | None) -> None:
        upsert = bool(step.get("upsert"))
        self._of(step).replace_one(step["filter"], step["replacement"], upsert=upsert, session=session)

    def _do_findAndReplace(self, step: Step, session: ClientSession | None) -> None:
        self._of(step).find_one_and_replace(step["filter"], step["replacement"], session=session)

    def _do_delete(self, step: Step, session: ClientSession | None) -> None:
        collection = self._of(step)
        delete = collection.delete_many if step.get("many") else collection.delete_one
        delete(step["filter"], session=session)

    def _do_bulk(self, step: Step, session: ClientSession | None) -> None:
        self._of(step).bulk_write([_request(request) for request in step["requests"]], session=session)

    def _do_transaction(self, step: Step, session: ClientSession | None) -> None:
        with self._client.start_session() as own:
            own.start_transaction()
            for inner in step["steps"]:
                self.do(inner, own)
            if step.get("abort"):
                own.abort_transaction()
            else:
                own.commit_transaction()

    def _do_createCollection(self, step: Step, session: ClientSession | None) -> None:
        database, collection = step["ns"].split(".", 1)
        self._client[database].create_collection(collection, **step.get("options", {}))

    def _do_createIndex(self, step: Step, session: ClientSession | None) -> None:
        self._of(step).create_index(list(step["keys"].items()), **step.get("options", {}))

    def _do_drop(self, step: Step, session: ClientSession | None) -> None:
        self._of(step).drop()

    def _do_dropDatabase(self, step: Step, session: ClientSession | None) -> None:
        self._client.drop_database(step["database"])

    def _do_rename(self, step: Step, session: ClientSession | None) -> None:
        self._of(step).rename(step["to"].split(".", 1)[1])

    def _do_oplog(self, step: Step, session: ClientSession | None) -> None:
        """Insert entries into the stand-in for the oplog."""
        if self._oplog is None:
            self._oplog = stand_in(self._client)
        for entry in step["entries"]:
            self._entries += 1
            self._oplog.insert_one({"_id": self._entries, **entry})


def _request(request: Step) -> Any:
    """Return one of the writes of a bulk."""
    kind, upsert = request["op"], bool(request.get("upsert"))
    if kind == "insert":
        return pymongo.InsertOne(request["document"])
    if kind == "delete":
        return pymongo.DeleteOne(request["filter"])
    if kind == "replace":
        return pymongo.ReplaceOne(request["filter"], request["replacement"], upsert=upsert)
    update = pymongo.UpdateMany if request.get("many") else pymongo.UpdateOne
    return update(request["filter"], request["update"], upsert=upsert)


def filled(template: Any, number: int) -> Any:
    """Return the template with the text "$i" as the number, and `$i` within texts as its digits."""
    if isinstance(template, dict):
        return {name: filled(value, number) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, number) for value in template]
    if template == "$i":
        return number
    return template.replace("$i", str(number)) if isinstance(template, str) else template
