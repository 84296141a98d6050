"""Decoding of segments; messages that are broken or too large become quarantine records in their place. Worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.columns import ChangeBatch
from tailrace.connectors.postgres.log.form import place
from tailrace.connectors.postgres.protocol.decoder import decode
from tailrace.connectors.postgres.protocol.pgoutput import parse_change
from tailrace.connectors.postgres.protocol.segment import PIECE, Segment
from tailrace.errors import DecodeError
from tailrace.events.event_settings import EventSettings
from tailrace.events.quarantine import QuarantinedChange, put_aside, report, too_large


def decoded(segment: Segment, settings: EventSettings) -> Iterator[tuple[int, ChangeBatch | pa.RecordBatch]]:
    """Yield the segment's changes, and in their place the quarantine records of messages that cannot be decoded.

    Each part comes with the number of its first message in the segment. A message that is larger than
    `settings.most_change_bytes` is quarantined without its bytes, because they would need the memory that the limit
    is there to save.

    In mode `fail` raises DecodeError with table and position for a message that cannot be decoded, and ConversionError
    for a message that is too large. Raises DecodeError in any mode when the segment as a whole cannot be decoded.
    """
    for first, piece in segment.pieces(PIECE):
        for low, part in _decoded(piece, settings):
            yield first + low, part


def _decoded(segment: Segment, settings: EventSettings) -> Iterator[tuple[int, ChangeBatch | pa.RecordBatch]]:
    large = _too_large(segment, settings)
    try:
        if not large:
            yield 0, _batch(segment, 0, len(segment))
            return
        broken = _broken(segment)
    except DecodeError as error:
        broken = _broken(segment)
        if not broken:
            raise
        if settings.processing_failure_mode == "fail":
            row, reason = next(iter(broken.items()))
            raise DecodeError(
                f"A message of {segment.table.id} cannot be decoded, {_change(segment, row)}: {reason} "
                "Set event.processing.failure.handling.mode to warn to have it put aside."
            ) from error
    low = 0
    for row in sorted({*broken, *large}):
        if low < row:
            yield low, _batch(segment, low, row)
        change = _change(segment, row)
        if row in large:
            yield row, too_large(change, large[row], settings)
        else:
            reason, raw = broken[row], segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes()
            report(change, f"a message cannot be decoded: {reason}", settings)
            payload = {"op": None, "column": None, "reason": reason, "key": None, "message": raw}
            yield row, put_aside(change, payload, settings)
        low = row + 1
    if low < len(segment):
        yield low, _batch(segment, low, len(segment))


def _too_large(segment: Segment, settings: EventSettings) -> dict[int, int]:
    """Return the size of each message that is too large. In mode `fail` raises ConversionError for the first."""
    most = settings.most_change_bytes
    sizes = segment.left_out
    if sizes is None:
        if not most or int(segment.offsets[-1]) - int(segment.offsets[0]) <= most:
            return {}
        sizes = np.diff(segment.offsets)
    found = {int(row): int(sizes[row]) for row in np.flatnonzero(sizes > most)}
    if found and settings.processing_failure_mode == "fail":
        row, size = next(iter(found.items()))
        too_large(_change(segment, row), size, settings)
    return found


def _broken(segment: Segment) -> dict[int, str]:
    """Return the messages that cannot be parsed, in order, each with the reason."""
    found: dict[int, str] = {}
    for row in range(len(segment)):
        try:
            parse_change(segment, row)
        except DecodeError as error:
            found[row] = error.message
    return found


def _batch(segment: Segment, low: int, high: int) -> ChangeBatch:
    """Decode the messages `[low, high)`; the batch has their numbers in transactions and their raw bytes."""
    total, table = segment.total_order, segment.table_order
    if high - low < len(segment):
        segment = Segment(
            table=segment.table,
            data=segment.data,
            offsets=np.ascontiguousarray(segment.offsets[low : high + 1]),
            lsn=segment.lsn[low:high],
            transaction=segment.transaction[low:high],
            ordinal=segment.ordinal[low:high],
            transactions=segment.transactions,
            superseded=0 if low else segment.superseded,
        )
    batch = decode(segment)
    batch.total_order = None if total is None else total[low:high]
    batch.table_order = None if table is None else table[low:high]
    batch.messages = (segment.data, segment.offsets)
    return batch


def _change(segment: Segment, row: int) -> QuarantinedChange:
    number = int(segment.transaction[row])
    found = place(segment.transactions, number, int(segment.lsn[row]))
    return QuarantinedChange(
        segment.table.id, found, int(segment.ordinal[row]), int(segment.transactions.commit_us[number])
    )
