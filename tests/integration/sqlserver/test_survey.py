"""`tailrace init` and `tailrace remove` against SQL Server: what a first file needs, and what may be removed."""

from __future__ import annotations

from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.sqlserver.setup.removal import REMOVAL
from tailrace.connectors.sqlserver.setup.survey import look
from tdsserver.process import TestDatabase
from tests.integration.sqlserver.reading import config, connected

SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)"


def test_a_database_without_capture_gets_its_statements(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)", "create table [o.x] (id int)")
    found = look(config(sqlserver_database))
    assert found.entries == (("table.include.list", r"dbo.o\.x,dbo.t"),)
    user = config(sqlserver_database)["database.user"]
    assert found.statements == (
        f"use [{sqlserver_database.name}];",
        "exec sys.sp_cdc_enable_db;",
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'o.x', @role_name = null;",
        "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = null;",
        f"grant select on schema::cdc to [{user}];",
    )


def test_tables_that_somebody_has_chosen_are_the_tables_of_the_file(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute("create table t (id int not null primary key)", "create table other (id int)")
    sqlserver_database.enable("t")
    found = look(config(sqlserver_database))
    assert (found.entries, found.statements) == ((("table.include.list", "dbo.t"),), ())


def test_the_signal_table_is_found_with_what_captures_it(sqlserver_database: TestDatabase) -> None:
    sqlserver_database.execute(SIGNALS)
    sqlserver_database.enable("signals")
    name = sqlserver_database.name
    of = config(sqlserver_database, {"signal.data.collection": f"{name}.dbo.signals"})
    with connected(sqlserver_database) as session:
        stored = TablesOffset({}, lineages={name: session.lineage()}).to_json()
    assert [one.name for one in REMOVAL.found(of, stored)] == [
        f"the capture instance dbo_signals of {name}",
        f"the signal table dbo.signals of {name}",
    ]
    assert {one.kept for one in REMOVAL.found(of, stored)} == {""}
    assert all(one.kept.startswith("There is no checkpoint") for one in REMOVAL.found(of, None))
    elsewhere = TablesOffset({}, lineages={name: "another"}).to_json()
    assert {one.kept for one in REMOVAL.found(of, elsewhere)} == {"The checkpoint is of another server."}
    for part in REMOVAL.found(of, stored):
        REMOVAL.remove(of, part)
    assert REMOVAL.found(of, stored) == []
