"""Initial snapshots of MySQL and MariaDB: every row once, at one point, and the log from there on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tailrace.connectors.binlog import chunking
from tailrace.connectors.binlog.snapshot.point import HeldPoint, PointTaking
from tests.fix_mysql import MySqlDatabase
from tests.integration.binlog.driving import Driven, Row, driven


def fill(database: MySqlDatabase, table: str = "t", rows: int = 2000) -> None:
    database.execute(
        f"create table {table} (id int primary key, v varchar(20))",
        f"insert into {table} values " + ", ".join(f"({number}, 'v{number}')" for number in range(rows)),
        f"analyze table {table}",
    )


def state(rows: list[Row]) -> dict[int, Any]:
    """Return what a reader of the events has at their end."""
    found: dict[int, Any] = {}
    for row in rows:
        if row["value"] is None:
            continue
        before, after = row["value"]["before"], row["value"]["after"]
        if row["op"] in "cru":
            found[after["id"]] = after["v"]
        else:
            found.pop(before["id"], None)
    return found


def table_state(database: MySqlDatabase, table: str = "t") -> dict[int, Any]:
    return dict(database.execute(f"select id, v from {table}"))


@pytest.fixture
def binlog_database(todays_binlog_database: MySqlDatabase) -> MySqlDatabase:
    """Return a database of one of both, by the day."""
    return todays_binlog_database


def test_every_row_is_read_once_and_the_log_goes_on_behind_it(binlog_database: MySqlDatabase) -> None:
    fill(binlog_database)
    with driven(binlog_database) as query:
        query.until(lambda: len(query.of("t")) >= 2000)
        binlog_database.execute("insert into t values (9999, 'late')", "update t set v = 'new' where id = 7")
        query.until(lambda: len(query.of("t")) >= 2002)

    rows = query.of("t")
    assert Counter(row["key"]["id"] for row in rows if row["op"] == "r") == Counter(range(2000))
    assert [(row["op"], row["key"]["id"]) for row in rows[2000:]] == [("c", 9999), ("u", 7)]
    markers = Counter(row["value"]["source"]["snapshot"] for row in rows)
    assert (markers["first"], markers["last"], markers["false"]) == (1, 1, 2)
    assert {row["value"]["source"]["ts_us"] % 1_000_000 for row in rows if row["op"] == "r"} == {0}


def test_a_snapshot_beside_writers_shows_one_point(binlog_database: MySqlDatabase) -> None:
    """Pairs of rows are written in one transaction, and so are both in the snapshot or both behind it."""
    fill(binlog_database, "a", 500)
    fill(binlog_database, "b", 500)
    over = threading.Event()

    def write() -> None:
        with binlog_database.connect(autocommit=False) as session, session.cursor() as cursor:
            number = 10_000
            while not over.is_set():
                for table in ("a", "b"):
                    cursor.execute(f"insert into {table} values ({number}, 'pair')")
                session.commit()
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with driven(binlog_database) as query:
            query.until(lambda: len([row for row in query.of("b") if row["op"] == "c"]) > 5)
            over.set()
            writer.join()
            query.until(lambda: state(query.of("b")) == table_state(binlog_database, "b"))
            query.until(lambda: state(query.of("a")) == table_state(binlog_database, "a"))
    finally:
        over.set()
        writer.join()

    read = {table: [row["key"]["id"] for row in query.of(table) if row["op"] == "r"] for table in ("a", "b")}
    assert read["a"] == read["b"]
    for table in ("a", "b"):
        assert Counter(row["key"]["id"] for row in query.of(table) if row["op"] in "rc").most_common(1)[0][1] == 1


def test_a_crash_half_way_goes_on_with_the_chunks_that_are_missing(
    binlog_database: MySqlDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tailrace.connectors.binlog.snapshot.division.LEAST_CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr("tailrace.connectors.binlog.snapshot.division._LEAST_ROWS", 50)
    fill(binlog_database, rows=4000)
    binlog_database.execute("create table z (v int)", "insert into z values (1)")
    with driven(binlog_database, event_order_segments="1", max_batch_size="100") as query:
        for _ in range(3):
            query.batch()
        first = list(query.rows)
        offset = query.offset
    assert 0 < len(first) < 4000
    done = {row["key"]["id"] for row in first}
    binlog_database.execute(
        "delete from t where id % 3 = 0", "update t set v = 'changed' where id % 3 = 1",
        "insert into t values (10000, 'late')", "insert into z values (2)",
    )  # fmt: skip
    assert "rows may come twice" not in caplog.text

    with driven(binlog_database, offset, event_order_segments="1", max_batch_size="100") as query:
        query.rows += first
        query.until(lambda: state(query.of("t")) == table_state(binlog_database), 40)
        query.until(lambda: [row["value"]["after"]["v"] for row in query.of("z")].count(2) == 2)

    read = Counter(row["key"]["id"] for row in query.of("t") if row["op"] == "r")
    assert max(read.values()) == 1
    assert done < set(read)
    assert state(query.of("t")) == table_state(binlog_database)
    # what comes twice is told
    assert f"{binlog_database.name}.z: the snapshot reads" in caplog.text


def test_an_altering_statement_does_not_wait_for_the_snapshot(binlog_database: MySqlDatabase) -> None:
    fill(binlog_database)
    with driven(binlog_database) as query:
        query.batch()
        with binlog_database.connect() as session, session.cursor() as cursor:
            cursor.execute("set lock_wait_timeout = 2")
            cursor.execute("alter table t add column w int default 5")
        query.until(lambda: len(query.of("t")) >= 2000)


def rows_of(query: Driven, table: str, op: str) -> list[Any]:
    return [row["value"]["after"] for row in query.of(table) if row["op"] == op]


def test_a_statement_of_the_options_replaces_a_tables_rows(binlog_database: MySqlDatabase) -> None:
    fill(binlog_database, rows=10)
    name = f"{binlog_database.name}.t"
    with driven(
        binlog_database,
        plain={f"snapshot.select.statement.overrides.{name}": f"select * from {name} where id < 3"},
        snapshot_select_statement_overrides=name,
    ) as query:
        query.until(lambda: len(query.of("t")) >= 3)

    assert rows_of(query, "t", "r") == [{"id": number, "v": f"v{number}"} for number in range(3)]


def test_an_incremental_snapshot_by_the_signal_table(binlog_database: MySqlDatabase) -> None:
    fill(binlog_database, rows=50)
    name = binlog_database.name
    binlog_database.execute("create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))")
    with driven(
        binlog_database,
        snapshot_mode="no_data",
        signal_data_collection=f"{name}.signals",
        incremental_snapshot_chunk_size="20",
    ) as query:
        query.batch()
        binlog_database.execute(
            f"""insert into signals values ('s1', 'execute-snapshot', '{{"data-collections": ["{name}.t"]}}')"""
        )
        query.until(lambda: len(query.of("t")) >= 50)

    rows = query.of("t")
    assert {row["op"] for row in rows} == {"r"}
    assert sorted(row["key"]["id"] for row in rows) == list(range(50))
    assert {row["value"]["source"]["snapshot"] for row in rows} == {"incremental"}
    assert all(row["value"]["source"]["gtid"] for row in rows)


@pytest.mark.parametrize("read_only", [False, True], ids=["watermarks", "read.only"])
def test_windows_beside_writers_end_in_the_tables_state(
    binlog_database: MySqlDatabase, read_only: bool, tmp_path: Path
) -> None:
    fill(binlog_database, rows=300)
    name = binlog_database.name
    binlog_database.execute("create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))")
    over = threading.Event()
    signals = tmp_path / "signals"
    signals.write_text("")
    by_file = {"read_only": "true", "signal_enabled_channels": "file", "plain": {"signal.file": str(signals)}}
    channel: dict[str, Any] = by_file if read_only else {"signal_data_collection": f"{name}.signals"}

    def write() -> None:
        with binlog_database.connect() as session, session.cursor() as cursor:
            number = 0
            while not over.is_set():
                number += 7
                cursor.execute(f"update t set v = 'w{number}' where id = {number % 300}")
                cursor.execute(f"delete from t where id = {number * 3 % 300}")
                cursor.execute(f"replace into t values ({number * 5 % 300}, 'r{number}')")

    writer = threading.Thread(target=write)
    try:
        with driven(
            binlog_database,
            snapshot_mode="no_data",
            **channel,
            incremental_snapshot_chunk_size="10",
            incremental_snapshot_window_chunks="1",
        ) as query:
            query.batch()
            writer.start()
            data = {"data-collections": [f"{name}.t"]}
            if read_only:
                signals.write_text(json.dumps({"id": "s1", "type": "execute-snapshot", "data": data}) + "\n")
            else:
                values = f"('s1', 'execute-snapshot', '{json.dumps(data)}')"
                binlog_database.execute(f"insert into signals values {values}")
            query.until(lambda: query.offset.get("progress", {}).get("windows", 0) > 2)
            query.until(lambda: "state" not in query.offset.get("progress", {}), 60)
            over.set()
            writer.join()
            query.until(lambda: state(query.of("t")) == table_state(binlog_database))
            # rows are read between changes of their keys, never after newer ones
            assert any(row["op"] == "r" for row in query.of("t"))
            assert binlog_database.execute("select count(*) > 0 from signals") == [(not read_only,)]
    finally:
        over.set()
        if writer.ident is not None:
            writer.join()


@pytest.mark.parametrize("collection", ["", "with a condition"])
def test_a_blocking_snapshot_reads_a_table_again(binlog_database: MySqlDatabase, collection: str) -> None:
    fill(binlog_database, rows=5)
    name = binlog_database.name
    binlog_database.execute("create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))")
    data = f'{{"type": "blocking", "data-collections": ["{name}.t"]}}'
    if collection:
        only = f'[{{"data-collection": "{name}.t", "filter": "select * from {name}.t where id > 2"}}]'
        data = data[:-1] + f', "additional-conditions": {only}}}'
    with driven(binlog_database, signal_data_collection=f"{name}.signals") as query:
        query.until(lambda: len(query.of("t")) >= 5)
        binlog_database.execute(f"insert into signals values ('s1', 'execute-snapshot', '{data}')")
        query.until(lambda: len(query.of("t")) >= (7 if collection else 10))

    assert [row["id"] for row in rows_of(query, "t", "r")[5:]] == ([3, 4] if collection else list(range(5)))


def test_a_blocking_snapshot_waits_until_it_shows_what_was_delivered(
    binlog_database: MySqlDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first points are from before a change that was delivered, as on a server that shows a transaction later than
    its log has it."""
    caplog.set_level("INFO", "tailrace")
    fill(binlog_database, rows=5)
    name = binlog_database.name
    binlog_database.execute("create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))")
    earlier: list[HeldPoint] = []
    take, given = PointTaking.take, list[tuple[PointTaking, int]]()

    def taken(taking: PointTaking, count: int, tables: Sequence[tuple[str, str]]) -> HeldPoint:
        given.append((taking, count))
        return earlier.pop() if earlier else take(taking, count, tables)

    monkeypatch.setattr(PointTaking, "take", taken)
    monkeypatch.setattr(chunking, "_PATIENCE", 0.0)
    with driven(binlog_database, signal_data_collection=f"{name}.signals") as query:
        query.until(lambda: len(query.of("t")) >= 5)
        earlier += [take(*given[0], [(name, "t")]) for _ in range(2)]
        binlog_database.execute("update t set v = 'later' where id = 0")
        data = f'{{"type": "blocking", "data-collections": ["{name}.t"]}}'
        binlog_database.execute(f"insert into signals values ('s1', 'execute-snapshot', '{data}')")
        query.until(lambda: len(query.of("t")) >= 11)

    assert [row["v"] for row in rows_of(query, "t", "r") if row["id"] == 0][1:] == ["later"]
    assert not earlier
    assert "what the log has delivered is not visible yet" in caplog.text
    assert f"the blocking snapshot of {name}.t waits: the server does not show" in caplog.text
