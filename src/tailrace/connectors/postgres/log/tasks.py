"""Tasks of a batch of the log: segments to decode, and logical messages. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import Int32s, LogicalMessage
from tailrace.connectors.postgres.protocol.pgoutput import Message, parse
from tailrace.connectors.postgres.protocol.segment import MessageSegment, MixedSegment, Segment
from tailrace.events.event_settings import EventSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.events.reselection import Reread


# The most logical messages in one record batch.
_MESSAGE_BLOCK = 4096
# The most bytes of logical messages in one record batch; one message alone may exceed them.
_MESSAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to decode, topic after topic, each topic in log order. Self-contained.

    `xmin` is the slot's catalog xmin for source blocks; 0: none. `again` rereads values that the log does not carry;
    None: they are not reread.
    """

    segments: tuple[Segment | MixedSegment, ...]
    settings: EventSettings
    xmin: int = 0
    again: Reread | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self._by_topic([one for one in self.segments if isinstance(one, Segment)])
        for segment in self.segments:
            if isinstance(segment, MixedSegment):
                yield from self._mixed(segment)

    def _mixed(self, segment: MixedSegment) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.log.form import FORM
        from tailrace.connectors.postgres.log.mixed import apart, records

        again = self.again
        if again is not None and any(again.concerns(table, self.settings, FORM) for table in segment.tables):
            yield from self._by_topic(apart(segment))
            return
        for part in records(segment, self.settings, self.xmin or None):
            if isinstance(part, list):
                yield from self._by_topic(part)
            else:
                yield part

    def _by_topic(self, segments: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the segments, topic after topic, in log order within each topic."""
        from tailrace.events import names
        from tailrace.log.interleaving import in_log_order

        topics: dict[str, list[Segment]] = {}
        shared = names.shared(self.settings, (segment.table.id for segment in segments))
        for segment in segments:
            topics.setdefault(shared[segment.table.id], []).append(segment)
        for parts in topics.values():
            places = [part.place for part in parts if part.place is not None]
            if len(parts) > 1 and len(places) == len(parts):
                yield from in_log_order(parts, places, Segment.cut, self._records)
            else:
                for part in parts:
                    for rows, _ in self._records(part):
                        yield rows

    def _records(self, segment: Segment) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """Yield the records of a segment, with the message number of each record."""
        from tailrace.columns.batch import ChangeBatch
        from tailrace.connectors.postgres.log.form import FORM
        from tailrace.connectors.postgres.log.quarantine import decoded
        from tailrace.events.record_assembly import numbered_rows

        for first, part in decoded(segment, self.settings):
            if isinstance(part, ChangeBatch):
                part.xmin = self.xmin or None
                whole = [(0, part)] if self.again is None else self.again.completed(part, self.settings, FORM)
                for low, piece in whole:
                    for rows, change in numbered_rows(piece, self.settings, FORM):
                        yield rows, change + np.int32(first + low)
            else:
                yield part, np.full(1, first, np.int32)


@dataclass(frozen=True, slots=True)
class MessageTask:
    """Logical messages, for the message topic; `xmin` is as in LogTask."""

    segment: MessageSegment
    settings: EventSettings
    xmin: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.log.form import FORM
        from tailrace.events.control_records import message_rows

        segment, most = self.segment, self.settings.most_change_bytes
        sizes = np.diff(segment.offsets) if segment.left_out is None else segment.left_out
        large = np.flatnonzero(sizes > most).tolist() if most else []
        low = 0
        for row in [*large, len(segment)]:
            while low < row:
                high = int(np.searchsorted(segment.offsets, segment.offsets[low] + _MESSAGE_BYTES, side="right")) - 1
                high = min(max(high, low + 1), low + _MESSAGE_BLOCK, row)
                rows = message_rows(self.messages(low, high), self.settings, FORM, self.xmin or None)
                yield from self._checked(rows, low)
                low = high
            if row < len(segment):
                yield self._too_large(row, int(sizes[row]))
            low = row + 1

    def _checked(self, rows: pa.RecordBatch, first: int) -> Iterator[pa.RecordBatch]:
        """Yield the records `rows` of the messages from `first` on; records that are too large are quarantined."""
        from tailrace.events.record_assembly import large_records, record_size

        low = 0
        for record in [*large_records(rows, self.settings), rows.num_rows]:
            if low < record:
                yield rows.slice(low, record - low)
            if record < rows.num_rows:
                yield self._too_large(first + record, record_size(rows, record))
            low = record + 1

    def _too_large(self, row: int, size: int) -> pa.RecordBatch:
        from tailrace.columns.table import TableId
        from tailrace.connectors.postgres.log.form import place
        from tailrace.events.quarantine import QuarantinedChange, too_large

        segment, number = self.segment, int(self.segment.transaction[row])
        commit = int(segment.transactions.commit_lsn[number])
        # a message has no table: the function that wrote it is named instead
        table = TableId(self.settings.database, "pg_catalog", "pg_logical_emit_message")
        at_us = int(segment.transactions.commit_us[number])
        change = QuarantinedChange(table, place(segment.transactions, number, commit), int(segment.ordinal[row]), at_us)
        return too_large(change, size, self.settings, "m")

    def messages(self, first: int, last: int) -> list[LogicalMessage]:
        """Parse the messages `[first, last)`. Raises DecodeError."""
        segment = self.segment
        total_order = np.zeros(len(segment), np.int64) if segment.total_order is None else segment.total_order
        found = []
        for row in range(first, last):
            message = parse(segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes())
            assert isinstance(message, Message)
            place = int(segment.transaction[row])
            previous = int(segment.transactions.previous_end[place])
            in_transaction = bool(message.flags & 1)
            found.append(
                LogicalMessage(
                    prefix=message.prefix,
                    content=message.content,
                    lsn=message.lsn,
                    xid=int(segment.transactions.xid[place]) if in_transaction else None,
                    commit_lsn=int(segment.transactions.commit_lsn[place]),
                    commit_us=int(segment.transactions.commit_us[place]),
                    previous_end=previous if previous >= 0 else None,
                    ordinal=int(segment.ordinal[row]),
                    total_order=int(total_order[row]) if in_transaction and segment.total_order is not None else None,
                )
            )
        return found
