"""DispatchInterval: `poll.dispatch.interval.ms`, the time between two batches in which changes gather. Planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.runtime import Runtime


class DispatchInterval:
    """The clock of one planner. The first batch of the log begins at once, each further batch an interval later."""

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
        """Note that a batch begins. If its limits cut it, the next one may follow at once: its changes are here."""
        self._due = 0.0 if is_cut else self._runtime.monotonic() + self.seconds
