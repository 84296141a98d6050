"""Tables that a pipeline keeps of a PostgreSQL database, in several runs with one checkpoint.

`lake` makes a pipeline without a query of Spark: planner, tasks and writer run in the test's own process. `streamed`
makes a pipeline that runs as users run it, which takes several times as long; in a full run `lake` does so, too.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.columns.blocks import Head
from tailrace.connectors.registry import find, from_entries
from tailrace.connectors.source_status import SourceStatus
from tailrace.errors import SinkError
from tailrace.monitoring.status import Status
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.formats.detection import found_at
from tailrace.sinks.tables.positions import NAME
from tailrace.spark import options as packed
from tailrace.spark.source import data_source
from tests.extent import sized
from tests.fix_postgres import Database


def _as_spark_shows(value: Any) -> Any:
    """Make Python show Spark's instants in the session's zone, UTC."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


class Lake:
    """A pipeline from a database into tables under `path`, which runs several times with one checkpoint."""

    def __init__(self, spark: SparkSession, database: Database, path: Path, options: dict[str, str]) -> None:
        self.spark, self.database, self.path = spark, database, path / "lake"
        source = database.options(topic_prefix="p", slot_name=f"slot_{database.name.lower()}"[:60])
        source["checkpoint.location"] = str(path / "checkpoint")
        self.entries = {f"debezium.source.{name}": text for name, text in source.items()} | {
            "debezium.sink.type": "tables",
            "debezium.sink.tables.path": str(self.path),
        }
        self.counted = 0
        """The number of events of the last run, as in the status."""
        self.set(**options)

    def set(self, **options: str) -> None:
        self.entries |= {
            f"debezium.{name.replace('__', '-').replace('_', '.')}": text for name, text in options.items()
        }

    def run(self) -> None:
        """Write all that the database has committed."""
        pipeline = Pipeline(from_entries(self.entries, {}), self.spark)
        try:
            self.counted = self.drain(pipeline)
        except Exception as error:
            known = pipeline.cause(error)
            if known is not None:
                raise known from error
            raise
        finally:
            pipeline.stop()

    def drain(self, pipeline: Pipeline) -> int:
        """Run the pipeline up to the present. Return the number of events."""
        query = pipeline.start(available_now=True)
        assert query.awaitTermination(400)
        described = [
            Status.of(json.loads(one.json), lambda end, newest: SourceStatus()) for one in query.recentProgress
        ]
        return sum(status.events for status in described)

    def fails(self) -> str:
        """Return the message of a run that ends in an error of the sink."""
        with pytest.raises(SinkError) as caught:
            self.run()
        return str(caught.value)

    def rows(self, table: str, columns: str = "*", where: str = "true") -> list[tuple[Any, ...]]:
        found = self.frame(table).where(where)
        return sorted((tuple(row) for row in found.selectExpr(*columns.split(", ")).collect()), key=repr)

    def frame(self, table: str) -> DataFrame:
        """Return the rows of a table in any format."""
        path = str(self.path / table)
        return found_at(self.spark, path).table(self.spark, path).rows()

    def source(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        with self.database.connect() as connection:
            found = connection.execute(f"select {columns} from {table}".encode()).fetchall()
        return sorted((tuple(map(_as_spark_shows, row)) for row in found), key=repr)

    def moments(self) -> list[bool]:
        """Return for each recorded moment, in order, whether it is whole."""
        found = self.frame(NAME).orderBy("batch")
        return [row.whole for row in found.collect()]

    def equals(self, *tables: str) -> None:
        """Assert that each table equals the source's, row for row."""
        for table in tables:
            assert self.rows(f"public.{table}") == self.source(table), table


class Stepped(Lake):
    """A Lake without a query of Spark: planner, tasks and writer run in the test's own process.

    Its checkpoint has Spark's form, so that a pipeline can continue from it.
    """

    def drain(self, pipeline: Pipeline) -> int:
        return step(pipeline)


def step(pipeline: Pipeline) -> int:
    """Do the work of a query up to the present. Return the number of events."""
    pipeline.begin()
    stream = _Stream(pipeline.spark)
    pipeline.sink.start(stream, pipeline.run.checkpoint_location, {})  # type: ignore[arg-type]
    source = data_source(find(pipeline.run.source.connector))(packed(pipeline.options()))
    reader, schema = source.streamReader(None), source.schema()  # type: ignore[arg-type]
    checkpoint = Path(pipeline.run.checkpoint_location)
    counted = 0
    try:
        reader.prepareForTriggerAvailableNow()
        while (batch := _planned(reader, checkpoint)) is not None:
            number, start, end = batch
            parts = reader.partitions(start, end)
            columns = reader._columns
            read = [rows.select(columns) for part in parts for rows in part.read()]  # type: ignore[attr-defined]
            blocks = pipeline.spark.createDataFrame(pa.Table.from_batches(read) if read else [], schema)
            # The rows that one task has read stay in one partition.
            stream.write(blocks.where(stream.condition).coalesce(1), number)
            _log(checkpoint / "commits" / str(number), {"nextBatchWatermarkMs": 0})
            counted += sum(Head.of(key).changes for rows in read for key in rows["key"].to_pylist() if key)
    finally:
        reader.stop()
    return counted


class SteppedPipeline(Pipeline):
    """A pipeline that runs up to the present when it is started, and whenever `isActive` of its query is read."""

    def start(self, available_now: bool = False) -> StreamingQuery:
        step(self)
        self.query = cast(StreamingQuery, _Going(self))
        return self.query

    def stop(self, *, is_last: bool = False) -> None:
        self.query = None
        super().stop(is_last=is_last)


class _Going:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def isActive(self) -> bool:
        step(self._pipeline)
        return True

    def awaitTermination(self) -> bool:
        return True


class _Stream:
    """A stand-in for a stream and its writer, which keeps the function that a sink passes to foreachBatch."""

    def __init__(self, spark: SparkSession) -> None:
        self.sparkSession, self.writeStream = spark, self
        self.condition = "true"

    def where(self, condition: str) -> _Stream:
        self.condition = condition
        return self

    def foreachBatch(self, write: Callable[[DataFrame, int], None]) -> _Stream:
        self.write = write
        return self

    def start(self, *told: object, **more: object) -> _Stream:
        return self

    queryName = trigger = option = start  # noqa: N815


def _planned(reader: Any, checkpoint: Path) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
    """Return number and offsets of the next batch, begun or new; None if there is none."""
    offsets = {int(path.name): path.read_text("utf-8") for path in checkpoint.glob("offsets/*")}
    done = max((int(path.name) for path in checkpoint.glob("commits/*")), default=-1)
    ends = {number: json.loads(text.splitlines()[-1]) for number, text in offsets.items()}
    start = ends[done] if done in ends else reader.initialOffset()
    number = done + 1
    if number not in ends:
        ends[number] = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        if ends[number] == start:
            return None
        _log(
            checkpoint / "offsets" / str(number),
            {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}},
            ends[number],
        )
    return number, start, ends[number]


def _log(path: Path, *parts: dict[str, Any]) -> None:
    """Write a file of the checkpoint in Spark's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["v1", *map(json.dumps, parts)]), "utf-8")


def writes(table: Path, mode: str) -> list[str | None]:
    """Return the metadata, in order, of the commits to a Delta table that appended or replaced (Overwrite) rows."""
    files = sorted(table.glob("_delta_log/*.json"))
    commits = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    told = [commit["commitInfo"] for commit in commits if "commitInfo" in commit]
    return [one.get("userMetadata") for one in told if one["operation"] == "WRITE"
            and one["operationParameters"]["mode"] == mode]  # fmt: skip


def made_by(kind: type[Lake], spark: SparkSession, database: Database, path: Path) -> Callable[..., Lake]:
    """Yield a factory of lakes with given options."""
    if "delta" not in (spark.conf.get("spark.sql.extensions", "") or "").lower():
        pytest.skip("the jars of Delta Lake cannot be had")
    return lambda **options: kind(spark, database, path, options)


@pytest.fixture
def lake(spark: SparkSession, database: Database, tmp_path: Path) -> Callable[..., Lake]:
    return made_by(sized(Stepped, Lake), spark, database, tmp_path)


@pytest.fixture
def streamed(spark: SparkSession, database: Database, tmp_path: Path) -> Callable[..., Lake]:
    return made_by(Lake, spark, database, tmp_path)
