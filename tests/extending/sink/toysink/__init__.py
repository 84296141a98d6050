"""A sink of another package: the newest record of each key, in a table of an SQLite file. Driver."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.errors import ConnectionFailed, SinkError, TailraceError
from tailrace.sinks.base import Settings, Sink
from tailrace.sinks.interruption import briefly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

TABLE = (
    "create table if not exists latest (topic text, key blob, value blob, position text, ordinal integer, "
    "primary key (topic, key))"
)
# The records of one change have the same position and ordinal: the last of them wins.
PUT = (
    "insert into latest values (?, ?, ?, ?, ?) on conflict (topic, key) do update set "
    "value = excluded.value, position = excluded.position, ordinal = excluded.ordinal "
    "where (excluded.position, excluded.ordinal) >= (latest.position, latest.ordinal)"
)
FAILED = re.compile(r"sqlite3\.\w+: ([^\n]+)")


class LatestSink(Sink):
    """The sink; `debezium.sink.latest.path` is the file. Skips records without a key; a tombstone is a null value."""

    name = "latest"
    columns = ("topic", "key", "value", "position", "ordinal")
    order = "key"
    delivery = "exactly once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only(["path"])
        self.path = settings.required("path")

    def failure(self, text: str) -> TailraceError | None:
        found = FAILED.search(text)
        if found is None:
            return None
        if "locked" in found[1]:
            return ConnectionFailed(f"Another process holds {self.path}: {found[1]}.", "Start again when it has ended.")
        return SinkError(f"{self.path} cannot be written: {found[1]}.", "Check debezium.sink.latest.path.")

    def start(
        self, frame: DataFrame, checkpoint: str | Path, trigger: Mapping[str, Any], query: str = "tailrace"
    ) -> StreamingQuery:
        writer = frame.select(*self.columns).writeStream.queryName(query).trigger(**trigger)
        return writer.option("checkpointLocation", str(checkpoint)).foreachBatch(briefly(self._write)).start()

    def _write(self, batch: DataFrame, number: int) -> None:
        """Write one batch as one transaction. Writing it again after a crash changes nothing."""
        connection = sqlite3.connect(self.path)
        try:
            with connection:
                connection.execute(TABLE)
                for row in batch.where("key is not null").toLocalIterator(prefetchPartitions=True):
                    value = None if row["value"] is None else bytes(row["value"])
                    connection.execute(PUT, (row["topic"], bytes(row["key"]), value, row["position"], row["ordinal"]))
        finally:
            connection.close()
