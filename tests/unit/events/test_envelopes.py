"""Envelopes made from the changes in Debezium's recordings equal the recorded events, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tailrace.columns import Column, Marker, TableId, TableSchema, Transactions
from tailrace.connectors.postgres.log.form import FORM
from tests.event_settings import event_settings
from tests.unit.events.changes import batch, plain_settings, read, table
from tests.unit.events.recorded import RUN, recorded, written

CUSTOMERS = TableSchema(
    TableId("golden", "inventory", "customers"),
    (
        Column("id", "int4", 23, nullable=False, default="nextval('inventory.customers_id_seq'::regclass)"),
        Column("first_name", "varchar", 1043, 259, nullable=False),
        Column("last_name", "varchar", 1043, 259, nullable=False),
        Column("email", "varchar", 1043, 259, nullable=False),
    ),
    ("id",),
)
ROW = (
    '{"type":"struct","fields":[{"type":"int32","optional":false,"default":0,"field":"id"},'
    '{"type":"string","optional":false,"field":"first_name"},{"type":"string","optional":false,"field":"last_name"},'
    '{"type":"string","optional":false,"field":"email"}],"optional":true,'
    '"name":"dbserver1.inventory.customers.Value","field":"%s"}'
)
KEY = (
    '{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"default":0,"field":"id"}],'
    '"optional":false,"name":"dbserver1.inventory.customers.Key"},"payload":{"id":1004}}'
)
AFTER = '{"id":1004,"first_name":"Anne Marie","last_name":"Kretchmar","email":"annek@noanswer.org"}'
SOURCE_BEGIN = (
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"version"},'
    '{"type":"string","optional":false,"field":"connector"},{"type":"string","optional":false,"field":"name"},'
    '{"type":"int64","optional":false,"field":"ts_ms"},'
    '{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"%s"},'
    '"default":"false","field":"snapshot"},{"type":"string","optional":false,"field":"db"},'
    '{"type":"string","optional":true,"field":"sequence"},'
)
SOURCE_END = (
    '{"type":"string","optional":false,"field":"schema"},{"type":"string","optional":false,"field":"table"},'
    '{"type":"int64","optional":true,"field":"txId"},{"type":"int64","optional":true,"field":"lsn"},'
    '{"type":"int64","optional":true,"field":"xmin"}'
)
BLOCK = (
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"},'
    '{"type":"int64","optional":false,"field":"total_order"},'
    '{"type":"int64","optional":false,"field":"data_collection_order"}],"optional":true,%s"field":"transaction"}'
)
CONTEXT = ",".join(
    f'{{"key":"__debezium.context.{name}","value":{{"schema":{{"type":"string","optional":false}},"payload":"{value}"}}}}'
    for name, value in (
        ("connectorLogicalName", "dbserver1"),
        ("taskId", "0"),
        ("connectorName", "postgresql"),
        ("runId", "RUN"),
    )
)
MARKERS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
# The output of Debezium 3.6.1 and 1.7.2 for the tutorial's update, without the envelope's time and the query.
TODAY = (
    f'{{"topic":"dbserver1.inventory.customers","key":{KEY},"value":{{"schema":{{"type":"struct","fields":['
    f"{ROW % 'before'},{ROW % 'after'},{SOURCE_BEGIN % MARKERS}"
    '{"type":"int64","optional":true,"field":"ts_us"},{"type":"int64","optional":true,"field":"ts_ns"},'
    f'{SOURCE_END},{{"type":"string","optional":true,"field":"origin"}},'
    '{"type":"int64","optional":true,"field":"origin_lsn"}],"optional":false,'
    '"name":"io.debezium.connector.postgresql.Source","version":1,"field":"source"},'
    + BLOCK
    % '"name":"event.block","version":1,'
    + ',{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},'
    '{"type":"int64","optional":true,"field":"ts_us"},{"type":"int64","optional":true,"field":"ts_ns"}],'
    '"optional":false,"name":"dbserver1.inventory.customers.Envelope","version":2},'
    f'"payload":{{"before":null,"after":{AFTER},"source":{{"version":"3.6.1.Final","connector":"postgresql",'
    '"name":"dbserver1","ts_ms":1795222829760,"snapshot":"false","db":"golden",'
    r'"sequence":"[\"514414464\",\"514414464\"]",'
    '"ts_us":1795222829760566,"ts_ns":1795222829760566000,"schema":"inventory","table":"customers","txId":3884,'
    '"lsn":514414464,"xmin":null,"origin":null,"origin_lsn":null},"transaction":null,"op":"u","ts_ms":0}},'
    f'"headers":[{CONTEXT}]}}'
)
DOCUMENT = (
    f'{{"topic":"dbserver1.inventory.customers","key":{KEY},"value":{{"schema":{{"type":"struct","fields":['
    f"{ROW % 'before'},{ROW % 'after'},{SOURCE_BEGIN % 'true,last,false'}"
    f'{SOURCE_END}],"optional":false,"name":"io.debezium.connector.postgresql.Source","field":"source"}},'
    '{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},'
    + BLOCK
    % ""
    + '],"optional":false,"name":"dbserver1.inventory.customers.Envelope"},'
    f'"payload":{{"before":null,"after":{AFTER},"source":{{"version":"1.7.2.Final","connector":"postgresql",'
    '"name":"dbserver1","ts_ms":1795226824406,"snapshot":"false","db":"golden",'
    r'"sequence":"[\"412445360\",\"412445360\"]",'
    '"schema":"inventory","table":"customers","txId":2825,"lsn":412445360,"xmin":null},"op":"u","ts_ms":0,'
    '"transaction":null}},"headers":[]}'
)


@pytest.mark.seed("000-03", "000-12", "000-16", "000-23", "000-23b", "000-24", "000-27", "000-28", "000-33")
@pytest.mark.parametrize(
    ("form", "version", "xid", "lsn", "commit_us", "line"),
    [
        ("3", "3.6.1.Final", 3884, 514414464, 1795222829760566, TODAY),
        ("1.7", "1.7.2.Final", 2825, 412445360, 1795226824406123, DOCUMENT),
    ],
)
def test_an_update_has_every_byte_of_debeziums(
    form: str, version: str, xid: int, lsn: int, commit_us: int, line: str
) -> None:
    part = batch(CUSTOMERS, [("u", None, ("1004", "Anne Marie", "Kretchmar", "annek@noanswer.org"))])
    part.lsn = np.array([lsn], np.int64)
    part.transactions = Transactions(*(np.array([number], np.int64) for number in (xid, lsn + 80, commit_us, lsn)))
    settings = event_settings("dbserver1", "golden", event_format=form, version=version, run_id=RUN)
    assert list(written(part, settings, FORM)) == [line]
    assert line in recorded(f"postgres{'' if form == '3' else '-1.7'}/tutorial").lines


@pytest.mark.seed("000-25", "000-26", "000-33", "000-34", "000-44", "001-13", "004-11", "004-14")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/tutorial",
        "postgres/relations",
        "postgres/restart",
        "postgres/publication_ready",
        "postgres/partitions",
        "postgres/partitions_root",
        "postgres/partition_root",
        "postgres/types_network",
        "postgres-1.7/tutorial",
        "postgres-1.7/restart",
        "postgres-1.7/publication_ready",
        "postgres-1.7/partitions",
        "postgres-1.7/types_network",
        "sqlserver-1.0/customers",
        "sqlserver-1.0/captured_before",
        "sqlserver-1.0/restart",
        "sqlserver-1.0/second_instance",
        "sqlserver-1.0/truncate_update_all",
        "sqlserver-3/customers",
        "sqlserver-3/captured_before",
        "sqlserver-3/query_direct",
        "sqlserver-3/restart",
        "sqlserver-3/second_instance",
        "sqlserver-3/table_include",
        "sqlserver-3/table_include_only",
        "sqlserver-3/truncate_update_all",
        "db2-2.3/tutorial",
    ],
)
def test_events_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


@pytest.mark.parametrize(
    ("case", "versions"),
    [
        ("postgres/schema_change_keys", 4),
        ("postgres/restart_schema_changed", 2),
        ("postgres-1.7/schema_change_keys", 4),
        ("postgres-1.7/restart_schema_changed", 2),
        ("sqlserver-3/schema_changes", 3),
    ],
)
def test_events_follow_the_version_of_their_table(case: str, versions: int) -> None:
    found = recorded(case)
    assert len({part.table for part in found.batches}) >= versions
    assert found.made() == found.lines


@pytest.mark.parametrize("case", ["postgres/default_nulls_kept"])
def test_a_null_in_a_column_with_a_default_is_as_the_converter_says(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


THINGS = table("t", [Column("id", "int4", 23, nullable=False), Column("n", "int4", 23, default="7")], "id")


@pytest.mark.parametrize(("replaces", "n"), [(True, 7), (False, None)])
def test_nulls_become_defaults_before_the_change_too(replaces: bool, n: int | None) -> None:
    (row,) = read(batch(THINGS, [("u", ("1", None), ("1", None))]), plain_settings(replace_null_with_default=replaces))
    assert row["value"]["before"] == row["value"]["after"] == {"id": 1, "n": n}
    # The marker of the log is the same default.
    assert row["value"]["source"]["snapshot"] == ("false" if replaces else None)


@pytest.mark.seed("000-17", "000-18", "000-20", "000-34")
def test_what_no_old_row_tells_is_null_or_the_zero_of_its_type() -> None:
    things = table(
        "t",
        [
            Column("id", "int4", 23, nullable=False),
            Column("name", "text", 25, nullable=False),
            Column("count", "int8", 20, nullable=False),
            Column("flag", "bool", 16, nullable=False),
            Column("kind", "text", 25, nullable=False, default="'usual'::text"),
            Column("note", "text", 25),
        ],
        "id",
    )
    (row, _) = read(batch(things, [("d", ("1", None, None, None, None, None), None)]), plain_settings())
    assert row["value"]["after"] is None
    assert row["value"]["before"] == {"id": 1, "name": "", "count": 0, "flag": False, "kind": "usual", "note": None}


@pytest.mark.parametrize(
    ("form", "markers"),
    [
        ("3", ["first", "true", "first_in_data_collection", "last_in_data_collection", "last", "incremental"]),
        ("1.7", ["true", "true", "true", "true", "last", "incremental"]),
    ],
)
def test_rows_of_snapshots_show_their_marker(form: str, markers: list[str]) -> None:
    given = [
        Marker.FIRST,
        Marker.TRUE,
        Marker.FIRST_IN_DATA_COLLECTION,
        Marker.LAST_IN_DATA_COLLECTION,
        Marker.LAST,
        Marker.INCREMENTAL,
    ]
    part = batch(THINGS, [("r", None, (str(number), "1")) for number in range(len(given))], given)
    found = read(part, plain_settings(event_format=form))
    assert [row["value"]["source"]["snapshot"] for row in found] == markers
    # The rows' own column uses today's names in every form.
    assert [row["snapshot"] for row in found] == [marker.name.lower() for marker in given]
    assert [row["value"]["op"] for row in found] == ["r"] * len(given)


@pytest.mark.seed("002-17", "002-27")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/incremental_snapshot",
        "postgres/incremental_snapshot_insert_delete",
        "postgres/incremental_conditions",
        "postgres/incremental_document",
        "postgres/incremental_schema_change",
        "postgres/incremental_signal_table",
        "postgres/incremental_transactions",
        "postgres-1.7/incremental_snapshot",
        "postgres-1.7/incremental_schema_change",
        "postgres-1.7/incremental_transactions",
        "sqlserver-3/incremental_snapshot",
    ],
)
def test_reads_of_incremental_snapshots_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert any('"snapshot":"incremental"' in line for line in found.lines)
    assert found.made() == found.lines


@pytest.mark.seed("000-30", "000-32")
@pytest.mark.parametrize(
    "case",
    [
        "postgres/snapshot_empty_tables",
        "postgres/snapshot_include_list",
        "postgres/snapshot_select_override",
        "postgres/snapshot_always_restart",
        "postgres/snapshot_restart_no_data",
        "postgres/snapshot_when_needed",
        "postgres-1.7/snapshot_empty_tables",
        "postgres-1.7/snapshot_include_list",
        "postgres-1.7/snapshot_select_override",
        "postgres-1.7/snapshot_always_restart",
        "postgres-1.7/snapshot_restart_no_data",
        "sqlserver-1.0/snapshot_tables",
        "sqlserver-1.0/snapshot_no_data",
        "sqlserver-3/snapshot_tables",
        "sqlserver-3/snapshot_no_data",
        "sqlserver-3/snapshot_initial_only",
    ],
)
def test_reads_of_initial_snapshots_are_as_recorded(case: str) -> None:
    found = recorded(case)
    assert found.made() == found.lines


def test_changes_of_one_transaction_share_it_and_differ_in_their_lsn() -> None:
    changes: list[Any] = [("c", None, (str(number), "1")) for number in range(3)]
    found = read(batch(THINGS, changes, together=True), plain_settings())
    sources = [row["value"]["source"] for row in found]
    assert [source["txId"] for source in sources] == [700] * 3
    assert [source["lsn"] for source in sources] == [5000, 5010, 5020]
    assert [json.loads(source["sequence"]) for source in sources] == [["4999", str(lsn)] for lsn in (5000, 5010, 5020)]
    assert len({row["position"] for row in found}) == 1
    assert [row["ordinal"] for row in found] == [0, 1, 2]


def test_the_slots_xmin_is_shown_where_it_is_known() -> None:
    (row,) = read(batch(THINGS, [("c", None, ("1", "1"))], xmin=742), plain_settings())
    assert row["value"]["source"]["xmin"] == 742
