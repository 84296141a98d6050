"""PendingNotifications: what is to be reported of snapshots, kept until a batch takes it along. Planner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tailrace.events.notifications import write_to_log
from tailrace.runtime import Runtime
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.progress import Progress

Name = TypeVar("Name")
"""What a connector knows its tables or collections by."""
Snapshot = TypeVar("Snapshot")
"""How far a snapshot is, as a connector's offsets have it."""


class PendingNotifications(ABC, Generic[Name, Snapshot]):
    """PendingNotifications of one query, on the channels of `notification.enabled.channels`.

    A connector's own class reports the chunks that a batch gets.
    """

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self._are_lines = "log" in channels
        self._runtime = runtime
        self._initial = InitialNotifications(config["topic.prefix"])
        self._waiting: list[tuple[Notification, int]] = []
        self._rows: dict[Name, int] = {}

    @property
    def are_wanted(self) -> bool:
        return self.are_records or self._are_lines

    def add_to(self, progress: Progress) -> Progress:
        """`progress` with what waited before its own notifications; none at all where nobody wants them."""
        notifications = (*self._waiting, *progress.notifications)
        self._waiting = []
        if self._are_lines:
            write_to_log(notifications)
        return replace(progress, notifications=notifications if self.are_records else ())

    def skipped(self) -> None:
        """There is no initial snapshot: the mode asks for none, or it was taken before."""
        self._add(self._initial.of("SKIPPED"))

    def started(self, rows: Mapping[Name, int]) -> None:
        """A snapshot begins; `rows` counts the rows or documents of each name, in the order of reading."""
        self._rows = dict(rows)
        self._add(self._initial.of("STARTED"))

    def given_up(self) -> None:
        """A snapshot that was asked for cannot begin."""
        self._add(self._initial.of("ABORTED"))

    @abstractmethod
    def chunks(self, before: Snapshot, after: Snapshot, *, asked: bool) -> None:
        """The chunks between `before` and `after` are in the next batch; `asked`: a signal has asked for them."""

    def _add(self, notification: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notification, self._runtime.time_ns() // 1_000_000))
