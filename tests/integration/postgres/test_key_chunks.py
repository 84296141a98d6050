"""Chunks by key against a real server: every row once, under any key, and no row of a table that was altered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tailrace.connectors.postgres.schema.catalog import Catalog
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.postgres.server.arrow import ArrowConnection
from tailrace.connectors.postgres.snapshot.key_chunks import KeyedTable, WindowOrigin, fingerprint, read_rows
from tailrace.connectors.postgres.snapshot.reconcile import NOTHING, SupersededRows
from tailrace.connectors.registry import parse
from tailrace.snapshot.incremental import Collection, Cursor, UnusableTable
from tests.fix_postgres import Database


class Reading:
    """A snapshot exported by one session, chunks found in a second, read in others: as planner and tasks do it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.config = parse("postgres", database.options(**{"topic.prefix": "s"}))
        self.exporter = connections.connect(self.config)
        self.exporter.execute("begin isolation level repeatable read read only")
        row = self.exporter.execute("select pg_export_snapshot()").fetchone()
        assert row is not None
        self.snapshot: str = row[0]
        self.planning = connections.connect(self.config)
        self.planning.execute("begin isolation level repeatable read read only")
        self.planning.execute(f"set transaction snapshot '{self.snapshot}'")

    def table(self, name: str, filter: str | None = None, surrogate: str | None = None) -> KeyedTable:  # noqa: A002
        catalog = Catalog(self.planning, self.database.name)
        row = self.planning.execute(
            "select oid::int8, relkind::text from pg_class where relname = %s", (name,)
        ).fetchone()
        assert row is not None
        oid, relkind = row
        schema = catalog.schemas([oid])[oid]
        return KeyedTable.find(
            self.planning,
            schema,
            relkind,
            schema.key,
            catalog.output_functions(schema.columns),
            Collection("public", name, filter, surrogate),
        )

    def all(
        self, table: KeyedTable, size: int, count: int = 3, superseded: SupersededRows = NOTHING
    ) -> list[list[Any]]:
        """Return the rows of each chunk, as the texts of their columns."""
        maximum, nulls = table.maximum(self.planning)
        cursor, found, number, more = Cursor(None, maximum), [], 0, nulls
        while True:
            chunks = table.chunks(self.planning, cursor, [size] * count, number, more)
            if not chunks:
                return found
            for chunk in chunks:
                found.append(list(self.rows(table, chunk, superseded)))
            number += len(chunks)
            more = False
            if chunks[-1].upto is not None:
                cursor = Cursor(chunks[-1].upto, maximum)

    def rows(self, table: KeyedTable, chunk: Any, superseded: SupersededRows = NOTHING) -> Iterator[tuple[Any, ...]]:
        reader = ArrowConnection(connections.Address.of(self.config, self.planning))
        for batch in read_rows(reader, self.snapshot, table, chunk, WindowOrigin(1, 2, 3, 4, 5), superseded):
            assert batch.after is not None
            yield from zip(*(column.to_pylist() for column in batch.after.columns), strict=True)

    def release(self) -> None:
        self.planning.execute("commit")

    def close(self) -> None:
        self.planning.close()
        self.exporter.close()


@pytest.fixture
def reading(database: Database) -> Iterator[Any]:
    made: list[Reading] = []

    def make() -> Reading:
        made.append(Reading(database))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.seed("002-08", "002-03")
def test_every_row_is_in_one_chunk_in_the_order_of_the_key(database: Database, reading: Any) -> None:
    database.execute(
        "create table t (a int, b text, v text, primary key (b, a))",
        "insert into t select i, chr(97 + i % 3), 'it''s 100% \\ ' || i from generate_series(1, 100) i",
    )
    now = reading()
    chunks = now.all(now.table("t"), 7)
    assert [len(chunk) for chunk in chunks] == [7] * 14 + [2]
    rows = [(int(a), b.decode()) for chunk in chunks for a, b, _ in chunk]
    assert rows == sorted(((i, chr(97 + i % 3)) for i in range(1, 101)), key=lambda row: (row[1], row[0]))


def test_a_surrogate_key_may_repeat_and_be_null(database: Database, reading: Any) -> None:
    database.execute(
        "create table t (a int, v int)",
        "insert into t select case when i % 10 = 0 then null else i % 5 end, i from generate_series(1, 50) i",
    )
    now = reading()
    chunks = now.all(now.table("t", surrogate="a"), 4)
    assert sorted(int(v) for chunk in chunks for _, v in chunk) == list(range(1, 51))
    database.execute("create table only_nulls (a int, v int)", "insert into only_nulls values (null, 1)")
    later = reading()
    assert later.all(later.table("only_nulls", surrogate="a"), 4) == [[(None, b"1")]]


def test_a_condition_selects_rows_and_its_comment_hides_nothing(database: Database, reading: Any) -> None:
    database.execute("create table t (id int primary key)", "insert into t select generate_series(1, 9)")
    now = reading()
    assert now.all(now.table("t", filter="id > 3 or id = 1 -- odd"), 4) == [
        [(b"1",), (b"4",), (b"5",), (b"6",)],
        [(b"7",), (b"8",), (b"9",)],
    ]


@pytest.mark.seed("002-15")
def test_superseded_rows_are_left_out(database: Database, reading: Any) -> None:
    database.execute("create table t (id int primary key)", "insert into t select generate_series(1, 5)")
    now = reading()
    gone = SupersededRows(pa.array([b"2", b"4"], pa.binary()))
    assert now.all(now.table("t"), 10, superseded=gone) == [[(b"1",), (b"3",), (b"5",)]]


def test_a_table_without_key_or_with_an_unknown_surrogate_is_unusable(database: Database, reading: Any) -> None:
    database.execute("create table t (a int)")
    now = reading()
    with pytest.raises(UnusableTable, match="NO_PRIMARY_KEY"):
        now.table("t")
    with pytest.raises(UnusableTable, match="UNKNOWN_SCHEMA"):
        now.table("t", surrogate="b")


@pytest.mark.seed("002-28")
@pytest.mark.parametrize(
    "change",
    [
        "alter table t rename column v to w; alter table t rename column u to v; alter table t rename column w to u",
        "alter table t drop column v",
        "alter table t alter column v type int using 7",
        "alter table t alter column n type bigint",
        "drop table t",
        "alter table t rename to s; alter table t2 rename to t",
        "truncate t",
    ],
)
def test_nothing_is_read_of_a_table_that_has_changed(database: Database, reading: Any, change: str) -> None:
    database.execute(
        "create table t (id int primary key, v text, u text, n int)",
        "create table t2 (like t including all)",
        "insert into t values (1, 'v', 'u', 1), (2, 'v', 'u', 2)",
    )
    now = reading()
    table = now.table("t")
    maximum, nulls = table.maximum(now.planning)
    (chunk,) = table.chunks(now.planning, Cursor(None, maximum), [10], 0, nulls)
    assert len(list(now.rows(table, chunk))) == 2
    now.release()
    database.execute(*change.split("; "))
    assert list(now.rows(table, chunk)) == []
    with psycopg.connect(database.dsn) as connection:
        assert fingerprint(connection, table.table.oid) != table.fingerprint


def test_unrelated_changes_are_none(database: Database, reading: Any) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'v')")
    now = reading()
    table = now.table("t")
    maximum, nulls = table.maximum(now.planning)
    (chunk,) = table.chunks(now.planning, Cursor(None, maximum), [10], 0, nulls)
    now.release()
    database.execute("update t set v = 'later'", "create index on t (v)", "analyze t", "vacuum t", "create table x ()")
    assert list(now.rows(table, chunk)) == [(b"1", b"v")]
    with psycopg.connect(database.dsn) as connection:
        assert fingerprint(connection, table.table.oid) == table.fingerprint


def test_partitioned_tables_are_read_through_the_parent(database: Database, reading: Any) -> None:
    database.execute(
        "create table t (id int primary key) partition by range (id)",
        "create table t1 partition of t for values from (0) to (5)",
        "create table t2 partition of t for values from (5) to (10)",
        "insert into t select generate_series(1, 9)",
    )
    now = reading()
    table = now.table("t")
    assert [int(row[0]) for chunk in now.all(table, 4) for row in chunk] == list(range(1, 10))
    maximum, nulls = table.maximum(now.planning)
    (chunk,) = table.chunks(now.planning, Cursor(None, maximum), [10], 0, nulls)
    now.release()
    database.execute("truncate t2")
    assert list(now.rows(table, chunk)) == []


def test_columns_of_the_key_may_be_called_anything(database: Database, reading: Any) -> None:
    database.execute(
        "create table t (n int, total int, textin int, number int, key_0 int, "
        "primary key (textin, n, total, number, key_0))",
        "insert into t select i % 3, i, 20 - i, 1, 1 from generate_series(1, 20) i",
    )
    now = reading()
    chunks = now.all(now.table("t"), 6)
    assert [int(row[2]) for chunk in chunks for row in chunk] == list(range(20))
    assert [len(chunk) for chunk in chunks] == [6, 6, 6, 2]


def test_a_condition_cannot_bring_another_statement_along(database: Database, reading: Any) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    now = reading()
    with pytest.raises(psycopg.errors.SyntaxError):
        now.all(now.table("t", "true); rollback; drop table t; select (1 = 1"), 4)
