"""Records to files: JSON lines that keep their order by name, and Parquet. Both hold each record exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.sinks.base import Settings
from tailrace.sinks.interruption import briefly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

# The texts of key, value and headers are JSON already and go in as they are; the names are escaped by to_json, whose
# closing brace is cut off.
_HEADER = (
    "concat(regexp_replace(to_json(named_struct('key', h.key)), '[}]$', ''), ',\"value\":', "
    "coalesce(cast(h.value as string), 'null'), '}')"
)
LINE = (
    "concat(regexp_replace(to_json(named_struct('topic', topic)), '[}]$', ''), ',\"key\":', "
    "coalesce(cast(key as string), 'null'), ',\"value\":', coalesce(cast(value as string), 'null'), "
    f"',\"headers\":[', array_join(transform(coalesce(headers, array()), h -> {_HEADER}), ','), ']}}')"
)
"""Spark SQL: one record as a line of JSON, `{"topic":…,"key":…,"value":…,"headers":[{"key":…,"value":…}]}`."""

_STAGING = "_staging"


class JsonLinesSink:
    """One JSON object a line in files `batch-<batch>-<part>.jsonl` under `path`.

    The names sort in the order of the records of each topic. A file is complete when it appears. A replayed batch
    replaces its files, so after it each record is there once.
    """

    name = "file"
    needs_kafka = False

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path").rstrip("/") or "/"

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        writer = frame.selectExpr(f"{LINE} as value").writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(self._write)).start()

    def _write(self, batch: DataFrame, number: int) -> None:
        """Write one batch: its parts beside the final place, then each by one rename. Driver and workers."""
        staging = f"{self.path}/{_STAGING}"
        batch.write.mode("overwrite").text(staging)
        # Hadoop's file systems are Spark's own: the same code serves a local directory and an object store.
        hadoop = batch.sparkSession._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        configuration = batch.sparkSession._jsparkSession.sparkContext().hadoopConfiguration()
        system = hadoop.Path(self.path).getFileSystem(configuration)
        for old in system.globStatus(hadoop.Path(f"{self.path}/batch-{number:012d}-*")):
            system.delete(old.getPath(), False)
        parts = sorted(
            (status.getPath() for status in system.listStatus(hadoop.Path(staging)) if status.getLen() > 0),
            key=lambda path: str(path.getName()),
        )
        for part in parts:
            name = str(part.getName())
            if name.startswith("part-"):
                index = name.split("-")[1]
                system.rename(part, hadoop.Path(f"{self.path}/batch-{number:012d}-{index}.jsonl"))
        system.delete(hadoop.Path(staging), True)


class ParquetSink:
    """Parquet files under `path` with every column of the rows, by Spark's own sink and its commit log.

    `(position, ordinal)` orders the records; Spark's readers see committed files only.
    """

    name = "parquet"
    needs_kafka = False

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path")

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        writer = frame.writeStream.format("parquet").outputMode("append").queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).start(self.path)
