"""Control records: BEGIN and END of transactions, heartbeats, notifications and logical messages.

They describe no rows, and all their values are known when their layouts are made. Worker."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace import formats
from tailrace.columns import Boundary
from tailrace.columns.batch import LogicalMessage, Marker, position_text
from tailrace.columns.logical import BYTES, INT32, INT64, STRING, Field, LogicalType, array, mapping, struct
from tailrace.columns.table import TableId
from tailrace.config.formats import Format
from tailrace.errors import ConversionError, TransformError
from tailrace.events import names
from tailrace.events.envelope import marker_text, source_layout, transaction_layout
from tailrace.events.event_settings import EventSettings
from tailrace.events.headers import header_pairs
from tailrace.events.mapping import SourceForm
from tailrace.events.record_variants import reason_of, tell_left_out
from tailrace.formats.arrow import array_of, folded
from tailrace.records.layout import Constant, Header, Node, RecordLayout, constants
from tailrace.records.transform import LeftOutRecords, RefusedRecord, resolved, rewritten
from tailrace.snapshot.incremental import Notification

log = logging.getLogger("tailrace")

Written = Callable[[Node | None, Format | str, bool, RecordLayout], object]
"""Encodes a key or a value in a format, with its schema or without."""
Single = tuple[RecordLayout, Mapping[str, object]]
"""A record, and its row's columns other than `topic`, `key`, `value`, `headers` and `op`; null if absent."""


def single_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """Return one row for each record that the transforms keep, in order, as a batch of `settings.row_schema`."""
    return _rows(((_changed(record, settings), columns) for record, columns in records), settings, _bytes)


def own_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """Return one row for each of tailrace's own records, which no transform changes.

    If a format cannot encode them, they are JSON: nothing may be lost.
    """
    return _rows(records, replace(settings, tolerant=False), _own_bytes)


def _rows(
    records: Iterable[tuple[RecordLayout | None, Mapping[str, object]]], settings: EventSettings, written: Written
) -> pa.RecordBatch:
    rows = []
    for record, columns in records:
        if record is not None:
            try:
                rows.append(_row(record, columns, settings, written))
            except (RefusedRecord, ConversionError) as fault:
                _refused(fault, record, settings)
    return pa.RecordBatch.from_pylist(rows, schema=settings.row_schema)


def _changed(record: RecordLayout, settings: EventSettings) -> RecordLayout | None:
    """Return the record after the transforms; None if one leaves it out."""
    if not settings.transforms:
        return record
    try:
        found = resolved(rewritten(record, settings.transforms), _value)
    except RefusedRecord as fault:
        _refused(fault, record, settings)
        return None
    if isinstance(found, LeftOutRecords):
        tell_left_out([(found, 1)], [])
        return None
    return found


def _refused(fault: RefusedRecord | ConversionError, record: RecordLayout, settings: EventSettings) -> None:
    """Raise for a record that a transform or a converter cannot process; with errors.tolerance=all, log it instead."""
    if settings.tolerant:
        log.error(
            "A record %s for %s is dropped because of errors.tolerance=all: %s.",
            record.op,
            record.topic,
            reason_of(fault),
        )
        return
    if isinstance(fault, ConversionError):
        raise fault
    raise TransformError(
        f"{fault.reason}, in the record {record.op} for {record.topic}.",
        "Give the transform a predicate that leaves such records out, or correct its options.",
    ) from None


def _value(leaf: Node) -> object:
    return array_of(leaf, None, np.zeros(1, np.int32))[0].as_py()


def _row(
    record: RecordLayout, columns: Mapping[str, object], settings: EventSettings, written: Written
) -> dict[str, object]:
    record = replace(record, topic=record.topic if isinstance(record.topic, str) else str(_value(record.topic)))
    return {
        **columns,
        "topic": record.topic,
        # typed rows have no place for a key that belongs to no table
        "key": None
        if settings.typed is not None
        else written(record.key, settings.key_format, settings.key_schemas_enable, record),
        "value": written(record.value, settings.value_format, settings.value_schemas_enable, record),
        "headers": header_pairs(replace(record, headers=_folded(record.headers)), settings),
        "op": record.op,
        "partition": None if record.partition is None else _value(record.partition),
        "timestamp": None if record.timestamp is None else _value(record.timestamp),
    }


def _own_bytes(layout: Node | None, form: Format | str, schemas: bool, record: RecordLayout) -> object:
    try:
        found = _bytes(layout, form, schemas, record)
    except ConversionError:
        found = None
    return _bytes(layout, "json", schemas, record) if found is None else found


def _folded(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple(replace(header, node=folded(header.node)) for header in headers)


def _bytes(layout: Node | None, form: Format | str, schemas: bool, record: RecordLayout) -> object:
    return None if layout is None else formats.find(form).one(folded(layout), schemas, record)


# --- the order of Java's hash tables ----------------------------------------------------------------------------------


def in_java_order(texts: Iterable[str], others: int = 0) -> list[str]:
    """Return distinct `texts` in the order in which a HashSet or HashMap lists them when filled in this order.

    The table holds `others` more entries (java.util.HashMap).
    """
    listed = list(texts)
    capacity = 16
    while len(listed) + others > capacity * 3 // 4:
        capacity *= 2
    return sorted(listed, key=lambda text: _hash(text) & (capacity - 1))


def _hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)


# --- transactions -----------------------------------------------------------------------------------------------------


_TRANSACTION = "io.debezium.connector.common.TransactionMetadata"


def boundary_key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _TRANSACTION + "Key")
    return struct(Field("id", STRING), name=name, version=1 if settings.names_schemas else None)


def boundary_value_schema(settings: EventSettings) -> LogicalType:
    """Return the schema. Since Debezium 2, the entries of `data_collections` are named, and there is a commit time."""
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
    name = names.schema_name(settings, _TRANSACTION + "Value")
    return struct(*fields, name=name, version=1 if settings.names_schemas else None)


def boundary_rows(boundaries: Sequence[Boundary], settings: EventSettings) -> pa.RecordBatch:
    """Return one record per boundary as `settings.row_schema`; op is BEGIN or END, table and schema are null."""
    return single_rows((_boundary(boundary, settings) for boundary in boundaries), settings)


def _boundary(boundary: Boundary, settings: EventSettings) -> Single:
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
    key = constants({"id": name}, boundary_key_schema(settings))
    record = RecordLayout(op, names.transaction_topic(settings), key, constants(value, boundary_value_schema(settings)))
    return record, {
        "database": settings.database or None,
        "position": position_text(boundary.commit_lsn),
        "ordinal": boundary.ordinal,
        "transaction": str(boundary.xid),
        "source_ts": boundary.commit_us,
        "snapshot": "false",
    }


def numbered_name(xid: int, lsn: int, settings: EventSettings) -> str:
    """Return `transaction.id` of an event at `lsn`, in the transaction to which the server gave the number `xid`."""
    return str(xid) if settings.legacy else f"{xid}:{lsn}"


# --- heartbeats -------------------------------------------------------------------------------------------------------


_COMMON = "io.debezium.connector.common."


def heartbeat_key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _COMMON + "ServerNameKey")
    return struct(Field("serverName", STRING), name=name, version=1 if settings.names_schemas else None)


def heartbeat_value_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _COMMON + "Heartbeat")
    return struct(Field("ts_ms", INT64), name=name, version=1 if settings.names_schemas else None)


def heartbeat_row(at_ms: int, position: int | str, settings: EventSettings) -> pa.RecordBatch:
    """Return the heartbeat of `at_ms` (ms since 1970) as a batch of `settings.row_schema`.

    `position` is the end of its batch, in the form that `position_text` expects. Heartbeats at one position differ in
    their ordinal, which is the time.
    """
    record = RecordLayout(
        "heartbeat",
        names.heartbeat_topic(settings),
        constants({"serverName": settings.logical_name}, heartbeat_key_schema(settings)),
        constants({"ts_ms": at_ms}, heartbeat_value_schema(settings)),
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


# --- notifications ----------------------------------------------------------------------------------------------------


OP = "notification"
"""The column `op` of these rows."""

_NOTIFICATION = "io.debezium.connector.common.Notification"

notification_log = logging.getLogger("tailrace.notifications")


def notification_key_schema(settings: EventSettings) -> LogicalType:
    return struct(Field("id", STRING), name=names.schema_name(settings, _NOTIFICATION + "Key"), version=1)


def notification_value_schema(settings: EventSettings) -> LogicalType:
    fields = [
        Field("id", STRING),
        Field("type", STRING),
        Field("aggregate_type", STRING),
        Field("additional_data", mapping(STRING).with_optional(True)),
    ]
    if _shows_time(settings):
        fields.append(Field("timestamp", INT64))
    return struct(*fields, name=names.schema_name(settings, _NOTIFICATION), version=1)


def _shows_time(settings: EventSettings) -> bool:
    """Return True except for the format of 2.3. The formats of 1.x have no notifications and use today's."""
    return settings.generation < (2,) or settings.generation >= (3,)


def notification_rows(
    notifications: Sequence[tuple[Notification, int]], settings: EventSettings, position: int | str, ordinal: int = 0
) -> pa.RecordBatch:
    """Return one record per notification, in order, as a batch of `settings.row_schema`. Worker.

    Each notification comes with its time in ms since 1970 UTC. `position` is the end of the batch, in the form that
    `position_text` expects, `ordinal` the number of the first record. No change may have the same position and number.
    Table, schema and transaction are null.
    """
    numbered = enumerate(notifications, ordinal)
    rows = (
        _notification(notification, at_ms, settings, position, number) for number, (notification, at_ms) in numbered
    )
    return single_rows(rows, settings)


def _notification(
    notification: Notification, at_ms: int, settings: EventSettings, position: int | str, ordinal: int
) -> Single:
    value: dict[str, object] = {
        "id": notification.id,
        "type": notification.type,
        "aggregate_type": notification.aggregate,
        "additional_data": dict(notification.data),
    }
    if _shows_time(settings):
        value["timestamp"] = at_ms
    key = constants({"id": notification.id}, notification_key_schema(settings))
    record = RecordLayout(OP, settings.notification_topic, key, constants(value, notification_value_schema(settings)))
    return record, {
        "database": settings.database or None,
        "position": position_text(position),
        "ordinal": ordinal,
        "source_ts": at_ms * 1000,
        "snapshot": "false",
    }


def write_to_log(notifications: Sequence[tuple[Notification, int]]) -> None:
    """Write one line for each notification to the log at level INFO, whatever the level of other messages. Planner."""
    notification_log.setLevel(logging.INFO)
    if not notification_log.hasHandlers():
        # without any logging set up, a planner would show warnings only
        notification_log.addHandler(logging.StreamHandler())
    for notification, at_ms in notifications:
        named = "".join(f" {name}={value}" for name, value in notification.data)
        notification_log.info(
            "%s %s id=%s at=%d%s", notification.aggregate, notification.type, notification.id, at_ms, named
        )


# --- logical messages -------------------------------------------------------------------------------------------------


_PREFIX_FIELD = Field("prefix", STRING.with_optional(True))


def message_key_schema(settings: EventSettings) -> LogicalType:
    return struct(_PREFIX_FIELD, name=_message_name(settings, "Key"), version=1)


def message_value_schema(settings: EventSettings, form: SourceForm) -> LogicalType:
    """Return the schema. The content is bytes or text, depending on `binary.handling.mode`."""
    content = (BYTES if settings.binary_handling_mode == "bytes" else STRING).with_optional(True)
    message = struct(_PREFIX_FIELD, Field("content", content))
    return struct(
        Field("op", STRING),
        Field("ts_ms", INT64.with_optional(True)),
        Field("source", source_layout(TableId("", "", ""), settings, form).type),
        Field("transaction", transaction_layout(settings).type),
        Field("message", replace(message, name=_message_name(settings), version=1)),
        name=_message_name(settings, "Value"),
        version=1,
    )


def _message_name(settings: EventSettings, part: str = "") -> str:
    return names.schema_name(settings, f"io.debezium.connector.{settings.connector}.Message{part}")


def message_rows(
    messages: Sequence[LogicalMessage], settings: EventSettings, form: SourceForm, xmin: int | None = None
) -> pa.RecordBatch:
    """Return one record per message, in order, as rows of `settings.row_schema`; table and schema are null.

    `xmin` is the slot's, for the source block.
    """
    schemas = message_key_schema(settings), message_value_schema(settings, form)
    now_ms = time.time_ns() // 1_000_000
    return single_rows((_message(message, schemas, now_ms, settings, xmin) for message in messages), settings)


def _message(
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
    # each message is a collection of its own, so its number there is 1
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
