"""The stream reader of every source: Spark's calls, passed on to a connector's planner.

The planner process lives as long as the query and runs all calls except `read`. Workers run `read` on a pickled copy of
the reader, so the partition contains everything that `read` needs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tailrace.columns.row import made_columns
from tailrace.columns.typed import TypedRows
from tailrace.config import Config
from tailrace.config.rows import columns_of
from tailrace.connectors import registry
from tailrace.errors import TailraceError
from tailrace.log.contracts import Planner
from tailrace.metrics.tally import TALLY
from tailrace.process import log_lines
from tailrace.spark.measures import PlannerMeasures
from tailrace.spark.prefetch import ahead
from tailrace.spark.tasks import PlacedPartition, TaskFiles, TaskPartition


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of every tailrace source. Constructed in several processes, so the constructor does no I/O."""

    def __init__(self, config: Config, run_id: str, typed: TypedRows | None = None) -> None:
        self._config = config
        self._run_id = run_id
        self._typed = typed
        self._columns = columns_of(config) if typed is None or typed.schema is None else tuple(typed.schema.names)
        self._planner: Planner | None = None
        self._files = TaskFiles() if config["tasks.in.files"] else None
        self._shows_stacks: bool = config["log.traceback"]
        self._measures: PlannerMeasures | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The workers' copy can only read, and holds neither connections nor secrets.
        kept = {"_run_id": self._run_id, "_columns": self._columns, "_shows_stacks": self._shows_stacks}
        return {"_config": None, "_planner": None, "_typed": None, "_files": None, "_measures": None, **kept}

    def _plan(self) -> Planner:
        if self._planner is None:
            log_lines.follow()
            log_lines.hide_stacks(hidden=not self._shows_stacks)
            with _uncollected():
                from tailrace.events.event_settings import EventSettings

                load_planner = registry.find(self._config.connector).load_planner()
            settings = EventSettings.from_options(self._config, self._run_id)
            if self._typed is not None:
                settings = settings.as_typed(self._typed, self._columns)
            else:
                settings = replace(settings, columns=made_columns(self._columns))
            self._planner = load_planner(self._config, settings)
            self._measures = PlannerMeasures(self._config, self._planner)
        return self._planner

    @property
    def _max_bytes(self) -> int:
        """The value of max.batch.size.in.bytes; unlimited for connectors without it, which do not know sizes in
        advance."""
        return int(self._config.get("max.batch.size.in.bytes") or _UNLIMITED)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the constant first offset. Planner."""
        return self._plan().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `max.batch.size` rows if the user set it, else `max.batch.size.in.bytes`. Planner."""
        if self._config.is_set("max.batch.size"):
            return ReadMaxRows(self._config["max.batch.size"])
        return ReadMaxBytes(self._max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the next batch's end. `start` is in Spark's commit log, so the planner may acknowledge it. Planner."""
        if self._files is not None:
            self._files.passed(start)
        rows = bytes_ = None
        if isinstance(limit, ReadMaxRows):
            rows, bytes_ = limit.max_rows, self._max_bytes
        elif isinstance(limit, ReadMaxBytes):
            bytes_ = limit.max_bytes
        elif not isinstance(limit, ReadAllAvailable):
            bytes_ = self._max_bytes
        planner = self._plan()
        if self._measures is None:
            return planner.latest_offset(start, rows, bytes_)
        self._measures.committed(start)
        found = planner.latest_offset(start, rows, bytes_)
        self._measures.planned(start, found)
        return found

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest known position, for the query's progress. Planner."""
        newest = self._plan().status()
        return newest if self._measures is None else self._measures.reported(newest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make the query end at the database's current position. Planner."""
        self._plan().stop_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, self-contained or each with its data in a file. Planner."""
        tasks = self._plan().partitions(start, end)
        found: Sequence[TaskPartition | PlacedPartition]
        if self._files is not None:
            found = self._files.placed(start, end, tasks)
        else:
            found = [TaskPartition(task) for task in tasks]
        if self._measures is not None:
            for partition, place in zip(found, self._measures.reports.places(start, end, len(found)), strict=True):
                partition.report = place
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, in the columns that the query names. Worker."""
        assert isinstance(partition, TaskPartition | PlacedPartition)
        log_lines.follow()
        began_s = time.time()
        TALLY.clear()
        try:
            for batch in ahead(batch.select(self._columns) for batch in partition.read()):
                TALLY.bytes += batch.nbytes
                yield batch
        except TailraceError:
            # this worker ends with the error
            log_lines.hide_stacks(hidden=not self._shows_stacks)
            raise
        if partition.report is not None:
            partition.report.write(TALLY, began_s)
        _settle()

    def stop(self) -> None:
        """Release the planner's connections. Spark calls it only when the planner ends by itself. Planner."""
        if self._files is not None:
            self._files.close()
        if self._measures is not None:
            self._measures.close()
        if self._planner is not None:
            self._planner.close()


_settled = False
_UNLIMITED = (1 << 63) - 1


def _settle() -> None:
    """Exempt the objects that the first task has loaded from garbage collection, once in each worker.

    Spark's worker collects garbage after every task; the compiler's many objects made this a fifth of its time.
    """
    global _settled  # noqa: PLW0603
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection during imports, and exempt their objects afterwards. Planner.

    The collector would walk over all these objects, none of which is garbage, again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
