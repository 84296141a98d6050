"""Transfer of a batch's rows from the tasks to the driver, in compressed pieces.

Records are repetitive, especially if each contains its schema. A JVM that is both driver and executor must hold the
whole output of two tasks at a time. The driver decompresses one piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PIECE = 16 << 20
"""Approximate bytes of rows that Spark passes to a task's function at once."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


def local_rows(batch: DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as dicts by column name, partition by partition. Driver."""
    batch.sparkSession.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _PIECE)
    for piece in batch.mapInArrow(pack, "piece binary").toLocalIterator(prefetchPartitions=True):
        for rows in pa.ipc.open_stream(pa.py_buffer(piece["piece"])):
            yield from rows.to_pylist()


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row for each of a task's batches: the batch as a compressed Arrow stream. Worker."""
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema, options=_COMPRESSED) as writer:
            writer.write_batch(batch)
        yield pa.record_batch([pa.array([out.getvalue().to_pybytes()], pa.binary())], ["piece"])
