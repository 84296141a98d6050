"""MySQL and MariaDB under the contract."""

from __future__ import annotations

from tests.contract.subject import TABLE, Served
from tests.fix_mysql import MySqlDatabase
from tests.servers.mysql import PASSWORD

SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048))"


class BinlogSubject(Served):
    def __init__(self, database: MySqlDatabase) -> None:
        self._database = database
        self.connector = database.server.dialect
        self.port = database.server.port
        self.secrets = (PASSWORD,)
        self.table = f"{database.name}.{TABLE}"
        self.signals = {"signal.data.collection": f"{database.name}.signals"}
        self.options = database.options(
            topic_prefix="contract", snapshot_mode="no_data", include_schema_changes="false"
        )
        database.execute(f"create table {TABLE} (id int primary key, name text)", SIGNALS)

    def insert(self, *numbers: int) -> None:
        for number in numbers:
            self._database.execute(f"insert into {TABLE} values ({number}, 'thing')")
