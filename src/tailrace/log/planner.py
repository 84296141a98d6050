"""What every connector gives to Spark: a planner that lives as long as the query, and tasks that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

Offset = dict[str, Any]
"""A position as Spark stores it: strings, integers and booleans; equal positions have equal JSON text."""


class Task(Protocol):
    """A part of a batch. Pickled by the planner, read by a worker, as often as Spark likes."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Record batches of `EventSettings.row_schema`, in order; the same events at every call."""
        ...


class Planner(Protocol):
    """The one reader of a source, in the planner process. Construction does no I/O; the first call may.

    Positions are whole or cut transactions; a batch is `(start, end]`. All methods raise TailraceError.
    """

    def initial_offset(self) -> Offset:
        """Where a query without checkpoint starts; a constant."""
        ...

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        """The end of the next batch after `start`, which Spark has committed: the source may forget it.

        Waits a moment for changes; returns `start` when there are none. None means no limit.
        """
        ...

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        """The tasks of the batch `(start, end]`; also for a batch that was planned before a restart."""
        ...

    def stop_at_present(self) -> None:
        """Let `latest_offset` go no further than what is committed in the database now (Trigger.AvailableNow)."""
        ...

    def status(self) -> Offset | None:
        """The newest position that is known to exist in the database."""
        ...

    def close(self) -> None:
        """Release connections; calls after it are errors."""
        ...
