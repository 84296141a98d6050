"""Connections to Db2 use a simulated driver, and avoid what the real one does not support."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tailrace.connectors.changetables.dialect import FIRST_FETCH
from tailrace.connectors.db2.server import connection
from tailrace.connectors.db2.server.connection import FETCH, Connection, RightLacking
from tailrace.errors import ConnectionFailed, PrerequisiteError, StatementCutOff, TailraceError

CONFIG = {
    "database.hostname": "h", "database.port": 1, "database.user": "u", "database.password": "s3cret",
    "database.dbname": "D", "database.query.timeout.ms": 0, "connection.validation.timeout.ms": 1000,
}  # fmt: skip


class Driver:
    """A driver that records which statements are freed, and when the connection is closed."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fails = False

    def connect(self, *_: str) -> object:
        return object()

    def prepare(self, handle: object, statement: str, options: dict[Any, Any]) -> Statement:
        return Statement(statement)

    def execute(self, prepared: Statement, *_: Any) -> None:
        if self.fails:
            raise RuntimeError("[IBM][CLI Driver] SQL30081N  A communication error. SQLSTATE=08001 SQLCODE=-30081")

    def num_fields(self, prepared: Statement) -> int:
        return 1

    def fetchmany(self, prepared: Statement, count: int) -> list[tuple[int]]:
        return [(1,)] * count

    def free_stmt(self, prepared: Statement) -> None:
        self.done.append(prepared.text)

    def close(self, handle: object) -> None:
        self.done.append("close")


class Statement:
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    played = Driver()
    monkeypatch.setattr(connection, "driver", lambda: played)
    monkeypatch.setattr(connection, "driver_properties", lambda config: {})
    return played


def test_statements_that_are_still_fetched_go_before_their_connection_and_once(driver: Driver) -> None:
    one = Connection(CONFIG)
    first, second = one.fetches("first"), one.fetches("second")
    assert len(next(first)) == len(next(second)) == FETCH
    one.close()
    assert sorted(driver.done[:2]) == ["first", "second"]
    first.close()
    second.close()
    one.close()
    assert driver.done[2:] == ["close"]


def test_a_statement_that_fails_is_freed_once_and_before_its_connection(driver: Driver) -> None:
    one = Connection(CONFIG)
    driver.fails = True
    with pytest.raises(TailraceError):
        one.rows("first")
    one.close()
    assert driver.done == ["first", "close"]


def test_rows_that_may_be_large_are_fetched_by_bytes(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 rows of a megabyte would exceed one column of an array."""
    left, asked = [b"x" * 20_000_000] * 20 + [b"y"] * 6000, []

    def fetchmany(prepared: Statement, count: int) -> list[tuple[int, bytes]]:
        asked.append(count)
        found = [(1, value) for value in left[:count]]
        del left[:count]
        return found

    monkeypatch.setattr(driver, "fetchmany", fetchmany)
    sizes = [len(fetch) for fetch in Connection(CONFIG).fetches("first", large=True)]
    assert sum(sizes) == 6020
    # Some 64 MB first, then more, up to all rows.
    assert asked[:4] == [FIRST_FETCH, 3, 3, 10]
    assert max(asked) == FETCH


def fails(text: str) -> Any:
    def failing(*_: Any) -> Any:
        raise RuntimeError(text)

    return failing


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("SQL0911N  Deadlock. SQLSTATE=40001 SQLCODE=-911", ConnectionFailed, "waited too long for a lock"),
        ("SQL0952N  Interrupt. SQLSTATE=57014 SQLCODE=-952", StatementCutOff, "was cancelled (SQLSTATE 57014)"),
        ("SQL30081N  Lost. SQLSTATE=08001 SQLCODE=-30081", ConnectionFailed, "The session with Db2 failed: SQL30081N"),
        ("CLI0106E  Connection is closed.", ConnectionFailed, "The session with Db2 failed: CLI0106E"),
        ('SQL0551N  "U" lacks SELECT. SQLSTATE=42501 SQLCODE=-551', RightLacking, "refuses a statement: SQL0551N"),
        ("SQL0204N  A.T is undefined. SQLSTATE=42704 SQLCODE=-204", PrerequisiteError, "A.T is undefined"),
        ("SQL0420N  hidden value. SQLSTATE=22018 SQLCODE=-420", TailraceError, "(SQLSTATE 22018, SQLCODE -420)"),
    ],
)
def test_a_failed_statement_is_an_error_of_its_kind(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[TailraceError], said: str
) -> None:
    one = Connection(CONFIG)
    monkeypatch.setattr(driver, "fetchmany", fails(f"[IBM][CLI Driver][DB2/LINUXX8664] {text}"))
    with pytest.raises(TailraceError) as caught:
        one.rows("first")
    assert type(caught.value) is kind
    assert said in caught.value.message
    assert "hidden value" not in str(caught.value)
    assert driver.done == ["first"]


def test_a_message_never_holds_the_password(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "connect", fails("[IBM][CLI Driver] SQL9999N  PWD=s3cret is odd. SQLCODE=-9999"))
    with pytest.raises(ConnectionFailed, match="No connection to h:1: SQL9999N") as caught:
        Connection(CONFIG)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SQL1336N  The remote host was not found. SQLSTATE=08001 SQLCODE=-1336", "The host of h:1 is not known."),
        ("SQL30081N  A communication error. SQLSTATE=08001 SQLCODE=-30081", "Nothing answers as Db2 at h:1."),
        ('SQL20576N  The handshake failed, reason "1". SQLCODE=-20576', "certificate is for another name"),
    ],
)
def test_a_failed_login_says_what_to_look_at(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(driver, "connect", fails(f"[IBM][CLI Driver] {text}"))
    with pytest.raises(TailraceError) as caught:
        Connection(CONFIG)
    assert said in caught.value.message
    assert caught.value.remedy


class Transactional(Driver):
    """A driver that also notes what becomes of transactions."""

    SQL_AUTOCOMMIT_OFF, SQL_AUTOCOMMIT_ON, SQL_ATTR_QUERY_TIMEOUT = "off", "on", "timeout"

    def fetchmany(self, prepared: Statement, count: int) -> list[tuple[int]]:
        return []

    def autocommit(self, handle: object, mode: str) -> None:
        self.done.append(mode)

    def commit(self, handle: object) -> None:
        self.done.append("commit")

    def rollback(self, handle: object) -> None:
        if self.fails:
            raise RuntimeError("SQL30081N SQLSTATE=08001 SQLCODE=-30081")
        self.done.append("rollback")

    def server_info(self, handle: object) -> Any:
        return type("Info", (), {"DBMS_NAME": "DB2/LINUXX8664", "DBMS_VER": "11.05.0900"})()


@pytest.fixture
def transactional(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Transactional:
    played = Transactional()
    monkeypatch.setattr(connection, "driver", lambda: played)
    return played


def test_a_transaction_ends_with_every_statement_committed_at_once_again(transactional: Transactional) -> None:
    one = Connection(CONFIG)
    one.begin()
    one.execute("update")
    one.commit()
    one.begin()
    one.rollback()
    assert transactional.done == ["off", "update", "commit", "on", "off", "rollback", "on"]


def test_a_transaction_that_cannot_be_rolled_back_closes_the_session(transactional: Transactional) -> None:
    one = Connection(CONFIG)
    one.begin()
    transactional.fails = True
    one.rollback()
    assert transactional.done == ["off", "close"]
    for use in (lambda: one.rows("first"), one.begin):
        with pytest.raises(ConnectionFailed, match="The connection to Db2 is closed"):
            use()


def test_the_server_tells_its_product_and_version(transactional: Transactional) -> None:
    assert Connection(CONFIG).server == ("DB2/LINUXX8664", "11.05.0900")


def test_limited_statements_have_the_timeout_of_queries_in_whole_seconds(
    transactional: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[Any, Any]] = []
    made = transactional.prepare
    monkeypatch.setattr(
        transactional, "prepare", lambda handle, text, options: (given.append(options), made(handle, text, options))[1]
    )
    one = Connection(CONFIG | {"database.query.timeout.ms": 1500})
    one.execute("update", 1)
    assert list(one.fetches("all rows")) == []
    assert given == [{"timeout": 2}, {}]


def test_a_password_that_the_connection_string_cannot_carry_is_refused(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing:
        option, is_fixed = "database.password.command", False

        def password(self) -> str:
            return "a;PWD=b"

    monkeypatch.setattr(connection.Credential, "of", lambda config: Changing())
    with pytest.raises(ConnectionFailed, match=r"database\.password\.command holds a semicolon or a brace") as caught:
        Connection(CONFIG)
    assert "PWD=b" not in str(caught.value)


def test_faults_while_closing_are_of_no_matter(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Connection(CONFIG)
    held = one.fetches("first")
    next(held)
    monkeypatch.setattr(driver, "free_stmt", fails("lost"))
    monkeypatch.setattr(driver, "close", fails("lost"))
    one.close()
    held.close()
    with pytest.raises(ConnectionFailed, match="is closed"):
        one.rows("second")


def test_tls_checks_the_servers_name_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"driver.Security": "SSL"}
    monkeypatch.setattr(
        connection, "driver_properties", lambda config: {name.removeprefix("driver."): given[name] for name in given}
    )
    assert "SSLClientHostnameValidation=Basic;" in connection.connection_string(CONFIG, "p")
    given["driver.SSLClientHostnameValidation"] = "Off"
    text = connection.connection_string(CONFIG, "p")
    assert "SSLClientHostnameValidation=Off;" in text
    assert text.startswith("DATABASE=D;HOSTNAME=h;PORT=1;PROTOCOL=TCPIP;UID=u;PWD=p;ConnectTimeout=1;")


def test_without_the_driver_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibm_db", None)
    with pytest.raises(PrerequisiteError, match="IBM's driver for Db2 cannot be loaded") as caught:
        connection.driver()
    assert "[db2]" in caught.value.remedy
