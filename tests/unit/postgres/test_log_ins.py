"""Errors of failed logins, by the texts of servers, of libpq and of poolers."""

from __future__ import annotations

import psycopg
import pytest

from tailrace.connectors.postgres.server.connection import explain
from tailrace.connectors.registry import parse
from tailrace.errors import ConnectionFailed, PrerequisiteError, TailraceError

CONFIG = parse(
    "postgres",
    {
        "topic.prefix": "p",
        "database.hostname": "db",
        "database.port": "6432",
        "database.user": "cdc",
        "database.password": "hunter2",
        "database.dbname": "shop",
    },
)


@pytest.mark.parametrize(
    "words",
    [
        # PgBouncer's refusals: of a start-up parameter, of a replication connection, of either in older versions
        'connection failed: FATAL:  unsupported startup parameter: "options"',
        "connection failed: FATAL:  unsupported startup parameter in options: datestyle",
        "connection failed: FATAL:  unsupported startup parameter: replication",
        "FATAL:  replication connections are not supported",
        "ERROR:  replication connection is not supported",
    ],
)
def test_a_pooler_is_named(words: str) -> None:
    error = explain(psycopg.OperationalError(words), CONFIG)
    assert isinstance(error, PrerequisiteError)
    assert error.message == "At db:6432 a connection pooler answers, which has no replication connections."
    assert "database.hostname" in error.remedy


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ("FATAL:  sorry, too many clients already", ConnectionFailed, "no connection left"),
        ("FATAL:  number of requested standby connections exceeds max_wal_senders", PrerequisiteError, "no WAL sender"),
        ("FATAL:  the database system is starting up", ConnectionFailed, "not ready"),
        ("FATAL:  permission denied to start WAL sender", PrerequisiteError, "may not read the log"),
        ("the password hunter2 is odd", ConnectionFailed, "the password *** is odd"),
    ],
)
def test_other_words_are_understood(words: str, kind: type[TailraceError], said: str) -> None:
    error = explain(psycopg.OperationalError(words), CONFIG)
    assert isinstance(error, kind)
    assert said in error.message
