"""History of the captured tables: the facts that the log does not carry, at each position of the log. Planner.

A Relation message has a table's columns, their types and its replica identity at the message's position. The rest
(nullability, defaults, keys, the structure of types) is an `Attributes`. It comes from the start of the query or from
the catalog, changes with Relation messages, and is kept in the offset. A restart, a replay, and a reader far behind
therefore find the same schemas as the first reading.
"""

from __future__ import annotations

import base64
import functools
import json
import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.connectors.postgres.protocol.position import LogPosition, lsn_text, lsn_value

# A history of this many characters or more is compressed in the offset.
_COMPRESS_FROM = 400

Place = tuple[int, int]
"""The place of a Relation message: the commit LSN of its transaction, and the ordinal of the change after it."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column by its number in the table (below 0: unknown), with the properties that pgoutput does not send.

    `filled` is True if rows older than the column may have a value there, whatever its default is now. `missing` is the
    value that all these rows have, as the server writes it; None if it is unknown.
    """

    number: int
    name: str
    nullable: bool = True
    default: str | None = None
    generated: bool = False
    comment: str | None = None
    filled: bool = False
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """A unique index over all rows, by its oid, with the numbers of its columns in the index's order.

    `clustered` is True if the table is clustered on it. Among several indexes the name decides.
    """

    oid: int
    primary: bool
    columns: tuple[int, ...]
    clustered: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type that a user made, as pg_type has it; `labels` are those of an enum in order, each with its oid."""

    oid: int
    name: str
    kind: str
    category: str
    element: int
    base: int
    base_modifier: int
    refuses_null: bool
    labels: tuple[tuple[int, str], ...] = ()


UNKNOWN_FILE = -1


@dataclass(frozen=True, slots=True)
class Attributes:
    """The properties of a table that a Relation message does not have, in effect from some position on.

    `file` is the number of the file with its rows (pg_class.relfilenode), which changes when the table is rewritten; 0
    if it has none, or if it is unknown. `highest` is the highest column number that the table has had: a column that
    arrives with a lower number existed before, unpublished. `kinds` are the oids of the columns' types, empty if they
    are unknown.

    The catalog shows the present, so `file` may come from a statement that the log has not brought yet. `past_file` is
    the newest file that the catalog has shown while no such statement could have made it; UNKNOWN_FILE if there is
    none, and 0 if it equals `file`. `written` is the newest id (32 bits) of a transaction that has written a column's
    row in pg_attribute; 0 if it is unknown.
    """

    columns: tuple[ColumnFacts, ...]
    indexes: tuple[IndexFacts, ...] = ()
    types: tuple[TypeFacts, ...] = ()
    file: int = 0
    highest: int = 0
    kinds: tuple[int, ...] = ()
    past_file: int = 0
    written: int = 0

    def key(self) -> tuple[str, ...]:
        """Return the columns of the primary key, else of the unique index on which the table is clustered, else of the
        first unique index by name.

        Return () if there is no such index, or if the log lacks one of its columns.
        """
        index = self.key_index()
        if index is None:
            return ()
        by_number = {column.number: column.name for column in self.columns}
        names = tuple(by_number[number] for number in index.columns if number in by_number)
        return names if len(names) == len(index.columns) else ()

    def key_index(self) -> IndexFacts | None:
        """Return the index whose columns are the key; None if there is no unique index."""
        return min(self.indexes, key=_precedence, default=None)

    def to_json(self) -> list[Any]:
        return [
            [_column_json(column) for column in self.columns],
            [[i.oid, i.primary + 2 * i.clustered, i.name, *i.columns] for i in self.indexes],
            [
                [
                    kind.oid, kind.name, kind.kind, kind.category, kind.element, kind.base, kind.base_modifier,
                    int(kind.refuses_null), [list(label) for label in kind.labels],
                ]
                for kind in self.types
            ],
            *([self.file, self.highest, list(self.kinds), self.past_file] if self.file or self.highest else []),
            # only if known: Spark compares offsets of earlier versions by their text
            *([self.written] if self.written and (self.file or self.highest) else []),
        ]  # fmt: skip

    @classmethod
    def from_json(cls, fields: list[Any]) -> Attributes:
        # offsets of earlier versions have no file, or no past file
        columns, indexes, types, *rest = fields
        file, highest, kinds, *past = rest or (0, 0, ())
        return cls(
            tuple(_column(*column) for column in columns),
            tuple(
                IndexFacts(oid, bool(flags & 1), tuple(numbers), bool(flags & 2), name)
                for oid, flags, name, *numbers in indexes
            ),
            tuple(
                TypeFacts(oid, name, kind, category, element, base, modifier, bool(refuses), tuple(map(tuple, labels)))
                for oid, name, kind, category, element, base, modifier, refuses, labels in types
            ),
            file,
            highest,
            tuple(kinds),
            *past,
        )


def _precedence(index: IndexFacts) -> tuple[bool, bool, str, int]:
    return not index.primary, not index.clustered, index.name, index.oid


def _column_json(column: ColumnFacts) -> list[Any]:
    fields: list[Any] = [
        column.number, column.name,
        int(not column.nullable) + 2 * column.generated + 4 * column.filled, column.default, column.comment,
        column.missing,
    ]  # fmt: skip
    while fields[-1] in (None, 0) and len(fields) > 2:
        fields.pop()
    return fields


def _column(
    number: int,
    name: str,
    flags: int = 0,
    default: str | None = None,
    comment: str | None = None,
    missing: str | None = None,
) -> ColumnFacts:
    return ColumnFacts(number, name, not flags & 1, default, bool(flags & 2), comment, bool(flags & 4), missing)


@dataclass(frozen=True, slots=True)
class Change:
    """`attributes` of the table `oid` are in effect from `at` on."""

    at: Place
    oid: int
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The history in an offset: every known table at the offset's position, and the changes of its batch.

    A replay of the batch uses these changes, whatever the catalog shows by then.
    """

    tables: tuple[tuple[int, Attributes], ...] = ()
    changes: tuple[Change, ...] = ()

    def to_text(self) -> str:
        """Return a deterministic text: JSON or, if it is long, `z:` and the compressed JSON in base 64."""
        return _to_text(self)

    @classmethod
    def from_text(cls, text: str) -> StoredHistory:
        return _from_text(text)


NOTHING = StoredHistory()


# Cached, because the same few histories are written and read for every batch.
@functools.lru_cache(maxsize=16)
def _to_text(history: StoredHistory) -> str:
    fields = {
        "changes": [[lsn_text(c.at[0]), c.at[1], c.oid, c.attributes.to_json()] for c in history.changes],
        "tables": [[oid, attributes.to_json()] for oid, attributes in history.tables],
    }
    return packed(fields)


def packed(fields: Any) -> str:
    """Return a deterministic text for an offset: JSON, compressed from _COMPRESS_FROM characters on."""
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    if len(text) < _COMPRESS_FROM:
        return text
    return "z:" + base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def unpacked(text: str) -> Any:
    """Return the fields from which `packed` made the text."""
    if text.startswith("z:"):
        text = zlib.decompress(base64.b64decode(text[2:])).decode()
    return json.loads(text)


@functools.lru_cache(maxsize=16)
def _from_text(text: str) -> StoredHistory:
    fields = unpacked(text)
    return StoredHistory(
        tuple((oid, Attributes.from_json(found)) for oid, found in fields["tables"]),
        tuple(
            Change((lsn_value(commit), ordinal), oid, Attributes.from_json(found))
            for commit, ordinal, oid, found in fields["changes"]
        ),
    )


def is_reached(at: Place, position: LogPosition) -> bool:
    """Return True if the change that follows a Relation message at `at` has been read at `position`."""
    commit, ordinal = at
    if commit != position.commit_lsn:
        return commit < position.commit_lsn
    return position.consumed is None or ordinal < position.consumed


class SchemaHistory:
    """The history of one query while its log is read. The reader's thread adds to it, the planner's thread reads it.

    `start` is the position of `history.tables`. `replayed` is the history and position at the end of a batch that was
    already planned: the schemas up to that position are final.
    """

    def __init__(
        self, history: StoredHistory, start: LogPosition, replayed: tuple[StoredHistory, LogPosition] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._tables: dict[int, Attributes] = dict(history.tables)
        self._changes: list[Change] = []
        self._decided: dict[int, Place] = {}
        # added since `keep`: the changes, and the place up to which each of their tables was decided before
        self._added: list[Change] = []
        self._decided_before: dict[int, Place | None] = {}
        self._final = start
        if replayed is not None:
            before, self._final = replayed
            self._changes.extend(before.changes)

    def at(self, oid: int, place: Place) -> Attributes | None:
        """Return the attributes in effect for the table at `place`; None if nothing is known about it."""
        with self._lock:
            found = self._tables.get(oid)
            for change in self._changes:
                if change.oid == oid and change.at <= place:
                    found = change.attributes
            return found

    def is_decided(self, oid: int, place: Place) -> bool:
        """Return True if the result of `at` is final for `place`, because the message there has been seen before."""
        known = self._decided.get(oid, (0, -1)) >= place or is_reached(place, self._final)
        return known and self.at(oid, place) is not None

    def add(self, oid: int, place: Place, attributes: Attributes) -> None:
        """Add the attributes computed for a Relation message, which must come after all messages added before."""
        before = self.at(oid, place)
        with self._lock:
            self._decided_before.setdefault(oid, self._decided.get(oid))
            self._decided[oid] = max(place, self._decided.get(oid, place))
            if before != attributes:
                self._added.append(Change(place, oid, attributes))
                self._changes.append(self._added[-1])

    def keep(self) -> None:
        """Make the additions permanent: the changes after their Relation messages are kept, too, so batches may end
        there."""
        with self._lock:
            self._added, self._decided_before = [], {}

    def discard(self) -> None:
        """Remove the additions since `keep`."""
        with self._lock:
            added = set(map(id, self._added))
            self._changes = [change for change in self._changes if id(change) not in added]
            for oid, place in self._decided_before.items():
                if place is None:
                    del self._decided[oid]
                else:
                    self._decided[oid] = place
            self._added, self._decided_before = [], {}

    def upto(self, start: LogPosition, end: LogPosition) -> StoredHistory:
        """Return the history for the offset of a batch `(start, end]`."""
        with self._lock:
            reached = [change for change in self._changes if is_reached(change.at, end)]
            return StoredHistory(
                _sorted(_applied(self._tables, reached)),
                tuple(change for change in reached if not is_reached(change.at, start)),
            )

    def forget(self, position: LogPosition) -> None:
        """Forget the changes up to the committed `position`: nothing before it will be asked for again."""
        with self._lock:
            old = [change for change in self._changes if is_reached(change.at, position)]
            if old:
                self._tables = _applied(self._tables, old)
                self._changes = [change for change in self._changes if not is_reached(change.at, position)]


def _applied(tables: Mapping[int, Attributes], changes: Iterable[Change]) -> dict[int, Attributes]:
    found = dict(tables)
    for change in changes:
        found[change.oid] = change.attributes
    return found


def _sorted(tables: Mapping[int, Attributes]) -> tuple[tuple[int, Attributes], ...]:
    return tuple(sorted(tables.items(), key=lambda entry: entry[0]))
