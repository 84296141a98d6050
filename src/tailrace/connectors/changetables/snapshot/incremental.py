"""Incremental: what the planner does for signals and incremental snapshots, beside reading the log. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.columns.table import TableId, TableSchema
from tailrace.connectors.base import Task
from tailrace.connectors.changetables.dialect import Dialect
from tailrace.connectors.changetables.log.database import Database
from tailrace.connectors.changetables.log.tasks import Source
from tailrace.connectors.changetables.offset import Reached
from tailrace.connectors.changetables.snapshot.windows import (
    Changes,
    Closed,
    LogPlace,
    TableWindows,
    WindowPart,
    WindowRows,
)
from tailrace.events.settings import EventSettings
from tailrace.snapshot.conditions import fault, refusal
from tailrace.snapshot.incremental import Collection
from tailrace.snapshot.pace import ReadingPace
from tailrace.snapshot.windows import Windows

# The first automatic window reads about so many rows; all stay below the second number, and are read within about so
# many s.
FIRST_ROWS, MOST_ROWS = 4096, 200_000
WINDOW_PACE = 0.5


class Incremental(Windows[LogPlace, LogPlace, WindowRows, Closed, Changes, WindowPart]):
    """Signals and windows of one query over change tables. Planner, its main thread. See TableWindows."""

    def __init__(
        self,
        config: Mapping[str, Any],
        settings: EventSettings,
        dialect: Dialect,
        databases: Mapping[str, Database],
        shown: Callable[[TableSchema], TableSchema],
    ) -> None:
        source = TableWindows(config, dialect, databases, shown)
        size = config["incremental.snapshot.chunk.size"]
        pace = ReadingPace(
            config.get("incremental.snapshot.window.chunks") or 0,
            max(1, FIRST_ROWS // size),
            max(1, MOST_ROWS // size),
            WINDOW_PACE / 2,
            WINDOW_PACE,
        )
        refuses = refusal(config, lambda sql: fault(sql, brackets=dialect.brackets))
        super().__init__(config, source, pace, refuses, writes=source.table is not None, legacy=settings.legacy)
        self.check = source.check
        self._database = source.database

    def tasks(self, end: dict[str, Any], changes: Changes, source: Source) -> Sequence[Task]:
        """The tasks of the batch's window; see `reads`."""
        return [part(source) for part in self.reads(end, changes)]

    def tables(self, collections: Sequence[Collection], reached: Mapping[str, Reached]) -> dict[TableId, str | None]:
        """The captured tables of a blocking snapshot, each with its statement, if it has one."""
        found = {}
        here = reached[self._database]
        for era in here.eras.at(here.position):
            for one in collections:
                if (one.schema, one.table) == (era.table.id.schema, era.table.id.table):
                    found[era.table.id] = one.filter
        return found
