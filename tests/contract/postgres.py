"""PostgreSQL under the contract."""

from __future__ import annotations

from tests.contract.subject import Served
from tests.fix_postgres import Database

SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048))"


class PostgresSubject(Served):
    connector = "postgres"
    table = "public.things"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.port = database.server.port
        self.secrets = (database.server.password,)
        self.signals = {"signal.data.collection": "public.signals"}
        self.options = database.options(
            topic_prefix="contract", slot_name=f"slot_{database.name}", snapshot_mode="no_data"
        )
        database.execute("create table things (id int primary key, name text)", SIGNALS)

    def insert(self, *numbers: int) -> None:
        self._database.execute(*(f"insert into things values ({number}, 'thing')" for number in numbers))
