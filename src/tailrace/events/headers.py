"""Record headers: the context of the connector, and the other key of a key change."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.columns.logical import STRING
from tailrace.columns.row import HEADERS
from tailrace.events.expansion import AFTER, NO_IMAGE
from tailrace.events.settings import TASK_ID, EventSettings
from tailrace.serde.json_text import quoted, schema_text

_BLOCK = 32_768
_NEW_KEY = "__debezium.newkey"
_OLD_KEY = "__debezium.oldkey"
_PREFIX = "__debezium.context."


def context(settings: EventSettings) -> list[tuple[str, bytes]]:
    """The context headers in their order; empty where records have none."""
    if not settings.context_headers:
        return []
    values = {
        "connectorLogicalName": settings.logical_name,
        "taskId": TASK_ID,
        "connectorName": settings.connector,
        "runId": settings.run_id,
    }
    return [(_PREFIX + name, header_value(settings, value)) for name, value in values.items()]


def header_value(settings: EventSettings, value: str) -> bytes:
    """A string as the header converter writes it, with its schema where headers have theirs."""
    text = quoted(value)
    if settings.header_schemas_enable:
        text = f'{{"schema":{schema_text(STRING)},"payload":{text}}}'
    return text.encode()


@lru_cache(maxsize=8)
def _repeated(settings: EventSettings, count: int) -> pa.ListArray:
    """The context headers `count` times over."""
    pairs = context(settings)
    keys = pa.array([key for key, _ in pairs] * count, pa.string())
    values = pa.array([value for _, value in pairs] * count, pa.binary())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(pairs))
    return _lists(offsets, keys, values)


def _lists(offsets: pa.Array, keys: pa.Array, values: pa.Array) -> pa.ListArray:
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)


def header_column(settings: EventSettings, header: npt.NDArray[np.uint8], other_keys: pa.Array) -> pa.Array:
    """The headers of the records; `other_keys` holds, at the records that `header` marks, the serialised key."""
    count = len(header)
    pairs = context(settings)
    if not header.any():
        if not pairs:
            return pa.nulls(count, HEADERS)
        return _repeated(settings, _BLOCK).slice(0, count) if count <= _BLOCK else _repeated(settings, count)
    marked = header != NO_IMAGE
    sizes = len(pairs) + marked.astype(np.int32)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    # Index into a dictionary of the constant headers, followed by the two names, and by the records' own keys.
    key_index = np.empty(offsets[-1], np.int32)
    value_index = np.empty(offsets[-1], np.int32)
    for number in range(len(pairs)):
        at = offsets[:-1] + marked + number
        key_index[at] = number
        value_index[at] = number
    rows = np.flatnonzero(marked)
    key_index[offsets[rows]] = np.where(header[rows] == AFTER, len(pairs), len(pairs) + 1)
    value_index[offsets[rows]] = len(pairs) + rows
    names = pa.array([key for key, _ in pairs] + [_NEW_KEY, _OLD_KEY], pa.string())
    values = pa.concat_arrays([pa.array([value for _, value in pairs], pa.binary()), other_keys])
    valid = pa.array(sizes == 0)
    lists = _lists(pa.array(offsets), names.take(pa.array(key_index)), values.take(pa.array(value_index)))
    if pairs or marked.all():
        return lists
    bounds = pa.array(offsets, mask=np.append(np.asarray(valid), False))
    return _lists(bounds, lists.values.field(0), lists.values.field(1))
