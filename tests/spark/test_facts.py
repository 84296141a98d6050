"""Facts about Spark that the product relies on, so that a change in a new Spark is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.probe import LAST, Probe, calls
from tests.waiting import until

Sink = Callable[[DataFrame, int], object]


def start(spark: SparkSession, folder: Path, sink: Sink, script: str = "plain") -> StreamingQuery:
    """Start a query from the probe, with its calls in `calls` and its checkpoint in `checkpoint` in `folder`."""
    spark.dataSource.register(Probe)
    frame = spark.readStream.format("probe").options(log=str(folder / "calls"), script=script).load()

    def run(rows: DataFrame, batch: int) -> None:
        sink(rows, batch)

    writer = frame.writeStream.foreachBatch(run).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="0 seconds").start()


def drain(spark: SparkSession, folder: Path, sink: Sink) -> None:
    """Run a query until it has read the probe's log and Spark has asked for more in vain several times."""
    query = start(spark, folder, sink)
    try:
        until_active(query, lambda: len(asked(folder, "latestOffset", start=LAST)) >= 5, "questions at the end")
    finally:
        query.stop()


def until_active(query: StreamingQuery, look: Callable[[], bool], what: str) -> None:
    """Wait for a condition while the query runs."""

    def is_there() -> bool:
        assert query.isActive, query.exception()
        return look()

    until(is_there, what)


def asked(folder: Path, call: str, **values: object) -> list[dict[str, Any]]:
    """Return the recorded calls with this name and these values."""
    return [
        entry
        for entry in calls(folder / "calls")
        if entry["call"] == call and all(entry[name] == value for name, value in values.items())
    ]


@pytest.fixture(scope="module")
def drained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[int]]]:
    """Return the folder of a query that has read the whole log, and the rows of its batches."""
    folder = tmp_path_factory.mktemp("drained")
    batches: list[list[int]] = []
    drain(spark, folder, lambda frame, _: batches.append([row.n for row in frame.collect()]))
    return folder, batches


def test_the_commit_log_holds_the_start_that_latest_offset_is_given(drained: tuple[Path, list[list[int]]]) -> None:
    folder, batches = drained
    assert batches == [[1], [2], [3]]
    starts = {(entry["start"], entry["committed"]) for entry in asked(folder, "latestOffset")}
    assert starts == {(0, -1), (1, 1), (2, 2), (3, 3)}


def test_commit_never_comes_for_the_last_batch_of_an_idle_query(drained: tuple[Path, list[list[int]]]) -> None:
    folder, _ = drained
    assert [entry["end"] for entry in asked(folder, "commit")] == [1, 2]


def test_what_the_planner_remembers_does_not_reach_the_tasks(drained: tuple[Path, list[list[int]]]) -> None:
    folder, _ = drained
    assert {entry["last"] for entry in asked(folder, "read")} == {"never set"}


def test_a_planned_batch_is_replayed_before_any_new_one_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    def fail_at_two(frame: DataFrame, _: int) -> None:
        if [row.n for row in frame.collect()] == [2]:
            raise RuntimeError("the sink fails")

    query = start(spark, tmp_path, fail_at_two)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(30)
    before = len(calls(tmp_path / "calls"))
    rows: list[list[int]] = []
    drain(spark, tmp_path, lambda frame, _: rows.append([row.n for row in frame.collect()]))
    again = [entry for entry in calls(tmp_path / "calls")[before:] if entry["call"] != "initialOffset"]
    first = next(entry for entry in again if entry["call"] in ("partitions", "latestOffset"))
    assert first == {"call": "partitions", "start": 1, "end": 2}
    assert rows == [[2], [3]]


def test_a_replayed_batch_is_in_the_commit_log_before_latest_offset(spark: SparkSession, tmp_path: Path) -> None:
    def fail(frame: DataFrame, _: int) -> None:
        frame.collect()
        raise RuntimeError("the sink fails")

    with pytest.raises(StreamingQueryException):
        start(spark, tmp_path, fail).awaitTermination(30)
    before = len(calls(tmp_path / "calls"))
    drain(spark, tmp_path, lambda frame, _: frame.collect())
    asked_again = [entry for entry in calls(tmp_path / "calls")[before:] if entry["call"] == "latestOffset"]
    assert all(entry["committed"] == entry["start"] for entry in asked_again)


def test_the_first_arrow_batch_must_have_exactly_the_declared_schema(spark: SparkSession, tmp_path: Path) -> None:
    query = start(spark, tmp_path, lambda frame, _: frame.collect(), "schema")
    with pytest.raises(StreamingQueryException, match="not null"):
        query.awaitTermination(30)


def test_offsets_are_compared_as_json_text(spark: SparkSession, tmp_path: Path) -> None:
    ids: list[int] = []
    query = start(spark, tmp_path, lambda frame, batch: ids.append(batch), "unsorted")
    try:
        # One position in two spellings counts as progress.
        until_active(query, lambda: len(ids) >= 3, "three batches")
    finally:
        query.stop()
    spellings = {(tmp_path / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()[-1] for batch in range(3)}
    assert len(spellings) == 2
    assert len({json.dumps(json.loads(text), sort_keys=True) for text in spellings}) == 1


def test_a_row_limit_is_called_max_rows() -> None:
    assert vars(ReadMaxRows(7)) == {"max_rows": 7}


def test_progress_that_is_tracked_asynchronously_is_ahead_of_the_commit_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    """This is why the Kafka sink refuses it: offsets passed to the planner may not be committed, and must not be
    discarded."""
    spark.dataSource.register(Probe)
    frame = spark.readStream.format("probe").options(log=str(tmp_path / "calls")).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    tracked = {"Enabled": "true", "CheckpointIntervalMs": "3600000"}
    writer = writer.options(**{f"asyncProgressTracking{name}": text for name, text in tracked.items()})
    query = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", "true").start()
    try:
        until_active(query, lambda: bool(asked(tmp_path, "latestOffset", start=LAST)), "a question at the end")
    finally:
        query.stop()
    assert asked(tmp_path, "latestOffset", start=LAST)[0]["committed"] < LAST
