"""Db2 for tests: one Derby server for the whole run, and a simulated capture program (`tests.servers.asn`)."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import derby
from tests.servers.asn import Capture, Session
from tests.servers.derby import DRIVER, Derby
from tests.servers.jars import Unavailable


@dataclass(frozen=True, slots=True)
class Db2Database:
    """A fresh database of one test, with the control tables of the simulated capture program and a schema INVENTORY."""

    server: Derby
    name: str
    capture: Capture

    def execute(self, *statements: str) -> None:
        """Run each statement as a transaction of its own. Nothing is captured yet."""
        for statement in statements:
            self.capture.execute(statement)

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for this database, and `more`, with dots for its underscores."""
        login = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": self.server.password,
            "database.dbname": self.name,
            **{f"driver.{name}": value for name, value in DRIVER.items()},
        }
        return login | {name.replace("_", "."): value for name, value in more.items()}


def dsn(server: Derby, name: str) -> str:
    """Return the driver's connection string for a database."""
    named = {
        "DATABASE": name,
        "HOSTNAME": "127.0.0.1",
        "PORT": str(server.port),
        "PROTOCOL": "TCPIP",
        "UID": server.user,
        "PWD": server.password,
        **DRIVER,
    }
    return "".join(f"{key}={value};" for key, value in named.items())


@pytest.fixture(scope="session")
def derby_jars() -> list[Path]:
    """Return the jars that start a server. Skips, with the reason, if driver or jars are not available."""
    if importlib.util.find_spec("ibm_db") is None:
        pytest.skip("IBM's driver is not installed: pip install ibm_db")
    try:
        return derby.fetch()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def derby_server(derby_jars: list[Path]) -> Iterator[Derby]:
    """Return the server of this run."""
    with Derby(derby_jars) as server:
        yield server


@pytest.fixture
def make_db2(derby_server: Derby) -> Iterator[Callable[[], Db2Database]]:
    """Yield a factory of fresh databases, which are dropped after the test."""
    made: list[Db2Database] = []

    def make() -> Db2Database:
        # The driver capitalises a database's name and cuts it to eight characters.
        name = f"T{secrets.token_hex(3).upper()}"
        derby_server.make(name)
        capture = Capture(dsn(derby_server, name))
        capture.install()
        capture.session.rows("CREATE SCHEMA INVENTORY")
        made.append(Db2Database(derby_server, name, capture))
        return made[-1]

    yield make
    for database in made:
        database.capture.close()
        derby_server.drop(database.name)


@pytest.fixture
def db2(make_db2: Callable[[], Db2Database]) -> Db2Database:
    """Return a fresh database with control tables."""
    return make_db2()


@pytest.fixture
def db2_session(db2: Db2Database) -> Iterator[Session]:
    """Return a session of the test's own with the database of `db2`."""
    session = Session(dsn(db2.server, db2.name))
    yield session
    session.close()
