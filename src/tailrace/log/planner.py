"""The interface between a connector and Spark: a planner, alive as long as the query, and self-contained tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

Offset = dict[str, Any]
"""A position as Spark stores it: strings, integers and booleans; equal positions have equal JSON text."""


class Task(Protocol):
    """A part of a batch. Pickled by the planner, read by workers, possibly several times."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `EventSettings.row_schema`, in order; the same events at every call."""
        ...


class Planner(Protocol):
    """The only reader of a source, in the planner process. Construction does no I/O; the first call may.

    A position lies at the end of a transaction or within one; a batch is `(start, end]`. All methods raise
    TailraceError.
    """

    def initial_offset(self) -> Offset:
        """Return the constant offset at which a query without checkpoint starts."""
        ...

    def latest_offset(self, start: Offset, max_rows: int | None, max_bytes: int | None) -> Offset:
        """Return the end of the next batch after `start`. Spark has committed `start`, so the source may discard all
        before.

        Waits a moment for changes; returns `start` if there are none. None means no limit.
        """
        ...

    def partitions(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks of the batch `(start, end]`, which may have been planned before a restart."""
        ...

    def stop_at_present(self) -> None:
        """Let `latest_offset` go no further than what is committed in the database now (Trigger.AvailableNow)."""
        ...

    def status(self) -> Offset | None:
        """Return the newest position that is known to exist in the database."""
        ...

    def close(self) -> None:
        """Release connections; calls after it are errors."""
        ...
