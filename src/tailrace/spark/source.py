"""Spark's Python sources over the connectors' planners: one for each connector that the registry knows.

Which process runs what (measured, see docs/architecture.md): `DataSource.__init__` and `schema` run in a short
process at `load()`; one planner process lives as long as the query and makes every call but `read`; workers run
`read` on a pickled copy of the reader, so everything that `read` needs is in its partition.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tailrace.columns.row import COLUMNS, made_columns
from tailrace.columns.typed import TypedRows
from tailrace.config import Config
from tailrace.config.rows import is_typed
from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tailrace.log.planner import Planner
from tailrace.spark.ahead import ahead
from tailrace.spark.batch import SnapshotReader, demand
from tailrace.spark.options import unpacked
from tailrace.spark.tasks import PlacedPartition, TaskFiles, TaskPartition

_TYPES = {
    "key": "binary", "value": "binary", "headers": "array<struct<key: string, value: binary>>",
    "ordinal": "bigint", "source_ts": "timestamp", "partition": "int", "timestamp": "bigint",
    "reselected": "int",
}  # fmt: skip


def row_type(columns: Sequence[str]) -> str:
    """Spark's type of rows of these columns alone, in this order."""
    return ", ".join(f"{name} {_TYPES.get(name, 'string')}" for name in columns)


ROW_TYPE = row_type(COLUMNS)
"""Spark's type of rows of all columns."""


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of every tailrace source. Constructed in several processes: no I/O until the first call."""

    def __init__(self, config: Config, run_id: str, typed: TypedRows | None = None) -> None:
        self._config = config
        self._run_id = run_id
        self._typed = typed
        self._columns = columns_of(config) if typed is None or typed.schema is None else tuple(typed.schema.names)
        self._planner: Planner | None = None
        self._files = TaskFiles() if config["tasks.in.files"] else None

    def __getstate__(self) -> dict[str, Any]:
        # Workers get a copy that can only read: neither connections nor secrets go with it.
        kept = {"_run_id": self._run_id, "_columns": self._columns}
        return {"_config": None, "_planner": None, "_typed": None, "_files": None, **kept}

    def _plan(self) -> Planner:
        if self._planner is None:
            with _uncollected():
                from tailrace.events.settings import EventSettings

                load_planner = registry.find(self._config.connector).load_planner()
            settings = EventSettings.from_options(self._config, self._run_id)
            if self._typed is not None:
                settings = settings.as_typed(self._typed, self._columns)
            else:
                settings = replace(settings, columns=made_columns(self._columns))
            self._planner = load_planner(self._config, settings)
        return self._planner

    @property
    def _max_bytes(self) -> int:
        """Connectors that do not know the size of what is still to be read have no such option, and no such limit."""
        return int(self._config.get("max.batch.size.in.bytes") or _UNLIMITED)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The constant first offset. Planner."""
        return self._plan().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`max.batch.size` rows when the user set it, else `max.batch.size.in.bytes`. Planner."""
        if self._config.is_set("max.batch.size"):
            return ReadMaxRows(self._config["max.batch.size"])
        return ReadMaxBytes(self._max_bytes)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch. `start` is in Spark's commit log: the slot may forget what is before. Planner."""
        if self._files is not None:
            self._files.passed(start)
        rows = bytes_ = None
        if isinstance(limit, ReadMaxRows):
            rows, bytes_ = limit.max_rows, self._max_bytes
        elif isinstance(limit, ReadMaxBytes):
            bytes_ = limit.max_bytes
        elif not isinstance(limit, ReadAllAvailable):
            bytes_ = self._max_bytes
        return self._plan().latest_offset(start, rows, bytes_)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest position known to exist, for the query's progress. Planner."""
        return self._plan().status()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query to what is committed in the database now. Planner."""
        self._plan().stop_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, with everything that they need in them or in a file. Planner."""
        tasks = self._plan().partitions(start, end)
        if self._files is not None:
            return self._files.placed(start, end, tasks)
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow record batches of the columns that the query wants. Worker."""
        assert isinstance(partition, TaskPartition | PlacedPartition)
        yield from ahead(batch.select(self._columns) for batch in partition.read())
        _settle()

    def stop(self) -> None:
        """Release the planner's connections; Spark calls it only when the planner ends by itself. Planner."""
        if self._files is not None:
            self._files.close()
        if self._planner is not None:
            self._planner.close()


def columns_of(config: Config) -> tuple[str, ...]:
    """The columns of a query's rows, in their order: those that row.columns names, else all."""
    return tuple(config["row.columns"] or COLUMNS)


_settled = False
_UNLIMITED = (1 << 63) - 1


def _settle() -> None:
    """Take what the first task has loaded out of the garbage collector's sight, once in each worker.

    Spark's worker collects after every task; walking over the compiler's many objects took a fifth of its time.
    """
    global _settled  # noqa: PLW0603
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Imports without the garbage collector, which walks over all that they make while nothing of it is garbage, and
    would again at each later import. Planner."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


class ChangeDataSource(DataSource):
    """What every tailrace source is: its options are Debezium's, `connector` is the name of the one that has them.

    `tailrace.spark.options` keeps the case of their names. Columns: see `tailrace.columns.row`; row.columns names some
    of them. Raises ConfigError at `load()` for unknown, wrong or unsupported options.
    """

    connector: ClassVar[str]

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        self._config = registry.parse(self.connector, unpacked(options))

    @classmethod
    def name(cls) -> str:
        return registry.find(cls.connector).format

    def schema(self) -> str | StructType:
        if not is_typed(self._config):
            return row_type(columns_of(self._config))
        from tailrace.spark.typed import typed_type

        return typed_type(self._config)

    def streamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802
        if not is_typed(self._config):
            return ChangeStreamReader(self._config, new_run_id())
        from tailrace.spark.typed import declared

        return ChangeStreamReader(self._config, new_run_id(), typed=declared(schema))

    def reader(self, schema: StructType) -> SnapshotReader:
        demand(self._config)
        if not is_typed(self._config):
            return SnapshotReader(self._config, new_run_id(), columns_of(self._config))
        from tailrace.spark.typed import declared

        typed = declared(schema)
        return SnapshotReader(self._config, new_run_id(), tuple(schema.names), typed=typed)


def data_source(descriptor: Descriptor) -> type[ChangeDataSource]:
    """The class of a connector's source, which `spark.dataSource.register` takes. Driver."""
    about = {"connector": descriptor.name, "__doc__": f"Row changes of {descriptor.title} as Debezium events."}
    return type(f"{descriptor.name.title()}DataSource", (ChangeDataSource,), about)


def new_run_id() -> str:
    """A UUID of version 7 (RFC 9562), one for each run of a query."""
    import os
    import time
    import uuid

    value = int(time.time() * 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def _have_workers_of_this_environment(spark: SparkSession) -> None:
    """Let sources of a local session run in this process's Python: the first `python3` of PATH may be another one."""
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local") or "PYSPARK_PYTHON" in os.environ:
        return
    named = ("spark.pyspark.python", "spark.executorEnv.PYSPARK_PYTHON")
    if not any(context.getConf().contains(name) for name in named):
        context.pythonExec = sys.executable


def _is_known(spark: SparkSession, name: str) -> bool:
    """Return True where Spark has the format already; False also where nobody can tell."""
    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))
    except Exception:
        # Spark Connect has no JVM here, and another Spark other names
        return False


def register(spark: SparkSession) -> None:
    """Make the sources known to `spark`, under the names that `readStream.format` takes. Driver.

    They are those of tailrace's own connectors and of those that other packages bring. In a local session Python's
    workers are those of the environment that this process runs in, unless PYSPARK_PYTHON or Spark's settings name them.
    """
    _have_workers_of_this_environment(spark)
    for descriptor in registry.known():
        if _is_known(spark, descriptor.format):
            # Spark has found it by itself, and would warn of a second one
            continue
        try:
            spark.dataSource.register(data_source(descriptor))
        except PySparkException as error:
            # Spark has found it by itself
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
