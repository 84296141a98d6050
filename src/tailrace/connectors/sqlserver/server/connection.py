"""Connections to SQL Server, by Microsoft's driver for Python. Any process; the driver is loaded at the first call."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tailrace.connectors.sqlserver.server.driver import keywords
from tailrace.connectors.sqlserver.server.errors import refused
from tailrace.errors import PrerequisiteError

if TYPE_CHECKING:
    import mssql_python

_PROVIDER = "MSSQL_PYTHON_NATIVE_PROVIDER"

# System messages decide what an error means, and they follow the session's language ("SET LANGUAGE"). The other
# settings are those that every driver of Microsoft's has ("SET ANSI_DEFAULTS"), asked for so that nothing hangs on
# the login's own; values travel in forms that neither language nor DATEFORMAT touches.
_SETTINGS = "set language us_english; set nocount on"


def connection_string(config: Mapping[str, Any], database: str) -> str:
    """The ODBC connection string; holds the password. Every value is in braces, so that it may hold any character."""
    host, instance, port = config["database.hostname"], config["database.instance"], config["database.port"]
    named = {
        "Server": f"{host},{port}" if port else f"{host}\\{instance}",
        "Database": database,
        "UID": config["database.user"],
        "PWD": config["database.password"],
        **keywords(config),
    }
    return ";".join(f"{name}={_braced(str(value))}" for name, value in named.items() if value not in (None, ""))


def _braced(value: str) -> str:
    return "{" + value.replace("}", "}}") + "}"


def connect(config: Mapping[str, Any], database: str) -> mssql_python.Connection:
    """A connection in autocommit mode, whose messages are in English.

    A statement may take `database.query.timeout.ms`. Raises ConnectionFailed when the server cannot be reached or
    refuses the login, PrerequisiteError for a database that cannot be opened and for a driver that is not there.
    """
    driver = _driver()
    login = config["driver.loginTimeout"] or math.ceil(config["connection.validation.timeout.ms"] / 1000)
    connection: mssql_python.Connection
    try:
        connection = driver.connect(connection_string(config, database), autocommit=True, timeout=login)
    except (driver.exceptions.Exception, driver.ConnectionStringParseError, RuntimeError) as error:
        raise refused(error, config, database, connecting=True) from None
    try:
        connection.timeout = math.ceil(config["database.query.timeout.ms"] / 1000)
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(_SETTINGS)
    except driver.exceptions.Exception as error:
        close(connection)
        raise refused(error, config, database) from None
    return connection


def close(connection: mssql_python.Connection) -> None:
    """Close it, whatever state it is in."""
    with contextlib.suppress(Exception):
        connection.close()


@functools.cache
def _driver() -> Any:
    """The driver's module, set up once in a process.

    Of its two native halves the one that needs nothing of the operating system is taken, unless the environment
    names the other. Its pool is switched off: an isolation level outlives `sp_reset_connection` ("SET TRANSACTION
    ISOLATION LEVEL", remarks), so that a pooled session could read under that of another.
    """
    if importlib.util.find_spec("mssql_python") is None:
        raise PrerequisiteError(
            "SQL Server's driver is not installed.", "Install it: pip install 'tailrace[sqlserver]'."
        )
    import mssql_python

    driver: Any = mssql_python
    if not os.environ.get(_PROVIDER) and importlib.util.find_spec("mssql_py_core") is not None:
        driver.native_provider = "mssql-odbc"
    driver.pooling(enabled=False)
    return driver
