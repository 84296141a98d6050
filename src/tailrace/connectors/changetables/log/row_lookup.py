"""Look-up of current rows by their keys, for values that a change table does not carry. Worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.columns.table import TableSchema
from tailrace.connectors.changetables.dialect import Dialect, KeyRange, ordering
from tailrace.connectors.changetables.log.sessions import Retries, borrowed
from tailrace.errors import ConnectionFailed, StatementCutOff, TailraceError
from tailrace.events.reselection import Found, Key, UnreadableRows

# The most parameters of a statement: SQL Server allows 2,100.
_MOST_PARAMETERS = 1000


@dataclass(frozen=True, slots=True)
class PresentRows:
    """Implements `tailrace.events.reselection.RereadRows`: the tables of a database as they are now.

    `dialect` holds the password: its repr is only its name. Lost connections are retried by `retries`.
    """

    dialect: Dialect
    database: str
    retries: Retries

    def of_keys(
        self, table: TableSchema, key: Sequence[str], keys: Sequence[Key], columns: Sequence[str]
    ) -> Iterator[Found]:
        if not ordering(table, key, self.dialect.unordered):
            raise UnreadableRows(f"cannot read {table.id} again by {', '.join(key)}, because of its type")
        names = list(dict.fromkeys((*key, *columns)))
        read = replace(table, columns=tuple(table.columns[table.index(name)] for name in names), key=tuple(key))
        left = {one: place for place, one in enumerate(keys)}
        most, failure = max(_MOST_PARAMETERS // len(key), 1), 0
        while left:
            wanted = list(left)[:most]
            try:
                with borrowed(self.dialect, self.database) as session:
                    for fetched in session.rows(read, KeyRange(tuple(key), keys=tuple(wanted))):
                        texts = zip(*(fetched[names.index(name)].to_pylist() for name in key), strict=True)
                        places = [left.pop(_text(one), -1) for one in texts]
                        rows = [row for row, place in enumerate(places) if place >= 0]
                        taken = pa.array(rows, pa.int64())
                        found = [fetched[names.index(name)].take(taken) for name in columns]
                        yield [places[row] for row in rows], found
            except StatementCutOff as error:
                raise UnreadableRows(f"cannot read {table.id} again: {error.message.rstrip('.')}") from None
            except ConnectionFailed as error:
                failure += 1
                self.retries.pause(failure, error)
                continue
            except TailraceError as error:
                raise UnreadableRows(f"cannot read {table.id} again: {error.message.rstrip('.')}") from None
            failure = 0
            for one in wanted:
                left.pop(one, None)


def _text(values: Sequence[bytes | None]) -> Key:
    """Return the texts of a key, which has no null, because rows are looked up by it."""
    return tuple((value or b"").decode() for value in values)
