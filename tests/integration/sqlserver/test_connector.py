"""The whole connector over the TDS test server loses nothing, whatever goes wrong in databases."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import ConnectionFailed, PositionLost, PrerequisiteError
from tdsserver.process import TestDatabase, TestServer
from tests.fix_capture import Event
from tests.integration.sqlserver.capturing import Capture

TABLE = "create table t (id int not null primary key, v nvarchar(20))"
BEGIN = ("exec sys.sp_cdc_enable_db",)
PLAIN = {
    "topic_prefix": "p",
    "key_converter_schemas_enable": "false",
    "value_converter_schemas_enable": "false",
    "include_schema_changes": "false",
}


def enabled(table: str, instance: str = "") -> str:
    named = f", @capture_instance = N'{instance}'" if instance else ""
    return f"exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{table}', @role_name = null{named}"


READY = (TABLE, *BEGIN, enabled("t"))


def shown(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return op, key and value of each event; a tombstone is only its key."""
    return [
        (event.payload["op"], *(event.payload["after"] or event.payload["before"]).values())
        if event.value is not None
        else (None, *event.id.values())
        for event in events
    ]


def inserted(*numbers: int) -> list[str]:
    return [f"insert into t values ({number}, N'v{number}')" for number in numbers]


@pytest.mark.parametrize(("form", "shown_as"), [("3", "not there"), ("1.0", None)])
def test_a_text_that_did_not_change_is_the_placeholder(
    sqlserver_database: TestDatabase, capture: Any, form: str, shown_as: str | None
) -> None:
    query = capture(
        "create table d (id int not null primary key, v int, words text)",
        *BEGIN,
        enabled("d"),
        **PLAIN,
        event_format=form,
        unavailable_value_placeholder="not there",
    )
    sqlserver_database.execute(
        "insert into d values (1, 1, 'kept')", "update d set v = 2", "insert into d (id) values (2)"
    )
    sqlserver_database.capture()
    # As the capture job writes unchanged values; the test server gives their values.
    sqlserver_database.execute("update cdc.dbo_d_CT set words = null where [__$operation] in (3, 4)")
    created, updated, bare = query.take(3)
    assert created.payload["after"]["words"] == "kept"
    assert updated.payload["after"] == {"id": 1, "v": 2, "words": shown_as}
    assert bare.payload["after"]["words"] is None


def test_what_a_change_table_leaves_out_and_nulls_are_read_again(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(
        "create table d (id int not null primary key, v int, words text)",
        *BEGIN,
        enabled("d"),
        **PLAIN,
        post_processors="again",
        again_type="io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        again_reselect_columns_include_list="dbo.d:words,dbo.d:v",
    )
    sqlserver_database.execute(
        "insert into d values (1, 1, 'kept'), (2, 1, 'gone'), (3, null, null)", "update d set v = 2 where id < 3",
        "delete from d where id = 2",
    )  # fmt: skip
    sqlserver_database.capture()
    sqlserver_database.execute(
        "update cdc.dbo_d_CT set words = null where [__$operation] in (3, 4)", "update d set v = 7 where id = 3"
    )
    found = [event.payload["after"] for event in query.take(8)[2:5]]
    assert found == [
        {"id": 3, "v": 7, "words": None},
        {"id": 1, "v": 2, "words": "kept"},
        {"id": 2, "v": 2, "words": "__debezium_unavailable_value"},
    ]


def test_batches_end_at_transactions_and_are_read_again_as_they_were(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*READY, **PLAIN)
    query.max_rows = 3
    sqlserver_database.execute(
        "insert into t values (1, N'a'), (2, N'a')", "insert into t values (3, N'a'), (4, N'a')", "delete from t"
    )
    sqlserver_database.capture()
    sizes = []
    while (end := query.plan()) != query.committed:
        first, again = query.read(end), query.read(end)
        query.restart()
        replayed = query.read(end)
        for other in (again, replayed):
            assert [(e.key, e.value, e.row["position"], e.row["ordinal"]) for e in without_times(other)] == [
                (e.key, e.value, e.row["position"], e.row["ordinal"]) for e in without_times(first)
            ]
        sizes.append(len([event for event in first if event.value is not None]))
        query.committed = end
    assert sizes == [2, 2, 4]


def without_times(events: list[Event]) -> list[Event]:
    for event in events:
        if event.value is not None:
            for name in ("ts_ms", "ts_us", "ts_ns"):
                event.payload.pop(name, None)
    return events


def test_several_databases_are_one_query(
    sqlserver_database: TestDatabase, make_sqlserver_database: Callable[..., TestDatabase], capture: Any
) -> None:
    other = make_sqlserver_database()
    other.execute(*READY)
    query = capture(*READY, others=(other,), **PLAIN)
    sqlserver_database.execute(*inserted(1))
    other.execute(*inserted(2))
    events = query.take(2)
    assert {event.topic: event.id["id"] for event in events} == {
        f"p.{sqlserver_database.name}.dbo.t": 1,
        f"p.{other.name}.dbo.t": 2,
    }
    query.restart()
    other.execute(*inserted(3))
    assert [event.source["db"] for event in query.take(1)] == [other.name]


def test_an_empty_change_table_stops_nothing(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY, "create table empty (id int not null primary key)", enabled("empty"), **PLAIN)
    sqlserver_database.execute(*inserted(1, 2))
    assert shown(query.take(2)) == [("c", 1, "v1"), ("c", 2, "v2")]


def test_a_stopped_agent_delays_and_loses_nothing(
    sqlserver: TestServer, sqlserver_database: TestDatabase, capture: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver.execute("exec master.dbo.xp_servicecontrol N'stop', N'SQLServerAgent'")
    try:
        sqlserver_database.execute(*inserted(1, 2))
        query.restart()
        with caplog.at_level(logging.WARNING, "tailrace"):
            query.step()
        assert query.events == []
        assert any("SQL Server Agent is not running" in record.getMessage() for record in caplog.records)
    finally:
        sqlserver.execute("exec master.dbo.xp_servicecontrol N'start', N'SQLServerAgent'")
    assert shown(query.take(2)) == [("c", 1, "v1"), ("c", 2, "v2")]


def test_a_table_without_capture_instance_is_told_and_read_once_it_has_one(
    sqlserver_database: TestDatabase, capture: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tailrace"):
        query = capture(*READY, "create table later (id int not null primary key)", **PLAIN)
    assert any("dbo.later" in record.getMessage() for record in caplog.records)
    sqlserver_database.execute("insert into later values (1)", *inserted(1))
    assert shown(query.take(1)) == [("c", 1, "v1")]
    sqlserver_database.execute(enabled("later"), "insert into later values (2)")
    assert shown(query.take(1)) == [("c", 2)]


def test_a_second_instance_takes_over_where_it_begins(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver_database.execute(*inserted(1), "alter table t add more int null", "insert into t values (2, N'b', 7)")
    sqlserver_database.capture()
    sqlserver_database.execute(enabled("t", "t_v2"), "insert into t values (3, N'c', 8)", "update t set more = 9")
    assert shown(query.take(6)) == [
        ("c", 1, "v1"),
        ("c", 2, "b"),
        ("c", 3, "c", 8),
        ("u", 1, "v1", 9),
        ("u", 2, "b", 9),
        ("u", 3, "c", 9),
    ]
    # The first one may be removed when it is read.
    sqlserver_database.execute(
        "exec sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'dbo_t'",
        "insert into t values (4, N'd', 10)",
    )
    query.restart()
    assert shown(query.take(1)) == [("c", 4, "d", 10)]


def test_an_instance_that_is_dropped_with_unread_changes_is_an_error(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver_database.execute(*inserted(1))
    sqlserver_database.capture()
    sqlserver_database.execute(
        "exec sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'",
        enabled("t"),
        *inserted(2),
    )
    sqlserver_database.capture()
    with pytest.raises(PositionLost, match="dbo_t") as caught:
        query.step()
    assert "snapshot.mode=when_needed" in caught.value.remedy


def test_a_position_that_is_cleaned_up_is_an_error_and_never_a_gap(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver_database.execute(*inserted(1, 2))
    sqlserver_database.capture()
    sqlserver_database.execute(*inserted(3))
    newest = sqlserver_database.capture()
    sqlserver_database.clean_up("dbo_t", newest)
    with pytest.raises(PositionLost):
        query.step()
    query.restart()
    with pytest.raises(PositionLost, match="cleaned up"):
        query.step()
    query.restart(snapshot_mode="when_needed")
    assert shown(query.take(3)) == [("r", 1, "v1"), ("r", 2, "v2"), ("r", 3, "v3")]
    sqlserver_database.execute("delete from t where id = 1")
    assert shown(query.take(2)) == [("d", 1, "v1"), (None, 1)]


def test_capture_that_is_not_enabled_is_an_error_with_its_remedy(sqlserver_database: TestDatabase) -> None:
    query = Capture([sqlserver_database], {"topic.prefix": "p"})
    with pytest.raises(PrerequisiteError, match="sp_cdc_enable_db"):
        query.step()


def test_a_restart_of_the_server_is_survived_by_planner_and_tasks(
    sqlserver: TestServer, sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*READY, retriable_restart_connector_wait_ms="200", **PLAIN)
    sqlserver_database.execute(*inserted(*range(50)))
    sqlserver_database.capture()
    end = query.plan()
    sqlserver.disconnect()
    away = threading.Thread(target=sqlserver.restart, args=(1.0,))
    away.start()
    query.events += query.read(end)
    query.committed = end
    away.join()
    sqlserver_database.execute(*inserted(50))
    assert [row[1] for row in shown(query.take(51))] == list(range(51))


def test_without_retries_a_lost_connection_ends_the_query(
    sqlserver: TestServer, sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*READY, errors_max_retries="0", **PLAIN)
    sqlserver.disconnect()
    with pytest.raises(ConnectionFailed, match="was lost"):
        query.step()


def test_a_clock_that_goes_back_changes_no_order(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver_database.execute(*inserted(1, 2))
    sqlserver_database.capture()
    sqlserver_database.execute(
        "update cdc.lsn_time_mapping set tran_end_time = '2020-01-01T00:00:00' where start_lsn = "
        "(select max(start_lsn) from cdc.lsn_time_mapping)"
    )
    events = query.take(2)
    assert shown(events) == [("c", 1, "v1"), ("c", 2, "v2")]
    times = [event.source["ts_ms"] for event in events]
    assert times[1] == 1577836800000 < times[0]


def test_a_commit_without_a_time_gets_that_of_the_one_before(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY, **PLAIN)
    sqlserver_database.execute(*inserted(1, 2, 3))
    sqlserver_database.capture()
    sqlserver_database.execute(
        "delete from cdc.lsn_time_mapping where start_lsn = (select max([__$start_lsn]) from cdc.dbo_t_CT where id = 2)"
    )
    events = query.take(3)
    times = [event.source["ts_ms"] for event in events]
    assert times[1] == times[0] <= times[2]


def test_the_servers_time_zone_is_taken_off() -> None:
    with TestServer(zone=120) as server:
        database = TestDatabase(server, "zoned")
        database.execute(*READY)
        for options in ({}, {"database.server.timezone": "+02:00"}):
            query = Capture([database], {"topic.prefix": "p", "include.schema.changes": "false", **options})
            query.step()
            began = time.time() * 1000
            database.execute(f"insert into t values ({len(options)}, null)")
            (event,) = query.take(1)
            # A datetime of the server differs by at most 1/300 s.
            assert began - 4 <= event.source["ts_ms"] <= time.time() * 1000 + 4
            query.planner.close()


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_rows_are_read_in_chunks_and_the_log_from_before_them(
    sqlserver_database: TestDatabase, capture: Any, mode: str
) -> None:
    query = capture(*READY, *inserted(*range(5)), snapshot_mode="initial", data_query_mode=mode, **PLAIN)
    sqlserver_database.execute("update t set v = N'new' where id = 4", "delete from t where id = 0")
    events = query.take(8)
    final: dict[int, Any] = {}
    for op, number, *rest in shown(events):
        final[number] = None if op in ("d", None) else rest[0]
    assert final == {0: None, 1: "v1", 2: "v2", 3: "v3", 4: "new"}
    assert [event.payload["op"] for event in events[:5]] == ["r"] * 5


def test_a_signal_starts_an_incremental_snapshot_beside_the_stream(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    database = sqlserver_database.name
    query = capture(
        *READY,
        "create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048) null)",
        enabled("signals"),
        *inserted(*range(10)),
        signal_data_collection=f"{database}.dbo.signals",
        incremental_snapshot_chunk_size="3",
        **PLAIN,
    )
    data = json.dumps({"type": "incremental", "data-collections": [f"{database}.dbo.t"]})
    sqlserver_database.execute(f"insert into signals values ('s1', 'execute-snapshot', '{data}')", *inserted(10))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len([e for e in query.events if read_of(e, "t")]) < 10:
        sqlserver_database.capture()
        query.step()
    reads = [event for event in query.events if read_of(event, "t")]
    assert {event.id["id"] for event in reads} - {10} == set(range(10))
    assert {event.source["snapshot"] for event in reads} == {"incremental"}
    assert any(event.row["table"] == "signals" for event in query.events)


def read_of(event: Event, table: str) -> bool:
    return event.value is not None and event.row["table"] == table and event.payload.get("op") == "r"


def test_tables_whose_names_differ_by_case_stay_apart(
    make_sqlserver_database: Callable[..., TestDatabase],
) -> None:
    database = make_sqlserver_database(collation="SQL_Latin1_General_CP1_CS_AS")
    database.execute(TABLE, "create table T (ID int not null primary key)", *BEGIN, enabled("t"), enabled("T"))
    query = Capture([database], {"topic.prefix": "p", "include.schema.changes": "false"})
    query.step()
    database.execute("insert into t values (1, null)", "insert into T values (2)")
    events = query.take(2)
    query.planner.close()
    assert {event.topic: event.payload["after"] for event in events} == {
        f"p.{database.name}.dbo.t": {"id": 1, "v": None},
        f"p.{database.name}.dbo.T": {"ID": 2},
    }


def test_message_key_columns_go_before_the_primary_key(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY, message_key_columns="dbo.t:v,id", **PLAIN)
    sqlserver_database.execute(*inserted(1))
    assert query.take(1)[0].id == {"v": "v1", "id": 1}
