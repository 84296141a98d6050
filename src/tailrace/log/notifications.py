"""PendingNotifications: reports about snapshots, kept until a batch takes them along. Planner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tailrace.events.control_records import write_to_log
from tailrace.log.notification_http import HttpChannel
from tailrace.process.runtime import Runtime
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.progress import Progress

Name = TypeVar("Name")
"""A connector's name for a table or collection."""
Snapshot = TypeVar("Snapshot")
"""The state of a snapshot in a connector's offsets."""


class DirectChannels:
    """The channels `log` and `http`, which need no batch. Its methods may be called by any thread.

    `is_used` is True if the configuration names one of them.
    """

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        channels = config["notification.enabled.channels"]
        self._are_lines = "log" in channels
        self._http = HttpChannel(config) if "http" in channels else None
        self._runtime = runtime
        self.is_used = self._are_lines or self._http is not None

    def write(self, notifications: Sequence[tuple[Notification, int]]) -> None:
        """Write notifications, each with its time in ms since 1970."""
        if self._are_lines:
            write_to_log(notifications)
        if self._http is not None:
            self._http.send(notifications)

    def tell(self, notification: Notification) -> None:
        """Write a notification that must not wait for a batch: what it reports may keep batches from being planned."""
        self.write(((notification, self._runtime.time_ns() // 1_000_000),))


class PendingNotifications(ABC, Generic[Name, Snapshot]):
    """Pending notifications of one query, for the channels in `notification.enabled.channels`.

    Each connector's subclass reports the chunks of a batch.
    """

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self.direct = DirectChannels(config, runtime)
        self._runtime = runtime
        self._initial = InitialNotifications(config["topic.prefix"])
        self._waiting: list[tuple[Notification, int]] = []
        # notifications that `direct` has written and that wait for a batch
        self._told: list[tuple[Notification, int]] = []
        self._rows: dict[Name, int] = {}

    @property
    def are_wanted(self) -> bool:
        return self.are_records or self.direct.is_used

    def add_to(self, progress: Progress) -> Progress:
        """Write the pending notifications, then those of `progress`, to the channels `log` and `http`.

        Return `progress` with all of them for the channel `sink`; with none if that channel is off.
        """
        notifications = (*self._waiting, *progress.notifications)
        told = tuple(self._told)
        self._waiting, self._told = [], []
        self.direct.write(notifications)
        return replace(progress, notifications=(*told, *notifications) if self.are_records else ())

    def add_told(self, notification: Notification) -> None:
        """Report a notification that `direct` has written on the channel `sink` too."""
        if self.are_records:
            self._told.append((notification, self._runtime.time_ns() // 1_000_000))

    def skipped(self) -> None:
        """Report that there is no initial snapshot: the mode asks for none, or it was taken before."""
        self._add(self._initial.of("SKIPPED"))

    def started(self, rows: Mapping[Name, int]) -> None:
        """Report that a snapshot begins; `rows` counts the rows or documents of each name, in the order of reading."""
        self._rows = dict(rows)
        self._add(self._initial.of("STARTED"))

    def given_up(self) -> None:
        """Report that a requested snapshot cannot begin."""
        self._add(self._initial.of("ABORTED"))

    @abstractmethod
    def chunks(self, before: Snapshot, after: Snapshot, *, asked: bool) -> None:
        """Report the chunks between `before` and `after`, which are in the next batch; `asked`: a signal requested
        them."""

    def add(self, notification: Notification) -> None:
        """Report an event of another kind than snapshots, such as a gap in the log."""
        self._add(notification)

    def _add(self, notification: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notification, self._runtime.time_ns() // 1_000_000))
