"""Heartbeat records, for `heartbeat.interval.ms`. Worker."""

from __future__ import annotations

import pyarrow as pa

from tailrace.columns.batch import position_text
from tailrace.columns.logical import INT32, INT64, STRING, Field, LogicalType, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.events.single import single_rows
from tailrace.records.layout import Constant, RecordLayout, constants

_PREFIX = "io.debezium.connector.common."


def key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "ServerNameKey")
    return struct(Field("serverName", STRING), name=name, version=1 if settings.names_schemas else None)


def value_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "Heartbeat")
    return struct(Field("ts_ms", INT64), name=name, version=1 if settings.names_schemas else None)


def heartbeat_row(at_ms: int, position: int | str, settings: EventSettings) -> pa.RecordBatch:
    """Return the heartbeat of `at_ms` (ms since 1970) as a batch of `settings.row_schema`.

    `position` is the end of its batch, in the form that `position_text` expects. Heartbeats at one position differ in
    their ordinal, which is the time.
    """
    record = RecordLayout(
        "heartbeat",
        names.heartbeat_topic(settings),
        constants({"serverName": settings.logical_name}, key_schema(settings)),
        constants({"ts_ms": at_ms}, value_schema(settings)),
        partition=Constant(0, INT32),
    )
    columns: dict[str, object] = {
        "database": settings.database or None,
        "position": position_text(position),
        "ordinal": at_ms,
        "source_ts": at_ms * 1000,
        "snapshot": "false",
    }
    return single_rows([(record, columns)], settings)
