"""PostgreSQL under TLS: every kind of session checks the certificate, and reports its faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import quote, urlencode

import pytest

from tailrace.config import Config
from tailrace.config.credentials import Credential
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.connection import Address, connect, parameters
from tailrace.connectors.postgres.setup.prerequisites import check
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed
from tests.fix_capture import Capture
from tests.fix_postgres import Database, Postgres
from tests.integration.tls.conftest import Files
from tests.servers.certificates import WORD
from tests.servers.terminator import Terminator

SECRET = "hunter2"


def address(given: Config) -> Address:
    """Return libpq's address that a worker gets."""
    named = parameters(given)
    database = quote(named.pop("dbname"), safe="")
    return Address(f"postgresql:///{database}?{urlencode(named, quote_via=quote)}", (), Credential.of(given))


SESSIONS: dict[str, Callable[[Config], object]] = {
    "check": check,
    "control": lambda given: connect(given).close(),
    "log": lambda given: connect(given, replication=True).close(),
    "arrow": lambda given: ArrowConnection(address(given)).close(),
}
"""The kinds of sessions: of the check before the start, of the planner, and of the Arrow queries of planner and
workers."""


@pytest.fixture(scope="module")
def server(postgres: Postgres) -> Database:
    """Return the database that every server has, which suffices for a login."""
    return Database(postgres, "postgres")


@pytest.fixture
def secured(postgres: Postgres, files: Files) -> Iterator[Terminator]:
    """Yield the server of this run with TLS; it accepts no unencrypted session."""
    if postgres.host.startswith("/"):
        pytest.skip("the server is reached by a socket of the file system")
    with Terminator((postgres.host, postgres.port), files.server) as terminator:
        yield terminator


def behind(database: Database, port: int, host: str = "localhost") -> Database:
    return replace(database, server=replace(database.server, host=host, port=port))


def config(database: Database, **options: str) -> Config:
    return parse("postgres", database.options(topic_prefix="p", **options))


@pytest.mark.parametrize("session", SESSIONS)
def test_a_certificate_of_a_known_authority_is_taken(
    session: str, server: Database, secured: Terminator, files: Files
) -> None:
    verified = {"database_sslmode": "verify-full", "database_sslrootcert": str(files.authority)}
    SESSIONS[session](config(behind(server, secured.port), **verified))
    assert secured.seen > 0


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize(
    ("host", "mode", "trusted", "message", "remedy"),
    [
        ("127.0.0.1", "verify-full", "authority", "for another name", "database.hostname"),
        ("localhost", "verify-full", "stranger", "no authority of database.sslrootcert", "database.sslrootcert"),
        ("localhost", "verify-ca", "stranger", "no authority of database.sslrootcert", "database.sslrootcert"),
        ("localhost", "verify-full", "", "no file of authorities", "database.sslrootcert"),
        ("in the clear", "verify-full", "authority", "does not offer TLS", "database.sslmode"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told_by_every_session(
    session: str,
    host: str,
    mode: str,
    trusted: str,
    message: str,
    remedy: str,
    server: Database,
    secured: Terminator,
    files: Files,
) -> None:
    place = behind(server, secured.port, host) if host != "in the clear" else server
    named = str(getattr(files, trusted)) if trusted else str(files.authority.with_name("absent.pem"))
    options = {"database_sslmode": mode, "database_sslrootcert": named, "database_password": SECRET}
    with pytest.raises(ConnectionFailed) as caught:
        SESSIONS[session](config(place, **options))
    assert message in caught.value.message
    assert f"{place.server.host}:{place.server.port}" in caught.value.message
    assert remedy in caught.value.remedy
    assert SECRET not in str(caught.value)
    assert secured.seen == 0


def test_a_name_counts_under_verify_full_alone(server: Database, secured: Terminator, files: Files) -> None:
    options = {"database_sslmode": "verify-ca", "database_sslrootcert": str(files.authority)}
    connect(config(behind(server, secured.port, "127.0.0.1"), **options)).close()


def test_a_client_shows_its_certificate_with_a_key_under_a_password(
    server: Database, postgres: Postgres, files: Files
) -> None:
    trusted = {"database_sslmode": "verify-full", "database_sslrootcert": str(files.authority)}
    shown = trusted | {"database_sslcert": str(files.own), "database_sslkey": str(files.key)}
    with Terminator((postgres.host, postgres.port), files.server, files.authority) as asking:
        place = behind(server, asking.port)
        for session in SESSIONS.values():
            session(config(place, **shown, database_sslpassword=WORD))
            for wrong in (trusted, shown | {"database_sslpassword": SECRET}):
                with pytest.raises(ConnectionFailed) as caught:
                    session(config(place, **wrong))
                assert caught.value.remedy
                assert SECRET not in str(caught.value)


def test_a_stream_runs_under_tls_alone(database: Database, secured: Terminator, files: Files) -> None:
    """Snapshot, tasks and log use TLS, because an unencrypted session would be refused."""
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    verified = {"database.sslmode": "verify-full", "database.sslrootcert": str(files.authority)}
    query = Capture(behind(database, secured.port), **verified, **{"snapshot.mode": "initial"})
    try:
        assert [event.payload["after"]["id"] for event in query.take(1)] == [1]
        database.execute("insert into t values (2)")
        assert [event.payload["after"]["id"] for event in query.take(1)] == [2]
    finally:
        query.planner.close()
