"""The status of a running pipeline on one line: rate, lag, batch, position. Driver.

Everything comes from Spark's progress record of the newest batch: its offsets say how far the log was read and how
far it reaches, and a metric that the pipeline observes says how old the newest delivered commit is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from tailrace.snapshot.plan import SnapshotPlan

METRIC = "tailrace"
"""Name of the observed metric: its field `newest_us` is the newest `source_ts` of the batch, in µs since 1970 UTC."""

INTERVAL_S = 10.0
"""How often a line is written where the output is no terminal."""


@dataclass(frozen=True, slots=True)
class Status:
    """What one progress record says.

    `batch` is Spark's number of the batch; `events` its records and `rate` those of a second; `lag_bytes` the bytes
    of the log that are still to read and `lag_s` how long before the batch began its newest commit was made, in
    seconds, both None when not known; `position` the LSN that was read to; `chunks` the chunks of a snapshot that
    are read and those there are, while one runs.
    """

    batch: int
    events: int
    rate: float
    lag_bytes: int | None = None
    lag_s: float | None = None
    position: str = ""
    chunks: tuple[int, int] | None = None

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> Status:
        """Read Spark's progress record, the parsed JSON of `StreamingQueryProgress`."""
        source: Mapping[str, Any] = (progress.get("sources") or [{}])[0]
        end, newest = _log_end(source.get("endOffset")), _log_end(source.get("latestOffset"))
        rate = progress.get("processedRowsPerSecond")
        return cls(
            batch=int(progress.get("batchId", 0)),
            events=int(progress.get("numInputRows", 0)),
            rate=float(rate) if isinstance(rate, int | float) else 0.0,
            lag_bytes=max(0, newest - end) if end is not None and newest is not None else None,
            lag_s=_age(progress),
            position="" if end is None else f"{end >> 32:X}/{end & 0xFFFFFFFF:X}",
            chunks=_chunks(source.get("endOffset")),
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
        if self.chunks:
            parts.append(f"snapshot {self.chunks[0]}/{self.chunks[1]} chunks")
        parts.append(f"batch {self.batch}")
        if self.position:
            parts.append(f"at {self.position}")
        return " · ".join(parts)


class StatusLine:
    """Writes the status to a stream, stderr by default: rewritten in place on a terminal, else every ten seconds."""

    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stderr
        self._clock = clock
        self._tty = self._out.isatty()
        self._last_batch = -1
        self._last_written: float | None = None
        self._line = ""
        self._written = ""
        self._shown = 0
        self.total = 0

    def update(self, progress: Mapping[str, Any] | None) -> None:
        """Take the newest progress record; the same one may come many times."""
        if progress is not None:
            status = Status.of(progress)
            # Without new rows Spark goes on reporting under the number of the next batch.
            if status.events and status.batch != self._last_batch:
                self.total += status.events
                self._last_batch = status.batch
            self._line = status.line(self.total)
        if not self._line:
            return
        now = self._clock()
        if self._tty:
            self._out.write("\r" + self._line.ljust(self._shown))
            self._shown = len(self._line)
            self._out.flush()
        elif self._last_written is None or now - self._last_written >= INTERVAL_S:
            self._last_written = now
            self._write_line()

    def close(self) -> None:
        """End the line, so that what follows has one of its own; without a terminal write the last state."""
        if self._tty and self._shown:
            self._out.write("\n")
            self._out.flush()
        elif not self._tty and self._line and self._line != self._written:
            self._write_line()

    def _write_line(self) -> None:
        self._written = self._line
        self._out.write(self._line + "\n")
        self._out.flush()


def _offset(value: Any) -> Mapping[str, Any]:
    """A source's offset as Spark reports it, parsed or as text; empty when there is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    return value if isinstance(value, dict) else {}


def _log_end(value: Any) -> int | None:
    """The LSN that an offset reads to: `log.end`, two hexadecimal numbers with a slash between them."""
    text = _offset(_offset(value).get("log")).get("end")
    if not isinstance(text, str):
        return None
    high, _, low = text.partition("/")
    return (int(high, 16) << 32 | int(low, 16)) or None


def _chunks(value: Any) -> tuple[int, int] | None:
    """The chunks of the running snapshot that are read, and all of them; None when none runs."""
    snapshot = _offset(_offset(value).get("snapshot"))
    if "plan" not in snapshot:
        return None
    done, total = int(snapshot["done"]), len(SnapshotPlan.from_json(snapshot["plan"]))
    return (done, total) if done < total else None


def _age(progress: Mapping[str, Any]) -> float | None:
    newest = (progress.get("observedMetrics") or {}).get(METRIC, {}).get("newest_us")
    began = progress.get("timestamp")
    if not isinstance(newest, int) or not isinstance(began, str):
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
