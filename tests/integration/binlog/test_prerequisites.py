"""Findings of `tailrace check` about servers of MySQL and MariaDB, and the demands of a start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.config import Config, parse
from tailrace.connectors.binlog.descriptor import MARIADB_CONNECTOR, MYSQL_CONNECTOR
from tailrace.connectors.binlog.offset import BinlogOffset
from tailrace.connectors.binlog.planner import OUTSIDE, BinlogSource
from tailrace.connectors.binlog.setup.prerequisites import check, demand
from tailrace.errors import PrerequisiteError
from tailrace.events.event_settings import EventSettings
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.test_sessions import configured
from tests.servers.mysql import MYSQL_57


def texts(config: Config, level: str) -> dict[str, list[str]]:
    """Return the findings of a level, by subject."""
    found: dict[str, list[str]] = {}
    for one in check(config):
        if one.level == level:
            found.setdefault(one.subject, []).append(f"{one.text} {one.remedy}")
    return found


def test_a_server_that_is_ready_has_only_good_findings(any_binlog_database: MySqlDatabase) -> None:
    any_binlog_database.execute("create table t (a int primary key)")
    config = configured(any_binlog_database)
    assert texts(config, "error") == {}
    is_old = any_binlog_database.server.version is MYSQL_57
    assert list(texts(config, "warning")) == (["definitions"] if is_old else [])
    good = texts(config, "ok")
    assert {"server", "log", "retention", "tables"} <= set(good)
    assert f"{any_binlog_database.name}.t" in good["tables"][0]
    demand(config)


def test_the_other_dialect_is_named(binlog_database: MySqlDatabase) -> None:
    other = MARIADB_CONNECTOR if binlog_database.server.dialect == "mysql" else MYSQL_CONNECTOR
    config = parse(other.traits, other.load_options(), binlog_database.options(), lambda name: "")
    with pytest.raises(PrerequisiteError, match="and the connector that of"):
        demand(config)


@pytest.fixture
def altered_globals(binlog_database: MySqlDatabase) -> Iterator[MySqlDatabase]:
    """Yield a database of a server whose log has not what capture needs."""
    server = binlog_database.server
    names = ("binlog_format", "binlog_row_image", "binlog_row_metadata")
    known = server.execute("select " + ", ".join(f"@@global.{name}" for name in names))[0]
    server.execute(
        "set global binlog_format='MIXED'",
        "set global binlog_row_image='MINIMAL'",
        "set global binlog_row_metadata='MINIMAL'",
    )
    yield binlog_database
    server.execute(*(f"set global {name}='{value}'" for name, value in zip(names, known, strict=True)))


def test_what_the_log_lacks_is_told(altered_globals: MySqlDatabase, caplog: pytest.LogCaptureFixture) -> None:
    altered_globals.execute("create table t (a int primary key)")
    config = configured(altered_globals)
    assert "binlog_format is MIXED" in texts(config, "error")["log"][0]
    warned = texts(config, "warning")
    assert "binlog_row_image is MINIMAL" in warned["log"][0]
    assert "binlog_row_metadata is MINIMAL" in warned["definitions"][0]
    with pytest.raises(PrerequisiteError, match="the log has statements instead of rows"):
        demand(config)
    altered_globals.server.execute("set global binlog_format='ROW'")
    source = BinlogSource(config, EventSettings.from_options(config), OUTSIDE)
    try:
        source.prepare(BinlogOffset())
    finally:
        source.close()
    assert "binlog_row_image is MINIMAL" in caplog.text
    assert "null or zero there, and so in copies by the sink jdbc" in caplog.text


def test_tables_that_are_not_kept_up_are_named(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table parent (a int primary key)",
        "create table child (a int primary key, foreign key (a) references parent (a) on delete cascade)",
        "create table keyless (a int)",
        "create table old (a int primary key) engine=MyISAM",
        "create table signals (id int, type varchar(32), data text)",
    )
    name = binlog_database.name
    config = configured(binlog_database, signal_data_collection=f"{name}.signals")
    warned = texts(config, "warning")
    assert f"Tables without a key: {name}.keyless" in warned["keys"][0]
    assert any(f"{name}.old (MyISAM)" in text for text in warned["tables"])
    assert any(f"cascade: {name}.child" in text for text in warned["tables"])
    assert "must be texts" in texts(config, "error")["signals"][0]


def test_views_and_values_that_a_copy_shows_alike_are_named(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute(
        "create table t (a datetime(6) primary key, b datetime(6))",
        "create table u (a decimal(12, 2) primary key)",
        "create view v as select * from t",
    )
    name = binlog_database.name
    more = {"table_include_list": rf"{name}\..*", "time_precision_mode": "connect", "decimal_handling_mode": "double"}
    assert "v (view)" in texts(configured(binlog_database, **more), "warning")["coverage"][0]
    assert "values" not in texts(configured(binlog_database, **more), "error")
    first, second = texts(configured(binlog_database, row_blocks="last", **more), "error")["values"]
    assert f"Two keys of {name}.t may become one in a copy: its column a has 6 digits of a second" in first
    assert f"Two keys of {name}.u may become one in a copy: its column a is shown as a double" in second


def test_rights_that_are_missing_are_named(binlog_database: MySqlDatabase) -> None:
    server, name = binlog_database.server, binlog_database.name
    binlog_database.execute("create table t (a int primary key, b int)")
    server.execute(
        "drop user if exists 'poor'@'%'", "create user 'poor'@'%' identified by 'poor'",
        f"grant select (a) on {name}.t to 'poor'@'%'",
    )  # fmt: skip
    try:
        config = configured(binlog_database, database_user="poor", database_password="poor")
        found = texts(config, "error")["rights"]
        right = "REPLICATION CLIENT" if server.dialect == "mysql" else "BINLOG MONITOR"
        assert any(f"it lacks {right}" in text for text in found)
        assert any("it lacks REPLICATION SLAVE" in text for text in found)
        server.execute(
            f"grant {right}, replication slave on *.* to 'poor'@'%'", f"grant select on {name}.* to 'poor'@'%'"
        )
        assert texts(config, "error") == {}
    finally:
        server.execute("drop user 'poor'@'%'")


def test_a_start_names_the_tables_that_are_not_kept_up(
    binlog_database: MySqlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """Also without `tailrace check`. What is written through a merged table has that table's name in the log."""
    name = binlog_database.name
    binlog_database.execute(
        "create table parent (a int primary key)",
        "create table child (a int primary key, foreign key (a) references parent (a) on delete cascade)",
        "create table old (a int primary key) engine=MyISAM",
        "create table older (a int primary key) engine=MyISAM",
        "create table newer (a int primary key) engine=MyISAM",
        "create table merged (a int primary key) engine=MERGE union=(old, older) insert_method=last",
    )
    binlog_database.execute("create view seen as select * from old")
    has_blackhole = binlog_database.server.dialect == "mysql"
    if has_blackhole:
        binlog_database.execute("create table nothing (a int primary key) engine=BLACKHOLE")
    config = configured(binlog_database, table_include_list=rf"{name}\.(?!older$).*")
    source = BinlogSource(config, EventSettings.from_options(config), OUTSIDE)
    try:
        source.prepare(BinlogOffset())
        # a server that is back says nothing new
        source.recover()
        source.prepare(BinlogOffset())
    finally:
        source.close()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    shown = " ".join(told)
    assert len(told) == len(set(told))
    assert f"cascade: {name}.child." in shown
    assert f"engines without transactions: {name}.newer (MyISAM), {name}.old (MyISAM)." in shown
    assert f"those behind them: {name}.merged, {name}.old." in shown
    assert (f"keep no rows: {name}.nothing (BLACKHOLE)." in shown) is has_blackhole
    assert f"what is no table, and no change of it arrives: {name}.seen (view)." in shown
    warned = texts(config, "warning")
    assert set(told) <= {*warned["tables"], *warned["coverage"]}
