"""Records whose values are all known when they are made: heartbeats, BEGIN and END, notifications, schema changes,
logical messages, quarantined changes. Worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from tailrace import formats
from tailrace.events.headers import header_pairs
from tailrace.events.settings import EventSettings
from tailrace.records.layout import Node, RecordLayout

Single = tuple[RecordLayout, Mapping[str, object]]
"""A record, and what the columns of its row say beside `topic`, `key`, `value`, `headers` and `op`; null if absent."""


def single_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """One row for each record, in order, as a batch of `settings.row_schema`."""
    rows = [_row(record, columns, settings) for record, columns in records]
    return pa.RecordBatch.from_pylist(rows, schema=settings.row_schema)


def _row(record: RecordLayout, columns: Mapping[str, object], settings: EventSettings) -> dict[str, object]:
    return {
        **columns,
        "topic": record.topic,
        "key": _bytes(record.key, settings.key_format, settings.key_schemas_enable),
        "value": _bytes(record.value, settings.value_format, settings.value_schemas_enable),
        "headers": header_pairs(record.headers, settings),
        "op": record.op,
    }


def _bytes(layout: Node | None, name: str, schemas: bool) -> bytes | None:
    return None if layout is None else formats.find(name).one(layout, schemas)
