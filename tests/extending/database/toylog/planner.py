"""The planner and its tasks: a batch is a range of lines, with one task for each table in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.columns import TableId
from tailrace.config import Config, TableFilter
from tailrace.events.event_settings import EventSettings
from tailrace.events.record_assembly import to_rows
from tailrace.log.contracts import Offset, Task
from toylog import log
from toylog.events import FORM, change_batch


@dataclass(frozen=True)
class LinesTask:
    """A task that reads the changes of one table between two positions."""

    path: str
    table: str
    start: int
    end: int
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        lines = log.changes(self.path, self.start, self.end)
        chosen = [(position, change) for position, change in lines if change["table"] == self.table]
        yield from to_rows(change_batch(TableId("", "log", self.table), chosen), self.settings, FORM)


class FilePlanner:
    """Plans batches of the log in the planner process. Offsets are `{"line": n}`."""

    def __init__(self, config: Config, settings: EventSettings) -> None:
        self._path = str(config["log.file"])
        self._settings = settings
        self._tables = TableFilter(config)
        self._last: int | None = None

    def initial_offset(self) -> Offset:
        return {"line": 0}

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        end = log.head(self._path) if self._last is None else self._last
        return {"line": end if max_rows is None else min(end, start["line"] + max_rows)}

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        first, last = start["line"], end["line"]
        tables = {change["table"] for _, change in log.changes(self._path, first, last)}
        captured = sorted(table for table in tables if self._tables.includes("log", table))
        return [LinesTask(self._path, table, first, last, self._settings) for table in captured]

    def stop_at_present(self) -> None:
        self._last = log.head(self._path)

    def status(self) -> Offset | None:
        return {"line": log.head(self._path)}

    def close(self) -> None:
        pass
