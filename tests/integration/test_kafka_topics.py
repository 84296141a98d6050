"""Records go to the right place in Kafka: topics created before them, partitions and times from a transform."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tailrace import sinks
from tailrace.columns import COLUMNS
from tailrace.columns.row import PLACES, row_schema
from tailrace.connectors.registry import from_entries, parse
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.monitoring.failures import cause
from tailrace.pipeline import Pipeline, read_columns
from tailrace.sinks import brokers
from tests.fix_kafka import Kafka
from tests.fix_postgres import Database
from tests.integration.frames import Frames

OPTIONS = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
Rows = Sequence[Mapping[str, Any]]


def row(topic: str, number: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "key": b'{"id":%d}' % number, "value": b"%d" % number, "headers": None, "op": "c"} | more


def stream(spark: SparkSession, folder: Path, *batches: Rows, places: Sequence[str] = ()) -> DataFrame:
    """Return rows as from a source, one batch at a time."""
    folder.mkdir()
    for number, rows in enumerate(batches):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema=row_schema((*COLUMNS, *places))), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def frames(spark: SparkSession, *batches: Rows) -> Frames:
    """Return the same without a query, for a sink that creates topics, which accepts batches."""
    return Frames(
        [spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=row_schema(COLUMNS))) for rows in batches]
    )


def kafka_sink(kafka: Kafka, **creation: str) -> sinks.Sink:
    own = {f"topic.creation.{name.replace('_', '.')}": text for name, text in creation.items()}
    return sinks.open("kafka", {"producer.bootstrap.servers": kafka.servers}, parse("postgres", OPTIONS | own))


def drain(sink: sinks.Sink, frame: DataFrame | Frames, checkpoint: Path) -> None:
    sink.start(cast(DataFrame, frame), checkpoint, {"availableNow": True}).awaitTermination()


def records(spark: SparkSession, kafka: Kafka, topic: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()


@dataclass(frozen=True)
class Topic:
    partitions: int
    settings: dict[str, str]


def described(spark: SparkSession, kafka: Kafka, topic: str, *settings: str) -> Topic:
    """Return a topic's description from the broker."""
    jvm: Any = spark._jvm
    properties = jvm.java.util.Properties()
    properties.put("bootstrap.servers", kafka.servers)
    client = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        names = jvm.java.util.Collections.singletonList(topic)
        found = client.describeTopics(names).allTopicNames().get().get(topic)
        kind = jvm.org.apache.kafka.common.config.ConfigResource
        resource = kind(jvm.org.apache.kafka.common.config.ConfigResource.Type.TOPIC, topic)
        config = client.describeConfigs(jvm.java.util.Collections.singletonList(resource)).all().get().get(resource)
        return Topic(found.partitions().size(), {name: config.get(name).value() for name in settings})
    finally:
        client.close()


def test_topics_are_made_before_the_first_records_go_to_them(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Topics of the first batch and later ones are created; records of other topics in such a batch come once and in
    order."""
    first = [row("made.a", 1), row("made.wide", 2), row("made.a", 1, value=b"3")]
    second = [
        row("made.a", 1, value=b"4"),
        row("made.b", 5),
        row("made.a", 1, value=b"6"),
        row("made.b", 5, value=b"7"),
    ]
    third = [row("made.a", 1, value=b"8")]
    sink = kafka_sink(
        kafka, default_partitions="2", default_replication_factor="1", default_cleanup_policy="compact",
        groups="wide", wide_include="made[.]w.*", wide_partitions="5", wide_retention_ms="12345",
    )  # fmt: skip
    drain(sink, stream(spark, tmp_path / "rows", first, second, third), tmp_path / "checkpoint")
    assert described(spark, kafka, "made.a", "cleanup.policy") == Topic(2, {"cleanup.policy": "compact"})
    assert described(spark, kafka, "made.b").partitions == 2
    assert described(spark, kafka, "made.wide", "retention.ms") == Topic(5, {"retention.ms": "12345"})
    assert [bytes(one.value) for one in records(spark, kafka, "made.a")] == [b"1", b"3", b"4", b"6", b"8"]
    assert [bytes(one.value) for one in records(spark, kafka, "made.b")] == [b"5", b"7"]


def test_a_topic_that_is_there_stays_as_it_is(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    made = kafka_sink(kafka, default_partitions="3", default_replication_factor="-1")
    drain(made, frames(spark, [row("made.stays", 1)]), tmp_path / "c1")
    other = kafka_sink(kafka, default_partitions="7", default_replication_factor="1")
    drain(other, frames(spark, [row("made.stays", 2)]), tmp_path / "c2")
    assert described(spark, kafka, "made.stays").partitions == 3
    assert len(records(spark, kafka, "made.stays")) == 2


@pytest.mark.parametrize(
    ("topic", "creation", "words"),
    [
        ("bad name/é", {}, r"Kafka refuses the topic name 'bad name/é'"),
        (
            "made.copies",
            {"default_replication_factor": "3"},
            r"topic made\.copies: .*replication.*topic\.creation\.def",
        ),
        ("made.odd", {"default_no_such": "1"}, r"topic made\.odd: .*no\.such.*InvalidConfigurationException"),
    ],
)
def test_what_kafka_does_not_make_is_one_clear_error(
    topic: str, creation: dict[str, str], words: str, spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    sink = kafka_sink(kafka, **{"default_partitions": "1", "default_replication_factor": "1"} | creation)
    with pytest.raises(SinkError, match=words):
        drain(sink, frames(spark, [row(topic, 1)]), tmp_path / "checkpoint")


def test_a_name_that_kafka_refuses_is_one_clear_error_without_creation_too(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    sink = kafka_sink(kafka)
    with pytest.raises(StreamingQueryException) as failed:
        drain(sink, stream(spark, tmp_path / "rows", [row("bad name/é", 1)]), tmp_path / "checkpoint")
    found = cause(failed.value, sink.failure)
    assert isinstance(found, SinkError)
    assert "Kafka refuses the topic name 'bad name/é'" in found.message


def test_brokers_that_do_not_answer_are_a_lost_connection(
    spark: SparkSession, tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at the start, and while a batch is written."""
    source = parse(
        "postgres", OPTIONS | {f"topic.creation.default.{name}": "1" for name in ("partitions", "replication.factor")}
    )
    options = {"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": "1000", "request.timeout.ms": "500"}
    sink = sinks.open("kafka", {f"producer.{name}": text for name, text in options.items()}, source)
    frame = stream(spark, tmp_path / "rows", [row("t", 1)])
    with pytest.raises(ConnectionFailed, match="No Kafka broker answers"):
        drain(sink, frame, tmp_path / "checkpoint")
    monkeypatch.setattr(brokers, "fault", lambda servers, protocol, seconds: "")
    with pytest.raises(StreamingQueryException) as failed:
        drain(sink, frame, tmp_path / "checkpoint")
    assert isinstance(cause(failed.value, sink.failure), ConnectionFailed), failed.value


@pytest.mark.parametrize("creation", [{}, {"default_partitions": "4", "default_replication_factor": "1"}])
def test_a_record_goes_where_a_transform_has_placed_it(
    creation: dict[str, str], spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = f"placed.{len(creation)}"
    drain(
        kafka_sink(kafka, default_partitions="4", default_replication_factor="1"),
        frames(spark, [row(topic, 0)]),
        tmp_path / "c0",
    )
    old = [{"key": "h", "value": b"1"}]
    rows = [
        row(topic, 1, partition=3, timestamp=1_700_000_000_123, headers=old),
        row(topic, 2, partition=1, timestamp=5),
        row(topic, 3, partition=3),
        row(topic, 0),
    ]
    frame = stream(spark, tmp_path / "rows", rows, places=("partition", "timestamp"))
    drain(kafka_sink(kafka, **creation), frame, tmp_path / "c1")
    found = records(spark, kafka, topic)
    got = {(bytes(one.value), one.partition) for one in found}
    assert {(b"1", 3), (b"2", 1), (b"3", 3)} <= got
    # By the key, as the record before it.
    assert len({one.partition for one in found if bytes(one.value) == b"0"}) == 1
    headers = {bytes(one.value): [(h.key, bytes(h.value)) for h in one.headers or []] for one in found}
    assert headers[b"1"] == [("h", b"1"), ("__tailrace.timestamp", b"1700000000123")]
    assert headers[b"2"] == [("__tailrace.timestamp", b"5")]
    assert headers[b"3"] == []


class Placing:
    """A transform that sets given places."""

    places_partitions = places_times = True


def test_the_source_is_asked_for_places_where_a_transform_and_the_sink_know_them() -> None:
    kafka = sinks.open("kafka", {"producer.bootstrap.servers": "h:1"})
    assert read_columns(kafka, [Placing()])[-2:] == tuple(PLACES)
    assert not set(PLACES) & set(read_columns(kafka, [object()]))
    assert not set(PLACES) & set(read_columns(sinks.open("noop", {}), [Placing()]))


def test_a_pipeline_makes_its_topics(spark: SparkSession, kafka: Kafka, database: Database, tmp_path: Path) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1), (2)")
    options = database.options(topic_prefix="whole", slot_name=database.name.lower()) | {
        "checkpoint.location": str(tmp_path / "checkpoint"),
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
    }
    entries = {f"debezium.source.{name}": text for name, text in options.items()} | {
        "debezium.sink.type": "kafka",
        "debezium.sink.kafka.producer.bootstrap.servers": kafka.servers,
        "debezium.format.schemas.enable": "false",
    }
    assert Pipeline(from_entries(entries), spark).start(available_now=True).awaitTermination(240)
    assert described(spark, kafka, "whole.public.t").partitions == 3
    assert sorted(json.loads(bytes(one.key))["id"] for one in records(spark, kafka, "whole.public.t")) == [1, 2]


def test_the_columns_of_places_may_be_asked_for_and_are_null_without_a_transform(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    from tailrace.spark import options as carried
    from tailrace.spark import register

    database.execute("create table t (id int primary key)", "insert into t values (1)")
    register(spark)
    own = database.options(topic_prefix="p", slot_name=database.name.lower()) | {
        "row.columns": "key,partition,timestamp"
    }
    frame = spark.readStream.format("postgres-cdc").options(**carried(own)).load()
    assert frame.dtypes == [("key", "binary"), ("partition", "int"), ("timestamp", "bigint")]
    writer = frame.writeStream.format("memory").queryName("placed").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(240)
    assert [(one.partition, one.timestamp) for one in spark.table("placed").collect()] == [(None, None)]
