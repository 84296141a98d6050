"""Frames that outlive the plan they come from: rows computed once, and rows in another session. Driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def computed(rows: DataFrame, eager: bool = True) -> Iterator[DataFrame]:
    """The rows, computed once however often they are read: now, or, unless `eager`, when they are first read."""
    if not is_here():
        # an executor may be lost, and its part computed anew
        kept = rows.persist()
        try:
            yield kept
        finally:
            kept.unpersist()
        return
    # The plan of a batch has the bytes of the log in it, and Spark writes them into the tasks of each job that reads
    # the plan, though its rows are kept: a MERGE of 190 MB of the log took half a JVM of 2 GB. Here the plan ends.
    # Rows are kept as such. As the bytes that Java makes of each row (PySpark's MEMORY_AND_DISK) keeping and reading
    # them took 1.6 times as long.
    kept = rows.localCheckpoint(eager=eager)
    try:
        yield kept
    finally:
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)


def is_here() -> bool:
    """Whether Spark runs, and its tasks in the driver's own JVM."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return context is not None and bool(context._jsc.sc().isLocal())


def in_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows of `frame` in another session of the same JVM."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    made: Any = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    plan = frame._jdf.queryExecution().analyzed()
    return Classic(made.ofRows(session._jsparkSession, plan), session)
