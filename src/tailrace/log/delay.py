"""StreamingDelay: `streaming.delay.ms`, the pause between a snapshot and the log. Planner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.runtime import Runtime


class StreamingDelay:
    """The clock of one planner; it starts at the first call."""

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
