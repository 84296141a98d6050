"""The task of a MongoDB batch that makes records of documents: changes of the log, and what windows read. Worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.connectors.mongodb.segment import Segment
from tailrace.connectors.mongodb.settings import MongoSettings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to make records of, one after another. Pure: everything that it needs is in it."""

    segments: tuple[Segment, ...]
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.mongodb.records import to_rows

        for segment in self.segments:
            yield from to_rows(segment, self.settings)
