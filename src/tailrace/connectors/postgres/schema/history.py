"""SchemaHistory: what the log does not say of the captured tables, at each position of the log. Planner.

A Relation message has a table's columns, their types and its identity as of the position at which it stands. The
rest (nullability, defaults, keys, the structure of types) is an `Attributes`. It is known from the start of the query
or from the catalog, changes with Relation messages, and travels in the offset, so that a restart, a replay and a
reader far behind find the same schemas as the first reading did.
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

# From this many characters on the offset holds the history compressed.
_COMPRESS_FROM = 400

Place = tuple[int, int]
"""Where a Relation message stands: the commit LSN of its transaction, and the ordinal of the change after it."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column by its number in the table (below 0: not known), with the properties that pgoutput does not send.

    `filled` says that rows which are older than the column may have a value there, whatever its default is now;
    `missing` is the value that they all have, as the server writes it, None where nobody knows one.
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
    """A unique index over whole rows, by its oid, with the numbers of its columns in its own order.

    `clustered` says that the table is clustered on it. Its name decides among several.
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

    `file` is the number of the file that has its rows (pg_class.relfilenode), which is another one when the table was
    written anew; 0 where it has none, or where that is not known. `highest` is the highest number of a column that the
    table has had: one that comes with a lower number was there before, unpublished. `kinds` are the oids of the
    columns' types, empty where they are not known.

    The catalog shows the present, so `file` may be that of a statement that the log has not brought yet. `past_file` is
    the newest file that the catalog has shown when no such statement could have made it: UNKNOWN_FILE where there is
    none, and 0 where it is `file`.
    """

    columns: tuple[ColumnFacts, ...]
    indexes: tuple[IndexFacts, ...] = ()
    types: tuple[TypeFacts, ...] = ()
    file: int = 0
    highest: int = 0
    kinds: tuple[int, ...] = ()
    past_file: int = 0

    def key(self) -> tuple[str, ...]:
        """The columns of the primary key, else of the unique index that the table is clustered on or that comes first
        by name; none where there is no such index, or the log does not have all of its columns.
        """
        if not self.indexes:
            return ()
        by_number = {column.number: column.name for column in self.columns}
        index = min(self.indexes, key=lambda index: (not index.primary, not index.clustered, index.name, index.oid))
        names = tuple(by_number[number] for number in index.columns if number in by_number)
        return names if len(names) == len(index.columns) else ()

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
class History:
    """The history as an offset holds it: every known table at the offset's position, and the changes of its batch.

    The changes serve the batch's replay: it takes them as they were found, whatever the catalog says by then.
    """

    tables: tuple[tuple[int, Attributes], ...] = ()
    changes: tuple[Change, ...] = ()

    def to_text(self) -> str:
        """Deterministic text: JSON, or `z:` and its compressed form in base 64 where that is shorter."""
        return _to_text(self)

    @classmethod
    def from_text(cls, text: str) -> History:
        return _from_text(text)


NOTHING = History()


# The same few histories are written and read for every batch.
@functools.lru_cache(maxsize=16)
def _to_text(history: History) -> str:
    fields = {
        "changes": [[lsn_text(c.at[0]), c.at[1], c.oid, c.attributes.to_json()] for c in history.changes],
        "tables": [[oid, attributes.to_json()] for oid, attributes in history.tables],
    }
    return packed(fields)


def packed(fields: Any) -> str:
    """What an offset holds of much: deterministic text of JSON, compressed where that is shorter."""
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    if len(text) < _COMPRESS_FROM:
        return text
    return "z:" + base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def unpacked(text: str) -> Any:
    """What `packed` made a text of."""
    if text.startswith("z:"):
        text = zlib.decompress(base64.b64decode(text[2:])).decode()
    return json.loads(text)


@functools.lru_cache(maxsize=16)
def _from_text(text: str) -> History:
    fields = unpacked(text)
    return History(
        tuple((oid, Attributes.from_json(found)) for oid, found in fields["tables"]),
        tuple(
            Change((lsn_value(commit), ordinal), oid, Attributes.from_json(found))
            for commit, ordinal, oid, found in fields["changes"]
        ),
    )


def is_reached(at: Place, position: LogPosition) -> bool:
    """Whether the change that follows a Relation message at `at` lies within what has been read to `position`."""
    commit, ordinal = at
    if commit != position.commit_lsn:
        return commit < position.commit_lsn
    return position.consumed is None or ordinal < position.consumed


class SchemaHistory:
    """The history of one query while its log is read. The reader's thread adds to it, the planner's takes from it.

    `start` is the position that `history.tables` belong to. With `replayed`, the history and position of the end of a
    batch that is planned already, nothing up to that position is decided anew.
    """

    def __init__(
        self, history: History, start: LogPosition, replayed: tuple[History, LogPosition] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._tables: dict[int, Attributes] = dict(history.tables)
        self._changes: list[Change] = []
        self._decided: dict[int, Place] = {}
        # what was added and not kept: the changes, and where each table was decided before them
        self._added: list[Change] = []
        self._decided_before: dict[int, Place | None] = {}
        self._final = start
        if replayed is not None:
            before, self._final = replayed
            self._changes.extend(before.changes)

    def at(self, oid: int, place: Place) -> Attributes | None:
        """What was in effect for the table at `place`; None when nothing is known of it."""
        with self._lock:
            found = self._tables.get(oid)
            for change in self._changes:
                if change.oid == oid and change.at <= place:
                    found = change.attributes
            return found

    def is_decided(self, oid: int, place: Place) -> bool:
        """Whether `at` is the last word for `place`: the message there has been seen before."""
        known = self._decided.get(oid, (0, -1)) >= place or is_reached(place, self._final)
        return known and self.at(oid, place) is not None

    def add(self, oid: int, place: Place, attributes: Attributes) -> None:
        """The attributes that were found for a Relation message, which comes after all that were added before."""
        before = self.at(oid, place)
        with self._lock:
            self._decided_before.setdefault(oid, self._decided.get(oid))
            self._decided[oid] = max(place, self._decided.get(oid, place))
            if before != attributes:
                self._added.append(Change(place, oid, attributes))
                self._changes.append(self._added[-1])

    def keep(self) -> None:
        """What follows the messages for which something was added is kept, too. No batch can end there before."""
        with self._lock:
            self._added, self._decided_before = [], {}

    def discard(self) -> None:
        """Take back what was added since `keep`."""
        with self._lock:
            added = set(map(id, self._added))
            self._changes = [change for change in self._changes if id(change) not in added]
            for oid, place in self._decided_before.items():
                if place is None:
                    del self._decided[oid]
                else:
                    self._decided[oid] = place
            self._added, self._decided_before = [], {}

    def upto(self, start: LogPosition, end: LogPosition) -> History:
        """The history for the offset of a batch `(start, end]`."""
        with self._lock:
            reached = [change for change in self._changes if is_reached(change.at, end)]
            return History(
                _sorted(_applied(self._tables, reached)),
                tuple(change for change in reached if not is_reached(change.at, start)),
            )

    def forget(self, position: LogPosition) -> None:
        """Nothing before `position`, which is committed, will be asked for again."""
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
