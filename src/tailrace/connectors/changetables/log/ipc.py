"""Columns as bytes, to send the rows of a window from the planner to their task."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def to_ipc(columns: Sequence[pa.Array]) -> bytes:
    """Return columns as one Arrow IPC stream, without names."""
    batch = pa.RecordBatch.from_arrays(list(columns), names=[str(place) for place in range(len(columns))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_ipc(data: bytes) -> list[pa.Array]:
    """Return the columns of a stream that `to_ipc` returned."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    return list(batch.columns)
