"""Notices and heartbeats: what the planner has to tell beside changes, kept until a batch takes it along. Planner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tailrace.columns.table import TableId
from tailrace.connectors.changetables.offset import TablesSnapshot
from tailrace.errors import ConnectionFailed, TailraceError
from tailrace.events.notifications import write_to_log
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.progress import Progress

log = logging.getLogger("tailrace")


class Notices:
    """Notifications of one query, on the channels of `notification.enabled.channels`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self._are_lines = "log" in channels
        self._initial = InitialNotifications(config["topic.prefix"])
        self._waiting: list[tuple[Notification, int]] = []
        self._rows: dict[TableId, int] = {}

    @property
    def are_wanted(self) -> bool:
        return self.are_records or self._are_lines

    def add_to(self, progress: Progress) -> Progress:
        """`progress` with what waited before its own notices; none at all where nobody wants them."""
        notices = (*self._waiting, *progress.notices)
        self._waiting = []
        if self._are_lines:
            write_to_log(notices)
        return replace(progress, notices=notices if self.are_records else ())

    def skipped(self) -> None:
        """There is no initial snapshot: the mode asks for none, or it was taken before."""
        self._add(self._initial.of("SKIPPED"))

    def started(self, rows: Mapping[TableId, int]) -> None:
        """A snapshot begins; `rows` tells about how many there are of each table, in the order of reading."""
        self._rows = dict(rows)
        self._add(self._initial.of("STARTED"))

    def chunks(self, snapshot: TablesSnapshot) -> None:
        """The chunks of `snapshot` are in the next batch."""
        if not self.are_wanted:
            return
        tables = [(table.schema, table.table) for table in snapshot.tables]
        for chunk in snapshot.chunks:
            if chunk.after is None:
                self._add(self._initial.begun(tables, tables[chunk.place]))
            if chunk.upto is None:
                rows = self._rows.get(snapshot.tables[chunk.place], 0)
                self._add(self._initial.scanned(tables, tables[chunk.place], rows))
        if snapshot.is_complete:
            self._add(self._initial.of("COMPLETED"))

    def _add(self, notice: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notice, time.time_ns() // 1_000_000))


class Heartbeats:
    """The clock of `heartbeat.interval.ms`; 0 means none. `act` runs the statement of `heartbeat.action.query`.

    A heartbeat is part of the offset that ends its batch, so a batch that is planned again after a crash has the same
    one. The statement is run when the heartbeat is decided on, and not again at such a repetition.
    """

    def __init__(self, interval_ms: int, query: str | None, act: Callable[[str], None]) -> None:
        self._interval = interval_ms / 1000
        self._query = query
        self._act = act
        self._last = time.monotonic()

    def remaining(self) -> float:
        """Seconds until the next heartbeat is due, 0 when it is; infinite without heartbeats."""
        if not self._interval:
            return float("inf")
        return max(0.0, self._last + self._interval - time.monotonic())

    def beat(self, previous_ms: int) -> int:
        """The time of the heartbeat that is due, in ms since 1970, later than `previous_ms`; runs the statement."""
        self._last = time.monotonic()
        if self._query:
            try:
                self._act(self._query)
            except ConnectionFailed:
                raise
            except TailraceError as error:
                log.warning("heartbeat.action.query fails: %s The heartbeat goes on without it.", error.message)
        return max(int(time.time() * 1000), previous_ms + 1)
