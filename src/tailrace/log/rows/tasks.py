"""LogTask: records of segments; messages that cannot be decoded become quarantine records in their places. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.columns.batch import ChangeBatch, Int32s
from tailrace.errors import DecodeError
from tailrace.events.event_settings import EventSettings
from tailrace.events.quarantine import QuarantinedChange, put_aside, report, too_large
from tailrace.log.rows.row_log import RowLog
from tailrace.log.rows.segment import PIECE, MixedSegment, Segment

if TYPE_CHECKING:
    from tailrace.events.reselection import Reread


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to decode, topic after topic, each topic in log order. Self-contained.

    `log` reads their messages. `again` rereads values that the log does not carry; None: they are not reread.
    """

    segments: tuple[Segment[Any, Any] | MixedSegment[Any, Any], ...]
    settings: EventSettings
    log: RowLog[Any, Any]
    again: Reread | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self._by_topic([segment for segment in self.segments if isinstance(segment, Segment)])
        for segment in self.segments:
            if isinstance(segment, MixedSegment):
                yield from self._mixed(segment)

    def _mixed(self, segment: MixedSegment[Any, Any]) -> Iterator[pa.RecordBatch]:
        from tailrace.log.rows.small_tables import apart, records

        again = self.again
        if again is not None and any(again.concerns(table, self.settings, self.log.form) for table in segment.tables):
            yield from self._by_topic(apart(segment))
            return
        for part in records(self.log, segment, self.settings):
            if isinstance(part, list):
                yield from self._by_topic(part)
            else:
                yield part

    def _by_topic(self, segments: Sequence[Segment[Any, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the segments, topic after topic, in log order within each topic."""
        from tailrace.events import names
        from tailrace.log.interleaving import in_log_order

        for parts in names.by_topic(self.settings, segments, lambda segment: segment.table.id).values():
            places = [part.place for part in parts if part.place is not None]
            if len(parts) > 1 and len(places) == len(parts):
                yield from in_log_order(parts, places, Segment.cut, self._records)
            else:
                for part in parts:
                    for rows, _ in self._records(part):
                        yield rows

    def _records(self, segment: Segment[Any, Any]) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """Yield the records of a segment, with the message number of each record."""
        from tailrace.events.record_assembly import numbered_rows

        form = self.log.form
        for first, part in decoded(self.log, segment, self.settings):
            if isinstance(part, ChangeBatch):
                whole = [(0, part)] if self.again is None else self.again.completed(part, self.settings, form)
                for low, piece in whole:
                    for rows, change in numbered_rows(piece, self.settings, form):
                        yield rows, change + np.int32(first + low)
            else:
                yield part, np.full(1, first, np.int32)


# --- messages that are quarantined ------------------------------------------------------------------------------------


def decoded(
    log: RowLog[Any, Any], segment: Segment[Any, Any], settings: EventSettings
) -> Iterator[tuple[int, ChangeBatch | pa.RecordBatch]]:
    """Yield the segment's changes, and in their place the quarantine records of messages that cannot be decoded.

    Each part comes with the number of its first message in the segment. A message that is larger than
    `settings.most_change_bytes` is quarantined without its bytes, because they would need the memory that the limit
    is there to save.

    In mode `fail` raises DecodeError with table and position for a message that cannot be decoded, and ConversionError
    for a message that is too large. Raises DecodeError in any mode when the segment as a whole cannot be decoded.
    """
    for first, piece in segment.pieces(PIECE):
        for low, part in _decoded(log, piece, settings):
            yield first + low, part


def _decoded(
    log: RowLog[Any, Any], segment: Segment[Any, Any], settings: EventSettings
) -> Iterator[tuple[int, ChangeBatch | pa.RecordBatch]]:
    large = _too_large(log, segment, settings)
    try:
        if not large:
            yield 0, _batch(log, segment)
            return
        broken = _broken(log, segment)
    except DecodeError as error:
        broken = _broken(log, segment)
        if not broken:
            raise
        if settings.processing_failure_mode == "fail":
            row, reason = next(iter(broken.items()))
            raise DecodeError(
                f"A message of {segment.table.id} cannot be decoded, {_change(log, segment, row)}: {reason} "
                "Set event.processing.failure.handling.mode to warn to quarantine it (not with the sink tables)."
            ) from error
    low = 0
    for row in sorted({*broken, *large}):
        if low < row:
            yield low, _batch(log, segment.cut(low, row))
        change = _change(log, segment, row)
        if row in large:
            yield row, too_large(change, large[row], settings)
        else:
            reason, raw = broken[row], segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes()
            report(change, f"a message cannot be decoded: {reason}", settings)
            payload = {"op": None, "column": None, "reason": reason, "key": None, "message": raw}
            yield row, put_aside(change, payload, settings)
        low = row + 1
    if low < len(segment):
        yield low, _batch(log, segment.cut(low, len(segment)))


def _batch(log: RowLog[Any, Any], segment: Segment[Any, Any]) -> ChangeBatch:
    """Decode the messages; the batch has their numbers in transactions and their raw bytes."""
    batch = log.decode(segment)
    batch.total_order, batch.table_order = segment.by_row.total_order, segment.by_row.table_order
    batch.messages = segment.data, segment.offsets
    return batch


def _too_large(log: RowLog[Any, Any], segment: Segment[Any, Any], settings: EventSettings) -> dict[int, int]:
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
        too_large(_change(log, segment, row), size, settings)
    return found


def _broken(log: RowLog[Any, Any], segment: Segment[Any, Any]) -> dict[int, str]:
    """Return the messages that cannot be parsed, in order, each with the reason."""
    found: dict[int, str] = {}
    for row in range(len(segment)):
        try:
            log.check(segment, row)
        except DecodeError as error:
            found[row] = error.message
    return found


def _change(log: RowLog[Any, Any], segment: Segment[Any, Any], row: int) -> QuarantinedChange:
    by_row = segment.by_row
    commit_us = int(segment.transactions.commit_us[by_row.transaction[row]])
    return QuarantinedChange(segment.table.id, log.place(segment, row), int(by_row.ordinal[row]), commit_us)
