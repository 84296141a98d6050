"""TableProgress: how far the tables of a running snapshot are, and how that looks as a bar or a line. Driver.

The form in which the planner tells it is said in `tailrace.status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tailrace.snapshot.plan import SnapshotPlan

WIDTH = 24
"""Characters of a bar."""

SHOWN = 8
"""Tables that are shown at most."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table that is being read: `done` of `of` rows or chunks, `of` None where nobody knows how many there are.

    `waiting` counts the tables that come after it; `paused` tells that a signal has paused the snapshot.
    """

    table: str
    done: int
    of: int | None
    unit: Literal["rows", "chunks"] = "rows"
    waiting: int = 0
    paused: bool = False


def tables(end: Mapping[str, Any], latest: Mapping[str, Any]) -> list[TableProgress]:
    """The tables of the running snapshot, of the offsets of a progress record; empty when none is running.

    The planner's own figures in `latest` come first. Without them the initial snapshot tells its chunks, and an
    incremental one the rows that it has read.
    """
    told = _told(latest.get("snapshot"))
    if told:
        return told
    snapshot = end.get("snapshot")
    if isinstance(snapshot, Mapping) and "plan" in snapshot:
        return _planned(SnapshotPlan.from_json(snapshot["plan"]), int(snapshot["done"]))
    state = _mapping(_mapping(end.get("progress")).get("state"))
    listed = state.get("collections")
    if not listed:
        return []
    name = f"{listed[0][0]}.{listed[0][1]}"
    return [TableProgress(name, int(state["rows"]), None, "rows", len(listed) - 1, bool(state.get("paused")))]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _told(value: Any) -> list[TableProgress]:
    """The figures of a planner: one entry or several; what is no entry is passed over."""
    entries = value if isinstance(value, list) else [value]
    found = []
    for entry in map(_mapping, entries):
        rows, of = entry.get("rows"), entry.get("of")
        if isinstance(entry.get("table"), str) and isinstance(rows, int):
            waiting = entry.get("waiting")
            found.append(
                TableProgress(
                    entry["table"],
                    rows,
                    of if isinstance(of, int) else None,
                    "rows",
                    waiting if isinstance(waiting, int) else 0,
                    entry.get("paused") is True,
                )
            )
    return found


def _planned(plan: SnapshotPlan, done: int) -> list[TableProgress]:
    """The table whose chunks are read next; none when all are."""
    for place, table in enumerate(plan.tables):
        count = len(SnapshotPlan((table,), plan.chunk_pages))
        if done < count:
            return [TableProgress(f"{table.schema}.{table.table}", done, count, "chunks", len(plan.tables) - place - 1)]
        done -= count
    return []


class Pace:
    """How fast each table has been read since it was first seen."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}

    def seen(self, found: Sequence[TableProgress], now: float) -> list[tuple[TableProgress, float]]:
        """Each table with its rows or chunks a second, 0 when that is not known yet; `now` in seconds."""
        self._first = {
            one.table: first
            for one in found
            # A table that has fewer rows than before is being read anew.
            for first in [self._first.get(one.table, (now, one.done))]
            if first[1] <= one.done
        }
        paced = []
        for one in found:
            since, begun = self._first.setdefault(one.table, (now, one.done))
            paced.append((one, (one.done - begun) / (now - since) if now > since else 0.0))
        return paced


def described(one: TableProgress, rate: float) -> str:
    """The figures of one table: `public.t 1,200 of 5,000 rows · 600 rows/s · 6 s left`."""
    many = f"{one.done:,} of {one.of:,} {one.unit}" if one.of is not None else f"{one.done:,} {one.unit}"
    parts = [f"{one.table} {many}"]
    if one.paused:
        parts.append("paused")
    elif rate > 0:
        parts.append(f"{rate:,.0f} {one.unit}/s" if rate >= 1 else f"{rate:.2f} {one.unit}/s")
        if one.of is not None and one.of > one.done:
            parts.append(f"{_duration((one.of - one.done) / rate)} left")
    if one.waiting:
        parts.append(f"{one.waiting} more {'table' if one.waiting == 1 else 'tables'}")
    return " · ".join(parts)


def bar(one: TableProgress, rate: float) -> str:
    """The same behind a bar; a table of unknown size has no bar."""
    if one.of is None:
        return f"{' ' * (WIDTH + 2)} {described(one, rate)}"
    # An estimate may be too small; the bar is full only when the table is read.
    share = min(one.done / one.of, 1.0) if one.of else 1.0
    eighths = int(share * WIDTH * 8)
    filled = "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
    return f"▕{filled.ljust(WIDTH)}▏ {described(one, rate)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
