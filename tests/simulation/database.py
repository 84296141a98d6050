"""A simulated PostgreSQL with tables: rows are written, tables altered, and sessions see committed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.simulation import statements
from tests.simulation.log import UNCHANGED, Change
from tests.simulation.server import Answer, Odds, Server
from tests.simulation.sessions import TableSession
from tests.simulation.tables import (
    KEY,
    Alter,
    Column,
    Numbers,
    RowChange,
    Shape,
    Snapshot,
    Tables,
    Value,
    Version,
    created,
)
from tests.simulation.world import Process

NAMES = ("a", "b", "left")
"""The names of the tables; the last one is not captured."""
FIRST_XID = 1000
SIGNALS = "signals"
KEYS = 14
"""Number of keys: few, so that keys of deleted rows are used again."""
_TYPES = (20, 23, 25, 1043)
_TEXTS = frozenset((25, 1043))


class Database(Server):
    """The server and its tables. `alters` is the probability of a statement that alters a table."""

    def __init__(self, rng: Random, odds: Odds, committed: Callable[[], int], alters: float) -> None:
        super().__init__(rng, odds, committed)
        self.alters = alters
        self.numbers = numbers = Numbers()
        first = [created(numbers, oid, name, ("id", "v", "w"), 2) for oid, name in enumerate(NAMES, 16401)]
        signals = created(numbers, 16404, SIGNALS, ("id", "type", "data"), 2)
        self.tables = Tables((*first, signals))
        self.exported: dict[str, tuple[TableSession, object, Snapshot]] = {}
        self.shown: dict[str, frozenset[tuple[int, int]]] = {}
        """By the text of each snapshot taken: the transactions that it shows, with the LSNs of their commits."""
        self.committed: set[tuple[int, int]] = set()
        """Transactions whose commit is in the log, with its LSN."""
        self._noted_last = ("", 0, 0)
        # LSNs at which the log has lost its end, and with it the transactions in progress
        self._ends: list[int] = []

    # --- the log ---

    def write(self, kind: str, xid: int = 0, change: Change | None = None, of: int = 0, size: int = 0) -> None:
        super().write(kind, xid, change, of, size)
        self.tables.apply(self.records[-1])
        if kind == "C":
            self.committed.add((xid, self.records[-1].lsn))

    def _cut(self, lsn: int) -> None:
        super()._cut(lsn)
        self.tables.forget()
        self.exported.clear()
        self._ends = [end for end in self._ends if end <= self.end]
        ends = iter([*self._ends, None])
        lost = next(ends)
        for record in self.records:
            if lost is not None and record.lsn >= lost:
                self.tables.lose()
                lost = next(ends)
            self.tables.apply(record)
        self.tables.lose()
        self._ends.append(self.end)
        self.committed = {(record.xid, record.lsn) for record in self.records if record.kind == "C"}
        # ids that the log no longer holds are used again
        self.next_xid = 1 + max((record.of or record.xid for record in self.records), default=0)
        self.next_xid = max(self.next_xid, FIRST_XID)

    # --- reads by sessions ---

    def running(self) -> set[int]:
        """Return the transactions that others see as running."""
        return {*self.open, *self.unseen}

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the transactions that have ended now."""
        running = self.running()
        xmax = self.next_xid
        while self.tables.top.get(xmax - 1, xmax - 1) in running:
            xmax -= 1
        return self._noted(Snapshot(xmax, frozenset(xid for xid in running if xid < xmax)))

    def logged(self, lsn: int) -> Snapshot:
        """Return a snapshot of the transactions committed in the log up to `lsn`, as a new slot exports it."""
        over = {record.xid for record in self.records if record.kind in "RC" and record.end <= lsn}
        running = {xid for xid in self.running() if xid not in over}
        return self._noted(Snapshot(self.next_xid, frozenset(running)))

    def _noted(self, found: Snapshot) -> Snapshot:
        text = str(found)
        if (seen := (text, self.cuts, len(self.committed))) != self._noted_last:
            self.shown[text] = frozenset(one for one in self.committed if found.shows(one[0]))
            self._noted_last = seen
        return found

    def session(self, process: Process) -> TableSession:
        return TableSession(self, process)

    @property
    def answers(self) -> tuple[tuple[str, Answer], ...]:
        return statements.ANSWERS

    def named(self, name: str, snapshot: Snapshot | None = None) -> Shape | None:
        """Return the table of that name; None if there is none."""
        for shape in self.tables.all_shown(snapshot or self.snapshot()):
            if shape.name == name:
                return shape
        return None

    def column_numbers(self, oid: int) -> dict[str, int]:
        """Return the numbers of all columns that the table has ever had, by their names, which are never reused."""
        shapes = (shape for _, shape in self.tables.shapes[oid] if shape is not None)
        return {column.name: column.number for shape in shapes for column in shape.columns}

    def is_altered(self, oid: int) -> bool:
        """Return True if a running transaction has altered the table, and so locks it."""
        return any(oid in self.tables.alters.get(xid, ()) for xid in self.running())

    # --- writes ---

    def act(self) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.02 or not self.open:
            self._begin()
        xid = rng.choice(list(self.open))
        if what < self.odds.jump:
            self.write("X", size=rng.choice([1 << 20, 20 << 20, 40 << 20]))
        elif what < 0.05:
            self.next_number += 1
            self.write("M", change=Change("L", (), self.next_number))
        elif what < 0.12 and len(self.open) < 4:
            self._begin()
        elif what < 0.12 + self.alters:
            self._alter(xid)
        elif what < 0.20 + self.alters and self.open[xid]:
            of, self.next_xid = self.next_xid, self.next_xid + 1
            wrote = [self._change(xid, of) for _ in range(rng.randint(1, 3))]
            if any(wrote) and rng.random() < 0.6:
                self.write("A", xid, of=of)
        elif what < 0.75 and self.open[xid] < 30:
            for _ in range(rng.choice([1, 1, 1, 2, 5])):
                self.open[xid] += self._change(xid)
        else:
            self._end(xid, "C" if rng.random() < 0.9 else "R")

    def _begin(self) -> int:
        xid, self.next_xid = self.next_xid, self.next_xid + 1
        self.open[xid] = 0
        return xid

    def _end(self, xid: int, kind: str) -> None:
        del self.open[xid]
        self.write(kind, xid)
        if self.rng.random() < self.odds.unseen:
            self.unseen.add(xid)
        if self.rng.random() < self.odds.flush:
            self.flush()

    def put(self, name: str, values: tuple[Value, ...], *, is_local: bool = False) -> None:
        """Insert a row in a transaction of its own; if `is_local`, it waits for no standby."""
        shape = self.named(name)
        assert shape is not None
        xid = self._begin()
        new = tuple((place, value) for place, value in enumerate(values, 1))
        self.write("c", xid, RowChange("I", (shape.oid,), 0, (shape,), new))
        self._end_own(xid, is_local)

    def remove(self, name: str, key: str) -> None:
        """Delete a row in a transaction of its own."""
        shape = self.named(name)
        assert shape is not None
        if not any(version.values[KEY] == key for version in self.tables.live(shape.heap)):
            return
        xid = self._begin()
        self.write("c", xid, RowChange("D", (shape.oid,), 0, (shape,), old=key))
        self._end_own(xid, True)

    def _end_own(self, xid: int, is_local: bool) -> None:
        if not is_local:
            self._end(xid, "C")
            return
        del self.open[xid]
        self.write("C", xid)
        self.flush()

    def _free(self, xid: int, *, wholly: bool) -> list[Shape]:
        """Return the tables that a transaction may write; if `wholly`, only those that nobody else uses."""
        others = self.running() - {xid}
        locked = {oid for other in others for oid in self.tables.alters.get(other, ())}
        if wholly:
            locked |= {oid for other in others for oid in self.tables.writes.get(other, ())}
            locked |= {oid for session in self.sessions for oid in session.locks}  # type: ignore[attr-defined]
        found = (self.tables.present(oid) for oid in self.tables.shapes if oid not in locked)
        return [shape for shape in found if shape is not None and shape.name != SIGNALS]

    def _change(self, xid: int, of: int = 0) -> bool:
        """Write a random change; return False if nothing could be written."""
        rng = self.rng
        self.next_number += 1
        kind = rng.choice("IIIIIIUUUUDDTL")
        if kind == "L":
            self.write("c", xid, Change("L", (), self.next_number), of)
            return True
        free = self._free(xid, wholly=kind == "T")
        if not free:
            return False
        if kind == "T":
            shapes = tuple(shape for shape in free if rng.random() < 0.4)[:2] or (rng.choice(free),)
            heaps = tuple(next(self.numbers.heaps) for _ in shapes)
            oids = tuple(shape.oid for shape in shapes)
            self.write("c", xid, RowChange("T", oids, self.next_number, shapes, heaps=heaps), of)
            return True
        return self._write_row(xid, of, kind, rng.choice(free))

    def _write_row(self, xid: int, of: int, kind: str, shape: Shape) -> bool:
        rng, tables = self.rng, self.tables
        others = self.running() - {xid}
        heap = tables.heaps[shape.heap]

        def by_others(writer: int | None) -> bool:
            return writer is not None and tables.top.get(writer, writer) in others

        usable = [one for one in heap if one.xmax is None and not by_others(one.xmin)]
        taken = {one.values[KEY] for one in heap if one.xmax is None or by_others(one.xmax)}
        keys = [key for key in (f"{number:03}" for number in range(KEYS)) if key not in taken]
        row = rng.choice(usable) if usable else None
        if kind == "I" and keys:
            new = self._values(shape, rng.choice(keys), None)
            return self._log(
                xid, of, RowChange("I", (shape.oid,), self.next_number, (shape,), new, None, self._page(heap))
            )
        if row is None or kind == "I":
            return False
        key = row.values[KEY]
        if kind == "D":
            return self._log(xid, of, RowChange("D", (shape.oid,), self.next_number, (shape,), (), key))
        moves = bool(keys) and rng.random() < 0.15
        new = self._values(shape, rng.choice(keys) if moves else key, row)
        old = key if moves else None
        page = self._page(heap)
        return self._log(xid, of, RowChange("U", (shape.oid,), self.next_number, (shape,), new, old, page))

    def _log(self, xid: int, of: int, change: RowChange) -> bool:
        self.write("c", xid, change, of)
        return True

    def _values(self, shape: Shape, key: Value, old: Version | None) -> tuple[tuple[int, object], ...]:
        """Return a row's new values; an update may leave a value that is stored out of line (TOAST) unchanged."""
        found: list[tuple[int, object]] = [(KEY, key)]
        for column in shape.columns:
            if column.number == KEY:
                continue
            kept = old is not None and column.number == 2 and old.values.get(2) is not None
            value: object = str(self.next_number) if self.rng.random() < 0.9 or not column.nullable else None
            found.append((column.number, UNCHANGED if kept and self.rng.random() < 0.3 else value))
        return tuple(found)

    def _page(self, heap: list[Version]) -> int:
        """Return the page for a new row: one with room, or a new one."""
        used = [version.page for version in heap if version.xmax is None]
        room = [page for page in range(max((version.page for version in heap), default=0) + 1) if used.count(page) < 3]
        return self.rng.choice(room) if room and self.rng.random() < 0.7 else max(used, default=-1) + 1

    # --- statements that alter tables ---

    def _alter(self, xid: int) -> None:
        free = self._free(xid, wholly=True)
        if not free:
            return
        shape = self.rng.choice(free)
        kind = self.rng.choice(["add", "add", "drop", "rename", "type", "type", "null", "null", "anew", "cluster"])
        others = [column for column in shape.columns if column.number != KEY]
        if kind == "anew":
            self._ddl(xid, shape.oid, None)
            oid = next(self.numbers.oids)
            self._ddl(xid, oid, created(self.numbers, oid, shape.name, self._made(), xid))
        elif kind == "cluster":
            self._ddl(xid, shape.oid, self._with(shape, shape.columns, heap=next(self.numbers.heaps)), moves=True)
        elif kind == "add":
            number = 1 + max(
                column.number for _, one in self.tables.shapes[shape.oid] if one is not None for column in one.columns
            )
            has_default = self.rng.random() < 0.6
            default, by = (self._default(), xid) if has_default else (None, None)
            nullable = not has_default or self.rng.random() < 0.5
            column = Column(number, self._name(), self.rng.choice(_TYPES), nullable, default, xid, by)
            self._ddl(xid, shape.oid, self._with(shape, (*shape.columns, column)))
        elif kind == "rename":
            self._replace(xid, shape, self.rng.choice(shape.columns), name=self._name())
        elif others and kind == "null":
            # also if it is nullable already: its row in the catalog is written all the same
            self._replace(xid, shape, self.rng.choice(others), nullable=True)
        elif others and kind == "drop":
            gone = self.rng.choice(others)
            self._ddl(xid, shape.oid, self._with(shape, tuple(one for one in shape.columns if one != gone)))
        elif others:
            column = self.rng.choice(others)
            self._retype(xid, shape, column, self.rng.choice([one for one in _TYPES if one != column.type]))

    def rename_key(self, name: str) -> None:
        """Rename the key column of a table in a transaction of its own, if nobody else uses the table."""
        xid = self._begin()
        for shape in self._free(xid, wholly=True):
            if shape.name == name:
                self._replace(xid, shape, shape.columns[0], name=self._name())
        self._end(xid, "C")

    def _retype(self, xid: int, shape: Shape, column: Column, kind: int) -> None:
        # true if the stored form differs
        anew = not {kind, column.type} <= _TEXTS
        heap = next(self.numbers.heaps) if anew else shape.heap
        by = None if column.default is None else xid
        self._replace(xid, shape, column, heap, type=kind, default_xmin=by)

    def _replace(self, xid: int, shape: Shape, column: Column, heap: int | None = None, **fields: object) -> None:
        changed = replace(column, xmin=xid, **fields)  # type: ignore[arg-type]
        columns = tuple(changed if one == column else one for one in shape.columns)
        self._ddl(xid, shape.oid, self._with(shape, columns, heap=heap or shape.heap))

    def _with(self, shape: Shape, columns: tuple[Column, ...], heap: int | None = None) -> Shape:
        return replace(shape, serial=next(self.numbers.serials), columns=columns, heap=heap or shape.heap)

    def _ddl(self, xid: int, oid: int, after: Shape | None, moves: bool = False) -> None:
        """Write a DDL record, larger than others: it stands for all rows of the catalog."""
        self.write("X", xid, Alter("X", (oid,), 0, after, moves), size=400)

    def _name(self) -> str:
        return f"c{next(self.numbers.columns)}"

    def _made(self) -> tuple[str, ...]:
        return ("id", *(self._name() for _ in range(self.rng.randint(1, 2))))

    def _default(self) -> str:
        self.next_number += 1
        return str(self.next_number)
