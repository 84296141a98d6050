"""The tasks of a PostgreSQL batch: segments of the log to decode, chunks of a snapshot to read. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import Int32s, LogicalMessage
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.arrow import KeptConnection
from tailrace.connectors.postgres.connection import Address
from tailrace.connectors.postgres.pgoutput import Message, parse
from tailrace.connectors.postgres.segment import MessageSegment, MixedSegment, Segment
from tailrace.connectors.postgres.snapshot import SnapshotOrigin, override_error, read_chunk
from tailrace.errors import ConnectionFailed, TailraceError
from tailrace.events.settings import EventSettings
from tailrace.snapshot.plan import Chunk

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.connectors.base import Task
    from tailrace.connectors.postgres.incremental import Read

# Logical messages that are made into one record batch.
_MESSAGE_BLOCK = 4096
# Bytes of logical messages that are made into one record batch; one message alone may exceed them.
_MESSAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to decode, topic after topic, each in log order. Pure: everything it needs is in it.

    `xmin` is what source blocks tell of the slot, 0 for nothing.
    """

    segments: tuple[Segment | MixedSegment, ...]
    settings: EventSettings
    xmin: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        yield from self._by_topic([one for one in self.segments if isinstance(one, Segment)])
        for segment in self.segments:
            if isinstance(segment, MixedSegment):
                yield from self._mixed(segment)

    def _mixed(self, segment: MixedSegment) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.mixed import records

        for part in records(segment, self.settings, self.xmin or None):
            if isinstance(part, list):
                yield from self._by_topic(part)
            else:
                yield part

    def _by_topic(self, segments: Sequence[Segment]) -> Iterator[pa.RecordBatch]:
        """The records of the segments, topic after topic, those of a topic in log order."""
        from tailrace.connectors.interleaving import in_log_order
        from tailrace.events import names

        topics: dict[str, list[Segment]] = {}
        for segment in segments:
            topics.setdefault(names.topic(self.settings, segment.table.id), []).append(segment)
        for parts in topics.values():
            places = [part.place for part in parts if part.place is not None]
            if len(parts) > 1 and len(places) == len(parts):
                yield from in_log_order(parts, places, Segment.cut, self._records)
            else:
                for part in parts:
                    for rows, _ in self._records(part):
                        yield rows

    def _records(self, segment: Segment) -> Iterator[tuple[pa.RecordBatch, Int32s]]:
        """The records of a segment, each with the number of its message."""
        from tailrace.columns.batch import ChangeBatch
        from tailrace.connectors.postgres.form import FORM
        from tailrace.connectors.postgres.quarantine import decoded
        from tailrace.events.records import numbered_rows

        for first, part in decoded(segment, self.settings):
            if isinstance(part, ChangeBatch):
                part.xmin = self.xmin or None
                for rows, change in numbered_rows(part, self.settings, FORM):
                    yield rows, change + np.int32(first)
            else:
                yield part, np.full(1, first, np.int32)


@dataclass(frozen=True, slots=True)
class MessageTask:
    """Logical messages, for the message topic; `xmin` as in LogTask."""

    segment: MessageSegment
    settings: EventSettings
    xmin: int = 0

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.form import FORM
        from tailrace.events.messages import message_rows

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
        """The records of the messages from `first` on, those that are too large put aside."""
        from tailrace.events.size import large_records, record_size

        low = 0
        for record in [*large_records(rows, self.settings), rows.num_rows]:
            if low < record:
                yield rows.slice(low, record - low)
            if record < rows.num_rows:
                yield self._too_large(first + record, record_size(rows, record))
            low = record + 1

    def _too_large(self, row: int, size: int) -> pa.RecordBatch:
        from tailrace.columns.table import TableId
        from tailrace.connectors.postgres.form import place
        from tailrace.events.quarantine import Change, too_large

        segment, number = self.segment, int(self.segment.transaction[row])
        commit = int(segment.transactions.commit_lsn[number])
        # a message has no table: what has written it stands in its place
        table = TableId(self.settings.database, "pg_catalog", "pg_logical_emit_message")
        at_us = int(segment.transactions.commit_us[number])
        change = Change(table, place(segment.transactions, number, commit), int(segment.ordinal[row]), at_us)
        return too_large(change, size, self.settings, "m")

    def messages(self, first: int, last: int) -> list[LogicalMessage]:
        """Messages `[first, last)`, parsed. Raises DecodeError."""
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


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """One chunk to read under the exported snapshot `snapshot`, with the connection `address` (holds the password).

    `overridden` tells that the statement is one of the user's, `asked` that a signal has brought it. Raises
    ConnectionFailed when the server cannot be reached or the snapshot is gone: the planner's session has ended, and a
    restart of the query takes up the remaining chunks under a new one; ConfigError when the user's statement fails,
    unless it was asked for: that is told, and the rest of its rows is left out.
    """

    address: Address
    snapshot: str
    table: TableSchema
    chunk: Chunk
    statement: str
    origin: SnapshotOrigin
    settings: EventSettings
    form: str
    overridden: bool = False
    asked: bool = False

    def __repr__(self) -> str:
        return f"SnapshotTask({self.table.id}, chunk {self.chunk.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_manager

        from tailrace.connectors.postgres.form import FORM
        from tailrace.events.records import to_rows

        try:
            connection = KeptConnection.take(self.address)
            own, asked = self.overridden, self.asked
            for batch in read_chunk(
                connection, self.snapshot, self.table, self.chunk, self.statement, self.origin, self.form, own, asked
            ):
                yield from to_rows(batch, self.settings, FORM)
        except (adbc_driver_manager.Error, ConnectionFailed) as error:
            if getattr(error, "remedy", ""):
                raise
            if self.overridden and not self.asked:
                # the server's words may hold what the statement computed
                state = getattr(error, "sqlstate", None)
                raise override_error(self.table.id, f"fails with SQLSTATE {state}" if state else _HALF_WAY) from None
            text = str(error).strip().splitlines()[0].rstrip(".")
            raise _failure(self.table, text) from None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Chunks of an incremental snapshot, read one after another with the connection `address` (holds the password).

    Raises ConnectionFailed when the server cannot be reached or the snapshot is gone. A table that has changed since
    the snapshot gives nothing: the planner has its chunk read again. Where a signal's condition fails, that is told,
    and the rest of the chunk's rows is left out.
    """

    address: Address
    reads: tuple[Read, ...]
    settings: EventSettings

    def __repr__(self) -> str:
        return f"ReadTask({len(self.reads)} chunks)"

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_manager

        from tailrace.connectors.postgres.form import FORM
        from tailrace.connectors.postgres.keyed import read_rows
        from tailrace.events.records import to_rows

        for part in self.reads:
            try:
                connection = KeptConnection.take(self.address)
                rows = read_rows(connection, part.snapshot, part.table, part.chunk, part.origin, part.superseded)
                for batch in rows:
                    yield from to_rows(batch, self.settings, FORM)
            except (adbc_driver_manager.Error, ConnectionFailed) as error:
                if getattr(error, "remedy", ""):
                    raise
                raise _failure(part.table.table, str(error).strip().splitlines()[0].rstrip(".")) from None


@dataclass(frozen=True, slots=True)
class Consecutive:
    """Tasks that one worker does one after another: another Spark task costs more than a small one of ours does."""

    tasks: tuple[Task, ...]

    def read(self) -> Iterator[pa.RecordBatch]:
        for task in self.tasks:
            yield from task.read()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Does `task` and gives nothing: its worker has loaded then what the first window of a snapshot needs.

    A small stream keeps one worker busy. The others would load the compiled kernels, most of a second, while the
    stream waits for the window's rows.
    """

    task: Task

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_postgresql  # noqa: F401

        from tailrace.connectors.postgres import texts

        texts.load()
        for _ in self.task.read():
            pass
        yield from ()


# The driver gives no SQLSTATE for a query that ends half-way.
_HALF_WAY = "has ended half-way (the server's log tells why)"


def _failure(table: TableSchema, text: str) -> TailraceError:
    return ConnectionFailed(
        f"Reading {table.id} for the snapshot failed: {text}.",
        "Start again with the same checkpoint: the chunks that are done are not read again.",
    )
