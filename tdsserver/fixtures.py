"""SQL Server for tests: the server of this package, started once. A plugin of pytest."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from tdsserver.process import TestDatabase, TestServer

# Of the driver's native halves the one that comes as a wheel: the other needs unixODBC's library on the machine. The
# driver looks at it when it is imported for the first time, by whatever test.
os.environ.setdefault("MSSQL_PYTHON_NATIVE_PROVIDER", "mssql-odbc")


@pytest.fixture(scope="session")
def sqlserver() -> Iterator[TestServer]:
    """The server of this run, without TLS."""
    with TestServer() as server:
        yield server


@pytest.fixture
def make_sqlserver_database(sqlserver: TestServer) -> Iterator[Callable[..., TestDatabase]]:
    """Makes fresh databases, of a collation if one is given; all of them go after the test."""
    made: list[TestDatabase] = []

    def make(collation: str | None = None, name: str | None = None) -> TestDatabase:
        made.append(TestDatabase(sqlserver, name or f"test_{secrets.token_hex(4)}", collation))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture
def sqlserver_database(make_sqlserver_database: Callable[..., TestDatabase]) -> TestDatabase:
    """One fresh database; capture is not enabled."""
    return make_sqlserver_database()
