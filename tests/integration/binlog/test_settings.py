"""Servers whose settings are not those of the other tests: names in lower case, zones, limits, filters."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tailrace.connectors.binlog.setup import prerequisites
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven
from tests.integration.binlog.test_sessions import configured
from tests.servers.jars import Unavailable
from tests.servers.mysql import MARIADB_11, MYSQL_8, MySqlServer, Version

# What each session has to set for itself, whatever the server's own values are.
_ODD = {
    "lower_case_table_names": "1",
    "default-time-zone": "-07:30",
    "sql_mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT",
    "transaction-isolation": "READ-COMMITTED",
    "autocommit": "0",
    "wait_timeout": "7",
    "net_write_timeout": "1",
    "character-set-server": "latin1",
    "init_connect": "'SET sql_select_limit = 1'",
    "log-bin-trust-function-creators": "1",
}
_LIMITS: dict[str, dict[str, str]] = {"mysql": {"max_execution_time": "1"}, "mariadb": {}}
_MODE = "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"


@pytest.fixture(scope="module", params=[MYSQL_8, MARIADB_11], ids=lambda version: version.name)
def odd_server(request: pytest.FixtureRequest) -> Iterator[MySqlServer]:
    version: Version = request.param
    settings = _ODD | _LIMITS[version.dialect] | {"binlog_row_metadata": "MINIMAL"}
    try:
        with MySqlServer(version, **settings) as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def odd(odd_server: MySqlServer) -> MySqlDatabase:
    database = MySqlDatabase(odd_server, f"t_{secrets.token_hex(4)}")
    odd_server.execute(f"CREATE DATABASE {database.name} CHARACTER SET latin1")
    return database


def test_sessions_do_not_depend_on_the_servers_own_settings(odd: MySqlDatabase) -> None:
    odd.execute(
        "SET SESSION sql_select_limit = DEFAULT",
        "CREATE TABLE Cities (Id int PRIMARY KEY, v varchar(20), ts timestamp NULL, d datetime)",
        "INSERT INTO Cities VALUES (1, 'é', '2024-11-03 01:30:00', '2024-11-03 01:30:00'), (2, 'x', NULL, NULL)",
        "INSERT INTO Cities VALUES (3, 'a\\b', NULL, NULL)",
        "COMMIT",
    )
    with driven(odd, table_include_list=f"{odd.name}.Cities") as run:
        run.until(lambda: len(run.of("cities")) == 3)
        read = {row["value"]["after"]["Id"]: row["value"]["after"] for row in run.of("cities")}
        assert [read[number]["v"] for number in (1, 2, 3)] == ["é", "x", "a\\b"]
        # the server's zone is seven and a half hours behind; a DATETIME has none
        assert read[1]["ts"] == "2024-11-03T09:00:00Z"
        assert read[1]["d"] == 1730597400000
        odd.execute(
            _MODE,
            'ALTER TABLE "CITIES" ADD COLUMN "Note" varchar(9) DEFAULT \'a\\\' AFTER "Id"',
            "INSERT INTO cities (Id, v, ts) VALUES (4, 'y', '2024-11-03 01:30:00')",
            "COMMIT",
        )
        run.until(lambda: len(run.of("cities")) == 4)
        after = run.of("cities")[-1]["value"]["after"]
        assert after == {"Id": 4, "Note": "a\\", "v": "y", "ts": "2024-11-03T09:00:00Z", "d": None}


def test_a_database_that_the_server_leaves_out_of_its_log_is_an_error() -> None:
    try:
        with MySqlServer(MYSQL_8, binlog_ignore_db="hidden") as server:
            server.execute("CREATE DATABASE hidden", "CREATE TABLE hidden.t (id int PRIMARY KEY)")
            found = prerequisites.check(configured(MySqlDatabase(server, "hidden")))
            (error,) = [one for one in found if one.level == "error"]
            assert "leaves changes of hidden out of its log" in error.text
            server.execute("CREATE DATABASE shown", "CREATE TABLE shown.t (id int PRIMARY KEY)")
            shown = prerequisites.check(configured(MySqlDatabase(server, "shown")))
            assert [one.text for one in shown if one.level == "error"] == []
    except Unavailable as reason:
        pytest.skip(str(reason))
