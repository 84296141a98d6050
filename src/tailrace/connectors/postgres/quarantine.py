"""Segments decoded, with the messages that cannot be, or are too large, in their places among the changes. Worker."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.columns import ChangeBatch
from tailrace.connectors.postgres.decoder import decode
from tailrace.connectors.postgres.form import place
from tailrace.connectors.postgres.pgoutput import parse_change
from tailrace.connectors.postgres.segment import Segment
from tailrace.errors import ConversionError, DecodeError
from tailrace.events.quarantine import Change, put_aside, tell
from tailrace.events.settings import EventSettings


def decoded(segment: Segment, settings: EventSettings) -> Iterator[tuple[int, ChangeBatch | pa.RecordBatch]]:
    """The segment's changes, with the record of a message that cannot be decoded in its place between them.

    Each part comes with the number of its first message in the segment. A message that is larger than
    `settings.most_change_bytes` is put aside without its bytes, which would take the memory that it must not take.

    Raises DecodeError, naming table and position, where the mode is `fail`, and ConversionError there for a message
    that is too large; in any mode DecodeError when the segment as a whole is at fault.
    """
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
            reason, raw = "the change is larger than event.max.change.bytes", b""
            tell(change, reason, settings)
        else:
            reason, raw = broken[row], segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes()
            tell(change, f"a message cannot be decoded: {reason}", settings)
        payload = {"op": None, "column": None, "reason": reason, "key": None, "message": raw}
        yield row, put_aside(change, payload, settings)
        low = row + 1
    if low < len(segment):
        yield low, _batch(segment, low, len(segment))


def _too_large(segment: Segment, settings: EventSettings) -> frozenset[int]:
    """The messages that are too large. Raises ConversionError for the first one where the mode is `fail`."""
    most = settings.most_change_bytes
    if not most or len(segment.data) <= most:
        return frozenset()
    sizes = np.diff(segment.offsets)
    found = np.flatnonzero(sizes > most).tolist()
    if found and settings.processing_failure_mode == "fail":
        row = found[0]
        raise ConversionError(
            f"A change of {segment.table.id} has {int(sizes[row])} bytes, more than event.max.change.bytes "
            f"allows, {_change(segment, row)}.",
            "Set a higher limit, with more memory for Spark (--conf spark.driver.memory), or "
            "event.processing.failure.handling.mode to warn to have the change put aside.",
        )
    return frozenset(found)


def _broken(segment: Segment) -> dict[int, str]:
    """The messages that are not understood, in order, each with the reason."""
    found: dict[int, str] = {}
    for row in range(len(segment)):
        try:
            parse_change(segment, row)
        except DecodeError as error:
            found[row] = error.message
    return found


def _batch(segment: Segment, low: int, high: int) -> ChangeBatch:
    """The messages `[low, high)` decoded, with their orders and their raw bytes."""
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
        )
    batch = decode(segment)
    batch.total_order = None if total is None else total[low:high]
    batch.table_order = None if table is None else table[low:high]
    batch.messages = (segment.data, segment.offsets)
    return batch


def _change(segment: Segment, row: int) -> Change:
    number = int(segment.transaction[row])
    found = place(segment.transactions, number, int(segment.lsn[row]))
    return Change(segment.table.id, found, int(segment.ordinal[row]), int(segment.transactions.commit_us[number]))
