"""Records to files: JSON lines that keep their order by name, and Parquet. Both hold each record exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.config.config import Config
from tailrace.config.formats import PARTS, form_of
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.batches import FILES, Batches, number_of
from tailrace.sinks.claim import claim
from tailrace.sinks.interruption import briefly
from tailrace.sinks.storage import HadoopStorage, reaching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

# JSON goes in as it is. A text is escaped by to_json, as the element of an array whose brackets are cut off.
_IN_JSON = {
    "json": "cast({} as string)",
    "text": "regexp_extract(to_json(array(cast({} as string))), '(?s)^.(.*).$', 1)",
    # Spark cuts base64 into lines
    "bytes": "concat('\"', replace(replace(base64({}), char(13)), char(10)), '\"')",
}


def line(forms: Mapping[str, str]) -> str:
    """Return the SQL of Spark that makes a line of JSON of a record.

    It is `{"topic":…,"key":…,"value":…,"headers":[{"key":…,"value":…}]}`. `forms` has what `config.formats.form_of`
    says of `key`, `value` and `header`: JSON is written as such, other texts as strings, bytes in base64.
    """
    key, value, header = (
        f"if({column} is null, 'null', {_IN_JSON[forms[part]].format(column)})"
        for part, column in (("key", "key"), ("value", "value"), ("header", "h.value"))
    )
    named = "concat(regexp_replace(to_json(named_struct('key', h.key)), '[}]$', '')"
    return (
        f"concat(regexp_replace(to_json(named_struct('topic', topic)), '[}}]$', ''), ',\"key\":', {key}, "
        f"',\"value\":', {value}, ',\"headers\":[', array_join(transform(coalesce(headers, array()), "
        f"h -> {named}, ',\"value\":', {header}, '}}')), ','), ']}}')"
    )


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

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._forms: dict[str, str] = dict.fromkeys(PARTS, "json")

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        self._forms = {part: form_of(source, part) for part in PARTS}

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

        writer = frame.selectExpr(f"{line(self._forms)} as value").writeStream.queryName(query).trigger(**trigger)
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
