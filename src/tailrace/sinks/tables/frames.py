"""DataFrames detached from their plan or session: rows computed once, and rows in another session. Driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def computed(rows: DataFrame, eager: bool = True) -> Iterator[DataFrame]:
    """Yield the rows so that they are computed only once: now, or on their first read if not `eager`."""
    if not is_here():
        # If an executor is lost, its part can be computed anew.
        kept = rows.persist()
        try:
            yield kept
        finally:
            kept.unpersist()
        return
    # The plan of a batch holds bytes of the log. Spark copies the plan into the tasks of every job that reads it, even
    # if the rows are persisted: a MERGE of 190 MB of the log took half a JVM of 2 GB. A checkpoint cuts the plan. It
    # keeps rows as objects. Storing them serialised (PySpark's MEMORY_AND_DISK) and reading them took 1.6 times as
    # long.
    kept = rows.localCheckpoint(eager=eager)
    try:
        yield kept
    finally:
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)


def is_here() -> bool:
    """Return True if Spark runs with its tasks in the driver's own JVM."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return context is not None and bool(context._jsc.sc().isLocal())


def in_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return `frame` as a DataFrame of another session of the same JVM."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    made: Any = session._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    plan = frame._jdf.queryExecution().analyzed()
    return Classic(made.ofRows(session._jsparkSession, plan), session)
