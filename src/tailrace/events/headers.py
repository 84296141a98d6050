"""Record headers: the connector's context headers, and the column of all headers. Worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace import formats
from tailrace.columns.logical import STRING, LogicalType
from tailrace.columns.row import HEADERS
from tailrace.config.formats import Format
from tailrace.events.event_settings import TASK_ID, EventSettings
from tailrace.formats import Block
from tailrace.formats.base import WithHeaders
from tailrace.records.layout import Constant, Header, RecordLayout

_BLOCK = 32_768
_PREFIX = "__debezium.context."

Pairs = tuple[tuple[str, Any], ...]
"""The headers of a kind of records: name and value. A value is bytes, null, or, if it varies, a document."""


@lru_cache(maxsize=64)
def context(settings: EventSettings) -> tuple[Header, ...]:
    """Return the context headers in order; empty if records have none."""
    if not settings.context_headers:
        return ()
    values = {
        "connectorLogicalName": settings.logical_name,
        "taskId": TASK_ID,
        "connectorName": settings.connector,
        "runId": settings.run_id,
    }
    return tuple(Header(_PREFIX + name, Constant(value, STRING)) for name, value in values.items())


def compiled(record: RecordLayout, settings: EventSettings) -> Pairs:
    """Return the record's headers in the form that `header_column` expects."""
    own = tuple((header.name, _compiled(header, record, settings)) for header in record.headers)
    return (*own, *_further(record, settings))


def _further(record: RecordLayout, settings: EventSettings) -> Iterator[tuple[str, bytes]]:
    """Yield the headers that the formats of the key and the value add."""
    for layout, form in ((record.key, settings.key_encoding), (record.value, settings.value_encoding)):
        encoding = formats.find(form)
        if layout is not None and isinstance(encoding, WithHeaders):
            yield from encoding.headers(layout, record)


def _compiled(header: Header, record: RecordLayout, settings: EventSettings) -> Any:
    encoding, schemas = formats.find(settings.header_format), settings.header_schemas_enable
    node = header.node
    if isinstance(node, Constant) and isinstance(node.value, str) and isinstance(record.topic, str):
        return _text(settings.header_format, schemas, node.value, node.type, record.topic)
    if isinstance(node, Constant):
        return encoding.one(node, schemas, record)
    return encoding.compile(header.node, schemas, record)


@lru_cache(maxsize=4096)
def _text(form: Format | str, schemas: bool, value: str, kind: LogicalType, topic: str) -> Any:
    """Encode a constant text. Cached, since a topic may have one layout for each shape of its documents."""
    node = Constant(value, kind)
    return formats.find(form).one(node, schemas, RecordLayout("", topic, None, node))


def header_pairs(record: RecordLayout, settings: EventSettings) -> list[dict[str, object]] | None:
    """Return constant headers in the form of a row; None if there are none."""
    return [{"key": name, "value": value} for name, value in compiled(record, settings)] or None


@lru_cache(maxsize=8)
def _repeated(pairs: Pairs, count: int) -> pa.ListArray:
    """Return constant headers `count` times."""
    keys = pa.array([key for key, _ in pairs] * count, pa.string())
    values = pa.array([value for _, value in pairs] * count, pa.binary())
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(pairs))
    return _lists(offsets, keys, values)


def _lists(offsets: pa.Array, keys: pa.Array, values: pa.Array) -> pa.ListArray:
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS)


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bytes)


def constant_headers(pairs: Pairs, count: int) -> pa.Array:
    """Return the headers of `count` records that all have the same headers."""
    if not pairs:
        return pa.nulls(count, HEADERS)
    return _repeated(pairs, _BLOCK).slice(0, count) if count <= _BLOCK else _repeated(pairs, count)


def header_column(
    kinds: Sequence[Pairs],
    of: npt.NDArray[np.int32],
    block: Callable[[], Block],
) -> pa.Array:
    """Return the headers of the records: record r has the headers `kinds[of[r]]`. `block()` returns the block in the
    encoding of headers."""
    if not kinds:
        return constant_headers((), len(of))
    if all(pairs == kinds[0] for pairs in kinds) and all(_is_constant(value) for _, value in kinds[0]):
        return constant_headers(kinds[0], len(of))
    sizes = np.array([len(pairs) for pairs in kinds], np.int32)[of]
    offsets = np.zeros(len(of) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    key_index, value_index = (np.empty(offsets[-1], np.int32) for _ in range(2))
    names: dict[str, int] = {}
    constants: dict[bytes | None, int] = {b"": 0}
    # the documents of the headers at each place, encoded for all records at once
    varying: dict[int, list[Any]] = {}
    for kind, pairs in enumerate(kinds):
        rows = np.flatnonzero(of == kind)
        for place, (name, value) in enumerate(pairs):
            at = offsets[rows] + place
            key_index[at] = names.setdefault(name, len(names))
            if _is_constant(value):
                value_index[at] = constants.setdefault(value, len(constants))
            else:
                varying.setdefault(place, [None] * len(kinds))[kind] = value
                # negative until the number of constants is known
                value_index[at] = -1 - (list(varying).index(place) * len(of) + rows)
    encoded = [block().encode(documents, of) for documents in varying.values()]
    value_index = np.where(value_index < 0, len(constants) - 1 - value_index, value_index)
    values = pa.concat_arrays([pa.array(list(constants), pa.binary()), *encoded])
    keys = pa.array(list(names), pa.string()).take(pa.array(key_index))
    found = _lists(pa.array(offsets), keys, values.take(pa.array(value_index)))
    if (sizes > 0).all():
        return found
    bounds = pa.array(offsets, mask=np.append(sizes == 0, False))
    return _lists(bounds, found.values.field(0), found.values.field(1))
