"""Publication, slot and replica identities, made by the options on a real server."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from tailrace.config import TableFilter
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.setup import publications, slots
from tailrace.connectors.postgres.snapshot.session import SnapshotSession
from tailrace.connectors.registry import parse
from tailrace.errors import ConfigError, ConnectionFailed, PrerequisiteError
from tests.fix_postgres import Database
from tests.fix_query import row


def publication(database: Database) -> tuple[Any, ...] | None:
    with database.connect() as connection:
        return connection.execute(
            "select pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot from pg_publication"
        ).fetchone()


def prepare(database: Database, **options: str) -> None:
    config = parse("postgres", database.options(**{"topic.prefix": "s", **options}))
    with database.connect() as connection:
        captured = captured_tables(Catalog(connection, database.name).tables(), TableFilter(config))
        publications.prepare_publication(connection, config, captured)


def test_a_publication_is_made_with_the_operations_that_give_events(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    prepare(database, **{"skipped.operations": "c,t", "event.format": "1.7"})
    assert publication(database) == (True, True, True, True, False)
    database.execute("drop publication dbz_publication")
    prepare(database, **{"skipped.operations": "c,t", "publication.autocreate.mode": "filtered"})
    assert publication(database) == (False, True, True, False, False)
    prepare(database, **{"skipped.operations": "none", "publication.autocreate.mode": "filtered"})
    assert publication(database) == (True, True, True, True, False)
    prepare(database, **{"skipped.operations": "d", "publication.autocreate.mode": "filtered"})
    assert publication(database) == (True, True, True, True, False)


def test_a_publication_that_is_not_ours_to_change_is_told_of(database: Database, caplog: Any) -> None:
    database.execute("create publication dbz_publication for all tables with (publish = 'insert')")
    prepare(database, **{"skipped.operations": "none", "publish.via.partition.root": "true"})
    assert publication(database) == (True, False, False, False, False)
    assert "publish = 'insert, update, delete, truncate'" in caplog.text
    assert "publish_via_partition_root = true" in caplog.text


def test_partitions_appear_as_their_root_where_that_is_asked_for(database: Database, query: Any, caplog: Any) -> None:
    database.execute(
        "create table p (id int primary key, v text) partition by range (id)",
        "create table p1 partition of p for values from (0) to (10)",
        "create table p2 partition of p for values from (10) to (20)",
    )
    one = query(**{"snapshot.mode": "no_data", "publish.via.partition.root": "true"})
    one.step()
    database.execute("insert into p values (1, 'a')", "update p set id = 11", "delete from p")
    one.until(4)
    assert [change[:2] for change in one.changes] == [("c", "p"), ("d", "p"), ("c", "p"), ("d", "p")]
    assert "no change of it arrives" not in caplog.text


def identities(database: Database) -> dict[str, str]:
    with database.connect() as connection:
        return dict(
            connection.execute(
                "select relname, relreplident from pg_class "
                "where relkind = 'r' and relnamespace = 'public'::regnamespace"
            ).fetchall()
        )


def test_replica_identities_are_set_by_expressions_and_index_names_keep_their_case(database: Database) -> None:
    database.execute(
        "create table a1 (id int primary key)",
        "create table a2 (id int primary key)",
        "create table b (id int primary key, v text not null)",
        'create unique index "Bv" on b (v)',
        "create table rest (id int primary key)",
    )
    with database.connect() as connection:
        captured = Catalog(connection, database.name).tables()
        values = ["public[.]a.*:FULL", "public.b:INDEX Bv", "public.none:NOTHING"]
        for _ in range(2):
            found = publications.set_replica_identities(connection, values, captured)
            assert found == ["replica.identity.autoset.values: public.none matches no captured table"]
            assert identities(database) == {"a1": "f", "a2": "f", "b": "i", "rest": "d"}
        assert publications.set_replica_identities(connection, ["public.b:default"], captured) == []
        assert identities(database)["b"] == "d"
        with pytest.raises(ConfigError, match=r"public\.a1 to be full and nothing"):
            publications.set_replica_identities(connection, ["public.a1:FULL", "public.a.:NOTHING"], captured)
        with pytest.raises(PrerequisiteError, match=r"public\.b"):
            publications.set_replica_identities(connection, ["public.b:INDEX missing"], captured)
    assert identities(database)["a1"] == "f"


def test_a_replica_identity_that_may_not_be_set_is_told_of(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    with database.connect() as connection:
        captured = Catalog(connection, database.name).tables()
        connection.execute("set role pg_monitor")
        (found,) = publications.set_replica_identities(connection, ["public.t:FULL"], captured)
    assert found.startswith("the replica identity of public.t stays as it is")
    assert identities(database) == {"t": "d"}


def test_a_slot_that_standbys_keep_needs_a_server_that_can_do_it(database: Database) -> None:
    config = parse("postgres", database.options(**{"topic.prefix": "s"}))
    name = f"failover_{database.name}"[:60]
    with connections.connect(config, replication=True) as replication:
        if database.server.version < 17:
            with pytest.raises(PrerequisiteError, match=r"slot\.failover needs PostgreSQL 17"):
                slots.create_slot(replication, name, failover=True)
            return
        slots.create_slot(replication, name, failover=True)
    with database.connect() as connection:
        assert slots.warn_of_failover(connection, name) == ""


def test_parameters_of_the_stream_reach_the_server_in_both_gears(database: Database, query: Any) -> None:
    if database.server.version < 16:
        pytest.skip("pgoutput has no parameter to hand on before PostgreSQL 16")
    database.execute("create table t (id int primary key, v text)", "select pg_replication_origin_create('elsewhere')")
    one = query(**{"snapshot.mode": "no_data", "slot.stream.params": "origin=none"})
    one.step()

    def write(number: int) -> None:
        with database.connect() as connection:
            connection.execute("select pg_replication_origin_session_setup('elsewhere')")
            connection.execute(f"insert into t values ({number}, 'from elsewhere')")
            connection.execute("select pg_replication_origin_session_reset()")
        database.execute(f"insert into t values ({number + 1}, 'x')")

    write(1)
    assert one.until(1) == [("c", "t", row(2, "x"))]
    write(3)
    one.drain_now()
    assert one.changes == [("c", "t", row(2, "x")), ("c", "t", row(4, "x"))]


def test_a_statement_that_takes_too_long_is_an_error_with_a_remedy(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key)")
    with database.connect(autocommit=False) as blocker:
        blocker.execute("lock table t in access exclusive mode")
        one = query(**{"database.query.timeout.ms": "200", "replica.identity.autoset.values": "public.t:FULL"})
        with pytest.raises(ConnectionFailed, match="statement timeout") as caught:
            one.step()
        assert "database.query.timeout.ms" in caught.value.remedy


def test_the_log_waits_after_the_snapshot_as_long_as_it_is_told_to(database: Database, query: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    one = query(**{"streaming.delay.ms": "1500", "poll.interval.ms": "100"})
    one.step()
    assert len(one.changes) == 1
    database.execute("insert into t values (2, 'b')")
    began = time.monotonic()
    one.until(2)
    assert [change[0] for change in one.changes] == ["r", "c"]
    assert time.monotonic() - began > 1.4


def test_a_publication_that_lists_the_tables_already_is_left_to_its_owner(database: Database) -> None:
    name = f"modest_{database.name}"
    database.execute(
        "create table t (id int primary key)",
        "create publication dbz_publication for table t",
        f"create role {name} login password '{database.server.password}'",
    )
    login = {"database.user": name, "publication.autocreate.mode": "filtered", "skipped.operations": "none"}
    config = parse("postgres", database.options() | {"topic.prefix": "s"} | login)
    filtered = TableFilter(config)
    with connections.connect(config) as connection:
        tables = Catalog(connection, database.name).tables()
        publications.prepare_publication(connection, config, captured_tables(tables, filtered))
        database.execute("create table u (id int primary key)")
        tables = Catalog(connection, database.name).tables()
        with pytest.raises(PrerequisiteError, match="may not create or change"):
            publications.prepare_publication(connection, config, captured_tables(tables, filtered))
    database.execute(f"drop role {name}", "alter publication dbz_publication set table t where (id > 1), u")
    prepare(database, **{"publication.autocreate.mode": "filtered"})
    with database.connect() as connection:
        kept = connection.execute("select count(*) from pg_publication_rel where prqual is not null").fetchone()
    assert kept == (0,)


def test_a_transaction_that_exports_a_snapshot_outlives_the_limits_of_the_server(database: Database) -> None:
    if database.server.version < 17:
        pytest.skip("transaction_timeout came with PostgreSQL 17")
    database.execute(f"alter database {database.name} set transaction_timeout = '200ms'")
    with connections.connect(parse("postgres", database.options(**{"topic_prefix": "s"}))) as connection:
        connections.hold_open(connection)
        connection.execute("begin")
        time.sleep(0.4)
        assert connection.execute("select 1").fetchone() == (1,)


def test_the_forms_of_tables_may_be_asked_for_without_end(database: Database) -> None:
    database.execute("create table t (id int primary key)")
    with database.connect() as own, database.connect() as other:
        session = SnapshotSession(own, None, other)
        oid = other.execute("select 't'::regclass::oid::int8").fetchone()
        assert oid is not None
        assert list(session.forms(list(oid))) == list(oid)
        with pytest.raises(psycopg.errors.InvalidSavepointSpecification):
            own.execute("release savepoint forms")
