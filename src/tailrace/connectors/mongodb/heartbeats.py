"""Heartbeats: when a batch gets one. Planner.

A heartbeat is part of the offset that ends its batch, so a batch that is planned again after a crash has the same one.
"""

from __future__ import annotations

import time


class Heartbeats:
    """The clock of `heartbeat.interval.ms`; 0 means none."""

    def __init__(self, interval_ms: int) -> None:
        self._interval = interval_ms / 1000
        self._last = time.monotonic()

    def remaining(self) -> float:
        """Seconds until the next heartbeat is due, 0 when it is; infinite without heartbeats."""
        if not self._interval:
            return float("inf")
        return max(0.0, self._last + self._interval - time.monotonic())

    def beat(self, previous_ms: int) -> int:
        """The time of the heartbeat that is due, in ms since 1970, later than `previous_ms`."""
        self._last = time.monotonic()
        return max(int(time.time() * 1000), previous_ms + 1)
