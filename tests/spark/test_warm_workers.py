"""Workers import what tasks need before the first task."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.spark.startup.warm_workers import warm

# A module of Python's own, which nothing else here loads.
_MODULE = "colorsys"


def warmed(spark: SparkSession, modules: tuple[str, ...]) -> None:
    warm(spark, modules)
    for thread in threading.enumerate():
        if thread.name == "tailrace-warm":
            thread.join()


def test_workers_have_loaded_what_was_named(spark: SparkSession) -> None:
    module = _MODULE

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"id": [int(module in sys.modules)]})

    warmed(spark, (module,))
    rows = spark.range(2, numPartitions=2).mapInArrow(look, "id long").collect()
    assert 1 in [row["id"] for row in rows]


def test_a_module_that_is_missing_hinders_nobody(spark: SparkSession) -> None:
    warmed(spark, ("no_module_of_this_name",))
    assert spark.range(3).count() == 3
