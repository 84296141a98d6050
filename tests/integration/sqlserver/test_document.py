"""The documented SQL Server events, form 1.0, have the right parts, names and positions. Each test
names its subject."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tdsserver.process import TestDatabase

CUSTOMERS = (
    "create table customers (id int identity(1001, 1) not null primary key, first_name varchar(255) not null, "
    "last_name varchar(255) not null, email varchar(255) not null)"
)
JOHN = "insert into customers (first_name, last_name, email) values ('john', 'doe', 'john.doe@example.org')"
CAPTURED = (
    "exec sys.sp_cdc_enable_db",
    "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = null",
)
READY = (CUSTOMERS, *CAPTURED)
ROW = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": False, "field": "first_name"},
    {"type": "string", "optional": False, "field": "last_name"},
    {"type": "string", "optional": False, "field": "email"},
]
LSN = r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}"


def moved(number: int, to: int) -> tuple[str, ...]:
    """Change a row's key; an identity column cannot be updated."""
    return (f"update people set id = {to} where id = {number}",)


PEOPLE = (
    "create table people (id int not null primary key, name nvarchar(20))",
    "exec sys.sp_cdc_enable_db",
    "exec sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'people', @role_name = null",
)


@pytest.mark.seed("001-01", "001-12", "001-13", "001-14")
def test_a_create_is_the_documented_envelope(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    sqlserver_database.execute(JOHN)
    (event,) = query.take(1)
    assert list(event.value) == ["schema", "payload"]
    schema = event.value["schema"]
    assert schema["name"] == "server1.dbo.customers.Envelope"
    assert schema["optional"] is False
    before, after, source, op, ts_ms = schema["fields"]
    for image, field in ((before, "before"), (after, "after")):
        assert image == {
            "type": "struct",
            "fields": ROW,
            "optional": True,
            "name": "server1.dbo.customers.Value",
            "field": field,
        }
    assert source["name"] == "io.debezium.connector.sqlserver.Source"
    assert (op, ts_ms) == (
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    )
    assert list(event.payload) == ["before", "after", "source", "op", "ts_ms"]
    assert event.payload["before"] is None
    assert event.payload["after"] == {
        "id": 1001, "first_name": "john", "last_name": "doe", "email": "john.doe@example.org",
    }  # fmt: skip
    assert event.payload["op"] == "c"
    assert event.key == {
        "schema": {
            "type": "struct", "fields": ROW[:1], "optional": False, "name": "server1.dbo.customers.Key",
        },
        "payload": {"id": 1001},
    }  # fmt: skip
    assert event.topic == "server1.dbo.customers"


@pytest.mark.seed("001-10")
def test_the_source_block_has_the_documented_fields(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    sqlserver_database.execute(JOHN)
    (event,) = query.take(1)
    source = next(one for one in event.value["schema"]["fields"] if one["field"] == "source")
    assert [(one["field"], one["type"], one["optional"]) for one in source["fields"]] == [
        ("version", "string", False),
        ("connector", "string", False),
        ("name", "string", False),
        ("ts_ms", "int64", False),
        ("snapshot", "string", True),
        ("db", "string", False),
        ("schema", "string", False),
        ("table", "string", False),
        ("change_lsn", "string", True),
        ("commit_lsn", "string", True),
        ("event_serial_no", "int64", True),
    ]
    assert [one["default"] for one in source["fields"] if "default" in one] == ["false"]
    assert list(event.source) == [one["field"] for one in source["fields"]]
    assert event.source["version"].startswith("1.0.")
    assert (event.source["connector"], event.source["name"]) == ("sqlserver", "server1")
    assert (event.source["db"], event.source["schema"]) == (sqlserver_database.name, "dbo")
    assert event.source["table"] == "customers"


@pytest.mark.seed("001-02", "001-05")
def test_a_snapshot_has_op_r_no_positions_and_its_own_time(sqlserver_database: TestDatabase, capture: Any) -> None:
    began = time.time() * 1000
    query = capture(*READY, JOHN, JOHN, snapshot_mode="initial")
    newest = sqlserver_database.capture().hex()
    read = query.take(2)
    assert [event.payload["op"] for event in read] == ["r", "r"]
    for event in read:
        assert event.payload["before"] is None
        assert event.source["change_lsn"] is event.source["event_serial_no"] is None
        # The newest captured position when the snapshot began; null only without one.
        assert event.source["commit_lsn"].replace(":", "") == newest
        assert began - 1000 <= event.source["ts_ms"] <= time.time() * 1000
    assert [event.source["snapshot"] for event in read] == ["true", "last"]
    sqlserver_database.execute(JOHN, "update customers set email = 'x'", "delete from customers")
    changes = [event for event in query.take(10) if event.value is not None]
    assert [event.payload["op"] for event in changes] == ["c", *"uuu", *"ddd"]
    assert {event.source["snapshot"] for event in changes} == {"false"}
    for event in changes:
        assert re.fullmatch(LSN, event.source["commit_lsn"])
        assert re.fullmatch(LSN, event.source["change_lsn"])
        # A datetime of the server differs by at most 1/300 s.
        assert began - 4 <= event.source["ts_ms"] <= time.time() * 1000 + 4


@pytest.mark.seed("001-03", "001-04")
def test_both_images_have_the_one_schema_of_the_tables_rows(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    sqlserver_database.execute(JOHN, "update customers set first_name = 'jane'", "delete from customers")
    created, updated, deleted, _ = query.take(4)
    assert (created.payload["before"], created.payload["after"]["first_name"]) == (None, "john")
    assert (updated.payload["before"]["first_name"], updated.payload["after"]["first_name"]) == ("john", "jane")
    assert (deleted.payload["before"]["first_name"], deleted.payload["after"]) == ("jane", None)
    schemas = {json.dumps(event.value["schema"]) for event in (created, updated, deleted)}
    assert len(schemas) == 1


@pytest.mark.seed("001-06", "001-08")
def test_a_change_of_the_key_is_a_delete_and_a_create_with_one_position(
    sqlserver_database: TestDatabase, capture: Any
) -> None:
    query = capture(*PEOPLE)
    sqlserver_database.execute("insert into people values (1, N'a')", *moved(1, 2))
    _, deleted, tombstone, created = query.take(4)
    assert (deleted.payload["op"], deleted.id, deleted.payload["before"]) == ("d", {"id": 1}, {"id": 1, "name": "a"})
    assert (tombstone.id, tombstone.value) == ({"id": 1}, None)
    assert (created.payload["op"], created.id, created.payload["after"]) == ("c", {"id": 2}, {"id": 2, "name": "a"})
    for name in ("commit_lsn", "change_lsn"):
        assert deleted.source[name] == created.source[name]
    assert (deleted.source["event_serial_no"], created.source["event_serial_no"]) == (1, 2)


@pytest.mark.seed("001-07")
def test_an_update_is_the_second_of_two_rows(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*PEOPLE)
    sqlserver_database.execute(
        "insert into people values (1, N'a'), (2, N'b')", "update people set name = N'c'", "delete from people"
    )
    events = [event for event in query.take(8) if event.value is not None]
    assert [(event.payload["op"], event.source["event_serial_no"]) for event in events] == [
        ("c", 1), ("c", 1), ("u", 2), ("u", 2), ("d", 1), ("d", 1),
    ]  # fmt: skip
    updates = events[2:4]
    assert [event.payload["before"]["name"] for event in updates] == ["a", "b"]
    assert updates[0].source["commit_lsn"] == updates[1].source["commit_lsn"]
    assert updates[0].source["change_lsn"] < updates[1].source["change_lsn"]


@pytest.mark.seed("001-09")
def test_ts_ms_is_the_time_of_the_tasks_own_clock(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    sqlserver_database.execute(JOHN)
    sqlserver_database.capture()
    sqlserver_database.execute("update cdc.lsn_time_mapping set tran_end_time = dateadd(hour, -1, tran_end_time)")
    before = time.time() * 1000
    (event,) = query.take(1)
    assert before - 1 <= event.payload["ts_ms"] <= time.time() * 1000 + 1
    assert event.payload["ts_ms"] - event.source["ts_ms"] >= 3_600_000


@pytest.mark.seed("001-11")
def test_positions_are_written_in_three_parts(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    sqlserver_database.execute(JOHN)
    (event,) = query.take(1)
    ((commit, change),) = sqlserver_database.query("select [__$start_lsn], [__$seqval] from cdc.[dbo_customers_CT]")
    for name, position in (("commit_lsn", commit), ("change_lsn", change)):
        digits = bytes(position).hex()
        assert event.source[name] == f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


@pytest.mark.seed("001-13", "001-14")
def test_tables_have_schemas_of_their_own_and_one_source(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(CUSTOMERS, *PEOPLE, CAPTURED[1])
    sqlserver_database.execute(JOHN, "insert into people values (1, null)")
    events = {event.row["table"]: event for event in query.take(2)}
    fields = {table: event.value["schema"]["fields"] for table, event in events.items()}
    assert fields["customers"][2] == fields["people"][2]
    assert {table: one[0]["name"] for table, one in fields.items()} == {
        "customers": "server1.dbo.customers.Value",
        "people": "server1.dbo.people.Value",
    }
    assert fields["people"][0]["fields"] == [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
    ]


@pytest.mark.seed("001-15")
def test_the_schema_is_larger_than_the_row_and_can_be_left_out(sqlserver_database: TestDatabase, capture: Any) -> None:
    query = capture(*READY)
    bare = capture(value_converter_schemas_enable="false", key_converter_schemas_enable="false")
    sqlserver_database.execute(JOHN)
    ((whole,), (alone,)) = query.take(1), bare.take(1)
    sizes = [len(event.row["value"]) for event in (whole, alone)]
    assert sizes[0] > 4 * sizes[1] > 4 * len(json.dumps(alone.value["after"]))
    assert {**alone.value, "ts_ms": 0} == {**whole.payload, "ts_ms": 0}
    assert alone.key == {"id": 1001}


@pytest.mark.seed("001-16")
@pytest.mark.parametrize("tombstones", [True, False])
def test_a_tombstone_follows_every_delete_unless_told_otherwise(
    sqlserver_database: TestDatabase, capture: Any, tombstones: bool
) -> None:
    query = capture(*PEOPLE, tombstones_on_delete=str(tombstones).lower())
    sqlserver_database.execute("insert into people values (1, N'a')", *moved(1, 2), "delete from people")
    events = query.take(6 if tombstones else 4)
    shown = [(event.id["id"], None if event.value is None else event.payload["op"]) for event in events]
    expected = [(1, "c"), (1, "d"), (1, None), (2, "c"), (2, "d"), (2, None)]
    assert shown == [one for one in expected if tombstones or one[1] is not None]
