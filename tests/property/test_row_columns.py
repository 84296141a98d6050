"""Rows with some columns hold the same there as rows with all columns, in the requested order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.columns import COLUMNS, ROW_SCHEMA, Boundary, ChangeBatch, Column, TableId, TableSchema
from tailrace.columns.batch import LogicalMessage
from tailrace.columns.row import made_columns, row_schema
from tailrace.connectors.mongodb.records import partition
from tailrace.connectors.mongodb.records.segment import OPLOG
from tailrace.connectors.postgres.log.form import FORM
from tailrace.connectors.registry import parse
from tailrace.connectors.sqlserver.values.conversions import FORM as SQL_SERVER
from tailrace.events.control_records import boundary_rows, heartbeat_row, message_rows, notification_rows
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import ChangePlace
from tailrace.events.quarantine import QuarantinedChange, too_large
from tailrace.events.record_assembly import to_rows
from tailrace.events.schema_changes import SchemaChange, schema_change_rows
from tailrace.snapshot.incremental import InitialNotifications
from tailrace.spark.source import row_type
from tailrace.spark.stream_reader import ChangeStreamReader
from tailrace.spark.tasks import TaskPartition
from tests.event_settings import event_settings
from tests.extent import examples
from tests.property import captured_batches, json_batches
from tests.property import test_shared_collections as collections

NOW = 1_795_222_828_465_236_739

wanted = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True).map(tuple)
"""Draw some columns in any order."""


class Rows:
    """A task that yields given batches."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.batches = batches

    def read(self) -> Any:
        return iter(self.batches)


def read(columns: tuple[str, ...], batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return Spark's rows of a task's batches if a query wants `columns`."""
    options = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    reader = ChangeStreamReader(parse("postgres", options | {"row.columns": ",".join(columns)}), "run")
    return list(reader.read(TaskPartition(Rows(*batches))))


def same(columns: tuple[str, ...], rows: Callable[[tuple[str, ...]], list[pa.RecordBatch]]) -> None:
    """Assert that rows with some columns equal the same columns of rows with all."""
    with patch("tailrace.events.record_assembly.time.time_ns", lambda: NOW):
        whole, made = rows(COLUMNS), rows(made_columns(columns))
    for batch in made:
        batch.validate(full=True)
        assert batch.schema == row_schema(made_columns(columns))
    got = read(columns, made)
    assert all(batch.schema == pa.schema([ROW_SCHEMA.field(name) for name in columns]) for batch in got)
    assert [batch.to_pylist() for batch in got] == [batch.select(columns).to_pylist() for batch in whole]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(json_batches.batches(), json_batches.settings(), wanted)
def test_of_a_table_of_postgresql(batch: ChangeBatch, chosen: EventSettings, columns: tuple[str, ...]) -> None:
    same(columns, lambda made: list(to_rows(batch, replace(chosen, columns=made), FORM)))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(sorted(captured_batches.KINDS)), wanted)
def test_of_a_change_table(data: st.DataObject, connector: str, columns: tuple[str, ...]) -> None:
    batch = data.draw(captured_batches.batches(connector))
    chosen = data.draw(captured_batches.settings(connector))
    form = captured_batches.form_of(connector)
    same(columns, lambda made: list(to_rows(batch, replace(chosen, columns=made), form)))


@settings(max_examples=examples(60), deadline=None)
@given(collections.logs, st.integers(1, 3), wanted)
def test_of_collections(log: list[collections.Change], parallelism: int, columns: tuple[str, ...]) -> None:
    rows = collections.rows_of(log, [], collections.KEYS)

    def records(made: tuple[str, ...]) -> list[pa.RecordBatch]:
        shared = replace(collections.SHARED, events=replace(collections.EVENTS, columns=made))
        tasks = partition.tasks_of(rows, collections.KNOWN, OPLOG, shared, by_key=False, parallelism=parallelism)
        return [batch for task in tasks for batch in task.read()]

    same(columns, records)


PLAIN = event_settings("server", "d", provide_transaction_metadata=True, processing_failure_mode="skip")
TABLE = TableSchema(TableId("d", "s", "t"), (Column("id", "int", 56, nullable=False),), ("id",))
MESSAGE = LogicalMessage("p", b"text", 1, 2, 3, NOW // 1000, None, 4, None)
OTHERS: dict[str, Callable[[EventSettings], pa.RecordBatch]] = {
    "heartbeat": lambda chosen: heartbeat_row(7, 16, chosen),
    "begin": lambda chosen: boundary_rows([Boundary(1, 2, 3, NOW // 1000, 0, None)], chosen),
    "message": lambda chosen: message_rows([MESSAGE], chosen, FORM),
    "notification": lambda chosen: notification_rows([(InitialNotifications("p").of("STARTED"), 5)], chosen, 16),
    "quarantine": lambda chosen: too_large(
        QuarantinedChange(TABLE.id, ChangePlace("1", "2", "3", "4"), 5, 6), 1000, chosen
    ),
    "schema": lambda chosen: schema_change_rows(
        [SchemaChange("CREATE", TABLE, bytes(10), 5, 0)], replace(chosen, connector="sqlserver"), SQL_SERVER
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_of_records_that_are_no_changes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each notification has an id of its own.
    monkeypatch.setattr("uuid.uuid4", lambda: "0")
    for columns in [(name,) for name in COLUMNS] + [tuple(reversed(COLUMNS))]:
        same(columns, lambda made: [OTHERS[kind](replace(PLAIN, columns=made))])


def test_what_is_put_aside_does_not_depend_on_the_columns() -> None:
    """A record that is too large is quarantined even if no query wants its value."""
    batch = json_batches.inserts(50)
    limit = replace(PLAIN, most_change_bytes=1, columns=made_columns(("op",)))
    found = read(("op",), list(to_rows(batch, limit, FORM)))
    assert [row["op"] for rows in found for row in rows.to_pylist()] == ["quarantine"] * 50


def test_spark_is_told_the_columns_in_their_order() -> None:
    assert row_type(("source_ts", "topic", "key")) == "source_ts timestamp, topic string, key binary"
