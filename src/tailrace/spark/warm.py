"""Workers of a local session that have loaded what tasks need before there is a first task. Driver, workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from importlib import import_module

import pyarrow as pa
from pyspark.sql import SparkSession

from tailrace.spark.cluster import is_local

# Each takes most of 100 MB. A stream needs few; those that a snapshot needs besides load while the first ones work.
_MOST = 4


def warm(spark: SparkSession, modules: Sequence[str]) -> None:
    """Let the session's first workers import `modules` and the compiled functions, on a thread of its own.

    A worker takes most of a second for that, and so does Spark for its first query of any kind. Both happen while the
    source is looked up and its planner asks the server. A failure has no effect: the first tasks will show it. Does
    nothing on a cluster, whose workers are not this machine's.
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
        # Among others the end of the session, which does not wait for this.
        pass


def load_modules(modules: Sequence[str]) -> None:
    """Import the modules, and what every compiled function needs. Worker."""
    for module in modules:
        import_module(module)
    compile_functions()


def compile_functions() -> None:
    """Load what every compiled function needs, by a call of one. Fork server, worker."""
    import numpy as np

    from tailrace.values.integers import integers_fragment

    integers_fragment(np.zeros(1, np.int64))
