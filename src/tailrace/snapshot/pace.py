"""Pace: the number of chunks in each window of an incremental snapshot, so that the stream is hardly delayed."""

from __future__ import annotations

import time
from collections import deque

# The automatic number of chunks aims at a batch with a window of at least this time, in s.
WINDOW_PACE = 0.15
# The least number of rows that a task of an automatic window reads.
WINDOW_ROWS = 8192
# The longest interval that windows fill, in s, and the part of `poll.dispatch.interval.ms` for a batch with a window.
LONGEST = 10.0
FILL = 0.9
# The most chunks of a window, as a multiple of those of the previous window: without an interval, and with an interval.
# One chunk more is always allowed.
GROWTH, FAST = 1.25, 2.5
# Number of successive calls at equal intervals that show a trigger, and how late each may be, in s.
TICKS = 12
LATE = 0.015
# Triggers are multiples of this, in ms.
STEP = 50


class ReadingPace:
    """Pace of chunks that the planner reads: `fixed` chunks per window, or with 0 a number that begins with `first`.

    The number doubles, up to `most`, after a window of less than `fast` seconds. It halves after a window of more than
    `slow` seconds.
    """

    waits = True

    def __init__(self, fixed: int, first: int, most: int, fast: float, slow: float) -> None:
        self._fixed, self._chunks, self._most = fixed, first, most
        self._fast, self._slow = fast, slow

    def chunks(self) -> int:
        """Return the number of chunks of the window that is opened now."""
        return self._fixed or self._chunks

    def read(self, seconds: float) -> None:
        """Note that a window was opened and its chunks were read in `seconds`."""
        if seconds < self._fast:
            self._chunks = min(self._chunks * 2, self._most)
        elif seconds > self._slow:
            self._chunks = max(self._chunks // 2, 1)

    def planned(self, chunks: int) -> None:
        """Do nothing: the planning of a batch does not change this pace."""

    def returned(self) -> None:
        """Do nothing: Spark's call for the next batch does not change this pace."""


class BatchPace:
    """Pace of chunks that tasks read: `fixed` chunks per window, or with 0 as many as the stream can wait for.

    The stream waits for the rows of its batch, so a snapshot costs latency. In a query without pauses, windows double
    the time of a batch, or take WINDOW_PACE. A batch's time runs from its plan to the call for the next batch. The
    chunks' time is the time by which a batch with a window exceeds a batch without.

    If changes gather between two batches for an interval, `poll.dispatch.interval.ms` or Spark's trigger, they wait
    anyway: windows may take that time, up to LONGEST. With the option (`gathering`, in s) windows follow each other at
    once and take the part FILL of it. With a trigger, they end at its next tick.

    A window has at least WINDOW_ROWS for each of `parallelism` tasks, because fewer rows would take as long. The first
    window of a snapshot has this minimum; with an interval, half of the chunks that fitted in the last snapshot.
    """

    def __init__(self, fixed: int, parallelism: int, chunk_size: int, gathering: float) -> None:
        self._fixed = fixed
        self._gathering = gathering
        self._least = float(-(-WINDOW_ROWS // chunk_size) * parallelism)
        self._most = 1024 * self._least
        self._chunks = self._least
        self._planned: float | None = None
        # chunks of the window that is being read; 0 if the batch has none
        self._reads = 0
        # time of a batch without a window, in s; 0 before there was one
        self._plain = 0.0
        # times of Spark's calls after a batch without a window, in s since 1970
        self._calls: deque[float] = deque(maxlen=TICKS)
        # the trigger's interval in s; 0 without one
        self._interval = 0.0
        # the chunks that fit in the interval, known once a window was too large: now, and in the last snapshot
        self._fitting: float | None = None
        self._fitted: float | None = None

    @property
    def waits(self) -> bool:
        """True if the query waits for ticks, so that there is time to open a window when its batch is planned."""
        # the trigger's interval runs from a batch's plan to the next call, the option's does not
        return self._interval > 0 and 2 * self._plain >= self._gathering

    def chunks(self) -> int:
        """Return the number of chunks of the window that is opened now."""
        return self._fixed or int(self._chunks)

    def read(self, seconds: float) -> None:
        """Do nothing: the opening of a window does not change this pace."""

    def planned(self, chunks: int) -> None:
        """Note that a batch is given to Spark, with a window of `chunks` chunks; 0 for a batch without a window."""
        self._planned, self._reads = time.monotonic(), chunks
        if not chunks:
            self._fitted, self._fitting = self._fitting or self._fitted, None
            known = 0.5 * (self._fitted or 0.0) if self._interval or self._gathering else 0.0
            self._chunks = max(self._least, known)

    def returned(self) -> None:
        """Note that Spark asks for the next batch."""
        if self._planned is None:
            return
        took, self._planned = time.monotonic() - self._planned, None
        if not self._reads:
            # rather too short than too long: a query's first batches take several times as long as later ones
            self._plain = min(took, 0.8 * self._plain + 0.2 * took) if self._plain else took
            self._calls.append(time.time())
            if len(self._calls) == TICKS and not _is_kept(self._interval, self._calls):
                self._interval = _interval(self._calls)
            return
        self._calls.clear()
        if self.waits:
            self._fit(took)
        else:
            # the next window may have been opened already: the last measurement concerns its own chunks
            whole = FILL * min(self._gathering, LONGEST)
            room = max(WINDOW_PACE - self._plain, self._plain, whole - self._plain)
            growth = room / max(took - self._plain, 0.001)
            if self._gathering and took > 0.5 * whole:
                self._fitted = growth * self._reads
            # otherwise two chunks would never become more
            most = max(self._reads * (FAST if self._gathering else GROWTH), self._reads + 1)
            self._chunks = min(self._reads * max(growth, 0.5), most)
        self._chunks = min(max(self._chunks, self._least), self._most)

    def _fit(self, took: float) -> None:
        """Set the number of chunks of the next window, which has time until the trigger's next tick.

        `took` is the time of the last window, in s. It shows whether this was too long, not how much time was left.
        """
        is_rare = self._interval > LONGEST
        most = self._least * LONGEST / WINDOW_PACE if is_rare else self._most
        if took > self._interval:
            self._fitting = self._chunks = 0.95 * self._chunks * self._interval / took
        elif self._fitting is not None and self._chunks >= self._fitting:
            self._fitting = self._chunks = min(1.05 * self._chunks, most)
        else:
            self._chunks = min((2.0 if is_rare else 1.4) * self._chunks, self._fitting or most)


def _interval(calls: deque[float]) -> float:
    """Return the interval in s of the trigger that makes the last TICKS `calls`; 0 if there is none.

    Spark triggers at the multiples of its interval since 1970, as long as batches take less.
    """
    mean = (calls[-1] - calls[0]) / (TICKS - 1)
    interval = round(mean * 1000 / STEP) * STEP / 1000
    if interval < 2 * STEP / 1000 or abs(mean - interval) > LATE / TICKS:
        return 0.0
    ticks = [divmod(call, interval) for call in calls]
    first = ticks[0][0]
    if any(late > LATE or round(tick - first) != place for place, (tick, late) in enumerate(ticks)):
        return 0.0
    return interval


def _is_kept(interval: float, calls: deque[float]) -> bool:
    """Return True if half of `calls` come at the ticks of the known interval: a busy machine is late now and then."""
    return interval > 0 and 2 * sum(call % interval <= LATE for call in calls) >= len(calls)


Pace = ReadingPace | BatchPace
