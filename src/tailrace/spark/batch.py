"""`spark.read`: the rows of the captured tables at one position of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tailrace.columns.row import made_columns
from tailrace.columns.typed import TypedRows
from tailrace.config import Config
from tailrace.connectors import registry
from tailrace.errors import ConfigError
from tailrace.spark.ahead import ahead
from tailrace.spark.tasks import TaskPartition


@dataclass(slots=True)
class SnapshotReader(DataSourceReader):
    """The rows at one position. `partitions` takes the snapshot, which another process keeps open for the tasks."""

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
        from tailrace.spark.holder import tasks_of

        assert self.config is not None
        settings = EventSettings.from_options(self.config, self.run_id)
        if self.typed is not None:
            settings = settings.as_typed(self.typed, self.columns)
        else:
            settings = replace(settings, columns=made_columns(self.columns))
        return [TaskPartition(task) for task in tasks_of(self.config, settings)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task. Worker."""
        # where there are no rows, Spark makes a partition of its own
        if isinstance(partition, TaskPartition):
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
