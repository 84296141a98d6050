"""Timing: the pause after a snapshot, the interval between batches, and the heartbeats at their ends. Planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.process.runtime import Runtime

# --- streaming.delay.ms -----------------------------------------------------------------------------------------------


class StreamingDelay:
    """The pause between a snapshot and the log, `streaming.delay.ms`. It begins at the first call."""

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        self._runtime = runtime
        self._delay = config["streaming.delay.ms"] / 1000
        self._pace = config["poll.interval.ms"] / 1000
        self._until = 0.0

    def is_over(self, *, wholly: bool) -> bool:
        """Return True once the pause is over; wait up to `poll.interval.ms` for it, or until its end if `wholly`.

        `wholly` is for a query that ends at the present: it would take an empty answer for its end.
        """
        if not self._delay:
            return True
        self._until = self._until or self._runtime.monotonic() + self._delay
        left = self._until - self._runtime.monotonic()
        self._runtime.sleep(max(0.0, left if wholly else min(left, self._pace)))
        return self._runtime.monotonic() >= self._until


# --- poll.dispatch.interval.ms ----------------------------------------------------------------------------------------


class DispatchInterval:
    """The interval between batches, `poll.dispatch.interval.ms`. The first batch of the log begins at once."""

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        self._runtime = runtime
        self.seconds = config["poll.dispatch.interval.ms"] / 1000
        self._due = 0.0

    def is_over(self, most: float) -> bool:
        """Return True if the next batch may begin; wait for it, at most `most` s.

        The wait is bounded because a query that is being stopped waits for the answer.
        """
        left = self._due - self._runtime.monotonic()
        if left > 0:
            self._runtime.sleep(min(left, most))
        return left <= most

    def begun(self, *, is_cut: bool) -> None:
        """Note that a batch begins. If its limits cut it, the next batch may follow at once: its changes are here."""
        self._due = 0.0 if is_cut else self._runtime.monotonic() + self.seconds


# --- heartbeat.interval.ms --------------------------------------------------------------------------------------------


class Heartbeats:
    """The clock of `heartbeat.interval.ms`; 0 means none. `act` is called at each heartbeat.

    A heartbeat is part of the offset that ends its batch, so a batch planned again after a crash has the same
    heartbeat. `act` is called when the heartbeat is decided on, and not again for such a batch.
    """

    def __init__(self, interval_ms: int, runtime: Runtime, act: Callable[[], None] = lambda: None) -> None:
        self._interval = interval_ms / 1000
        self._runtime = runtime
        self._act = act
        self._last = runtime.monotonic()

    def remaining(self) -> float:
        """Return the seconds until the next heartbeat is due, 0 if it is due now; infinite without heartbeats."""
        if not self._interval:
            return float("inf")
        return max(0.0, self._last + self._interval - self._runtime.monotonic())

    def newest(self, previous_ms: int, may_beat: bool) -> int:
        """Return the time of the newest heartbeat, in ms since 1970: `previous_ms`, or now if a heartbeat is due.

        `may_beat` is False for a batch without changes if the query ends at the present: heartbeats alone would never
        let it end.
        """
        return self.beat(previous_ms) if may_beat and self.remaining() <= 0 else previous_ms

    def beat(self, previous_ms: int) -> int:
        """Run the due heartbeat and return its time, in ms since 1970, later than `previous_ms`."""
        self._last = self._runtime.monotonic()
        self._act()
        return max(self._runtime.time_ns() // 1_000_000, previous_ms + 1)
