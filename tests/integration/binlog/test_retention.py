"""The log that a server of MySQL or MariaDB keeps, and the command that tells it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tailrace.command import cli
from tailrace.connectors.binlog.log.position import number_of
from tailrace.connectors.binlog.planner import BinlogPlanner
from tailrace.connectors.binlog.retention import retention
from tailrace.events.event_settings import EventSettings
from tailrace.monitoring.status_file import FILE
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.test_sessions import configured
from tests.servers.mysql import MARIADB_11, MYSQL_8, Version
from tests.waiting import until


@contextmanager
def setting(database: MySqlDatabase, name: str, value: int) -> Iterator[None]:
    """Give a global variable another value inside the block."""
    server = database.server
    ((before,),) = server.execute(f"select @@global.{name}")
    server.execute(f"set global {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"set global {name} = {before}")


def test_the_oldest_file_and_the_time_for_which_files_are_kept(binlog_database: MySqlDatabase) -> None:
    began_s = time.time()
    with setting(binlog_database, "binlog_expire_logs_seconds", 7200):
        found = retention(configured(binlog_database))
        assert found.kept_s == found.lasts_s == 7200
        assert found.oldest_s is not None
        assert 0 < found.oldest_s <= began_s
        # the end of the log, for the bytes of lag
        files = {str(row[0]): int(row[1]) for row in binlog_database.server.execute("show binary logs")}
        last = max(files, key=number_of)
        assert found.newest is not None
        assert (found.newest["log"]["file"], found.newest["files"].keys()) == (last, files.keys())
        assert 4 < found.newest["log"]["end"] <= files[last]
    with setting(binlog_database, "binlog_expire_logs_seconds", 0):
        assert retention(configured(binlog_database)).lasts_s is None


def test_an_oldest_file_that_is_purged_gives_way_to_the_next_one(
    make_mysql: Callable[[Version], MySqlDatabase],
) -> None:
    database = make_mysql(MYSQL_8)
    before = retention(configured(database)).oldest_s
    assert before is not None
    # files tell whole seconds: the next one must begin in another second than the first
    time.sleep(1 - time.time() % 1)
    turned_s = int(time.time())
    database.server.execute("flush binary logs")
    files = [str(row[0]) for row in database.server.execute("show binary logs")]
    database.server.execute(f"purge binary logs to '{max(files, key=number_of)}'")
    after = retention(configured(database)).oldest_s
    assert after is not None
    assert before <= turned_s <= after


def test_the_size_to_which_a_log_is_limited_counts(make_mysql: Callable[[Version], MySqlDatabase]) -> None:
    database = make_mysql(MARIADB_11)
    with setting(database, "max_binlog_total_size", 1 << 40), setting(database, "binlog_expire_logs_seconds", 0):
        found = retention(configured(database))
        total = sum(int(row[1]) for row in database.server.execute("show binary logs"))
        assert found.kept_s is None
        assert found.oldest_s is not None
        assert found.lasting_s == pytest.approx((time.time() - found.oldest_s) * (1 << 40) / total, rel=0.2)
        assert "max_binlog_total_size" in found.setting


def test_a_look_does_not_disturb_a_reader_of_the_log(binlog_database: MySqlDatabase) -> None:
    binlog_database.execute("create table t (id int primary key)")
    config = configured(binlog_database, **{"snapshot.mode": "no_data", "poll.interval.ms": "200"})
    planner = BinlogPlanner(config, EventSettings.from_options(config, "run"))
    with closing(planner):
        at = planner.latest_offset(planner.initial_offset(), None, None)
        planner.latest_offset(at, None, None)
        for _ in range(3):
            assert retention(config).oldest_s is not None
        binlog_database.execute("insert into t values (1)")
        until(lambda: planner.latest_offset(at, None, None) != at, "the change")
        assert not planner.reading().setbacks


def test_the_command_says_how_long_the_log_is_kept_and_how_far_the_pipeline_is_behind(
    binlog_database: MySqlDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "application.properties", tmp_path / "checkpoint"
    given = binlog_database.options() | {"checkpoint.location": str(folder)}
    lines = [f"debezium.source.{name}={text}" for name, text in given.items()]
    dialect = binlog_database.server.dialect
    file.write_text("\n".join([*lines, f"debezium.source.connector.class={dialect}", "debezium.sink.type=console"]))
    with setting(binlog_database, "binlog_expire_logs_seconds", 36_000):
        assert cli.main(["slots", str(file)]) == 0
        shown = capsys.readouterr().out
        assert "A change that is written now is kept for 10 hours." in shown
        assert "no run has told it yet" in shown
        folder.mkdir()
        # the latest run was 5 hours behind when it ended 3 hours ago
        state = {"state": "ended", "at_s": time.time() - 3 * 3600, "log": {"behind_s": 5 * 3600.0}}
        (folder / FILE).write_text(json.dumps(state))
        assert cli.main(["slots", str(file)]) == 0
        shown = capsys.readouterr().out
        assert "warning  behind" in shown
        assert "The pipeline is 8 hours behind, 80 % of the 10 hours" in shown
        assert "raise binlog_expire_logs_seconds" in shown
    assert cli.main(["slots", str(file), "--drop", "x", "--yes"]) == 2
    assert "has no replication slots" in capsys.readouterr().err


def test_a_snapshot_under_a_global_lock_says_so(make_mysql: Callable[[Version], MySqlDatabase]) -> None:
    database = make_mysql(MYSQL_8)
    database.execute("create table t (id int primary key)", "insert into t values (1), (2)")
    config = configured(database, **{"snapshot.locking.mode": "extended"})
    planner = BinlogPlanner(config, EventSettings.from_options(config, "run"))

    def held() -> float:
        return planner.reading().attributes["snapshot"]["HoldingGlobalLock"]

    with closing(planner):
        start = planner.initial_offset()
        assert not held()
        end = planner.latest_offset(start, None, None)
        assert held()
        for task in planner.partitions(start, end):
            list(task.read())
        while end != start:
            start, end = end, planner.latest_offset(end, None, None)
        assert not held()
        assert planner.reading().attributes["streaming"]["BinlogPosition"] > 4
