"""Consistent reads: rows of tables at one log position, the tasks that read them, and the snapshot to keep open.

`ComparedSource` also returns which rows changed between two positions, for comparisons with a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tailrace.columns.table import TableSchema
    from tailrace.config import Config
    from tailrace.events.event_settings import EventSettings
    from tailrace.events.mapping import SourceForm
    from tailrace.log.contracts import Task


class ConsistentRead(Protocol):
    """Rows at one position of the log, for the tasks that read them. A process beside the driver holds it, with a lock
    around each call."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks that together read every row. Each is self-contained and may run more than once, in any worker."""
        ...

    def is_read(self) -> bool:
        """Return True while a task reads a snapshot that this process keeps open; False if it keeps none.

        Called about once a second, until tasks ask the process for their snapshot. Raises TailraceError if the snapshot
        is lost.
        """
        ...

    def close(self) -> None:
        """Give up the snapshot. Called once, also after an error; tasks that still read it fail."""
        ...


Reading = Callable[["Config", "EventSettings"], ConsistentRead]
"""A function that opens a snapshot of the captured tables. Raises TailraceError."""


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """Keys of the changed rows of one table, as text: one tuple for each key column, one item for each row.

    `everything` is True if any row may have changed: the table was truncated, or a change does not contain its key.
    """

    columns: tuple[tuple[bytes, ...], ...]
    everything: bool = False


class ComparedSource(Protocol):
    """The rows of a source, for a comparison with a pipeline's copy of them. Driver.

    The rows may be read over a period. A row that does not change during this period is as it was at `position`. Only
    `committed` and `form` are known before `take`. All methods but `condition` and `close` may raise TailraceError.
    """

    @property
    def position(self) -> str:
        """The position, as the column `position` shows it. The rows contain everything committed up to it."""
        ...

    @property
    def committed(self) -> str:
        """Position that the pipeline had committed before the rows were read; "" if unknown."""
        ...

    @property
    def tables(self) -> Sequence[TableSchema]:
        """The tables that are read, also those without rows, each with the key of its events."""
        ...

    @property
    def form(self) -> SourceForm | None:
        """The connector's part of events; None if rows are documents."""
        ...

    def take(self) -> None:
        """Fix the position, and plan the tasks that read the rows. Called once, before the methods below."""
        ...

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        """Return the tasks that read one table. Until `close` each may run more than once.

        Called by several threads, each for another table.
        """
        ...

    def is_running(self) -> bool | None:
        """Return True if a pipeline reads the log now; None if the server does not know it."""
        ...

    def is_told(self) -> bool:
        """Return True once the log has passed the position at which the rows were read.

        Called after reading, again and again until it is True; `touched` is called after that.
        """
        ...

    def touched(self, table: TableSchema, after: str, upto: str) -> TouchedKeys:
        """Return the keys changed after the position `after`, up to `upto` and to the end of the reading.

        Keys changed up to `committed` are unknown.
        """
        ...

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        """Return a signal's condition for the rows with these keys, whose columns are `names`. No I/O; called after
        `close`, too."""
        ...

    def close(self) -> None:
        """Release the sessions, and what `take` and `is_told` have made on the server."""
        ...


Comparing = Callable[["Config", "EventSettings"], ComparedSource]
"""A function that opens a snapshot for a comparison. Raises TailraceError."""
