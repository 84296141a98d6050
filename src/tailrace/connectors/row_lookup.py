"""Look-up of current rows, for values that are neither in the log nor in a table of the sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from tailrace.config import Config
    from tailrace.events.event_settings import EventSettings

Name = tuple[str, str, str]
"""A table's database, schema and name."""

Values = tuple[Sequence[int], list[pa.Array]]
"""Rows: for each the index of its key among the requested keys, and the values of its columns."""


class PresentTable(Protocol):
    """A table, as tasks read it. Pickled by the driver, called by workers; holds the login, so its repr is only its
    name."""

    def called(self, columns: Sequence[tuple[str, int]]) -> list[str]:
        """Return the present names of columns, each given by a former name and `Column.number`.

        A column whose number is 0, or that the table does not have any more, is returned under the name given.
        """
        ...

    def demand(self, columns: Sequence[str]) -> None:
        """Raise SinkError if one of `columns`, all columns of the table in a batch, may be another column by now.

        This cannot happen where columns are found by number.
        """
        ...

    def values(self, key: Sequence[str], keys: Sequence[pa.Array], columns: Sequence[str]) -> Iterator[Values]:
        """Yield the values of `columns`, in the types of blocks, for the rows whose columns `key` have the values
        `keys`.

        Rows that do not exist are left out. Raises SinkError if the table has been replaced, ConnectionFailed.
        """
        ...


class PresentTables(Protocol):
    """The tables of a server as they are now. Driver."""

    def table(self, name: Name) -> PresentTable:
        """Return a table. From now on, reads of its rows are at least as new as anything that the log has shown.

        Raises SinkError if the table does not exist, ConnectionFailed if this cannot be determined.
        """
        ...

    def position(self) -> str:
        """Return the log position after everything that has been read so far, as the column `position` shows it.

        Called after the rows were read: until the log has passed it, rows of the copy may be ahead. Raises
        ConnectionFailed.
        """
        ...

    def close(self) -> None:
        """Close the session. The tables can still be read: each task has a session of its own."""
        ...


Opening = Callable[["Config", "EventSettings"], PresentTables]
"""A function that opens a session with the server. Raises TailraceError."""
