"""Computation of a table's `Attributes` at a Relation message, from its earlier attributes and the catalog. No I/O.

The catalog is read after the log was written, so it may show facts that were not yet in effect at the message. A row of
the catalog is newer than the message if the transaction that wrote it (its xmin) is newer. The facts known before then
remain in effect. Transactions that write to a table and statements that alter it exclude each other, so one of the two
is wholly before the other.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tailrace.connectors.postgres.protocol.pgoutput import Relation, RelationColumn
from tailrace.connectors.postgres.schema.history import (
    UNKNOWN_FILE,
    Attributes,
    ColumnFacts,
    IndexFacts,
    Place,
    TypeFacts,
)

FIRST_USER_OID = 16384
"""Types with lower oids are built into every server; they never change."""

_XID_MASK = 0xFFFFFFFF
_FIRST_XID = 3
"""The first id of a transaction; rows of the server's initialization and frozen rows have lower ids."""

# The most bytes between the end of a record and the start of the next; altering a table writes more.
_GAP_BYTES = 64


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a change: its transaction's id (32 bits), commit LSN and end LSN (0: unknown), and its ordinal."""

    xid: int
    commit_lsn: int
    end_lsn: int
    ordinal: int

    @property
    def place(self) -> Place:
        return self.commit_lsn, self.ordinal


@dataclass(frozen=True, slots=True)
class PresentColumn:
    """A column as the catalog shows it, with its type and the xmins of its rows in pg_attribute and pg_attrdef."""

    facts: ColumnFacts
    type_oid: int
    modifier: int
    xmin: int
    default_xmin: int | None


@dataclass(frozen=True, slots=True)
class PresentIndex:
    facts: IndexFacts
    xmin: int


@dataclass(frozen=True, slots=True)
class PresentType:
    """A type as the catalog shows it, and the xmins of its row and of its labels' rows."""

    facts: TypeFacts
    xmin: int
    label_xmins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The catalog's state of one table, read when `next_xid` (64 bits) was the next transaction id.

    Everything in it was committed before `lsn`. A dropped table has no columns. `types` are the user-defined types that
    the table or the Relation message needs. `in_progress` are the ids (64 bits) below `next_xid` whose work is not
    included. `dropped` are the numbers of dropped columns, each with the id (32 bits) of the transaction that dropped
    it. `file` is as in `Attributes`. `xmin` is the id (32 bits) of the last transaction that wrote the table's row in
    pg_class, for example by rewriting the table.
    """

    next_xid: int
    lsn: int
    columns: tuple[PresentColumn, ...] = ()
    indexes: tuple[PresentIndex, ...] = ()
    types: dict[int, PresentType] = field(default_factory=dict)
    in_progress: frozenset[int] = frozenset()
    dropped: tuple[tuple[int, int], ...] = ()
    file: int = 0
    xmin: int = 0

    def shows(self, xid: int) -> bool:
        """Return True if the state includes the work of the committed transaction with the 32-bit id `xid`.

        The server sends a transaction's log before its commit is visible: for a moment, or as long as the commit waits
        for a synchronous standby.
        """
        full = _nearest(xid, self.next_xid)
        return full < self.next_xid and full not in self.in_progress


def _nearest(xid: int, to: int) -> int:
    """Return the 64-bit id of the 32-bit `xid`, at most 2^31 away from the id `to`."""
    ahead = (xid - to) & _XID_MASK
    return to + ahead - (0 if ahead < 1 << 31 else 1 << 32)


def is_after(xid: int, other: int) -> bool:
    """Return True if the 32-bit transaction id `xid` was assigned after `other`, less than 2^31 ids later."""
    return 0 < (xid - other) & _XID_MASK < 1 << 31


class _Judge:
    """Decides whether rows of the catalog are newer than a moment, and keeps the oldest transaction id of newer
    rows."""

    def __init__(self, present: CatalogState, at: Moment) -> None:
        self._next = present.next_xid
        self._at = _nearest(at.xid, present.next_xid)
        # True if nothing has been committed since the moment's own transaction
        self.nothing_since = at.end_lsn > 0 and present.lsn <= at.end_lsn + _GAP_BYTES
        self._held = 0

    def _full(self, xid: int) -> int:
        """Return the 64-bit id for the xmin of a row in the catalog: the newest assigned id with these 32 bits."""
        full = self._next & ~_XID_MASK | xid
        # an id of the previous epoch; a frozen row's raw id may be even older, but is long past either way
        return full - (1 << 32) if full >= self._next else full

    @property
    def held(self) -> int:
        """The oldest transaction id (32 bits) of a newer row; 0 if no row was newer."""
        return self._held & _XID_MASK

    def hold_all(self) -> None:
        """Count an unknown row as newer, with the newest assigned id."""
        self._held = self._held or self._next - 1

    def is_newer(self, xmin: int | None) -> bool:
        # ids below 3 are those of the server's own first rows and of frozen rows
        return xmin is not None and xmin >= 3 and not self.nothing_since and self._full(xmin) > self._at

    def is_own(self, xmin: int) -> bool:
        """Return True if the moment's own transaction wrote the row, before or after the moment."""
        full = self._full(xmin)
        # if nothing else has been committed since, a larger id belongs to one of its savepoints
        return xmin >= 3 and (full == self._at or (self.nothing_since and full > self._at))

    def may_be_later(self, xmin: int) -> bool:
        """Return True if the row was written after the moment, or by the moment's transaction at any time."""
        return self.is_newer(xmin) or self.is_own(xmin)

    def newer(self, xmin: int | None) -> bool:
        """Return `is_newer`, and count a newer row as held back."""
        if xmin is None or not self.is_newer(xmin):
            return False
        self._held = min(self._held or self._full(xmin), self._full(xmin))
        return True


def evolve(
    relation: Relation, older: Attributes | None, present: CatalogState, at: Moment, resent: bool
) -> tuple[Attributes, int]:
    """Return the attributes in effect at `at`, and the oldest transaction id (32 bits) whose work is not yet included,
    or 0.

    `older` are the attributes before the message. `resent` is True if the message was sent because the table has
    changed, and not because a session began.
    """
    judge = _Judge(present, at)
    known = {column.number: column for column in older.columns} if older else {}
    shown = {column.facts.number: column for column in present.columns}
    named = {column.name: number for number, column in known.items() if number > 0}
    numbers = _counted(relation.columns, named, present, judge)
    numbers = numbers or _numbers(relation.columns, named, known, present, judge)
    # With the default identity the flags mark the primary key; with other identities they say nothing about it.
    flagged = {column.name for column in relation.columns if column.flags & 1 and relation.replica_identity == "d"}
    columns = tuple(
        _column(sent, number, known.get(number), shown.get(number), sent.name in flagged, judge)
        for sent, number in zip(relation.columns, numbers, strict=True)
    )
    indexes = _indexes(older.indexes if older else (), present.indexes, judge, resent or judge.nothing_since)
    if relation.replica_identity == "d":
        indexes = _keyed(indexes, [column.number for column in columns if column.name in flagged])
    types = _types(relation, older.types if older else (), present.types, judge)
    # the catalog may already show the file of a later statement that changes a column's type
    is_past = not judge.may_be_later(present.xmin)
    # adding a column also writes the table's row; the column's row may be written again later, as by DROP EXPRESSION
    was_there = is_past and present.xmin >= _FIRST_XID
    there = [one.facts.number for one in present.columns if was_there or not judge.is_newer(one.xmin)]
    highest = max([*there, older.highest if older else 0], default=0)
    kinds = tuple(column.type_oid for column in relation.columns)
    file = present.file or (older.file if older else 0)
    written = older.written if older else 0
    for one in present.columns:
        if one.xmin >= _FIRST_XID and (not written or is_after(one.xmin, written)):
            written = one.xmin
    found = Attributes(columns, indexes, types, file, highest, kinds, file if is_past else UNKNOWN_FILE, written)
    if older is None:
        return found, judge.held
    other_types = retyped(older, found)
    # A default that is not constant, such as nextval, rewrites the table. A change of types also does: a new file that
    # an earlier message has shown may come from a change of types that is still ahead in the log.
    is_retyped_later = any(
        (shown[number].type_oid, shown[number].modifier) != (sent.type_oid, sent.type_modifier)
        for sent, number in zip(relation.columns, numbers, strict=True)
        if number in shown
    )
    before = older.past_file if older.past_file > 0 and not is_retyped_later else older.file
    is_anew = bool(before) and file != before and not other_types
    # No earlier file is known. A table's first file has the number of its oid, so another number means a rewrite.
    is_anew |= older.past_file == UNKNOWN_FILE and file not in (0, relation.relation_id) and not is_retyped_later
    columns = tuple(
        replace(one, filled=True, missing=None)
        if one.number not in known
        and ((is_anew and _came_with(one.number, present)) or 0 < one.number <= older.highest)
        else one
        for one in columns
    )
    past_file = file if is_past or other_types else older.past_file or older.file
    return replace(found, columns=columns, past_file=past_file), judge.held


def _came_with(number: int, present: CatalogState) -> bool:
    """Return True if the table's file may come from the statement that added the column.

    Return False if it comes from a later statement, such as TRUNCATE. The result is True if the table's row in pg_class
    was last written when this column, or later another column, was added or dropped.
    """
    added = next((one.xmin for one in present.columns if one.facts.number == number), 0)
    others = {one.xmin for one in present.columns} | {xmin for _, xmin in present.dropped}
    return not is_after(present.xmin, added) or present.xmin in others


def retyped(older: Attributes, newer: Attributes) -> list[str]:
    """Return the columns whose types have changed in a table that was rewritten."""
    file = older.past_file or older.file
    if not file or file == newer.file or not older.kinds:
        return []
    before = {column.number: kind for column, kind in zip(older.columns, older.kinds, strict=True)}
    return [
        column.name
        for column, kind in zip(newer.columns, newer.kinds, strict=True)
        if before.get(column.number, kind) != kind
    ]


def renumbered(older: Attributes, newer: Attributes) -> list[str]:
    """Return the sorted names that now belong to other columns, because names were swapped, or a column was
    recreated."""
    before = {column.name: column.number for column in older.columns}
    return sorted(
        column.name for column in newer.columns if 0 < column.number != before.get(column.name, column.number) > 0
    )


def rewritten(older: Attributes, newer: Attributes, present: CatalogState) -> list[str]:
    """Return the columns that may have other values of the same type since the table was rewritten.

    A statement that changes values (ALTER … TYPE … USING, or another precision) writes the column's row in pg_attribute
    and gives the table a new file. VACUUM FULL, CLUSTER and TRUNCATE do not write that row. The column counts if its
    row was written since `older`, or by the transaction that last wrote the table's row in pg_class: the catalog may
    have shown that row before the log.
    """
    file = older.past_file if older.past_file > 0 else older.file
    if not file or file == newer.file or not older.kinds:
        return []
    before = {column.number: kind for column, kind in zip(older.columns, older.kinds, strict=True)}
    xmins = {one.facts.number: one.xmin for one in present.columns}
    found = []
    for column, kind in zip(newer.columns, newer.kinds, strict=True):
        xmin = xmins.get(column.number, 0)
        if xmin < _FIRST_XID or before.get(column.number) != kind:
            continue
        if xmin == present.xmin or (older.written and is_after(xmin, older.written)):
            found.append(column.name)
    return found


def _counted(
    sent: Sequence[RelationColumn], named: Mapping[str, int], present: CatalogState, judge: _Judge
) -> list[int] | None:
    """Return the number of each column of a Relation message by counting; None if counting is not reliable.

    Columns get ascending numbers. The message's columns are therefore the first ones among the present columns and
    those dropped since. A column that the message's own transaction dropped, before or after the message, still existed
    if the message has its known name.

    Counting is not reliable in four cases: such a column may have existed under an unknown name; the numbers contradict
    names that existed already (a column is generated, or is not published); a column whose name was known would be
    missing; a number belongs to no column.
    """
    every = {column.facts.number for column in present.columns} | {number for number, _ in present.dropped}
    if every != set(range(1, len(every) + 1)):
        return None
    found = [column.facts.number for column in present.columns if not column.facts.generated]
    found += [number for number, xmin in present.dropped if judge.is_newer(xmin)]
    own = {number for number, xmin in present.dropped if judge.is_own(xmin)}
    still = own & {named[column.name] for column in sent if column.name in named}
    found = sorted([*found, *still])
    for number in own - still:
        place = bisect(found, number)
        if place < len(sent) and sent[place].name not in named:
            return None
    found = found[: len(sent)]
    names = {
        column.facts.number: column.facts.name
        for column in present.columns
        if not column.facts.generated and not judge.may_be_later(column.xmin)
    }
    if len(found) < len(sent) or not names.keys() <= set(found):
        return None
    if any(names.get(number, column.name) != column.name for number, column in zip(found, sent, strict=True)):
        return None
    # columns may have swapped names since, but none may be missing
    shown = set(names.values())
    still_there = {named[column.name] for column in sent if column.name in named and column.name not in shown}
    return found if still_there <= set(found) else None


def _numbers(
    sent: Sequence[RelationColumn],
    named: Mapping[str, int],
    known: Mapping[int, ColumnFacts],
    present: CatalogState,
    judge: _Judge,
) -> list[int]:
    """Return the number of each column of a Relation message: by name, else by the column's place between its
    neighbours."""
    now = {column.facts.name: column for column in present.columns}
    # numbers in the catalog that were valid at the moment are certain; a number known before may be a guess
    sure = {
        column.name: now[column.name].facts.number
        for column in sent
        if column.name in now
        and not judge.newer(now[column.name].xmin)
        and not (column.name in named and judge.is_own(now[column.name].xmin))
    }
    found = []
    for column in sent:
        before, after = named.get(column.name), now.get(column.name)
        if column.name in sure:
            found.append(sure[column.name])
        elif before is None and after is not None:
            found.append(after.facts.number)
        else:
            found.append(0 if before is None or before in sure.values() else before)
    # the message lists columns in the order of their numbers
    there = [column.facts for column in present.columns if not (column.facts.generated or _is_later(column, judge))]
    all_numbers = {
        *(column.number for column in (*known.values(), *there) if column.number > 0 and not column.generated),
        *(number for number, xmin in present.dropped if judge.is_newer(xmin) or judge.is_own(xmin)),
    }
    as_before = sorted(number for number in known if number > 0 and not known[number].generated)
    if (
        0 not in found
        and sorted(found) != found
        and len(as_before) == len(found)
        and all_numbers.issuperset(as_before)
        and all(sure.get(column.name, number) == number for column, number in zip(sent, as_before, strict=True))
    ):
        # columns have swapped names: if their count is the same, they are the same columns
        return as_before
    highest = 0
    for place, number in enumerate(found):
        found[place] = number if number > highest else 0
        highest = max(highest, number)
    for first, last in _gaps(found):
        low = max(found[first - 1], 0) if first else 0
        high = found[last] if last < len(found) else 1 << 16
        free = [number for number in sorted(all_numbers) if low < number < high]
        # an unknown column gets a negative number that no other column has
        found[first:last] = free if len(free) == last - first else [-1 - place for place in range(first, last)]
    return found


def _is_later(column: PresentColumn, judge: _Judge) -> bool:
    """Return True if a column was added after the moment; a renamed column has an older default."""
    return column.default_xmin is not None and judge.newer(column.xmin) and judge.newer(column.default_xmin)


def _gaps(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs `[first, last)` of zeros."""
    first = None
    for place, number in enumerate([*numbers, 1]):
        if not number and first is None:
            first = place
        elif number and first is not None:
            yield first, place
            first = None


def _column(
    sent: RelationColumn,
    number: int,
    known: ColumnFacts | None,
    shown: PresentColumn | None,
    in_primary_key: bool,
    judge: _Judge,
) -> ColumnFacts:
    if shown is None:
        # dropped since: use the facts known before, else the defaults
        found = known or ColumnFacts(number, sent.name)
        return replace(found, number=number, name=sent.name, nullable=found.nullable and not in_primary_key)
    altered = judge.newer(shown.xmin)
    facts = shown.facts
    nullable, default = facts.nullable, facts.default
    # For a column not seen before, the catalog is mostly right: few columns are altered again.
    if known is not None:
        if altered:
            nullable = known.nullable
        if judge.newer(shown.default_xmin) or (shown.default_xmin is None and altered):
            default = known.default
    # The value with which a column was added remains in effect until the table is rewritten.
    filled, missing = facts.filled, facts.missing
    if known is not None:
        filled, missing = known.filled or (known.generated and not facts.generated), known.missing
    return ColumnFacts(
        number, sent.name, nullable and not in_primary_key, default, facts.generated, facts.comment, filled, missing
    )


def _indexes(
    known: Sequence[IndexFacts], shown: Sequence[PresentIndex], judge: _Judge, without_gone: bool
) -> tuple[IndexFacts, ...]:
    """Return the unique indexes at the moment.

    The catalog does not show when an index was dropped. `without_gone` is True if that was before the moment: the
    message was sent because of a change, or nothing has been committed since. A primary key was dropped before the
    moment if the table had another one then.
    """
    before = {index.oid: index for index in known}
    present = {index.facts.oid: index for index in shown}
    found = {
        oid: index.facts if not judge.newer(index.xmin) else before[oid]
        for oid, index in present.items()
        if oid in before or not judge.newer(index.xmin)
    }
    has_primary = any(index.primary for index in found.values())
    gone = {oid: index for oid, index in before.items() if oid not in present and not (index.primary and has_primary)}
    if gone and not without_gone:
        found.update(gone)
        judge.hold_all()
    return tuple(sorted(found.values(), key=lambda index: index.oid))


def has_doubtful_key(attributes: Attributes, relation: Relation, present: CatalogState) -> bool:
    """Return True if the index of the table's key was dropped, and neither message nor catalog shows when.

    Return False if another index over the same columns exists, as after REINDEX CONCURRENTLY.
    """
    index = attributes.key_index()
    if index is None or not present.columns or (index.primary and relation.replica_identity == "d"):
        return False
    return all(set(one.facts.columns) != set(index.columns) for one in present.indexes)


def _keyed(indexes: tuple[IndexFacts, ...], flagged: Sequence[int]) -> tuple[IndexFacts, ...]:
    """Return `indexes` with the primary key that the message flags: a known index, else one in the order of the
    columns."""
    others = tuple(index for index in indexes if not index.primary)
    if not flagged:
        return others
    matching = [index for index in indexes if index.primary and set(index.columns) == set(flagged)]
    return (matching[-1] if matching else IndexFacts(0, True, tuple(flagged)), *others)


def _types(
    relation: Relation, known: Sequence[TypeFacts], shown: Mapping[int, PresentType], judge: _Judge
) -> tuple[TypeFacts, ...]:
    """Return the user-defined types of the message's columns, with their element and base types."""
    before = {kind.oid: kind for kind in known}
    found: dict[int, TypeFacts] = {}
    wanted = [column.type_oid for column in relation.columns]
    while wanted:
        oid = wanted.pop()
        if oid < FIRST_USER_OID or oid in found:
            continue
        kind = _type(before.get(oid), shown.get(oid), judge)
        if kind is not None:
            found[oid] = kind
            wanted += [kind.element, kind.base]
    return tuple(found[oid] for oid in sorted(found))


def _type(known: TypeFacts | None, shown: PresentType | None, judge: _Judge) -> TypeFacts | None:
    if shown is None:
        return known
    facts = known if known is not None and judge.newer(shown.xmin) else shown.facts
    before = dict(known.labels) if known is not None else {}
    labels = []
    for (oid, label), xmin in zip(shown.facts.labels, shown.label_xmins, strict=True):
        if not judge.newer(xmin):
            labels.append((oid, label))
        elif oid in before:
            labels.append((oid, before[oid]))
    return replace(facts, labels=tuple(labels))
