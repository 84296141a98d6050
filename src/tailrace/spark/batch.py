"""`spark.read`: the rows of the captured tables at one position of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.columns.row import made_columns
from tailrace.columns.typed import TypedRows
from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.errors import ConfigError
from tailrace.spark.prefetch import ahead

if TYPE_CHECKING:
    from tailrace.spark.snapshot_process import SnapshotHolder


class HeldPartition(InputPartition):
    """Partition `number` of `count`. `root` is the planning process's directory of Spark files, which only workers of a
    local session share."""

    def __init__(self, planned: SnapshotHolder, number: int, count: int, root: str) -> None:
        self.planned, self.number, self.count, self.root = planned, number, count, root

    def __repr__(self) -> str:
        # tasks may hold a password, and Spark prints partitions
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows, all at the position of the action's snapshot. Worker."""
        from tailrace.spark.snapshot_process import asked

        if SparkFiles.getRootDirectory() != self.root:
            for task in self.planned.tasks:
                yield from task.read()
            return
        with asked(self.planned, _action(), self.number, self.count) as tasks:
            for task in tasks:
                yield from task.read()


def _action() -> str:
    """Return the id of Spark's SQL execution, which all tasks of an action share; "" for RDD jobs, which have none."""
    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty("spark.sql.execution.id") or ""


@dataclass(slots=True)
class SnapshotReader(DataSourceReader):
    """The reader of a batch read. The holder process takes the snapshots and keeps them open for the tasks.

    Spark calls `partitions` once, however many actions a DataFrame has. In a local session, the tasks of each action
    therefore ask the holder for that action's snapshot. On a cluster, all actions read the snapshot of `partitions`.
    """

    config: Config | None
    run_id: str
    columns: tuple[str, ...]
    typed: TypedRows | None = None

    def __getstate__(self) -> Any:
        # The workers' copy can only read, and holds neither connections nor secrets.
        return self.columns

    def __setstate__(self, state: Any) -> None:
        self.columns = state
        self.config, self.run_id, self.typed = None, "", None

    def partitions(self) -> Sequence[InputPartition]:
        """Take a snapshot and return its tasks in partitions. Planning process; raises TailraceError."""
        # imported late: Spark imports this module at the start of every session, in search of formats
        from tailrace.events.event_settings import EventSettings
        from tailrace.spark.snapshot_process import planned

        assert self.config is not None
        settings = EventSettings.from_options(self.config, self.run_id)
        if self.typed is not None:
            settings = settings.as_typed(self.typed, self.columns)
        else:
            settings = replace(settings, columns=made_columns(self.columns))
        found = planned(self.config, settings)
        # for an empty list, Spark would make its own partition, and later actions would never ask the holder for rows
        count, root = max(1, len(found.tasks)), SparkFiles.getRootDirectory()
        return [
            HeldPartition(replace(found, tasks=tuple(found.tasks[number::count])), number, count, root)
            for number in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Worker."""
        # Spark passes its own partition if `partitions` returned none
        if isinstance(partition, HeldPartition):
            yield from ahead(batch.select(self.columns) for batch in partition.read())


def demand(config: Config) -> None:
    """Raise ConfigError if the connector cannot read tables at one position."""
    found = registry.find(config.connector)
    if found.load_consistent_read() is None:
        raise ConfigError(
            f"spark.read.format('{found.format}') is not supported: {found.title} has no position at which "
            "several tasks could read.",
            "Read a stream: spark.readStream with snapshot.mode=initial_only ends after the snapshot.",
        )
