"""What a connector says of rows as they are now, for values that neither the log nor a table of the sink has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.events.settings import EventSettings

Name = tuple[str, str, str]
"""A table's database, schema and name."""

Values = tuple[Sequence[int], list[pa.Array]]
"""Rows: for each one the place of its key among those that were asked for, and its columns' values."""


class PresentTable(Protocol):
    """One table, as tasks read it. Picklable; holds the login, so that it prints as its name alone."""

    def values(self, key: Sequence[str], keys: Sequence[pa.Array], columns: Sequence[str]) -> Iterator[Values]:
        """The values of `columns`, as blocks have them, of the rows whose columns `key` have the values `keys`; a row
        that is not there is left out. Raises SinkError where the table is another one by now, ConnectionFailed."""
        ...


class Present(Protocol):
    """The tables of a server as they are now. Driver."""

    def table(self, name: Name) -> PresentTable:
        """A table whose rows are, in what is read from now on, at least as new as anything that the log has shown.

        Raises SinkError where it is not there, ConnectionFailed where that cannot be known.
        """
        ...

    def position(self) -> str:
        """The place of the log, as the rows' `position` has it, behind everything that was read until now."""
        ...

    def close(self) -> None: ...


Opening = Callable[["Config", "EventSettings"], Present]
"""What opens a session with the server. Raises TailraceError."""
