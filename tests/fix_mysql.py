"""MySQL and MariaDB for tests: one server of each version for the whole run, and a database for each test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from pymysql.connections import Connection

from tests.extent import by_day
from tests.servers.jars import Unavailable
from tests.servers.mysql import MARIADB_10, MARIADB_11, MYSQL_8, MYSQL_57, PASSWORD, USER, MySqlServer, Version


@dataclass(frozen=True, slots=True)
class MySqlDatabase:
    """An empty database of one test."""

    server: MySqlServer
    name: str

    def connect(self, **more: Any) -> Connection[Any]:
        """Return a session in this database, which the caller closes."""
        return self.server.connect(self.name, **more)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in a session of their own, and return the rows of the last."""
        return self.server.execute(*statements, database=self.name)

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for this database, and `more`, with dots for its underscores."""
        login = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.include.list": self.name,
            "topic.prefix": self.name,
        }
        return login | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture(scope="session")
def mysql_servers() -> Iterator[Callable[[Version], MySqlServer]]:
    """Yield a function that returns the run's server of a version, started when it is first asked for.

    It skips the test, with the reason, if the server is not there and cannot be fetched.
    """
    with ExitStack() as stack:
        running: dict[str, MySqlServer] = {}

        def server(version: Version) -> MySqlServer:
            if version.name not in running:
                try:
                    made = MySqlServer(version)
                except Unavailable as reason:
                    pytest.skip(str(reason))
                running[version.name] = stack.enter_context(made)
            return running[version.name]

        yield server


@pytest.fixture
def make_mysql(mysql_servers: Callable[[Version], MySqlServer]) -> Iterator[Callable[[Version], MySqlDatabase]]:
    """Yield a factory of empty databases, which are dropped after the test."""
    made: list[MySqlDatabase] = []

    def make(version: Version) -> MySqlDatabase:
        database = MySqlDatabase(mysql_servers(version), f"t_{secrets.token_hex(4)}")
        database.server.execute(f"CREATE DATABASE {database.name} CHARACTER SET utf8mb4")
        made.append(database)
        return database

    yield make
    for database in made:
        database.server.execute(f"DROP DATABASE IF EXISTS {database.name}")


@pytest.fixture
def mysql(make_mysql: Callable[[Version], MySqlDatabase]) -> MySqlDatabase:
    """Return a database of MySQL 8.0."""
    return make_mysql(MYSQL_8)


@pytest.fixture
def mariadb(make_mysql: Callable[[Version], MySqlDatabase]) -> MySqlDatabase:
    """Return a database of MariaDB 11.4."""
    return make_mysql(MARIADB_11)


@pytest.fixture(params=[MYSQL_8, MARIADB_11], ids=lambda version: version.name)
def binlog_database(request: pytest.FixtureRequest, make_mysql: Callable[[Version], MySqlDatabase]) -> MySqlDatabase:
    """Return a database of MySQL 8.0, and then one of MariaDB 11.4."""
    return make_mysql(request.param)


@pytest.fixture(params=by_day([MYSQL_8, MARIADB_11], 2), ids=lambda version: version.name)
def todays_binlog_database(
    request: pytest.FixtureRequest, make_mysql: Callable[[Version], MySqlDatabase]
) -> MySqlDatabase:
    """Return a database of MySQL 8.0 or of MariaDB 11.4, by the day; one of each in a full run."""
    return make_mysql(request.param)


@pytest.fixture(params=[MYSQL_8, MYSQL_57, MARIADB_11, MARIADB_10], ids=lambda version: version.name)
def any_binlog_database(
    request: pytest.FixtureRequest, make_mysql: Callable[[Version], MySqlDatabase]
) -> MySqlDatabase:
    """Return a database of each version that tests know."""
    return make_mysql(request.param)
