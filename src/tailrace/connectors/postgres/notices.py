"""Notices: what the planner has to tell of snapshots, kept until a batch takes it along. Planner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.config.filters import table_name
from tailrace.events.notifications import write_to_log
from tailrace.snapshot.incremental import InitialNotifications, Notification
from tailrace.snapshot.plan import SnapshotPlan
from tailrace.snapshot.progress import Progress


class Notices:
    """Notifications of one query, on the channels of `notification.enabled.channels`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        channels = config["notification.enabled.channels"]
        self.are_records = "sink" in channels
        self._are_lines = "log" in channels
        self._initial = InitialNotifications(config["topic.prefix"])
        signals = config["signal.data.collection"]
        self._signals = [table_name(signals)] if signals else []
        self._waiting: list[tuple[Notification, int]] = []
        self._rows: dict[tuple[str, str], int] = {}
        # so many of the tables of the running snapshot have been told of
        self._told = 0

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

    def started(self, rows: Mapping[tuple[str, str], int]) -> None:
        """A snapshot begins; `rows` counts those of each table, `(schema, table)`, in the order of reading."""
        self._rows = dict(rows)
        self._told = 0
        self._add(self._initial.of("STARTED"))

    def given_up(self) -> None:
        """A snapshot that was asked for cannot begin."""
        self._add(self._initial.of("ABORTED"))

    def chunks(self, plan: SnapshotPlan, first: int, done: int) -> None:
        """The chunks `[first, done)` of the snapshot are in the next batch."""
        if not self.are_wanted:
            return
        tables = list(self._rows) or [(table.schema, table.table) for table in plan.tables]
        for chunk in plan.chunks(first, done):
            table = (chunk.table.schema, chunk.table.table)
            if chunk.opens_table:
                self._pass_empty(tables, table)
                self._add(self._initial.begun(tables, table))
            if chunk.closes_table:
                self._add(self._initial.scanned(self._with_signals(tables), table, self._rows.get(table, 0)))
                self._told = tables.index(table) + 1
        if done >= len(plan):
            self._pass_empty(tables, None)
            self._told = 0
            self._add(self._initial.of("COMPLETED"))

    def _pass_empty(self, tables: Sequence[tuple[str, str]], until: tuple[str, str] | None) -> None:
        """Tell of the tables before `until` that have no rows, and so no chunks."""
        while self._told < len(tables) and tables[self._told] != until:
            table = tables[self._told]
            if self._rows.get(table) == 0:
                self._add(self._initial.begun(tables, table))
                self._add(self._initial.scanned(self._with_signals(tables), table, 0))
            self._told += 1

    def _with_signals(self, tables: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """As recordings have it: what has been scanned is told with the signal table, which is not read."""
        return sorted({*tables, *self._signals})

    def _add(self, notice: Notification) -> None:
        if self.are_wanted:
            self._waiting.append((notice, time.time_ns() // 1_000_000))
