"""Connections to SQL Server by Microsoft's driver for Python, which is imported at the first call. Any process."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.config.credentials import Credential
from tailrace.connectors.sqlserver.server.driver import keywords
from tailrace.connectors.sqlserver.server.errors import refused
from tailrace.errors import PrerequisiteError
from tailrace.process.installation import pip_install

if TYPE_CHECKING:
    import mssql_python

_PROVIDER = "MSSQL_PYTHON_NATIVE_PROVIDER"

# Errors are recognised by their messages, which depend on the session's language ("SET LANGUAGE"). Values are exchanged
# in forms that depend neither on the language nor on DATEFORMAT.
_SETTINGS = "set language us_english; set nocount on"


def connection_string(config: Mapping[str, Any], database: str, password: str) -> str:
    """Return the ODBC connection string; holds the password. Values are in braces, so they may hold any character."""
    host, instance, port = config["database.hostname"], config["database.instance"], config["database.port"]
    named = {
        "Server": f"{host},{port}" if port else f"{host}\\{instance}",
        "Database": database,
        "UID": config["database.user"],
        "PWD": password,
        **keywords(config),
    }
    return ";".join(f"{name}={_braced(str(value))}" for name, value in named.items() if value not in (None, ""))


def _braced(value: str) -> str:
    return "{" + value.replace("}", "}}") + "}"


def connect(config: Mapping[str, Any], database: str) -> mssql_python.Connection:
    """Return a connection in autocommit mode, whose messages are in English.

    A statement may take `database.query.timeout.ms`. Raises ConnectionFailed if the server cannot be reached or refuses
    the login, PrerequisiteError for a database that cannot be opened and for a missing driver.
    """
    driver = _driver()
    password = Credential.of(config).password()
    login = config["driver.loginTimeout"] or math.ceil(config["connection.validation.timeout.ms"] / 1000)
    connection: mssql_python.Connection
    try:
        connection = driver.connect(connection_string(config, database, password), autocommit=True, timeout=login)
    except (driver.exceptions.Exception, driver.ConnectionStringParseError, RuntimeError) as error:
        raise refused(error, config, database, connecting=True, password=password) from None
    try:
        connection.timeout = math.ceil(config["database.query.timeout.ms"] / 1000)
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(_SETTINGS)
    except driver.exceptions.Exception as error:
        close(connection)
        raise refused(error, config, database) from None
    return connection


def close(connection: mssql_python.Connection) -> None:
    """Close the connection, in any state."""
    with contextlib.suppress(Exception):
        connection.close()


@functools.cache
def _driver() -> Any:
    """Return the driver's module, set up once in a process.

    The driver uses the native provider that needs no library of the operating system, unless the environment names
    another. Pooling is off: an isolation level outlives `sp_reset_connection` ("SET TRANSACTION ISOLATION LEVEL",
    remarks), so a pooled session could read with the level of its previous user.
    """
    if importlib.util.find_spec("mssql_python") is None:
        raise PrerequisiteError("SQL Server's driver is not installed.", pip_install("tailrace[sqlserver]"))
    import mssql_python

    driver: Any = mssql_python
    if not os.environ.get(_PROVIDER) and importlib.util.find_spec("mssql_py_core") is not None:
        driver.native_provider = "mssql-odbc"
    driver.pooling(enabled=False)
    return driver
