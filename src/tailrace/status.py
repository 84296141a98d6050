"""The status of a running pipeline on one line: rate, lag, batch, position. Driver.

Everything comes from Spark's progress record of the newest batch: its offsets say how far the log was read and how
far it reaches, in the words of their connector (`tailrace.connectors.source_status`), and a metric that the pipeline
observes says how old the newest delivered commit is. While a snapshot is running, each of its tables has a line of its
own.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from tailrace import progress as tables
from tailrace.connectors.source_status import Offsets, SnapshotStatus, SourceStatus, TableProgress
from tailrace.progress import Pace

log = logging.getLogger("tailrace")

Describe = Callable[[Offsets, Offsets], SourceStatus]
"""What a connector says of an offset and of the newest one that it knows: `Descriptor.load_describe`."""

METRIC = "tailrace"
"""Name of the observed metric: its field `newest_us` is the newest `source_ts` of the batch, in µs since 1970 UTC, and
`quarantined` the number of its changes that were put aside; where rows are several changes, `events` is how many these
are; where a post-processor reads values again, `reselected` is how many, and `not_reselected` the number of events
whose row was gone or could not be read."""

INTERVAL_S = 10.0
"""How often a line is written where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Status:
    """What one progress record says.

    `batch` is Spark's number of the batch; `events` its records and `rate` those of a second; `lag_bytes` the bytes
    of the log that are still to read and `lag_s` how long before the batch began its newest commit was made, in
    seconds, both None when not known; `position` how far the log was read; `snapshot` how much of a snapshot is read,
    while one runs; `tables` how far its tables are; `quarantined` the changes that were put aside; `unchanged` the
    updates that were left out since the start because they change nothing that is shown; `reselected` the values that
    were read again from their tables, `not_reselected` the events for which that was not possible.
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

    @classmethod
    def of(cls, progress: Mapping[str, Any], describe: Describe) -> Status:
        """Read Spark's progress record, the parsed JSON of `StreamingQueryProgress`, of a source that `describe` knows.

        What the offsets cannot say is left out; the record's own numbers are there in any case.
        """
        source: Mapping[str, Any] = (progress.get("sources") or [{}])[0]
        end, newest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        described = SourceStatus()
        try:
            described = describe(end, newest)
        except Exception as error:
            # a record of another version, say: the line is for a person, and no reason to end or to be silent
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
        )

    def line(self, total: int) -> str:
        """The line; `total` is the number of events since the start."""
        parts = [f"{self.rate:,.0f} events/s", f"{total:,} in all"]
        lag = []
        if self.lag_bytes is not None:
            lag.append(_size(self.lag_bytes))
        if self.lag_s is not None:
            lag.append(f"{self.lag_s:.1f} s")
        if lag:
            parts.append(f"lag {' / '.join(lag)}")
        if self.snapshot:
            parts.append(f"snapshot {self.snapshot.done}/{self.snapshot.of} {self.snapshot.unit}")
        if self.quarantined:
            parts.append(f"{self.quarantined:,} put aside")
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

    Below it comes a line for each table of a running snapshot, on a terminal with a bar. `describe` reads the offsets
    of the source's connector.
    """

    def __init__(
        self,
        describe: Describe,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self._describe = describe
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
        """Take the newest progress record; the same one may come many times."""
        now = self._clock()
        if progress is not None:
            status = Status.of(progress, self._describe)
            # Without new rows Spark goes on reporting under the number of the next batch.
            if status.events and status.batch != self._last_batch:
                self.total += status.events
                self._last_batch = status.batch
            paced = self._pace.seen(status.tables, now)
            describe = tables.bar if self._tty else tables.described
            self._lines = [status.line(self.total), *(describe(*one) for one in paced[: tables.SHOWN])]
        if not self._lines:
            return
        if self._tty:
            self._redraw()
        elif self._last_written is None or now - self._last_written >= INTERVAL_S:
            self._last_written = now
            self._write_lines()

    def close(self) -> None:
        """End the line, so that what follows has one of its own; without a terminal write the last state."""
        if self._tty and self._shown:
            self._out.write("\n")
            self._out.flush()
        elif not self._tty and self._lines and self._lines != self._written:
            self._write_lines()

    def _redraw(self) -> None:
        """Put the lines in the place of those that were drawn before."""
        up = f"\x1b[{self._height}A" if self._height else ""
        first, *bars = self._lines
        # A line that is wider than the terminal would take two, and the count of lines be wrong.
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
        self._out.write("".join(f"{line}\n" for line in (first, *(f"  snapshot of {line}" for line in more))))
        self._out.flush()


def _offset(value: Any) -> Mapping[str, Any]:
    """A source's offset as Spark reports it, parsed or as text; empty when there is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    return value if isinstance(value, dict) else {}


def _observed(progress: Mapping[str, Any], name: str) -> int | None:
    value = (progress.get("observedMetrics") or {}).get(METRIC, {}).get(name)
    return value if isinstance(value, int) else None


def _age(progress: Mapping[str, Any]) -> float | None:
    newest = _observed(progress, "newest_us")
    began = progress.get("timestamp")
    if newest is None or not isinstance(began, str):
        return None
    at = datetime.fromisoformat(began.replace("Z", "+00:00")).astimezone(UTC)
    # A commit during the batch is newer than its beginning.
    return max(0.0, at.timestamp() - newest / 1e6)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
