"""Tables of a simulated PostgreSQL with all their past states: row versions, and versions of the catalog.

They follow from the records of the log alone, so that they can be rebuilt after a server loses the end of its log.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.simulation import log
from tests.simulation.log import UNCHANGED, Change, Record

Value = str | None
KEY, TEXT = 1, 25
"""The number of the key column, and its type."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; older rows have its default. `xmin` and `default_xmin` are those of its rows in pg_attribute and
    pg_attrdef."""

    number: int
    name: str
    type: int
    nullable: bool
    default: Value
    xmin: int
    default_xmin: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A version of a table in the catalog: `serial` is unique, `heap` holds its rows."""

    serial: int
    oid: int
    name: str
    heap: int
    columns: tuple[Column, ...]
    xmin: int

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def numbered(self, number: int) -> Column | None:
        return next((column for column in self.columns if column.number == number), None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: the transactions that are visible to a session, as of pg_current_snapshot()."""

    xmax: int
    running: frozenset[int]

    def shows(self, xid: int) -> bool:
        return xid < self.xmax and xid not in self.running

    def __str__(self) -> str:
        listed = ",".join(map(str, sorted(self.running)))
        return f"{min(self.running, default=self.xmax)}:{self.xmax}:{listed}"


@dataclass(slots=True)
class Version:
    """A version of a row on the page `page`, created by the transaction `xmin` and deleted by `xmax`; both may be
    subtransactions."""

    values: dict[int, Value]
    page: int
    xmin: int
    xmax: int | None = None


@dataclass(frozen=True, slots=True)
class RowChange(Change):
    """A change of rows: `shapes` are the tables, `new` the values of the row by column number, `old` its key before.
    The row is written to `page`."""

    shapes: tuple[Shape, ...] = ()
    new: tuple[tuple[int, object], ...] = ()
    old: Value = None
    page: int = 0
    heaps: tuple[int, ...] = ()

    def at(self, oid: int) -> Shape:
        return self.shapes[self.tables.index(oid)]

    def shape(self, oid: int) -> int:
        return self.at(oid).serial

    def relation(self, oid: int, xid: bytes = b"") -> bytes:
        shape = self.at(oid)
        columns = [(int(column.number == KEY), column.name, column.type) for column in shape.columns]
        return log.relation(oid, "public", shape.name, columns, xid)

    def row(self) -> tuple[object, ...]:
        """Return the new row's values in the order of its columns."""
        values = dict(self.new)
        return tuple(values.get(column.number, column.default) for column in self.shapes[0].columns)

    def message(self, lsn: int, xid: bytes = b"", flags: int = 1) -> bytes:
        if self.kind in "LT":
            return Change.message(self, lsn, xid, flags)
        head = self.kind.encode() + xid + self.tables[0].to_bytes(4, "big")
        key = b""
        if self.old is not None:
            key = b"K" + log.row([self.old if column.number == KEY else None for column in self.shapes[0].columns])
        return head + key + (b"" if self.kind == "D" else b"N" + log.row(self.row()))


@dataclass(frozen=True, slots=True)
class Alter(Change):
    """A statement (X) that changes a table to `after`, or drops it (None). Into a new heap the rows are written as new
    versions, or, if it only `moves` them, unchanged. It is not sent to clients."""

    after: Shape | None = None
    moves: bool = False


class Tables:
    """The tables after all records of the log so far. `top` has the transactions of subtransactions."""

    def __init__(self, first: tuple[Shape, ...]) -> None:
        self._first = first
        self.forget()

    def forget(self) -> None:
        """Reset to the state at the beginning of the log."""
        self.heaps: dict[int, list[Version]] = {shape.heap: [] for shape in self._first}
        self.shapes: dict[int, list[tuple[int, Shape | None]]] = {shape.oid: [(2, shape)] for shape in self._first}
        # LSN at which each table was created
        self.born: dict[int, int] = {shape.oid: 0 for shape in self._first}
        self.top: dict[int, int] = {}
        # functions that undo the work of running transactions
        self._undo: dict[int, list[tuple[int, Callable[[], object]]]] = {}
        # tables that each transaction has written or altered, and locks while it runs
        self.writes: dict[int, set[int]] = {}
        self.alters: dict[int, set[int]] = {}

    # --- reading ---

    def present(self, oid: int) -> Shape | None:
        """Return the table after the last statement, even if its transaction is running; None if dropped."""
        entries = self.shapes.get(oid)
        return entries[-1][1] if entries else None

    def shown(self, oid: int, snapshot: Snapshot) -> Shape | None:
        """Return the table in `snapshot`; None if it does not exist there."""
        for xid, shape in reversed(self.shapes.get(oid, [])):
            if snapshot.shows(self.top.get(xid, xid)):
                return shape
        return None

    def dropped(self, oid: int, snapshot: Snapshot) -> list[tuple[int, int]]:
        """Return the numbers of the table's dropped columns in `snapshot`, each with the transaction of the drop."""
        found: list[tuple[int, int]] = []
        before: set[int] = set()
        for xid, shape in self.shapes.get(oid, []):
            if snapshot.shows(self.top.get(xid, xid)):
                numbers = set() if shape is None else {column.number for column in shape.columns}
                found += [(number, xid) for number in sorted(before - numbers)]
                before = numbers
        return found

    def all_shown(self, snapshot: Snapshot) -> list[Shape]:
        found = (self.shown(oid, snapshot) for oid in self.shapes)
        return [shape for shape in found if shape is not None]

    def rows(self, heap: int, snapshot: Snapshot) -> Iterator[Version]:
        """Yield the versions that are visible in `snapshot`."""
        for version in self.heaps[heap]:
            if self._shows(snapshot, version.xmin) and not (
                version.xmax is not None and self._shows(snapshot, version.xmax)
            ):
                yield version

    def _shows(self, snapshot: Snapshot, xid: int) -> bool:
        return snapshot.shows(self.top.get(xid, xid))

    def live(self, heap: int) -> list[Version]:
        """Return the versions that nobody has deleted, including those of running transactions."""
        return [version for version in self.heaps[heap] if version.xmax is None]

    # --- writing ---

    def apply(self, record: Record) -> None:
        """Apply a record of the log."""
        xid, writer = record.xid, record.of or record.xid
        self.top[writer] = xid
        if record.kind in "RC":
            if record.kind == "R":
                self._take_back(xid, 0)
                self.writes.pop(xid, None)
                self.alters.pop(xid, None)
            self._undo.pop(xid, None)
        elif record.kind == "A":
            self._take_back(xid, record.of)
        elif isinstance(record.change, Alter):
            self.born.setdefault(record.change.tables[0], record.lsn)
            self._alter(xid, writer, record.change)
        elif isinstance(record.change, RowChange) and record.change.tables:
            self.writes.setdefault(xid, set()).update(record.change.tables)
            self._write(xid, writer, record.change)

    def lose(self) -> None:
        """Roll back all running transactions."""
        for xid in list(self._undo):
            self._take_back(xid, 0)
        self._undo.clear()

    def _take_back(self, xid: int, of: int) -> None:
        """Undo the work of a transaction, or of its subtransaction `of`."""
        entries = self._undo.get(xid, [])
        for writer, undo in reversed(entries):
            if not of or writer == of:
                undo()
        self._undo[xid] = [entry for entry in entries if of and entry[0] != of]

    def _undoing(self, xid: int, writer: int, undo: Callable[[], object]) -> None:
        self._undo.setdefault(xid, []).append((writer, undo))

    def _write(self, xid: int, writer: int, change: RowChange) -> None:
        if change.kind == "T":
            self.alters.setdefault(xid, set()).update(change.tables)
            for shape, number in zip(change.shapes, change.heaps, strict=True):
                self._put(xid, writer, shape.oid, replace(shape, heap=number))
            return
        (shape,) = change.shapes
        heap = self.heaps[shape.heap]
        values = dict(change.new)
        if change.kind != "I":
            key = change.old if change.old is not None else values[KEY]
            old = next(one for one in heap if one.xmax is None and one.values[KEY] == key)
            old.xmax = writer
            self._undoing(xid, writer, lambda: setattr(old, "xmax", None))
            values = {
                number: old.values.get(number) if value is UNCHANGED else value for number, value in values.items()
            }
        if change.kind != "D":
            version = Version(values, change.page, writer)  # type: ignore[arg-type]
            heap.append(version)
            self._undoing(xid, writer, lambda: heap.remove(version))

    def _alter(self, xid: int, writer: int, alter: Alter) -> None:
        (oid,) = alter.tables
        self.alters.setdefault(xid, set()).add(oid)
        before = self.present(oid)
        self._put(xid, writer, oid, alter.after)
        if alter.after is None or before is None or alter.after.heap == before.heap:
            return
        moved = self.heaps[before.heap] if alter.moves else self.live(before.heap)
        for place, version in enumerate(moved):
            # in reverse order, on fewer pages
            xmin = version.xmin if alter.moves else writer
            found = Version(dict(version.values), (len(moved) - 1 - place) // 3, xmin, version.xmax)
            self.heaps[alter.after.heap].append(found)

    def _put(self, xid: int, writer: int, oid: int, shape: Shape | None) -> None:
        entries = self.shapes.setdefault(oid, [])
        entries.append((writer, shape))
        self._undoing(xid, writer, entries.pop)
        if shape is not None:
            self.heaps.setdefault(shape.heap, [])


@dataclass(slots=True)
class Numbers:
    """Counters for unique serials of shapes, heaps, oids, and names of columns."""

    serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    heaps: Iterator[int] = field(default_factory=lambda: itertools.count(90_001))
    oids: Iterator[int] = field(default_factory=lambda: itertools.count(16_500, 10))
    columns: Iterator[int] = field(default_factory=lambda: itertools.count(1))


def created(numbers: Numbers, oid: int, name: str, columns: tuple[str, ...], xid: int) -> Shape:
    """Return a table of text columns, the first of which is its key."""
    made = tuple(Column(place, one, TEXT, place != KEY, None, xid) for place, one in enumerate(columns, 1))
    return Shape(next(numbers.serials), oid, name, next(numbers.heaps), made, xid)
