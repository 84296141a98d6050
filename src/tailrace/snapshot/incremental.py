"""IncrementalSnapshot: the state of an incremental snapshot. Part of the offset; immutable; no I/O.

Tables are read one after another, ordered by key, in chunks. The connector determines a table's key and where its
chunks end. Keys are kept as the server's text.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.snapshot.signals import ExecuteSnapshot, Finder

log = logging.getLogger("tailrace")

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """A table to read: the rows that satisfy the SQL condition `filter`, ordered by `surrogate` or by the key.

    `reread` is the id of the signal if the pipeline itself has sent it, else "".
    """

    schema: str
    table: str
    filter: str | None = None
    surrogate: str | None = None
    reread: str = ""

    def to_json(self) -> list[Any]:
        fields = [self.schema, self.table, self.filter, self.surrogate]
        return [*fields, self.reread] if self.reread else fields

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class UnusableTable(Exception):
    """A table that cannot be read in chunks; the argument is the status in its notification."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position in the first table: read through the row with key `last`, of the rows up to key `maximum`.

    `maximum` None: nothing of the table has been read yet. `rows` counts the rows read so far. `key` are the names of
    the columns of both keys; empty if unknown, as in offsets of earlier versions.
    """

    last: Key | None = None
    maximum: Key | None = None
    rows: int = 0
    key: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        last, maximum = (None if key is None else list(key) for key in (self.last, self.maximum))
        return [last, maximum, self.rows, *([list(self.key)] if self.key else [])]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Cursor:
        last, maximum, rows, *key = fields
        last, maximum = (None if one is None else tuple(one) for one in (last, maximum))
        return cls(last, maximum, rows, tuple(key[0]) if key else ())


def begun_anew(table: Collection) -> Cursor:
    """Return the position before the first row of a table whose key is another one than before, and warn of it."""
    log.warning("%s has another key than before: it is read again from its beginning", table)
    return Cursor()


def fitting(cursor: Cursor, table: Collection, key: Sequence[str]) -> Cursor:
    """Return the cursor of a table that is ordered by the columns `key`.

    If the table was ordered by other columns before, return the position before its first row: its rows stand in
    another order now.
    """
    if not cursor.maximum:
        return cursor
    is_same = cursor.key == tuple(key) if cursor.key else len(cursor.maximum) == len(key)
    return cursor if is_same else begun_anew(table)


@dataclass(frozen=True, slots=True)
class PausedTable:
    """A table that a user has paused, and the place at which its reading goes on."""

    collection: Collection
    cursor: Cursor

    def to_json(self) -> list[Any]:
        return [self.collection.to_json(), *self.cursor.to_json()]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> PausedTable:
        return cls(Collection(*fields[0]), Cursor.from_json(fields[1:]))


@dataclass(frozen=True, slots=True)
class Notification:
    """A message to the user about an `aggregate`, such as a snapshot: its `type`, and `data` as text.

    See "Notifications" in Debezium's documentation.
    """

    id: str
    aggregate: str
    type: str
    data: tuple[tuple[str, str], ...] = ()


INCREMENTAL, INITIAL = "Incremental Snapshot", "Initial Snapshot"


@dataclass(frozen=True, slots=True)
class IncrementalSnapshot:
    """A snapshot started by the signal `id`: `collections` are still to be read, the first one from `cursor` on.

    `begun` are other tables among them that were read in part before a user paused them.
    """

    id: str
    collections: tuple[Collection, ...]
    cursor: Cursor = field(default_factory=Cursor)
    paused: bool = False
    begun: tuple[PausedTable, ...] = ()

    @property
    def current(self) -> Collection:
        return self.collections[0]

    def added(self, signal: str, collections: Sequence[Collection]) -> IncrementalSnapshot:
        """Return the snapshot with further tables at the end. A table requested twice is read twice."""
        return replace(self, id=signal, collections=self.collections + tuple(collections))

    def without(self, entries: Sequence[str]) -> IncrementalSnapshot | None:
        """Return the snapshot without the tables that `entries` name; None if no table is left, or without entries."""
        names = [(collection.schema, collection.table) for collection in self.collections]
        finder = Finder(names)
        gone = {name for entry in entries for name in finder.named(entry)} if entries else set(names)
        return self.leaving(gone)

    def leaving(self, tables: set[tuple[str, str]]) -> IncrementalSnapshot | None:
        """Return the snapshot without `tables`, (schema, table); None if no table is left."""
        left = tuple(
            collection for collection in self.collections if (collection.schema, collection.table) not in tables
        )
        begun = tuple(
            paused for paused in self.begun if (paused.collection.schema, paused.collection.table) not in tables
        )
        kept = replace(self, begun=begun)
        if left and left[0] == self.current:
            return replace(kept, collections=left)
        return kept._beginning(left)

    def resumed(self, tables: Sequence[PausedTable]) -> IncrementalSnapshot:
        """Return the snapshot with paused tables at the end."""
        begun = (*self.begun, *(paused for paused in tables if paused.cursor != Cursor()))
        return replace(self, collections=(*self.collections, *(paused.collection for paused in tables)), begun=begun)

    @classmethod
    def of_held(cls, signal: str, tables: Sequence[PausedTable]) -> IncrementalSnapshot:
        """Return a snapshot with the id `signal` that goes on with paused tables."""
        first, *others = tables
        return cls(signal, (first.collection,), first.cursor).resumed(others)

    def held(self, tables: set[tuple[str, str]]) -> list[PausedTable]:
        """Return `tables`, (schema, table), with the places at which their reading goes on."""
        begun = [*self.begun, PausedTable(self.current, self.cursor)]
        found = []
        for collection in self.collections:
            if (collection.schema, collection.table) in tables:
                unread = PausedTable(collection, Cursor())
                found.append(next((paused for paused in reversed(begun) if paused.collection == collection), unread))
                # a table that was requested twice is read from its beginning the second time
                begun = [paused for paused in begun if paused.collection != collection]
        return found

    def _beginning(self, left: tuple[Collection, ...]) -> IncrementalSnapshot | None:
        """Return the snapshot of the tables `left`, at the place where the first one was paused or else at its
        beginning; None if no table is left."""
        if not left:
            return None
        unread = PausedTable(left[0], Cursor())
        place = next((paused for paused in self.begun if paused.collection == left[0]), unread)
        begun = tuple(paused for paused in self.begun if paused is not place)
        return replace(self, collections=left, cursor=place.cursor, begun=begun)

    def moved(self, cursor: Cursor) -> IncrementalSnapshot:
        return replace(self, cursor=cursor)

    def next_table(self) -> IncrementalSnapshot | None:
        """Return the snapshot after the first table has been read; None if it was the last one."""
        return self._beginning(self.collections[1:])

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "collections": [collection.to_json() for collection in self.collections],
            "id": self.id,
            "rows": self.cursor.rows,
        }
        if self.cursor.last is not None:
            fields["last"] = list(self.cursor.last)
        if self.cursor.maximum is not None:
            fields["maximum"] = list(self.cursor.maximum)
        if self.cursor.key:
            fields["key"] = list(self.cursor.key)
        if self.paused:
            fields["paused"] = True
        if self.begun:
            fields["begun"] = [paused.to_json() for paused in self.begun]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> IncrementalSnapshot:
        place = [fields.get("last"), fields.get("maximum"), fields["rows"], fields.get("key", ())]
        return cls(
            fields["id"],
            tuple(Collection(*parts) for parts in fields["collections"]),
            Cursor.from_json(place),
            fields.get("paused", False),
            tuple(map(PausedTable.from_json, fields.get("begun", ()))),
        )


def requested(action: ExecuteSnapshot, tables: Sequence[tuple[str, str]]) -> list[Collection]:
    """Return the requested tables, each with the first condition that names it. Raises MalformedSignal."""
    finder = Finder(tables)
    conditions: dict[tuple[str, str], str] = {}
    for entry, sql in action.conditions:
        for table in finder.named(entry):
            conditions.setdefault(table, sql)
    return [Collection(*table, conditions.get(table), action.surrogate) for table in tables]


class Notifications:
    """The notifications of one connector, with the contents that Debezium gives them."""

    def __init__(self, connector: str) -> None:
        self._connector = connector

    def of(self, signal: str, kind: str, aggregate: str = INCREMENTAL, **data: str) -> Notification:
        named = (("connector_name", self._connector), *data.items())
        return Notification(signal, aggregate, kind, named)

    def listing(self, snapshot: IncrementalSnapshot, kind: str) -> Notification:
        """Return STARTED, PAUSED or RESUMED, with the tables to be read."""
        return self.of(snapshot.id, kind, data_collections=_names(snapshot))

    def stopped(self, snapshot: IncrementalSnapshot, gone: Sequence[Collection] = ()) -> Notification:
        """Return ABORTED: for the whole snapshot, or for the tables `gone` if the rest goes on."""
        named = {"data_collections": ",".join(map(str, gone))} if gone else {}
        return self.of(snapshot.id, "ABORTED", **named)

    def progress(self, snapshot: IncrementalSnapshot, shown: tuple[Key, Key] | None = None) -> Notification:
        """Return IN_PROGRESS: the table being read, the last key and the maximum key.

        `shown` are the two keys in another form than the cursor's.
        """
        last, maximum = shown or (snapshot.cursor.last, snapshot.cursor.maximum)
        return self.of(
            snapshot.id,
            "IN_PROGRESS",
            data_collections=_names(snapshot),
            current_collection_in_progress=str(snapshot.current),
            maximum_key=_shown(maximum),
            last_processed_key=_shown(last),
        )

    def scanned(self, snapshot: IncrementalSnapshot, status: str) -> Notification:
        """Return TABLE_SCAN_COMPLETED of the first table."""
        return self.of(
            snapshot.id,
            "TABLE_SCAN_COMPLETED",
            data_collections=_names(snapshot),
            scanned_collection=str(snapshot.current),
            total_rows_scanned=str(snapshot.cursor.rows),
            status=status,
        )


class InitialNotifications:
    """The notifications about a connector's initial snapshot, each with its own id, as in Debezium."""

    def __init__(self, connector: str) -> None:
        self._connector = connector

    def of(self, kind: str, **data: str) -> Notification:
        """Return STARTED, COMPLETED, ABORTED (it failed) or SKIPPED (the mode has none, or it was taken before)."""
        return Notification(str(uuid.uuid4()), INITIAL, kind, (("connector_name", self._connector), *data.items()))

    def begun(self, tables: Sequence[tuple[str, str]], current: tuple[str, str]) -> Notification:
        """Return IN_PROGRESS: the table `current` of the snapshot's `tables`, `(schema, table)`, is read next."""
        return self.of(
            "IN_PROGRESS", data_collections=_listed(tables), current_collection_in_progress=".".join(current)
        )

    def scanned(
        self, tables: Sequence[tuple[str, str]], current: tuple[str, str], rows: int, status: str = "SUCCEEDED"
    ) -> Notification:
        """Return TABLE_SCAN_COMPLETED: all `rows` rows of `current` were read; 0 and SUCCEEDED for an empty table."""
        return self.of(
            "TABLE_SCAN_COMPLETED",
            data_collections=_listed(tables),
            scanned_collection=".".join(current),
            total_rows_scanned=str(rows),
            status=status,
        )


def _listed(tables: Sequence[tuple[str, str]]) -> str:
    return ",".join(".".join(table) for table in tables)


def _names(snapshot: IncrementalSnapshot) -> str:
    return ",".join(str(collection) for collection in snapshot.collections)


def _shown(key: Key | None) -> str:
    return ",".join(key or ())
