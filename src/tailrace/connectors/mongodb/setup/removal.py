"""The part of a pipeline in a MongoDB: its signal collection. Driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tailrace.config import Config
from tailrace.connectors.mongodb.log.namespaces import split
from tailrace.connectors.mongodb.server.connection import Address, connect
from tailrace.connectors.mongodb.server.faults import explained
from tailrace.connectors.removal import UNKNOWN, Removable, Removal

_FIELDS = frozenset(("_id", "id", "type", "data", "payload"))
"""Fields of the documents that signals and watermarks are."""


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
        kept = "" if stored is not None else UNKNOWN
        if not kept and (others or not _FIELDS.issuperset(sample)):
            kept = "It has documents that are no signals."
        statement = f"db.getSiblingDB({json.dumps(database)}).getCollection({json.dumps(collection)}).drop()"
        return [Removable(f"the signal collection {name}", statement, kept)]
    finally:
        client.close()


def _remove(config: Config, part: Removable) -> None:
    database, collection = split(config["signal.data.collection"])
    client = connect(Address.of(config, soon=True))
    try:
        client[database].drop_collection(collection)
    finally:
        client.close()


REMOVAL = Removal(explained(_found), explained(_remove))
