"""Spark's Python sources over the connectors' planners: one source for each connector in the registry.

`DataSource.__init__` and `schema` run in a short process at `load()`. This module must be importable in a Spark that
cannot run the sources: an error at the import would end Spark's search for any format.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tailrace.columns.row import COLUMNS
from tailrace.config.rows import columns_of, is_typed
from tailrace.connectors import registry
from tailrace.connectors.descriptor import Descriptor
from tailrace.errors import TailraceError
from tailrace.process import log_lines
from tailrace.spark.batch import SnapshotReader, demand
from tailrace.spark.capabilities import demand_sources
from tailrace.spark.options import unpacked

if TYPE_CHECKING:
    from tailrace.spark.stream_reader import ChangeStreamReader

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


class ChangeDataSource(DataSource):
    """The base of every tailrace source; `connector` names its connector. The options are Debezium's.

    `tailrace.spark.options` keeps the case of option names. Columns: see `tailrace.columns.row`; row.columns selects
    some of them. Raises ConfigError at `load()` for unknown, wrong or unsupported options, and PrerequisiteError in a
    Spark that cannot run the source.
    """

    connector: ClassVar[str]

    def __init__(self, options: Mapping[str, str]) -> None:
        demand_sources()
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
        # not at the top: a Spark that cannot run the source lacks modules that this one imports
        from tailrace.spark.stream_reader import ChangeStreamReader

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
    """Make a local session's sources run in this process's Python, instead of Spark's default: the first `python3` of
    PATH."""
    context = getattr(spark, "_sc", None)
    if context is None or not str(context.master).startswith("local") or "PYSPARK_PYTHON" in os.environ:
        return
    named = ("spark.pyspark.python", "spark.executorEnv.PYSPARK_PYTHON")
    if not any(context.getConf().contains(name) for name in named):
        context.pythonExec = sys.executable


def _is_known(spark: SparkSession, name: str) -> bool:
    """Return True if Spark already has the format; False if it has not, or if this cannot be determined."""
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
