"""The sink `tables` follows altered tables at the right place of the log, in every mode, also after crashes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.sinks.tables.formats.iceberg.table import IcebergTable
from tests.extent import is_full, turn
from tests.fix_lake import Lake, writes
from tests.fix_postgres import Database


@turn(0, 7)
def test_latest_follows_the_names_of_columns(lake: Callable[..., Lake], database: Database) -> None:
    """Columns are added, dropped and renamed, and names are reused, with rows before and after."""
    database.execute(
        "create table t (id int primary key, v int, w int, code text not null)",
        "insert into t select i, i, -i, 'c' || i from generate_series(1, 6) i",
    )
    made = lake()
    made.run()
    database.execute(
        "update t set v = 10 where id = 1",
        "alter table t add column extra text",
        "insert into t values (7, 7, -7, 'c7', 'new')",
        # Names are exchanged: w is now called v, and v is called w.
        "alter table t rename column v to x",
        "alter table t rename column w to v",
        "alter table t rename column x to w",
        "update t set v = -20, w = 20 where id = 2",
        "alter table t drop column extra",
        "alter table t add column extra int",
        "update t set extra = 4 where id = 4",
        "delete from t where id = 5",
    )
    made.run()
    made.equals("t")


@turn(3, 7)
def test_latest_follows_the_types_of_columns(lake: Callable[..., Lake], database: Database) -> None:
    database.execute(
        "create table t (id int primary key, n numeric(8,2), day date)",
        "insert into t select i, i / 3.0, '2024-02-03' from generate_series(1, 6) i",
    )
    made = lake()
    made.run()
    database.execute(
        "update t set n = 10 where id = 1",
        "alter table t alter column id type bigint, alter column n type numeric(12,4), alter column day type timestamp",
        "update t set n = 1.2345, day = '2024-02-03 04:05:06' where id = 3",
        "insert into t values (5000000000, 1, null)",
        "delete from t where id = 5",
    )
    made.run()
    made.equals("t")
    # a batch is written in two where the type of a column changes
    assert len(writes(made.path / "public.t", "Overwrite")) == 2


@turn(2, 7)
def test_latest_follows_another_key(lake: Callable[..., Lake], database: Database) -> None:
    database.execute(
        "create table t (id int primary key, v int, code text not null)",
        "insert into t select i, i, 'c' || i from generate_series(1, 6) i",
    )
    made = lake()
    made.run()
    database.execute(
        "update t set v = 0 where id = 1",
        "delete from t where id = 2",
        "alter table t drop constraint t_pkey, add primary key (code)",
        "update t set id = 99 where code = 'c3'",
        "update t set code = 'moved' where code = 'c4'",
        "delete from t where code = 'c6'",
        "insert into t values (1, 1, 'twice')",
        "update t set v = 5 where code = 'moved'",
        "alter table t rename column code to key",
        "update t set v = 6 where key = 'twice'",
    )
    made.run()
    made.equals("t")
    # a batch is written in two where the key changes
    assert len(writes(made.path / "public.t", "Overwrite")) == 2


@pytest.mark.full
def test_what_is_ignored_and_what_stops(lake: Callable[..., Lake], database: Database) -> None:
    database.execute(
        "create table t (id int primary key, v bigint, w int)", "insert into t values (1, 1, 1), (2, 2, 2)"
    )
    made = lake(sink_tables_upsert__keep__deletes="true", sink_tables_schema_drop="stop")
    for kind in ("add", "rename", "narrow"):
        made.set(**{f"sink_tables_schema_{kind}": "ignore"})
    made.run()
    database.execute(
        "alter table t add column x int",
        "insert into t values (3, 3, 3, 3)",
        "alter table t rename column v to u",
        "update t set u = 10, x = 1 where id = 1",
        "alter table t drop column w",
        "update t set u = 30 where id = 3",
        "delete from t where id = 2",
        "alter table t alter column u type int",
        "insert into t values (4, 4, 4)",
    )
    assert "its column w was dropped. Set debezium.sink.tables.schema.drop" in made.fails()
    assert made.rows("public.t", "id, v, w") == [(1, 1, 1), (2, 2, 2)]
    made.set(sink_tables_schema_drop="ignore")
    made.run()
    kept = made.rows("public.t", "id, v, w, __deleted, __op")
    assert kept == [
        (1, 10, 1, "false", "u"), (2, 2, None, "true", "d"), (3, 30, None, "false", "u"), (4, 4, None, "false", "c"),
    ]  # fmt: skip
    anew = "create table t (id int primary key, v bigint, w int)"
    database.execute("drop table t", anew, "insert into t values (9, 9, 9)")
    assert "the source's table was dropped, and another one has its name" in made.fails()
    assert made.rows("public.t", "id, v, w, __deleted, __op") == kept


@pytest.mark.full
def test_a_table_of_iceberg_follows_its_source(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are rows before and after, and a restart between the alterations and their rows; unsupported ones are
    refused."""
    database.execute(
        "create table t (id int primary key, v int, w text, r real, n numeric(8,2), tags int[])",
        "insert into t select i, i, 'w' || i, i / 4.0, i / 3.0, array[i] from generate_series(1, 6) i",
    )
    made = lake(sink_tables_format="iceberg")
    made.run()
    database.execute(
        "update t set v = 10 where id = 1",
        "alter table t rename column v to x",
        "alter table t rename column w to v",
        "alter table t rename column x to w",
        "update t set v = 'two', w = 20 where id = 2",
        "alter table t alter column id type bigint, alter column w type bigint, alter column r type double precision",
        "alter table t alter column n type numeric(20,2)",
        "insert into t values (5000000000, 5000000000, 'far', 1e300, 123456789012345.67, null)",
        "alter table t drop column v, drop column tags",
        "alter table t add column v int, add column tags text",
        "update t set v = 3, tags = 'three' where id = 3",
        "delete from t where id = 5",
    )

    def killed(*told: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(IcebergTable, "merge", killed)
        with pytest.raises(Exception, match="killed"):
            made.run()
    made.run()
    columns = "id, w, r, n, v, tags"
    assert made.rows("public.t", columns) == made.source("t", columns)
    database.execute("alter table t alter column v type numeric(12,2)", "update t set v = 1.5 where id = 1")
    assert "v is now decimal(12,2), and Iceberg cannot widen int to it" in made.fails()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["log", "history"])
def test_changes_and_versions_follow_their_source(streamed: Callable[..., Lake], database: Database, mode: str) -> None:
    database.execute("create table t (id int primary key, v int, w int)", "insert into t values (1, 1, 1), (2, 2, 2)")
    made = streamed(sink_tables_mode=mode)
    made.run()
    database.execute(
        "update t set v = 10 where id = 1",
        "alter table t rename column v to u",
        "alter table t drop column w",
        "alter table t add column v text",
        "alter table t alter column u type bigint",
        "update t set u = 20000000000, v = 'new' where id = 1",
        "alter table t drop constraint t_pkey, add primary key (id, u)",
        "delete from t where id = 2",
    )
    made.run()
    held = made.rows("public.t", "id, u, v" if mode == "log" else "id, u, v, __valid_to")
    found = [row[:3] for row in held]
    rows = [(1, 1, None), (1, 10, None), (1, 20000000000, "new"), (2, 2, None)]
    assert found == rows + ([(2, 2, None)] if mode == "log" else [])
    if mode == "history":
        assert [row[:3] for row in held if row[3] is None] == made.source("t", "id, u, v")


@turn(1, 7)
def test_a_new_column_has_the_value_that_old_rows_have(lake: Callable[..., Lake], database: Database) -> None:
    """A default that is dropped in the same transaction is used; one that only the statement contained ends the run."""
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    made = lake()
    made.run()
    database.execute(
        "begin; alter table t add c int not null default 7, add d date default '2024-02-03', "
        "add n numeric(8, 2) default 1.25, add w text default 'it''s', add b boolean default true, "
        "add at timestamptz default '2024-02-03 04:05:06.789+01', "
        "add wall timestamp default '2024-02-03 04:05:06.789'; "
        "alter table t alter c drop default, alter d drop default; insert into t (id, c) values (3, 8); commit"
    )
    made.run()
    made.equals("t")
    assert [row[2] for row in made.rows("public.t")] == [7, 7, 8]
    if not is_full():
        # For the end of the run see test_table_evolution.
        return
    database.execute(
        "create sequence counted",
        "begin; alter table t add s int default nextval('counted'); alter table t alter s drop default; commit",
        "update t set v = 'c' where id = 1",
    )
    assert "may have values in its new column s" in made.fails()


def _until_whole(made: Lake, database: Database) -> None:
    """Run with a change in between, until the last moment is whole."""
    for number in range(6):
        made.run()
        if made.moments()[-1]:
            return
        database.execute(f"insert into beat values ({number}) on conflict (id) do update set id = beat.id")
    raise AssertionError("no moment is whole again")


@pytest.mark.full
@pytest.mark.parametrize("mode", ["latest", "history"])
def test_a_table_is_read_again_by_the_pipeline_itself(
    lake: Callable[..., Lake], database: Database, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A new column has values that the log lacks, a column gets another type, and another table comes under the name.

    The first process dies after it has noted that it must ask, and before it has asked.
    """
    database.execute(
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data text)",
        "create table beat (id int primary key)",
        "create table t (id int primary key, v text)",
        "insert into t select i, i from generate_series(1, 5) i",
    )
    made = lake(source_signal_data_collection="public.signals", sink_tables_mode=mode)
    for name in ("added_default", "schema_narrow", "schema_recreated"):
        made.set(**{f"sink_tables_{name}": "reread"})
    _until_whole(made, database)
    current = "__valid_to is null" if mode == "history" else "true"
    database.execute(
        "create sequence numbers",
        "alter table t add column n bigint not null default nextval('numbers')",
        "alter table t alter column v type int using v::int",
        "insert into t values (6, 6)",
    )

    def killed(*told: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr("tailrace.sinks.tables.sink.send", killed)
        with pytest.raises(Exception, match="killed"):
            made.run()
    made.run()
    assert not made.moments()[-1]
    _until_whole(made, database)
    assert made.rows("public.t", "id, v, n", current) == made.source("t", "id, v, n")
    before = made.rows("public.t", "id, v, n", current)
    database.execute(
        "drop table t",
        "create table t (n text, id bigint primary key, w date)",
        "insert into t select i, i, '2024-02-03' from generate_series(4, 9) i",
        "update t set n = 'new' where id = 5",
        "delete from t where id = 6",
    )
    made.run()
    assert not made.moments()[-1]
    _until_whole(made, database)
    assert made.rows("public.t", "id, n, w", current) == made.source("t", "id, n, w")
    if mode == "history":
        closed = [key for (key,) in made.rows("public.t", "id", "__valid_to is not null")]
        assert sorted(set(closed)) == [*(key for key, *_ in before if key not in (4, 5, 6)), 4, 5, 6]
