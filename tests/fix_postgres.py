"""PostgreSQL for tests: the embedded server, the system's own, or a real one named by --postgres."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tailrace.connectors.postgres.protocol.position import FlushedLsn
from tailrace.demo.embedded import THROWAWAY, Server
from tests import fix_invariant
from tests.servers.fresh_databases import FreshDatabases

SETTINGS = {**THROWAWAY, "autovacuum": "off", "jit": "off", "wal_init_zero": "off"}
"""For a server of tests: it does nothing that it is not asked for, and writes no more than it must."""
_MOVES = re.compile(r"pg_\w*replication_slot\w*\(")
"""A statement that makes, moves or drops a slot."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server for tests and how to log in as a superuser. `version` is the major version."""

    host: str
    port: int
    user: str
    password: str
    version: int
    extensions: frozenset[str]
    fresh: FreshDatabases | None = field(default=None, compare=False, repr=False)
    """Its fresh databases, where the server is the tests' own."""

    def dsn(self, database: str = "postgres") -> str:
        """A libpq connection string for `database`."""
        return f"host={self.host} port={self.port} user={self.user} password={self.password} dbname={database}"

    def connect(self, database: str = "postgres", autocommit: bool = True) -> psycopg.Connection[Any]:
        """A new connection to `database`; the caller closes it."""
        return psycopg.connect(self.dsn(database), autocommit=autocommit)


@dataclass(frozen=True, slots=True)
class Database:
    """A fresh database of one test."""

    server: Postgres
    name: str

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def connect(self, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A new connection; the caller closes it."""
        return self.server.connect(self.name, autocommit)

    def execute(self, *statements: str) -> None:
        """Run each statement as a transaction of its own."""
        with self.connect() as connection:
            for statement in statements:
                with fix_invariant.moving(self.server.dsn()) if _MOVES.search(statement) else nullcontext():
                    connection.execute(statement.encode())

    def flushed(self) -> FlushedLsn:
        """The end of the server's log on disk: commits are synchronous, so all that were made are ahead of it."""
        with self.connect() as connection:
            row = connection.execute("select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8").fetchone()
        assert row is not None
        return FlushedLsn(row[0])

    def keep_slot(self, slot: str) -> None:
        """Note where a slot stands, for `set_slot_back`."""
        self.execute(f"select pg_copy_logical_replication_slot('{slot}', '{slot}_kept')")

    def set_slot_back(self, slot: str) -> None:
        """Put a slot where it stood when it was kept.

        A test that takes the last commit from a checkpoint needs it: the query may have asked for what follows it.
        """
        self.execute(
            f"select pg_drop_replication_slot('{slot}')",
            f"select pg_copy_logical_replication_slot('{slot}_kept', '{slot}')",
            f"select pg_drop_replication_slot('{slot}_kept')",
        )

    def options(self, **more: str) -> dict[str, str]:
        """The connector's options that name this database, and `more`, its underscores written as dots."""
        server = self.server
        login = {
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.dbname": self.name,
        }
        return login | {name.replace("_", "."): value for name, value in more.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres",
        metavar="DSN",
        default=os.environ.get("TAILRACE_TEST_POSTGRES"),
        help="a real PostgreSQL (superuser, wal_level=logical) instead of the embedded one",
    )


def describe(dsn: str) -> Postgres:
    """The running server behind `dsn`, asked for its version and extensions."""
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
    """The newest PostgreSQL that the system has installed in Debian's or Red Hat's way, or None."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found += [path.parent for path in Path("/usr").glob("pgsql-*/bin/initdb")]

    def version(path: Path) -> int:
        digits = re.findall(r"\d+", path.parent.name)
        return int(digits[0]) if digits else 0

    return max(found, key=version, default=None)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """The server of this run, started once: --postgres, else the embedded one."""
    dsn = request.config.getoption("--postgres")
    if dsn:
        yield describe(str(dsn))
        return
    with Server(settings=SETTINGS) as server, owned(describe(server.dsn())) as found:
        yield found


@pytest.fixture(scope="session")
def system_postgres() -> Iterator[Postgres]:
    """The system's own PostgreSQL, started privately; skips where none is installed."""
    binaries = system_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL is installed on this system")
    with Server(binaries, SETTINGS) as server, owned(describe(server.dsn())) as found:
        yield found


@contextmanager
def owned(server: Postgres) -> Iterator[Postgres]:
    """Prepare a server that only tests use: logins cost little, and fresh databases are used again."""
    with server.connect() as connection:
        if server.version >= 16:
            # a password that nobody guesses needs no thousands of hashes for each login
            connection.execute("set scram_iterations = 1")
            connection.execute(
                sql.SQL("alter role {} password {}").format(sql.Identifier(server.user), server.password)
            )
        yield replace(server, fresh=FreshDatabases(connection, server.dsn("")))


@pytest.fixture
def make_database(postgres: Postgres) -> Iterator[Callable[[], Database]]:
    """Makes fresh databases; all of them go, with their slots, after the test."""
    made: list[Database] = []

    def make() -> Database:
        made.append(take(postgres, f"test_{secrets.token_hex(4)}"))
        return made[-1]

    yield make
    for database in made:
        give_back(database)


@pytest.fixture
def database(make_database: Callable[[], Database]) -> Database:
    """One fresh database, dropped with its slots after the test."""
    return make_database()


def take(server: Postgres, name: str) -> Database:
    """A fresh database of a new name: one that was given back, where the server uses them again."""
    if server.fresh is None:
        return create(server, name)
    server.fresh.take(name)
    return Database(server, name)


def give_back(database: Database) -> None:
    """Let a database that was taken go, with its slots, and end whoever still uses it."""
    server = database.server
    with server.connect() as connection:
        _release(connection, database.name)
        if server.fresh is None or not server.fresh.give_back(database.name):
            _drop(connection, database.name)


def create(server: Postgres, name: str) -> Database:
    """A fresh database in UTF-8; replaces one of the same name."""
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
    """Drop the database `name`, if it exists, and end whoever still uses it or its slots."""
    with server.connect() as connection:
        _release(connection, name)
        _drop(connection, name)


def _drop(connection: psycopg.Connection[Any], name: str) -> None:
    connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _release(connection: psycopg.Connection[Any], name: str) -> None:
    """End whoever uses the database `name`, and drop its slots."""
    # The server would look only every 100 ms whether who is to end has ended.
    users = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
    deadline = time.monotonic() + 10
    while connection.execute(users, [name]).fetchone() is not None and time.monotonic() < deadline:
        time.sleep(0.005)
    slots = connection.execute("select slot_name from pg_replication_slots where database = %s", [name]).fetchall()
    for (slot,) in slots:
        _drop_slot(connection, slot)


def _drop_slot(connection: psycopg.Connection[Any], slot: str) -> None:
    # A client may take its slot again between the end of its session and the drop: end that one as well.
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
