"""The coverage of each kind of table, from a real catalog."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tailrace.config import TableFilter
from tailrace.connectors.postgres.schema import coverage
from tailrace.connectors.postgres.schema.catalog import Catalog, captured_tables
from tailrace.connectors.postgres.schema.coverage import Coverage
from tailrace.connectors.postgres.server import connection as connections
from tailrace.connectors.registry import parse
from tailrace.errors import PrerequisiteError
from tests.fix_postgres import Database

PARTITIONS = (
    "create table p (id int, d date, v text, primary key (id, d)) partition by range (d)",
    "create table p_1 partition of p for values from ('2024-01-01') to ('2025-01-01')",
    "create table p_2 partition of p for values from ('2025-01-01') to ('2026-01-01')",
)


def covered(database: Database, **options: str) -> tuple[dict[str, Coverage], Any]:
    """Return the coverage of the captured tables by name, and the tables that a copy has."""
    config = parse("postgres", database.options(**{"topic.prefix": "s", **options}))
    with connections.connect(config) as connection:
        captured = captured_tables(Catalog(connection, database.name).tables(), TableFilter(config))
        found = coverage.read(connection, config, captured)
    return {one.name.table: one for one in found.values()}, lambda: coverage.kept(found, captured)


def told(found: dict[str, Coverage], copies: bool = True) -> dict[str, str]:
    """Return the findings with the names of their tables, the level first."""
    texts = coverage.findings({one.oid: one for one in found.values()}, copies=copies)
    return {one.text.split(":")[0].removeprefix("public."): f"{one.level}: {one.text}" for one in texts}


@pytest.mark.parametrize("made", [True, False], ids=["published", "to be published"])
@pytest.mark.parametrize("mode", ["all_tables", "filtered"])
def test_changes_of_partitions_arrive_as_the_publication_says(database: Database, made: bool, mode: str) -> None:
    """The coverage before the publication is created equals the coverage after its creation."""
    database.execute(*PARTITIONS)
    for root in (False, True):
        options = {
            "publish.via.partition.root": str(root).lower(),
            "publication.autocreate.mode": mode,
            "publication.name": f"pub_{root}",
        }
        if made:
            listed = "all tables" if mode == "all_tables" else "table p, p_1, p_2"
            via = f"with (publish_via_partition_root = {str(root).lower()})"
            database.execute(f'create publication "pub_{root}" for {listed} {via}')
        found, kept = covered(database, **options)
        assert [str(one) for one in found["p"].arrives_as] == (["public.p"] if root else ["public.p_1", "public.p_2"])
        assert [str(one) for one in found["p_1"].arrives_as] == (["public.p"] if root else ["public.p_1"])
        assert [name.table for _, name, _ in kept()] == (["p"] if root else ["p_1", "p_2"])
        assert list(told(found)) == ["p"]


def test_a_table_whose_changes_have_an_uncaptured_name_is_no_copy(database: Database) -> None:
    database.execute(*PARTITIONS)
    _, kept = covered(database, **{"table.include.list": "public.p"})
    with pytest.raises(PrerequisiteError, match=r"public\.p: its changes arrive under the names of other tables"):
        kept()
    _, kept = covered(database, **{"table.include.list": "public.p_1", "publish.via.partition.root": "true"})
    with pytest.raises(PrerequisiteError, match=r"public\.p_1: .*\(public\.p\), which are not captured"):
        kept()


def test_each_kind_of_table_is_told_of_once(database: Database) -> None:
    with database.connect() as connection:
        version = connection.info.server_version
    database.execute(
        "create table plain (id int primary key, v text)",
        "create table generated (id int primary key, g int generated always as (id * 2) stored)",
        "create table base (id int primary key, v text)",
        "create table kid (primary key (id)) inherits (base)",
        "create table deferred (id int primary key deferrable initially deferred)",
        "create table keyless (v text)",
        "create table hidden (id int primary key)",
        "create unlogged table unlogged (id int primary key)",
        "alter table hidden enable row level security",
        "alter table hidden force row level security",
        "create table listed (id int primary key, a int, b int)",
        "create table filtered (id int primary key, region text)",
        "create table absent (id int primary key)",
    )
    tables = "plain, generated, base, kid, deferred, keyless, hidden"
    if version >= 150000:
        tables += ", listed (id, a), filtered where (region = 'us')"
    database.execute(f"create publication own for table {tables}")
    options = {"publication.name": "own", "publication.autocreate.mode": "disabled"}
    found, _ = covered(database, **options)
    assert found["generated"].uncarried == (("g", "generated and not published"),)
    assert found["base"].has_children
    assert not found["kid"].has_children
    assert "deferrable" in found["deferred"].refuses
    assert "no primary key" in found["keyless"].refuses
    assert not found["unlogged"].arrives_as
    if version >= 150000:
        assert found["listed"].uncarried == (("b", "not among the columns that the publication has"),)
        assert found["filtered"].rows is not None
        assert "region = 'us'" in found["filtered"].rows
        assert "plain" not in told(found)
        assert set(told(found)) == set(found) - {"plain", "kid", "hidden"}
        assert {name for name, text in told(found).items() if text.startswith("error")} == {"absent"}
        assert not any(text.startswith("error") for text in told(found, copies=False).values())


def test_a_role_from_which_rows_are_hidden_has_no_copy(database: Database) -> None:
    role = f"reader_{database.name}"
    database.execute(
        "create table t (id int primary key)",
        "alter table t enable row level security",
        "create publication dbz_publication for all tables",
        f"create role {role} login replication password '{role}'",
        f"grant select on t to {role}",
    )
    try:
        found, kept = covered(database, **{"database.user": role, "database.password": role})
        assert found["t"].hides_rows
        with pytest.raises(PrerequisiteError, match="row-level security hides rows of it"):
            kept()
        assert told(found, copies=False)["t"].startswith("warning")
    finally:
        database.execute(f"drop owned by {role}", f"drop role {role}")


@pytest.mark.parametrize(
    ("identity", "columns", "why"),
    [
        ("full", "", ""),
        ("full", "(id, a)", r"FULL, and b is not published"),
        ("nothing", "", "NOTHING"),
        ("using index t_b", "(id, a)", "the column b of the replica identity is not published"),
        ("using index t_b", "", ""),
    ],
)
def test_what_the_server_refuses_is_known_before(database: Database, identity: str, columns: str, why: str) -> None:
    with database.connect() as connection:
        if connection.info.server_version < 150000 and columns:
            pytest.skip("lists of columns come with PostgreSQL 15")
    database.execute(
        "create table t (id int primary key, a int, b int not null unique)",
        "alter index t_b_key rename to t_b",
        f"alter table t replica identity {identity}",
        "insert into t values (1, 1, 1)",
        f"create publication dbz_publication for table t {columns}",
    )
    found, _ = covered(database)
    assert (why in found["t"].refuses) if why else found["t"].refuses == ""
    with database.connect() as connection:
        if why:
            with pytest.raises(psycopg.DatabaseError):
                connection.execute("update t set a = 2")
        else:
            connection.execute("update t set a = 2")


def test_an_unlogged_table_is_left_out_of_a_publication_that_is_made(database: Database, query: Any) -> None:
    """The server refuses a publication that lists one, also as the child of another table."""
    database.execute(
        "create unlogged table fleeting (id int primary key)",
        "create table lasting (id int primary key)",
        "create unlogged table child () inherits (lasting)",
    )
    query(**{"publication.autocreate.mode": "filtered", "snapshot.mode": "no_data"}).step()
    with database.connect() as connection:
        listed = connection.execute("select tablename from pg_publication_tables").fetchall()
    assert listed == [("lasting",)]


def test_a_listed_publication_goes_on_to_publish_stored_columns(database: Database) -> None:
    """Its start sets the tables alone, and changes carry the columns that the publication's own option names."""
    with database.connect() as connection:
        if connection.info.server_version < 180000:
            pytest.skip("an older server publishes no generated columns")
    stored = "g int generated always as (id * 2) stored, w int generated always as (id * 3) virtual"
    database.execute(
        f"create table t (id int primary key, {stored})",
        f"create table p (id int primary key, {stored}) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (10)",
        "create publication own for table t with (publish_generated_columns = stored)",
    )
    for via_root in ("false", "true"):
        options = {"publication.name": "own", "publication.autocreate.mode": "filtered"}
        found, _ = covered(database, **options, **{"publish.via.partition.root": via_root})
        names = ["t", "p" if via_root == "true" else "p_1"]
        assert [found[name].uncarried for name in names] == [(("w", "generated and not published"),)] * 2


def test_a_partition_that_is_a_foreign_table_has_no_log(database: Database) -> None:
    database.execute(
        "create foreign data wrapper nothing",
        "create server elsewhere foreign data wrapper nothing",
        "create table p (id int, v text) partition by range (id)",
        "create table p_1 partition of p for values from (0) to (10)",
        "create foreign table p_2 partition of p for values from (10) to (20) server elsewhere",
    )
    found, kept = covered(database, **{"publish.via.partition.root": "true"})
    assert [one.table for one in found["p"].foreign] == ["p_2"]
    assert told(found, copies=False)["p"].startswith("warning")
    with pytest.raises(PrerequisiteError, match=r"partitions public\.p_2 do not arrive: they are foreign tables"):
        kept()


def test_views_in_the_lists_are_told(database: Database) -> None:
    database.execute(
        "create table t (id int primary key)",
        "create view shown as select * from t",
        "create materialized view stored as select * from t",
        "create view other as select * from t",
    )
    options = {"topic.prefix": "p", "table.include.list": r"public\.(t|shown|stored)"}
    config = parse("postgres", database.options() | options)
    with connections.connect(config) as connection:
        (one,) = coverage.unfit(connection, config, [])
        assert coverage.unfit(connection, parse("postgres", database.options(topic_prefix="p")), []) == []
    assert one.level == "warning"
    assert one.text.endswith(": public.shown (view), public.stored (materialized view).")


def test_two_tables_of_one_name_are_refused(database: Database) -> None:
    """Names with dots are written without quotes, so these two tables would be one."""
    database.execute(
        'create schema "a.b"', "create schema a", 'create table "a.b".c (id int)', 'create table a."b.c" ()'
    )
    config = parse("postgres", database.options(topic_prefix="p"))
    with connections.connect(config) as connection:
        tables = Catalog(connection, database.name).tables()
        (one,) = coverage.unfit(connection, config, tables)
    assert one.level == "error"
    assert '"a.b"."c"' in one.text
    assert '"a"."b.c"' in one.text


IDENTIFIED = (
    "create table t (id int primary key, code text not null unique, v text)",
    "alter table t replica identity using index t_code_key",
)
RENAMED = ("create table t (id int primary key, code text not null, v text)",)


@pytest.mark.parametrize(
    ("made", "options", "lacking"),
    [
        (IDENTIFIED, {}, "id"),
        (IDENTIFIED, {"message.key.columns": "public.t:code"}, ""),
        (RENAMED, {}, ""),
        (RENAMED, {"message.key.columns": "public.t:code"}, "code"),
        ((*RENAMED, "alter table t replica identity full"), {"message.key.columns": "public.t:code"}, ""),
        (
            (
                "create table t (id int, code text not null, primary key (id)) partition by range (id)",
                "create table t_1 partition of t (unique (code)) for values from (0) to (9)",
                "alter table t_1 replica identity using index t_1_code_key",
            ),
            {"publish.via.partition.root": "true"},
            "id",
        ),
    ],
    ids=["an index", "the index's key", "the primary key", "another key", "whole rows", "a partition's index"],
)
def test_a_key_that_old_rows_lack_is_told(
    database: Database, made: tuple[str, ...], options: dict[str, str], lacking: str
) -> None:
    """An update of the key would leave the old row in a copy, and a delete would find none."""
    database.execute(*made)
    texts = {"topic.prefix": "s", "table.include.list": "public.t,public.t_1"} | options
    for more, level in (({"row.copy": "true"}, "error"), ({"rows": "typed"}, "warning"), ({}, "warning")):
        config = parse("postgres", database.options(**texts, **more))
        with connections.connect(config) as connection:
            captured = captured_tables(Catalog(connection, database.name).tables(), TableFilter(config))
            found = coverage.read(connection, config, captured)
            without = coverage.unidentified(connection, config, found)
        told = coverage.findings(found, copies=bool(more), lacking=without, typed="rows" in more)
        shown = [(one.level, one.text) for one in told if "replica identity" in one.text]
        assert [level for level, _ in shown] == ([level] if lacking else [])
        assert all(f"its key has {lacking}, which the replica identity lacks" in text for _, text in shown)
