"""Heartbeats: decides which batches end with a heartbeat, for `heartbeat.interval.ms`. Planner."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.runtime import Runtime


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
        """Return the time of the newest heartbeat at the end of a batch: `previous_ms`, or a new one if it is due.

        `may_beat` is False for a batch without changes if the query ends at the present: heartbeats alone would never
        let it end.
        """
        return self.beat(previous_ms) if may_beat and self.remaining() <= 0 else previous_ms

    def beat(self, previous_ms: int) -> int:
        """Run the due heartbeat and return its time, in ms since 1970, later than `previous_ms`."""
        self._last = self._runtime.monotonic()
        self._act()
        return max(self._runtime.time_ns() // 1_000_000, previous_ms + 1)
