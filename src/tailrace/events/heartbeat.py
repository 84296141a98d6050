"""Heartbeat records, for `heartbeat.interval.ms`. Worker."""

from __future__ import annotations

import pyarrow as pa

from tailrace.columns import ROW_SCHEMA
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.serde.json_text import enclosed

_PREFIX = "io.debezium.connector.common."


def key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "ServerNameKey")
    return struct(Field("serverName", STRING), name=name, version=None if settings.legacy else 1)


def value_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "Heartbeat")
    return struct(Field("ts_ms", INT64), name=name, version=None if settings.legacy else 1)


def heartbeat_row(at_ms: int, commit_lsn: int, settings: EventSettings) -> pa.RecordBatch:
    """The heartbeat of `at_ms` (ms since 1970) as a batch of ROW_SCHEMA.

    `commit_lsn` is how far its batch reads the log; beats at one position differ in their ordinal, the time.
    """
    row: dict[str, object] = {
        "topic": names.heartbeat_topic(settings),
        "key": enclosed({"serverName": settings.logical_name}, key_schema(settings), settings.key_schemas_enable),
        "value": enclosed({"ts_ms": at_ms}, value_schema(settings), settings.value_schemas_enable),
        "headers": None,
        "op": "heartbeat",
        "database": settings.database,
        "position": f"{commit_lsn:016X}",
        "ordinal": at_ms,
        "source_ts": at_ms * 1000,
        "snapshot": "false",
    }
    return pa.RecordBatch.from_pylist([row], schema=ROW_SCHEMA)
