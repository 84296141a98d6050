"""The documented PostgreSQL events, form 1.7, as consumers of Kafka find them: topics, timestamps, compaction."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tailrace import sinks
from tailrace.spark import register
from tests.fix_kafka import Kafka
from tests.fix_postgres import Database

CREATED, APPENDED = 0, 1


def create_topic(spark: SparkSession, kafka: Kafka, topic: str, partitions: int, **settings: str) -> None:
    """Create a topic with `settings`, underscores for dots, and wait for the broker's confirmation."""
    jvm = spark._jvm
    assert jvm is not None
    login = jvm.java.util.HashMap()
    login.put("bootstrap.servers", kafka.servers)
    wanted = jvm.java.util.HashMap()
    for name, text in settings.items():
        wanted.put(name.replace("_", "."), text)
    optional = jvm.java.util.Optional
    new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, optional.of(partitions), optional.empty())
    client = jvm.org.apache.kafka.clients.admin.AdminClient.create(login)
    try:
        client.createTopics(jvm.java.util.Collections.singletonList(new.configs(wanted))).all().get()
    finally:
        client.close()


def deliver(spark: SparkSession, kafka: Kafka, database: Database, checkpoint: Path) -> None:
    """Read everything up to now, snapshot first, into Kafka; the server's name is the database's."""
    register(spark)
    options = database.options(
        database_server_name=database.name,
        slot_name=database.name,
        key_converter_schemas_enable="false",
        value_converter_schemas_enable="false",
    )
    frame = spark.readStream.format("postgres-cdc").options(**options).load()
    sink = sinks.open("kafka", {"producer.bootstrap.servers": kafka.servers})
    sink.start(frame, checkpoint, {"availableNow": True}).awaitTermination()


def records(spark: SparkSession, kafka: Kafka, topic: str) -> list[Row]:
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": topic}
    return spark.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()


@pytest.mark.seed("000-06", "000-07")
def test_each_table_has_its_topic_and_records_the_timestamp_that_the_topic_asks_for(
    spark: SparkSession, kafka: Kafka, database: Database, tmp_path: Path
) -> None:
    database.execute("create table made (id int primary key)", "create table appended (id int primary key)")
    database.execute("insert into made values (1)", "insert into appended values (2)")
    create_topic(spark, kafka, f"{database.name}.public.made", 1)
    create_topic(spark, kafka, f"{database.name}.public.appended", 1, message_timestamp_type="LogAppendTime")
    before = time.time()
    deliver(spark, kafka, database, tmp_path / "checkpoint")
    after = time.time()
    for table, kind, number in (("made", CREATED, 1), ("appended", APPENDED, 2)):
        (record,) = records(spark, kafka, f"{database.name}.public.{table}")
        assert json.loads(record.key) == {"id": number}
        assert record.timestampType == kind
        assert before - 0.001 <= record.timestamp.timestamp() <= after


@pytest.mark.seed("000-39", "000-40")
def test_a_topic_of_several_partitions_keeps_the_whole_table_when_compacted(
    spark: SparkSession, kafka: Kafka, database: Database, tmp_path: Path
) -> None:
    database.execute(
        "create table t (id int primary key, v text)", "insert into t select i, 'r' from generate_series(1, 40) i"
    )
    topic = f"{database.name}.public.t"
    create_topic(spark, kafka, topic, 3, cleanup_policy="compact")
    deliver(spark, kafka, database, tmp_path / "checkpoint")
    database.execute(
        "update t set v = 'u' where id % 2 = 0",
        "delete from t where id % 5 = 0",
        "insert into t values (5, 'again')",
        "update t set id = id + 100 where id between 11 and 19",
        "delete from t where id = 112",
    )
    deliver(spark, kafka, database, tmp_path / "checkpoint")
    kept: dict[tuple[int, bytes], Any] = {}
    for record in records(spark, kafka, topic):
        kept[record.partition, bytes(record.key)] = record.value
    assert len({partition for partition, _ in kept}) == 3
    # A key stays in its partition, so the latest record of each is known there.
    assert len({key for _, key in kept}) == len(kept)
    found = [json.loads(value)["after"] for value in kept.values() if value is not None]
    with database.connect() as connection:
        rows = connection.execute("select id, v from t order by id").fetchall()
    assert sorted((row["id"], row["v"]) for row in found) == rows
