"""Db2 under the contract: Derby, with a simulated capture program."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tests.contract.subject import Served
from tests.fix_db2 import Db2Database

SIGNALS = "CREATE TABLE INVENTORY.SIGNALS (ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32), DATA VARCHAR(2048))"


class Db2Subject(Served):
    connector = "db2"
    table = "INVENTORY.THINGS"

    def __init__(self, database: Db2Database) -> None:
        self._capture = database.capture
        self.port = database.server.port
        self.secrets = (database.server.password,)
        self.signals = {"signal.data.collection": "INVENTORY.SIGNALS"}
        self.options = database.options(
            topic_prefix="contract", snapshot_mode="no_data", include_schema_changes="false"
        )
        database.execute("CREATE TABLE INVENTORY.THINGS (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(20))", SIGNALS)
        for table in ("THINGS", "SIGNALS"):
            database.capture.register("INVENTORY", table)
        database.capture.capture()

    def insert(self, *numbers: int) -> None:
        for number in numbers:
            self._capture.run(f"INSERT INTO INVENTORY.THINGS VALUES ({number}, 'thing')")

    def at_work(self) -> AbstractContextManager[object]:
        return self._capture.working()
