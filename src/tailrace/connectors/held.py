"""What one read of a database's tables at one position is: the tasks, and what has to stay open while they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.events.settings import EventSettings
    from tailrace.log.planner import Task


class Held(Protocol):
    """A snapshot that is kept open for the tasks that read it."""

    @property
    def tasks(self) -> Sequence[Task]:
        """What reads all rows; each has in it all that it needs, and any of them may be read more than once."""
        ...

    def is_read(self) -> bool:
        """Whether a task reads it now. Raises TailraceError where it is lost."""
        ...

    def close(self) -> None: ...


Reading = Callable[["Config", "EventSettings"], Held]
"""What opens a snapshot of the captured tables. Raises TailraceError."""
