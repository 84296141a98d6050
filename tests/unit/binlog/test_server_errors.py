"""Errors of the server, by their numbers, as the errors of a pipeline."""

from __future__ import annotations

import pymysql
import pytest

from tailrace.connectors.binlog.dialect import MARIADB, MYSQL, Dialect
from tailrace.connectors.binlog.server.errors import explain, explained, lasting, refused, text_of
from tailrace.connectors.registry import parse
from tailrace.errors import (
    ConfigError,
    ConnectionFailed,
    PositionLost,
    PrerequisiteError,
    StatementCutOff,
    TailraceError,
)

CONFIG = parse("mysql", {"database.hostname": "db", "database.user": "u", "topic.prefix": "t"})


def error(number: int, text: str = "") -> Exception:
    return pymysql.err.OperationalError(number, text)


@pytest.mark.parametrize(
    ("given", "kind", "message", "remedy"),
    [
        (error(1040), ConnectionFailed, "db:3306 has no connection left.", "Raise max_connections"),
        (error(1045, "Access denied"), ConnectionFailed, "db:3306 refuses user or password of u", "database.password"),
        (error(1044), PrerequisiteError, "The user u may not use a database", "tailrace check"),
        (error(3118), PrerequisiteError, "The user u is locked.", "ACCOUNT UNLOCK"),
        (error(3159), ConnectionFailed, "db:3306 takes connections with TLS alone.", "ssl.mode to required."),
        (error(2003, "[Errno -2] Name or service not known"), ConnectionFailed, "The host db is not known", "host"),
        (error(2003, "[Errno 111] Connection refused"), ConnectionFailed, "Nothing listens at db:3306.", "listens on"),
        (error(2003, "timed out"), ConnectionFailed, "db:3306 does not answer in time.", "connect.timeout.ms"),
        (error(2003, "SSL: CERTIFICATE_VERIFY_FAILED certificate verify failed: Hostname mismatch"), ConnectionFailed,
         "made out to another name", "let database.ssl.mode be verify_ca"),
        (error(2003, "certificate verify failed: self-signed certificate"), ConnectionFailed,
         "no authority of database.ssl.truststore", "the server's authority"),
        (error(2026, "SSL connection error: server doesn't support SSL"), ConnectionFailed, "does not offer TLS", ""),
        (error(2026, "[SSL: WRONG_VERSION_NUMBER]"), ConnectionFailed, "TLS with db:3306 fails.", "5.7.28"),
        (error(9999, "hunter2 is\n wrong"), ConnectionFailed, "No connection to db:3306: ", "Check the database.*"),
    ],
)  # fmt: skip
def test_a_failed_login_says_what_to_look_at(
    given: Exception, kind: type[TailraceError], message: str, remedy: str
) -> None:
    found = explain(given, CONFIG, MYSQL.tls_modes, "hunter2")
    assert type(found) is kind
    assert message in found.message
    assert remedy in (found.remedy or "")
    assert "hunter2" not in str(found)


def test_modes_of_tls_are_named_in_the_words_of_the_dialect() -> None:
    found = explain(error(3159), CONFIG, MARIADB.tls_modes)
    assert found.remedy == "Set database.ssl.mode to trust."


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (error(2013, "Lost connection"), ConnectionFailed, "The session with the server failed: error 2013."),
        (error(1053), ConnectionFailed, "The session with the server failed: error 1053."),
        (OSError(32, "Broken pipe"), ConnectionFailed, "The session with the server failed: BrokenPipeError."),
        (EOFError(), ConnectionFailed, "The session with the server failed: EOFError."),
        (error(3024), StatementCutOff, "A statement was cancelled (error 3024)."),
        (error(1969), StatementCutOff, "A statement was cancelled (error 1969)."),
        (error(1205), ConnectionFailed, "A statement has waited for locks for too long (error 1205)."),
        (error(1142, "SELECT command denied to user\n'u'."), PrerequisiteError,
         "The server refuses a statement: SELECT command denied to user 'u'."),
        (error(1146, "Table 'd.t' doesn't exist"), PrerequisiteError,
         "The server refuses a statement: Table 'd.t' doesn't exist."),
        # its message may have a value
        (error(1366, "Incorrect integer value: 'private'"), TailraceError, "A statement failed: error 1366 of"),
        (error(1236, "Could not find first log file name in binary log index file"), PositionLost, "was purged"),
        (error(1236, "log event entry exceeded max_allowed_packet"), PrerequisiteError, "larger than the server sends"),
        (error(1236, "Client requested master to start replication from impossible position"), PositionLost,
         "lies behind what the server's log has"),
        (error(1236, "A slave with the same server_uuid/server_id as this slave has connected"), ConfigError,
         "takes the log away"),
        (error(1236, "Replication cannot start in AUTO_POSITION mode: gtid_mode is OFF"), PrerequisiteError,
         "by the ids of transactions"),
        (error(1236, "bogus data in log event"), PositionLost, "an event in it is damaged"),
        (error(1236, "Binary log is not open"), PrerequisiteError, "The server writes no binary log."),
        (error(1236, "Something else."), PrerequisiteError, "The server does not send its log: Something else."),
    ],
)  # fmt: skip
def test_a_refused_statement_is_an_error_of_its_kind(given: Exception, kind: type[TailraceError], message: str) -> None:
    def fail() -> None:
        raise given

    with pytest.raises(TailraceError) as caught:
        explained(fail)()
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert "private" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "is_lasting"),
    [
        (error(2013), False),
        (error(1317), False),
        (error(3024), True),
        (error(1236, "purged"), True),
        (error(1142), True),
        (ConnectionFailed("a", "b"), False),
        (PositionLost("a", "b"), True),
    ],
)
def test_only_an_error_that_a_new_session_would_have_again_ends_the_reading(given: Exception, is_lasting: bool) -> None:
    assert (lasting(given) is not None) == is_lasting


def test_an_error_without_a_number_is_a_lost_session() -> None:
    assert text_of(pymysql.err.Error()) == ""
    assert refused(pymysql.err.Error()).message == "The session with the server failed: Error."


@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_every_failure_of_a_login_has_a_message_and_a_remedy(dialect: Dialect) -> None:
    numbers = (1040, 1044, 1045, 1129, 1130, 1203, 1226, 1251, 1698, 1820, 1862, 2059, 3118, 3159, 4151)
    for number in numbers:
        found = explain(error(number), CONFIG, dialect.tls_modes)
        assert found.message
        assert found.remedy
        assert "{" not in str(found)
