"""SQL Server under the contract."""

from __future__ import annotations

from tdsserver.process import TestDatabase
from tests.contract.subject import Served

SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)"


class SqlServerSubject(Served):
    connector = "sqlserver"
    table = "dbo.things"

    def __init__(self, database: TestDatabase) -> None:
        self._database = database
        self.port = database.server.port
        self.secrets = (database.server.password,)
        self.signals = {"signal.data.collection": f"{database.name}.dbo.signals"}
        self.options = database.options(
            topic_prefix="contract", snapshot_mode="no_data", driver_encrypt="false", include_schema_changes="false"
        )
        database.execute("create table things (id int not null primary key, name nvarchar(20))", SIGNALS)
        database.enable("things", "signals")
        database.capture()

    def insert(self, *numbers: int) -> None:
        self._database.execute(*(f"insert into things values ({number}, N'thing')" for number in numbers))
        self._database.capture()
