"""Prepared transactions, which have no process: also one whose commit waits for a standby is known by its locks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tailrace.connectors.postgres.log.identity import waiting
from tailrace.connectors.postgres.row_lookup import PostgresPresent
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.server.connection import connect
from tailrace.connectors.registry import parse
from tailrace.demo.embedded import Server
from tailrace.events.event_settings import EventSettings
from tests import fix_postgres
from tests.fix_postgres import SETTINGS, Database, describe, owned
from tests.waiting import until

WAITS = "select from pg_stat_activity where wait_event = 'SyncRep'"


@pytest.fixture
def apart() -> Iterator[Database]:
    """A database of a server of its own, which takes prepared transactions."""
    settings = {**SETTINGS, "max_prepared_transactions": "2"}
    with Server(settings=settings) as server, owned(describe(server.dsn())) as found:
        database = fix_postgres.take(found, "prepared")
        yield database
        fix_postgres.give_back(database)


def commit(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("set synchronous_commit = on")
        connection.execute("commit prepared 'it''s'")


@pytest.mark.parametrize("privileged", [True, False])
def test_a_prepared_transaction_that_waits_for_a_standby_is_known(apart: Database, privileged: bool) -> None:
    """The log has its commit, but no session shows its rows and columns yet."""
    apart.execute(
        "create table t (id int primary key)",
        "create role reader login replication password 'reader'",
        "grant select on t to reader",
    )
    login = {} if privileged else {"database_user": "reader", "database_password": "reader"}
    config = parse("postgres", apart.options(topic_prefix="p", **login))
    with apart.connect() as control, ThreadPoolExecutor(1) as pool:
        for statement in (
            "begin", "alter table t add c int", "insert into t values (1, 2)", "prepare transaction 'it''s'"
        ):  # fmt: skip
            control.execute(statement.encode())
        xid = value(control, "select transaction::text::int8 from pg_prepared_xacts")
        oid = value(control, "select 't'::regclass::oid::int8")
        try:
            control.execute("alter system set synchronous_standby_names = 'nobody'")
            control.execute("select pg_reload_conf()")
            until(lambda: value(control, "show synchronous_standby_names") == "nobody", "the setting")
            committed = pool.submit(commit, apart)
            until(lambda: committed.done() or control.execute(WAITS).fetchone() is not None, "the commit")
            assert not committed.done()
            with closing(connect(config)) as session:
                assert xid in waiting(session)
                assert Catalog(session, apart.name).alters(oid, xid)
                present = PostgresPresent(config, EventSettings.from_options(config), session)
                assert present._writers(oid)
        finally:
            control.execute("alter system reset synchronous_standby_names")
            control.execute("select pg_reload_conf()")
        committed.result()


def value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
