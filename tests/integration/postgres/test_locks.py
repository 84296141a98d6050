"""A server that has room for few locks: the locks of a start, and the error if they are too many."""

from __future__ import annotations

from collections.abc import Iterator

import adbc_driver_manager
import psycopg
import pytest

from tailrace.config import TableFilter
from tailrace.connectors.postgres.schema import coverage
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.server.causes import out_of_locks
from tailrace.connectors.postgres.server.connection import Address, connect
from tailrace.connectors.postgres.setup.prerequisites import check
from tailrace.connectors.registry import parse
from tailrace.demo.embedded import Server
from tailrace.errors import ConnectionFailed, PrerequisiteError
from tests import fix_postgres
from tests.fix_postgres import SETTINGS, Database, Postgres, describe, owned
from tests.fix_query import Query

FEW = {"max_locks_per_transaction": "10", "max_connections": "20", "max_wal_senders": "5"}


@pytest.fixture(scope="module")
def narrow() -> Iterator[Postgres]:
    """A server that has room for some hundreds of locks."""
    with Server(settings={**SETTINGS, **FEW}) as server, owned(describe(server.dsn())) as found:
        yield found


@pytest.fixture
def crowded(narrow: Postgres) -> Iterator[Database]:
    database = fix_postgres.take(narrow, "crowded")
    yield database
    fix_postgres.give_back(database)


def make_tables(database: Database, count: int) -> None:
    with database.connect() as connection:
        for first in range(0, count, 100):
            connection.execute(
                b"do $$ begin for i in %d .. %d loop "
                b"execute format('create table t_%%s (id int primary key)', i); end loop; end $$"
                % (first, min(first + 100, count) - 1)
            )


def test_more_tables_than_locks_are_one_error_that_names_the_setting(crowded: Database) -> None:
    make_tables(crowded, 3000)
    config = parse("postgres", crowded.options(topic_prefix="p"))
    [told] = [one for one in check(config) if one.subject == "locks"]
    assert told.level == "warning"
    assert "3000 tables" in told.text
    query = Query(crowded)
    try:
        with pytest.raises(PrerequisiteError, match=r"no room for more locks.*max_locks_per_transaction") as caught:
            query.step()
        assert not isinstance(caught.value, ConnectionFailed)
    finally:
        query.planner.close()
    with connect(config) as control:
        address = Address.of(config, control)
    arrow = ArrowConnection(address)
    try:
        with pytest.raises(adbc_driver_manager.Error) as refusal:
            arrow.begin("begin; lock table " + ", ".join(f"public.t_{one}" for one in range(3000)))
        assert "max_locks_per_transaction" in str(out_of_locks(refusal.value))
    finally:
        arrow.close()
    assert out_of_locks(ConnectionFailed("out of memory")) is None


def test_a_snapshot_takes_locks_for_its_tables_and_not_for_all_their_indexes(crowded: Database) -> None:
    """Most of the locks are for the tables themselves; there is no room for locks on their indexes as well."""
    count = room(crowded) * 7 // 10
    make_tables(crowded, count)
    crowded.execute("insert into t_0 values (1)", f"insert into t_{count - 1} values (2)")
    query = Query(crowded)
    try:
        query.step()
        query.step()
        assert sorted(table for _, table, _ in query.changes) == sorted(["t_0", f"t_{count - 1}"])
    finally:
        query.planner.close()


def room(database: Database) -> int:
    """Return the number of locks that a transaction gets before the server refuses the next."""
    taken = 0
    with database.connect() as connection:
        connection.execute("begin")
        while True:
            numbers = (taken + 1, taken + 50)
            try:
                connection.execute(
                    "select count(pg_advisory_xact_lock(one)) from generate_series(%s::int8, %s::int8) one", numbers
                )
            except psycopg.errors.OutOfMemory:
                return taken
            taken += 50


def test_nothing_keeps_the_locks_of_partitions(database: Database) -> None:
    """The transaction of a snapshot is long: its catalog queries for partitions must not lock them."""
    database.execute(
        "create table p (id int primary key) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (10) partition by range (id)",
        "create table p_11 partition of p_1 for values from (0) to (5)",
    )
    config = parse("postgres", database.options(topic_prefix="p", publish_via_partition_root="true"))
    with connect(config) as connection:
        connection.execute("begin isolation level repeatable read read only")
        captured = captured_tables(Catalog(connection, database.name).tables(), TableFilter(config))
        [root] = [one for one in coverage.read(connection, config, captured).values() if str(one.name) == "public.p"]
        assert root.arrives
        assert root.is_root
        held = connection.execute(
            "select l.relation::regclass::text from pg_locks l where l.pid = pg_backend_pid() and l.relation >= 16384"
        ).fetchall()
        connection.execute("rollback")
    assert held == []
