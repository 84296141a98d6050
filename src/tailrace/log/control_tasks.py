"""Tasks for records that are not changes: ends of transactions, heartbeats, notifications. Worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.columns.batch import Boundary
from tailrace.events.event_settings import EventSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.snapshot.incremental import Notification


@dataclass(frozen=True, slots=True)
class BoundaryTask:
    """The begins and ends of transactions, for the transaction topic."""

    boundaries: tuple[Boundary, ...]
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.control_records import boundary_rows

        yield boundary_rows(self.boundaries, self.settings)


@dataclass(frozen=True, slots=True)
class HeartbeatTask:
    """The heartbeat at the end of a batch, at `at_ms` since 1970; the batch reads the log up to `position`."""

    at_ms: int
    position: int | str
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.control_records import heartbeat_row

        yield heartbeat_row(self.at_ms, self.position, self.settings)


@dataclass(frozen=True, slots=True)
class NotificationTask:
    """Notifications, each with its time in ms since 1970; `position` is the end of the batch."""

    notifications: tuple[tuple[Notification, int], ...]
    position: int | str
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.control_records import notification_rows

        # higher than the numbers of changes and of rows in chunks
        yield notification_rows(self.notifications, self.settings, self.position, 1 << 62)
