"""Notices: what the planner has to tell of snapshots, kept until a batch takes it along. Planner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tailrace.events.notifications import write_to_log
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.progress import Progress

Name = TypeVar("Name")
"""What a connector tells its tables or collections apart by."""


class Notices(Generic[Name]):
    """Notifications of one query, on the channels of `notification.enabled.channels`.

    A connector's own class tells of the chunks that a batch gets, in its call `chunks`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self._are_lines = "log" in channels
        self._initial = InitialNotifications(config["topic.prefix"])
        self._waiting: list[tuple[Notification, int]] = []
        self._rows: dict[Name, int] = {}

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

    def started(self, rows: Mapping[Name, int]) -> None:
        """A snapshot begins; `rows` counts the rows or documents of each name, in the order of reading."""
        self._rows = dict(rows)
        self._add(self._initial.of("STARTED"))

    def given_up(self) -> None:
        """A snapshot that was asked for cannot begin."""
        self._add(self._initial.of("ABORTED"))

    def _add(self, notice: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notice, time.time_ns() // 1_000_000))
