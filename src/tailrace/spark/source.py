"""Spark's Python sources over the connectors' planners: one source for each connector in the registry.

Processes: `DataSource.__init__` and `schema` run in a short process
at `load()`. The planner process lives as long as the query and runs all other calls but `read`. Workers run `read` on
a pickled copy of the reader, so everything that `read` needs is in its partition.
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
from tailrace.errors import TailraceError
from tailrace.log.contracts import Planner
from tailrace.process import log_lines
from tailrace.spark.batch import SnapshotReader, demand
from tailrace.spark.options import unpacked
from tailrace.spark.prefetch import ahead
from tailrace.spark.tasks import PlacedPartition, TaskFiles, TaskPartition

_TYPES = {
    "key": "binary", "value": "binary", "headers": "array<struct<key: string, value: binary>>",
    "ordinal": "bigint", "source_ts": "timestamp", "partition": "int", "timestamp": "bigint",
    "reselected": "int",
}  # fmt: skip


def row_type(columns: Sequence[str]) -> str:
    """Return the Spark type, as DDL, of rows with these columns in this order."""
    return ", ".join(f"{name} {_TYPES.get(name, 'string')}" for name in columns)


ROW_TYPE = row_type(COLUMNS)
"""The Spark type, as DDL, of rows with all columns."""


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

    def __getstate__(self) -> dict[str, Any]:
        # The workers' copy can only read, and holds neither connections nor secrets.
        kept = {"_run_id": self._run_id, "_columns": self._columns, "_shows_stacks": self._shows_stacks}
        return {"_config": None, "_planner": None, "_typed": None, "_files": None, **kept}

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
        return self._planner

    @property
    def _max_bytes(self) -> int:
        """The value of max.batch.size.in.bytes; unlimited for connectors without it, which cannot tell sizes ahead."""
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
        return self._plan().latest_offset(start, rows, bytes_)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest known position, for the query's progress. Planner."""
        return self._plan().status()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at the database's current position. Planner."""
        self._plan().stop_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, self-contained or each with its data in a file. Planner."""
        tasks = self._plan().partitions(start, end)
        if self._files is not None:
            return self._files.placed(start, end, tasks)
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, in the columns that the query names. Worker."""
        assert isinstance(partition, TaskPartition | PlacedPartition)
        log_lines.follow()
        try:
            yield from ahead(batch.select(self._columns) for batch in partition.read())
        except TailraceError:
            # this worker ends with the error
            log_lines.hide_stacks(hidden=not self._shows_stacks)
            raise
        _settle()

    def stop(self) -> None:
        """Release the planner's connections. Spark calls it only when the planner ends by itself. Planner."""
        if self._files is not None:
            self._files.close()
        if self._planner is not None:
            self._planner.close()


def columns_of(config: Config) -> tuple[str, ...]:
    """Return the column names of a query's rows, in order: those of row.columns, else all."""
    return tuple(config["row.columns"] or COLUMNS)


_settled = False
_UNLIMITED = (1 << 63) - 1


def _settle() -> None:
    """Exempt the objects that the first task has loaded from garbage collection, once in each worker.

    Spark's worker collects after every task; walking over the compiler's many objects took a fifth of its time.
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


class ChangeDataSource(DataSource):
    """The base of every tailrace source; `connector` names its connector. The options are Debezium's.

    `tailrace.spark.options` keeps the case of option names. Columns: see `tailrace.columns.row`; row.columns selects
    some of them. Raises ConfigError at `load()` for unknown, wrong or unsupported options.
    """

    connector: ClassVar[str]

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)  # type: ignore[arg-type]
        log_lines.follow()
        try:
            self._config = registry.parse(self.connector, unpacked(options))
        except TailraceError:
            log_lines.hide_stacks(hidden=True)
            raise

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
    """Return the class of a connector's source, for `spark.dataSource.register`. Driver."""
    about = {"connector": descriptor.name, "__doc__": f"Row changes of {descriptor.title} as Debezium events."}
    return type(f"{descriptor.name.title()}DataSource", (ChangeDataSource,), about)


def new_run_id() -> str:
    """Return a UUID of version 7 (RFC 9562) for one run of a query."""
    import time
    import uuid

    value = int(time.time() * 1000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def _have_workers_of_this_environment(spark: SparkSession) -> None:
    """Let a local session's sources run in this process's Python: Spark's default is the first `python3` of PATH."""
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local") or "PYSPARK_PYTHON" in os.environ:
        return
    named = ("spark.pyspark.python", "spark.executorEnv.PYSPARK_PYTHON")
    if not any(context.getConf().contains(name) for name in named):
        context.pythonExec = sys.executable


def _is_known(spark: SparkSession, name: str) -> bool:
    """Return True if Spark has the format already; False also if that cannot be determined."""
    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))
    except Exception:
        # Spark Connect has no JVM here, and another version of Spark may have other names
        return False


def register(spark: SparkSession) -> None:
    """Register the sources of all connectors, tailrace's own and those of other packages, with `spark`. Driver.

    `readStream.format` takes their names. Workers of a local session then run this process's Python, unless
    PYSPARK_PYTHON or Spark's settings name another.
    """
    _have_workers_of_this_environment(spark)
    for descriptor in registry.known():
        if _is_known(spark, descriptor.format):
            # Spark has found it by itself, and would warn of a second registration
            continue
        try:
            spark.dataSource.register(data_source(descriptor))
        except PySparkException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
