"""Removal of the objects of a pipeline in MongoDB: its signal collection. Driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tailrace.config import Config
from tailrace.connectors.mongodb.log.namespaces import split
from tailrace.connectors.mongodb.offset import MongoOffset
from tailrace.connectors.mongodb.server.connection import Address, connect, server_uuid
from tailrace.connectors.mongodb.server.faults import explained
from tailrace.connectors.removal import OTHER_SERVER, UNKNOWN, Removable, Removal

_FIELDS = frozenset(("_id", "id", "type", "data", "payload"))
"""Fields of documents in the signal collection: signals and watermarks."""


def _found(config: Config, stored: Mapping[str, Any] | None) -> list[Removable]:
    name = config["signal.data.collection"]
    if not name:
        return []
    database, collection = split(name)
    client = connect(Address.of(config, soon=True))
    try:
        if not client[database].list_collection_names(filter={"name": collection}):
            return []
        others = client[database][collection].find_one({"type": {"$exists": False}}) is not None
        sample = client[database][collection].find_one() or {}
        kept = (
            UNKNOWN if stored is None else _elsewhere(MongoOffset.from_json(dict(stored)).server, server_uuid(client))
        )
        if not kept and (others or not _FIELDS.issuperset(sample)):
            kept = "It has documents that are no signals."
        statement = f"db.getSiblingDB({json.dumps(database)}).getCollection({json.dumps(collection)}).drop()"
        return [Removable(f"the signal collection {name}", statement, kept)]
    finally:
        client.close()


def _elsewhere(stored: str, here: str) -> str:
    """Return a sentence that says why the checkpoint is not of this server; "" if it is."""
    if stored and here:
        return "" if stored == here else OTHER_SERVER
    if here:
        return "The checkpoint does not show of which server it is: the user of its runs could not see that."
    return "The user may not see which server this is, which the role readAnyDatabase allows."


def _remove(config: Config, part: Removable) -> None:
    database, collection = split(config["signal.data.collection"])
    client = connect(Address.of(config, soon=True))
    try:
        client[database].drop_collection(collection)
    finally:
        client.close()


REMOVAL = Removal(explained(_found), explained(_remove))
