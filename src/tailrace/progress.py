"""The progress of the tables of a running snapshot, as a bar or a line. Driver."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.connectors.source_status import TableProgress

WIDTH = 24
"""Characters of a bar."""

SHOWN = 8
"""The most tables that are shown."""


class Pace:
    """The rates at which tables have been read since they were first seen."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[float, int]] = {}

    def seen(self, found: Sequence[TableProgress], now: float) -> list[tuple[TableProgress, float]]:
        """Return each table with its rate in rows or chunks per second, 0 if not known yet; `now` is in seconds."""
        self._first = {
            one.table: first
            for one in found
            # A table with fewer rows than before is being read anew.
            for first in [self._first.get(one.table, (now, one.done))]
            if first[1] <= one.done
        }
        paced = []
        for one in found:
            since, begun = self._first.setdefault(one.table, (now, one.done))
            paced.append((one, (one.done - begun) / (now - since) if now > since else 0.0))
        return paced


def described(one: TableProgress, rate: float) -> str:
    """Format the progress of one table: `public.t 1,200 of 5,000 rows · 600 rows/s · 6 s left`."""
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
    """Format the progress of one table behind a bar; a table of unknown size has no bar."""
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
