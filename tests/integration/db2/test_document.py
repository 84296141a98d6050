"""The documented Db2 events, form 2.3, have the right parts, names, keys and values. Each test names its subject."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.connectors.db2.setup.prerequisites import check
from tailrace.connectors.registry import parse
from tests.fix_db2 import Db2Database
from tests.integration.db2.driving import Query, Record

Make = Callable[..., Query]
JOHN = "INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1005, 'john', 'doe', 'john.doe@example.org')"
ROW = {"ID": 1005, "FIRST_NAME": "john", "LAST_NAME": "doe", "EMAIL": "john.doe@example.org"}
CHANGED = ROW | {"EMAIL": "noreply@example.org"}
SOURCE = ["version", "connector", "name", "ts_ms", "snapshot", "db", "schema", "table", "change_lsn", "commit_lsn"]
NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def ops(records: list[Record]) -> list[str]:
    return [record.op for record in records]


def names_of(schema: dict[str, Any]) -> set[str]:
    found = {schema["name"]} if "name" in schema else set()
    return found.union(*(names_of(field) for field in schema.get("fields", [])))


@pytest.mark.seed("004-01")
def test_each_row_changed_is_one_event_of_its_table(customers: Db2Database, query: Make) -> None:
    customers.execute("CREATE TABLE MYSCHEMA.ORDERS (NR BIGINT NOT NULL PRIMARY KEY, BUYER INTEGER)")
    customers.capture.register("MYSCHEMA", "ORDERS")
    stream = query()
    assert stream.drain() == []
    customers.capture.run(
        JOHN,
        "INSERT INTO MYSCHEMA.ORDERS VALUES (1, 1), (2, 2)",
        "UPDATE MYSCHEMA.ORDERS SET BUYER = 7",
        "DELETE FROM MYSCHEMA.CUSTOMERS",
    )
    records = stream.drain()
    of_orders = [record for record in records if record.row["table"] == "ORDERS"]
    of_customers = [record for record in records if record.row["table"] == "CUSTOMERS"]
    assert ops(of_customers) == ["c", "d", "tombstone"]
    assert [(record.op, record.key) for record in of_orders] == [
        ("c", {"NR": 1}), ("c", {"NR": 2}), ("u", {"NR": 1}), ("u", {"NR": 2}),
    ]  # fmt: skip
    assert list(of_orders[0].payload["after"]) == ["NR", "BUYER"]


@pytest.mark.seed("004-02")
def test_an_event_has_four_parts_and_schemas_only_if_the_converter_writes_them(
    customers: Db2Database, query: Make
) -> None:
    customers.capture.run(JOHN)
    (whole,) = query(schemas=True).drain()
    (bare,) = query().drain()
    assert (list(whole.key), list(whole.value)) == (["schema", "payload"], ["schema", "payload"])
    assert (whole.key["payload"], bare.key) == ({"ID": 1005}, {"ID": 1005})
    assert list(bare.value) == list(whole.value["payload"])


@pytest.mark.seed("004-03")
@pytest.mark.seed("004-07")
def test_the_key_is_the_primary_key_else_a_unique_one_else_what_is_named(db2: Db2Database, query: Make) -> None:
    db2.execute(
        "CREATE SCHEMA MYSCHEMA",
        "CREATE TABLE MYSCHEMA.TWO (B INTEGER NOT NULL, A VARCHAR(3) NOT NULL, C INTEGER, PRIMARY KEY (A, B))",
        "CREATE TABLE MYSCHEMA.UNIQ (A INTEGER NOT NULL, B INTEGER NOT NULL UNIQUE)",
    )
    for table in ("TWO", "UNIQ"):
        db2.capture.register("MYSCHEMA", table)
    db2.capture.run("INSERT INTO MYSCHEMA.TWO VALUES (1, 'x', 2)", "INSERT INTO MYSCHEMA.UNIQ VALUES (3, 4)")
    assert [record.key for record in query().drain()] == [{"A": "x", "B": 1}, {"B": 4}]
    named = query(message_key_columns=r"MYSCHEMA.TWO:C;MYSCHEMA.UNIQ:A")
    assert [record.key for record in named.drain()] == [{"C": 2}, {"A": 3}]


@pytest.mark.seed("004-04")
def test_events_go_to_the_topic_of_their_table(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    assert [record.topic for record in query().drain()] == ["mydatabase.MYSCHEMA.CUSTOMERS"]


@pytest.mark.seed("004-05")
def test_schema_names_are_fit_for_avro_and_collisions_are_told(db2: Db2Database, query: Make) -> None:
    db2.execute('CREATE SCHEMA MYSCHEMA', 'CREATE TABLE MYSCHEMA."A-B" (ID INTEGER NOT NULL PRIMARY KEY)',
                'CREATE TABLE MYSCHEMA."A+B" (ID INTEGER NOT NULL PRIMARY KEY)')  # fmt: skip
    for table in ("A-B", "A+B"):
        db2.capture.register("MYSCHEMA", table)
    db2.capture.run('INSERT INTO MYSCHEMA."A-B" VALUES (1)')
    stream = query(schemas=True, schema_name_adjustment_mode="avro", database_server_name="my-db")
    (record,) = stream.drain()
    names = names_of(record.value["schema"]) | names_of(record.key["schema"])
    assert "my_db.MYSCHEMA.A_B.Value" in names
    assert all(re.fullmatch(rf"{NAME}(\.{NAME})*", name) for name in names)
    told = [finding for finding in check(parse("db2", stream.options)) if finding.subject == "names"]
    assert any("MYSCHEMA.A+B and MYSCHEMA.A-B" in finding.text for finding in told)


@pytest.mark.seed("004-06")
def test_names_that_differ_in_case_alone_are_told_apart_and_reported(db2: Db2Database, query: Make) -> None:
    db2.execute('CREATE SCHEMA MYSCHEMA', 'CREATE TABLE MYSCHEMA.CASED (ID INTEGER NOT NULL PRIMARY KEY)',
                'CREATE TABLE MYSCHEMA."Cased" (ID INTEGER NOT NULL PRIMARY KEY)')  # fmt: skip
    for table in ("CASED", "Cased"):
        db2.capture.register("MYSCHEMA", table, name=f"CD_{len(db2.capture.registered)}")
    db2.capture.run("INSERT INTO MYSCHEMA.CASED VALUES (1)", 'INSERT INTO MYSCHEMA."Cased" VALUES (2)')
    # One entry of a list matches both, because lists ignore case.
    records = query(table_include_list=r"MYSCHEMA\.cased").drain()
    assert [(record.topic, record.key) for record in records] == [
        ("mydatabase.MYSCHEMA.CASED", {"ID": 1}), ("mydatabase.MYSCHEMA.Cased", {"ID": 2}),
    ]  # fmt: skip
    options = db2.options(table_include_list=r"MYSCHEMA\.cased")
    told = [finding.text for finding in check(parse("db2", options)) if finding.subject == "names"]
    assert any("differ only by case" in text and "MYSCHEMA.CASED and MYSCHEMA.Cased" in text for text in told)


@pytest.mark.seed("004-08")
def test_the_key_is_the_documented_json(customers: Db2Database, query: Make) -> None:
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1004, 'Anne', 'Kretchmar', 'annek@noanswer.org')")
    (record,) = query(schemas=True).drain()
    assert record.key == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "ID"}],
            "optional": False,
            "name": "mydatabase.MYSCHEMA.CUSTOMERS.Key",
        },
        "payload": {"ID": 1004},
    }


@pytest.mark.seed("004-09")
def test_a_table_without_a_key_has_events_without_one(db2: Db2Database, query: Make) -> None:
    db2.execute("CREATE SCHEMA MYSCHEMA", "CREATE TABLE MYSCHEMA.BARE (A INTEGER, B INTEGER)")
    db2.capture.register("MYSCHEMA", "BARE")
    stream = query(schemas=True)
    stream.drain()
    db2.capture.run("INSERT INTO MYSCHEMA.BARE VALUES (1, 2)", "DELETE FROM MYSCHEMA.BARE")
    records = stream.drain()
    assert [(record.op, record.key) for record in records] == [("c", None), ("d", None), ("tombstone", None)]
    assert records[1].payload["before"] == {"A": 1, "B": 2}


@pytest.mark.seed("004-10")
@pytest.mark.seed("004-12")
def test_schemas_are_named_by_connector_schema_and_table(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    (record,) = query(schemas=True).drain()
    assert record.key["schema"]["name"] == "mydatabase.MYSCHEMA.CUSTOMERS.Key"
    before, after = record.value["schema"]["fields"][:2]
    assert (before["name"], before["field"]) == ("mydatabase.MYSCHEMA.CUSTOMERS.Value", "before")
    assert (after["name"], after["field"]) == ("mydatabase.MYSCHEMA.CUSTOMERS.Value", "after")
    assert before["optional"]
    assert [(field["field"], field["type"], field["optional"]) for field in after["fields"]] == [
        ("ID", "int32", False), ("FIRST_NAME", "string", False), ("LAST_NAME", "string", False),
        ("EMAIL", "string", False),
    ]  # fmt: skip


@pytest.mark.seed("004-11")
def test_every_value_is_an_envelope_of_one_schema(customers: Db2Database, query: Make) -> None:
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    stream = query(schemas=True)
    records = stream.drain()
    customers.capture.run(JOHN, "UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x'", "DELETE FROM MYSCHEMA.CUSTOMERS")
    records += stream.drain()
    assert {record.op for record in records} == {"r", "c", "u", "d", "tombstone"}
    schemas = {json.dumps(record.value["schema"]) for record in records if record.value}
    assert len(schemas) == 1


@pytest.mark.seed("004-13")
@pytest.mark.seed("004-13b")
def test_the_source_block_has_the_documented_fields(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    (record,) = query(schemas=True).drain()
    fields = {field["field"]: field for field in record.value["schema"]["fields"]}
    source = fields["source"]
    assert source["name"] == "io.debezium.connector.db2.Source"
    assert not source["optional"]
    told = {field["field"]: (field["type"], field["optional"]) for field in source["fields"]}
    assert [name for name in told if name != "sequence"] == SOURCE
    assert told["sequence"] == ("string", True)
    assert [name for name, (_, optional) in told.items() if optional] == [
        "snapshot", "sequence", "change_lsn", "commit_lsn",
    ]  # fmt: skip
    snapshot = next(field for field in source["fields"] if field["field"] == "snapshot")
    assert (snapshot["default"], snapshot["name"]) == ("false", "io.debezium.data.Enum")
    assert fields["transaction"]["optional"]
    assert record.payload["source"]["sequence"] is None


@pytest.mark.seed("004-14")
def test_the_envelope_has_a_name_and_its_operation_is_required(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    (record,) = query(schemas=True).drain()
    schema = record.value["schema"]
    assert schema["name"] == "mydatabase.MYSCHEMA.CUSTOMERS.Envelope"
    fields = {field["field"]: (field["type"], field["optional"]) for field in schema["fields"]}
    assert (fields["op"], fields["ts_ms"]) == (("string", False), ("int64", True))


@pytest.mark.seed("004-15")
@pytest.mark.seed("004-16")
def test_a_create_event_has_the_new_row(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run(JOHN)
    (record,) = stream.drain()
    assert (record.payload["before"], record.payload["after"], record.payload["op"]) == (None, ROW, "c")
    source = record.payload["source"]
    assert (source["version"], source["connector"], source["name"]) == ("2.3.7.Final", "db2", "mydatabase")
    assert (source["db"], source["schema"], source["table"]) == (customers.name, "MYSCHEMA", "CUSTOMERS")
    assert source["snapshot"] == "false"
    assert re.fullmatch(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{16}", source["change_lsn"])
    assert source["change_lsn"] < source["commit_lsn"]
    ((commit, at),) = customers.capture.session.rows(
        "SELECT IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER FROM ASNCDC.IBMSNAP_UOW"
    )
    assert source["commit_lsn"].replace(":", "") == commit.hex()
    assert source["ts_ms"] == round(at.replace(tzinfo=dt.UTC).timestamp() * 1000)


@pytest.mark.seed("004-16")
def test_a_row_of_the_snapshot_has_no_change_position(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    (record,) = query().drain()
    assert record.payload["source"]["snapshot"] == "last"
    assert record.payload["source"]["change_lsn"] is None


@pytest.mark.seed("004-17")
def test_operations_are_create_update_delete_and_read(customers: Db2Database, query: Make) -> None:
    customers.capture.run("INSERT INTO MYSCHEMA.CUSTOMERS VALUES (1, 'a', 'b', 'c')")
    stream = query()
    first = stream.drain()
    customers.capture.run(JOHN, "UPDATE MYSCHEMA.CUSTOMERS SET FIRST_NAME = 'x' WHERE ID = 1")
    customers.capture.run("DELETE FROM MYSCHEMA.CUSTOMERS WHERE ID = 1")
    payloads = [record.payload for record in first + stream.drain()]
    assert [payload and payload["op"] for payload in payloads] == ["r", "c", "u", "d", None]


@pytest.mark.seed("004-18")
def test_the_lag_is_the_difference_of_two_times(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run(JOHN)
    (record,) = stream.drain()
    lag = record.payload["ts_ms"] - record.payload["source"]["ts_ms"]
    assert 0 <= lag < 60_000


@pytest.mark.seed("004-19")
def test_an_update_event_has_the_whole_row_before_and_after(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run(JOHN)
    customers.capture.run("UPDATE MYSCHEMA.CUSTOMERS SET EMAIL = 'noreply@example.org'")
    create, update = stream.drain()
    assert (update.payload["before"], update.payload["after"], update.payload["op"]) == (ROW, CHANGED, "u")
    for name in ("change_lsn", "commit_lsn"):
        assert create.payload["source"][name] < update.payload["source"][name]
    assert list(update.payload["source"]) == list(create.payload["source"])


@pytest.mark.seed("004-20")
def test_a_change_of_the_key_is_a_delete_a_tombstone_and_a_create(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run(JOHN)
    customers.capture.run("UPDATE MYSCHEMA.CUSTOMERS SET ID = 2005")
    _, delete, tombstone, create = stream.drain()
    assert (delete.key, delete.payload["op"], delete.payload["before"]) == ({"ID": 1005}, "d", ROW)
    assert (tombstone.key, tombstone.value) == ({"ID": 1005}, None)
    assert (create.key, create.payload["op"], create.payload["after"]) == ({"ID": 2005}, "c", ROW | {"ID": 2005})
    assert create.payload["before"] is None
    assert dict(delete.headers)["__debezium.newkey"] == {"ID": 2005}
    assert dict(create.headers)["__debezium.oldkey"] == {"ID": 1005}


@pytest.mark.seed("004-21")
@pytest.mark.seed("004-22")
def test_a_delete_event_has_the_old_row_and_a_tombstone_behind_it(customers: Db2Database, query: Make) -> None:
    stream = query()
    stream.drain()
    customers.capture.run(JOHN)
    customers.capture.run("DELETE FROM MYSCHEMA.CUSTOMERS")
    create, delete, tombstone = stream.drain()
    assert (delete.payload["before"], delete.payload["after"], delete.payload["op"]) == (ROW, None, "d")
    assert list(delete.payload["source"]) == list(create.payload["source"])
    assert create.payload["source"]["commit_lsn"] < delete.payload["source"]["commit_lsn"]
    assert (tombstone.key, tombstone.value, tombstone.topic) == (delete.key, None, delete.topic)


@pytest.mark.seed("004-22")
def test_tombstones_may_be_left_out(customers: Db2Database, query: Make) -> None:
    stream = query(tombstones_on_delete="false")
    stream.drain()
    customers.capture.run(JOHN, "DELETE FROM MYSCHEMA.CUSTOMERS")
    assert ops(stream.drain()) == ["c", "d"]


@pytest.mark.seed("004-23")
def test_a_message_is_far_smaller_without_its_schema(customers: Db2Database, query: Make) -> None:
    customers.capture.run(JOHN)
    (whole,) = query(schemas=True).drain()
    (bare,) = query().drain()
    assert len(bare.row["value"]) * 4 < len(whole.row["value"])


@pytest.mark.seed("004-24")
def test_the_json_is_valid_and_columns_keep_their_capitals(customers: Db2Database, query: Make) -> None:
    customers.execute('CREATE TABLE MYSCHEMA.MIXED ("lower" INTEGER NOT NULL PRIMARY KEY, SHOUT VARCHAR(9))')
    customers.capture.register("MYSCHEMA", "MIXED")
    customers.capture.run(JOHN, "INSERT INTO MYSCHEMA.MIXED VALUES (1, 'žluť\"\\')")
    records = query(schemas=True).drain()
    for record in records:
        for part in ("key", "value"):
            assert json.loads(record.row[part].decode("utf-8")) == getattr(record, part)
    payload = next(record.payload for record in records if record.row["table"] == "MIXED")
    assert payload["after"] == {"lower": 1, "SHOUT": 'žluť"\\'}


def test_form_3_has_what_debezium_adds_today(customers: Db2Database, query: Make) -> None:
    stream = query(schemas=True, event_format="3")
    stream.drain()
    customers.capture.run(JOHN)
    (record,) = stream.drain()
    source = record.payload["source"]
    assert [*source] == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns", "schema", "table",
        "change_lsn", "commit_lsn",
    ]  # fmt: skip
    assert source["ts_us"] // 1000 == source["ts_ms"]
    assert record.value["schema"]["version"] == 2
    assert record.payload["ts_ns"] // 1_000_000 == record.payload["ts_ms"]
