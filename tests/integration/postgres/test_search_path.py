"""Names in our statements are the server's own, whatever objects a schema of the search_path has."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.connectors.postgres.server.connection import connect
from tailrace.connectors.postgres.setup import prerequisites
from tailrace.connectors.registry import parse
from tests.fix_postgres import Database
from tests.integration.postgres.signalled import SIGNALS, execute, is_over, reads, run

# Overloads that fit better than the server's own: each pair of types that these operators do not have, and forms of
# the functions whose arguments the server would have to cast. Each ends the statement that calls it.
PLANTED = """
do $$
declare
  types text[] := '{oid,int4,int8,numeric,name,text,varchar,xid,regclass,regproc,"char"}';
  l text; r text; op text; result text; made text;
begin
  foreach l in array types loop foreach r in array types loop
    foreach result in array '{bool,numeric,text}'::text[] loop
      execute format('create function public.planted(a %s, b %s, c %s default null) returns %s language plpgsql '
                     'as ''begin raise exception ''''planted''''; end''', l, r, result, result);
    end loop;
  end loop; end loop;
  foreach made in array array[
    'array_to_string(text[], text) returns text', 'concat_ws(text, oid, oid, text) returns text',
    'concat_ws(text, int2, name, name, name) returns text', 'concat_ws(text, text, text, text) returns text',
    'quote_ident(name) returns text', 'pg_relation_filenode(oid) returns oid', 'unnest(oid[]) returns setof oid',
    'unnest(int2[]) returns setof int2', 'json_build_array(oid, text, int8) returns json',
    'json_agg(json) returns json',
    'to_jsonb(pg_catalog.pg_replication_slots) returns jsonb', 'to_jsonb(pg_catalog.pg_publication) returns jsonb',
    'to_jsonb(pg_catalog.pg_publication_rel) returns jsonb', 'array_out(int4[]) returns text',
    'enum_out(public.mood) returns text', 'max(numeric) returns numeric',
    'pg_identify_object(regclass, int4, int4, out identity text)',
    'pg_identify_object_as_address(regclass, oid, int2, out object_names text[])',
    'textin(text) returns text', 'count(int8) returns int8'
  ] loop
    execute format('create function public.%s language plpgsql as '
                   '''begin raise exception ''''planted''''; end''', made);
  end loop;
end $$
"""
OPERATORS = """
do $$
declare
  types text[] := '{oid,int4,int8,numeric,name,text,varchar,xid,regclass,regproc,"char"}';
  l text; r text; op text; result text;
begin
  foreach l in array types loop foreach r in array types loop
    foreach op in array '{=,<>,<,>,<=,>=,*,-,+,||,&}'::text[] loop
      if not exists (select from pg_catalog.pg_operator o where o.oprname = op and o.oprleft = l::regtype
                     and o.oprright = r::regtype) then
        result := case when op in ('*', '-', '+', '&') then 'numeric' when op = '||' then 'text' else 'bool' end;
        execute format('create function public.%I(%s, %s) returns %s language plpgsql as '
                       '''begin raise exception ''''planted''''; end''', 'op_' || op, l, r, result);
        execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = public.%I)', op, l, r,
                       'op_' || op);
      end if;
    end loop;
  end loop; end loop;
end $$
"""
TABLES = (
    "create type mood as enum ('sad', 'glad')",
    "create table t (id varchar(20), part int, mine int, m mood default 'glad', many int[], primary key (id, part))",
    "insert into t select 'v' || lpad(i::text, 2, '0'), 1, i % 2, 'sad', array[i] from generate_series(1, 12) i",
)


@pytest.fixture
def planted(database: Database) -> Database:
    """A database with tables, and with planted overloads in its schema `public`."""
    database.execute(SIGNALS, *TABLES, PLANTED, OPERATORS)
    return database


def test_an_overload_in_public_is_never_called(planted: Database, make_query: Any) -> None:
    one = make_query(snapshot_mode="initial", snapshot_tables_order_by_row_count="descending")
    run(one, lambda q: len(reads(q)) == 12)
    planted.execute("insert into t values ('x', 1, 1, 'glad', '{1,2}')")
    run(one, lambda q: ("c", "t") in [change[:2] for change in q.changes])
    assert one.planner.status() is not None
    one.changes.clear()
    execute(planted, "public.t", id="whole")
    run(one, lambda q: len(reads(q)) == 13)
    run(one, is_over)
    assert reads(one)[-1] == (b"x", b"1", b"1", b"glad", b"{1,2}")
    one.changes.clear()
    execute(planted, "public.t", id="blocking", type="blocking")
    run(one, lambda q: len(reads(q)) == 13)
    planted.execute("insert into t values ('y', 1, 1, 'glad', '{1,2}')")
    # by the catch-up gear
    one.drain_now()
    assert one.changes[-1][2] == (b"y", b"1", b"1", b"glad", b"{1,2}")
    found = prerequisites.check(parse("postgres", planted.options(**one.options)))
    assert [finding for finding in found if finding.level == "error"] == []


def test_what_users_write_finds_what_their_search_path_names(planted: Database, make_query: Any) -> None:
    """Filters, overriding statements, heartbeats, initial statements and triggers do; our SQL around them does not."""
    planted.execute(
        "create schema app",
        "create table app.chosen (mine int)",
        "insert into app.chosen values (1)",
        "create table app.beats (at timestamptz)",
        "create table app.written (id text)",
        "create function app.is_chosen(int) returns bool language plpgsql as "
        "'begin return exists (select from chosen where mine = $1); end'",
        "create function app.noted() returns trigger language plpgsql as "
        "'begin insert into written values (new.id); return new; end'",
        "create trigger noted before insert on debezium_signal for each row execute function app.noted()",
        f"alter database {planted.name} set search_path = app, public",
    )
    one = make_query(
        snapshot_mode="initial",
        **{
            "snapshot.select.statement.overrides": "public.t",
            "snapshot.select.statement.overrides.public.t": "select * from t where is_chosen(mine)",
            "heartbeat.interval.ms": "1",
            "heartbeat.action.query": "insert into beats values (now())",
            "database.initial.statements": "select is_chosen(1)",
        },
    )
    run(one, lambda q: len(reads(q)) == 6)
    one.changes.clear()
    filters = [{"data-collection": "public.t", "filter": "is_chosen(mine)"}]
    execute(planted, "public.t", **{"additional-conditions": filters})
    run(one, lambda q: len(reads(q)) == 6)
    run(one, is_over)
    one.changes.clear()
    filters = [{"data-collection": "public.t", "filter": "select * from t where is_chosen(mine)"}]
    execute(planted, "public.t", id="blocking", type="blocking", **{"additional-conditions": filters})
    run(one, lambda q: len(reads(q)) == 6)
    with planted.connect() as connection:
        assert connection.execute("select from app.beats limit 1").fetchone() is not None
        written = [name for (name,) in connection.execute("select id from app.written").fetchall()]
    assert any(name.endswith("-open") for name in written)
    assert any(name.endswith("-close") for name in written)


@pytest.mark.parametrize("replication", [False, True])
def test_every_session_begins_so(database: Database, replication: bool) -> None:
    initial = "set search_path = app, public; set time zone 'Asia/Tokyo'; set datestyle = german; set a.b = 'c'"
    config = parse("postgres", database.options(topic_prefix="s") | {"database.initial.statements": initial})
    with connect(config, replication=replication) as connection:
        shown = [
            connection.execute(f"show {name}".encode()).fetchone()
            for name in ("search_path", "timezone", "datestyle", "a.b", "tailrace.search_path")
        ]
    assert shown == [("pg_catalog, pg_temp",), ("UTC",), ("ISO, DMY",), ("c",), ("app, public",)]


def test_a_key_of_an_extension_s_type_is_compared_by_its_own_operators(database: Database, make_query: Any) -> None:
    if "vector" not in database.server.extensions:
        pytest.skip("the server has no pgvector")
    database.execute(
        "create schema ext",
        "create extension vector schema ext",
        SIGNALS,
        "create table one (place ext.vector(1) primary key)",
        "create table t (a int, place ext.vector(1), b varchar(9), primary key (a, place, b))",
        "insert into one select array[i]::ext.vector from generate_series(1, 20) i",
        "insert into t select i % 3, array[i]::ext.vector, 'x' from generate_series(1, 20) i",
    )
    one = make_query(incremental_snapshot_chunk_size="3")
    one.step()
    execute(database, "public.one", "public.t")
    run(one, lambda q: len(reads(q, "one")) >= 20 and len(reads(q)) >= 20)
    run(one, is_over)
    assert [int(place[1:-1]) for (place,) in reads(one, "one")] == list(range(1, 21))
    keys = [(int(a), int(place[1:-1])) for a, place, _ in reads(one)]
    assert keys == sorted((i % 3, i) for i in range(1, 21))


def test_a_role_that_quotes_all_names_reads_tables_as_any_other(database: Database, make_query: Any) -> None:
    """Each snapshot ended with the error that a table was altered meanwhile."""
    role, password = "quoting_role", "quoting"
    database.execute(
        f"drop role if exists {role}",
        f"create role {role} superuser login password '{password}'",
        f"alter role {role} set quote_all_identifiers = on",
        "create table t (id int primary key, r regtype)",
        "insert into t values (1, 'int8')",
    )
    one = make_query(snapshot_mode="initial", database_user=role, database_password=password, signal_data_collection="")
    try:
        run(one, lambda q: len(q.changes) == 1)
        database.execute("insert into t values (2, 'text')")
        run(one, lambda q: len(q.changes) == 2)
        assert [values for _, _, values in one.changes] == [(b"1", b"bigint"), (b"2", b"text")]
    finally:
        one.planner.close()
        with database.connect() as connection:
            connection.execute(f"drop owned by {role} cascade".encode())
