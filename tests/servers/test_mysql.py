"""The servers of MySQL and MariaDB are what the tests take them for."""

from __future__ import annotations

from tests.fix_mysql import MySqlDatabase
from tests.servers.mysql import MARIADB_10, MYSQL_57, MySqlServer


def test_each_version_writes_rows_to_its_log(any_binlog_database: MySqlDatabase) -> None:
    server = any_binlog_database.server
    version, *others = server.execute(
        "select version(), @@binlog_format, @@binlog_row_image, @@server_id, @@time_zone, @@lower_case_table_names"
    )[0]
    assert version.startswith(server.version.name.split("-")[1])
    assert others == ["ROW", "FULL", 223344, "+00:00", 0]
    any_binlog_database.execute("create table t (a int primary key)", "insert into t values (1)")
    events = [row[2] for row in server.execute("show binlog events")]
    assert any(name.startswith("Write_rows") for name in events)
    if server.version is not MYSQL_57:
        assert server.execute("select @@binlog_row_metadata") == [("FULL",)]


def test_a_crash_loses_no_commit() -> None:
    with MySqlServer(MARIADB_10) as server:
        server.execute("create database d", "create table d.t (a int primary key)", "insert into d.t values (1)")
        server.kill()
        server.set(log_bin_compress="ON")
        server.start()
        assert server.execute("select a, @@log_bin_compress from d.t") == [(1, 1)]
