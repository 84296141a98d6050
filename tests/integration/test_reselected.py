"""A pipeline whose post-processor reads values again delivers them in Spark, and counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace.connectors.registry import from_entries
from tailrace.pipeline import Pipeline
from tests.fix_postgres import Database


def drain(spark: SparkSession, database: Database, folder: Path) -> list[dict[str, Any]]:
    """Run a pipeline up to the present. Return the metrics of its batches."""
    options = database.options(topic_prefix="shop", slot_name=database.name.lower()) | {
        "checkpoint.location": str(folder / "checkpoint"),
        "post.processors": "again",
        "again.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        "again.reselect.null.values": "false",
        # The changes since the slot was created.
        "snapshot.mode": "no_data",
    }
    entries = {f"debezium.source.{name}": text for name, text in options.items()} | {
        "debezium.format.schemas.enable": "false",
        "debezium.sink.type": "file",
        "debezium.sink.file.path": str(folder / "out"),
    }
    query = Pipeline(from_entries(entries), spark).start(available_now=True)
    assert query.awaitTermination(240)
    return [one["observedMetrics"]["tailrace"] for one in map(_parsed, query.recentProgress) if one["numInputRows"]]


def _parsed(progress: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(progress.json)
    return found


def test_what_was_read_again_is_delivered_and_counted(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.execute(
        "create table wide (id int primary key, n int, long text, doc text)",
        "alter table wide alter long set storage external, alter doc set storage external",
        "insert into wide select i, 0, repeat('long ', 2000), repeat('doc ', 2000) from generate_series(1, 20) i",
    )
    database.execute(
        "create publication dbz_publication for all tables",
        f"select pg_create_logical_replication_slot('{database.name.lower()}', 'pgoutput')",
        "update wide set n = 1",
        "delete from wide where id > 15",
    )
    metrics = drain(spark, database, tmp_path)
    assert sum(one["reselected"] for one in metrics) == 30
    assert sum(one["not_reselected"] for one in metrics) == 5
    rows = [json.loads(line) for path in (tmp_path / "out").rglob("*.jsonl") for line in path.read_text().splitlines()]
    shown = [row["value"]["after"] for row in rows if row["value"] and row["value"]["op"] == "u"]
    assert {(row["id"], row["long"][:5], row["doc"][:4]) for row in shown} == {
        (number, "long ", "doc ") if number < 16 else (number, "__deb", "__de") for number in range(1, 21)
    }
