"""Messages of SQL Server and of its driver become errors with a remedy, and none of them tells a secret or a row."""

from __future__ import annotations

import pytest

from tailrace.config import Config
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.server.connection import connection_string
from tailrace.connectors.sqlserver.server.errors import refused, user_fault
from tailrace.errors import (
    ConfigError,
    ConnectionFailed,
    PositionLost,
    PrerequisiteError,
    StatementCutOff,
    TailraceError,
)

ACCESS = "Syntax error or access violation"
GENERAL = "General error"
LINK = "Communication link failure"


class DriverError(Exception):
    """An exception in the driver's form: SQLSTATE's meaning, and the message with the driver's name."""

    def __init__(self, meaning: str, message: str) -> None:
        super().__init__(message)
        self.driver_error = meaning
        self.ddbc_error = f"[Microsoft][SQL Server]{message}"


def config(**options: str) -> Config:
    given = {
        "database.hostname": "db",
        "database.user": "cdc",
        "database.password": "hunter2",
        "database.names": "shop",
    }
    return parse("sqlserver", given | {name.replace("__", "."): text for name, text in options.items()})


@pytest.mark.parametrize(
    ("meaning", "message", "kind", "told"),
    [
        ("Invalid authorization specification", "Login failed for user 'cdc'.", ConnectionFailed, "refuses the login"),
        (
            ACCESS,
            'Cannot open database "shop" requested by the login. The login failed.',
            PrerequisiteError,
            "cannot open the database shop",
        ),
        (
            ACCESS,
            "The SELECT permission was denied on the object 'dbo_t_CT', database 'shop', schema 'cdc'.",
            PrerequisiteError,
            "lacks a right",
        ),
        (ACCESS, "VIEW SERVER STATE permission was denied on object 'server', database 'master'.", PrerequisiteError,
         "lacks a right"),
        ("Base table or view not found", "Invalid object name 'cdc.change_tables'.", PrerequisiteError,
         "There is no cdc.change_tables"),
        ("Column not found", "Invalid column name 'gone'.", PrerequisiteError, "has no column gone"),
        (
            ACCESS,
            "An insufficient number of arguments were supplied for the procedure or function "
            "cdc.fn_cdc_get_all_changes_ ... .",
            PositionLost,
            "no longer has the changes",
        ),
        (
            "Serialization failure",
            "Transaction (Process ID 61) was deadlocked on lock resources with another process and has been chosen as "
            "the deadlock victim. Rerun the transaction.",
            ConnectionFailed,
            "victim of a deadlock",
        ),
        (GENERAL, "Lock request time out period exceeded.", ConnectionFailed, "snapshot.lock.timeout.ms"),
        (
            GENERAL,
            "Snapshot isolation transaction failed accessing database 'shop' because snapshot isolation is not allowed "
            "in this database. Use ALTER DATABASE to allow snapshot isolation.",
            PrerequisiteError,
            "does not allow snapshot isolation",
        ),
        (
            GENERAL,
            "Snapshot isolation transaction failed in database 'shop' because the object accessed by the statement has "
            "been modified by a DDL statement in another concurrent transaction since the start of this transaction.",
            ConnectionFailed,
            "aborted",
        ),
        (LINK, "TCP Provider: Error code 0x68", ConnectionFailed, "was lost"),
        (GENERAL, "Connection closed: Connection is dead and session recovery is unavailable", ConnectionFailed,
         "was lost"),
        ("Timeout expired", "Query timeout expired", StatementCutOff, "database.query.timeout.ms"),
        (
            ACCESS,
            "The target database, 'shop', is participating in an availability group and is currently not accessible "
            "for queries. Unable to access availability database.",
            ConnectionFailed,
            "not ready for connections",
        ),
        (
            ACCESS,
            "The target database ('shop') is in an availability group and is currently accessible for connections when "
            "the application intent is set to read only.",
            PrerequisiteError,
            "readable secondary",
        ),
        (
            ACCESS,
            "The database 'shop' is not enabled for Change Data Capture. Ensure that the correct database context is "
            "set and retry the operation.",
            PrerequisiteError,
            "not enabled",
        ),
    ],
)  # fmt: skip
def test_a_refused_statement_is_told_with_its_remedy(
    meaning: str, message: str, kind: type[TailraceError], told: str
) -> None:
    error = refused(DriverError(meaning, message), config(), "shop")
    assert type(error) is kind
    assert told in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("IO error: Connection refused (os error 111)", "Nothing listens at db:1433"),
        ("IO error: failed to lookup address information: Name or service not known", "host of db:1433 is not known"),
        ("Timeout Error: Timeout while connecting", "does not answer in time"),
        ("Protocol Error: Server does not support encryption but client requires it", "TLS with db:1433 fails"),
        ("certificate verify failed: self-signed certificate", "TLS with db:1433 fails"),
        ("Something new with hunter2 in it", "No connection to db:1433: Something new with *** in it"),
    ],
)
def test_a_failed_login_is_told_with_its_remedy(message: str, told: str) -> None:
    error = refused(DriverError("Client unable to establish connection", message), config(), "shop", connecting=True)
    assert isinstance(error, ConnectionFailed)
    assert told in error.message
    assert "hunter2" not in str(error)
    assert error.remedy


def test_a_message_that_may_quote_a_row_is_not_repeated() -> None:
    message = "Conversion failed when converting the nvarchar value 'Anne's secret' to data type int."
    error = refused(DriverError(ACCESS, message), config(), "shop")
    assert "Anne" not in str(error)
    assert ACCESS in str(error)


def test_the_users_own_statement_is_his_to_correct() -> None:
    error = user_fault(DriverError(ACCESS, "Invalid object name 'beats'."), config(), "shop", "heartbeat.action.query")
    assert isinstance(error, ConfigError)
    assert "heartbeat.action.query fails in shop: Invalid object name 'beats'" in error.message
    lost = user_fault(DriverError(LINK, "gone"), config(), "shop", "heartbeat.action.query")
    assert isinstance(lost, ConnectionFailed)


def test_a_connection_string_holds_any_character_in_braces() -> None:
    made = connection_string(config(), "my db", "a;b}c{d")
    assert made.startswith("Server={db,1433};Database={my db};UID={cdc};PWD={a;b}}c{d};Encrypt={yes};")
    assert "TrustServerCertificate={no}" in made
    assert "ApplicationIntent={ReadWrite}" in made


def test_an_instance_is_named_where_no_port_is() -> None:
    assert connection_string(config(database__instance="SQLEXPRESS"), "d", "").startswith("Server={db\\SQLEXPRESS};")
    both = connection_string(config(database__instance="SQLEXPRESS", database__port="1434"), "d", "")
    assert both.startswith("Server={db,1434};")
