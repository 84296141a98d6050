"""Conversion of a segment from raw BSON to rows for Spark, in columns and block by block. Worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import Int32s
from tailrace.connectors.mongodb.log.indexed_run import Flags
from tailrace.connectors.mongodb.records.block import DocumentChunk
from tailrace.connectors.mongodb.records.blocks import block_rows
from tailrace.connectors.mongodb.records.images import Images, images
from tailrace.connectors.mongodb.records.plan import CollectionPlan, collection_plan
from tailrace.connectors.mongodb.records.quarantine import beyond, refused, unconvertible
from tailrace.connectors.mongodb.records.segment import READ, Segment
from tailrace.connectors.mongodb.settings import MongoSettings
from tailrace.errors import ConversionError, DecodeError
from tailrace.events.record_assembly import large_records, record_size
from tailrace.events.record_variants import RefusedChange
from tailrace.metrics.tally import TALLY

_MAX_CHANGES = 4_096
_MAX_BYTES = 16 << 20


def to_rows(segment: Segment, settings: MongoSettings) -> Iterator[pa.RecordBatch]:
    """Yield the records of `segment` as batches of `settings.events.row_schema`, in order, of at most 8,192 records
    each.

    For a change that cannot become an event this raises ConversionError with its position, or yields a record for the
    quarantine topic, as `event.processing.failure.handling.mode` says. Raises TransformError if a transform cannot take
    a record.
    """
    for rows, _ in numbered_rows(segment, settings):
        yield rows


def numbered_rows(segment: Segment, settings: MongoSettings) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the batches of `to_rows`, each with the indices of its records' changes in `segment`."""
    TALLY.count(".".join(segment.namespace), segment.op)
    TALLY.count_bytes(".".join(segment.namespace), int(segment.sizes().sum()))
    if len(segment) and segment.kind != READ:
        # a position's upper half is its second
        TALLY.note_times(*((int(segment.time[at]) >> 32) * 1_000_000 for at in (0, -1)))
    if settings.events.blocks:
        yield from block_rows(segment, settings)
        return
    skipped = [op for op in "cud" if op in settings.events.skipped_operations]
    kept = ~np.isin(segment.op, [ord(op) for op in skipped]) if skipped else None
    if not len(segment) or (kept is not None and not kept.any()):
        return
    found = images(segment)
    plan = collection_plan(segment.namespace, settings)
    size = np.r_[0, np.cumsum(segment.sizes())]
    low = 0
    while low < len(segment):
        high = min(low + _MAX_CHANGES, len(segment))
        high = max(min(high, int(np.searchsorted(size, size[low] + _MAX_BYTES, side="right")) - 1), low + 1)
        yield from _rows(segment, found, settings, plan, low, high, kept)
        low = high


def _rows(
    segment: Segment,
    found: Images,
    settings: MongoSettings,
    plan: CollectionPlan,
    low: int,
    high: int,
    kept: Flags | None,
) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
    """Yield the records of the changes `low` to `high`, with quarantine records in the places of changes that fail."""
    if kept is not None and not kept[low:high].any():
        return
    fault: ConversionError | DecodeError | int
    try:
        fault = _most_bytes(segment, settings, low, high)
        if not fault:
            block = DocumentChunk(segment, found, settings, plan, low, high, kept)
            rows = block.rows()
            large = large_records(rows, settings.events)
            if not large:
                block.tell_left_out()
                if rows.num_rows:
                    yield rows, block.change + np.int32(low)
                return
            fault = record_size(rows, large[0])
    except RefusedChange as error:
        raise refused(segment, low + error.change, error.reason) from None
    except (ConversionError, DecodeError) as error:
        fault = error
    if high - low > 1:
        middle = (low + high) // 2
        yield from _rows(segment, found, settings, plan, low, middle, kept)
        yield from _rows(segment, found, settings, plan, middle, high, kept)
    elif isinstance(fault, int):
        yield beyond(segment, low, fault, settings), np.full(1, low, np.int32)
    else:
        yield unconvertible(segment, low, fault, settings), np.full(1, low, np.int32)


def _most_bytes(segment: Segment, settings: MongoSettings, low: int, high: int) -> int:
    """Return the size of a block's largest document if it is too large, else 0."""
    most = settings.events.most_change_bytes
    largest = int(segment.sizes()[low:high].max()) if most else 0
    return largest if largest > most else 0
