"""The status of a running pipeline: a line of rate, lag, batch and position, and how far snapshots are. Driver."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, TableProgress, mapping

# --- the progress of a snapshot ---------------------------------------------------------------------------------------

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
            progress.table: first
            for progress in found
            # A table with fewer rows than before is being read anew.
            for first in [self._first.get(progress.table, (now, progress.done))]
            if first[1] <= progress.done
        }
        paced = []
        for progress in found:
            since, begun = self._first.setdefault(progress.table, (now, progress.done))
            paced.append((progress, (progress.done - begun) / (now - since) if now > since else 0.0))
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
            parts.append(f"{duration((one.of - one.done) / rate)} left")
    if one.waiting:
        parts.append(f"{len(one.waiting)} more {'table' if len(one.waiting) == 1 else 'tables'}")
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


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


# --- the line ---------------------------------------------------------------------------------------------------------


log = logging.getLogger("tailrace")

Describe = Callable[[Offsets, Offsets], SourceStatus]
"""A connector's function from an offset and the newest known offset to a status: `Descriptor.load_describe`."""

METRIC = "tailrace"
"""Name of the observed metric. Its fields for a batch: `newest_us`, the newest `source_ts` in µs since 1970 UTC;
`quarantined`, the number of quarantined changes; `events`, the number of changes, if a row can be several. With a
post-processor that reads values again: `reselected`, the number of these values, and `not_reselected`, the number of
events whose row was gone or could not be read."""

INTERVAL_S = 10.0
"""Seconds between two lines if the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Status:
    """The content of one progress record.

    `batch` is Spark's number of the batch, `events` its number of events, `rate` its events per second. `lag_bytes` are
    the unread bytes of the log. `lag_s` are the seconds from the batch's newest commit to the batch's start, or the
    connector's own number if the batch has no commit. Both are None if unknown. `position` is the position up to which
    the log was read. `snapshot` and `tables` are the progress of a running snapshot and of its tables.

    `quarantined` counts quarantined changes. `unchanged` counts the updates left out since the start, as they change no
    delivered column. `reselected` counts the values that were read again from their tables; `not_reselected` the events
    for which that was not possible. `commands` maps `added`, `removed` and `paused` to the tables for which a user has
    done this while the pipeline ran; a word without tables is left out.
    """

    batch: int
    events: int
    rate: float
    lag_bytes: int | None = None
    lag_s: float | None = None
    position: str = ""
    snapshot: SnapshotStatus | None = None
    tables: tuple[TableProgress, ...] = ()
    quarantined: int = 0
    unchanged: int = 0
    reselected: int = 0
    not_reselected: int = 0
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, progress: Mapping[str, Any], describe: Describe) -> Status:
        """Read Spark's progress record: the parsed JSON of `StreamingQueryProgress`.

        If `describe` cannot read the offsets, their fields stay empty; the record's own numbers are always set.
        """
        source: Mapping[str, Any] = (progress.get("sources") or [{}])[0]
        end, newest = offset_of(source.get("endOffset")), offset_of(source.get("latestOffset"))
        described = SourceStatus()
        try:
            described = describe(end, newest)
        except Exception as error:
            # Unreadable offsets, for example of another version, must not end the pipeline or hide the line.
            log.debug("the status of the source cannot be read (%s)", type(error).__name__)
        rate, age, rows = progress.get("processedRowsPerSecond"), _age(progress), int(progress.get("numInputRows", 0))
        counted = _observed(progress, "events")
        events = rows if counted is None else counted
        return cls(
            batch=int(progress.get("batchId", 0)),
            events=events,
            rate=rate * events / rows if isinstance(rate, int | float) and rows else 0.0,
            lag_bytes=described.lag_bytes,
            lag_s=described.lag_s if age is None else age,
            position=described.position,
            snapshot=described.snapshot,
            tables=described.tables,
            quarantined=_observed(progress, "quarantined") or 0,
            unchanged=int(newest.get("unchanged", 0)),
            reselected=_observed(progress, "reselected") or 0,
            not_reselected=_observed(progress, "not_reselected") or 0,
            commands=_commands(end),
        )

    def line(self, total: int) -> str:
        """Format the status line; `total` is the number of events since the start."""
        parts = [f"{self.rate:,.0f} events/s", f"{total:,} in all"]
        lag = []
        if self.lag_bytes is not None:
            lag.append(size(self.lag_bytes))
        if self.lag_s is not None:
            lag.append(f"{self.lag_s:.1f} s")
        if lag:
            parts.append(f"lag {' / '.join(lag)}")
        if self.snapshot:
            parts.append(f"snapshot {self.snapshot.done}/{self.snapshot.of} {self.snapshot.unit}")
        if self.quarantined:
            parts.append(f"{self.quarantined:,} quarantined")
        if self.unchanged:
            parts.append(f"{self.unchanged:,} unchanged left out")
        if self.reselected:
            parts.append(f"{self.reselected:,} values read again")
        if self.not_reselected:
            parts.append(f"{self.not_reselected:,} events not read again")
        parts.append(f"batch {self.batch}")
        if self.position:
            parts.append(f"at {self.position}")
        return " · ".join(parts)


class StatusLine:
    """Writes the status to a stream, stderr by default: rewritten in place on a terminal, else every ten seconds.

    Below it is a line for each table of a running snapshot, on a terminal with a bar.
    """

    def __init__(
        self,
        describe: Describe,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._describe = describe
        # without a terminal, stderr gets lines of the log
        self._logs = out is None and not sys.stderr.isatty()
        self._out = out or sys.stderr
        self._clock = clock
        self._columns = columns
        self._tty = self._out.isatty()
        self._last_batch = -1
        self._last_written: float | None = None
        self._pace = Pace()
        self._lines: list[str] = []
        self._written: list[str] = []
        self._shown = 0
        self._height = 0
        self.total = 0

    def update(self, progress: Mapping[str, Any] | None) -> None:
        """Show the newest progress record, or None to redraw. The same record may come many times."""
        now = self._clock()
        if progress is not None:
            status = Status.of(progress, self._describe)
            # Without new rows Spark keeps reporting, under the number of the next batch.
            if status.events and status.batch != self._last_batch:
                self.total += status.events
                self._last_batch = status.batch
            paced = self._pace.seen(status.tables, now)
            describe = bar if self._tty else described
            self._lines = [status.line(self.total), *(describe(*pair) for pair in paced[:SHOWN])]
        if not self._lines:
            return
        if self._tty:
            self._redraw()
        elif self._last_written is None or now - self._last_written >= INTERVAL_S:
            self._last_written = now
            self._write_lines()

    def close(self) -> None:
        """End the line, so that further output starts on a new one; without a terminal, write the last state."""
        if self._tty and self._shown:
            self._out.write("\n")
            self._out.flush()
        elif not self._tty and self._lines and self._lines != self._written:
            self._write_lines()

    def _redraw(self) -> None:
        """Replace the lines drawn before."""
        up = f"\x1b[{self._height}A" if self._height else ""
        first, *bars = self._lines
        # A line wider than the terminal would take two, and the count of lines would be wrong.
        width = max(1, self._columns() - 1)
        cut = first[:width] if bars or self._height else first
        below = "".join(f"\n{line[:width]}\x1b[K" for line in bars)
        rest = "\x1b[J" if self._height > len(bars) else ""
        self._out.write(f"{up}\r{cut.ljust(min(self._shown, width))}{below}{rest}")
        self._shown = len(cut)
        self._height = len(bars)
        self._out.flush()

    def _write_lines(self) -> None:
        self._written = self._lines
        first, *more = self._lines
        if self._logs:
            log.info("%s", "\n".join((first, *(f"  snapshot of {line}" for line in more))))
            return
        self._out.write("".join(f"{line}\n" for line in (first, *(f"  snapshot of {line}" for line in more))))
        self._out.flush()


def offset_of(value: Any) -> Mapping[str, Any]:
    """Parse a source's offset as Spark reports it, as text or already parsed; empty if there is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    return value if isinstance(value, dict) else {}


def _commands(end: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the tables that commands have added, removed and paused, by the offset of a batch."""
    progress = mapping(end.get("progress"))
    lists = mapping(progress.get("tables"))
    found = {word: list(map(".".join, lists.get(word, ()))) for word in ("added", "removed")}
    found["paused"] = [".".join(entry[0][:2]) for entry in progress.get("held", ())]
    return {word: names for word, names in found.items() if names}


def _observed(progress: Mapping[str, Any], name: str) -> int | None:
    value = (progress.get("observedMetrics") or {}).get(METRIC, {}).get(name)
    return value if isinstance(value, int) else None


def _age(progress: Mapping[str, Any]) -> float | None:
    newest = _observed(progress, "newest_us")
    began = progress.get("timestamp")
    if newest is None or not isinstance(began, str):
        return None
    at = datetime.fromisoformat(began.replace("Z", "+00:00")).astimezone(UTC)
    # A commit during the batch is newer than the batch's start.
    return max(0.0, at.timestamp() - newest / 1e6)


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
