"""Copies as real tables of Delta Lake, written by the sink's own writer in the modes `latest` and `history`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from tailrace.sinks.base import Sink
from tailrace.sinks.tables.positions import NAME
from tailrace.sinks.tables.sink import TablesSink, Writer
from tailrace.sinks.tables.versions import VALIDITY
from tests.simulation.schema.copies import Copies, Row

_SCHEMA = (
    "key binary, value binary, op string, database string, schema string, table string, position string, "
    "ordinal bigint, source_ts timestamp"
)
_COLUMNS = [part.split()[0] for part in _SCHEMA.split(", ")]


class LakeCopies(Copies):
    """Tables of Delta Lake under the sink's path. The rows of a table of versions are those that are current."""

    def __init__(self, spark: SparkSession, sink: Sink) -> None:
        self._spark = spark
        self.follow(sink)
        # The pipeline begins anew, with new tables.
        shutil.rmtree(self._path, ignore_errors=True)

    def follow(self, sink: Sink) -> None:
        assert isinstance(sink, TablesSink)
        self._sink, self._path = sink, Path(sink.path)

    def write(self, number: int, rows: Sequence[Row]) -> None:
        frame = self._spark.createDataFrame([tuple(row[name] for name in _COLUMNS) for row in rows], _SCHEMA)
        Writer(self._sink, "pipeline", "query", lambda _: True).write(frame, number)

    def names(self) -> set[str]:
        return {found.parent.name for found in self._path.glob("*/_delta_log")} - {NAME}

    def rows(self, name: str) -> list[Row] | None:
        if name not in self.names():
            return None
        found = self._spark.read.format("delta").load(str(self._path / name))
        if self._sink.mode == "history":
            found = found.where("__valid_to is null").drop(*(column for column, _ in VALIDITY))
        # Spark shows an instant without its zone, the session's.
        zoned = [field.name for field in found.schema if isinstance(field.dataType, TimestampType)]
        rows = [row.asDict(recursive=True) for row in found.collect()]
        return [row | {name: _in_utc(row[name]) for name in zoned} for row in rows]

    def columns(self, name: str) -> list[str]:
        if name not in self.names():
            return []
        found = self._spark.read.format("delta").load(str(self._path / name)).columns
        own = {column for column, _ in VALIDITY} if self._sink.mode == "history" else set()
        return [column for column in found if column not in own]

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)

    def empty(self, name: str) -> None:
        if name in self.names():
            self._spark.sql(f"delete from delta.`{self._path / name}`")


def _in_utc(shown: datetime | None) -> datetime | None:
    return None if shown is None else shown.replace(tzinfo=UTC)
