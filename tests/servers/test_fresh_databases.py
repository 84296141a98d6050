"""A fresh database that is used again is as new, or it is not used again."""

from __future__ import annotations

import secrets

import pytest

from tests.fix_postgres import Database, Postgres, drop
from tests.servers.fresh_databases import FreshDatabases

RELATIONS = "select relname from pg_class where oid > 16383"


@pytest.fixture
def fresh(postgres: Postgres) -> FreshDatabases:
    """The fresh databases of the server, which is the tests' own."""
    if postgres.fresh is None:
        pytest.skip("the server is not the tests' own")
    return postgres.fresh


def name() -> str:
    return f"test_{secrets.token_hex(4)}"


def test_a_database_that_is_given_back_is_as_new(postgres: Postgres, fresh: FreshDatabases) -> None:
    used, again = name(), name()
    fresh.take(used)
    database = Database(postgres, used)
    database.execute(
        "create table t (id serial primary key, v text)",
        "create schema other",
        "create type other.mood as enum ('fine')",
        "create function public.f() returns event_trigger language plpgsql as 'begin end'",
        "create event trigger e on ddl_command_end execute function public.f()",
        "create publication p for all tables",
        f"alter database {used} set work_mem = '1MB'",
        "comment on schema public is 'mine'",
        "drop schema public cascade",
    )
    assert fresh.give_back(used)
    fresh.take(again)
    with Database(postgres, again).connect() as connection:
        assert connection.execute("select datname from pg_database where datname = %s", [used]).fetchone() is None
        assert connection.execute(RELATIONS).fetchall() == []
        connection.execute("create table t (id int)")
    drop(postgres, again)


@pytest.mark.parametrize(
    "statement",
    [
        "revoke execute on function pg_catalog.now() from public",
        "grant create on database {} to public",
        "select lo_create(0)",
        "create cast (json as bytea) without function",
        "alter default privileges grant select on tables to public",
        "comment on function pg_catalog.now() is 'mine'",
        "alter role postgres in database {} set work_mem = '1MB'",
    ],
)
def test_a_database_that_is_changed_for_good_is_not_used_again(
    postgres: Postgres, fresh: FreshDatabases, statement: str
) -> None:
    used = name()
    fresh.take(used)
    Database(postgres, used).execute(statement.format(used))
    assert not fresh.give_back(used)
    drop(postgres, used)
