"""PostgreSQL for tests: the embedded server, the system's own, or a real one named by --postgres."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.demo.embedded import THROWAWAY, Server
from tests import fix_invariant
from tests.servers.fresh_databases import FreshDatabases
from tests.waiting import until

SETTINGS = {**THROWAWAY, "autovacuum": "off", "jit": "off", "wal_init_zero": "off"}
"""Settings of a test server without background work, which writes as little as possible."""
_MOVES = re.compile(r"pg_\w*(?:replication_slot|logical_slot_get)\w*\(")
"""Matches a statement that creates, moves or drops a slot."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server for tests, with a superuser's login. `version` is the major version."""

    host: str
    port: int
    user: str
    password: str
    version: int
    extensions: frozenset[str]
    fresh: FreshDatabases | None = field(default=None, compare=False, repr=False)
    """The fresh databases of a server that belongs to the tests."""

    def dsn(self, database: str = "postgres") -> str:
        """Return a libpq connection string for `database`."""
        return f"host={self.host} port={self.port} user={self.user} password={self.password} dbname={database}"

    def connect(self, database: str = "postgres", autocommit: bool = True) -> psycopg.Connection[Any]:
        """Return a new connection to `database`, which the caller closes."""
        return psycopg.connect(self.dsn(database), autocommit=autocommit)

    @contextmanager
    def at_hand(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield a superuser's connection to no test's database: the one that makes fresh databases, if there is one."""
        if self.fresh is not None:
            yield self.fresh.connection
            return
        with self.connect() as connection:
            yield connection


@dataclass(frozen=True, slots=True)
class Database:
    """A fresh database of one test."""

    server: Postgres
    name: str

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def connect(self, autocommit: bool = True) -> psycopg.Connection[Any]:
        """Return a new connection, which the caller closes."""
        return self.server.connect(self.name, autocommit)

    def execute(self, *statements: str) -> None:
        """Run each statement as a transaction of its own.

        A statement that moves a slot waits for the end of the slot's session: the server notices a closed connection
        later than the planner that closed it.
        """
        with self.connect() as connection:
            for statement in statements:
                if not _MOVES.search(statement):
                    connection.execute(statement.encode())
                    continue
                with fix_invariant.moving(self.server.dsn()):
                    until(partial(_is_free, connection, statement), "a free replication slot")

    def flushed(self) -> FlushedLsn:
        """Return the end of the server's log on disk, which is after all commits, because they are synchronous."""
        with self.connect() as connection:
            row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
        assert row is not None
        return FlushedLsn(row[0])

    def keep_slot(self, slot: str) -> None:
        """Note the position of a slot for `set_slot_back`."""
        self.execute(f"select pg_copy_logical_replication_slot('{slot}', '{slot}_kept')")

    def set_slot_back(self, slot: str) -> None:
        """Move a slot back to the position that `keep_slot` has noted.

        A test that removes the last commit from a checkpoint needs it, because the query may have acknowledged that
        commit.
        """
        self.execute(
            f"select pg_drop_replication_slot('{slot}')",
            f"select pg_copy_logical_replication_slot('{slot}_kept', '{slot}')",
            f"select pg_drop_replication_slot('{slot}_kept')",
        )

    def options(self, **more: str) -> dict[str, str]:
        """Return the connector's options for this database, and `more`, with dots for its underscores."""
        server = self.server
        login = {
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.dbname": self.name,
        }
        return login | {name.replace("_", "."): value for name, value in more.items()}


def _is_free(connection: psycopg.Connection[Any], statement: str) -> bool:
    """Run a statement that moves a slot; return False if a session still uses the slot."""
    try:
        connection.execute(statement.encode())
    except psycopg.errors.ObjectInUse:
        return False
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres",
        metavar="DSN",
        default=os.environ.get("TAILRACE_TEST_POSTGRES"),
        help="a real PostgreSQL (superuser, wal_level=logical) instead of the embedded one",
    )


def describe(dsn: str) -> Postgres:
    """Return the running server behind `dsn`, with its version and extensions."""
    with psycopg.connect(dsn) as connection:
        info = connection.info
        rows = connection.execute("select name from pg_available_extensions").fetchall()
        return Postgres(
            info.host,
            info.port,
            info.user,
            info.password,
            info.server_version // 10000,
            frozenset(name for (name,) in rows),
        )


def system_binaries() -> Path | None:
    """Return the newest PostgreSQL that Debian's or Red Hat's packages have installed, or None."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found += [path.parent for path in Path("/usr").glob("pgsql-*/bin/initdb")]

    def version(path: Path) -> int:
        digits = re.findall(r"\d+", path.parent.name)
        return int(digits[0]) if digits else 0

    return max(found, key=version, default=None)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """Yield the server of this run, started once: --postgres, else the embedded one."""
    dsn = request.config.getoption("--postgres")
    if dsn:
        yield describe(str(dsn))
        return
    with Server(settings=SETTINGS) as server, owned(describe(server.dsn())) as found:
        yield found


@pytest.fixture(scope="session")
def system_postgres() -> Iterator[Postgres]:
    """Yield the system's own PostgreSQL, started privately. Skips if none is installed."""
    binaries = system_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed on this system")
    with Server(binaries, SETTINGS) as server, owned(describe(server.dsn())) as found:
        yield found


@contextmanager
def owned(server: Postgres) -> Iterator[Postgres]:
    """Prepare a server that only tests use: cheap logins, and reuse of fresh databases."""
    with server.connect() as connection:
        if server.version >= 16:
            # A password that nobody guesses does not need thousands of hashes for each login.
            connection.execute("set scram_iterations = 1")
            connection.execute(
                sql.SQL("alter role {} password {}").format(sql.Identifier(server.user), server.password)
            )
        yield replace(server, fresh=FreshDatabases(connection, server.dsn("")))


@pytest.fixture
def make_database(postgres: Postgres) -> Iterator[Callable[[], Database]]:
    """Yield a factory of fresh databases, which are dropped after the test with their slots."""
    made: list[Database] = []

    def make() -> Database:
        made.append(take(postgres, f"test_{secrets.token_hex(4)}"))
        return made[-1]

    yield make
    for database in made:
        give_back(database)


@pytest.fixture
def database(make_database: Callable[[], Database]) -> Database:
    """Return a fresh database, dropped after the test with its slots."""
    return make_database()


def take(server: Postgres, name: str) -> Database:
    """Return a fresh database of a new name, or a returned one if the server reuses them."""
    if server.fresh is None:
        return create(server, name)
    server.fresh.take(name)
    return Database(server, name)


def give_back(database: Database) -> None:
    """Return a database to the pool: drop its slots and end all its sessions."""
    server = database.server
    with server.at_hand() as connection:
        _release(connection, database.name)
        if server.fresh is None or not server.fresh.give_back(database.name):
            _drop(connection, database.name)


def create(server: Postgres, name: str) -> Database:
    """Create a fresh database in UTF-8, in place of one with the same name."""
    drop(server, name)
    with server.connect() as connection:
        if server.fresh is None:
            connection.execute(
                sql.SQL(
                    "create database {} template template0 encoding 'UTF8' lc_collate 'C.UTF-8' lc_ctype 'C.UTF-8'"
                ).format(sql.Identifier(name))
            )
        else:
            server.fresh.create(name)
    return Database(server, name)


def drop(server: Postgres, name: str) -> None:
    """Drop the database `name`, if it exists, after ending all its sessions and users of its slots."""
    with server.connect() as connection:
        _release(connection, name)
        _drop(connection, name)


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _release(connection: psycopg.Connection[Any], name: str) -> None:
    """End all sessions of the database `name`, and drop its slots."""
    # The server would look only every 100 ms whether the session has ended.
    users = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
    deadline = time.monotonic() + 10
    while connection.execute(users, [name]).fetchone() is not None and time.monotonic() < deadline:
        time.sleep(0.005)
    slots = connection.execute("select slot_name from pg_replication_slots where database = %s", [name]).fetchall()
    for (slot,) in slots:
        _drop_slot(connection, slot)


def _drop_slot(connection: psycopg.Connection[Any], slot: str) -> None:
    # A client may take its slot again between the end of its session and the drop, so end that session as well.
    for _ in range(20):
        try:
            connection.execute("select pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            connection.execute(
                "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = %s", [slot]
            )
        except psycopg.errors.UndefinedObject:
            return
        else:
            return
    raise RuntimeError(f"the slot {slot} stays in use")
