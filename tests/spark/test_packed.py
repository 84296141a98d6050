"""Spark passes large rows on their way to the driver to a task's function a few megabytes at a time."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tailrace.sinks.packed import local_rows

MIB = 1 << 20


def test_a_piece_holds_some_megabytes_and_the_rows_keep_their_order(spark: SparkSession) -> None:
    session = spark.newSession()
    large = session.range(64, numPartitions=2).selectExpr("id", f"repeat('x', {MIB}) as value")
    before = session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch")
    rows = local_rows(large)
    assert next(rows)["id"] == 0
    assert session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") != before
    assert [row["id"] for row in rows] == list(range(1, 64))
    counted = large.mapInArrow(lambda batches: (one.select(["id"]).slice(0, 1) for one in batches), "id long")
    assert 4 <= counted.count() <= 8
