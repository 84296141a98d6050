"""The events of the documents about SQL Server 1.0 and Db2 2.3, and what today's format adds to them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailrace.columns import Boundary, CapturedTransactions, Column, Counts, Marker, TableId, TableSchema
from tailrace.connectors.registry import parse
from tailrace.errors import ConversionError
from tailrace.events import names
from tailrace.events.admission import Admission
from tailrace.events.captured_form import position_of
from tailrace.events.control_records import boundary_rows, heartbeat_row
from tailrace.events.event_settings import EventSettings
from tailrace.values.lsns import lsn_text
from tests.unit.events.captured_changes import (
    AT_US,
    COMMIT,
    CUSTOMERS,
    DB2_CUSTOMERS,
    FORMS,
    JOHN,
    MOVED,
    batch,
    rows,
)

SERVER = {"database.hostname": "h", "database.user": "u"}
DOCUMENT = {
    "sqlserver": SERVER | {"database.dbname": "testDB", "database.server.name": "server1"},
    "db2": SERVER | {"database.dbname": "mydatabase", "topic.prefix": "mydatabase"},
}
TODAY = {
    "sqlserver": SERVER | {"database.names": "testDB", "topic.prefix": "server1"},
    "db2": SERVER | {"database.dbname": "mydatabase", "topic.prefix": "mydatabase", "event.format": "3"},
}
TABLES = {"sqlserver": CUSTOMERS, "db2": DB2_CUSTOMERS}


def settings(connector: str, options: dict[str, str] | None = None, today: bool = False) -> EventSettings:
    given = (TODAY if today else DOCUMENT)[connector]
    return EventSettings.from_options(parse(connector, given | (options or {})), "run")


@pytest.mark.seed("001-01", "001-02", "001-03", "001-04", "001-05", "001-06", "001-10", "001-12", "001-13", "001-14")
def test_the_create_of_the_sql_server_document() -> None:
    before_ms = time.time_ns() // 1_000_000
    (row,) = rows(batch(CUSTOMERS, [("c", 1, None, JOHN)]), settings("sqlserver"))
    assert row["topic"] == "server1.dbo.customers"
    assert list(row["value"]) == ["schema", "payload"]
    schema, payload = row["value"]["schema"], row["value"]["payload"]
    assert [(field["field"], field.get("name")) for field in schema["fields"]] == [
        ("before", "server1.dbo.customers.Value"),
        ("after", "server1.dbo.customers.Value"),
        ("source", "io.debezium.connector.sqlserver.Source"),
        ("op", None),
        ("ts_ms", None),
    ]
    assert schema["name"] == "server1.dbo.customers.Envelope"
    assert schema["fields"][0]["fields"] == [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": False, "field": "first_name"},
        {"type": "string", "optional": False, "field": "last_name"},
        {"type": "string", "optional": False, "field": "email"},
    ]
    assert before_ms <= payload.pop("ts_ms") <= time.time_ns() // 1_000_000
    assert payload == {
        "before": None,
        "after": {"id": 1005, "first_name": "john", "last_name": "doe", "email": "john.doe@example.org"},
        "source": {
            "version": "1.0.3.Final",
            "connector": "sqlserver",
            "name": "server1",
            "ts_ms": 1559729468470,
            "snapshot": "false",
            "db": "testDB",
            "schema": "dbo",
            "table": "customers",
            "change_lsn": "00000027:00000758:0003",
            "commit_lsn": "00000027:00000758:0005",
            "event_serial_no": 1,
        },
        "op": "c",
    }
    assert row["headers"] is None


@pytest.mark.seed("001-07", "001-09", "004-19", "004-18")
@pytest.mark.parametrize("connector", FORMS)
def test_an_update_has_both_rows_whole(connector: str) -> None:
    (row,) = rows(batch(TABLES[connector], [("u", 2, JOHN, MOVED)]), settings(connector))
    payload = row["value"]["payload"]
    assert [list(map(str, payload[side].values())) for side in ("before", "after")] == [list(JOHN), list(MOVED)]
    assert payload["op"] == "u"
    assert payload["source"].get("event_serial_no") == (2 if connector == "sqlserver" else None)
    # The source block shows when the change was made, the envelope when it was read.
    assert payload["ts_ms"] > payload["source"]["ts_ms"] == AT_US // 1000


@pytest.mark.seed("001-08", "001-16")
def test_the_delete_and_insert_of_a_key_change_share_their_lsns() -> None:
    other = ("1006", *JOHN[1:])
    found = rows(batch(CUSTOMERS, [("d", 1, JOHN, None), ("c", 2, None, other)]), settings("sqlserver"))
    assert [row["op"] for row in found] == ["d", "tombstone", "c"]
    assert [row["key"]["payload"]["id"] for row in found] == [1005, 1005, 1006]
    sources = [row["value"]["payload"]["source"] for row in (found[0], found[2])]
    assert [source.pop("event_serial_no") for source in sources] == [1, 2]
    assert sources[0] == sources[1]


@pytest.mark.seed("004-20")
@pytest.mark.parametrize("connector", FORMS)
def test_an_update_that_changes_the_key_is_a_delete_and_a_create(connector: str) -> None:
    other = ("1006", *JOHN[1:])
    found = rows(batch(TABLES[connector], [("u", 2, JOHN, other)]), settings(connector))
    assert [row["op"] for row in found] == ["d", "tombstone", "c"]
    assert [list(row["key"]["payload"].values()) for row in found] == [[1005], [1005], [1006]]
    assert [[pair["key"] for pair in row["headers"]] for row in found] == [
        ["__debezium.newkey"],
        ["__debezium.newkey"],
        ["__debezium.oldkey"],
    ]


@pytest.mark.seed("001-16", "004-21", "004-22")
@pytest.mark.parametrize("connector", FORMS)
def test_a_delete_has_the_old_row_and_a_tombstone_unless_that_is_off(connector: str) -> None:
    part = batch(TABLES[connector], [("d", 1, JOHN, None)])
    delete, tombstone = rows(part, settings(connector))
    assert list(map(str, delete["value"]["payload"]["before"].values())) == list(JOHN)
    assert delete["value"]["payload"]["after"] is None
    assert tombstone["value"] is None
    assert tombstone["key"] == delete["key"]
    found = rows(part, settings(connector, {"tombstones.on.delete": "false"}))
    assert [row["op"] for row in found] == ["d"]


@pytest.mark.seed("001-05", "004-16")
@pytest.mark.parametrize("today", [False, True])
def test_a_row_of_a_snapshot_tells_where_it_was_taken(today: bool) -> None:
    part = batch(CUSTOMERS, [("r", 0, None, JOHN), ("r", 0, None, JOHN)], [Marker.FIRST, Marker.LAST])
    found = rows(part, settings("sqlserver", today=today))
    sources = [row["value"]["payload"]["source"] for row in found]
    assert [source["snapshot"] for source in sources] == (["first", "last"] if today else ["true", "last"])
    assert [source["change_lsn"] for source in sources] == [None, None]
    assert [source["event_serial_no"] for source in sources] == [None, None]
    assert {source["commit_lsn"] for source in sources} == {"00000027:00000758:0005"}
    assert [row["transaction"] for row in found] == [None, None]


@pytest.mark.parametrize("connector", FORMS)
def test_a_snapshot_before_anything_was_captured_has_no_lsn(connector: str) -> None:
    part = batch(TABLES[connector], [("r", 0, None, JOHN)], [Marker.LAST])
    part.transactions = CapturedTransactions(pa.array([bytes(10)], pa.binary()), np.full(1, AT_US, np.int64))
    (row,) = rows(part, settings(connector))
    assert row["value"]["payload"]["source"]["commit_lsn"] is None
    assert row["position"] == "0" * 40


# As Microsoft's driver describes these columns to Debezium.
DECLARED: list[tuple[str, int, bool, tuple[int, str, int, int | None]]] = [
    ("bigint", -1, False, (-5, "bigint", 19, 0)),
    ("binary", 4, False, (-2, "binary", 4, None)),
    ("bit", -1, False, (-7, "bit", 1, None)),
    ("char", 5, False, (1, "char", 5, None)),
    ("date", -1, False, (91, "date", 10, None)),
    ("datetime", -1, False, (93, "datetime", 23, 3)),
    ("datetime2", 0, False, (93, "datetime2", 19, 0)),
    ("datetime2", 3, False, (93, "datetime2", 23, 3)),
    ("datetime2", 7, False, (93, "datetime2", 27, 7)),
    ("datetimeoffset", 0, False, (-155, "datetimeoffset", 26, 0)),
    ("datetimeoffset", 7, False, (-155, "datetimeoffset", 34, 7)),
    ("decimal", 38 << 16 | 10, False, (3, "decimal", 38, 10)),
    ("float", 53, False, (8, "float", 53, None)),
    ("image", -1, False, (-4, "image", 2147483647, None)),
    ("int", -1, True, (4, "int identity", 10, 0)),
    ("money", -1, False, (3, "money", 19, 4)),
    ("nchar", 5, False, (-15, "nchar", 5, None)),
    ("ntext", -1, False, (-16, "ntext", 1073741823, None)),
    ("numeric", 18 << 16, False, (2, "numeric", 18, 0)),
    ("nvarchar", -1, False, (-9, "nvarchar", 2147483647, None)),
    ("real", -1, False, (7, "real", 24, None)),
    ("smalldatetime", -1, False, (93, "smalldatetime", 16, 0)),
    ("smallint", -1, False, (5, "smallint", 5, 0)),
    ("smallmoney", -1, False, (3, "smallmoney", 10, 4)),
    ("text", -1, False, (-1, "text", 2147483647, None)),
    ("time", 0, False, (92, "time", 8, 0)),
    ("time", 3, False, (92, "time", 12, 3)),
    ("time", 7, False, (92, "time", 16, 7)),
    ("timestamp", -1, False, (-2, "timestamp", 8, None)),
    ("tinyint", -1, False, (-6, "tinyint", 3, 0)),
    ("uniqueidentifier", -1, False, (1, "uniqueidentifier", 36, None)),
    ("varbinary", -1, False, (-3, "varbinary", 2147483647, None)),
    ("varchar", 255, False, (12, "varchar", 255, None)),
    ("xml", -1, False, (-16, "xml", 2147483647, None)),
]


@pytest.mark.parametrize(("kind", "modifier", "identity", "told"), DECLARED)
def test_types_are_declared_as_the_driver_tells_them(
    kind: str, modifier: int, identity: bool, told: tuple[int, str, int, int | None]
) -> None:
    column, of = Column("c", kind, 0, modifier, identity=identity), FORMS["sqlserver"].described
    assert (of.jdbc_type(column), of.type_name(column), of.length(column), of.scale(column)) == told


@pytest.mark.seed("001-11")
@pytest.mark.parametrize(
    ("lsn", "text"),
    [
        ("00000027000007580003", "00000027:00000758:0003"),
        ("ffffffffffffffffffff", "ffffffff:ffffffff:ffff"),
        ("000000270000075800030000000000ab", "00000027:00000758:00030000000000ab"),
    ],
)
def test_an_lsn_is_hexadecimal_in_three_parts(lsn: str, text: str) -> None:
    assert lsn_text(bytes.fromhex(lsn)) == text
    assert position_of(bytes.fromhex(lsn), bytes.fromhex(lsn)) == 2 * lsn.upper()
    assert position_of(bytes.fromhex(lsn), bytes.fromhex(lsn), 258) == lsn.upper() + "00000102" + lsn.upper()
    assert position_of(bytes.fromhex(lsn)) == lsn.upper() + "0" * len(lsn)


@pytest.mark.seed("004-02", "004-04", "004-07", "004-08", "004-10", "004-11", "004-12", "004-13", "004-14", "004-15")
def test_the_create_of_the_db2_document() -> None:
    (row,) = rows(batch(DB2_CUSTOMERS, [("c", 0, None, JOHN)]), settings("db2"))
    assert row["topic"] == "mydatabase.MYSCHEMA.CUSTOMERS"
    assert row["key"] == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": False, "field": "ID"}],
            "optional": False,
            "name": "mydatabase.MYSCHEMA.CUSTOMERS.Key",
        },
        "payload": {"ID": 1005},
    }
    schema, payload = row["value"]["schema"], row["value"]["payload"]
    assert [(field["field"], field.get("name")) for field in schema["fields"][:3]] == [
        ("before", "mydatabase.MYSCHEMA.CUSTOMERS.Value"),
        ("after", "mydatabase.MYSCHEMA.CUSTOMERS.Value"),
        ("source", "io.debezium.connector.db2.Source"),
    ]
    assert (schema["name"], schema["version"]) == ("mydatabase.MYSCHEMA.CUSTOMERS.Envelope", 1)
    payload.pop("ts_ms")
    assert payload == {
        "before": None,
        "after": {"ID": 1005, "FIRST_NAME": "john", "LAST_NAME": "doe", "EMAIL": "john.doe@example.org"},
        "source": {
            "version": "2.3.7.Final",
            "connector": "db2",
            "name": "mydatabase",
            "ts_ms": 1559729468470,
            "snapshot": "false",
            "db": "mydatabase",
            "sequence": None,
            "schema": "MYSCHEMA",
            "table": "CUSTOMERS",
            "change_lsn": "00000027:00000758:0003",
            "commit_lsn": "00000027:00000758:0005",
        },
        "op": "c",
        "transaction": None,
    }


def test_todays_form_tells_nanoseconds_and_its_context() -> None:
    (row,) = rows(batch(CUSTOMERS, [("c", 1, None, JOHN)]), settings("sqlserver", today=True))
    assert row["topic"] == "server1.testDB.dbo.customers"
    assert row["value"]["schema"]["name"] == "server1.testDB.dbo.customers.Envelope"
    payload = row["value"]["payload"]
    assert list(payload) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert list(payload["source"]) == [
        *("version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns"),
        *("schema", "table", "change_lsn", "commit_lsn", "event_serial_no"),
    ]
    assert (payload["source"]["ts_us"], payload["source"]["ts_ns"]) == (AT_US, AT_US * 1000)
    context = {pair["key"].rpartition(".")[2]: json.loads(pair["value"])["payload"] for pair in row["headers"]}
    assert context == {
        "connectorLogicalName": "server1",
        "taskId": "0",
        "connectorName": "sqlserver",
        "runId": "run",
    }


@pytest.mark.seed("004-01", "004-03", "004-09")
def test_the_key_is_what_the_option_says_and_null_without_one() -> None:
    keyless = replace(DB2_CUSTOMERS, key=())
    part = batch(keyless, [("c", 0, None, JOHN)])
    assert rows(part, settings("db2"))[0]["key"] is None
    chosen = settings("db2", {"message.key.columns": "MYSCHEMA.CUSTOMERS:EMAIL,id"})
    keyed = Admission(chosen, FORMS["db2"]).admit(keyless)
    (row,) = rows(batch(keyed, [("c", 0, None, JOHN)]), chosen)
    assert row["key"]["payload"] == {"EMAIL": "john.doe@example.org", "ID": 1005}


@pytest.mark.parametrize(
    ("strategy", "sqlserver", "db2"),
    [
        ("SchemaTopicNamingStrategy", "server1.testDB.dbo.t", "mydatabase.dbo.t"),
        ("DefaultTopicNamingStrategy", "server1.testDB.t", "mydatabase.t"),
        ("SchemaRegexTopicNamingStrategy", "x.server1.dbo.t", "x.mydatabase.dbo.t"),
        ("DefaultRegexTopicNamingStrategy", "x.server1.testDB.t", "x.mydatabase.t"),
    ],
)
def test_topics_are_named_as_debeziums_strategies_name_them(strategy: str, sqlserver: str, db2: str) -> None:
    options = {"topic.naming.strategy": f"io.debezium.schema.{strategy}"}
    if "Regex" in strategy:
        options |= {"topic.regex": "(.*)", "topic.replacement": "x.$1"}
    for connector, topic in (("sqlserver", sqlserver), ("db2", db2)):
        chosen = settings(connector, options, today=True)
        assert names.topic(chosen, TableId("testDB", "dbo", "t")) == topic
        assert names.schema_change_topic(chosen) == chosen.logical_name


@pytest.mark.seed("004-05", "004-06")
def test_names_that_collide_are_told() -> None:
    chosen = settings("db2")
    admission = Admission(chosen, FORMS["db2"])
    for name in ("T#1", "T$1", "t#1"):
        table = replace(DB2_CUSTOMERS, id=TableId("mydatabase", "S", name))
        assert names.topic(chosen, admission.admit(table).id) == f"mydatabase.S.{name[0]}_1"
    assert admission.warnings == ["the tables S.T#1 and S.T$1 share the topic mydatabase.S.T_1"]


@pytest.mark.parametrize("connector", FORMS)
def test_column_options_work_on_text_alone(connector: str) -> None:
    table = TABLES[connector]
    column = table.columns[3].name
    options = {
        "column.mask.with.3.chars": rf".*\.{column}",
        "column.exclude.list": rf".*\.{table.columns[1].name}",
        "column.propagate.source.type": rf".*\.{table.columns[2].name}",
        "column.truncate.to.2.chars": rf".*\.{table.columns[0].name}",
    }
    (row,) = rows(batch(table, [("c", 1, None, JOHN)]), settings(connector, options))
    assert list(row["value"]["payload"]["after"].values()) == [1005, "doe", "***"]
    told = row["value"]["schema"]["fields"][1]["fields"][1]["parameters"]
    assert told == {"__debezium.source.column.type": "VARCHAR", "__debezium.source.column.length": "255"}


@pytest.mark.parametrize(
    ("connector", "collection"), [("sqlserver", "testDB.dbo.customers"), ("db2", "MYSCHEMA.CUSTOMERS")]
)
def test_transactions_are_named_by_their_commits_lsn(connector: str, collection: str) -> None:
    chosen = settings(connector, {"provide.transaction.metadata": "true"}, today=True)
    order = np.array([1, 2], np.int64)
    part = batch(
        TABLES[connector],
        [("c", 1, None, JOHN), ("d", 1, JOHN, None)],
        total_order=order,
        table_order=order,
    )
    found = rows(part, chosen)
    name = "00000027:00000758:0005"
    assert [row["value"] and row["value"]["payload"]["transaction"] for row in found] == [
        {"id": name, "total_order": 1, "data_collection_order": 1},
        {"id": name, "total_order": 2, "data_collection_order": 2},
        None,
    ]
    assert {row["transaction"] for row in found} == {name}
    assert names.collection(chosen, TABLES[connector].id) == collection
    counts = Counts(2, ((collection, 2),))
    boundary = Boundary(name, 0, position_of(COMMIT), AT_US, 2, counts)
    (end,) = boundary_rows([boundary], chosen).to_pylist()
    payload = json.loads(end["value"])["payload"]
    assert (payload["status"], payload["id"], payload["ts_ms"]) == ("END", name, AT_US // 1000)
    assert payload["data_collections"] == [{"data_collection": collection, "event_count": 2}]
    assert end["position"] == position_of(COMMIT)
    assert found[0]["position"].startswith("00000027000007580005")
    assert [len(row["position"]) for row in found] == [40] * len(found)


def test_a_heartbeat_stands_where_its_batch_ends() -> None:
    (row,) = heartbeat_row(7, position_of(COMMIT), settings("sqlserver", today=True)).to_pylist()
    assert (row["position"], row["database"]) == ("00000027000007580005" + "0" * 20, "testDB")
    several = settings("sqlserver", {"database.names": "a,b"}, today=True)
    assert heartbeat_row(7, position_of(COMMIT), several).to_pylist()[0]["database"] is None


FAR = TableSchema(
    TableId("testDB", "dbo", "t"),
    (Column("id", "int", 56, nullable=False), Column("at", "datetime2", 42, 7)),
    ("id",),
)
FAR_CHANGES: list[Any] = [
    ("c", 1, None, ("1", "2019-05-27 00:00:00.0000000")),
    ("c", 1, None, ("2", "9999-12-31 00:00:00.0000000")),
    ("c", 1, None, ("3", None)),
]


def test_a_value_beyond_its_type_is_null_or_put_aside_or_stops_the_query() -> None:
    part = batch(FAR, FAR_CHANGES)
    plain = {"value.converter.schemas.enable": "false", "key.converter.schemas.enable": "false"}
    shown = rows(part, settings("sqlserver", plain))
    assert [row["value"]["after"]["at"] for row in shown] == [1558915200000000000, None, None]
    failing = plain | {"event.converting.failure.handling.mode": "fail"}
    aside = rows(part, settings("sqlserver", failing | {"event.processing.failure.handling.mode": "warn"}))
    assert [row["op"] for row in aside] == ["c", "quarantine", "c"]
    told = aside[1]["value"]
    assert (told["lsn"], told["position"]) == ("00000027:00000758:0003", "00000027:00000758:0005")
    assert aside[1]["position"] == "0000002700000758000500000027000007580003"
    with pytest.raises(ConversionError, match=r"column at of dbo\.t .* at 00000027:00000758:0003"):
        rows(part, settings("sqlserver", failing))


def test_an_empty_batch_has_no_rows() -> None:
    empty = batch(CUSTOMERS, [])
    assert rows(empty, settings("sqlserver")) == []
    assert pa.types.is_binary(empty.lsn.type)
