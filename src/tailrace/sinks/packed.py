"""The rows of a batch on their way to the driver: each task gives them packed, in pieces that are compressed.

Records say much that others say, above all where each has its schema, and a JVM that serves driver and tasks has to
hold what one task gives, and of the next one as well. A piece opens into rows one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIECE = 16 << 20
"""How many bytes of rows Spark gives a task's function at once, about."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


def local_rows(batch: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a batch by the names of their columns, partition by partition. Driver."""
    batch.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _PIECE)
    for piece in batch.mapInArrow(pack, "piece binary").toLocalIterator(prefetchPartitions=True):
        for rows in pa.ipc.open_stream(pa.py_buffer(piece["piece"])):
            yield from rows.to_pylist()


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each of a task's batches as one row that holds all of it. Worker."""
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema, options=_COMPRESSED) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([out.getvalue().to_pybytes()], pa.binary())], ["piece"])
