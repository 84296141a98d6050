"""MongoDB under the contract: a change stream of a replica set."""

from __future__ import annotations

from collections.abc import Mapping

from tests.contract.subject import TABLE, Served
from tests.fix_mongodb import MongoDatabase


class MongoSubject(Served):
    connector = "mongodb"

    def __init__(self, database: MongoDatabase) -> None:
        self._things = database[TABLE]
        self.port = int(database.server.address.rpartition(":")[2])
        self.secrets = (database.server.uri,)
        self.table = f"{database.name}.{TABLE}"
        self.signals = {"signal.data.collection": f"{database.name}.signals"}
        self.options = {
            "mongodb.connection.string": database.server.uri,
            "topic.prefix": "contract",
            "collection.include.list": self.table.replace(".", "[.]"),
            "snapshot.mode": "no_data",
            "cursor.max.await.time.ms": "50",
            "mongodb.server.selection.timeout.ms": "1000",
        }

    def insert(self, *numbers: int) -> None:
        for number in numbers:
            self._things.insert_one({"_id": number, "name": "thing"})

    def reached(self, port: int) -> Mapping[str, str]:
        return {**self.options, "mongodb.connection.string": f"mongodb://127.0.0.1:{port}/?directConnection=true"}
