"""Records whose values are all known when they are made: heartbeats, BEGIN and END, notifications, schema changes,
logical messages, quarantined changes. Worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from tailrace import formats
from tailrace.events.headers import header_pairs
from tailrace.events.settings import EventSettings
from tailrace.formats.arrow import computed
from tailrace.records.layout import Computed, Node, RecordLayout
from tailrace.records.transform import at_its_topic

Single = tuple[RecordLayout, Mapping[str, object]]
"""A record, and what the columns of its row say beside `topic`, `key`, `value`, `headers` and `op`; null if absent."""


def single_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """One row for each record that the transforms leave, in order, as a batch of `settings.row_schema`."""
    changed = ((at_its_topic(record, settings.transforms), columns) for record, columns in records)
    return own_rows(((record, columns) for record, columns in changed if record is not None), settings)


def own_rows(records: Iterable[Single], settings: EventSettings) -> pa.RecordBatch:
    """The same for records that are tailrace's own, which no transform changes."""
    rows = [_row(record, columns, settings) for record, columns in records if _delivered(record)]
    return pa.RecordBatch.from_pylist(rows, schema=settings.row_schema)


def _delivered(record: RecordLayout) -> bool:
    return record.keep is None or bool(_value(record.keep))


def _value(leaf: Computed) -> object:
    return computed(leaf, None, np.zeros(1, np.int32))[0].as_py()


def _row(record: RecordLayout, columns: Mapping[str, object], settings: EventSettings) -> dict[str, object]:
    return {
        **columns,
        "topic": record.topic if isinstance(record.topic, str) else _value(record.topic),
        "key": _bytes(record.key, settings.key_format, settings.key_schemas_enable),
        "value": _bytes(record.value, settings.value_format, settings.value_schemas_enable),
        "headers": header_pairs(record.headers, settings),
        "op": record.op,
    }


def _bytes(layout: Node | None, name: str, schemas: bool) -> object:
    return None if layout is None else formats.find(name).one(layout, schemas)
