"""Heartbeats, for `heartbeat.interval.ms`: the planner's clock, and the worker's records."""

from __future__ import annotations

import time

import pyarrow as pa

from tailrace.columns.batch import position_text
from tailrace.columns.logical import INT64, STRING, Field, LogicalType, struct
from tailrace.events import names
from tailrace.events.settings import EventSettings
from tailrace.events.single import single_rows
from tailrace.records.layout import RecordLayout, constants

_PREFIX = "io.debezium.connector.common."


class Heartbeats:
    """The clock of `heartbeat.interval.ms`; 0 means none. Planner.

    A heartbeat is part of the offset that ends its batch, so a batch that is planned again after a crash has the same
    one. What a connector's own class does at a heartbeat is done when that is decided on, and not again at such a
    repetition.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval = interval_ms / 1000
        self._last = time.monotonic()

    def remaining(self) -> float:
        """Seconds until the next heartbeat is due, 0 when it is; infinite without heartbeats."""
        if not self._interval:
            return float("inf")
        return max(0.0, self._last + self._interval - time.monotonic())

    def newest(self, previous_ms: int, may_beat: bool) -> int:
        """The time of the newest heartbeat at the end of a batch: `previous_ms`, or a new one's if one is due.

        `may_beat` is False for a batch without changes where the query ends at the present: heartbeats for their own
        sake would let it never end.
        """
        return self.beat(previous_ms) if may_beat and self.remaining() <= 0 else previous_ms

    def beat(self, previous_ms: int) -> int:
        """The time of the heartbeat that is due, in ms since 1970, later than `previous_ms`."""
        self._last = time.monotonic()
        self._act()
        return max(int(time.time() * 1000), previous_ms + 1)

    def _act(self) -> None:
        """What is done at a heartbeat; nothing here."""


def key_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "ServerNameKey")
    return struct(Field("serverName", STRING), name=name, version=1 if settings.names_schemas else None)


def value_schema(settings: EventSettings) -> LogicalType:
    name = names.schema_name(settings, _PREFIX + "Heartbeat")
    return struct(Field("ts_ms", INT64), name=name, version=1 if settings.names_schemas else None)


def heartbeat_row(at_ms: int, position: int | str, settings: EventSettings) -> pa.RecordBatch:
    """The heartbeat of `at_ms` (ms since 1970) as a batch of `settings.row_schema`.

    `position` is how far its batch reads the log, as `position_text` takes it; beats at one position differ in their
    ordinal, the time.
    """
    record = RecordLayout(
        "heartbeat",
        names.heartbeat_topic(settings),
        constants({"serverName": settings.logical_name}, key_schema(settings)),
        constants({"ts_ms": at_ms}, value_schema(settings)),
    )
    columns: dict[str, object] = {
        "database": settings.database or None,
        "position": position_text(position),
        "ordinal": at_ms,
        "source_ts": at_ms * 1000,
        "snapshot": "false",
    }
    return single_rows([(record, columns)], settings)
