"""The largest change that Spark's JVMs can take: a share of their memory. Driver."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from tailrace.spark.cluster import is_local

SHARE = 16
"""Divisor of the heap: a change of a sixteenth of the heap is delivered, of a thirteenth not (docs/reference).

The JVM holds the bytes of the log in the batch's plan and in the task, once written and once read, and the event in
Arrow's memory, in Spark's rows and in the sink's rows."""

_MESSAGE_MIB = "128"


def most_change_bytes(context: SparkContext) -> int:
    """Return the default of `event.max.change.bytes`.

    On a cluster the smaller heap of driver and executors decides. A task, which holds the change as the log has it,
    must also fit into a message of Spark (spark.rpc.message.maxSize).
    """
    jvm: Any = context._jvm
    heap = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if is_local(str(context.master)):
        return heap // SHARE
    spark: Any = context._jsc.sc()
    executor = int(spark.executorMemory()) << 20
    message = int(spark.conf().get("spark.rpc.message.maxSize", _MESSAGE_MIB)) << 20
    return min(min(heap, executor) // SHARE, message // 2)
