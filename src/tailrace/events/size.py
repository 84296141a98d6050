"""Sizes of records, and the records larger than event.max.change.bytes. Worker."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.buffers import text_buffers
from tailrace.events.settings import EventSettings


def large_records(rows: pa.RecordBatch, settings: EventSettings) -> list[int]:
    """Return the records whose key and value exceed `settings.most_change_bytes`; none for typed rows, which have no
    bytes."""
    most = settings.most_change_bytes
    if not most or settings.typed is not None:
        return []
    keys, values = (text_buffers(rows.column(name))[1] for name in ("key", "value"))
    if int(keys[-1]) - int(keys[0]) + int(values[-1]) - int(values[0]) <= most:
        return []
    sizes = np.diff(keys).astype(np.int64) + np.diff(values)
    return [int(row) for row in np.flatnonzero(sizes > most)]


def record_size(rows: pa.RecordBatch, row: int) -> int:
    """Return the bytes of a record's key and value."""
    bounds = (text_buffers(rows.column(name))[1] for name in ("key", "value"))
    return sum(int(of[row + 1]) - int(of[row]) for of in bounds)
