"""What one read of a database's tables at one position is: the tasks, and what has to stay open while they run.

Whoever compares these rows with others asks also what has changed between two positions: see `Compared`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tailrace.columns.table import TableSchema
    from tailrace.config import Config
    from tailrace.events.form import SourceForm
    from tailrace.events.settings import EventSettings
    from tailrace.log.planner import Task


class Held(Protocol):
    """Rows at one position of the log, for the tasks that read them."""

    @property
    def stays(self) -> bool:
        """Whether the snapshot is kept open here, as long as tasks read it; else the server has it by itself."""
        ...

    @property
    def tasks(self) -> Sequence[Task]:
        """What reads all rows; each has in it all that it needs, and any of them may be read more than once."""
        ...

    def is_read(self) -> bool:
        """Whether a task reads now what is kept open here. Raises TailraceError where it is lost."""
        ...

    def close(self) -> None: ...


Reading = Callable[["Config", "EventSettings"], Held]
"""What opens a snapshot of the captured tables. Raises TailraceError."""


@dataclass(frozen=True, slots=True)
class Touched:
    """The keys of a table's rows that were changed: the texts of each of the key's columns, a row for each key.

    `everything` says that any row may have been changed: the table was truncated, or a change does not tell its key.
    """

    columns: tuple[tuple[bytes, ...], ...]
    everything: bool = False


class Compared(Protocol):
    """The rows of a source, to be compared with what a pipeline has made of them. Driver.

    They may be read over some time. A row that no change touches meanwhile is as it was at `position`. Before `take`
    only `committed` is known.
    """

    def take(self) -> None:
        """Take the position, and plan what reads the rows. Raises TailraceError."""
        ...

    @property
    def position(self) -> str:
        """The position, as the column `position` shows it: everything that is committed up to there is in the rows."""
        ...

    @property
    def committed(self) -> str:
        """Up to where the pipeline is known to have committed what it read of the log, before the rows are read; ""
        where that is not known."""
        ...

    @property
    def tables(self) -> Sequence[TableSchema]:
        """The tables that are read, those without rows among them, each with the key that its events get."""
        ...

    @property
    def form(self) -> SourceForm | None:
        """The connector's part of events; None where rows are documents under their keys."""
        ...

    def of_table(self, table: TableSchema) -> Sequence[Task]:
        """What reads the rows of one table; any of them may be read more than once, until `close`."""
        ...

    def is_running(self) -> bool | None:
        """Whether a pipeline reads the log now; None where the server does not know."""
        ...

    def is_told(self) -> bool:
        """Whether the log tells of all that the rows may show. To be asked when they are read, again until it does."""
        ...

    def touched(self, table: TableSchema, after: str, upto: str) -> Touched:
        """The keys that are changed behind the position `after`, up to `upto` and to where the rows were read; those up
        to `committed` are not known. Raises TailraceError."""
        ...

    def condition(self, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> str:
        """The condition of a signal that the rows with these keys fulfil, whose columns are called `names`."""
        ...

    def close(self) -> None: ...


Comparing = Callable[["Config", "EventSettings"], Compared]
"""What opens a snapshot to be compared. Raises TailraceError."""
