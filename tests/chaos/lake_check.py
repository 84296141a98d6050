"""Comparison of Delta Lake tables in each mode with the committed changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.changes import Change, Row, digest, row_of
from tests.chaos.check import Faults

Place = tuple[str, int]


@dataclass
class Expected:
    """The source: rows before all changes, present rows, and the changes in between."""

    keys: Mapping[str, tuple[str, ...]]
    first: Mapping[str, Mapping[str, Row]]
    rows: Mapping[str, Mapping[str, Row]]
    changes: dict[str, list[tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(list))
    """For each table: operation, key and the digest of the row afterwards (0 for a delete)."""

    def add(self, change: Change) -> None:
        self.changes[change.table].append((change.op, change.key, digest(change.row) if change.row else 0))

    def key(self, table: str, row: Mapping[str, Any]) -> str:
        return ",".join(str(row[name]) for name in sorted(self.keys[table]))

    def shown(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the source's columns of a row as texts."""
        return row_of({name: value for name, value in row.items() if not name.startswith("__")})


def latest(expected: Expected, table: str, found: Iterable[Mapping[str, Any]], faults: Faults) -> None:
    """Check that the rows are those of `select *`, each once."""
    seen: dict[str, Row] = {}
    for row in found:
        key = expected.key(table, row)
        if key in seen:
            faults.add("a row is there twice", f"{table}[{key}]")
        seen[key] = expected.shown(row)
    _equal(table, seen, expected.rows[table], faults)


def _equal(table: str, seen: Mapping[str, Row], rows: Mapping[str, Row], faults: Faults) -> None:
    for key in seen.keys() | rows.keys():
        if key not in seen:
            faults.add("a row is missing", f"{table}[{key}]")
        elif key not in rows:
            faults.add("a row is left", f"{table}[{key}]")
        elif seen[key] != rows[key]:
            names = [name for name in {**seen[key], **rows[key]} if seen[key].get(name) != rows[key].get(name)]
            faults.add("a row is wrong", f"{table}[{key}]: {', '.join(sorted(names))}")


def history(expected: Expected, table: str, found: Iterable[Mapping[str, Any]], faults: Faults) -> None:
    """Check that the versions of each key are its past states, in order, without gap and overlap."""
    versions: dict[str, list[tuple[Place, Place | None, int]]] = defaultdict(list)
    current: list[Mapping[str, Any]] = []
    for row in found:
        since = (row["__valid_from"], row["__valid_from_ordinal"])
        until = None if row["__valid_to"] is None else (row["__valid_to"], row["__valid_to_ordinal"])
        versions[expected.key(table, row)].append((since, until, digest(expected.shown(row))))
        if until is None:
            current.append(row)
    latest(expected, table, current, faults)
    wanted = _wanted_versions(expected, table)
    for key in versions.keys() | wanted.keys():
        own = sorted(versions.get(key, ()), key=lambda version: version[0])
        there = [version[2] for version in own]
        if there != [row for row, _ in wanted.get(key, ())]:
            faults.add("versions", f"{table}[{key}] has {len(there)}, {len(wanted.get(key, ()))} were committed")
            continue
        for (_, until, _), (since, _, _), (_, followed) in zip(own, own[1:], wanted[key], strict=False):
            if until is None or until > since:
                faults.add("overlap", f"{table}[{key}] at {since}")
            elif followed and until != since:
                faults.add("gap", f"{table}[{key}] from {until} to {since}")
        if any(until is not None and until < since for since, until, _ in own):
            faults.add("a version that ends before it begins", f"{table}[{key}]")


def _wanted_versions(expected: Expected, table: str) -> dict[str, list[tuple[int, bool]]]:
    """Return for each key its rows in order, each with True if the next one followed at once."""
    found: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for key, row in expected.first[table].items():
        found[key].append((digest(row), False))
    open_keys = set(expected.first[table])
    for op, key, after in expected.changes[table]:
        if op == "t":
            open_keys.clear()
        elif op == "d":
            open_keys.discard(key)
        else:
            if key in open_keys:
                found[key][-1] = (found[key][-1][0], True)
            open_keys.add(key)
            found[key].append((after, False))
    return found


def log(expected: Expected, table: str, found: Iterable[Mapping[str, Any]], faults: Faults) -> None:
    """Check that every change is there once, in its place, and that a replay gives the source's rows."""
    rows = sorted(found, key=lambda row: (row["__position"], row["__ordinal"], row["__part"]))
    state: dict[str, Row] = {}
    moved: Row = {}
    told: list[tuple[str, str, int]] = []
    places = set()
    for row in rows:
        op = row["__op"]
        if op == "r":
            read, shown = expected.key(table, row), expected.shown(row)
            # Nothing changes while the snapshot is read.
            if expected.first[table].get(read) != shown:
                faults.add("a row that never was", f"{table}[{read}]")
            state[read] = shown
            continue
        place = (row["__position"], row["__ordinal"], row["__part"])
        if place in places:
            faults.add("a change is there twice", f"{table} {place}")
        places.add(place)
        key = "" if op == "t" else expected.key(table, row)
        if op == "t":
            state.clear()
        elif op == "d":
            moved = state.pop(key, {})
        else:
            before = moved if row["__part"] == 1 else state.get(key, {})
            kept = {name: before[name] for name in row["__missing"] or () if name in before}
            state[key] = {**expected.shown(row), **kept}
        told.append((op, key, digest(state[key]) if op in "cu" else 0))
    wanted = expected.changes[table]
    if told != wanted:
        at = next((n for n, (one, other) in enumerate(zip(told, wanted, strict=False)) if one != other), len(wanted))
        faults.add("changes", f"{table} has {len(told)} of {len(wanted)}; the first other one is number {at}")
    _equal(table, state, expected.rows[table], faults)
