"""The fixed schemas of SQL Server's and Db2's records, and the records that tell a table's new form.

`recorded/schemas.jsonl.gz` holds the schemas that Debezium's own factories gave: SQL Server 1.0.0.Final and
3.6.1.Final, Db2 2.3.0.Final and 3.6.1.Final. A line is: connector, event format, kind of schema, the schema.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.columns import ROW_SCHEMA, Column, Marker, TableId, TableSchema
from tailrace.columns.logical import LogicalType
from tailrace.connectors.db2.values.conversions import FORM as DB2
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events import control_records, names, schema_changes
from tailrace.events.captured_form import CapturedForm
from tailrace.events.event_settings import EventSettings
from tailrace.events.schema_changes import ALTER, CREATE, PrecedingChange, SchemaChange, quoted_name, schema_change_rows
from tailrace.values.json_text import schema_text
from tests.event_schemas import event_schemas
from tests.event_settings import event_settings

FORMS = {"sqlserver": SQL_SERVER, "db2": DB2}
RECORDED = Path(__file__).parent / "recorded" / "schemas.jsonl.gz"
TABLE = TableSchema(
    TableId("testDB", "dbo", 'cust"omers'),
    (
        Column("id", "int", 56, nullable=False, identity=True),
        Column("name", "nvarchar", 231, 50, default="(N'x')", comment="c"),
    ),
    ("id",),
)
COMMIT = bytes.fromhex("00000027000007580005")


def settings(connector: str, form: str, **more: Any) -> EventSettings:
    return event_settings("server1", "testDB", connector=connector, event_format=form, **more)


def of_table(chosen: EventSettings, form: CapturedForm, kind: str) -> LogicalType | None:
    column = Column("ID", "int" if chosen.connector == "sqlserver" else "INTEGER", 4, nullable=False)
    table = TableSchema(TableId("testDB", "s", "t"), (column,), ("ID",))
    found = event_schemas(table, form.columns(table, chosen)[0], form.key(table, chosen), chosen, form)
    return found.key if kind == "key" else found.value


OURS: dict[str, Callable[[EventSettings, CapturedForm], LogicalType | None]] = {
    "envelope": lambda chosen, form: of_table(chosen, form, "value"),
    "key": lambda chosen, form: of_table(chosen, form, "key"),
    "heartbeat key": lambda chosen, _: control_records.heartbeat_key_schema(chosen),
    "heartbeat value": lambda chosen, _: control_records.heartbeat_value_schema(chosen),
    "transaction key": lambda chosen, _: control_records.boundary_key_schema(chosen),
    "transaction value": lambda chosen, _: control_records.boundary_value_schema(chosen),
    "notification key": lambda chosen, _: control_records.notification_key_schema(chosen),
    "notification value": lambda chosen, _: control_records.notification_value_schema(chosen),
    "schema change key": lambda chosen, _: schema_changes.key_schema(chosen),
    "schema change value": schema_changes.value_schema,
}


def recorded() -> list[tuple[str, str, str, Any]]:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [tuple(json.loads(line)) for line in lines]


@pytest.mark.seed("001-10", "001-13", "004-08", "004-12", "004-13", "004-13b", "004-14")
@pytest.mark.parametrize(
    ("connector", "form", "kind", "schema"), recorded(), ids=lambda part: part if isinstance(part, str) else ""
)
def test_fixed_schemas_are_those_of_debeziums_factories(connector: str, form: str, kind: str, schema: Any) -> None:
    chosen = settings(connector, form)
    ours = OURS[kind](chosen, FORMS[connector])
    assert ours is not None
    # The factories were called without the database that today's SQL Server names have.
    text = schema_text(ours).replace(names.topic(chosen, TableId("testDB", "s", "t")), "server1.s.t")
    assert json.loads(text) == schema
    assert text == json.dumps(schema, separators=(",", ":"))


def test_every_kind_is_recorded() -> None:
    kinds = {(connector, form, kind) for connector, form, kind, _ in recorded()}
    assert kinds == {
        (connector, form, kind)
        for connector, form in (("sqlserver", "3"), ("db2", "2.3"), ("db2", "3"))
        for kind in OURS
    } | {("sqlserver", "1.0", kind) for kind in ("envelope", "heartbeat key", "heartbeat value")}


def record(connector: str, form: str, *changes: SchemaChange, **more: Any) -> list[dict[str, Any]]:
    batch = schema_change_rows(changes, settings(connector, form, **more), FORMS[connector])
    assert batch.schema == ROW_SCHEMA
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def test_a_change_is_told_with_the_change_of_a_row_before_it() -> None:
    before = PrecedingChange(
        TableId("testDB", "dbo", "orders"), b"\0\0\0\x26" + COMMIT[4:], COMMIT, 2, 1_500_000_000_123_000
    )
    (found,) = record("sqlserver", "3", SchemaChange(ALTER, TABLE, COMMIT, 0, 0, preceding=before))
    # The row stands where the new form begins.
    assert (found["position"], found["table"]) == ("00000027000007580005" + "0" * 20, TABLE.id.table)
    payload = json.loads(found["value"])["payload"]
    assert payload["tableChanges"][0]["id"] == '"testDB"."dbo"."cust""omers"'
    names = ("schema", "table", "commit_lsn", "change_lsn", "event_serial_no", "ts_ms", "snapshot")
    assert [payload["source"][name] for name in names] == [
        "dbo",
        "orders",
        "00000026:00000758:0005",
        "00000027:00000758:0005",
        2,
        1_500_000_000_123,
        "false",
    ]


def test_a_table_found_by_a_snapshot_and_its_change_are_told() -> None:
    found = record(
        "sqlserver",
        "3",
        SchemaChange(CREATE, TABLE, COMMIT, 1_559_729_468_470_000, 0, Marker.TRUE),
        SchemaChange(ALTER, TABLE, COMMIT, 1_559_729_468_470_000, 1),
        run_id="run",
    )
    assert [row["topic"] for row in found] == ["server1", "server1"]
    assert [row["op"] for row in found] == ["schema", "schema"]
    assert [row["position"] for row in found] == ["00000027000007580005" + "0" * 20] * 2
    assert [pair["key"].rpartition(".")[2] for pair in found[0]["headers"]] == [
        "connectorLogicalName",
        "taskId",
        "connectorName",
        "runId",
    ]
    assert json.loads(found[0]["key"])["payload"] == {"databaseName": "testDB"}
    created, altered = (json.loads(row["value"])["payload"] for row in found)
    assert list(created) == ["source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"]
    assert (created["ddl"], altered["ddl"]) == (None, "N/A")
    assert (created["source"]["snapshot"], altered["source"]["snapshot"]) == ("true", "false")
    assert created["source"]["commit_lsn"] == "00000027:00000758:0005"
    assert created["source"]["change_lsn"] is None
    # The output of Debezium's own serialiser for the same table.
    assert created["tableChanges"] == [
        {
            "type": "CREATE",
            "id": '"testDB"."dbo"."cust""omers"',
            "table": {
                "defaultCharsetName": None,
                "primaryKeyColumnNames": ["id"],
                "columns": [
                    {
                        "name": "id",
                        "jdbcType": 4,
                        "nativeType": None,
                        "typeName": "int identity",
                        "typeExpression": "int identity",
                        "charsetName": None,
                        "length": 10,
                        "scale": 0,
                        "position": 1,
                        "optional": False,
                        "autoIncremented": True,
                        "generated": False,
                        "comment": None,
                        "defaultValueExpression": None,
                        "enumValues": None,
                    },
                    {
                        "name": "name",
                        "jdbcType": -9,
                        "nativeType": None,
                        "typeName": "nvarchar",
                        "typeExpression": "nvarchar",
                        "charsetName": None,
                        "length": 50,
                        "scale": None,
                        "position": 2,
                        "optional": True,
                        "autoIncremented": False,
                        "generated": False,
                        "comment": None,
                        "defaultValueExpression": "(N'x')",
                        "enumValues": None,
                    },
                ],
                "comment": None,
            },
        }
    ]
    fields = [field["field"] for field in json.loads(found[0]["value"])["schema"]["fields"]]
    assert fields == list(created)


def test_before_anything_was_captured_there_is_no_lsn_to_tell() -> None:
    (row,) = record("sqlserver", "3", SchemaChange(CREATE, TABLE, bytes(10), 7_000, 0, Marker.TRUE))
    source = json.loads(row["value"])["payload"]["source"]
    assert (source["commit_lsn"], source["ts_ms"]) == (None, 7)


def test_the_first_form_of_sql_server_has_no_such_records() -> None:
    assert record("sqlserver", "1.0", SchemaChange(CREATE, TABLE, COMMIT, 0, 0)) == []


def test_db2_names_a_table_without_its_database() -> None:
    assert quoted_name(TABLE.id, settings("db2", "2.3")) == '"dbo"."cust""omers"'
    (row,) = record("db2", "2.3", SchemaChange(CREATE, TABLE, COMMIT, 0, 0), value_schemas_enable=False)
    assert row["headers"] is None
    assert json.loads(row["value"])["source"]["connector"] == "db2"
