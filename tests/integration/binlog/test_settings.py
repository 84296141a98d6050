"""Servers whose settings are not those of the other tests: names in lower case, zones, limits, filters."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tailrace.connectors.binlog.setup import prerequisites
from tailrace.errors import PrerequisiteError
from tests.extent import by_day
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import driven
from tests.integration.binlog.test_sessions import configured
from tests.servers.jars import Unavailable
from tests.servers.mysql import MARIADB_11, MYSQL_8, PASSWORD, USER, MySqlServer, Version

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


@pytest.mark.parametrize("version", by_day((MYSQL_8, MARIADB_11), 2), ids=lambda version: version.name)
def test_hours_that_come_twice_or_never_change_no_value(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    settings = {"default-time-zone": "SYSTEM", "sql_mode": "''"}
    with MySqlServer(version, **settings) as server:
        assert server.execute("select timediff(from_unixtime(1729992600), '2024-10-27 01:30:00')") == [
            (timedelta(hours=1),)
        ]
        server.execute("create database zones")
        database = MySqlDatabase(server, "zones")
        tables = [f"create table {name} (ts timestamp primary key, d datetime)" for name in ("early", "late")]
        # 2:30 comes twice in October, and never in March
        twice = "('2024-10-27 00:30:00', '2024-10-27 02:30:00'), ('2024-10-27 01:30:00', '2024-10-27 02:30:00')"
        never = "('2024-03-31 02:30:00', '2024-03-31 02:30:00')"

        def fill(name: str) -> None:
            insert = f"insert into {name} values"
            database.execute(
                "set time_zone = '+00:00'", f"{insert} {twice}", "set time_zone = 'SYSTEM'", f"{insert} {never}"
            )

        database.execute(*tables)
        fill("early")
        with driven(database) as run:
            run.until(lambda: len(run.of("early")) == 3)
            fill("late")
            run.until(lambda: len(run.of("late")) == 3)
        read, logged = (
            sorted(list(row["value"]["after"].items()) for row in run.of(name)) for name in ("early", "late")
        )
        assert read == logged
        assert [dict(row)["ts"] for row in read] == [
            "2024-03-31T01:00:00Z", "2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z"
        ]  # fmt: skip
        assert [dict(row)["d"] for row in read] == [1711852200000, 1729996200000, 1729996200000]


def test_names_in_upper_case_are_refused_where_the_log_has_none(odd: MySqlDatabase) -> None:
    odd.execute("CREATE TABLE Signals (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048))")
    named = {"signal_data_collection": f"{odd.name}.Signals"}
    found = [one for one in prerequisites.check(configured(odd, **named)) if one.level == "error"]
    assert [one.remedy for one in found] == [f"Write {odd.name}.signals."]
    with pytest.raises(PrerequisiteError, match="has names in lower case"), driven(odd, **named) as run:
        run.batch()
    # signals name tables as they are
    with driven(odd, signal_data_collection=f"{odd.name}.signals", snapshot_mode="no_data") as run:
        run.batch()
        odd.execute("INSERT INTO SIGNALS VALUES ('s', 'log', '{\"message\": \"seen\"}')", "COMMIT")
        run.until(lambda: bool(run.of("signals")))
    # but for tables that they name in full, which have the server's spelling
    tables = [f"CREATE TABLE {name} (Id int PRIMARY KEY)" for name in ("First", "Later")]
    odd.execute(*tables, "INSERT INTO Later VALUES (1)", "COMMIT")
    lists = {"table_include_list": f"{odd.name}.first", "signal_data_collection": f"{odd.name}.signals"}
    with driven(odd, snapshot_mode="no_data", **lists) as run:
        run.batch()
        names = f'{{"data-collections": ["{odd.name.upper()}.LATER"]}}'
        odd.execute(f"INSERT INTO SIGNALS VALUES ('a', 'add-tables', '{names}')", "COMMIT")
        run.until(lambda: bool(run.of("later")))
        assert run.offset["progress"]["tables"]["added"] == [[odd.name, "later"]]
        odd.execute("INSERT INTO Later VALUES (2)", "COMMIT")
        run.until(lambda: [row["op"] for row in run.of("later")] == ["r", "c"])


def test_names_of_the_catalog_that_the_log_has_otherwise_are_refused(
    mysql: MySqlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only file systems of other platforms let a server have the value 2
    mysql.execute("CREATE TABLE Mixed (id int PRIMARY KEY)", "CREATE TABLE plain (id int PRIMARY KEY)")
    known = prerequisites.variables
    monkeypatch.setattr(
        prerequisites,
        "variables",
        lambda session, *names: known(session, *names) | ({"lower_case_table_names": "2"} if len(names) == 1 else {}),
    )
    with pytest.raises(PrerequisiteError, match=r"other names than the catalog .*Mixed"), driven(mysql) as run:
        run.batch()
    with driven(mysql, table_exclude_list=f"{mysql.name}.mixed") as run:
        run.batch()


_FOLLOW = {
    "mysql": "change master to {source}, master_auto_position=1",
    "mariadb": "change master to {source}, master_use_gtid=slave_pos",
}


@pytest.mark.parametrize("version", by_day((MYSQL_8, MARIADB_11), 2), ids=lambda version: version.name)
def test_a_replica_is_read_as_its_source_and_refused_without_its_changes(
    version: Version, make_mysql: Callable[[Version], MySqlDatabase]
) -> None:
    database = make_mysql(version)
    source, dialect = database.server, version.dialect
    place = f"master_host='127.0.0.1', master_port={source.port}, master_user='{USER}', master_password='{PASSWORD}'"
    ids = "select @@gtid_executed" if dialect == "mysql" else "select @@gtid_binlog_pos"
    with MySqlServer(version, **{"server-id": "7"}) as server:
        before = str(source.execute(ids)[0][0]).replace("\n", "")
        name = "gtid_purged" if dialect == "mysql" else "gtid_slave_pos"
        server.execute("reset master", f"set global {name}='{before}'", f"create database {database.name}")
        if dialect == "mysql":
            server.execute("reset master", f"set global {name}='{before}'")
        server.execute(_FOLLOW[dialect].format(source=place), "start slave")
        database.execute("create table t (id int primary key)", "insert into t values (1)")
        reached = str(source.execute(ids)[0][0]).replace("\n", "")
        waits = "wait_for_executed_gtid_set" if dialect == "mysql" else "master_gtid_wait"
        assert server.execute(f"select {waits}('{reached}', 60)")[0][0] == 0
        replica = MySqlDatabase(server, database.name)
        found = prerequisites.check(configured(replica))
        assert [one.text for one in found if "replica" in one.text] == [
            "The server is a replica and is 0 s behind its source: changes come when it has applied them."
        ]
        with driven(replica) as run:
            run.until(lambda: len(run.of("t")) == 1)
            database.execute("insert into t values (2)")
            run.until(lambda: len(run.of("t")) == 2)
            origin = run.of("t")[-1]["value"]["source"]
            # the transaction is its source's
            newest = str(source.execute(ids)[0][0]).replace("\n", "")
            assert origin["server_id"] == 223344
            if dialect == "mysql":
                assert server.execute(f"select gtid_subset('{origin['gtid']}', '{newest}')")[0][0] == 1
            else:
                assert origin["gtid"] in newest.split(",")
        server.execute("stop slave")
        stopped = prerequisites.check(configured(replica))
        assert "does not apply its source's log" in next(one.text for one in stopped if one.level == "warning")
        server.stop()
        server.set(log_slave_updates="OFF")
        server.start()
        with pytest.raises(PrerequisiteError, match="is a replica, and its log lacks"):
            prerequisites.demand(configured(replica))


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
