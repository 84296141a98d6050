"""Sinks write each record of a stream once, whole and in order."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tailrace import sinks
from tailrace.columns import ROW_SCHEMA
from tailrace.errors import ConversionError, SinkError
from tailrace.monitoring.failures import cause
from tailrace.sinks.console import ConsoleSink
from tailrace.sinks.files import line
from tailrace.sinks.kafka import _placed
from tests.fix_kafka import Kafka
from tests.integration.frames import Frames
from tests.servers.web import Request, WebServer, always

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
    """Return a stream of the rows of BATCHES, one batch each, with all columns."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number, rows in enumerate(BATCHES):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=ROW_SCHEMA), path)
        # Spark reads files in the order of their times, which two files written at once may share.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.fixture
def batches(spark: SparkSession, stream: DataFrame, tmp_path: Path) -> Frames:
    """Return the same rows without a query, for a sink that accepts batches."""
    return Frames([spark.read.schema(stream.schema).parquet(str(tmp_path / f"rows/{at}.parquet")) for at in (0, 1)])


def drain(sink: sinks.Sink, stream: DataFrame | Frames, checkpoint: Path) -> None:
    query = sink.start(cast(DataFrame, stream), checkpoint, ONCE)
    query.awaitTermination()


def files(out: Path) -> list[Path]:
    """Return the files of records in the order of their names."""
    return sorted(path for path in out.iterdir() if not path.name.startswith(("_", ".")))


def ids(out: Path, topic: str) -> list[int]:
    """Return the keys of one topic's records, in a reader's order."""
    records = [json.loads(line) for path in files(out) for line in path.read_text().split("\n") if line]
    return [record["key"]["id"] for record in records if record["topic"] == topic]


SINKS = ["file", "console", pytest.param("parquet", marks=pytest.mark.full)]


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_reads_no_more_columns_than_it_says(
    name: str, stream: DataFrame, batches: Frames, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows with only its columns, in another order, give the same output as rows with all columns."""
    written = []
    for number, columns in enumerate((stream.columns, reversed(sinks.KNOWN.load(name).columns))):
        out = tmp_path / f"out{number}"
        sink = sinks.open(name, {} if name == "console" else {"path": str(out)})
        given = stream if name == "parquet" else batches
        drain(sink, given.select(*columns), tmp_path / f"checkpoint{number}")
        if name == "parquet":
            written.append([pq.read_table(path).to_pylist() for path in sorted(out.glob("*.parquet"))])
            written[-1].sort(key=lambda rows: rows[0]["position"])
        else:
            files_of = [path.read_bytes() for path in files(out)] if name == "file" else []
            written.append([capsys.readouterr().out, files_of])
    assert written[0] == written[1]
    assert written[0] not in ([], ["", []])


def recorded(out: Path) -> list[Any]:
    """Return every record of a directory as a reader finds it."""
    if (out / "_spark_metadata").exists():
        spark = SparkSession.getActiveSession()
        assert spark is not None
        return sorted(spark.read.parquet(str(out)).collect(), key=str)
    return [line for path in files(out) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("name", "repeated"), [("file", 0), ("parquet", 0), ("console", len(BATCHES[1]))])
def test_a_replayed_batch_leaves_what_the_sink_says(
    name: str, repeated: int, stream: DataFrame, batches: Frames, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    sink = sinks.open(name, {} if name == "console" else {"path": str(out)})
    assert sink.delivery == ("at least once" if repeated else "exactly once")
    printed: list[str] = []

    def delivered() -> list[Any]:
        drain(sink, batches if name == "console" else stream, checkpoint)
        printed.extend(capsys.readouterr().out.splitlines())
        return recorded(out) if sink.folder else printed.copy()

    before = delivered()
    # As after a crash between the sink and the commit of the second batch.
    (checkpoint / "commits" / "1").unlink()
    assert delivered() == before + before[len(before) - repeated :]


def test_json_lines_hold_the_records_in_the_order_of_their_names(stream: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    drain(sinks.open("file", {"path": str(out)}), stream, tmp_path / "checkpoint")
    # Files other than records have names that Spark and others ignore.
    assert {path.name for path in out.iterdir() if not path.name.startswith("batch-")} == {"_tailrace"}
    lines = [line for path in files(out) for line in path.read_text().split("\n") if line]
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
    # The JSON of a record is inserted byte for byte.
    assert expected[0]["value"].decode() in lines[0]


def test_a_line_is_json_whatever_the_format_is(spark: SparkSession) -> None:
    said = 'a "text",\n\\ \u2028é'
    data = bytes(range(256))
    one = {"topic": 'o"dd', "key": said.encode(), "value": data, "headers": [{"key": 'n"', "value": b"5"}]}
    none = {"topic": "t", "key": None, "value": None, "headers": [{"key": "n", "value": None}]}
    kinds = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"
    frame = spark.createDataFrame([one, none], kinds)
    forms = {"key": "text", "value": "bytes", "header": "json"}
    found = [json.loads(text) for (text,) in frame.selectExpr(line(forms)).collect()]
    assert [base64.b64decode(entry.pop("value") or "") for entry in found] == [data, b""]
    assert found == [
        {"topic": 'o"dd', "key": said, "headers": [{"key": 'n"', "value": 5}]},
        {"topic": "t", "key": None, "headers": [{"key": "n", "value": None}]},
    ]


def test_a_replayed_batch_is_left_as_it_is(batches: Frames, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = sinks.open("file", {"path": str(out)})
    checkpoint = tmp_path / "checkpoint"
    drain(sink, batches, checkpoint)
    before = {path.name: (path.read_text(), path.stat().st_ino) for path in files(out)}
    # As after a crash between the sink and the commit of the second batch.
    (checkpoint / "commits" / "1").unlink()
    drain(sink, batches, checkpoint)
    assert {path.name: (path.read_text(), path.stat().st_ino) for path in files(out)} == before


@pytest.fixture
def small_files(spark: SparkSession) -> Iterator[None]:
    """Let Spark begin another file after each record of a task."""
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "1")
    yield
    spark.conf.unset("spark.sql.files.maxRecordsPerFile")


@pytest.mark.usefixtures("small_files")
def test_every_file_of_a_task_is_kept(batches: Frames, tmp_path: Path) -> None:
    out = tmp_path / "out"
    drain(sinks.open("file", {"path": str(out)}), batches, tmp_path / "checkpoint")
    assert len(files(out)) == sum(map(len, BATCHES))
    assert ids(out, "p.s.a") == [1, 2, 2, 4]


def test_what_a_killed_run_has_left_aside_does_not_become_records(batches: Frames, tmp_path: Path) -> None:
    out = tmp_path / "out"
    left = out / "_tailrace" / "staging-000000000000-01234567"
    left.mkdir(parents=True)
    (left / "part-00000-x-c000.txt").write_text("half a rec")
    (out / "notes.txt").write_text("of someone else\n")
    drain(sinks.open("file", {"path": str(out)}), batches, tmp_path / "checkpoint")
    assert not left.exists()
    assert (out / "notes.txt").read_text() == "of someone else\n"
    (out / "notes.txt").unlink()
    assert ids(out, "p.s.a") == [1, 2, 2, 4]


def test_a_path_may_hold_what_a_pattern_gives_a_meaning_to(batches: Frames, tmp_path: Path) -> None:
    out = tmp_path / "out[1]{a}*"
    drain(sinks.open("file", {"path": str(out)}), batches, tmp_path / "checkpoint")
    assert ids(out, "p.s.a") == [1, 2, 2, 4]


@pytest.mark.parametrize("name", ["file", pytest.param("parquet", marks=pytest.mark.full)])
def test_a_new_checkpoint_is_refused_where_another_one_has_written(
    name: str, stream: DataFrame, batches: Frames, tmp_path: Path
) -> None:
    given = batches if name == "file" else stream
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    sink = sinks.open(name, {"path": str(out)})
    drain(sink, given, checkpoint)
    before = {path.name: path.read_bytes() for path in files(out)}
    shutil.rmtree(checkpoint)
    with pytest.raises(SinkError) as refused:
        drain(sink, given, checkpoint)
    assert str(out) in refused.value.message
    assert f"debezium.sink.{name}.path" in refused.value.remedy
    assert {path.name: path.read_bytes() for path in files(out)} == before
    # As the remedy says.
    out.rename(tmp_path / "moved")
    drain(sink, given, checkpoint)
    assert len(files(out)) == len(before)


def test_parquet_files_without_a_log_are_not_hidden_by_a_new_one(stream: DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink = sinks.open("parquet", {"path": str(out)})
    drain(sink, stream, tmp_path / "checkpoint")
    shutil.rmtree(out / "_spark_metadata")
    with pytest.raises(SinkError, match="another checkpoint"):
        drain(sink, stream, tmp_path / "other")


@pytest.mark.parametrize("name", ["file", "parquet"])
def test_a_path_that_cannot_be_used_is_said_before_the_query_starts(
    name: str, stream: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(SinkError, match=r"nowhere://x/out cannot be used: .*\bnowhere\b"):
        drain(sinks.open(name, {"path": "nowhere://x/out"}), stream, tmp_path / "checkpoint")


def test_an_error_in_a_batch_is_found_again_in_the_driver(stream: DataFrame, tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    sink = sinks.open("file", {"path": str(out)})
    drain(sink, stream, checkpoint)
    before = {path.name: path.read_text() for path in files(out)}
    # Files of the second batch exist, but no record that it was written.
    (checkpoint / "commits" / "1").unlink()
    (out / "_tailrace" / "batch-000000000001.json").unlink()
    with pytest.raises(StreamingQueryException) as failed:
        drain(sink, stream, checkpoint)
    found = cause(failed.value)
    assert isinstance(found, SinkError)
    assert f"{out}/batch-000000000001-00000.jsonl already exists" in found.message
    assert {path.name: path.read_text() for path in files(out)} == before


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


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        yield running


def test_an_error_of_a_task_is_found_again_behind_one_writer(
    stream: DataFrame, server: WebServer, tmp_path: Path
) -> None:
    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()
        raise ConversionError("It cannot be written.", "Leave it out.")

    with pytest.raises(StreamingQueryException) as failed:
        drain(
            sinks.open("http", {"url": server.url}), stream.mapInArrow(refuse, stream.schema), tmp_path / "checkpoint"
        )
    found = cause(failed.value)
    assert isinstance(found, ConversionError)
    assert "It cannot be written." in str(found)


def test_a_replayed_batch_is_sent_again_in_its_order(batches: Frames, server: WebServer, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    secret = base64.b64encode(b"s" * 24).decode()
    sink = sinks.open(
        "http",
        {
            "url": server.url,
            "authentication.type": "standard-webhooks",
            "authentication.webhook.secret": secret,
        },
    )
    drain(sink, batches, checkpoint)
    values = [[record["value"] for record in batch if record["value"] is not None] for batch in BATCHES]
    assert server.bodies == [*values[0], *values[1]]
    names = [request.header("webhook-id") for request in server.requests]
    assert len(set(names)) == len(names)
    # As after a crash between the sink and the commit of the second batch; the next run has a new sink.
    (checkpoint / "commits" / "1").unlink()
    drain(sinks.open("http", {"url": server.url}), batches, checkpoint)
    assert server.bodies == [*values[0], *values[1], *values[1]]
    (checkpoint / "commits" / "1").unlink()
    drain(sink, batches, checkpoint)
    again = [request.header("webhook-id") for request in server.requests[-len(values[1]) :]]
    assert again == names[-len(values[1]) :]


def test_a_stop_does_not_wait_for_a_server_that_is_away(stream: DataFrame, server: WebServer, tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(request: Request) -> tuple[int, bytes]:
        asked.set()
        return 503, b""

    server.answers = answer
    sink = sinks.open("http", {"url": server.url, "retries": "1000000", "retry.interval.ms": "600000"})
    query = sink.start(stream, tmp_path / "checkpoint", {"processingTime": "0 seconds"})
    assert asked.wait(240)
    query.stop()
    assert query.exception() is None
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))


def test_what_a_server_of_http_answers_is_found_again_in_the_driver(
    stream: DataFrame, server: WebServer, tmp_path: Path
) -> None:
    server.answers = always(404)
    sink = sinks.open("http", {"url": server.url, "retries": "0"})
    with pytest.raises(StreamingQueryException) as failed:
        drain(sink, stream, tmp_path / "checkpoint")
    found = cause(failed.value, sink.failure)
    assert isinstance(found, SinkError)
    assert "has not accepted a record in 1 tries: status 404." in found.message


KAFKA = {"producer.bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    "name",
    [
        "asyncProgressTrackingEnabled",
        "producer.asyncProgressTrackingEnabled",
        "asyncprogresstrackingcheckpointintervalms",
        "_asyncProgressTrackingOverrideSinkSupportCheck",
    ],
)
def test_kafka_refuses_progress_that_is_tracked_asynchronously(name: str) -> None:
    with pytest.raises(SinkError, match=rf"debezium\.sink\.kafka\.{name} is not supported: .*not committed"):
        sinks.open("kafka", KAFKA | {name: "true"})


def test_kafka_refuses_speculation(stream: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting cannot be changed in a running session, whose settings are the test's."""
    settings = {"spark.speculation": "true"}
    monkeypatch.setattr(type(stream.sparkSession.sparkContext), "getConf", lambda self: settings)
    with pytest.raises(SinkError, match=r"spark\.speculation is on"):
        drain(sinks.open("kafka", KAFKA), stream, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_a_record_that_is_too_large_for_kafka_is_told_by_its_topic(spark: SparkSession) -> None:
    kinds = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"
    frame = spark.createDataFrame([("a", b"k", bytes(900), None), ("b.c", b"k", bytes(1000), None)], kinds)
    sink = sinks.open("kafka", KAFKA | {"producer.max.request.size": "1000"})
    assert len(_placed(frame, 2000).collect()) == 2
    with pytest.raises(Exception, match=r"max\.request\.size") as failed:
        _placed(frame, 1000).collect()
    found = cause(failed.value, sink.failure)
    assert isinstance(found, SinkError)
    assert "A record of the topic b.c has 1,083 bytes" in found.message


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
