"""`tailrace init` and `tailrace remove` against Db2: what a first file needs, and what may be removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tailrace.config import Config
from tailrace.connectors.changetables.offset import TablesOffset
from tailrace.connectors.db2.setup.removal import REMOVAL
from tailrace.connectors.db2.setup.survey import look
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tests.fix_db2 import Db2Database
from tests.integration.db2.driving import Query

SIGNALS = "(ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32) NOT NULL, DATA VARCHAR(2048))"


def config(database: Db2Database, **more: str) -> Config:
    return parse("db2", database.options(topic_prefix="p", **more))


def test_a_database_without_capture_gets_its_statements(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY)", 'CREATE TABLE INVENTORY."o\'x" (ID INT)')
    # the tables of the played capture program are left out
    found = look(config(db2, table_include_list=r"INVENTORY\..*"))
    assert found.entries == (("table.include.list", r"INVENTORY.T,INVENTORY.o\'x"),)
    assert found.statements == (
        "call ASNCDC.ADDTABLE('INVENTORY', 'T');",
        "call ASNCDC.ADDTABLE('INVENTORY', 'o''x');",
        "values ASNCDC.ASNCDCSERVICES('reinit', 'asncdc');",
    )


def test_a_database_without_control_tables_is_told_how_to_make_them(db2: Db2Database) -> None:
    db2.execute("CREATE TABLE INVENTORY.T (ID INTEGER NOT NULL PRIMARY KEY)")
    found = look(config(db2, cdc_control_schema="ASN", table_include_list=r"INVENTORY\..*"))
    assert found.statements[0].startswith("-- with asnclp, once: CREATE CONTROL TABLES FOR CAPTURE SERVER")
    assert found.statements[1] == f"-- and then: asncap capture_server={db2.name} capture_schema=ASN"
    assert "call ASNCDC.ADDTABLE('INVENTORY', 'T');" in found.statements


def test_tables_that_somebody_has_chosen_are_the_tables_of_the_file(customers: Db2Database) -> None:
    customers.execute("CREATE TABLE INVENTORY.OTHER (ID INT)")
    found = look(config(customers))
    assert (found.entries, found.statements) == ((("table.include.list", "MYSCHEMA.CUSTOMERS"),), ())


def test_the_signal_table_is_found_with_its_registration(
    customers: Db2Database, query: Callable[..., Query], make_db2: Callable[[], Db2Database]
) -> None:
    # a procedure of Derby in the place of Debezium's, which notes that it was called
    customers.execute(
        f"CREATE TABLE INVENTORY.SIGNALS {SIGNALS}",
        "CREATE PROCEDURE ASNCDC.REMOVETABLE(S VARCHAR(128), T VARCHAR(128)) LANGUAGE JAVA PARAMETER STYLE JAVA NO SQL "
        "EXTERNAL NAME 'java.security.Security.setProperty'",
        "CREATE FUNCTION PLAYED.REMOVED(S VARCHAR(128)) RETURNS VARCHAR(128) LANGUAGE JAVA PARAMETER STYLE JAVA NO SQL "
        "EXTERNAL NAME 'java.security.Security.getProperty'",
    )
    customers.capture.register("INVENTORY", "SIGNALS")
    customers.capture.capture()
    of = config(customers, signal_data_collection="INVENTORY.SIGNALS")
    stored = _offset(customers, query)
    parts = REMOVAL.found(of, stored)
    table = "the signal table INVENTORY.SIGNALS"
    assert [(one.name, one.statement, one.kept) for one in parts] == [
        (
            "the registration of the signal table INVENTORY.SIGNALS",
            "call ASNCDC.REMOVETABLE('INVENTORY', 'SIGNALS')",
            "",
        ),
        (table, 'drop table "INVENTORY"."SIGNALS"', ""),
    ]
    assert all(one.kept.startswith("There is no checkpoint") for one in REMOVAL.found(of, None))
    REMOVAL.remove(of, parts[0])
    assert customers.capture.session.rows("VALUES PLAYED.REMOVED('INVENTORY')") == [("SIGNALS",)]
    customers.capture.unregister("INVENTORY", "SIGNALS")
    REMOVAL.remove(of, parts[1])
    assert REMOVAL.found(of, stored) == []


def test_what_may_be_anothers_is_left(customers: Db2Database, query: Callable[..., Query]) -> None:
    customers.execute(f"CREATE TABLE INVENTORY.SIGNALS {SIGNALS}")
    of = config(customers, signal_data_collection="INVENTORY.SIGNALS")
    before = _offset(customers, query, signal_data_collection="")
    assert {one.kept for one in REMOVAL.found(of, before)} == {
        "The checkpoint does not show that the pipeline has read it."
    }
    customers.capture.register("INVENTORY", "SIGNALS")
    customers.capture.capture()
    stored = _offset(customers, query)
    assert {one.kept for one in REMOVAL.found(of, stored)} == {""}
    offset = TablesOffset.from_json(stored)
    ahead = replace(offset.databases[customers.name], position=b"\xff" * 16)
    elsewhere = replace(offset, databases={customers.name: ahead}).to_json()
    assert {one.kept for one in REMOVAL.found(of, elsewhere)} == {"The checkpoint is of another server."}
    # registered anew, as a table of the same name in another database is, after what the pipeline has read
    customers.capture.unregister("INVENTORY", "SIGNALS")
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS (FIRST_NAME, LAST_NAME, EMAIL) VALUES ('a', 'b', 'c')")
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS (FIRST_NAME, LAST_NAME, EMAIL) VALUES ('a', 'b', 'd')")
    customers.capture.register("INVENTORY", "SIGNALS")
    assert {one.kept for one in REMOVAL.found(of, stored)} == {"The checkpoint is of another server."}
    customers.execute("ALTER TABLE INVENTORY.SIGNALS ADD COLUMN MORE INT")
    assert REMOVAL.found(of, None)[-1].kept.startswith("There is no checkpoint")


def test_a_procedure_that_is_not_there_is_an_error_with_db2s_words(customers: Db2Database) -> None:
    customers.execute(f"CREATE TABLE INVENTORY.SIGNALS {SIGNALS}")
    customers.capture.register("INVENTORY", "SIGNALS")
    of = config(customers, signal_data_collection="INVENTORY.SIGNALS")
    with pytest.raises(PrerequisiteError, match="Db2 refuses a statement"):
        REMOVAL.remove(of, REMOVAL.found(of, None)[0])


def _offset(database: Db2Database, query: Callable[..., Query], **options: str) -> dict[str, Any]:
    """Return the offset of a query that has read everything, and the signal table if it is registered."""
    reader = query(**{"signal_data_collection": "INVENTORY.SIGNALS", "snapshot_mode": "never", **options})
    reader.drain()
    reader.close()
    assert reader.start is not None
    return reader.start
