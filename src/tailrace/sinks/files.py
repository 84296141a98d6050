"""Records to files: JSON lines that keep their order by name, and Parquet. Both hold each record exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.batches import FILES, Batches, number_of
from tailrace.sinks.claim import claim
from tailrace.sinks.interruption import briefly
from tailrace.sinks.storage import HadoopStorage, reaching

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


class _FilesSink(Sink):
    """What the sinks for files share: the directory `path`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path").rstrip("/") or "/"

    @property
    def folder(self) -> str:
        return self.path


class JsonLinesSink(_FilesSink):
    """One JSON object a line in files `batch-<batch>-<part>.jsonl` under `path`, each record exactly once.

    The names sort in the order of the records of each topic. A file is complete when it appears, and is not changed
    from then on. `path` belongs to one checkpoint: with another one `start` raises SinkError.
    """

    name = "file"
    columns = ("topic", "key", "value", "headers")
    delivery = "exactly once"

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        storage = HadoopStorage(frame.sparkSession)
        with reaching(self.path, "debezium.sink.file.path"):
            newest = storage.newest(self.path, FILES)
            written = None if newest is None else number_of(newest)
            batches = Batches(storage, claim(storage, self.path, str(checkpoint), "debezium.sink.file.path", written))

        def write(batch: DataFrame, number: int) -> None:
            # Were the text compressed, as Hadoop's settings may say, the names would hide it.
            writer = batch.write.option("compression", "none")
            batches.write(number, writer.text)

        writer = frame.selectExpr(f"{LINE} as value").writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(write)).start()


class ParquetSink(_FilesSink):
    """Parquet files under `path` with every column of the rows, by Spark's own sink and its commit log.

    `(position, ordinal)` orders the records; Spark's readers see committed files only. `path` belongs to one
    checkpoint: with another one, whose first batches Spark would take for those that it knows, `start` raises
    SinkError.
    """

    name = "parquet"
    delivery = "exactly once"

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        storage = HadoopStorage(frame.sparkSession)
        with reaching(self.path, "debezium.sink.parquet.path"):
            # Spark's log of what it has written, a file for each batch; every tenth sums up those before it.
            logged = [name.removesuffix(".compact") for name in storage.sizes(f"{self.path}/_spark_metadata")]
            written = max((int(name) for name in logged if name.isdigit()), default=None)
            if written is None and storage.newest(self.path, "*.parquet") is not None:
                # Readers would no longer see these files once there is a log without them.
                written = -1
            claim(storage, self.path, str(checkpoint), "debezium.sink.parquet.path", written)
        writer = frame.select(*self.columns).writeStream.format("parquet").outputMode("append")
        writer = writer.queryName(query).trigger(**trigger).option("checkpointLocation", str(checkpoint))
        return writer.start(self.path)
