"""The tasks of a MongoDB batch: changes of the log, documents of a snapshot, boundaries, heartbeats. Worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.columns.batch import Boundary
from tailrace.connectors.mongodb.segment import Segment
from tailrace.connectors.mongodb.settings import MongoSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.snapshot.incremental import Notification


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to make records of, one after another. Pure: everything that it needs is in it."""

    segments: tuple[Segment, ...]
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.mongodb.records import to_rows

        for segment in self.segments:
            yield from to_rows(segment, self.settings)


@dataclass(frozen=True, slots=True)
class BoundaryTask:
    """Begins and ends of transactions, for the transaction topic."""

    boundaries: tuple[Boundary, ...]
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.boundaries import boundary_rows

        yield boundary_rows(self.boundaries, self.settings.events)


@dataclass(frozen=True, slots=True)
class HeartbeatTask:
    """The heartbeat at the end of a batch: its time in ms since 1970, and the timestamp that the batch reads to."""

    at_ms: int
    time: int
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.heartbeat import heartbeat_row

        yield heartbeat_row(self.at_ms, self.time, self.settings.events)


@dataclass(frozen=True, slots=True)
class NoticeTask:
    """Notifications, each with its time in ms since 1970; `time` is the timestamp at which the batch ends."""

    notices: tuple[tuple[Notification, int], ...]
    time: int
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.notifications import notification_rows

        # beyond the numbers of changes and of the documents of chunks
        yield notification_rows(self.notices, self.settings.events, self.time, 1 << 62)
