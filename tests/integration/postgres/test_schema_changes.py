"""Every event has the schema of its position in the log, whenever it is read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date
from typing import Any, Literal

import psycopg
import pytest

from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.server.connection import PINNED
from tailrace.log.rows.tasks import LogTask
from tests.extent import by_day, sized
from tests.fix_capture import has_read
from tests.fix_postgres import Database
from tests.fix_query import Query, simple

Reading = Literal["live", "afterwards", "caught up", "restarted"]

SETUP = (
    "create type mood as enum ('sad', 'fine')",
    "create table t (id int primary key, a text not null default 'x', b int, m mood default 'fine')",
    "create unique index by_a on t (a)",
)

ROW = "insert into t (id, a, b) values ({0}, 'v{0}', {0})"

# Single alterations, each between a row before it and a row after it.
SINGLE = [
    ("alter table t add c numeric(8,2) not null default 1.5", ROW),
    ("alter table t add c text", ROW),
    ("alter table t drop b", "insert into t (id) values (2)"),
    ("alter table t drop m, add m text not null default 'new'", ROW),
    ('alter table t rename b to "B b"', "insert into t (id) values (2)"),
    ("begin; alter table t rename a to x; alter table t rename b to a; alter table t rename x to b; commit",
     "insert into t (id, a) values (2, 2)"),
    ("alter table t rename to t2", "insert into t2 (id, a) values (2, 'b')"),
    ("alter table t alter a type varchar(20)", ROW),
    ("alter table t alter b type text", ROW),
    ("alter table t alter id type bigint", ROW),
    ("alter table t alter b set not null", ROW),
    ("alter table t alter a drop not null", "insert into t (id, a) values (2, null)"),
    ("alter table t alter b set default 7", ROW),
    ("alter table t alter a set default 'y'", ROW),
    ("alter table t alter a drop default", ROW),
    ("alter table t alter b set not null, alter b set default 3, alter b type bigint", ROW),
    ("alter table t drop constraint t_pkey", "insert into t (id, a, b) values (1, 'w', 2)"),
    ("begin; alter table t drop constraint t_pkey; alter table t add primary key (b, id); commit", ROW),
    ("begin; alter table t drop constraint t_pkey; alter table t add primary key (a); commit", ROW),
    ("alter table t replica identity full", "update t set a = 'b'"),
    ("alter table t replica identity using index by_a", "delete from t"),
    ("alter table t replica identity nothing", ROW),
    ("drop index by_a", ROW),
    ("create unique index by_b on t (b)", ROW),
    ("alter type mood add value 'great'", "insert into t (id, a, m) values (2, 'b', 'great')"),
    ("alter type mood add value 'so-so' before 'fine'", "insert into t (id, a, m) values (2, 'b', 'so-so')"),
    ("alter type mood rename value 'sad' to 'low'", ROW),
    ("begin; drop table t; create table t (k uuid primary key default gen_random_uuid(), v int not null); commit",
     "insert into t (v) values (2)"),
    ("begin; drop table t; create table t (v int default 3, k int not null unique); commit",
     "insert into t (k) values (2)"),
    ("analyze t", ROW),
    ("vacuum full t", ROW),
]  # fmt: skip

# Repeated and combined alterations: the catalog does not keep the states in between.
CHAINS = {
    "columns come, change and go": [
        ("alter table t add c numeric(8,2) not null default 1.5", ROW),
        ("alter table t drop b", "update t set a = 'uno' where id = 1"),
        ("alter table t alter a type varchar(20)", "insert into t (id, a) values (4, 'c')"),
        ('alter table t rename a to "A b"', "insert into t (id, \"A b\") values (5, 'd')"),
        ("alter table t add b text", "insert into t (id, \"A b\") values (6, 'e')"),
        ("alter table t alter c type double precision", "insert into t (id, \"A b\") values (7, 'f')"),
        ("alter table t rename to t2", "insert into t2 (id, \"A b\") values (8, 'g')"),
    ],
    "nullability and defaults": [
        ("alter table t alter b set not null", ROW),
        ("alter table t alter b drop not null", "insert into t (id, a) values (3, 'c')"),
        ("alter table t alter b set default 7", ROW),
        ("alter table t alter b set default 8", ROW),
        ("alter table t alter b drop default", ROW),
    ],
    "the key": [
        ("alter table t drop constraint t_pkey", ROW),
        ("alter table t add primary key (b, id)", ROW),
        ("begin; alter table t drop constraint t_pkey; alter table t add primary key (id, b); commit", ROW),
        ("alter table t rename b to bee", "insert into t (id, a, bee) values (5, 'e', 5)"),
    ],
    "the replica identity": [
        ("alter table t replica identity full", "update t set a = 'b'"),
        ("alter table t alter b set not null, alter b set default 5", ROW),
        ("alter table t drop constraint t_pkey, replica identity default", "insert into t values (2, 'c', 7)"),
        ("alter table t add primary key (b), replica identity full", "update t set id = -id where b = 7"),
        ("alter table t replica identity using index by_a", "update t set b = 9 where b = 3"),
        ("alter table t replica identity default", "delete from t where b = 9"),
    ],
    "labels of an enum": [
        ("alter type mood add value 'great'", "insert into t (id, a, m) values (2, 'b', 'great')"),
        ("alter type mood add value 'so-so' before 'fine'", "insert into t (id, a, m) values (3, 'c', 'so-so')"),
        ("alter type mood rename value 'so-so' to 'hm'", "insert into t (id, a, m) values (4, 'd', 'hm')"),
    ],
    "a table that comes again under its name": [
        ("begin; drop table t; create table t (k uuid primary key default gen_random_uuid(), v int not null); commit",
         "insert into t (v) values (2)"),
        ("alter table t alter v drop not null", "insert into t default values"),
        ("begin; drop table t; create table t (k int not null unique, v int default 3); commit",
         "insert into t (k) values (3)"),
    ],
    "altered and written in one transaction": [
        ("", "begin; alter table t alter b set not null, alter b set default 4; insert into t (id, a) values (2, 'b');"
             " commit"),
        ("", "begin; savepoint one; alter table t add d int not null default 1; release one; savepoint two;"
             " insert into t (id, a) values (3, 'c'); release two; commit"),
    ],
}  # fmt: skip


def shown(schema: TableSchema) -> tuple[Any, ...]:
    columns = tuple((c.name, c.type_name, c.modifier, c.nullable, c.default, c.enum_labels) for c in schema.columns)
    return schema.id.table, columns, schema.key


class Watching(Query):
    """Notes the schema of each change of the log."""

    def __init__(self, database: Database, **options: str) -> None:
        self.schemas: list[tuple[Any, ...]] = []
        super().__init__(database, **options)

    def step(self, commit: bool = True) -> bool:
        before = self.committed if self.committed is not None else self.planner.initial_offset()
        moved = super().step(commit)
        if moved and commit:
            for task in simple(self.planner.partitions(before, self.committed or {})):
                if isinstance(task, LogTask):
                    for segment in task.segments:
                        batch = decode(segment)
                        self.schemas += [shown(batch.table)] * len(batch)
        return moved


def check(database: Database, steps: list[tuple[str, str]], reading: Reading) -> None:
    """Run each statement and the change after it; every change must have the schema that the server had then."""
    database.execute(*SETUP)
    one = Watching(database, **{"snapshot.mode": "no_data"})
    one.step()
    if reading == "afterwards":
        one.planner.close()
    expected = []
    try:
        with database.connect() as connection:
            for place, (statement, change) in enumerate([("", ROW), *steps], 1):
                if statement:
                    connection.execute(statement.encode())
                if reading == "restarted":
                    one.kill()
                connection.execute(change.format(place).encode())
                found = connection.execute("select oid::int8 from pg_class where relname in ('t', 't2')").fetchone()
                assert found is not None
                # defaults qualify their types as the search_path demands
                connection.execute(PINNED.encode())
                (schema,) = Catalog(connection, database.name).schemas([found[0]]).values()
                connection.execute("reset search_path")
                expected.append(shown(schema))
                if reading in ("live", "restarted"):
                    one.until(len(expected))
        if reading == "afterwards":
            one.planner = one.start()
            one.until(len(expected))
        elif reading == "caught up":
            one.drain_now()
    finally:
        one.planner.close()
    assert len(one.schemas) == len(expected)
    for place, (seen, wanted) in enumerate(zip(one.schemas, expected, strict=True)):
        assert seen == wanted, steps[place - 1]


READINGS: tuple[Reading, ...] = ("live", "restarted", "afterwards", "caught up")


def single() -> Iterator[Any]:
    """Return each alteration with each way of reading; a short run has one way for each, another one each day."""
    for place, (statement, change) in enumerate(SINGLE, date.today().toordinal()):
        for reading in sized(READINGS[place % len(READINGS) :][:1], READINGS):
            yield pytest.param(statement, change, reading)


@pytest.mark.parametrize(("statement", "change", "reading"), list(single()))
def test_each_event_has_the_schema_of_its_position(
    database: Database, statement: str, change: str, reading: Reading
) -> None:
    check(database, [(statement, change)], reading)


@pytest.mark.parametrize(
    ("name", "reading"), by_day([(name, reading) for name in CHAINS for reading in ("live", "restarted")], 4)
)
def test_each_event_has_the_schema_of_its_position_while_things_are_altered_again(
    database: Database, name: str, reading: Reading
) -> None:
    check(database, CHAINS[name], reading)


def test_versions_of_one_table_stand_in_one_batch_in_their_order(database: Database) -> None:
    database.execute(*SETUP)
    one = Watching(database, **{"snapshot.mode": "no_data"})
    try:
        one.step()
        for number in range(1, 6):
            database.execute(
                f"insert into t (id, a) values ({number}, {number})",
                f"alter table t add c{number} int default {number}",
            )
        one.drain_now()
        assert [change[2][0] for change in one.changes if change[2]] == [b"1", b"2", b"3", b"4", b"5"]
        assert [len(columns) for _, columns, _ in one.schemas] == [4, 5, 6, 7, 8]
        assert [columns[-1][4] for _, columns, _ in one.schemas[1:]] == ["1", "2", "3", "4"]
    finally:
        one.planner.close()


def test_a_replay_has_the_schemas_of_the_first_reading_whatever_was_altered_since(database: Database) -> None:
    database.execute(*SETUP)
    one = Watching(database, **{"snapshot.mode": "no_data"})
    try:
        one.step()
        database.execute("insert into t (id, a) values (1, 'a')", "alter table t add c int not null default 3")
        database.execute("insert into t (id, a) values (2, 'b')")
        while one.planned is None or len(one.schemas) < 2:
            one.schemas.clear()
            one.planned = None
            one.step(commit=False)
            start, end = one.committed or {}, one.planned or one.committed or {}
            for task in simple(one.planner.partitions(start, end)):
                if isinstance(task, LogTask):
                    one.schemas += [shown(decode(segment).table) for segment in task.segments]
        first = list(one.schemas)
        # twice, so that the catalog has forgotten the first default
        database.execute(
            "alter table t alter c set default 4", "alter table t alter c set default 5, alter c drop not null"
        )
        one.kill()
        one.schemas.clear()
        one.until(2)
        assert one.schemas == first
        database.execute("insert into t (id, a) values (3, 'c')")
        one.until(3)
        assert one.schemas[2][1][-1] == ("c", "int4", -1, True, "5", ())
    finally:
        one.planner.close()


def test_work_of_a_savepoint_is_no_later_work_on_a_busy_server(database: Database) -> None:
    """The id of a subtransaction is above its transaction's, and other transactions have committed since."""
    database.execute(*SETUP, "create table other (id int)")
    one = Watching(database, **{"snapshot.mode": "no_data", "table.include.list": "public.t"})
    try:
        one.step()
        with database.connect(autocommit=False) as connection:
            connection.execute("insert into t (id, a) values (1, 'a')")
            connection.execute("savepoint s")
            connection.execute("alter table t add c int not null default 3")
            connection.execute("release s")
            connection.execute("insert into t (id, a) values (2, 'b')")
            connection.commit()
        for number in range(20):
            database.execute(f"insert into other values ({number})")
        one.until(2)
        database.execute("insert into t (id, a) values (3, 'c')")
        one.until(3)
        assert one.schemas[2][1][-1] == ("c", "int4", -1, False, "3", ())
    finally:
        one.planner.close()


def test_an_offset_of_an_earlier_version_is_gone_on_from(database: Database) -> None:
    database.execute(*SETUP)
    one = Watching(database, **{"snapshot.mode": "no_data"})
    try:
        one.step()
        database.execute("insert into t (id, a) values (1, 'a')")
        one.until(1)
        assert one.committed is not None
        assert one.committed.pop("schemas")
        one.kill()
        database.execute("insert into t (id, a) values (2, 'b')")
        one.until(2)
        assert one.schemas[1] == one.schemas[0]
        assert "schemas" in one.committed
    finally:
        one.planner.close()


def test_a_key_dropped_while_nobody_read_is_noticed_at_the_latest_with_the_next_transaction(database: Database) -> None:
    """Under REPLICA IDENTITY FULL no message and no row of the catalog tells when it was dropped."""
    database.execute(*SETUP, "drop index by_a", "alter table t replica identity full")
    one = Watching(database, **{"snapshot.mode": "no_data"})
    try:
        one.step()
        database.execute("insert into t (id) values (1)")
        one.until(1)
        one.planner.close()
        database.execute("alter table t drop constraint t_pkey", "insert into t (id) values (2)")
        # a later transaction, so that the row's transaction is not the last
        database.execute("create table other (id int)", "insert into other values (1)")
        one.planner = one.start()
        one.until(3)
        database.execute("insert into t (id) values (3)")
        one.until(4)
        of_t = [schema for schema in one.schemas if schema[0] == "t"]
        assert [key for _, _, key in of_t] == [("id",), ("id",), ()]
    finally:
        one.planner.close()


def test_a_transaction_that_still_waits_for_a_standby_has_the_columns_that_it_made(database: Database) -> None:
    # the log has its commit, but other sessions, also the one that reads the catalog, do not see it yet
    database.execute(*SETUP, "create table other (id int)")
    one = Watching(database, **{"snapshot.mode": "no_data", "table.include.list": "public.t"})
    one.step()
    database.execute(ROW.format(1))
    one.until(1)
    work = "begin; alter table t add c text not null default 'new'; insert into t (id, a) values (2, 'b'); commit"
    with database.connect() as control, ThreadPoolExecutor(2) as pool:
        try:
            control.execute("alter system set synchronous_standby_names = 'nobody'")
            control.execute("select pg_reload_conf()")
            # the server takes a moment until commits wait
            while not waits(control, written := pool.submit(commit, database, "insert into other values (1)")):
                written.result()
            assert waits(control, pool.submit(commit, database, work), 2)
            target = database.flushed()
            for _ in range(5):
                one.step()
            assert not has_read(one.planner, target)
        finally:
            control.execute("alter system reset synchronous_standby_names")
            control.execute("select pg_reload_conf()")
    one.until(2)
    one.planner.close()
    before, after = one.schemas
    assert [column[0] for column in before[1]] == ["id", "a", "b", "m"]
    assert [column[0] for column in after[1]] == ["id", "a", "b", "m", "c"]
    assert after[1][-1][3:5] == (False, "'new'::text")


def commit(database: Database, work: str) -> None:
    with database.connect() as connection:
        connection.execute("set synchronous_commit = on")
        connection.execute(work.encode())


def waits(control: psycopg.Connection[Any], written: Future[None], count: int = 1) -> bool:
    """Return True once `count` commits wait, the one being written included; False if that one is done."""
    while not written.done():
        rows = control.execute("select from pg_stat_activity where wait_event = 'SyncRep'").fetchall()
        if len(rows) == count:
            return True
    return False
