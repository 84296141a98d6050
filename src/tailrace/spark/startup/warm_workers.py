"""Warm workers: a local session's workers import the tasks' modules before the first task. Driver, worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.spark.cluster import is_local

# A worker takes nearly 100 MB, and a stream needs few. Further workers of a snapshot import while the first ones work.
_MOST = 4


def warm(spark: SparkSession, modules: Sequence[str]) -> None:
    """Start a thread that makes the session's first workers import `modules` and load the compiled functions.

    This takes a worker most of a second. Spark's first query of any kind takes as long. Both happen while Spark looks
    up the source and its planner asks the server. Failures are ignored: the first tasks will raise them. Does nothing
    on a cluster.
    """
    if is_local(spark.sparkContext.master or ""):
        threading.Thread(target=_warm, args=(spark, tuple(modules)), name="tailrace-warm", daemon=True).start()


def _warm(spark: SparkSession, modules: tuple[str, ...]) -> None:
    def load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        load_modules(modules)
        return batches

    try:
        count = min(spark.sparkContext.defaultParallelism, _MOST)
        frame = spark.range(count, numPartitions=count)
        frame.mapInArrow(load, frame.schema).collect()
    except Exception:
        # for example the end of the session, which does not wait for this thread
        pass


def load_modules(modules: Sequence[str]) -> None:
    """Import `modules`, and load what every compiled function needs. Worker."""
    for module in modules:
        import_module(module)
    compile_functions()


def compile_functions() -> None:
    """Load what every compiled function needs, by calling one. Fork server, worker."""
    import numpy as np

    from tailrace.values.integers import integers_fragment

    integers_fragment(np.zeros(1, np.int64))
