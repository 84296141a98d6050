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
from tailrace.spark.ahead import ahead

if TYPE_CHECKING:
    from tailrace.spark.holder import Planned


class HeldPartition(InputPartition):
    """One of `count` partitions. `root` is the directory of files of the process that has planned it: the workers of a
    local session have the same, and no others do."""

    def __init__(self, planned: Planned, number: int, count: int, root: str) -> None:
        self.planned, self.number, self.count, self.root = planned, number, count, root

    def __repr__(self) -> str:
        # tasks may hold a password, and Spark prints partitions
        return type(self).__name__

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of the partition, at the position of the action. Worker."""
        from tailrace.spark.holder import asked

        if SparkFiles.getRootDirectory() != self.root:
            for task in self.planned.tasks:
                yield from task.read()
            return
        with asked(self.planned, _action(), self.number, self.count) as tasks:
            for task in tasks:
                yield from task.read()


def _action() -> str:
    """Return what the tasks of one action have in common: the number of Spark's execution, which jobs of RDDs lack."""
    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty("spark.sql.execution.id") or ""


@dataclass(slots=True)
class SnapshotReader(DataSourceReader):
    """The rows at one position. Another process takes the snapshots and keeps them open for the tasks.

    Spark asks for the partitions once, however many actions a DataFrame has. So in a local session the tasks of each
    action ask for the snapshot of that action; on a cluster all actions read the one that `partitions` has taken.
    """

    config: Config | None
    run_id: str
    columns: tuple[str, ...]
    typed: TypedRows | None = None

    def __getstate__(self) -> Any:
        # Workers get a copy that can only read: neither connections nor secrets go with it.
        return self.columns

    def __setstate__(self, state: Any) -> None:
        self.columns = state
        self.config, self.run_id, self.typed = None, "", None

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Planning process; raises TailraceError."""
        # imported late: Spark imports this module at the start of every session, in search of formats
        from tailrace.events.settings import EventSettings
        from tailrace.spark.holder import planned

        assert self.config is not None
        settings = EventSettings.from_options(self.config, self.run_id)
        if self.typed is not None:
            settings = settings.as_typed(self.typed, self.columns)
        else:
            settings = replace(settings, columns=made_columns(self.columns))
        found = planned(self.config, settings)
        # without one Spark would make a partition of its own, and later actions would never ask for rows
        count, root = max(1, len(found.tasks)), SparkFiles.getRootDirectory()
        return [
            HeldPartition(replace(found, tasks=tuple(found.tasks[number::count])), number, count, root)
            for number in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Worker."""
        # where there are no rows, Spark makes a partition of its own
        if isinstance(partition, HeldPartition):
            yield from ahead(batch.select(self.columns) for batch in partition.read())


def demand(config: Config) -> None:
    """Raise ConfigError where the connector reads no tables at one position."""
    found = registry.find(config.connector)
    if found.load_held() is None:
        raise ConfigError(
            f"spark.read.format('{found.format}') is not supported: {found.title} has no position at which "
            "several tasks could read.",
            "Read a stream: spark.readStream with snapshot.mode=initial_only ends after the snapshot.",
        )
