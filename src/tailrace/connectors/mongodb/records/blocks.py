"""Blocks for tables: each row holds many documents, as variants, with their keys. Worker.

A table of a collection has two columns: `_id`, the key's text in events, and `document`. Only the changes that a table
needs of each key become variants.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.columns.batch import Int32s, position_texts
from tailrace.columns.blocks import DOCUMENTS, EVERY, KEPT, ROWS, Head
from tailrace.columns.reduction import NONE, before, groups, lasts, listed, sources
from tailrace.connectors.mongodb.log.position import ChangePosition
from tailrace.connectors.mongodb.records import texts, typed
from tailrace.connectors.mongodb.records.envelope import table_id
from tailrace.connectors.mongodb.records.images import Images, Values, images
from tailrace.connectors.mongodb.records.segment import Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.connectors.mongodb.values.field_filters import field_filter
from tailrace.errors import ConversionError
from tailrace.events.packed_changes import block_row
from tailrace.values.fragments import json_array

_MOST_BYTES = 8 << 20
_DELETE, _UPDATE = ord("d"), ord("u")
_LETTERS = pa.array([chr(code) for code in range(128)], pa.string())


def block_rows(segment: Segment, settings: MongoSettings) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the changes of `segment` as blocks, rows of `settings.events.row_schema`, each with the index of its last
    change.

    Raises DecodeError, and ConversionError for an update without the document after it.
    """
    if not len(segment):
        return
    found = images(segment)
    op = _operations(segment, found, settings)
    keys = json_array(texts.values(segment.data, found.key, texts.key_form(settings)))
    left = np.arange(len(segment))
    if settings.events.blocks == ROWS:
        own = _own(segment, found.after, keys, (left, left), settings)
        yield pa.RecordBatch.from_arrays(own, ["c0", "c1"]), np.full(1, len(segment) - 1, np.int32)
        return
    # for each change, the index of the change that supplies its document
    shown = left
    if settings.events.blocks != EVERY:
        group = groups([keys])
        left = lasts(group)
        if settings.events.blocks == KEPT:
            shown = sources(before(group), (op != _DELETE) & (found.after.places >= 0))
    size = np.cumsum(segment.sizes()[left])
    low = 0
    while low < len(left):
        limit = _MOST_BYTES + (int(size[low - 1]) if low else 0)
        high = max(int(np.searchsorted(size, limit, side="right")), low + 1)
        rows = _rows(segment, found, op, keys, (left[low:high], shown[left[low:high]]), settings)
        yield _block(segment, rows, settings, 0 if low else len(segment)), np.full(1, len(segment) - 1, np.int32)
        low = high


def _operations(segment: Segment, found: Images, settings: MongoSettings) -> npt.NDArray[np.uint8]:
    """Return the operations. An update whose document was deleted before its look-up becomes a delete."""
    lost = (segment.op == _UPDATE) & (found.after.places < 0)
    if not lost.any():
        return segment.op
    if not settings.looks_up:
        first = int(np.flatnonzero(lost)[0])
        place = ChangePosition(int(segment.time[first]), int(segment.number[first]))
        raise ConversionError(
            f"An update of {'.'.join(segment.namespace)} comes without the document after it, at {place}.",
            "Turn changeStreamPreAndPostImages on for the collection and read it anew by an incremental snapshot, or "
            "set capture.mode.full.update.type = lookup.",
        )
    return np.where(lost, _DELETE, segment.op).astype(np.uint8)


def _rows(
    segment: Segment,
    found: Images,
    op: npt.NDArray[np.uint8],
    keys: pa.Array,
    places: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    settings: MongoSettings,
) -> pa.RecordBatch:
    left, source = places
    count = len(left)
    ms = np.where(found.has_wall, found.wall_ms, (segment.time >> 32) * 1000)[left]
    us = np.full(count, segment.read_ns // 1000, np.int64) if segment.read_ns else ms * 1000
    origin = DOCUMENTS.schema.field("origin").type
    return pa.RecordBatch.from_arrays(
        [
            _LETTERS.take(pa.array(op[left])),
            position_texts(segment.time[left]),
            pa.array(segment.number[left], pa.int64()),
            pa.array(np.zeros(count, np.int8)),
            pa.array(us).cast(pa.timestamp("us", tz="UTC")),
            listed(np.array([np.zeros(count, np.bool_), source == NONE])),
            pa.nulls(count, origin),
            *_own(segment, found.after.where(op != _DELETE), keys, places, settings),
        ],
        schema=DOCUMENTS.schema,
    )


def _own(
    segment: Segment,
    after: Values,
    keys: pa.Array,
    places: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    settings: MongoSettings,
) -> list[pa.Array]:
    """Return the columns of the collection's table: the keys of the changes `left`, and the documents of the changes
    `source` (NONE: null)."""
    left, source = places
    edits = field_filter(settings.excluded, settings.renames, *segment.namespace)
    documents = Values(after.places[source], after.kinds[source]).where(source != NONE)
    shown = typed.documents(segment.data, documents, None if edits is None else edits.documents)
    return [texts.unquoted(keys.take(pa.array(left))), shown]


def _block(segment: Segment, rows: pa.RecordBatch, settings: MongoSettings, changes: int) -> pa.RecordBatch:
    table = table_id(segment.namespace)
    first, last = ((str(rows["position"][row]), int(rows["ordinal"][row].as_py())) for row in (0, rows.num_rows - 1))
    # Chunks are not read at one moment, so a document may be in two of them. The block names no snapshot, so that its
    # rows are merged by their keys.
    missing = rows["missing"].null_count < rows.num_rows
    named = table.database, table.schema, table.table
    head = Head(*named, DOCUMENTS, rows.num_rows, first, last, missing=missing, changes=changes)
    return block_row(head, rows, int(pc.max(rows["at"]).value), settings.events)
