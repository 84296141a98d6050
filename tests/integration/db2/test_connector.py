"""The whole connector on Derby: types, snapshots, restarts, signals, and what goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.errors import ConnectionFailed, PositionLost
from tests.fix_db2 import Db2Database
from tests.integration.db2.driving import Query, Record

Make = Callable[..., Query]
TYPES = """CREATE TABLE MYSCHEMA.TYPES (ID INTEGER NOT NULL PRIMARY KEY, SMALL SMALLINT, BIG BIGINT,
    AMOUNT DECIMAL(9,2), WIDE DECIMAL(31,10), R REAL, F DOUBLE, C CHAR(5), V VARCHAR(20), L LONG VARCHAR,
    D DATE, T TIME, TS TIMESTAMP, CB CHAR(3) FOR BIT DATA, VB VARCHAR(9) FOR BIT DATA)"""
VALUES = """(1, -5, 9223372036854775807, 0.50, -123456789.0000000001, 1.1, 2.5E30, 'ab', 'žluť', 'long', '2026-01-02',
    '03:04:05', '2026-01-02 03:04:05.123456', X'010203', X'00ff')"""
SHOWN = {
    "ID": 1, "SMALL": -5, "BIG": 9223372036854775807, "AMOUNT": "0.50", "WIDE": "-123456789.0000000001", "R": 1.1,
    "F": 2.5e30, "C": "ab   ", "V": "žluť", "L": "long", "D": 20455, "T": 11045000, "TS": 1767323045123456,
    "CB": "AQID", "VB": "AP8=",
}  # fmt: skip


def ops(records: list[Record]) -> list[str]:
    return [record.op for record in records]


@pytest.fixture
def types(db2: Db2Database) -> Db2Database:
    db2.execute("CREATE SCHEMA MYSCHEMA", TYPES)
    db2.capture.register("MYSCHEMA", "TYPES")
    return db2


def test_every_type_is_shown_alike_by_snapshot_and_stream(types: Db2Database, query: Make) -> None:
    types.capture.run(f"INSERT INTO MYSCHEMA.TYPES VALUES {VALUES}", "INSERT INTO MYSCHEMA.TYPES (ID) VALUES 2")
    stream = query(decimal_handling_mode="string")
    read = {record.key["ID"]: record.payload["after"] for record in stream.drain()}
    types.capture.run("DELETE FROM MYSCHEMA.TYPES")
    deleted = {record.key["ID"]: record.payload["before"] for record in stream.drain() if record.value}
    assert read == deleted
    assert read[1] == SHOWN
    assert read[2] == dict.fromkeys(SHOWN) | {"ID": 2}


def test_nulls_are_read_again_where_a_post_processor_asks_for_them(types: Db2Database, query: Make) -> None:
    stream = query(
        post_processors="again",
        again_type="io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        again_reselect_columns_include_list="MYSCHEMA.TYPES:(V|SMALL)",
    )
    stream.drain()
    types.capture.run(
        "INSERT INTO MYSCHEMA.TYPES (ID, SMALL) VALUES (1, 5), (2, 5)", "DELETE FROM MYSCHEMA.TYPES WHERE ID = 2"
    )
    types.execute("UPDATE MYSCHEMA.TYPES SET V = 'new', SMALL = 6")
    found = [record.payload["after"] for record in stream.drain()[:2]]
    assert [(row["ID"], row["SMALL"], row["V"]) for row in found] == [(1, 5, "new"), (2, 5, None)]


def test_types_have_the_schemas_of_the_reference(types: Db2Database, query: Make) -> None:
    types.capture.run("INSERT INTO MYSCHEMA.TYPES (ID) VALUES 2")
    (record,) = query(schemas=True).drain()
    fields = record.value["schema"]["fields"][1]["fields"]
    shown = {field["field"]: (field["type"], field.get("name")) for field in fields}
    assert shown == {
        "ID": ("int32", None), "SMALL": ("int16", None), "BIG": ("int64", None),
        "AMOUNT": ("bytes", "org.apache.kafka.connect.data.Decimal"),
        "WIDE": ("bytes", "org.apache.kafka.connect.data.Decimal"), "R": ("float", None), "F": ("double", None),
        "C": ("string", None), "V": ("string", None), "L": ("string", None), "D": ("int32", "io.debezium.time.Date"),
        "T": ("int32", "io.debezium.time.Time"), "TS": ("int64", "io.debezium.time.MicroTimestamp"),
        "CB": ("bytes", None), "VB": ("bytes", None),
    }  # fmt: skip
    assert [field["field"] for field in fields if not field["optional"]] == ["ID"]


def test_large_objects_come_with_the_snapshot(db2: Db2Database, query: Make) -> None:
    # With a column of bytes beside them, as in a change table, Derby cannot send them to this driver, and neither where
    # they may be larger than LOBCacheSize.
    db2.execute(
        "CREATE SCHEMA MYSCHEMA",
        "CREATE TABLE MYSCHEMA.DOCS (ID INTEGER NOT NULL PRIMARY KEY, T CLOB(20K), B BLOB(20K))",
    )
    db2.execute(f"INSERT INTO MYSCHEMA.DOCS VALUES (1, '{'ž' * 5000}', CAST(X'{'00ff' * 3000}' AS BLOB))")
    db2.execute("INSERT INTO MYSCHEMA.DOCS VALUES (2, NULL, NULL)")
    db2.capture.register("MYSCHEMA", "DOCS")
    stream = query(binary_handling_mode="hex")
    rows = {record.key["ID"]: record.payload["after"] for record in stream.drain()}
    assert rows[1] == {"ID": 1, "T": "ž" * 5000, "B": "00ff" * 3000}
    assert rows[2] == {"ID": 2, "T": None, "B": None}


def test_a_snapshot_in_chunks_joins_the_stream_without_a_gap(customers: Db2Database, query: Make) -> None:
    rows = ", ".join(f"({n}, 'f', 'l', 'e{n}')" for n in range(50))
    customers.execute(f"INSERT INTO MYSCHEMA.CUSTOMERS VALUES {rows}")
    stream = query()
    end = stream.plan()
    assert end is not None
    # While the snapshot is planned but not read, rows change: captured before and after its first batch.
    customers.capture.run(
        "UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x' WHERE ID < 10", "DELETE FROM MYSCHEMA.CUSTOMERS WHERE ID = 49"
    )
    records = stream.read(end)
    stream.start = end
    records += stream.drain()
    state: dict[int, Any] = {}
    for record in records:
        state[record.key["ID"]] = record.payload and record.payload["after"]
    now = customers.capture.session.rows("SELECT ID, FIRST_NAME FROM MYSCHEMA.CUSTOMERS")
    assert {id_: row["FIRST_NAME"] for id_, row in state.items() if row} == dict(now)
    assert {record.key["ID"] for record in records if record.op == "r"} >= set(range(10, 49))


def test_a_replayed_batch_is_the_same(customers: Db2Database, query: Make) -> None:
    stream = query(snapshot_mode="no_data")
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.capture.run("UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x'")
    end = stream.plan()
    assert end is not None
    first = stream.read(end)
    stream.restart()
    customers.capture.run("DELETE FROM MYSCHEMA.CUSTOMERS")
    again = stream.read(end)
    assert [(one.row["position"], one.row["ordinal"], one.key, one.op) for one in first] == [
        (one.row["position"], one.row["ordinal"], one.key, one.op) for one in again
    ]
    assert ops(first) == ["c", "u"]
    stream.start = end
    assert ops(stream.drain()) == ["d", "tombstone"]


def test_batches_end_with_transactions(customers: Db2Database, query: Make) -> None:
    stream = query(snapshot_mode="no_data")
    stream.drain()
    for n in range(6):
        customers.capture.run(
            f"INSERT INTO MYSCHEMA.CUSTOMERS VALUES ({n}, 'a', 'b', 'c{n}')",
            f"UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x' WHERE ID = {n}",
        )
    sizes = []
    while (end := stream.plan(rows=4)) is not None:
        sizes.append(ops(stream.read(end)))
        stream.start = end
    assert [one for one in sizes if one] == [["c", "u"]] * 6


def test_tables_without_a_change_beside_busy_ones_do_not_hold_the_position(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    before = str(stream.start)
    customers.capture.capture()
    assert stream.drain() == []
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    assert ops(stream.drain()) == ["c"]
    assert str(stream.start) != before


def test_a_table_that_is_registered_later_joins_in(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.execute("CREATE TABLE MYSCHEMA.LATER (ID INTEGER NOT NULL PRIMARY KEY)")
    customers.capture.register("MYSCHEMA", "LATER")
    customers.capture.run("INSERT INTO MYSCHEMA.LATER VALUES (1)")
    changes = [record for record in stream.drain() if record.topic == "mydatabase.MYSCHEMA.LATER"]
    assert [(record.op, record.key) for record in changes] == [("c", {"ID": 1})]


def test_updates_without_pairs_have_what_the_program_writes(db2: Db2Database, query: Make) -> None:
    db2.execute("CREATE SCHEMA MYSCHEMA")
    for table, before in (("IMAGES", "X"), ("AFTERS", "")):
        db2.execute(f"CREATE TABLE MYSCHEMA.{table} (ID INTEGER NOT NULL PRIMARY KEY, N INTEGER)")
        db2.capture.register("MYSCHEMA", table, pairs=False, before=before)
    stream = query()
    stream.drain()
    for table in ("IMAGES", "AFTERS"):
        db2.capture.run(f"INSERT INTO MYSCHEMA.{table} VALUES (1, 1)", f"UPDATE MYSCHEMA.{table} SET N = 2")
    updates = {record.row["table"]: record.payload for record in stream.drain() if record.op == "u"}
    assert updates["IMAGES"]["before"] == {"ID": 1, "N": 1}
    assert updates["AFTERS"]["before"] is None
    assert updates["AFTERS"]["after"] == {"ID": 1, "N": 2}


def test_tables_are_told_on_the_topic_of_schema_changes(customers: Db2Database, query: Make) -> None:
    (record,) = query(include_schema_changes="true").drain()
    assert (record.topic, record.key) == ("mydatabase", {"databaseName": customers.name})
    (change,) = record.value["tableChanges"]
    assert change["id"].replace('"', "").endswith("MYSCHEMA.CUSTOMERS")
    assert [column["name"] for column in change["table"]["columns"]] == ["ID", "FIRST_NAME", "LAST_NAME", "EMAIL"]
    assert change["table"]["primaryKeyColumnNames"] == ["ID"]


SIGNALS = "CREATE TABLE MYSCHEMA.SIGNALS (ID VARCHAR(42) NOT NULL PRIMARY KEY, TYPE VARCHAR(32), DATA VARCHAR(2048))"


def test_an_incremental_snapshot_is_asked_for_by_a_signal(customers: Db2Database, query: Make) -> None:
    rows = ", ".join(f"({n}, 'f', 'l', 'e{n}')" for n in range(30))
    customers.execute(SIGNALS, f"INSERT INTO MYSCHEMA.CUSTOMERS VALUES {rows}")
    customers.capture.register("MYSCHEMA", "SIGNALS")
    customers.capture.capture()
    stream = query(
        snapshot_mode="no_data",
        signal_data_collection="MYSCHEMA.SIGNALS",
        incremental_snapshot_chunk_size="7",
        table_include_list=r"MYSCHEMA\.CUSTOMERS,MYSCHEMA\.SIGNALS",
    )
    stream.drain()
    asked = '{"data-collections": ["MYSCHEMA.CUSTOMERS"], "type": "incremental"}'
    customers.capture.run(f"INSERT INTO MYSCHEMA.SIGNALS VALUES ('ad-hoc', 'execute-snapshot', '{asked}')")
    with customers.capture.working():
        records = stream.drain()
    reads = [record for record in records if record.op == "r"]
    assert sorted(record.key["ID"] for record in reads) == list(range(30))
    assert {record.payload["source"]["snapshot"] for record in reads} == {"incremental"}


def test_a_register_without_synch_point_waits(
    customers: Db2Database, query: Make, caplog: pytest.LogCaptureFixture
) -> None:
    customers.execute("UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = NULL, CD_NEW_SYNCHPOINT = NULL")
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream = query()
        assert stream.drain() == []
    assert "newest position is unknown" in caplog.text
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    assert ops(stream.drain()) == ["c"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_register_row_that_is_gone_stops_the_query(customers: Db2Database, query: Make, restarted: bool) -> None:
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.capture.unregister("MYSCHEMA", "CUSTOMERS")
    customers.capture.capture()
    if restarted:
        stream.restart()
    with pytest.raises(PositionLost, match=r"MYSCHEMA.CUSTOMERS"):
        stream.drain()


def test_a_change_table_that_is_gone_stops_the_query(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.execute("DROP TABLE ASNCDC.CDC_MYSCHEMA_CUSTOMERS")
    with pytest.raises(PositionLost, match="CDC_MYSCHEMA_CUSTOMERS"):
        stream.drain()


@pytest.mark.parametrize("restarted", [False, True])
def test_changes_that_were_pruned_unread_stop_the_query(customers: Db2Database, query: Make, restarted: bool) -> None:
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.capture.prune(customers.capture.capture())
    if restarted:
        stream.restart()
    with pytest.raises(PositionLost, match="cleaned up"):
        stream.drain()


def test_pruning_what_was_read_is_no_loss(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    stream.drain()
    through = bytes.fromhex(
        customers.capture.session.rows("SELECT MAX(IBMSNAP_COMMITSEQ) FROM ASNCDC.IBMSNAP_UOW")[0][0].hex()
    )
    customers.capture.prune(through)
    stream.restart()
    customers.capture.run("DELETE FROM MYSCHEMA.CUSTOMERS")
    assert ops(stream.drain()) == ["d", "tombstone"]


def test_a_column_added_to_the_source_alone_is_told_and_left_out(
    customers: Db2Database, query: Make, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query()
    stream.drain()
    customers.execute("ALTER TABLE MYSCHEMA.CUSTOMERS ADD COLUMN NEW INTEGER")
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c', 7)")
    with caplog.at_level(logging.WARNING, "tailrace"):
        stream.restart()
        (record,) = stream.drain()
    assert list(record.payload["after"]) == ["ID", "FIRST_NAME", "LAST_NAME", "EMAIL"]
    assert "MYSCHEMA.CUSTOMERS (NEW)" in caplog.text


@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_that_is_registered_anew_has_its_columns(customers: Db2Database, query: Make, restarts: bool) -> None:
    """`ASNCDC.REMOVETABLE` and `ASNCDC.ADDTABLE` give the change table the name that it had."""
    stream = query()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    stream.drain()
    customers.capture.unregister("MYSCHEMA", "CUSTOMERS")
    customers.execute(
        "ALTER TABLE MYSCHEMA.CUSTOMERS ADD COLUMN NEW INTEGER", "ALTER TABLE MYSCHEMA.CUSTOMERS DROP COLUMN LAST_NAME"
    )
    customers.capture.register("MYSCHEMA", "CUSTOMERS")
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (2, 'a', 'd', 7)")
    if restarts:
        stream.restart()
    (record,) = stream.drain()
    assert record.payload["after"] == {"ID": 2, "FIRST_NAME": "a", "EMAIL": "d", "NEW": 7}
    customers.capture.run("DELETE FROM MYSCHEMA.CUSTOMERS WHERE ID = 2")
    record, _ = stream.drain()
    assert record.payload["before"] == {"ID": 2, "FIRST_NAME": "a", "EMAIL": "d", "NEW": 7}


def test_a_change_table_that_gets_a_column_is_followed(customers: Db2Database, query: Make) -> None:
    """Changes that were captured before have null there."""
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.execute(
        "ALTER TABLE MYSCHEMA.CUSTOMERS ADD COLUMN NEW INTEGER",
        "ALTER TABLE ASNCDC.CDC_MYSCHEMA_CUSTOMERS ADD COLUMN NEW INTEGER",
    )
    customers.capture.capture()
    (record,) = stream.drain()
    assert record.payload["after"] == {"ID": 1, "FIRST_NAME": "a", "LAST_NAME": "b", "EMAIL": "c", "NEW": None}


def test_a_lost_connection_comes_back(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    customers.capture.close()
    customers.server.halt()
    customers.server.start()
    assert ops(stream.drain()) == ["c"]


def test_a_server_that_stays_away_ends_the_query(customers: Db2Database, query: Make) -> None:
    stream = query(errors_max_retries="0")
    stream.drain()
    customers.capture.close()
    customers.server.halt()
    try:
        with pytest.raises(ConnectionFailed):
            stream.drain()
    finally:
        customers.server.start()
