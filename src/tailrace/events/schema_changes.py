"""Schema changes: records of a table's new version, for `include.schema.changes`, on the prefix's own topic. Worker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.columns import CapturedTransactions, ChangeBatch, Marker, TableId, TableSchema
from tailrace.columns.logical import BOOLEAN, INT32, INT64, STRING, Field, LogicalType, array, struct
from tailrace.events import names
from tailrace.events.captured_form import CapturedForm, DescribedTypes, position_of
from tailrace.events.control_records import Single, single_rows
from tailrace.events.envelope import marker_text, source_layout
from tailrace.events.event_settings import EventSettings
from tailrace.events.headers import context
from tailrace.events.mapping import SourceForm
from tailrace.records.layout import RecordLayout, constants

# --- source blocks in plain values ------------------------------------------------------------------------------------


def marker_of(batch: ChangeBatch, change: int) -> Marker:
    return Marker.FALSE if batch.marker is None else Marker(batch.marker[change])


def plain_source(batch: ChangeBatch, change: int, settings: EventSettings, form: SourceForm) -> dict[str, Any]:
    """Return the source block of one change."""
    us = int(batch.transactions.commit_us[batch.transaction[change]])
    marker = marker_of(batch, change)
    own = form.source(batch, change, marker, settings)
    source: dict[str, Any] = {
        "version": settings.version,
        "connector": settings.connector,
        "name": settings.logical_name,
        "ts_ms": us // 1000,
        "snapshot": marker_text(marker, settings),
        "db": batch.table.id.database,
    }
    if settings.has_sequence:
        source["sequence"] = own.sequence
    if settings.has_nanos:
        source |= {"ts_us": us, "ts_ns": us * 1000}
    if settings.has_schemas:
        source["schema"] = batch.table.id.schema
    return source | {"table": batch.table.id.table, **own.tail}


# --- records ----------------------------------------------------------------------------------------------------------


OP = "schema"
"""The column `op` of these rows."""

CREATE, ALTER, DROP = "CREATE", "ALTER", "DROP"

_PREFIX = "io.debezium.connector.schema."
_TEXT, _NUMBER, _FLAG = (kind.with_optional(True) for kind in (STRING, INT32, BOOLEAN))


@dataclass(frozen=True, slots=True)
class PrecedingChange:
    """The last change of the log before a table's form changes: its table, positions, number and time.

    `serial` is its event_serial_no, `at_us` its time in µs since 1970 UTC. Debezium shows this change in the source
    block of the schema change, since it has read no further at that moment.
    """

    table: TableId
    commit_lsn: bytes
    change_lsn: bytes
    serial: int
    at_us: int


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of a table's form: `kind` is CREATE, ALTER or DROP, `table` the new form (the last one for DROP).

    The form holds from `commit_lsn` on, in the server's bytes; `at_us` is its time in µs since 1970 UTC; `ordinal`
    sorts it at that position. `marker` is FALSE for a change in the log, LAST if it ends a snapshot. The source block
    shows the change `preceding`; if that is None, the table and the position themselves.
    """

    kind: str
    table: TableSchema
    commit_lsn: bytes
    at_us: int
    ordinal: int
    marker: Marker = Marker.FALSE
    preceding: PrecedingChange | None = None


def key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, f"io.debezium.connector.{settings.connector}.SchemaChangeKey")
    return struct(Field("databaseName", STRING), name=name, version=1)


def value_schema(settings: EventSettings, form: SourceForm) -> LogicalType:
    column = struct(
        Field("name", STRING),
        Field("jdbcType", INT32),
        Field("nativeType", _NUMBER),
        Field("typeName", STRING),
        Field("typeExpression", _TEXT),
        Field("charsetName", _TEXT),
        Field("length", _NUMBER),
        Field("scale", _NUMBER),
        Field("position", INT32),
        Field("optional", _FLAG),
        Field("autoIncremented", _FLAG),
        Field("generated", _FLAG),
        Field("comment", _TEXT),
        Field("defaultValueExpression", _TEXT),
        Field("enumValues", array(STRING).with_optional(True)),
        name=names.schema_name(settings, _PREFIX + "Column"),
        version=1,
    )
    table = struct(
        Field("defaultCharsetName", _TEXT),
        Field("primaryKeyColumnNames", array(STRING).with_optional(True)),
        Field("columns", array(column)),
        Field("comment", _TEXT),
        name=names.schema_name(settings, _PREFIX + "Table"),
        version=1,
    ).with_optional(settings.has_nanos)
    change = struct(
        Field("type", STRING),
        Field("id", STRING),
        Field("table", table),
        name=names.schema_name(settings, _PREFIX + "Change"),
        version=1,
    )
    return struct(
        Field("source", source_layout(TableId("", "", ""), settings, form).type),
        Field("ts_ms", INT64),
        Field("databaseName", _TEXT),
        Field("schemaName", _TEXT),
        Field("ddl", _TEXT),
        Field("tableChanges", array(change)),
        name=names.schema_name(settings, f"io.debezium.connector.{settings.connector}.SchemaChangeValue"),
        version=1,
    )


def schema_change_rows(changes: Sequence[SchemaChange], settings: EventSettings, form: CapturedForm) -> pa.RecordBatch:
    """Return one record per change, in order, as a batch of `settings.row_schema`; none in formats without such
    records."""
    if not settings.tells_schema_changes:
        return single_rows((), settings)
    schemas = key_schema(settings), value_schema(settings, form)
    now_ms = time.time_ns() // 1_000_000
    return single_rows((_record(change, schemas, now_ms, settings, form) for change in changes), settings)


def _record(
    change: SchemaChange,
    schemas: tuple[LogicalType, LogicalType],
    now_ms: int,
    settings: EventSettings,
    form: CapturedForm,
) -> Single:
    table = change.table.id
    value: dict[str, Any] = {
        "source": plain_source(_as_batch(change), 0, settings, form),
        "ts_ms": now_ms,
        "databaseName": table.database,
        "schemaName": table.schema,
        "ddl": "N/A" if change.marker is Marker.FALSE else None,
        "tableChanges": [
            {
                "type": change.kind,
                "id": quoted_name(table, settings),
                "table": _described(change.table, form.described, settings),
            }
        ],
    }
    record = RecordLayout(
        OP,
        names.schema_change_topic(settings),
        constants({"databaseName": table.database}, schemas[0]),
        constants(value, schemas[1]),
        context(settings),
    )
    return record, {
        "database": table.database,
        "schema": table.schema,
        "table": table.table,
        "position": position_of(change.commit_lsn),
        "ordinal": change.ordinal,
        "source_ts": change.at_us,
        "snapshot": change.marker.name.lower(),
    }


def _as_batch(change: SchemaChange) -> ChangeBatch:
    """Return a batch of one change, whose source block is that of the schema change's record."""
    shown = change.preceding
    table = change.table if shown is None else replace(change.table, id=shown.table)
    commit, at_us = (change.commit_lsn, change.at_us) if shown is None else (shown.commit_lsn, shown.at_us)
    return ChangeBatch(
        table=table,
        op=np.zeros(1, np.uint8),
        lsn=pa.array([None if shown is None else shown.change_lsn], pa.binary()),
        transaction=np.zeros(1, np.int32),
        ordinal=np.full(1, change.ordinal, np.int64),
        transactions=CapturedTransactions(pa.array([commit], pa.binary()), np.full(1, at_us, np.int64)),
        before=None,
        after=None,
        marker=np.full(1, change.marker, np.uint8),
        serial=None if shown is None else pa.array([shown.serial]),
    )


def quoted_name(table: TableId, settings: EventSettings) -> str:
    """Return the table's full name, each part in double quotes."""
    database = (table.database,) if settings.schema_changes_name_database else ()
    return ".".join('"' + part.replace('"', '""') + '"' for part in (*database, table.schema, table.table))


def _described(table: TableSchema, described: DescribedTypes, settings: EventSettings) -> dict[str, Any]:
    return {
        "defaultCharsetName": None,
        "primaryKeyColumnNames": list(table.key),
        "columns": [
            {
                "name": column.name,
                "jdbcType": described.jdbc_type(column),
                "nativeType": None,
                "typeName": described.type_name(column),
                "typeExpression": described.type_name(column),
                "charsetName": None,
                "length": described.length(column),
                "scale": described.scale(column),
                "position": position,
                "optional": column.nullable,
                "autoIncremented": column.identity,
                "generated": column.generated,
                "comment": column.comment if settings.shaping.comments else None,
                "defaultValueExpression": column.default,
                "enumValues": None,
            }
            for position, column in enumerate(table.columns, 1)
        ],
        "comment": None,
    }
