"""The checker, which compares a sink with the committed changes. No I/O.

Changes of the log are compared as sequences: one per topic, or one per key if only the order of keys is promised. Each
record must be the next one of its sequence. If repeats are allowed, it may also be an earlier one; from there on, the
sequence must be repeated up to where it was. So a loss, a repeat, a change of order and a wrong value are all found at
the record where they begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.chaos.changes import UNAVAILABLE, Change, Row, digest

MOST = 12
"""Most faults of a kind that are described; the others are counted."""


@dataclass
class _Sequence:
    """The committed changes of one topic or key, and the place that the sink has reached."""

    expected: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    at: int = 0
    furthest: int = 0


@dataclass
class Faults:
    """Faults as sentences, by kind."""

    found: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.counts[kind] <= MOST:
            self.found.setdefault(kind, []).append(text)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        lines = []
        for kind, texts in self.found.items():
            lines.append(f"{kind}: {self.counts[kind]}")
            lines += [f"  {text}" for text in texts]
        return "\n".join(lines)


class Checker:
    """A comparison of one round after another. `by_key`: only the order of keys is promised. `repeats`: repeats are
    allowed."""

    def __init__(self, *, by_key: bool, repeats: bool) -> None:
        self._by_key = by_key
        self._allows_repeats = repeats
        self._sequences: dict[tuple[str, str], _Sequence] = {}
        self._states: dict[str, dict[str, Row]] = {}
        self._known: dict[str, dict[str, Row]] = {}
        self._versions: set[int] = set()
        self._log_begins = False
        self.events = self.repeats = self.reads = 0

    # --- what was committed --------------------------------------------------------------------------------------

    def committed(self, change: Change, delivered: bool) -> None:
        """Add the next change in log order. `delivered` is True if it is after the pipeline's first position."""
        self._version(change)
        if delivered:
            self._log_begins = True
            for part in _with_tombstone(change):
                sequence = self._sequence(part)
                if part.op != "z":
                    sequence.places[part.identity] = len(sequence.expected)
                sequence.expected.append(part.identity)
                sequence.names.append(str(part))

    def _version(self, change: Change) -> None:
        """Record a state of a row: the first snapshot may show any state that is not too old."""
        rows = self._known.setdefault(change.table, {})
        if change.op == "t":
            rows.clear()
        elif change.op == "d":
            rows.pop(change.key, None)
        elif change.row is not None:
            rows[change.key] = _completed(change, rows.get(change.key))
            self._versions.add(digest((change.table, change.key, dict(rows[change.key]))))

    # --- what the sink holds -------------------------------------------------------------------------------------

    def check(self, records: Iterable[Change], rows: Mapping[str, Mapping[str, Row]]) -> Faults:
        """Compare all new records, in the sink's order, and the present tables."""
        faults = Faults()
        for record in records:
            self.events += 1
            if record.op == "r":
                self._read(record, faults)
            else:
                self._follow(record, faults)
            self._replay(record)
        for (table, key), sequence in self._sequences.items():
            missing = sequence.names[sequence.furthest :]
            for name in missing:
                faults.add("missing", f"{name}, the record {sequence.furthest} of {table} {key}".rstrip())
            self._forget(sequence)
        self._compare(rows, faults)
        return faults

    def _follow(self, record: Change, faults: Faults) -> None:
        sequence = self._sequence(record)
        identity = record.identity
        if sequence.at < len(sequence.expected) and sequence.expected[sequence.at] == identity:
            if sequence.at < sequence.furthest:
                self._repeated(record, faults)
            sequence.at += 1
            sequence.furthest = max(sequence.furthest, sequence.at)
            return
        place = sequence.places.get(identity)
        if place is None:
            expected = sequence.names[sequence.at] if sequence.at < len(sequence.names) else "nothing more"
            faults.add("never committed, or too often", f"{record}; expected was {expected}")
            return
        if place < sequence.at:
            self._repeated(record, faults)
        elif place > sequence.furthest:
            faults.add("order", f"{record} comes {place - sequence.furthest} records too early; expected was "
                                f"{sequence.names[sequence.furthest]}")  # fmt: skip
        else:
            faults.add("a repeat with a gap", f"{record}, expected was {sequence.names[sequence.at]}")
        sequence.at = place + 1
        sequence.furthest = max(sequence.furthest, sequence.at)

    def _repeated(self, record: Change, faults: Faults) -> None:
        self.repeats += 1
        if not self._allows_repeats:
            faults.add("repeated", str(record))

    def _read(self, record: Change, faults: Faults) -> None:
        """Compare a snapshot row: in the first snapshot with any past state of the row, in others
        with the present one."""
        self.reads += 1
        assert record.row is not None
        if not record.incremental:
            if digest((record.table, record.key, dict(record.row))) not in self._versions:
                faults.add("a row that never was", str(record))
            return
        state = self._states.get(record.table, {}).get(record.key)
        if state != record.row:
            shown = "there is none" if state is None else "it is another one"
            faults.add("a read that does not fit", f"{record}: {shown} by the records before it")

    def _replay(self, record: Change) -> None:
        rows = self._states.setdefault(record.table, {})
        if record.op == "t":
            rows.clear()
        elif record.op in "dz":
            rows.pop(record.key, None)
        elif record.row is not None:
            rows[record.key] = _completed(record, rows.get(record.key))

    def _compare(self, rows: Mapping[str, Mapping[str, Row]], faults: Faults) -> None:
        for table, expected in rows.items():
            state = self._states.get(table, {})
            for key in expected.keys() | state.keys():
                if key not in state:
                    faults.add("a row is missing at the end", f"{table}[{key}]")
                elif key not in expected:
                    faults.add("a row is left at the end", f"{table}[{key}]")
                elif state[key] != expected[key]:
                    names = [n for n in expected[key].keys() | state[key].keys()
                             if expected[key].get(n) != state[key].get(n)]  # fmt: skip
                    unknown = [name for name in names if state[key].get(name) == UNAVAILABLE]
                    kind = "a value was never delivered" if unknown else "a row is wrong at the end"
                    faults.add(kind, f"{table}[{key}]: {', '.join(sorted(names))}")

    def _forget(self, sequence: _Sequence) -> None:
        """Forget the changes of this round, which are all in Spark's commit log and cannot be repeated."""
        sequence.expected.clear()
        sequence.names.clear()
        sequence.places.clear()
        sequence.at = sequence.furthest = 0

    def snapshot_is_over(self) -> None:
        """Note that the first snapshot is complete, so that earlier states are no longer needed."""
        self._versions.clear()

    def _sequence(self, change: Change) -> _Sequence:
        name = (change.table, change.key if self._by_key and change.op != "t" else "")
        found = self._sequences.get(name)
        if found is None:
            found = self._sequences[name] = _Sequence()
        return found


def _with_tombstone(change: Change) -> tuple[Change, ...]:
    return (change, Change(change.table, "z", change.key, None)) if change.op == "d" else (change,)


def _completed(change: Change, before: Row | None) -> Row:
    """Return the row after a change, with the unchanged values that an update does not carry."""
    row = change.row
    assert row is not None
    if change.partial:
        return {**(before or {}), **row}
    if UNAVAILABLE not in row.values():
        return row
    return {
        name: (before or {}).get(name, UNAVAILABLE) if value == UNAVAILABLE else value for name, value in row.items()
    }
