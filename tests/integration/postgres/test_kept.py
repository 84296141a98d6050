"""Connections that tasks keep for the next task."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import adbc_driver_manager
import pytest

from tailrace.connectors.postgres.server import arrow
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.server.arrow import KeptConnection
from tailrace.connectors.postgres.server.connection import Address
from tailrace.connectors.registry import parse
from tests.fix_postgres import Database


@pytest.fixture
def address(database: Database) -> Iterator[Address]:
    config = parse("postgres", database.options(**{"topic.prefix": "s"}))
    with connections.connect(config) as control:
        yield Address.of(config, control)
    kept, KeptConnection._kept = KeptConnection._kept, None
    if kept is not None:
        kept._end()


def backend(connection: KeptConnection) -> int:
    (batch,) = connection.query("select pg_backend_pid()")
    return int(batch.column(0)[0].as_py())


def test_the_next_task_has_the_same_session_without_the_transaction(address: Address) -> None:
    first = KeptConnection.take(address)
    found = backend(first)
    first.execute("begin; create temporary table t ()")
    first.close()
    second = KeptConnection.take(address)
    assert backend(second) == found
    second.execute("create temporary table t ()")
    # no other connection is kept while this one is in use
    third = KeptConnection.take(address)
    assert backend(third) != found
    third.close()
    second.close()
    assert KeptConnection._kept is third


def test_one_that_has_ended_meanwhile_is_replaced_where_it_begins(address: Address, database: Database) -> None:
    first = KeptConnection.take(address)
    found = backend(first)
    first.close()
    database.execute(f"select pg_terminate_backend({found}, 10000)")
    second = KeptConnection.take(address)
    second.begin("begin; create temporary table t ()")
    assert backend(second) != found
    second.execute("drop table t")
    second.close()


def test_a_statement_that_is_refused_does_not_make_a_connection_anew(address: Address) -> None:
    first = KeptConnection.take(address)
    found = backend(first)
    first.close()
    second = KeptConnection.take(address)
    with pytest.raises(adbc_driver_manager.Error, match="no_such_table"):
        second.begin("begin; lock table no_such_table")
    assert backend(second) == found
    second.close()


def test_one_without_use_is_given_up(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: waits.append(timer.interval))
    monkeypatch.setattr(KeptConnection, "_timer", None)
    first = KeptConnection.take(address)
    first.close()
    KeptConnection.take(address).close()
    # one timer, however often the connection was used
    assert waits == [arrow.KEPT_SECONDS]
    KeptConnection._expire()
    # it was used a moment ago: the timer waits for the rest of its time
    assert KeptConnection._kept is first
    assert len(waits) == 2
    assert 0 < waits[1] < arrow.KEPT_SECONDS
    monkeypatch.setattr(arrow, "KEPT_SECONDS", 0.0)
    KeptConnection._expire()
    assert KeptConnection._kept is None
    assert len(waits) == 2
