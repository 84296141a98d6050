"""What of a batch is in the database: kept in a table beside the rows, in the same transaction. Driver.

A crash between the commit of rows and that of the checkpoint lets the batch come again, and a connection that is lost
while a transaction commits leaves its outcome open. The table tells in both cases what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

NAME = "tailrace_batches"
MADE = f"create table {NAME} (query text primary key, batch bigint, records bigint, changes bigint)"
"""How the table is made by whoever has the right to."""

_FIND = "select batch, records, changes from tailrace_batches where query = %s"
_KEEP = (
    "insert into tailrace_batches (query, batch, records, changes) values (%s, %s, %s, %s) on conflict (query) "
    "do update set batch = excluded.batch, records = excluded.records, changes = excluded.changes"
)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a batch: how many of its records come before, and how many of these are no rows of a snapshot.

    A batch that comes again has the same changes, and may have other rows of a snapshot.
    """

    records: int = 0
    changes: int = 0


class Done:
    """Reads and keeps how much of the newest batch of a query is in the database."""

    def __init__(self) -> None:
        self._query, self._batch = "", -1
        self.is_kept = False

    def open(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table where it is not there. Raises psycopg.Error where that is not allowed."""
        found = connection.execute("select to_regclass(%s) is not null", [NAME]).fetchone()
        if not (found and found[0]):
            connection.execute(MADE.encode())
        connection.execute(_FIND, [""])
        connection.commit()
        self.is_kept = True

    def begin(self, connection: psycopg.Connection[Any], query: str, batch: int) -> Place | None:
        """Return the place up to which this batch is there; None where nothing of it is."""
        self._query, self._batch = query, batch
        if not self.is_kept:
            return None
        row = connection.execute(_FIND, [query]).fetchone()
        connection.commit()
        return Place(row[1], row[2]) if row and row[0] == batch else None

    def keep(self, cursor: psycopg.Cursor[Any], place: Place) -> None:
        """Note, in the transaction that writes them, that the records up to `place` are there."""
        if self.is_kept:
            cursor.execute(_KEEP, [self._query, self._batch, place.records, place.changes])
