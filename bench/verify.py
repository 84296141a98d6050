"""`tailrace verify`: comparing and repairing a table of Delta Lake, against COPY of its source. Driver."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from bench import baseline, tables
from bench.workload import Workload
from tailrace.config.files import RunConfig
from tailrace.connectors.registry import from_entries
from tailrace.pipeline import Pipeline
from tailrace.sinks.tables.sink import TablesSink
from tailrace.verify.check import Verification
from tailrace.verify.comparison import Key
from tailrace.verify.repair import Repair

DAMAGED = 1000
"""Rows that are deleted, changed and added in the table by hand."""

_TABLE = tables.plain("verified")
_SIGNALS = "create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048))"
_REPAIR_S = 600.0
_WARM = 8
"""Rounds that do not count: the JVM compiles the hashing of rows meanwhile."""
_SEED = 19


def measure(
    spark: SparkSession, workload: Workload, rows: int, repeat: int, say: Callable[[str], None]
) -> dict[str, float]:
    """Return the ratio of a verification's rate to the rates of COPY before and after it, in a warm JVM.

    Raises RuntimeError if it does not name exactly the damaged rows, or does not repair them.
    """
    workload.create(_TABLE)
    workload.execute(_SIGNALS)
    workload.execute("alter publication verified add table signals")
    say(f"verify: {rows:,} rows into a table")
    workload.insert(_TABLE, rows)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        run = _configuration(workload, Path(folder))
        _drain(run, spark)
        workload.execute("update verified set n = n + 1 where id = 1")
        _drain(run, spark)
        workload.settle("verified")
        pipeline = Pipeline(run, spark)
        assert isinstance(pipeline.sink, TablesSink)
        verification = Verification(spark, pipeline.sink, "postgres", pipeline.options())
        runs = [_beside(workload, verification, rows) for _ in range(_WARM + repeat)][_WARM:]
        found = {
            "verify_copy_seconds": median(copied for copied, _ in runs),
            "verify_seconds": median(seconds for _, seconds in runs),
            "verify_ratio": median(copied / seconds for copied, seconds in runs),
        }
        found |= _mended(spark, run, verification, rows)
    say(", ".join(f"{name} {value:.2f}" for name, value in found.items()))
    return found


def _configuration(workload: Workload, folder: Path) -> RunConfig:
    server = workload.server
    source = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.dbname": workload.database,
        "topic.prefix": "verified",
        "slot.name": "bench_verified",
        "publication.name": "verified",
        "table.include.list": "public.verified",
        "signal.data.collection": "public.signals",
        "checkpoint.location": str(folder / "checkpoint"),
    }
    sink = {"type": "tables", "tables.path": str(folder / "lake")}
    entries = {f"debezium.source.{name}": text for name, text in source.items()}
    return from_entries(entries | {f"debezium.sink.{name}": text for name, text in sink.items()})


def _drain(run: RunConfig, spark: SparkSession) -> None:
    pipeline = Pipeline(run, spark)
    try:
        pipeline.start(available_now=True).awaitTermination()
    finally:
        pipeline.stop()


def _beside(workload: Workload, verification: Verification, rows: int) -> tuple[float, float]:
    """Return the seconds of COPY and of a verification."""
    before = baseline.copy_out(workload, "verified")
    started = time.monotonic()
    verified = verification.run((), 0)
    seconds = time.monotonic() - started
    if not verified.is_clean or [table.rows for table in verified.tables] != [rows]:
        raise RuntimeError("a table that equals the source was not found clean")
    return (before + baseline.copy_out(workload, "verified")) / 2, seconds


def _mended(spark: SparkSession, run: RunConfig, verification: Verification, rows: int) -> dict[str, float]:
    """Damage rows, and let `tailrace verify` name and repair them."""
    wanted = damaged(spark, f"delta.`{verification.sink.path}/public.verified`", rows)
    started = time.monotonic()
    verified = verification.run((), 0)
    named = time.monotonic() - started
    if verified.tables[0].differing != wanted:
        raise RuntimeError("the damaged rows were not named exactly")
    started = time.monotonic()
    mended = Repair(spark, run, verification, lambda line: None).run(verified, _REPAIR_S)
    seconds = time.monotonic() - started
    if not mended.is_clean or not verification.run((), 0).is_clean:
        raise RuntimeError("the damaged rows were not mended")
    return {"verify_damaged_seconds": named, "verify_repair_seconds": seconds}


def damaged(spark: SparkSession, table: str, rows: int, seed: int = _SEED) -> dict[Key, str]:
    """Damage random rows of `table`, a name in SQL; return their keys, each with its kind of damage.

    Two fifths are deleted, two fifths changed in one of three columns; the rest are added rows that the source lacks.
    """
    keys = random.Random(seed).sample(range(1, rows + 1), min(DAMAGED, rows // 5 * 5))
    fifth = len(keys) // 5
    gone, other, more = keys[: 2 * fifth], keys[2 * fifth : 4 * fifth], keys[4 * fifth :]
    spark.sql(f"delete from {table} where id in ({_listed(gone)})")
    for place, change in enumerate(("note = 'damaged'", "amount = amount + 0.01", "code = null")):
        spark.sql(f"update {table} set {change} where id in ({_listed(other[place::3])})")
    columns = f"id + {rows}, n, amount, note, at, flag, code, doc"
    spark.sql(f"insert into {table} select {columns} from {table} where id in ({_listed(more)})")
    found: dict[Key, str] = {(key,): "missing" for key in gone}
    return found | {(key,): "different" for key in other} | {(key + rows,): "extra" for key in more}


def _listed(keys: Sequence[int]) -> str:
    return ", ".join(map(str, keys))
