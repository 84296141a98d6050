"""BEGIN and END records of transactions, for `provide.transaction.metadata`. Worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tailrace.columns import Boundary
from tailrace.columns.batch import position_text
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, array, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.events.single import Single, single_rows
from tailrace.records.layout import RecordLayout, constants

_PREFIX = "io.debezium.connector.common.TransactionMetadata"


def key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "Key")
    return struct(Field("id", STRING), name=name, version=1 if settings.names_schemas else None)


def value_schema(settings: EventSettings) -> LogicalType:
    """Return the schema. Since 2, Debezium names the entries of `data_collections` and adds the commit's time."""
    entry = struct(Field("data_collection", STRING), Field("event_count", INT64))
    if settings.names_schemas:
        entry = replace(entry, name="event.collection", version=1).with_optional(True)
    fields = [
        Field("status", STRING),
        Field("id", STRING),
        Field("event_count", INT64.with_optional(True)),
        Field("data_collections", array(entry).with_optional(True)),
    ]
    if settings.names_schemas:
        fields.append(Field("ts_ms", INT64))
    name = names.schema_name(settings, _PREFIX + "Value")
    return struct(*fields, name=name, version=1 if settings.names_schemas else None)


def boundary_rows(boundaries: Sequence[Boundary], settings: EventSettings) -> pa.RecordBatch:
    """Return one record per boundary as `settings.row_schema`; op is BEGIN or END, table and schema are null."""
    return single_rows((_record(boundary, settings) for boundary in boundaries), settings)


def _record(boundary: Boundary, settings: EventSettings) -> Single:
    name = boundary.xid if isinstance(boundary.xid, str) else numbered_name(boundary.xid, boundary.lsn, settings)
    counts = boundary.counts
    op = "BEGIN" if counts is None else "END"
    value: dict[str, object] = {
        "status": op,
        "id": name,
        "event_count": None if counts is None else counts.total,
        "data_collections": None
        if counts is None
        else [{"data_collection": table, "event_count": count} for table, count in counts.tables],
    }
    if settings.names_schemas:
        value["ts_ms"] = boundary.commit_us // 1000
    key = constants({"id": name}, key_schema(settings))
    record = RecordLayout(op, names.transaction_topic(settings), key, constants(value, value_schema(settings)))
    return record, {
        "database": settings.database or None,
        "position": position_text(boundary.commit_lsn),
        "ordinal": boundary.ordinal,
        "transaction": str(boundary.xid),
        "source_ts": boundary.commit_us,
        "snapshot": "false",
    }


def numbered_name(xid: int, lsn: int, settings: EventSettings) -> str:
    """Return the name, in an event's transaction block at `lsn`, of a transaction that the server numbers."""
    return str(xid) if settings.legacy else f"{xid}:{lsn}"
