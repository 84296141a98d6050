"""Snapshots with few rights: how a consistent point is found, and that nobody waits for it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven
from tests.servers.mysql import MARIADB_11, MYSQL_8, PASSWORD, Version

READ = "select, replication slave, replication client"


@contextmanager
def user(database: MySqlDatabase, rights: str) -> Iterator[str]:
    name = f"u_{secrets.token_hex(4)}"
    database.execute(f"create user {name} identified by '{PASSWORD}'", f"grant {rights} on *.* to {name}")
    try:
        yield name
    finally:
        database.execute(f"drop user {name}")


@pytest.mark.parametrize(
    ("version", "rights", "is_exact"),
    [
        (MYSQL_8, f"{READ}, reload", True),
        (MYSQL_8, f"{READ}, lock tables", True),
        (MYSQL_8, READ, False),
        (MARIADB_11, READ, True),
    ],
    ids=["global lock", "table locks", "no lock", "own place"],
)
def test_rights_decide_how_a_point_is_taken_and_rows_come_out_right(
    version: Version,
    rights: str,
    is_exact: bool,
    make_mysql: Callable[[Version], MySqlDatabase],
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = make_mysql(version)
    database.execute("create table t (id int primary key, v int)")
    over = threading.Event()

    def write() -> None:
        with database.connect() as session, session.cursor() as cursor:
            number = 0
            while not over.is_set():
                number += 1
                cursor.execute(f"insert into t values ({number}, 1)")
                cursor.execute(f"update t set v = v + 1 where id <= {number} and id > {number - 3}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with user(database, rights) as name, driven(database, database_user=name) as query:
            query.until(lambda: any(row["op"] != "r" for row in query.of("t")))
            over.set()
            writer.join()
            count = len(database.execute("select 1 from t"))
            query.until(lambda: len({row["key"]["id"] for row in query.of("t")}) >= count)
            query.until(lambda: not query.batch())
    finally:
        over.set()
        writer.join()

    latest = {row["key"]["id"]: row["value"]["after"]["v"] for row in query.of("t")}
    assert latest == dict(database.execute("select id, v from t"))
    assert ("begins without a lock" in caplog.text) is not is_exact


def test_on_mariadb_nobody_waits_though_the_session_cannot_let_go(mariadb: MySqlDatabase) -> None:
    """A user without BINLOG ADMIN holds what it has read until its transaction ends."""
    values = ", ".join(f"({number})" for number in range(100))
    mariadb.execute("create table t (id int primary key)", f"insert into t values {values}")
    with user(mariadb, f"{READ}, process") as name, driven(mariadb, database_user=name) as query:
        query.batch()
        with mariadb.connect() as session, session.cursor() as cursor:
            cursor.execute("set lock_wait_timeout = 8")
            cursor.execute("alter table t add column w int default 5")
        query.until(lambda: len(query.of("t")) >= 100)
