"""Sinks write each record of a stream once, whole and in order."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace import sinks
from tailrace.columns import ROW_SCHEMA
from tailrace.sinks.console import ConsoleSink
from tests.fix_kafka import Kafka

ONCE = {"availableNow": True}


def row(topic: str, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "key": json.dumps({"id": number}).encode(),
        "value": json.dumps({"after": {"id": number, "t": 'é"\\ \u2028'}}, ensure_ascii=False).encode(),
        "headers": [{"key": "__debezium.oldkey", "value": b'{"id":0}'}],
        "op": "c",
        "database": "d",
        "schema": "s",
        "table": "t",
        "position": f"{number:016X}",
        "ordinal": 0,
        "transaction": "1",
        "source_ts": None,
        "snapshot": None,
    } | changes


TOMBSTONE = {"value": None, "headers": None, "op": "tombstone"}
BATCHES = [
    [row("p.s.a", 1), row("p.s.a", 2), row("p.s.a", 2, **TOMBSTONE), row("p.s.b", 3, key=None)],
    [row("p.s.a", 4), row("p.s.b", 5)],
]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """The rows of BATCHES, one batch each."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, rows in enumerate(BATCHES):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=ROW_SCHEMA), path)
        # Spark takes files in the order of their times, which two written at once may share.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def drain(sink: sinks.Sink, stream: DataFrame, checkpoint: Path) -> None:
    query = sink.start(stream, checkpoint, ONCE)
    query.awaitTermination()


def test_json_lines_hold_the_records_in_the_order_of_their_names(stream: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    drain(sinks.open("file", {"path": str(out)}), stream, tmp_path / "checkpoint")
    assert all(path.name.startswith("batch-") for path in out.iterdir())
    lines = [line for path in sorted(out.iterdir()) for line in path.read_text().split("\n") if line]
    expected = [record for batch in BATCHES for record in batch]
    assert [json.loads(line) for line in lines] == [
        {
            "topic": record["topic"],
            "key": record["key"] and json.loads(record["key"]),
            "value": record["value"] and json.loads(record["value"]),
            "headers": [{"key": h["key"], "value": json.loads(h["value"])} for h in record["headers"] or []],
        }
        for record in expected
    ]
    # The JSON of a record goes in as it is, byte for byte.
    assert expected[0]["value"].decode() in lines[0]


def test_a_replayed_batch_replaces_its_files(spark: SparkSession, stream: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = sinks.open("file", {"path": str(out)})
    checkpoint = tmp_path / "checkpoint"
    drain(sink, stream, checkpoint)
    before = {path.name: path.read_text() for path in out.iterdir()}
    # As after a crash between the sink and the commit of the second batch.
    (checkpoint / "commits" / "1").unlink()
    (out / "batch-000000000001-00009.jsonl").write_text("left by the first try\n")
    drain(sink, stream, checkpoint)
    assert {path.name: path.read_text() for path in out.iterdir()} == before


def test_parquet_keeps_every_column(spark: SparkSession, stream: DataFrame, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    drain(sinks.open("parquet", {"path": out}), stream, tmp_path / "checkpoint")
    read = spark.read.parquet(out)
    assert read.columns == ROW_SCHEMA.names
    assert read.count() == sum(map(len, BATCHES))


def test_the_console_prints_each_record(stream: DataFrame, tmp_path: Path) -> None:
    printed = io.StringIO()
    drain(ConsoleSink({}, printed), stream, tmp_path / "checkpoint")
    lines = printed.getvalue().splitlines()
    assert len(lines) == sum(map(len, BATCHES))
    assert lines[0].startswith("create     p.s.a  [id=1]  id=1  t=")
    assert lines[2] == "tombstone  p.s.a  [id=2]"


def test_kafka_gets_keys_values_and_headers_in_order(
    spark: SparkSession, kafka: Kafka, stream: DataFrame, tmp_path: Path
) -> None:
    sink = sinks.open("kafka", {"producer.bootstrap.servers": kafka.servers})
    drain(sink, stream, tmp_path / "checkpoint")
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "p.s.a", "includeHeaders": "true"}
    read = spark.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()
    expected = [record for batch in BATCHES for record in batch if record["topic"] == "p.s.a"]
    got = [(bytes(r.key), r.value and bytes(r.value), [(h.key, bytes(h.value)) for h in r.headers or []]) for r in read]
    assert got == [(r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"] or []]) for r in expected]
