"""Records of logical messages (`pg_logical_emit_message`), in today's format; 1.7 has none. Worker."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tailrace.columns.batch import LogicalMessage, Marker
from tailrace.columns.logical import BYTES, INT64, STRING, Field, LogicalType, struct
from tailrace.columns.table import TableId
from tailrace.events import names
from tailrace.events.envelope import marker_text, source_layout, transaction_layout
from tailrace.events.form import SourceForm
from tailrace.events.settings import EventSettings
from tailrace.events.single import Single, single_rows
from tailrace.records.layout import RecordLayout, constants

_PREFIX_FIELD = Field("prefix", STRING.with_optional(True))


def key_schema(settings: EventSettings) -> LogicalType:
    return struct(_PREFIX_FIELD, name=_name(settings, "Key"), version=1)


def value_schema(settings: EventSettings, form: SourceForm) -> LogicalType:
    """Return the schema. The content is bytes, or text as `binary.handling.mode` says."""
    content = (BYTES if settings.binary_handling_mode == "bytes" else STRING).with_optional(True)
    message = struct(_PREFIX_FIELD, Field("content", content))
    return struct(
        Field("op", STRING),
        Field("ts_ms", INT64.with_optional(True)),
        Field("source", source_layout(TableId("", "", ""), settings, form).type),
        Field("transaction", transaction_layout(settings).type),
        Field("message", replace(message, name=_name(settings), version=1)),
        name=_name(settings, "Value"),
        version=1,
    )


def _name(settings: EventSettings, part: str = "") -> str:
    return names.schema_name(settings, f"io.debezium.connector.{settings.connector}.Message{part}")


def message_rows(
    messages: Sequence[LogicalMessage], settings: EventSettings, form: SourceForm, xmin: int | None = None
) -> pa.RecordBatch:
    """Return one record per message, in order, as rows of `settings.row_schema`; table and schema are null.

    `xmin` is the slot's.
    """
    schemas = key_schema(settings), value_schema(settings, form)
    now_ms = time.time_ns() // 1_000_000
    return single_rows((_record(message, schemas, now_ms, settings, xmin) for message in messages), settings)


def _record(
    message: LogicalMessage,
    schemas: tuple[LogicalType, LogicalType],
    now_ms: int,
    settings: EventSettings,
    xmin: int | None,
) -> Single:
    value: dict[str, object] = {
        "op": "m",
        "ts_ms": now_ms,
        "source": _source(message, settings, xmin),
        "transaction": _transaction(message),
        "message": {"prefix": message.prefix, "content": _content(message.content, settings)},
    }
    key = constants({"prefix": message.prefix}, schemas[0])
    return RecordLayout("m", names.message_topic(settings), key, constants(value, schemas[1])), {
        "database": settings.database,
        "position": f"{message.commit_lsn:016X}",
        "ordinal": message.ordinal,
        "transaction": None if message.xid is None else str(message.xid),
        "source_ts": message.commit_us,
        "snapshot": "false",
    }


def _source(message: LogicalMessage, settings: EventSettings, xmin: int | None) -> dict[str, object]:
    previous = "null" if message.previous_end is None else f'"{message.previous_end}"'
    return {
        "version": settings.version,
        "connector": settings.connector,
        "name": settings.logical_name,
        "ts_ms": message.commit_us // 1000,
        "snapshot": marker_text(Marker.FALSE, settings),
        "db": settings.database,
        "sequence": f'[{previous},"{message.lsn}"]',
        "ts_us": message.commit_us,
        "ts_ns": message.commit_us * 1000,
        "schema": "",
        "table": "",
        "txId": message.xid,
        "lsn": message.lsn,
        "xmin": xmin,
        "origin": None,
        "origin_lsn": None,
    }


def _transaction(message: LogicalMessage) -> dict[str, object] | None:
    if message.total_order is None:
        return None
    # each message is a collection of its own, and so the first of it
    return {
        "id": f"{message.xid}:{message.lsn}",
        "total_order": message.total_order,
        "data_collection_order": 1,
    }


def _content(content: bytes, settings: EventSettings) -> str:
    mode = settings.binary_handling_mode
    if mode == "hex":
        return content.hex()
    return (base64.urlsafe_b64encode if mode == "base64-url-safe" else base64.b64encode)(content).decode()
