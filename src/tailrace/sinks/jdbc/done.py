"""Progress within a batch, stored in a table of the target database in the transaction that writes the rows. Driver.

A crash between the commit of rows and the commit of the checkpoint leads to a replay of the batch. A connection that is
lost during a commit leaves its outcome unknown. In both cases the table shows which records have been written.

A further row, whose `query` begins with `marks of`, has the mark of the records up to the same place in `changes`. A
replay under another configuration, or of another batch with this number, has other records there.

Further rows of the table map each table of the target to the name at the source of the rows in it. Their `query` is
JSON: the query, the name at the target, the name at the source.

Further rows, whose `query` begins with `handed`, store the keys that are handed on, as `HandedKeys` describes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailrace.errors import SinkError

if TYPE_CHECKING:
    import psycopg

NAME = "tailrace_batches"
MADE = f"create table {NAME} (query text primary key, batch bigint, records bigint, changes bigint)"
"""The statement that creates the table."""

FORM = 1
"""The version of the table and its content; later versions are refused. A table without a comment has the version 1."""

_MARK = f"comment on table {NAME} is 'tailrace form {FORM}'"
_FORM_OF = "select substring(obj_description(to_regclass(%s), 'pg_class') from '^tailrace form (\\d+)$')"
_FIND = (
    "select there.batch, there.records, there.changes, marks.changes from tailrace_batches there "
    "left join tailrace_batches marks on marks.query = 'marks of ' || there.query "
    "and marks.batch = there.batch and marks.records = there.records where there.query = %s"
)
_KEEP = (
    "insert into tailrace_batches (query, batch, records, changes) "
    "values (%s, %s, %s, %s), ('marks of ' || %s, %s, %s, %s) on conflict (query) "
    "do update set batch = excluded.batch, records = excluded.records, changes = excluded.changes"
)
_NAMES = "select query from tailrace_batches where left(query, %s::int) = %s"
_NAME = "insert into tailrace_batches (query) values (%s) on conflict do nothing"
_HANDED = "select batch, query from tailrace_batches where left(query, %s::int) = %s"
_HAND = (
    "insert into tailrace_batches (query, batch) values (%s, %s) "
    "on conflict (query) do update set batch = excluded.batch"
)
_DROP = "delete from tailrace_batches where query = %s"

Texts = Sequence[str | None]
"""The values of a key."""

Entry = tuple[str | None, ...]

Names = Mapping[tuple[str, ...], tuple[str, ...]]
"""The name at the source of each name at the target, both in parts."""


@dataclass(frozen=True, slots=True, order=True)
class BatchPlace:
    """A place in a batch: the numbers of records and of changes before it; snapshot rows are not changes.

    A replayed batch has the same changes, but may have other snapshot rows. `mark` is computed from the identities of
    the records before the place; None if an earlier version has stored the place.
    """

    records: int = 0
    changes: int = 0
    mark: int | None = field(default=0, compare=False)

    def after(self, record: Mapping[str, Any]) -> BatchPlace:
        """Return the place after a record, the next one of the batch."""
        who = f"{record['op']}\0{record['topic']}\0{record['position']}\0{record['ordinal']}"
        is_change = record["op"] != "r"
        return BatchPlace(self.records + 1, self.changes + is_change, zlib.crc32(who.encode(), self.mark or 0))


class HandedKeys:
    """Keys that a row got while another row had them, in a transaction whose end alone has each key once.

    The next delete of such a key in the transaction means the row that was there first, whose place the newer row has
    taken: it removes nothing. `_expected` counts these deletes by transaction and key. `_passed` has those that came,
    by their changes, with one more than the number of their batch, since a repeat of the batch must pass them
    again.
    """

    def __init__(self) -> None:
        self._expected: dict[Entry, int] = {}
        self._passed: dict[Entry, int] = {}
        self._before: dict[Entry, int] = {}
        """The numbers, before this transaction in the target, of the entries that it changes; 0 for new ones."""

    def expect(self, transaction: str, table: Sequence[str], key: Texts) -> None:
        """Note that a row gets a key that another row has."""
        entry = "key", transaction, *table, None, *key
        self._set(self._expected, entry, self._expected.get(entry, 0) + 1)

    def has_passed(self, position: str, ordinal: int, batch: int) -> bool:
        """Return True if a change was a delete of a row whose place a newer row has taken."""
        return self._passed.get(("change", position, str(ordinal))) == batch + 1

    def passes(self, transaction: str, table: Sequence[str], key: Texts, change: tuple[str, int], batch: int) -> bool:
        """Return True if a delete means a row whose place a newer row has taken."""
        entry = "key", transaction, *table, None, *key
        if entry not in self._expected:
            return False
        self._set(self._expected, entry, self._expected[entry] - 1)
        self._set(self._passed, ("change", change[0], str(change[1])), batch + 1)
        return True

    def drop_others(self, newest: Mapping[tuple[str, ...], str], batch: int) -> None:
        """Drop what no record needs any more. `newest` has the newest transaction of each table that was written."""
        for entry in [*self._expected]:
            table = tuple(str(part) for part in entry[2 : entry.index(None)])
            if newest.get(table, entry[1]) != entry[1]:
                self._set(self._expected, entry, 0)
        if next(iter(self._passed.values()), batch + 1) != batch + 1:
            for entry in [entry for entry, of in self._passed.items() if of != batch + 1]:
                self._set(self._passed, entry, 0)

    def changes(self) -> dict[str, int]:
        """Return the entries that have changed, as texts for `add`, with their numbers; 0 for those that are gone."""
        now = self._expected | self._passed if self._before else {}
        return {json.dumps(entry, ensure_ascii=False): now.get(entry, 0) for entry in self._before}

    def committed(self) -> None:
        self._before.clear()

    def rolled_back(self) -> None:
        for entry, number in [*self._before.items()]:
            self._set(self._of(entry), entry, number)
        self._before.clear()

    def add(self, text: str, number: int) -> None:
        """Add an entry that the database has."""
        entry = tuple(json.loads(text))
        self._of(entry)[entry] = number

    def _of(self, entry: Entry) -> dict[Entry, int]:
        return self._expected if entry[0] == "key" else self._passed

    def _set(self, entries: dict[Entry, int], entry: Entry, number: int) -> None:
        self._before.setdefault(entry, entries.get(entry, 0))
        if number:
            entries[entry] = number
        else:
            entries.pop(entry, None)


class BatchProgress:
    """The progress of a query's newest batch in the database. `is_kept` is False without the table."""

    def __init__(self) -> None:
        self._query, self.batch = "", -1
        self.is_kept = False
        self.handed = HandedKeys()

    def open(self, connection: psycopg.Connection[Any]) -> None:
        """Create the table if it does not exist.

        Raises psycopg.Error if that is not allowed, and SinkError for the table of a newer version.
        """
        found = connection.execute("select to_regclass(%s) is not null", [NAME]).fetchone()
        if not (found and found[0]):
            connection.execute(MADE.encode())
            connection.execute(_MARK.encode())
        marked = connection.execute(_FORM_OF, [NAME]).fetchone()
        form = int(marked[0] or FORM) if marked else FORM
        if form > FORM:
            raise SinkError(
                f"A newer tailrace has written the table {NAME} of the target: it has the form {form}, and this "
                f"version reads the form {FORM}.",
                "Install the newer version again.",
            )
        connection.execute(_FIND, [""])
        connection.commit()
        self.is_kept = True

    def begin(self, connection: psycopg.Connection[Any], query: str, batch: int) -> BatchPlace | None:
        """Begin a batch. Return the place up to which it is in the database; None if no part of it is."""
        self._query, self.batch = query, batch
        if not self.is_kept:
            return None
        row = connection.execute(_FIND, [query]).fetchone()
        begun = _handed(query, "")
        self.handed = HandedKeys()
        for number, text in connection.execute(_HANDED, [len(begun), begun]).fetchall():
            self.handed.add(text.removeprefix(begun), number)
        connection.commit()
        return BatchPlace(row[1], row[2], row[3]) if row and row[0] == batch else None

    def names(self, connection: psycopg.Connection[Any], query: str) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Return the names that earlier runs of a query have stored."""
        if not self.is_kept:
            return {}
        begun = _entry(query).removesuffix("]") + ","
        rows = connection.execute(_NAMES, [len(begun), begun]).fetchall()
        connection.commit()
        found = (json.loads(row[0]) for row in rows)
        return {tuple(target): tuple(source) for _, target, source in found}

    def keep_names(self, connection: psycopg.Connection[Any], query: str, names: Names) -> None:
        """Store the names at the source of further tables."""
        if self.is_kept:
            for target, source in names.items():
                connection.execute(_NAME, [_entry(query, target, source)])
            connection.commit()

    def keep(self, cursor: psycopg.Cursor[Any], place: BatchPlace) -> None:
        """Record, in the transaction that writes them, that the records up to `place` are written."""
        if self.is_kept:
            stored = [self._query, self.batch, place.records]
            cursor.execute(_KEEP, [*stored, place.changes, *stored, place.mark])

    def keep_handed(self, cursor: psycopg.Cursor[Any], newest: Mapping[tuple[str, ...], str]) -> None:
        """Store the keys that are handed on. `newest` has the newest transaction of each table that was written."""
        self.handed.drop_others(newest, self.batch)
        changes = self.handed.changes() if self.is_kept else {}
        if gone := [[_handed(self._query, text)] for text, number in changes.items() if not number]:
            cursor.executemany(_DROP, gone)
        if put := [[_handed(self._query, text), number] for text, number in changes.items() if number]:
            cursor.executemany(_HAND, put)


def _handed(query: str, text: str) -> str:
    return f"handed {_entry(query)}{text}"


def _entry(query: str, *names: tuple[str, ...]) -> str:
    return json.dumps([query, *names], ensure_ascii=False)


def forgetting(query: str, target: tuple[str, ...], source: tuple[str, ...]) -> str:
    """Return the statement that removes a name."""
    text = _entry(query, target, source).replace("'", "''")
    return f"delete from {NAME} where query = '{text}'"
