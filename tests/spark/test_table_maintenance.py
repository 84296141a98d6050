"""Maintenance during the run of a pipeline does it no harm, and lost versions of moments are reported."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.command.cli import main
from tailrace.errors import SinkError
from tailrace.sinks.tables import maintain as maintenance
from tailrace.sinks.tables.formats.base import WriteId
from tailrace.sinks.tables.formats.delta import DeltaTable
from tailrace.sinks.tables.formats.detection import FORMATS
from tailrace.sinks.tables.formats.iceberg.library import is_there
from tailrace.sinks.tables.maintain import MaintenanceWork, maintain
from tailrace.sinks.tables.positions import complete_until, read_at
from tailrace.sinks.tables.target import metadata
from tests.extent import is_full, turn
from tests.spark.beside import Passing, merge_beside
from tests.spark.test_table_rebuild import PIPELINE, Lake, Source, rows_of


def operations(path: str) -> list[str]:
    """Return the operations of all commits to a table, the newest first."""
    files = sorted(Path(path, "_delta_log").glob("*.json"), reverse=True)
    commits = [json.loads(line).get("commitInfo") for file in files for line in file.read_text("utf-8").splitlines()]
    return [commit["operation"] for commit in commits if commit]


@pytest.mark.full
def test_a_pipeline_does_not_fail_for_maintenance_that_runs_beside_it(spark: SparkSession, place: Path) -> None:
    """Maintenance may come at any time; for the middle of a merge see below."""
    source, lake = Source(random.Random(3)), Lake(spark, place, "latest")
    lake.write(0, [last for _, last in source.snapshot(8)])
    blocks = [[last for _, last in source.batch(12)] for _ in range(2)]

    def write() -> None:
        for number, found in enumerate(blocks, 1):
            lake.write(number, found)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            maintain(spark, lake.path, MaintenanceWork(optimize=True, vacuum=False))
        writing.result()
    assert rows_of(lake.read()) == source.table(3)


class Said:
    """A merge with a given statement, which needs MERGE."""

    whole = False

    def __init__(self, text: str) -> None:
        self.text = text

    def statement(self, table: str) -> str:
        return self.text


@pytest.mark.full
def test_a_merge_that_loses_against_maintenance_is_run_again(spark: SparkSession, place: Path) -> None:
    """The MERGE has begun to read its rows when files are compacted, and is run again; it fails for a foreign write."""
    path = f"{place}/t"
    spark.sql(f"create table delta.`{path}` (id bigint, v int) using delta "
              "tblproperties ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
    for number in range(2):
        rows = spark.range(number * 10, number * 10 + 10).selectExpr("id", "0 as v").coalesce(1)
        DeltaTable(spark, path).append(rows, WriteId(PIPELINE, number, metadata(number, "-")))
    text = f"merge into delta.`{path}` t using {{}} s on t.id = s.id when matched then update set t.v = t.v + 1"

    def beside(number: int, statement: str) -> None:
        def prepared(waiting: Passing) -> Callable[[], None]:
            session, view = spark.newSession(), f"slow{number}"
            session.range(20).coalesce(1).mapInArrow(waiting, "id bigint").createOrReplaceTempView(view)
            table, once = DeltaTable(session, path), WriteId(PIPELINE, number, metadata(number, "-"))
            return lambda: table.merge(Said(text.format(view)), once)  # type: ignore[arg-type]

        merge_beside(place, number, prepared, lambda: spark.sql(statement))

    beside(2, f"optimize delta.`{path}`")
    assert operations(path)[:2] == ["MERGE", "OPTIMIZE"]
    assert rows_of(spark.read.format("delta").load(path)) == sorted(((key, 1) for key in range(20)), key=repr)
    if is_full():
        # For rows that are replaced without a statement see test_table_writers.
        with pytest.raises(Exception, match="DELTA_CONCURRENT"):
            beside(3, f"update delta.`{path}` set v = 7 where id = 3")
        assert operations(path)[0] == "UPDATE"


def forget(spark: SparkSession, path: str) -> None:
    """Remove the files of all versions of a table but the newest, as a foreign VACUUM does."""
    if is_full():
        session = spark.newSession()
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
        session.sql(f"vacuum delta.`{path}` retain 0 hours").collect()
        return
    kept = {Path(file).name for file in DeltaTable(spark, path).rows().inputFiles()}
    for file in Path(path).glob("*.parquet"):
        if file.name not in kept:
            file.unlink()


@turn(2, 7)
def test_a_pipeline_goes_on_behind_maintenance_and_moments_that_are_gone_are_one_clear_error(
    spark: SparkSession, place: Path
) -> None:
    source, lake = Source(random.Random(5)), Lake(spark, place, "latest")
    lake.write(0, [last for _, last in source.snapshot(8)])
    before = f"{source.position:016X}"
    blocks = [[last for _, last in source.batch(12)] for _ in range(2)]
    lake.write(1, blocks[0])
    assert rows_of(read_at(spark, lake.path, position=before).tables["s.t"]) == sorted(
        [(key, "r", f"big{key}") for key in range(8)], key=repr
    )
    newest = complete_until(spark, lake.path)
    # Nothing that a moment needs is removed, though all of it is older than the retention.
    assert maintain(spark, lake.path, MaintenanceWork(optimize=True, vacuum=True, hours=1))[0] == (
        "tailrace_positions: 1 moments removed"
    )
    assert complete_until(spark, lake.path) == newest
    lake.write(2, blocks[1])
    assert rows_of(read_at(spark, lake.path).tables["s.t"]) == rows_of(lake.read()) == source.table(3)
    with pytest.raises(SinkError, match="no moment up to there; the oldest moment that it keeps is that at 0000"):
        read_at(spark, lake.path, position=before)
    # A restarted pipeline finds its own last batch before the commits of maintenance.
    spark.sql(f"optimize delta.`{lake.path}/s.t`")
    assert operations(f"{lake.path}/s.t")[0] == "OPTIMIZE"
    # The files of the log agree with Delta.
    history = spark.sql(f"describe history delta.`{lake.path}/s.t`").select("version", "operation", "userMetadata")
    assert DeltaTable(spark, f"{lake.path}/s.t")._read(50) == [tuple(row) for row in history.collect()]
    with pytest.raises(SinkError, match="holds batch 2, and its checkpoint is at batch 1"):
        Lake(spark, place, "latest").write(1, blocks[0])
    forget(spark, f"{lake.path}/s.t")
    with pytest.raises(SinkError, match="no longer keeps its version"):
        read_at(spark, lake.path)


def test_the_command_compacts_the_files_of_a_path(
    spark: SparkSession, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake(spark, place, "latest")
    lake.write(0, [last for _, last in Source(random.Random(5)).snapshot(3)])
    rows = rows_of(lake.read())
    assert main(["maintain", str(place), "--optimize", "--vacuum", "--retain", "1"]) == 0
    assert "s.t: " in capsys.readouterr().out
    assert rows_of(lake.read()) == rows


class Session:
    """A session that gives Delta Lake's answers to OPTIMIZE: a conflict `conflicts` times."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts = conflicts

    def sql(self, statement: str) -> Session:
        self.conflicts -= 1
        if self.conflicts >= 0:
            raise RuntimeError("[DELTA_CONCURRENT_DELETE_READ] …")
        return self

    def collect(self) -> list[dict[str, dict[str, int]]]:
        return [{"metrics": {"numFilesRemoved": 4, "numFilesAdded": 1}}]


@pytest.mark.parametrize(("conflicts", "said"), [(2, "4 files compacted into 1"), (9, None)])
def test_maintenance_gives_way(conflicts: int, said: str | None) -> None:
    pauses: list[float] = []
    table = DeltaTable(Session(conflicts), "/t")  # type: ignore[arg-type]
    assert maintenance._patiently(table.compact, FORMATS["delta"], pauses.append) == said
    assert pauses == [0.5 * 2**number for number in range(min(conflicts, 5))]


def test_files_stay_that_a_moment_needs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """VACUUM reaches back only to the version that the oldest moment needs, and removes nothing if that is over a week
    old."""
    said: list[str] = []
    session = spark.newSession()

    def sql(statement: str) -> Session:
        said.append(statement)
        return Session(0)

    monkeypatch.setattr(session, "sql", sql)
    for age, hours in ((30.5, 32), (0.1, 24), (None, 24), (400, 0)):
        since = None if age is None else time.time() - age * 3600
        monkeypatch.setattr(DeltaTable, "_written", lambda *told, since=since: since)
        line = DeltaTable(session, "/t").clean(3, 24)
        if hours:
            assert said.pop() == f"vacuum delta.`/t` retain {hours} hours"
        else:
            assert "needs version 3" in line
            assert not said


@pytest.mark.full
def test_tables_of_iceberg_are_maintained(spark: SparkSession, place: Path) -> None:
    """Old moments of Iceberg tables are removed, with the files that only they need, as for Delta Lake."""
    if not is_there(spark):
        pytest.skip("the jars of Iceberg cannot be had")
    source, lake = Source(random.Random(5)), Lake(spark, place, "latest", kind="iceberg")
    lake.write(0, [last for _, last in source.snapshot(8)])
    before = f"{source.position:016X}"
    blocks = [[last for _, last in source.batch(12)] for _ in range(2)]
    for number, found in enumerate(blocks, 1):
        lake.write(number, found)
    newest = complete_until(spark, lake.path)
    done = maintain(spark, lake.path, MaintenanceWork(optimize=True, vacuum=True, hours=1))
    assert done[0] == "tailrace_positions: 2 moments removed"
    assert re.match(r"s.t: \d+ files compacted into 1, ", done[1])
    assert complete_until(spark, lake.path) == newest
    assert rows_of(read_at(spark, lake.path).tables["s.t"]) == source.table(3)
    with pytest.raises(SinkError, match="no moment up to there; the oldest moment that it keeps is that at 0000"):
        read_at(spark, lake.path, position=before)
    # A repeated batch is still found in the table, and the pipeline continues.
    again, stored = Lake(spark, place, "latest", kind="iceberg"), FORMATS["iceberg"].table(spark, f"{lake.path}/s.t")
    again.write(2, blocks[1])
    assert not stored.commits(1)[0].changes
    again.write(3, [last for _, last in source.batch(6)])
    assert rows_of(again.read()) == source.table(3)
