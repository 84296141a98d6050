"""How large a change Spark's JVMs can take: a share of their memory. Driver."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext

from tailrace.spark.cluster import is_local

SHARE = 16
"""A change of a sixteenth of the heap is delivered, one of a thirteenth is not (docs/reference).

The JVM holds the bytes of the log in the batch's plan, in the task as it is written and as it is read, and the event
in Arrow's memory, in Spark's rows and in those of the sink."""

_MESSAGE_MIB = "128"


def most_change_bytes(context: SparkContext) -> int:
    """The most bytes of a change, where `event.max.change.bytes` does not say.

    On a cluster the smaller one of driver and executors decides, and a task, which holds the change as the log has it,
    must fit into a message of Spark's too (spark.rpc.message.maxSize).
    """
    jvm: Any = context._jvm
    heap = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if is_local(str(context.master)):
        return heap // SHARE
    spark: Any = context._jsc.sc()
    executor = int(spark.executorMemory()) << 20
    message = int(spark.conf().get("spark.rpc.message.maxSize", _MESSAGE_MIB)) << 20
    return min(min(heap, executor) // SHARE, message // 2)
