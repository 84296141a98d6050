"""DispatchInterval: `poll.dispatch.interval.ms`, the time between two batches in which changes gather. Planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.runtime import Runtime


class DispatchInterval:
    """The clock of one planner. The first batch of the log begins at once, each further one so long after it."""

    def __init__(self, config: Mapping[str, Any], runtime: Runtime) -> None:
        self._runtime = runtime
        self.seconds = config["poll.dispatch.interval.ms"] / 1000
        self._due = 0.0

    def is_over(self, most: float) -> bool:
        """Whether the next batch may begin; waits for that, at most `most` s.

        Not a whole interval at once: the query that is stopped waits for the answer.
        """
        left = self._due - self._runtime.monotonic()
        if left > 0:
            self._runtime.sleep(min(left, most))
        return left <= most

    def begun(self, *, is_cut: bool) -> None:
        """A batch begins. One that its limits have cut is followed at once: what it left has gathered already."""
        self._due = 0.0 if is_cut else self._runtime.monotonic() + self.seconds
