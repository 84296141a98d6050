"""Incremental snapshots of MySQL and MariaDB: channels, watermarks, conditions, lost sessions and changed tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.binlog.setup import prerequisites
from tailrace.errors import PrerequisiteError
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import Driven, driven
from tests.integration.binlog.test_sessions import configured
from tests.servers.mysql import MARIADB_11, MYSQL_8, Version

SIGNALS = "create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048), at datetime null)"


@pytest.fixture
def database(todays_binlog_database: MySqlDatabase) -> MySqlDatabase:
    """A database with 50 rows and a signal table."""
    values = ", ".join(f"({number}, 'v{number}')" for number in range(50))
    todays_binlog_database.execute(
        "create table t (id int primary key, v varchar(20))", f"insert into t values {values}", SIGNALS
    )
    return todays_binlog_database


def send(database: MySqlDatabase, kind: str, id_: str, **data: Any) -> None:
    fields = {name.replace("_", "-"): value for name, value in data.items()}
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("insert into signals (id, type, data) values (%s, %s, %s)", (id_, kind, json.dumps(fields)))


def ended(query: Driven) -> bool:
    progress = query.offset.get("progress", {})
    return progress.get("windows", 0) > 0 and "state" not in progress


def keys(query: Driven) -> list[int]:
    return [row["key"]["id"] for row in query.of("t") if row["op"] == "r"]


def test_a_read_only_snapshot_by_a_file_writes_nothing(database: MySqlDatabase, tmp_path: Path) -> None:
    file = tmp_path / "signals"
    file.write_text("")
    database.execute("insert into t values (100, 'first')")
    before = database.execute("select count(*) from signals")
    with driven(
        database, snapshot_mode="no_data", read_only="true", signal_enabled_channels="file",
        plain={"signal.file": str(file)}, incremental_snapshot_chunk_size="20",
    ) as query:  # fmt: skip
        query.batch()
        signal = {"id": "f1", "type": "execute-snapshot", "data": {"data-collections": [f"{database.name}.t"]}}
        file.write_text(json.dumps(signal) + "\n")
        query.until(lambda: ended(query))

    assert sorted(keys(query)) == [*range(50), 100]
    assert database.execute("select count(*) from signals") == before


def test_without_ids_of_transactions_a_read_only_snapshot_is_refused(
    make_mysql: Callable[[Version], MySqlDatabase], tmp_path: Path
) -> None:
    database = make_mysql(MYSQL_8)
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    file = tmp_path / "signals"
    file.write_text("")
    given = {"signal.file": str(file)}
    modes = ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"]
    try:
        for mode in modes:
            database.server.execute(f"set global gtid_mode = {mode}")
        options = {"snapshot_mode": "no_data", "read_only": "true", "signal_enabled_channels": "file"}
        findings = prerequisites.check(configured(database, **options))
        assert "read-only incremental snapshots need GTIDs" in " ".join(one.text for one in findings)
        with driven(database, plain=given, **options) as query:
            query.batch()
            signal = {"id": "f1", "type": "execute-snapshot", "data": {"data-collections": [f"{database.name}.t"]}}
            file.write_text(json.dumps(signal) + "\n")
            with pytest.raises(PrerequisiteError, match="needs transaction ids, and this server has none"):
                query.until(lambda: ended(query))
    finally:
        for mode in [*reversed(modes[:-1]), "ON"]:
            database.server.execute(f"set global gtid_mode = {mode}")


def test_watermarks_are_deleted_if_the_options_say_so(database: MySqlDatabase) -> None:
    with driven(
        database, snapshot_mode="no_data", signal_data_collection=f"{database.name}.signals",
        incremental_snapshot_watermarking_strategy="insert_delete",
    ) as query:  # fmt: skip
        query.batch()
        send(database, "execute-snapshot", "s1", data_collections=[f"{database.name}.t"])
        query.until(lambda: ended(query))

    assert sorted(keys(query)) == list(range(50))
    assert database.execute("select id from signals") == [("s1",)]


def test_a_condition_and_a_surrogate_key_choose_and_order_rows(database: MySqlDatabase) -> None:
    database.execute("create table keyless (id int, v varchar(9))", "insert into keyless select id % 5, v from t")
    name = database.name
    with driven(
        database, snapshot_mode="no_data", signal_data_collection=f"{name}.signals",
        incremental_snapshot_chunk_size="7",
    ) as query:  # fmt: skip
        query.batch()
        condition = {"data-collection": f"{name}.t", "filter": "id % 2 = 0 and v <> 'v4'"}
        send(database, "execute-snapshot", "s1", data_collections=[f"{name}.t"], additional_conditions=[condition])
        query.until(lambda: ended(query))
        send(database, "execute-snapshot", "s2", data_collections=[f"{name}.keyless"], surrogate_key="id")
        query.until(lambda: len(query.of("keyless")) >= 50)

    assert sorted(keys(query)) == [number for number in range(0, 50, 2) if number != 4]
    assert [row["value"]["after"]["id"] for row in query.of("keyless")] == sorted(number % 5 for number in range(50))


def test_pause_resume_and_stop(database: MySqlDatabase) -> None:
    with driven(
        database, snapshot_mode="no_data", signal_data_collection=f"{database.name}.signals",
        incremental_snapshot_chunk_size="5", incremental_snapshot_window_chunks="1",
    ) as query:  # fmt: skip
        query.batch()
        send(database, "execute-snapshot", "s1", data_collections=[f"{database.name}.t"])
        query.until(lambda: bool(keys(query)))
        send(database, "pause-snapshot", "s2")
        query.until(lambda: query.offset["progress"]["state"].get("paused", False))
        while query.batch():
            pass
        paused = len(keys(query))
        assert 0 < paused < 50
        send(database, "resume-snapshot", "s3")
        query.until(lambda: len(keys(query)) > paused)
        send(database, "stop-snapshot", "s4", type="incremental")
        query.until(lambda: "state" not in query.offset.get("progress", {}))


@pytest.mark.parametrize("condition", ["id > 1 -- x", "1) or (1", "id = 1; drop table t", "v = '\\\\'"])
def test_a_condition_that_could_be_more_is_refused(database: MySqlDatabase, condition: str) -> None:
    name = database.name
    with driven(database, snapshot_mode="no_data", signal_data_collection=f"{name}.signals") as query:
        query.batch()
        given = [{"data-collection": f"{name}.t", "filter": condition}]
        send(database, "execute-snapshot", "s1", data_collections=[f"{name}.t"], additional_conditions=given)
        send(database, "execute-snapshot", "s2", data_collections=[f"{name}.signals"])
        query.until(lambda: any(row["op"] == "r" for row in query.of("signals")))

    assert keys(query) == []


def test_a_session_that_is_killed_is_followed_by_another(database: MySqlDatabase) -> None:
    with driven(
        database, snapshot_mode="no_data", signal_data_collection=f"{database.name}.signals",
        incremental_snapshot_chunk_size="5", incremental_snapshot_window_chunks="1",
    ) as query:  # fmt: skip
        query.batch()
        send(database, "execute-snapshot", "s1", data_collections=[f"{database.name}.t"])
        query.until(lambda: bool(keys(query)))
        assert query.planner._source.incremental is not None  # type: ignore[attr-defined]
        number = query.planner._source.incremental._sessions._session.thread_id()  # type: ignore[attr-defined]
        database.execute(f"kill {number}")
        query.until(lambda: "state" not in query.offset.get("progress", {}), 40)

    assert set(keys(query)) == set(range(50))


@pytest.mark.parametrize("version", [MYSQL_8, MARIADB_11], ids=lambda version: version.name)
def test_a_table_that_is_altered_meanwhile_is_read_as_it_is(
    version: Version, make_mysql: Callable[[Version], MySqlDatabase]
) -> None:
    database = make_mysql(version)
    values = ", ".join(f"({number}, 'v')" for number in range(40))
    database.execute("create table t (id int primary key, v varchar(20))", f"insert into t values {values}", SIGNALS)
    with driven(
        database, snapshot_mode="no_data", signal_data_collection=f"{database.name}.signals",
        incremental_snapshot_chunk_size="5", incremental_snapshot_window_chunks="1",
    ) as query:  # fmt: skip
        query.batch()
        send(database, "execute-snapshot", "s1", data_collections=[f"{database.name}.t"])
        query.until(lambda: bool(keys(query)))
        database.execute("alter table t add column w int not null default 7 first")
        query.until(lambda: "state" not in query.offset.get("progress", {}), 40)

    rows = query.of("t")
    assert {row["key"]["id"] for row in rows} == set(range(40))
    assert rows[-1]["value"]["after"] == {"w": 7, "id": 39, "v": "v"}
