"""How much of a table the windows of an incremental snapshot read, so that the stream beside it stays near its pace."""

from __future__ import annotations

import time
from collections import deque

# The least time of a batch with a window, in s, that the automatic number of chunks aims at.
WINDOW_PACE = 0.15
# The least number of rows that a task of an automatic window reads.
WINDOW_ROWS = 8192
# The longest interval that windows fill, in s, and the part of `poll.dispatch.interval.ms` that a batch with one takes.
LONGEST = 10.0
FILL = 0.9
# A window has at most so many times the chunks of the one before it, or one more, without an interval and with one.
GROWTH, FAST = 1.25, 2.5
# So many calls must have come at the ticks of a clock to show a trigger, each at most so late, in s.
TICKS = 12
LATE = 0.015
# Triggers are multiples of this, in ms.
STEP = 50


class ReadingPace:
    """For chunks that the planner itself reads: `fixed`, or with 0 from `first` on as many as it reads in time.

    They double, up to `most`, after a window that took less than `fast` seconds, and halve after one that took more
    than `slow`.
    """

    waits = True

    def __init__(self, fixed: int, first: int, most: int, fast: float, slow: float) -> None:
        self._fixed, self._chunks, self._most = fixed, first, most
        self._fast, self._slow = fast, slow

    def chunks(self) -> int:
        """The number of chunks of the window that is opened now."""
        return self._fixed or self._chunks

    def read(self, seconds: float) -> None:
        """A window was opened, and its chunks were read, in so many seconds."""
        if seconds < self._fast:
            self._chunks = min(self._chunks * 2, self._most)
        elif seconds > self._slow:
            self._chunks = max(self._chunks // 2, 1)

    def planned(self, chunks: int) -> None:
        """A batch is given to Spark: nothing follows from that."""

    def returned(self) -> None:
        """Spark asks for the next batch: nothing follows from that."""


class BatchPace:
    """For chunks that tasks read: `fixed`, or with 0 as many as the stream can wait for.

    The stream waits for the rows of its batch, so a batch's time is what a snapshot costs its latency. A query without
    pause gets windows that double the time of a batch, or take WINDOW_PACE. A batch's time is counted from its plan to
    the call for the next one; what it takes beyond a batch without a window is the chunks'.

    Where changes gather for an interval between two batches, `poll.dispatch.interval.ms` or Spark's trigger, they wait
    for it anyway: windows may take that time, up to LONGEST. Those of the option's `gathering` s follow each other at
    once, as long as there are any, and take FILL of it; those of a trigger end with its next tick.

    A window has WINDOW_ROWS for each of `parallelism` tasks at least: less would cost as much. The first window of a
    snapshot has the least; with an interval, half of what has fitted before.
    """

    def __init__(self, fixed: int, parallelism: int, chunk_size: int, gathering: float) -> None:
        self._fixed = fixed
        self._gathering = gathering
        self._least = float(-(-WINDOW_ROWS // chunk_size) * parallelism)
        self._most = 1024 * self._least
        self._chunks = self._least
        self._planned: float | None = None
        # the chunks of the window that is being read; 0 where the batch has none
        self._reads = 0
        # what a batch without a window takes, in s; 0 before there was one
        self._plain = 0.0
        # when Spark has asked for a batch without a window before it, in s since 1970
        self._calls: deque[float] = deque(maxlen=TICKS)
        # the trigger's interval in s; 0 where there is none
        self._interval = 0.0
        # as many chunks as fit in it, once a window was too large for it; and as many as did in the last snapshot
        self._fitting: float | None = None
        self._fitted: float | None = None

    @property
    def waits(self) -> bool:
        """Whether the query waits for ticks, so that there is time to open a window when its batch is planned."""
        # from a batch's plan to the next call it is the trigger's interval, but not the option's
        return self._interval > 0 and 2 * self._plain >= self._gathering

    def chunks(self) -> int:
        """The number of chunks of the window that is opened now."""
        return self._fixed or int(self._chunks)

    def read(self, seconds: float) -> None:
        """A window was opened: nothing follows from that."""

    def planned(self, chunks: int) -> None:
        """A batch is given to Spark, with a window of so many chunks; 0: without one."""
        self._planned, self._reads = time.monotonic(), chunks
        if not chunks:
            self._fitted, self._fitting = self._fitting or self._fitted, None
            known = 0.5 * (self._fitted or 0.0) if self._interval or self._gathering else 0.0
            self._chunks = max(self._least, known)

    def returned(self) -> None:
        """Spark asks for the next batch."""
        if self._planned is None:
            return
        took, self._planned = time.monotonic() - self._planned, None
        if not self._reads:
            # sooner shorter than longer: a query's first batches take several times what later ones do
            self._plain = min(took, 0.8 * self._plain + 0.2 * took) if self._plain else took
            self._calls.append(time.time())
            if len(self._calls) == TICKS and not _is_kept(self._interval, self._calls):
                self._interval = _interval(self._calls)
            return
        self._calls.clear()
        if self.waits:
            self._fit(took)
        else:
            # the next window may have been opened already: what the last one says is of its own chunks
            whole = FILL * min(self._gathering, LONGEST)
            room = max(WINDOW_PACE - self._plain, self._plain, whole - self._plain)
            growth = room / max(took - self._plain, 0.001)
            if self._gathering and took > 0.5 * whole:
                self._fitted = growth * self._reads
            # two chunks would stay two for ever if the next window could not have one more
            most = max(self._reads * (FAST if self._gathering else GROWTH), self._reads + 1)
            self._chunks = min(self._reads * max(growth, 0.5), most)
        self._chunks = min(max(self._chunks, self._least), self._most)

    def _fit(self, took: float) -> None:
        """The next window's chunks, where one that `took` so long has until the trigger's next tick.

        It does not say how much time a window has left, only that none is left.
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
    """The interval in s of the trigger that makes the last TICKS `calls`; 0 where none does.

    Spark's trigger of an interval runs at the multiples of it since 1970, as long as batches take less.
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
    """Whether half of `calls` come at the ticks of the interval that is known: a busy machine is late now and then."""
    return interval > 0 and 2 * sum(call % interval <= LATE for call in calls) >= len(calls)


Pace = ReadingPace | BatchPace
