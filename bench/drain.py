"""A Spark query over a slot or a snapshot, from its start to its end, timed. Driver."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.workload import Workload
from tailrace.pipeline import read_columns
from tailrace.sinks.base import Sink
from tailrace.sinks.console import NoopSink
from tailrace.sinks.kafka import KafkaSink

AVAILABLE_NOW = {"availableNow": True}


@dataclass(frozen=True, slots=True)
class Drained:
    """The times of a query. `seconds` is from start() to the return of awaitTermination(); `steady_seconds` from the
    start of the first batch with rows to the end of the last; `batches` are the rows and the ms of each batch."""

    seconds: float
    steady_seconds: float
    rows: int
    batches: list[tuple[int, int]]


def options(workload: Workload, table: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options for JSON events without schemas, of one table."""
    return {
        **workload.options(),
        "topic.prefix": "bench",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "table.include.list": f"public.{table}",
        "publication.name": table,
        "publication.autocreate.mode": "disabled",
        **more,
    }


def frame(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format("postgres-cdc").options(**settings).load()


def needed(sink: Sink, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options with the columns that a pipeline reads for `sink`, unless `settings` names some."""
    return {"row.columns": ",".join(read_columns(sink)), **settings}


def to_noop(spark: SparkSession, settings: Mapping[str, str]) -> Drained:
    """Read the whole backlog into Spark's noop sink, which computes all columns of the source."""
    events = frame(spark, needed(NoopSink({}), settings))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        writer = events.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        started = time.monotonic()
        return finish(writer.start(), started)


def to_kafka(spark: SparkSession, settings: Mapping[str, str], servers: str, producer: Mapping[str, str]) -> Drained:
    """Read the whole backlog into Kafka through the product's sink; `producer` overrides options of the sink.

    Raises RuntimeError when the sink did not take all rows.
    """
    named = {"bootstrap.servers": servers, **producer}
    sink = KafkaSink({f"producer.{name}": text for name, text in named.items()})
    events = frame(spark, needed(sink, settings))
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as checkpoint:
        started = time.monotonic()
        query = sink.start(events, checkpoint, AVAILABLE_NOW, "bench")
        drained = finish(query, started)
        written = sum(progress["sink"]["numOutputRows"] for progress in _progress(query))
    if written != drained.rows:
        raise RuntimeError(f"Kafka took {written} of {drained.rows} records")
    return drained


def finish(query: StreamingQuery, started: float) -> Drained:
    query.awaitTermination()
    seconds = time.monotonic() - started
    progress = _progress(query)
    return Drained(
        seconds,
        steady_seconds(progress),
        sum(batch["numInputRows"] for batch in progress),
        [(batch["numInputRows"], batch["durationMs"]["triggerExecution"]) for batch in progress],
    )


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in query.recentProgress]


def steady_seconds(progress: Sequence[Mapping[str, Any]]) -> float:
    """Return the seconds from the start of the first batch with rows to the end of the last; 0 without rows."""
    full = [batch for batch in progress if batch["numInputRows"]]
    if not full:
        return 0.0
    last = full[-1]
    ran: float = last["durationMs"]["triggerExecution"] / 1000
    return (
        datetime.fromisoformat(last["timestamp"]).timestamp()
        + ran
        - datetime.fromisoformat(full[0]["timestamp"]).timestamp()
    )


def delete_topic(spark: SparkSession, servers: str, topic: str) -> None:
    """Remove a topic and wait until it is gone: a run writes more than a small disk holds."""
    jvm = spark._jvm
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    client = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        client.deleteTopics(jvm.java.util.Collections.singletonList(topic)).all().get()
    finally:
        client.close()
