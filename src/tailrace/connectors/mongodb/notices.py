"""Notices: what the planner has to tell of snapshots, kept until a batch takes it along. Planner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.connectors.mongodb.chunk import Namespace
from tailrace.connectors.mongodb.plan import SnapshotPlan
from tailrace.events.notifications import write_to_log
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.progress import Progress


class Notices:
    """Notifications of one query, on the channels of `notification.enabled.channels`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self._are_lines = "log" in channels
        self._initial = InitialNotifications(config["topic.prefix"])
        self._waiting: list[tuple[Notification, int]] = []
        self._counts: dict[Namespace, int] = {}

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

    def started(self, counts: Mapping[Namespace, int]) -> None:
        """A snapshot begins; `counts` are the documents of each collection, in the order of reading."""
        self._counts = dict(counts)
        self._add(self._initial.of("STARTED"))

    def chunks(self, plan: SnapshotPlan, first: int, done: int) -> None:
        """The chunks `[first, done)` of the snapshot are in the next batch."""
        if not self.are_wanted:
            return
        names: Sequence[Namespace] = list(self._counts) or list(dict.fromkeys(c.namespace for c in plan.chunks))
        for chunk in plan.chunks[first:done]:
            if not chunk.lower:
                self._add(self._initial.begun(names, chunk.namespace))
            if not chunk.upper:
                self._add(self._initial.scanned(names, chunk.namespace, self._counts.get(chunk.namespace, 0)))
        if done >= len(plan.chunks):
            self._add(self._initial.of("COMPLETED"))

    def _add(self, notice: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notice, time.time_ns() // 1_000_000))
