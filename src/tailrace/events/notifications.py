"""Notifications about snapshots, as records of `notification.sink.topic.name` and as lines of the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from tailrace.columns.batch import position_text
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, mapping, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.events.single import Single, single_rows
from tailrace.records.layout import RecordLayout, constants
from tailrace.snapshot.incremental import Notification

OP = "notification"
"""The column `op` of these rows."""

_PREFIX = "io.debezium.connector.common.Notification"

log = logging.getLogger("tailrace.notifications")


def key_schema(settings: EventSettings) -> LogicalType:
    return struct(Field("id", STRING), name=names.schema_name(settings, _PREFIX + "Key"), version=1)


def value_schema(settings: EventSettings) -> LogicalType:
    fields = [
        Field("id", STRING),
        Field("type", STRING),
        Field("aggregate_type", STRING),
        Field("additional_data", mapping(STRING).with_optional(True)),
    ]
    if _shows_time(settings):
        fields.append(Field("timestamp", INT64))
    return struct(*fields, name=names.schema_name(settings, _PREFIX), version=1)


def _shows_time(settings: EventSettings) -> bool:
    """Return True except for the format of 2.3. The formats of 1.x have no notifications and use today's."""
    return settings.generation < (2,) or settings.generation >= (3,)


def notification_rows(
    notifications: Sequence[tuple[Notification, int]], settings: EventSettings, position: int | str, ordinal: int = 0
) -> pa.RecordBatch:
    """Return one record per notification, in order, as a batch of `settings.row_schema`. Worker.

    Each notification comes with its time in ms since 1970 UTC. `position` is the end of the batch, in the form that
    `position_text` expects, `ordinal` the number of the first record; together they must differ from those of any
    change. Table, schema and transaction are null.
    """
    numbered = enumerate(notifications, ordinal)
    return single_rows((_record(one, at_ms, settings, position, at) for at, (one, at_ms) in numbered), settings)


def _record(
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
    key = constants({"id": notification.id}, key_schema(settings))
    record = RecordLayout(OP, settings.notification_topic, key, constants(value, value_schema(settings)))
    return record, {
        "database": settings.database or None,
        "position": position_text(position),
        "ordinal": ordinal,
        "source_ts": at_ms * 1000,
        "snapshot": "false",
    }


def write_to_log(notifications: Sequence[tuple[Notification, int]]) -> None:
    """Write one line each to the log at level INFO, whatever the level of the program's own messages. Planner."""
    log.setLevel(logging.INFO)
    if not log.hasHandlers():
        # without any logging set up, a planner would show warnings only
        log.addHandler(logging.StreamHandler())
    for notification, at_ms in notifications:
        named = "".join(f" {name}={value}" for name, value in notification.data)
        log.info("%s %s id=%s at=%d%s", notification.aggregate, notification.type, notification.id, at_ms, named)
