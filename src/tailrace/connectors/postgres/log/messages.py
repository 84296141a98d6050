"""Logical messages: their selection from a batch's rows, and the task that makes events of them. Planner and tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import LogicalMessage
from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.postgres.log.indexed_run import MESSAGE, Rows
from tailrace.connectors.postgres.protocol.pgoutput import Message, parse
from tailrace.connectors.postgres.protocol.position import Segment
from tailrace.events.event_settings import EventSettings
from tailrace.log.rows.segment import gathered

if TYPE_CHECKING:
    import pyarrow as pa

# The most logical messages in one record batch.
_MESSAGE_BLOCK = 4096
# The most bytes of logical messages in one record batch; one message alone may exceed them.
_MESSAGE_BYTES = 16 << 20


MESSAGES = TableSchema(TableId("", "pg_catalog", "pg_logical_emit_message"), (), ())
"""The table that quarantine records of messages name: the function that wrote the messages."""


def messages(rows: Sequence[Rows], most: int = 0) -> Segment | None:
    """Return the logical messages among the rows, for one task, because they have one topic; None if there are none.

    Messages of more than `most` bytes have no content; 0: there is no limit.
    """
    found = [
        (part.run, part.first + np.flatnonzero(part.run.version[part.first : part.last] == MESSAGE)) for part in rows
    ]
    parts = [(run, taken) for run, taken in found if len(taken)]
    if not parts:
        return None
    segment = Segment(MESSAGES, *gathered(parts))
    return segment.without_large(most) if most else segment


@dataclass(frozen=True, slots=True)
class MessageTask:
    """Logical messages, for the message topic; `xmin` is the slot's catalog xmin for source blocks, 0: none.

    For a message outside of transactions, whose transaction id is 0, the segment's `total_order` has no meaning.
    """

    segment: Segment
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
        from tailrace.connectors.postgres.log.form import place
        from tailrace.events.quarantine import QuarantinedChange, too_large

        segment, number = self.segment, int(self.segment.by_row.transaction[row])
        commit = int(segment.transactions.commit_lsn[number])
        table = replace(segment.table.id, database=self.settings.database)
        at_us = int(segment.transactions.commit_us[number])
        ordinal = int(segment.by_row.ordinal[row])
        change = QuarantinedChange(table, place(segment.transactions, number, commit), ordinal, at_us)
        return too_large(change, size, self.settings, "m")

    def messages(self, first: int, last: int) -> list[LogicalMessage]:
        """Parse the messages `[first, last)`. Raises DecodeError."""
        segment = self.segment
        total_order = segment.by_row.total_order
        found = []
        for row in range(first, last):
            message = parse(segment.data[segment.offsets[row] : segment.offsets[row + 1]].tobytes())
            assert isinstance(message, Message)
            place = int(segment.by_row.transaction[row])
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
                    ordinal=int(segment.by_row.ordinal[row]),
                    total_order=int(total_order[row]) if in_transaction and total_order is not None else None,
                )
            )
        return found
