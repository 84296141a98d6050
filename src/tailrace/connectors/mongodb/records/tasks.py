"""The task that makes records from MongoDB's documents: changes of the log, and documents of windows. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tailrace.columns.batch import Int64s
from tailrace.connectors.mongodb.records.segment import Segment
from tailrace.connectors.mongodb.settings import MongoSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.log.interleaving import Numbered


@dataclass(frozen=True, slots=True)
class LogTask:
    """Segments to make records of, topic after topic, each in log order. Self-contained."""

    segments: tuple[Segment, ...]
    settings: MongoSettings

    def read(self) -> Iterator[pa.RecordBatch]:
        from tailrace.connectors.mongodb.records.envelope import table_id
        from tailrace.connectors.mongodb.records.records import numbered_rows
        from tailrace.connectors.mongodb.records.segment import cut
        from tailrace.events import names
        from tailrace.log.interleaving import in_log_order

        def records(segment: Segment) -> Iterator[Numbered]:
            return numbered_rows(segment, self.settings)

        topics = names.by_topic(self.settings.events, filter(len, self.segments), lambda part: table_id(part.namespace))
        for parts in topics.values():
            if all(_ends_before(one, other) for one, other in pairwise(parts)):
                for part in parts:
                    for rows, _ in records(part):
                        yield rows
            else:
                yield from in_log_order(parts, _places(parts), cut, records)


def _ends_before(one: Segment, other: Segment) -> bool:
    return (one.time[-1], one.number[-1]) < (other.time[0], other.number[0])


def _places(parts: Sequence[Segment]) -> list[Int64s]:
    """Return the place of each change in the order of the log, over all parts."""
    time = np.concatenate([part.time for part in parts])
    number = np.concatenate([part.number for part in parts])
    places = np.empty(len(time), np.int64)
    places[np.lexsort((number, time))] = np.arange(len(time))
    return np.split(places, np.cumsum([len(part) for part in parts])[:-1])
