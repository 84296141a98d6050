"""SQL Server for tests: the server of this package, started once. A plugin of pytest."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from tdsserver.process import TestDatabase, TestServer

# The driver's native part that comes as a wheel: the other part needs unixODBC's library on the machine. The
# driver reads this variable when a test imports it for the first time.
os.environ.setdefault("MSSQL_PYTHON_NATIVE_PROVIDER", "mssql-odbc")


@pytest.fixture(scope="session")
def sqlserver() -> Iterator[TestServer]:
    """Yield the server of this run, without TLS."""
    with TestServer() as server:
        yield server


@pytest.fixture
def make_sqlserver_database(sqlserver: TestServer) -> Iterator[Callable[..., TestDatabase]]:
    """Yield a function that makes databases, with a collation if given; all are dropped after the test."""
    made: list[TestDatabase] = []

    def make(collation: str | None = None, name: str | None = None) -> TestDatabase:
        made.append(TestDatabase(sqlserver, name or f"test_{secrets.token_hex(4)}", collation))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture
def sqlserver_database(make_sqlserver_database: Callable[..., TestDatabase]) -> TestDatabase:
    """Return a fresh database without capture."""
    return make_sqlserver_database()
