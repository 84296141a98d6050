"""Connections to Db2 use a simulated driver, and avoid what the real one does not support."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors.changetables.dialect import FIRST_FETCH
from tailrace.connectors.db2.server import connection
from tailrace.connectors.db2.server.connection import FETCH, Connection
from tailrace.errors import TailraceError

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
