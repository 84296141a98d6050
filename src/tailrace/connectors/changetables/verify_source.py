"""Rows of captured tables for a comparison with a copy, and the keys that changed meanwhile. Driver.

These databases have no snapshot that several sessions share. Rows are read in chunks, each in its own transaction. The
change tables then have the keys that changed after the first read began. They lag: they are complete for these rows
once a commit after the reading has been captured.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.config import Config, TableFilter
from tailrace.connectors.changetables import loading
from tailrace.connectors.changetables.coverage import carried
from tailrace.connectors.changetables.dialect import CaptureTable
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.sessions import Retries
from tailrace.connectors.changetables.log.tasks import SnapshotTask, TaskSource
from tailrace.connectors.changetables.position import Newest, following, preceding
from tailrace.connectors.changetables.snapshot.initial import TableSnapshots
from tailrace.connectors.changetables.snapshot.windows import signal_table
from tailrace.connectors.consistent_read import TouchedKeys
from tailrace.errors import ConfigError, TailraceError
from tailrace.events.admission import Admission
from tailrace.events.event_settings import EventSettings
from tailrace.events.mapping import SourceForm
from tailrace.log.contracts import Task
from tailrace.process.runtime import THREADS
from tailrace.snapshot.selection import selected
from tailrace.snapshot.signals import WINDOW_CLOSE

_LAST = "~"
"""Sorts after every hexadecimal digit: appended to a commit's position it sorts after all of its changes."""


class ComparedTables:
    """Implements tailrace.connectors.consistent_read.ComparedSource. `name` and `value` write a name and a value in
    SQL."""

    committed = ""

    def __init__(
        self,
        config: Config,
        settings: EventSettings,
        name: Callable[[str], str],
        value: Callable[[Any], str],
        demand: Callable[[Any, Sequence[CaptureTable]], None],
    ) -> None:
        """Does not connect yet. Raises ConfigError.

        `demand` raises PrerequisiteError if a session does not see all rows of a table.
        """
        self._config, self._name, self._value, self._demand = config, name, value, demand
        dialect = loading.dialect(config)
        self.form: SourceForm | None = loading.form(config.connector)
        if len(dialect.databases) > 1:
            raise ConfigError(
                "Tables of several databases cannot be compared: the positions of their logs have no order.",
                "Give each database a pipeline of its own.",
            )
        lists, admission = TableFilter(config), Admission(settings, self.form)
        (self._of,) = dialect.databases
        self._database = Database(
            dialect, self._of, lambda table: lists.includes(table.schema, table.table), admission.admit, 0
        )
        self._signals = signal_table(config["signal.data.collection"], dialect.databases)
        self._source = TaskSource(dialect, settings, Retries.of(config), THREADS.time_ns() // 1000)
        # the end of the reading by the server's clock, and the id of the signal row that marks it
        self._over_us, self._mark = 0, ""
        self._admission = admission

    def _shown(self, table: TableSchema) -> TableSchema:
        return self._source.settings.shaping.read(carried(self._admission.admit(table), copies=True))

    def take(self) -> None:
        # taken before any row is read: the rows contain every change that is captured up to this position
        self._reached = self._database.begin()
        self.position = self._reached.position.hex().upper() + _LAST
        databases, reached = {self._of: self._database}, {self._of: self._reached}
        snapshots = TableSnapshots(self._config, databases, self._shown, os.cpu_count() or 1)
        eras = {str(era.table.id): era for era in self._reached.eras.at(self._reached.position)}
        chosen = selected(self._config, list(eras))
        self._demand(self._database.session, [eras[name].capture for name in chosen])
        self.tables = tuple(self._shown(eras[name].table) for name in chosen)
        progress = snapshots.begin(reached)
        self._tasks: list[SnapshotTask] = []
        while not progress.is_complete:
            progress = snapshots.advance(progress, reached, None)
            found = snapshots.tasks(progress, reached, self._source)
            self._tasks += [task for task in found if isinstance(task, SnapshotTask)]

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        return [task for task in self._tasks if task.table.id == table.id]

    def is_running(self) -> bool | None:
        return None

    def is_told(self) -> bool:
        session = self._database.session
        if not self._over_us:
            self._over_us, self._mark = session.now_us(), self._marked()
        newest = session.newest()
        if newest is None or newest <= self._reached.position:
            return False
        # commits have their positions in the order of their times
        later = session.commit_times(self._reached.position, newest).at_us
        return bool((later > self._over_us).any()) if not self._mark else self._is_marked(newest)

    def _marked(self) -> str:
        """Commit a row in the signal table, after all reads. Return its id; "" without a signal table.

        Once it is captured, all earlier commits are, too. An idle server has no other commit that could show this.
        """
        if self._signals is None or not self._captures(self._signals):
            return ""
        mark = f"tailrace-{uuid.uuid4().hex[:24]}"
        self._database.session.write_signal(self._signals, mark, WINDOW_CLOSE, None)
        return mark

    def _is_marked(self, newest: Newest) -> bool:
        """Return True if the row of the signal table has been captured."""
        assert self._signals is not None
        session, captures = self._database.session, self._captures(self._signals)
        wanted = self._mark.encode()
        for one in session.describe(captures):
            only = replace(one.table, columns=one.table.columns[:1], key=())
            rows = session.changes(one.capture, only, max(self._reached.position, preceding(one.capture.start)), newest)
            if any((text or b"").strip() == wanted for fetched in rows for text in fetched.columns[0].to_pylist()):
                return True
        return False

    def _captures(self, table: TableId) -> list[CaptureTable]:
        """Return the change tables of a table, older before newer."""
        name = (table.schema, table.table)
        return [one for one in self._database.session.captures() if (one.source.schema, one.source.table) == name]

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        low = bytes.fromhex(after.removesuffix(_LAST))[: self._source.dialect.width]
        session = self._database.session
        newest = session.newest()
        if newest is None or newest <= low:
            return TouchedKeys(())
        captures = self._captures(table.id)
        if not captures or min(one.start for one in captures) > following(low):
            return TouchedKeys((), True)
        only = replace(table, columns=tuple(table.columns[table.index(name)] for name in table.key))
        found: set[tuple[bytes, ...]] = set()
        for one in captures:
            if not set(table.key) <= set(one.columns):
                return TouchedKeys((), True)
            # each of several change tables may have changes that the others lack
            for rows in session.changes(one, only, max(low, preceding(one.start)), newest):
                found.update(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        return TouchedKeys(tuple(zip(*sorted(found), strict=True)))

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        listed = [self._name(name) for name in names]
        if len(listed) == 1:
            return f"{listed[0]} in ({', '.join(self._value(value) for (value,) in keys)})"
        rows = (" and ".join(f"{a} = {self._value(b)}" for a, b in zip(listed, key, strict=True)) for key in keys)
        return " or ".join(f"({row})" for row in rows)

    def close(self) -> None:
        if self._mark and self._signals is not None:
            # a row that stays does no harm
            with suppress(TailraceError):
                self._database.session.delete_signal(self._signals, self._mark)
        self._database.lose()
