"""The tasks of a PostgreSQL batch: segments of the log to decode, chunks of a snapshot to read. Worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.columns.batch import Boundary
from tailrace.columns.table import TableSchema
from tailrace.connectors.postgres.arrow import ArrowConnection
from tailrace.connectors.postgres.segment import Segment
from tailrace.connectors.postgres.snapshot import SnapshotOrigin, read_chunk
from tailrace.errors import ConnectionFailed, TailraceError
from tailrace.events.settings import EventSettings
from tailrace.snapshot.plan import Chunk

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to decode one after another. Pure: everything it needs is in it."""

    segments: tuple[Segment, ...]
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.postgres.decoder import decode
        from tailrace.connectors.postgres.records import to_rows

        for segment in self.segments:
            batch = decode(segment)
            batch.total_order, batch.table_order = segment.total_order, segment.table_order
            yield from to_rows(batch, self.settings)


@dataclass(frozen=True, slots=True)
class BoundaryTask:
    """Begins and ends of transactions, for the transaction topic."""

    boundaries: tuple[Boundary, ...]
    settings: EventSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.events.boundaries import boundary_rows

        yield boundary_rows(self.boundaries, self.settings)


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """One chunk to read under the exported snapshot `snapshot`, with the connection `address` (holds the password).

    Raises ConnectionFailed when the server cannot be reached or the snapshot is gone: the planner's session has
    ended, and a restart of the query takes up the remaining chunks under a new one.
    """

    address: str
    snapshot: str
    table: TableSchema
    chunk: Chunk
    statement: str
    origin: SnapshotOrigin
    settings: EventSettings

    def __repr__(self) -> str:
        return f"SnapshotTask({self.table.id}, chunk {self.chunk.number})"

    def read(self) -> Iterator[pa.RecordBatch]:
        import adbc_driver_manager

        from tailrace.connectors.postgres.records import to_rows

        try:
            connection = ArrowConnection(self.address)
            for batch in read_chunk(connection, self.snapshot, self.table, self.chunk, self.statement, self.origin):
                yield from to_rows(batch, self.settings)
        except (adbc_driver_manager.Error, ConnectionFailed) as error:
            text = str(error).strip().splitlines()[0].rstrip(".")
            raise _failure(self.table, text) from None


def _failure(table: TableSchema, text: str) -> TailraceError:
    return ConnectionFailed(
        f"Reading {table.id} for the snapshot failed: {text}.",
        "Start again with the same checkpoint: the chunks that are done are not read again.",
    )
