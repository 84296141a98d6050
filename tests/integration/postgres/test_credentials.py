"""Logins to PostgreSQL by passwords that change between any two of them."""

from __future__ import annotations

import pickle
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address, connect
from tailrace.connectors.postgres.setup.prerequisites import check
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed
from tests.fix_postgres import Database
from tests.fix_query import Query
from tests.waiting import until

# Gives a password that no login has had before, as a vault of dynamic secrets does; the one before it is void.
ROTATE = """
import secrets, sys
import psycopg
dsn, role, seen = sys.argv[1:]
password = secrets.token_hex(16) + " '\\\\&%"
with psycopg.connect(dsn) as connection:
    connection.execute(psycopg.sql.SQL("alter role {} password {}").format(psycopg.sql.Identifier(role), password))
with open(seen, "a") as file:
    print(password, file=file)
print(password)
"""
ROLE = "rotating"


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """Yield the name of a role whose password is `first`."""
    name = f"{ROLE}_{database.name}"[:60]
    database.execute(f"create role {name} login superuser replication password 'first'")
    yield name
    database.execute(f"drop owned by {name}", f"drop role {name}")


def login(role: str, command: str) -> dict[str, str]:
    return {"database.user": role, "database.password": "", "database.password.command": command}


def rotating(database: Database, role: str, folder: Path) -> str:
    program = folder / "rotate.py"
    program.write_text(ROTATE)
    return shlex.join([sys.executable, str(program), database.dsn, role, str(folder / "seen")])


def test_a_pipeline_whose_password_is_another_at_each_login(database: Database, role: str, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t select generate_series(1, 5)")
    query = Query(database, **login(role, rotating(database, role, tmp_path)), **{
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.t",
        "retriable.restart.connector.wait.ms": "50",
    })  # fmt: skip
    seen = tmp_path / "seen"

    def logins() -> list[str]:
        return seen.read_text().split("\n")[:-1]

    try:
        # the snapshot's tasks log in by themselves
        assert len(query.until(5)) == 5
        database.execute("insert into t values (6)")
        assert len(query.until(6)) == 6
        before = len(logins())
        # a lost session gets a password of its own
        database.execute(
            "select pg_terminate_backend(active_pid) from pg_replication_slots where active_pid is not null",
            "insert into t values (7)",
        )
        assert len(query.until(7)) == 7
        assert len(logins()) > before
        query.kill()
        database.execute("insert into t values (8)")
        assert len(query.until(8)) == 8
    finally:
        query.planner.close()
    assert len(set(logins())) == len(logins()) >= 8
    assert [change[2] for change in query.changes] == [(b"%d" % number,) for number in range(1, 9)]


def test_a_void_password_is_told_by_the_option_that_gave_it_and_its_successor_is_taken(
    database: Database, role: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    config = parse("postgres", database.options(topic_prefix="p") | login(role, f"cat {file}"))
    file.write_text("first")
    with closing(connect(config)) as connection:
        address = pickle.loads(pickle.dumps(Address.of(config, connection)))
    assert "first" not in f"{address!r} {address.uri} {config!r}"
    # the vault has a new password, which the file does not have yet
    database.execute(f"alter role {role} password 'second'")
    for session in (lambda: connect(config), lambda: connect(config, replication=True), lambda: check(config)):
        with pytest.raises(ConnectionFailed, match="refuses the password") as caught:
            session()
        assert "database.password.command" in caught.value.remedy
        assert "first" not in str(caught.value)
    with pytest.raises(Exception, match="password authentication failed") as refused:
        ArrowConnection(address)
    assert "first" not in str(refused.value)
    file.write_text("second")
    connect(config).close()
    ArrowConnection(address).close()
    assert not any(word in caplog.text for word in ("first", "second"))


def test_the_reader_waits_for_a_program_that_fails(database: Database, role: str, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)")
    file = tmp_path / "password"
    file.write_text("first")
    query = Query(database, **login(role, f"cat {file}"), **{
        "snapshot.mode": "no_data",
        "retriable.restart.connector.wait.ms": "50",
    })  # fmt: skip
    try:
        query.until(0)
        database.execute("insert into t values (1)")
        assert len(query.until(1)) == 1
        file.rename(tmp_path / "away")
        active = "from pg_replication_slots where active_pid is not null"
        database.execute(f"select pg_terminate_backend(active_pid) {active}")

        def is_out() -> bool:
            query.step()
            with database.connect() as connection:
                return connection.execute(f"select {active}").fetchone() is None

        until(is_out, "the reader's session has ended", 20)
        database.execute("insert into t values (2)")
        (tmp_path / "away").rename(file)
        assert len(query.until(2)) == 2
    finally:
        query.planner.close()
