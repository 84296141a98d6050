"""Tables kept of a PostgreSQL are right also if the log carries less of its tables than a SELECT gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.errors import PrerequisiteError
from tests.fix_lake import Lake
from tests.fix_postgres import Database

TABLES = (
    "create table generated (id int primary key, a int, g int generated always as (a * 2) stored)",
    "create table base (id int primary key, v text)",
    "create table kid (primary key (id)) inherits (base)",
    "create table p (id int, d date, v text, primary key (id, d)) partition by range (d)",
    "create table p_1 partition of p for values from ('2024-01-01') to ('2025-01-01')",
    "create table p_2 partition of p for values from ('2025-01-01') to ('2026-01-01')",
    "create unlogged table fleeting (id int primary key)",
    "create table parts (id int primary key, a int, b int default 7)",
    "create table regions (id int primary key, region text)",
    "alter table regions replica identity full",
)


def write(number: int) -> tuple[str, ...]:
    """Insert rows into each table, whose key names the round, and update rows of the round before."""
    before = number - 1
    return (
        f"insert into generated (id, a) values ({number}, {number})",
        f"update generated set a = a + 10 where id = {before}",
        f"insert into base values ({number}, 'own')",
        f"insert into kid values ({number + 100}, 'kid')",
        f"update base set v = v || '+' where id in ({before}, {before + 100})",
        f"insert into p values ({number}, '2024-05-05', 'first'), ({number}, '2025-05-05', 'second')",
        f"update p set v = v || '+' where id = {before}",
        f"insert into fleeting values ({number})",
        f"insert into parts (id, a) values ({number}, {number})",
        f"update parts set a = a + 1, b = b + 1 where id = {before}",
        f"insert into regions values ({number}, 'us'), ({number + 100}, 'eu')",
        f"update regions set region = 'eu' where id = {before}",
        f"update regions set region = 'us' where id = {before + 100}",
    )


@pytest.mark.full
def test_a_copy_has_what_the_log_can_keep_up(
    lake: Callable[..., Lake], database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.connect() as connection:
        if connection.info.server_version < 150000:
            pytest.skip("lists of columns and filters of rows come with PostgreSQL 15")
    database.execute(*TABLES, *write(1))
    database.execute(
        "create publication dbz_publication for table generated, base, kid, p, parts (id, a), "
        "regions where (region = 'us')"
    )
    made = lake()
    made.run()
    for number in (2, 3):
        database.execute(*write(number))
        made.run()
    for table, source, columns in (
        ("generated", "generated", "id, a"),
        ("base", "only base", "*"),
        ("kid", "kid", "*"),
        ("p_1", "p_1", "*"),
        ("p_2", "p_2", "*"),
        ("parts", "parts", "id, a"),
        ("regions", "regions where region = 'us'", "*"),
    ):
        assert made.rows(f"public.{table}") == made.source(source, columns), table
    assert not any((made.path / f"public.{name}").exists() for name in ("p", "fleeting"))
    for table in ("generated", "base", "p", "fleeting", "parts", "regions"):
        assert f"public.{table}: " in caplog.text
    assert "public.kid: " not in caplog.text


@pytest.mark.full
def test_partitions_are_kept_as_their_root_where_changes_arrive_so(
    lake: Callable[..., Lake], database: Database
) -> None:
    database.execute(*TABLES[3:6], *(one for one in write(1) if " p " in one))
    made = lake(source_publish_via_partition_root="true")
    made.run()
    database.execute(*(one for one in write(2) if " p " in one))
    made.run()
    assert made.rows("public.p") == made.source("p")
    assert not (made.path / "public.p_1").exists()


def test_what_no_copy_can_follow_ends_the_start(lake: Callable[..., Lake], database: Database) -> None:
    database.execute(*TABLES[3:6], "create publication dbz_publication for table p_1")
    made = lake(source_table_include_list="public.p", source_publication_name="other")
    with pytest.raises(PrerequisiteError, match=r"public\.p: its changes arrive under the names of other tables"):
        made.run()
    made = lake(source_table_include_list="public.p_1,public.p_2")
    with pytest.raises(PrerequisiteError, match=r"public\.p_2: the publication does not have it"):
        made.run()


@pytest.mark.full
def test_old_rows_are_as_the_partition_has_them(lake: Callable[..., Lake], database: Database) -> None:
    """A root with identity FULL is over partitions with the default identity, and the reverse; values are large."""
    database.execute(
        *TABLES[3:6],
        "alter table p alter v set storage external",
        "alter table p replica identity full",
        "create table q (like p including all) partition by range (d)",
        "create table q_1 partition of q for values from ('2024-01-01') to ('2025-01-01')",
        "create table q_2 partition of q for values from ('2025-01-01') to ('2026-01-01')",
        "alter table q_1 replica identity full",
        *(
            f"insert into {name} select i, d, repeat('x', 3000) from generate_series(1, 4) i, "
            "(values (date '2024-05-05'), ('2025-05-05')) as days (d)"
            for name in ("p", "q")
        ),
    )
    made = lake(source_publish_via_partition_root="true")
    made.run()
    for name in ("p", "q"):
        database.execute(
            f"update {name} set v = 'short' where id = 1",
            f"update {name} set id = id + 10 where id = 2",
            f"update {name} set d = d - 300 where id = 3 and d > '2025-01-01'",
            f"delete from {name} where id = 4",
        )
    made.run()
    made.equals("p", "q")


def test_a_large_key_is_told_by_the_old_row(lake: Callable[..., Lake], database: Database) -> None:
    """A key that is stored apart is not in the new row of an update."""
    database.execute(
        "create table k (id text primary key, n int)",
        "alter table k alter id set storage external",
        "insert into k values (repeat('k', 2500), 1)",
    )
    made = lake()
    made.run()
    database.execute("update k set n = 2")
    made.run()
    made.equals("k")
